"""Each template of the cookbook: renamed, installed by pip, found, and at work in a real store."""

import importlib.util
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.docs.blocks import blocks, commands
from tests.scratch import ROOT, Scratch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("hatchling") is None or importlib.util.find_spec("pip") is None,
        reason="building a package needs pip and hatchling: pip install '.[test]'",
    ),
]
KINDS = ("rewarder", "redactor", "adapter", "alert")
ORDER = "AC-123456"


def instantiate(kind: str, folder: Path) -> Path:
    """Copy a template and give it another name, by the commands that the cookbook shows."""
    made = folder / f"my-{kind}"
    shutil.copytree(ROOT / "docs/templates" / kind, made, ignore=shutil.ignore_patterns("__*"))
    page = (ROOT / "docs/howto/cookbook.md").read_text()
    shown = next(commands(one.text) for one in blocks(page) if one.language == "console")
    renaming = [one for one in shown if "acme" in one]
    assert len(renaming) == 2
    subprocess.run(["bash", "-ec", "\n".join(renaming)], cwd=made, check=True)
    assert not [file for file in made.iterdir() if "acme" in file.name + file.read_text().lower()]
    return made


@pytest.fixture(scope="module")
def my(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scratch]:
    """Return an environment with all four installed, and with the host of the adapter."""
    folder = tmp_path_factory.mktemp("templates")
    scratch = Scratch(folder)
    made = [instantiate(kind, folder) for kind in KINDS]
    shutil.copy(made[KINDS.index("adapter")] / "my.py", scratch.site)
    scratch.said(
        "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
        "--disable-pip-version-check", *made, environ=scratch.environ(None),
    )  # fmt: skip
    for source in made:  # what runs from now on is what was installed
        shutil.rmtree(source)
    yield scratch


def rows(scratch: Scratch, store: str, table: str) -> list[dict[str, object]]:
    with closing(sqlite3.connect(scratch.folder / store)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(f"select * from {table}")]


def test_each_is_found_by_its_entry_point(my: Scratch) -> None:
    told = json.loads(my.cli("doctor", "--json"))["checks"]

    plugins = " ".join(one["found"] for one in told if one["check"] == "plugins")
    assert "my-rewarder (infer_reward)" in plugins
    assert "my-redactor (redact_text)" in plugins
    assert "my-alert (alert_raised)" in plugins
    hosts = [one["found"] for one in told if one["check"] == "hosts"]
    assert [one for one in hosts if one.startswith("my")] == [
        "my can be attached to (adapter from my-adapter 0.1.0)"
    ]


def test_the_rewarder_values_a_run(my: Scratch) -> None:
    my.write("valued.py", "import tau_live\nwith tau_live.run('triage', key=1): pass\n")

    my.said(
        "valued.py",
        environ=my.environ(TAU_LIVE_RL_STORE="valued.db", TAU_LIVE_RL_INFER_REWARD="end"),
    )

    [given] = rows(my, "valued.db", "rewards")
    assert (given["source"], given["value"]) == ("inferred", 1.0)
    assert "my.ended-well 1" in str(given["comment"])


def test_the_redactor_hides_what_would_have_been_stored(my: Scratch) -> None:
    lines = [
        {"type": "agent_start", "timestamp_unix_ms": 1781000000000},
        {"type": "message_added", "role": "assistant", "text": f"{ORDER} is on its way",
         "tool_calls": 0, "timestamp_unix_ms": 1781000000001},
        {"type": "agent_end", "new_messages": 1, "timestamp_unix_ms": 1781000000512},
    ]  # fmt: skip
    my.write("session.jsonl", "".join(f"{json.dumps(one)}\n" for one in lines))
    off = {"TAU_LIVE_RL_PLUGINS_OFF": "my-redactor"}

    for store, more in (("open.db", off), ("hidden.db", {})):
        environ = my.environ(TAU_LIVE_RL_CONTENT="redacted", **more)
        my.cli("ingest", "session.jsonl", "--stream", "desk", "--store", store, environ=environ)

    opened, hidden = (str(rows(my, one, "spans")) for one in ("open.db", "hidden.db"))
    assert ORDER in opened
    assert ORDER not in hidden
    assert "[order] is on its way" in hidden


def test_the_adapter_sees_an_agent_that_knows_nothing_of_it(my: Scratch) -> None:
    text = "from my import Agent\n\nprint(Agent('clerk', str.upper).run('why'))\n"
    my.write("agent.py", text)

    said = my.cli(
        "run", "--", my.python, "agent.py", environ=my.environ(TAU_LIVE_RL_STORE="seen.db")
    )

    assert said == "WHY\n"
    [run] = rows(my, "seen.db", "rollouts")
    assert (run["host"], run["name"], run["status"]) == ("my", "clerk", "succeeded")
    assert "model" in {one["kind"] for one in rows(my, "seen.db", "spans")}


def test_the_alert_is_heard_when_the_gate_holds(my: Scratch) -> None:
    my.write("alarmed-policies", "in the way of every version")
    my.write("alarmed.py", ALARMED)

    my.said(
        "alarmed.py",
        environ=my.environ(
            TAU_LIVE_RL_STORE="alarmed.db", TAU_LIVE_RL_LEARNER="flush",
            TAU_LIVE_RL_UPDATE_INTERVAL="4", TAU_LIVE_RL_MAX_FAILURE_STREAK="1",
            MY_ALERT_FILE="alerts.jsonl",
        ),
    )  # fmt: skip

    [told] = map(json.loads, (my.folder / "alerts.jsonl").read_text().splitlines())
    assert (told["kind"], told["facts"]["reason"]) == ("gate-hold", "update_failures")
    [gate] = rows(my, "alarmed.db", "gate")
    assert gate["state"] == "hold"


ALARMED = """
import pathlib
import time

import tau_live

for number in range(8):
    with tau_live.run("triage") as run:
        choice = run.decide("model", ["small", "large"], default="small")
        run.reward(float(choice.option == "large") + number % 2, name="solved")
tau_live.flush()
until = time.monotonic() + 20
while not pathlib.Path("alerts.jsonl").exists() and time.monotonic() < until:
    time.sleep(0.02)
"""
