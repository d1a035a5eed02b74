"""The status of a run, as files and commands show it, and the exit codes of the command."""

import json
import re
import stat
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tau_live.cli import main
from tau_live.operate.optimizations import FILE, optimization_status, publish_optimization
from tau_live.prompts.lead import Shown
from tests.prompts.agents import HERE, notes
from tests.prompts.runs import Bench, Ended, Start, wait_for

NUMBER = (int, float)
FIELDS: dict[str, object] = {
    "schema_version": int,
    "updated_unix_ms": int,
    "run_state": str,
    "model_ref": str,
    "store_path": str,
    "total_rollouts": int,
    "succeeded": int,
    "failed": int,
    "cancelled": int,
    "open": int,
    "requeued": int,
    "missing": int,
    "late_results": int,
    "run_id": str,
    "config_digest": str,
    "seed": int,
    "owner": str,
    "started_unix_ms": int,
    "ended_unix_ms": int,
    "phase": str,
    "progress": {"done": int, "total": int},
    "reason_code": type(None),
    "error": type(None),
    "scores": {
        name: {"mean": NUMBER, "rows": int, "repeats": int, "missing": int}
        for name in ("baseline", "best_search", "validate_incumbent", "validate_finalist")
    },
    "candidates": {"screened": int, "adopted": int, "duplicates": int, "empty": int,
                   "refused": {}},
    "budget": {
        "limits": {"calls": int, "rollouts": type(None), "tokens": type(None),
                   "usd": type(None), "seconds": type(None)},
        "calls": int, "rollouts": int, "tokens": int, "tokens_reserved": int, "usd": NUMBER,
        "usd_reserved": NUMBER, "seconds": NUMBER,
    },
    "workers": list,
    "control": {"state": str, "reason": type(None), "who": type(None),
                "since_unix_ms": type(None)},
    "deprecations": list,
}  # fmt: skip


def differences(found: object, kind: Any, path: str = "") -> list[str]:  # nested
    """Return where a value is not of its kind."""
    if not isinstance(kind, Mapping):
        fits = isinstance(found, kind) and not (kind is int and isinstance(found, bool))
        return [] if fits else [f"{path}: {found!r}"]
    if not isinstance(found, Mapping) or found.keys() != kind.keys():
        return [f"{path}: {found!r}"]
    return [line for key in kind for line in differences(found[key], kind[key], f"{path}/{key}")]


def status_file(bench: Bench) -> dict[str, Any]:
    found = json.loads((bench.folder / FILE).read_text())
    assert isinstance(found, dict)
    return found


def command(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["optimize", *map(str, arguments)])


@pytest.mark.slow
def test_the_status_has_every_field_with_its_type(bench: Bench) -> None:
    run = bench.run()

    status = status_file(bench)
    adoption = status.pop("adoption")
    counts = {"succeeded", "failed", "cancelled", "open"}
    assert differences(status, FIELDS) == []
    assert adoption["reason_code"] == "adopted"
    assert {"prompt_version", "delta", "p_value", "pairs", "alpha", "min_delta"} < adoption.keys()
    assert list(status)[:9] == [*FIELDS][:9]
    assert status["run_state"] == "completed"
    assert status["total_rollouts"] == sum(status[key] for key in counts)
    assert stat.S_IMODE((bench.folder / FILE).stat().st_mode) == 0o600
    shown = optimization_status(bench.store, run)
    assert {**status, "adoption": adoption, "updated_unix_ms": 0} == {
        **shown, "updated_unix_ms": 0,
    }  # fmt: skip


@pytest.mark.slow
def test_a_reader_sees_a_run_progress(bench: Bench) -> None:
    seen: list[dict[str, Any]] = []

    def look(_: Shown) -> None:
        if (bench.folder / FILE).exists():
            seen.append(status_file(bench))

    run = bench.begin(model=f"function/{HERE}:slow_model", worker_count=1)
    created = optimization_status(bench.store, run)
    bench.lead(run, show=look)
    seen.append(status_file(bench))

    states = [*dict.fromkeys(status["run_state"] for status in seen)]
    done = [status["progress"]["done"] for status in seen]
    workers = [worker for status in seen for worker in status["workers"]]
    assert created["run_state"] == "preparing"
    assert states in (["preparing", "running", "completed"], ["running", "completed"])
    assert done == sorted(done)
    assert len(set(done)) > 3
    assert [*dict.fromkeys(status["phase"] for status in seen if status["phase"])] == [
        *("baseline", "search", "confirm", "final")
    ]
    assert all(
        worker.keys() == {"worker_id", "state", "rollout_id", "last_heartbeat_unix_ms"}
        for worker in workers
    )


def test_the_file_is_there_as_soon_as_the_run_is(bench: Bench) -> None:
    bench.begin()

    status = status_file(bench)
    assert status["run_state"] == "preparing"
    assert status["adoption"] is None
    assert status["ended_unix_ms"] is None


@pytest.mark.slow
def test_a_reader_never_sees_half_a_file(bench: Bench) -> None:
    run = bench.begin()
    status = optimization_status(bench.store, run)
    path, writes, over = bench.folder / FILE, [0], threading.Event()

    def write() -> None:
        while not over.is_set():
            writes[0] += 1
            publish_optimization(path, {**status, "error": "x" * (writes[0] % 5_000)})

    writer = threading.Thread(target=write)
    writer.start()
    wait_for(lambda: writes[0] > 2)
    reads, torn = 0, 0
    while reads < 1_000 or writes[0] < 20:
        reads += 1
        torn += not path.read_text().endswith("}\n")
    over.set()
    writer.join()

    assert torn == 0
    assert json.loads(path.read_text())["run_id"] == run.run_id


