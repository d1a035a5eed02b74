import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tau_live.cli.json_keys import KEYS
from tau_live.core.events import RunStart, encode
from tau_live.core.records import Rollout
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.filled import CHILD, FAILED, SOLVED
from tests.cli.init.making import make_project
from tests.writes import writes

STEPS = str(Path(__file__).with_name("steps.csv"))
"""Decisions of runs of two steps each."""

CALLS: Mapping[str, Sequence[str]] = {
    "status": ["status"],
    "top": ["top", "--frames", "1"],
    "gate show": ["gate", "show"],
    "gate reset": ["gate", "reset", "--reason", "new disk"],
    "gate hold": ["gate", "hold", "--reason", "audit"],
    "gate log": ["gate", "log"],
    "alerts list": ["alerts", "list"],
    "metrics": ["metrics", "--out", "tau_live.prom"],
    "alerts test": ["alerts", "test"],
    "pause": ["pause", "learning", "--reason", "odd rewards"],
    "resume": ["resume", "learning", "--reason", "mended"],
    "kill": ["kill", "--reason", "nonsense"],
    "unkill": ["unkill", "--reason", "mended"],
    "rollouts": ["rollouts"],
    "show": ["show", SOLVED],
    "why": ["why", f"{SOLVED}:1"],
    "evaluate": ["evaluate", "--policy", "uniform", "--log", STEPS],
    "reward": ["reward", "1", "--run", CHILD],
    "updates": ["updates"],
    "updates UPDATE": ["updates", "1"],
    "policy list": ["policy", "list"],
    "policy show": ["policy", "show", "2"],
    "policy use": ["policy", "use", "1", "--point", "model", "--reason", "better"],
    "policy exposure": ["policy", "exposure", "model", "25%", "--reason", "looks good"],
    "policy promote": ["policy", "promote", "model", "--reason", "reviewed"],
    "policy reset": ["policy", "reset", "model", "--reason", "worse"],
    "policy freeze": ["policy", "freeze", "model", "--reason", "reviewed"],
    "policy rollback": ["policy", "rollback", "model", "--reason", "worse"],
    "policy pin": ["policy", "pin", "model", "--reason", "review"],
    "policy unpin": ["policy", "unpin", "pinned", "--reason", "reviewed"],
    "policy stop": ["policy", "stop", "model", "--reason", "complaints"],
    "power": ["power", "--difference", "0.3"],
    "replay": ["replay", "events.jsonl"],
    "ingest": ["ingest", "events.jsonl"],
    "import-log": ["import-log", "log.jsonl", "--point", "model"],
    "learn": ["learn", "--once"],
    "export": ["export", "-o", "out.jsonl"],
    "config": ["config"],
    "autostart status": ["autostart", "status"],
    "doctor": ["doctor"],
    "init": ["init"],
    "set-aside": ["set-aside", "--reason", "damaged", "--even-if-sound"],
    "verify": ["verify", "--head", f"999:{'0' * 32}"],
    "restore": ["restore", os.devnull],
    "gc": ["gc", "--older-than", "30d"],
    "forget": ["forget", FAILED, "--reason", "request 1207"],
    "bench suite list": ["bench", "suite", "list"],
    "bench suite check": ["bench", "suite", "check", "tasks.json"],
    "optimize": ["optimize", "--config", "tasks.json"],
    **{f"optimize {name}": ["optimize", name] for name in ("list", "show", "prompts", "status")},
    **{
        f"optimize {verb}": ["optimize", verb, "--reason", "why"]
        for verb in ("pause", "resume", "cancel", "rollback")
    },
}
WITHOUT_STORE = {"autostart status", "init", "power", "bench suite list", "bench suite check"}
BENCH = {f"bench {verb}" for verb in (
    "freeze", "run", "compare", "prove", "demo", "report", "validate", "summary", "repeatability",
    "publish", "archive", "gc", "index", "drill", "ops", "gate",
)}  # fmt: skip
ELSEWHERE = {
    "dashboard", "otlp", "policy undo", "proxy", "report", "ship", "start", *BENCH,
    *(key for key in KEYS if key.startswith("store ")),
    *(key for key in KEYS if key.startswith("experience ")),
}  # fmt: skip
"""Need a store that has learned, or a run: the tests of these commands have their keys."""


TASKS = {
    "validate": [{"prompt": "What is 2 + 2?", "expected": "4"}],
    "resources": {"system_prompt": "Answer in digits."},
    "model": "test/any",
    "poll_interval_ms": 1,
    "completion_poll_interval_ms": 1,
}


def make_inputs(folder: Path) -> None:
    """Make a project, and files to read, each with a line that can be read and one that cannot."""
    make_project(folder)
    event = encode(RunStart(host="tau", run_id="r", at=1.0))
    (folder / "events.jsonl").write_bytes(event + b"\n{\n")
    (folder / "tasks.json").write_text(json.dumps(TASKS))
    (folder / "log.jsonl").write_text('{"option": "a"}\n{\n')


@pytest.mark.slow
@pytest.mark.parametrize("command", CALLS)
def test_json_has_the_documented_keys_and_no_others(command: str, filled: Path, read: Read) -> None:
    learning = {"TAU_LIVE_RL": "1", "TAU_LIVE_RL_UPDATE_INTERVAL": "1"}

    make_inputs(Path.cwd())
    store = () if command in WITHOUT_STORE else ("--store", filled)
    found = read(*CALLS[command], *store, **learning)

    assert undocumented(command, found) == (set(), set())


def test_every_command_that_prints_data_has_documented_keys() -> None:
    assert set(CALLS) | ELSEWHERE == set(KEYS)


def test_json_is_ascii_so_that_it_cannot_steer_a_terminal(filled: Path, run: Run) -> None:
    store = SqliteStore.open(filled)
    writes(store).begin_rollout(Rollout(rollout_id="na\x9bive\x1b[2J"))
    store.close()

    result = run("reward", "1", "--run", "na\x9bive", "--store", filled, "--json")

    assert result.stdout.isascii()
    assert "\x1b" not in result.stdout
    assert json.loads(result.stdout)["rollout_id"] == "na\x9bive\x1b[2J"


def undocumented(command: str, found: object) -> tuple[set[str], set[str]]:
    """Return the keys that are there and not documented, and those that it is the other way."""
    paths = set(_paths(found))
    documented = {key: {path for path in paths if _matches(key, path)} for key in KEYS[command]}
    unknown = paths.difference(*documented.values())
    missing = {key for key, here in documented.items() if not here and not key.endswith("**")}
    return unknown, missing


def _matches(key: str, path: str) -> bool:
    """Return whether a path is where a documented key says; its last container may be empty."""
    if path in {key.removesuffix("[]"), key.removesuffix(".*")}:
        return True
    pattern = re.escape(key).replace(r"\*\*", ".*").replace(r"\*", "[^.]+")
    return re.fullmatch(pattern, path) is not None


def _paths(value: object, at: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _paths(inner, f"{at}.{key}" if at else key)
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for inner in value:
            yield from _paths(inner, f"{at}[]")
    else:
        yield at
