"""A store with one edited cell: everything else is shown, decided and learned as before."""

import json
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import tau_live
from tau_live.store.sql import rows
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Run
from tests.cli.filled import SOLVED, version_in_service
from tests.cli.odd import Cell, cells, crowd, edit, settings_at

OPTIONS = ("small", "large")
ENDS = frozenset({0, 1})
SHOWN = (
    ("status", "--json"),
    ("metrics",),
    ("rollouts", "--json"),
    ("policy", "list", "--json"),
    ("updates", "--json"),
    ("alerts", "--json"),
)
"""What shows many rows, and so must end well whatever one of them holds."""

ASKED = (
    ("status",),
    ("rollouts",),
    ("show", SOLVED),
    ("why", f"{SOLVED}:attempt-1:decision-1"),
    ("report", "--json"),
    ("export", "--output", "rows.jsonl"),
    ("evaluate", "--policy", "2"),
    ("verify",),
    ("policy", "rollback", "model", "--reason", "test"),
)
"""What may be about the row itself, and may then end in a line that names it."""

ORDERS = (
    ("gate", "hold", "--reason", "test"),
    ("gate", "reset", "--reason", "test"),
    ("kill", "--reason", "test"),
    ("unkill", "--reason", "test"),
    ("gc", "--keep", "5", "--archive", "deleted.jsonl"),
)
LISTED = 20
"""How many rollouts are listed without a limit."""

NUMBERINGS = frozenset({"sequences", "gate"})
"""Nothing may be decided or learned where these are odd: a number might be given twice."""

USUAL = [
    Cell("trials", "finding", "{"),
    Cell("policies", "metadata", "[]"),
    Cell("in_service", "pinned", 7),
    Cell("updates", "last_ready", 2**62),
    Cell("rollouts", "status", "nonsense", last=False),
    Cell("ready_points", "ready_seq", 2**62),
    Cell("decisions", "options", "null", last=False),
    Cell("rewards", "at", float("inf"), last=False),
    Cell("status_counts", "total", -1000),
]


