"""The demo, made small, through the whole loop and a real store."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tau_live.cli.demo.live import Report, point_of, run_demo
from tau_live.cli.demo.questions import AT_ONCE, NEVER, Outcome, Outcomes, due_after
from tau_live.cli.demo.show import as_data, best_fixed, next_commands, render, sparkline
from tau_live.core.errors import TauLiveError
from tau_live.core.records import RolloutQuery
from tau_live.core.settings import Settings
from tau_live.runtime.api import detach
from tau_live.store.sqlite.store import SqliteStore

TRAINING, HELD_OUT = 160, 64


@pytest.fixture(autouse=True)
def _switched_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    yield
    detach()


def made(folder: Path, *, seed: int = 0) -> tuple[Report, list[str]]:
    told: list[str] = []
    settings = Settings(store=folder / "store.sqlite")
    report = run_demo(
        settings,
        seed=seed,
        training=TRAINING,
        held_out=HELD_OUT,
        progress=lambda phase, *_: told.append(phase),
    )
    return report, told


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Report:
    os.environ["TAU_LIVE_RL"] = "1"
    try:
        return made(tmp_path_factory.mktemp("demo"))[0]
    finally:
        del os.environ["TAU_LIVE_RL"]


@pytest.mark.slow
def test_it_gets_better_than_it_was_and_than_the_host(finished: Report) -> None:
    assert finished.after.reward > finished.before.reward
    assert finished.after.reward > finished.baselines.host_default.reward
    assert finished.version > 0


@pytest.mark.slow
def test_everything_it_says_is_in_the_store(finished: Report) -> None:
    store = SqliteStore.open(finished.store, read_only=True)
    rollouts = store.rollouts.query(RolloutQuery(name="demo"))
    serving = store.policies.in_service()[point_of(0)].version
    rewarded = sum(rollout.total_reward is not None for rollout in rollouts.rollouts)
    store.close()

    assert rollouts.total == TRAINING
    assert serving == finished.version
    assert rewarded <= TRAINING - finished.outcomes["never"]
    assert sum(finished.outcomes.values()) == TRAINING


@pytest.mark.slow
def test_a_seed_determines_everything(finished: Report, tmp_path: Path) -> None:
    again, told = made(tmp_path)

    assert again.after == finished.after
    assert again.curve == finished.curve
    assert again.habits == finished.habits
    assert told[-1] == "measuring every fixed strategy"


@pytest.mark.slow
def test_a_finished_demo_teaches_nothing_more(finished: Report) -> None:
    again, _ = made(finished.store.parent)

    assert (again.version, again.after) == (finished.version, finished.after)


DEMO = f"""
from pathlib import Path
from tau_live.cli.demo.live import run_demo
from tau_live.core.settings import Settings
run_demo(
    Settings(store=Path("store.sqlite")), seed=0, training={TRAINING}, held_out={HELD_OUT},
    progress=lambda phase, done, *_: print(phase, done, flush=True),
)
"""


@pytest.mark.slow
def test_a_demo_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-c", DEMO], cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    limit = threading.Timer(60.0, child.kill)
    limit.start()
    for line in child.stdout:
        if line.startswith("learning 80"):
            break
    child.send_signal(signal.SIGKILL)
    child.wait()
    limit.cancel()
    child.stdout.close()

    report, _ = made(tmp_path)

    store = SqliteStore.open(report.store, read_only=True)
    page = store.rollouts.query(RolloutQuery(name="demo"))
    store.close()
    assert {rollout.ended_at is not None for rollout in page.rollouts} == {True}
    assert len(report.curve) == 2
    assert report.after.reward > report.before.reward


@pytest.mark.slow
def test_the_report_is_json_and_readable(finished: Report) -> None:
    from rich.console import Console

    console = Console(width=300, record=True, file=io.StringIO())

    console.print(render(finished))

    text = console.export_text()
    assert f"version {finished.version}" in text
    assert best_fixed(finished)[0] in text
    assert all(command in text for command in next_commands(finished))
    data = json.loads(json.dumps(as_data(finished)))
    assert data["held_out"]["policy"]["reward"] == finished.after.reward


def test_a_sparkline_goes_from_the_smallest_to_the_largest() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([]) == ""


def test_outcomes_come_at_once_late_or_never_as_declared() -> None:
    due = [due_after(number, round_=10, seed=3) for number in range(4000)]

    assert due.count(None) / len(due) == pytest.approx(NEVER, abs=0.02)
    assert due.count(10) / len(due) == pytest.approx(AT_ONCE, abs=0.03)
    assert all(10 <= when <= 14 for when in due if when is not None)


def outcome(question: int, run_id: str = "live-0") -> Outcome:
    return Outcome(question=question, run=run_id, reward=0.5, succeeded=True, cost=0.1, due=None)


def kept(path: Path, *, stored: str = "live-0") -> list[Outcome]:
    outcomes = Outcomes(path, stored=lambda run_id: run_id == stored, round_=2)
    outcomes.close()
    return outcomes.known


def written(path: Path, *given: Outcome, torn: bytes = b"") -> Path:
    outcomes = Outcomes(path, stored=lambda _: True, round_=2)
    outcomes.add(given)
    outcomes.close()
    with path.open("ab") as file:
        file.write(torn)
    return path


def test_outcomes_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path / "outcomes", outcome(0), outcome(1))

    assert kept(path) == kept(path) == [outcome(0), outcome(1)]


@pytest.mark.parametrize("torn", [b'{"question": 2, "ru', b'{"question": 2}\n', b"\x00\xff\n[]\n"])
def test_what_was_torn_by_a_kill_is_left_out(tmp_path: Path, torn: bytes) -> None:
    path = written(tmp_path / "outcomes", outcome(0), outcome(1), torn=torn)

    assert kept(path) == [outcome(0), outcome(1)]


def test_a_round_that_is_not_whole_is_asked_again(tmp_path: Path) -> None:
    path = written(tmp_path / "outcomes", outcome(0), outcome(1), outcome(2))

    assert kept(path) == [outcome(0), outcome(1)]


def test_outcomes_of_rollouts_that_the_store_does_not_have_are_forgotten(tmp_path: Path) -> None:
    path = written(tmp_path / "outcomes", outcome(0, "live-1"), outcome(1))

    assert kept(path) == []


def test_one_demo_of_a_seed_runs_on_a_store_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "outcomes"
    first = Outcomes(path, stored=lambda _: True, round_=2)

    with pytest.raises(TauLiveError, match="another demo"):
        Outcomes(path, stored=lambda _: True, round_=2)

    first.close()
