"""Off is off: nothing is created, started, imported or written (law 1)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FALSY = [None, "", "0", "false", "no", "off", " OFF ", "perhaps"]

EVERY_CALL = """
import asyncio
import sys
import threading

import tau_live

assert tau_live.attach() is None
with tau_live.run("triage", key="ticket-1", session="user-1") as run:
    choice = run.decide("model", {"small": {"usd": 0.1}, "large": {"usd": 2.0}}, default="large")
    assert (choice.option, choice.source, choice.probability) == ("large", "default", None)
    assert run.decide("model", ["small", "large"]).option == "small"
    assert run.decide("model", {"small": None}).option == "small"
    assert run.reward(1.0, name="solved") is False
    assert run.id == ""
assert tau_live.decide("model", ["small", "large"], default="large").option == "large"
assert tau_live.decide("model", [], default=None).option is None
some = iter(["large"])
assert tau_live.decide("model", ["small", "large"], default="small", allowed=some).option == "large"
assert tau_live.decide("model", ["small"], default="small", allowed=[]).option is None
assert tau_live.reward(1.0, run=run.id) is False
assert tau_live.flush() is True
assert tau_live.snapshot() == {"enabled": False}
assert tau_live.current() is None


@tau_live.run("decorated", key=lambda number: number)
def doubled(number):
    return 2 * number


@tau_live.run("decorated")
async def awaited(number):
    async with tau_live.run("inner"):
        return number


@tau_live.run("decorated")
def counted(number):
    yield from range(number)


assert doubled(2) == 4
assert asyncio.run(awaited(3)) == 3
assert list(counted(2)) == [0, 1]
tau_live.detach()

heavy = {"numpy", "sqlite_utils", "sqlite3", "structlog", "pluggy", "msgspec", "click", "rich"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert threading.active_count() == 1, threading.enumerate()
"""


def run_python(code: str, folder: Path, switch: str | None) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if "TAU_LIVE" not in name}
    environ["HOME"] = str(folder)
    if switch is not None:
        environ["TAU_LIVE_RL"] = switch
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        env=environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
@pytest.mark.parametrize("switch", FALSY)
def test_every_public_call_works_and_leaves_nothing_behind(
    tmp_path: Path, switch: str | None
) -> None:
    done = run_python(EVERY_CALL, tmp_path, switch)

    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.slow
def test_importing_costs_next_to_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); import tau_live; print(set(sys.modules) - before)"
    )

    done = run_python(code, tmp_path, None)

    assert done.stdout.strip() == "{'tau_live'}", done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("switch", "told"), [("perhaps", 1), ("0", 0), (None, 0)])
def test_a_switch_that_is_unclear_is_told_once(
    tmp_path: Path, switch: str | None, told: int
) -> None:
    code = "import tau_live\nfor _ in range(3): tau_live.attach(); tau_live.decide('m', ['a'])"

    done = run_python(code, tmp_path, switch)

    assert done.returncode == 0
    assert done.stderr.count("TAU_LIVE_RL must be one of") == told
    assert list(tmp_path.rglob("*")) == []


HIDDEN = """
import tau_live

with tau_live.run("triage", key="ticket-1") as run:
    choice = run.decide("model", ["small", "large"], default="large", allowed=["large"])
    assert (choice.option, run.reward(1.0)) == ("large", False)
assert tau_live.decide("model", ["small", "large"]).option == "small"


@tau_live.run("decorated")
def doubled(number):
    return 2 * number


assert doubled(2) == 4
try:
    with tau_live.run("failing"):
        raise KeyError("the agent's own")
except KeyError:
    print("as without it")
"""


@pytest.mark.slow
@pytest.mark.parametrize("content", ["raise ValueError('mine')", "MINE = 1"])
@pytest.mark.parametrize(
    "name",
    [
        "types", "collections", "functools", "enum", "re", "json", "logging", "secrets", "inspect",
        "keyword", "opcode", "operator", "reprlib", "typing", "weakref",
    ],
)  # fmt: skip
def test_a_file_beside_the_agent_that_hides_a_module_is_not_noticed_while_off(
    name: str, content: str, tmp_path: Path
) -> None:
    (tmp_path / f"{name}.py").write_text(content)

    alone = run_python("print('as without it')", tmp_path, None)
    done = run_python(HIDDEN, tmp_path, None)

    if alone.returncode == 0:  # else Python itself needs the module
        assert (done.returncode, done.stdout, done.stderr) == (0, "as without it\n", "")