@pytest.fixture(scope="session")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a store with rows in nearly every table; nobody writes to it."""
    path = tmp_path_factory.mktemp("crowded") / "store.sqlite"
    crowd(path)
    return path


@pytest.fixture(autouse=True)
def _warned_anew() -> Iterator[None]:
    rows.warn_once.cache_clear()
    yield
    tau_live.detach()


def copied(crowded: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(crowded.parent, to)
    return to / crowded.name


def total(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        [(count,)] = db.execute(f"select count(*) from {table}")
    return int(count)


def check_commands(path: Path, run: Run, cell: Cell) -> None:
    """Call every command, with the orders last."""
    results = {
        call: run(*call, "--store", path, TAU_LIVE_RL="1") for call in (*SHOWN, *ASKED, *ORDERS)
    }
    for call, result in results.items():
        assert "internal error" not in result.stderr, (cell, call, result.stderr)
        assert "Traceback" not in result.output, (cell, call)
        assert result.exit_code in ENDS, (cell, call, result.output)
    for call in (*SHOWN, *ORDERS):
        assert results[call].exit_code == 0, (cell, call, results[call].output)
    Path("deleted.jsonl").unlink()
    listed = json.loads(results["rollouts", "--json"].stdout)
    versions = json.loads(results["policy", "list", "--json"].stdout)
    assert len(listed["rollouts"]) >= LISTED - 1
    assert len(versions["versions"]) >= total(path, "policies") - 1


def check_doctor(path: Path, run: Run, cell: Cell) -> None:
    """Let doctor name the row, where it is odd whatever its column means."""
    result = run("doctor", "--json", "--store", path, TAU_LIVE_RL="1")

    assert "internal error" not in result.stderr, (cell, result.stderr)
    assert result.exit_code in ENDS, (cell, result.output)
    named = [one["found"] for one in json.loads(result.stdout)["checks"] if one["check"] == "rows"]
    if cell.is_surely_odd:
        assert any(found.startswith(f"{cell.table} '") for found in named), (cell, named)
        assert result.exit_code == 1


def check_life(path: Path, cell: Cell) -> None:
    """Let a process decide, and its learner look."""
    assert tau_live.attach(settings_at(path)) is not None
    for key in ("first", "second"):
        with tau_live.run("triage", key=key) as run:
            choice = run.decide("model", OPTIONS, default="small", context={"words": 3})
            run.reward(1.0)
        assert choice.option in OPTIONS
    flushed, gate = tau_live.flush(20), tau_live.snapshot()["gate"]
    tau_live.detach()

    assert isinstance(gate, dict)
    assert cell.table in NUMBERINGS or (flushed, gate["state"]) == (True, "pass"), (cell, gate)


def play(
    crowded: Path, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, cell: Cell
) -> None:
    path = copied(crowded, folder)
    if not edit(path, cell):
        return
    check_doctor(path, run, cell)
    check_commands(path, run, cell)
    path = copied(crowded, folder)
    edit(path, cell)
    with monkeypatch.context() as switched:
        switched.setenv("TAU_LIVE_RL", "1")
        check_life(path, cell)


def test_a_command_warns_of_an_odd_row_in_one_line(crowded: Path, tmp_path: Path, run: Run) -> None:
    path = copied(crowded, tmp_path / "odd")
    newest = version_in_service(path)
    edit(path, Cell("policies", "metadata", "[]"))

    listed = run("policy", "list", "--json", "--store", path)

    [line] = listed.stderr.splitlines()
    assert all(part in line for part in ("table=policies", f"key={newest}", "`tau-live doctor`"))
    assert newest - 1 in [row["version"] for row in json.loads(listed.stdout)["versions"]]


@pytest.mark.slow
def test_doctor_names_odd_rows_and_counts_the_others(
    crowded: Path, tmp_path: Path, run: Run
) -> None:
    path = copied(crowded, tmp_path / "odd")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("update rewards set at = 9e999")
        db.execute("update trials set kept = -1")
        [(count,)] = db.execute("select count(*) from rewards")

    result = run("doctor", "--json", "--store", path)

    checks = [one for one in json.loads(result.stdout)["checks"] if one["check"] == "rows"]
    assert result.exit_code == 1
    assert {(one["state"], one["mistake"]) for one in checks} == {("fail", "odd-row")}
    assert checks[0]["found"] == "trials 'model': kept: Expected `int` >= 0 - at `$.kept`"
    assert [one["found"].split("'")[0] for one in checks[1:-1]] == ["rewards "] * 5
    assert checks[-1]["found"] == f"rewards: {count - 5} more"


def test_with_an_odd_row_of_its_policy_a_point_is_served_by_the_version_before(
    crowded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(crowded, tmp_path / "odd")
    newest = version_in_service(path)
    edit(path, Cell("policies", "sha256", None, untyped=True))
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    assert tau_live.attach(replace(settings_at(path), update_interval=64)) is not None

    ids = []
    for key in range(20):
        with tau_live.run("triage", key=f"more-{key}") as one:
            ids.append(one.id)
            one.decide("model", OPTIONS, default="small")
    assert tau_live.flush(20)
    tau_live.detach()

    with closing(SqliteStore.open(path, read_only=True)) as store:
        decided = {store.decisions.decisions(id_)[0].policy_version for id_ in ids}
    assert newest - 1 in decided
    assert newest not in decided


def test_a_rollback_needs_no_row_but_that_of_the_version_it_goes_to(
    crowded: Path, tmp_path: Path, run: Run
) -> None:
    path = copied(crowded, tmp_path / "odd")
    newest = version_in_service(path)
    for cell in (
        Cell("policies", "parent", 2**62),
        Cell("monitors", "numbers", "{"),
        Cell("updates", "report", "{"),
        Cell("rollouts", "status", "nonsense"),
    ):
        edit(path, cell)

    result = run("policy", "rollback", "model", "--reason", "test", "--store", path)

    assert result.exit_code == 0, result.output
    assert version_in_service(path) == newest - 1


@pytest.mark.slow
def test_a_learner_whose_trial_is_odd_is_stopped_until_it_is_started_again(
    crowded: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(crowded, tmp_path / "odd")
    edit(path, Cell("trials", "evidence", "{"))
    status = ("status", "--json", "--store", path)

    with monkeypatch.context() as switched:
        switched.setenv("TAU_LIVE_RL", "1")
        tau_live.attach(settings_at(path))
        with tau_live.run("triage", key="new") as one:
            choice = one.decide("model", OPTIONS, default="large")
        assert tau_live.flush(20)
        tau_live.detach()
    stopped = json.loads(run(*status).stdout)["trials"]["model"]
    edited = run("doctor", "--json", "--store", path).stdout
    started = run(
        "policy", "exposure", "model", "5%", "--reason", "test", "--store", path, TAU_LIVE_RL="1"
    )
    trial = json.loads(run(*status).stdout)["trials"]["model"]
    corrected = run("doctor", "--json", "--store", path).stdout

    assert (choice.option, choice.source) == ("large", "default")
    assert "odd" in stopped["stopped"]
    assert started.exit_code == 0, started.output
    assert (trial["stopped"], trial["exposure"]) == (None, 0.05)
    assert ("trials 'model'" in edited, "trials 'model'" in corrected) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("cell", USUAL, ids=lambda cell: f"{cell.table}-{cell.column}")
def test_one_odd_row_stops_nothing_else(
    cell: Cell, crowded: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(crowded, tmp_path / "odd", run, monkeypatch, cell)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_cell_of_the_store_stops_anything_else(
    seed: int, crowded: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cell in random.Random(seed).sample([*cells(crowded)], 12):
        play(crowded, tmp_path / "odd", run, monkeypatch, cell)
