"""Each template of the cookbook: renamed, installed by pip, found, and at work in a real store."""

import importlib.util
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

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


def instantiate(kind: str, folder: Path, name: str) -> Path:
    """Copy a template under another name, as the cookbook says."""
    made = folder / f"{name}-{kind}"
    made.mkdir()
    for source in (ROOT / "docs/templates" / kind).glob("*.*"):
        text = source.read_text().replace("acme", name).replace("ACME", name.upper())
        (made / source.name.replace("acme", name)).write_text(text)
    return made


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scratch]:
    """Return an environment with all four installed, and with the host of the adapter."""
    folder = tmp_path_factory.mktemp("templates")
    scratch = Scratch(folder)
    made = [instantiate(kind, folder, "mill") for kind in KINDS]
    shutil.copy(made[KINDS.index("adapter")] / "mill.py", scratch.site)
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


def test_each_is_found_by_its_entry_point(mill: Scratch) -> None:
    told = json.loads(mill.cli("doctor", "--json"))["checks"]

    plugins = " ".join(one["found"] for one in told if one["check"] == "plugins")
    assert "mill-rewarder (infer_reward)" in plugins
    assert "mill-redactor (redact)" in plugins
    assert "mill-alert (gate_changed, policy_promoted)" in plugins
    hosts = [one["found"] for one in told if one["check"] == "hosts"]
    assert [one for one in hosts if one.startswith("mill")] == ["mill can be attached to"]


def test_the_rewarder_values_a_run(mill: Scratch) -> None:
    mill.write("valued.py", "import tau_live\nwith tau_live.run('triage', key=1): pass\n")

    mill.said(
        "valued.py",
        environ=mill.environ(TAU_LIVE_RL_STORE="valued.db", TAU_LIVE_RL_INFER_REWARD="end"),
    )

    [given] = rows(mill, "valued.db", "rewards")
    assert (given["source"], given["value"]) == ("inferred", 1.0)
    assert "mill.ended-well 1" in str(given["comment"])


def test_the_redactor_hides_what_would_have_been_stored(mill: Scratch) -> None:
    lines = [
        {"type": "agent_start", "timestamp_unix_ms": 1781000000000},
        {"type": "message_added", "role": "assistant", "text": f"{ORDER} is on its way",
         "tool_calls": 0, "timestamp_unix_ms": 1781000000001},
        {"type": "agent_end", "new_messages": 1, "timestamp_unix_ms": 1781000000512},
    ]  # fmt: skip
    mill.write("session.jsonl", "".join(f"{json.dumps(one)}\n" for one in lines))
    off = {"TAU_LIVE_RL_PLUGINS_OFF": "mill-redactor"}

    for store, more in (("open.db", off), ("hidden.db", {})):
        environ = mill.environ(TAU_LIVE_RL_CONTENT="redacted", **more)
        mill.cli("ingest", "session.jsonl", "--stream", "desk", "--store", store, environ=environ)

    opened, hidden = (str(rows(mill, one, "spans")) for one in ("open.db", "hidden.db"))
    assert ORDER in opened
    assert ORDER not in hidden
    assert "[order] is on its way" in hidden


def test_the_adapter_sees_an_agent_that_knows_nothing_of_it(mill: Scratch) -> None:
    text = "from mill import Agent\n\nprint(Agent('clerk', str.upper).run('why'))\n"
    mill.write("agent.py", text)

    said = mill.cli(
        "run", "--", mill.python, "agent.py", environ=mill.environ(TAU_LIVE_RL_STORE="seen.db")
    )

    assert said == "WHY\n"
    [run] = rows(mill, "seen.db", "rollouts")
    assert (run["host"], run["name"], run["status"]) == ("mill", "clerk", "succeeded")
    assert "model" in {one["kind"] for one in rows(mill, "seen.db", "spans")}


def test_the_alert_is_heard_when_the_gate_holds(mill: Scratch) -> None:
    alarm = mill.write("alarm", '#!/bin/sh\necho "$1" > rung.part && mv rung.part rung\n')
    alarm.chmod(0o755)
    mill.write("alarmed-policies", "in the way of every version")
    mill.write("alarmed.py", ALARMED)

    mill.said(
        "alarmed.py",
        environ=mill.environ(
            TAU_LIVE_RL_STORE="alarmed.db", TAU_LIVE_RL_LEARNER="flush",
            TAU_LIVE_RL_UPDATE_INTERVAL="4", TAU_LIVE_RL_MAX_FAILURE_STREAK="1",
            MILL_ALERT_FILE="alerts.jsonl", MILL_ALERT_COMMAND="./alarm",
        ),
    )  # fmt: skip

    [told] = map(json.loads, (mill.folder / "alerts.jsonl").read_text().splitlines())
    assert (told["alert"], told["reason"]) == ("gate-hold", "update_failures")
    assert json.loads((mill.folder / "rung").read_text()) == told
    [gate] = rows(mill, "alarmed.db", "gate")
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
while not pathlib.Path("rung").exists() and time.monotonic() < until:
    time.sleep(0.02)
"""
