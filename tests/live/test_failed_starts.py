"""A start that fails is tried once, logged in one line, and then costs what being off costs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.running import done, environ, process

pytestmark = pytest.mark.slow

RUNS = """
import gc, logging, sys, time
lines = []
logging.getLogger("tau_live").addHandler(type("Kept", (logging.Handler,), {
    "emit": lambda self, record: lines.append(record.getMessage())})())
sys.path.insert(0, {beside!r})
{before}
import tau_live

def agent():
    with tau_live.run("agent") as run:
        choice = run.decide("model", ["a", "b"], default="b", allowed=["b"])
        assert (choice.option, run.id, run.reward(1.0)) == ("b", "", False)
    assert tau_live.decide("model", ["a", "b"], default="b").option == "b"
    tau_live.snapshot(), tau_live.current()

for _ in range(300):
    agent()
gc.collect()  # else it is due once for what the start had imported, and counted as the agent's
began = time.thread_time()
for _ in range(300):
    agent()
failed = time.thread_time() - began
import os
os.environ["TAU_LIVE_RL"] = "0"
began = time.thread_time()
for _ in range(300):
    agent()
off = time.thread_time() - began
import json
print(json.dumps(dict(lines=lines, ratio=failed / off)))
"""


def life(path: Path, before: str = "") -> dict[str, Any]:
    code = RUNS.replace("{beside!r}", repr(str(path.parent))).replace("{before}", before)
    with process(code, path) as running:
        found: dict[str, Any] = json.loads(done(running).splitlines()[-1])
    return found


def test_a_file_that_hides_a_module_is_named_once(path: Path) -> None:
    hiding = path.parent / "secrets.py"
    hiding.write_text("TOKEN = 'mine'\n")

    found = life(path, before="import secrets")

    (line,) = found["lines"]
    assert "start_failed: " in line
    assert f"{hiding} hides the module 'secrets': rename it" in line
    assert "\n" not in line
    assert found["ratio"] < 3.0


@pytest.mark.parametrize("missing", ["_sqlite3", "numpy", "pluggy", "wrapt", "msgspec"])
def test_what_is_missing_is_named_once(missing: str, path: Path) -> None:
    found = life(path, before=f"sys.modules[{missing!r}] = None")

    (line,) = found["lines"]
    assert missing in line
    assert "tau-live stays off in this process" in line
    assert found["ratio"] < 3.0


@pytest.mark.parametrize("switch", ["0", "1"])
def test_a_file_that_hides_what_every_border_needs_is_named_too(switch: str, path: Path) -> None:
    (path.parent / "threading.py").write_text("def mine(): pass\n")
    code = "import tau_live\nwith tau_live.run('r') as run: print(run.decide('m', ['a']).option)"
    (path.parent / "agent.py").write_text(code)

    ran = subprocess.run(
        [sys.executable, "agent.py"], env=environ(path, TAU_LIVE_RL=switch), cwd=path.parent,
        capture_output=True, text=True, timeout=60.0, check=False,
    )  # fmt: skip

    assert (ran.returncode, ran.stdout) == (0, "a\n")
    named = f"{path.parent / 'threading.py'} hides the module 'threading': rename it"
    assert ran.stderr.count(named) == int(switch)


LATE = """
import json, tau_live
gate = {"state": "pass"}
while gate.get("state") == "pass":
    with tau_live.run("agent") as run:
        run.decide("model", ["a", "b"])
    tau_live.flush(0.1)
    gate = tau_live.snapshot().get("gate", {})
tau_live.detach()
print(json.dumps([gate.get("state"), gate.get("detail")]))
"""


@pytest.mark.parametrize(
    "hidden",
    ["_datetime", "calendar", "csv", "fcntl", "gettext", "glob", "logging", "tempfile", "zoneinfo"],
)
def test_whichever_module_is_hidden_and_missed_the_file_is_named(hidden: str, path: Path) -> None:
    (path.parent / f"{hidden}.py").write_text("")
    (path.parent / "agent.py").write_text(LATE)

    ran = subprocess.run(
        [sys.executable, "agent.py"], env=environ(path), cwd=path.parent,
        capture_output=True, text=True, timeout=60.0, check=False,
    )  # fmt: skip

    named = f"{path.parent / hidden}.py hides the module '{hidden}': rename it"
    state, detail = json.loads(ran.stdout)
    assert ran.returncode == 0
    assert named in ran.stderr
    assert state is None or (state == "hold" and named in detail)


NO_FILES = """
import logging, os, resource, tau_live
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
print(tau_live.decide("model", ["a", "b"], default="b").option)
with tau_live.run("agent") as run:
    print(run.reward(1.0), tau_live.attach(), tau_live.current())
"""


@pytest.mark.parametrize("switch", ["0", "1"])
def test_a_first_call_without_a_free_file_is_as_if_off(switch: str, path: Path) -> None:
    with process(NO_FILES, path, TAU_LIVE_RL=switch) as full:
        assert done(full).split() == ["b", "False", "None", "None"]


ENDING = """
import sys
class Late:
    def __del__(self):
        with late.run("late") as run:
            print(run.decide("model", ["a", "b"], default="b").option)
        late.run("decorated")(print)(late.decide("model", ["a", "b"], allowed=["b"]).option)
        print(late.current(), late.reward(1.0), late.flush() in (True, False),
              late.snapshot() and late.attach() and late.detach(), flush=True)
        late.Choice, late.Run
import tau_live as late
kept = Late()
{first}
"""


@pytest.mark.parametrize("switch", ["0", "1"])
@pytest.mark.parametrize("first", ["", "late.decide('model', ['a'])"])
def test_every_name_answers_as_the_interpreter_ends(first: str, switch: str, path: Path) -> None:
    with process(ENDING.format(first=first), path, TAU_LIVE_RL=switch) as ending:
        assert done(ending).split() == ["b", "b", "None", "False", "True", "None"]


EARLY = """
import signal, sys
said = []
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("tau_live.") and name not in said:
            said.append(name)
            signal.raise_signal(signal.SIGUSR1)
def handle(number, frame):
    with tau_live.run("early") as run:
        choice = run.decide("model", ["a", "b"], default="b")
        assert choice.option == "b" or choice.source == "policy"  # if it was not late
    assert tau_live.decide("model", ["a", "b"], default="b").option in ("a", "b")
    tau_live.reward(1.0), tau_live.flush(0.0), tau_live.snapshot(), tau_live.current()
    tau_live.Choice, tau_live.Run
import tau_live
signal.signal(signal.SIGUSR1, handle)
sys.meta_path.insert(0, Finder())
tau_live.decide("model", ["a", "b"], default="b")
assert "tau_live.runtime.api" in said
sys.meta_path.pop(0)
print(type(tau_live.decide("model", ["a"])) is tau_live.Choice, tau_live.flush())
"""


@pytest.mark.parametrize("switch", ["0", "1"])
def test_every_name_answers_inside_the_first_access(switch: str, path: Path) -> None:
    with process(EARLY, path, TAU_LIVE_RL=switch) as early:
        assert done(early) == "True True\n"