@pytest.mark.slow
def test_the_status_of_another_run_leaves_no_key_behind(bench: Bench) -> None:
    path = bench.folder / FILE
    path.write_text(json.dumps({"rl_optimizer": {"executed": True}, "gate": "pass"}))

    bench.run()

    status = status_file(bench)
    assert "rl_optimizer" not in status
    assert status["gate"] == "pass"  # of the live loop


@pytest.mark.slow
def test_a_reader_of_a_killed_run_sees_that_it_failed(bench: Bench, start: Start) -> None:
    (bench.folder / "gate-train-old").touch()
    leader = start("--config", bench.config(agent=f"{HERE}:counted"))
    wait_for(lambda: notes("at"))
    wait_for(lambda: status_file(bench)["run_state"] == "running")

    leader.kill()
    leader.wait()
    read = Ended(start("status", "--json"))

    assert read.code == 0, read.err
    assert (read.json["run_state"], read.json["reason_code"]) == ("failed", "owner_died")
    assert differences(read.json["progress"], {"done": int, "total": int}) == []
    assert bench.store.optimizations.runs()[0].state == "failed"


@pytest.mark.slow
def test_the_report_says_what_was_found(bench: Bench) -> None:
    ended = command("--config", bench.config(), "--store", bench.store.path)

    assert ended.exit_code == 0, ended.output
    assert re.search(r"adopted +p-[0-9a-f]{12}", ended.output)
    assert re.search(
        f"^prompt optimization complete: model=function/{HERE}:task_model "
        f"store={bench.store.path} total=42 succeeded=42 failed=0 cancelled=0$",
        ended.output,
        re.MULTILINE,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "arguments", "code"),
    [
        pytest.param({}, ["--require-adoption"], 0, id="adopted"),
        pytest.param({"search": {"algorithm": "none"}}, [], 0, id="nothing to adopt"),
        pytest.param(
            {"search": {"algorithm": "none"}}, ["--require-adoption"], 4, id="adoption required"
        ),
        pytest.param({"seed": -1}, [], 1, id="invalid config"),
        pytest.param({"agent": "nowhere:agent"}, [], 1, id="no such agent"),
        pytest.param({"model": f"function/{HERE}:rejecting_model"}, [], 1, id="failed"),
        pytest.param(
            {"agent": f"{HERE}:steady", "completion_timeout_secs": 0.01}, [], 1, id="timed out"
        ),
        pytest.param({}, ["--demo"], 2, id="wrong usage"),
    ],
)
def test_the_exit_code_says_how_a_run_ended(
    bench: Bench, changes: dict[str, object], arguments: list[str], code: int
) -> None:
    config = bench.config(**changes)

    ended = command("--config", config, "--store", bench.store.path, "--json", *arguments)

    assert ended.exit_code == code, ended.output
    assert "Traceback" not in ended.output


def test_a_phase_that_takes_too_long_ends_the_run(bench: Bench) -> None:
    run = bench.run(agent=f"{HERE}:steady", completion_timeout_secs=0.01)

    assert (run.state, run.reason_code) == ("failed", "completion_timeout")
    assert bench.store.optimizations.items(run.run_id).open == 0


@pytest.mark.parametrize("stop", ["kill", "gate hold"])
def test_nothing_begins_while_it_is_stopped(bench: Bench, stop: str) -> None:
    stopped = CliRunner().invoke(
        main, [*stop.split(), "--reason", "nonsense", "--store", str(bench.store.path)]
    )

    ended = command("--config", bench.config(), "--store", bench.store.path)

    assert stopped.exit_code == 0, stopped.output
    assert ended.exit_code == 3
    assert bench.store.optimizations.runs() == []


@pytest.mark.parametrize(
    "arguments", [["--config", "config.json", "--dry-run"], ["--demo", "--dry-run"],
                  ["--config", "wrong.json"]]
)  # fmt: skip
def test_nothing_is_written_where_nothing_is_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    home = bench.folder / "home"
    home.mkdir()
    bench.config().rename(home / "config.json")
    (home / "wrong.json").write_text('{"optimize": 3}')
    monkeypatch.chdir(home)

    ended = command(*arguments)

    assert ended.exit_code == (1 if "wrong.json" in arguments else 0), ended.output
    assert sorted(path.name for path in home.iterdir()) == ["config.json", "wrong.json"]


def test_a_dry_run_leaves_no_bytecode_of_the_agent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = bench.folder / "home"
    home.mkdir()
    (home / "agent_of_dry_run.py").write_text("def agent(row, resources, item): ...\n")
    config = bench.config(agent="agent_of_dry_run:agent")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(home)

    ended = command("--config", config, "--dry-run")

    assert ended.exit_code == 0, ended.output
    assert sys.modules.pop("agent_of_dry_run").__file__ == str(home / "agent_of_dry_run.py")
    assert [path.name for path in home.iterdir()] == ["agent_of_dry_run.py"]


def test_a_dry_run_leaves_a_store_as_it_is(bench: Bench) -> None:
    bench.begin()
    bench.store.close()
    before = {path: path.read_bytes() for path in sorted(bench.folder.iterdir())}

    ended = command("--config", bench.config(), "--store", bench.store.path, "--dry-run", "--json")

    found = json.loads(ended.stdout)
    assert found["preflight"]["candidates"] == 3
    assert {path: path.read_bytes() for path in sorted(bench.folder.iterdir())} == before
