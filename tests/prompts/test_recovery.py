"""Processes of a run that are killed: nothing is lost, nothing is done twice."""

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from tau_live.cli import main
from tau_live.core.records import RolloutQuery, RolloutStatus
from tau_live.prompts.optimizer import RECOVERY, resume
from tau_live.store.records import Optimization
from tests.prompts.agents import HELPER, HERE, notes
from tests.prompts.runs import Bench, Ended, Start, outcome, row, wait_for

CHANGES: Mapping[str, object] = {
    "agent": f"{HERE}:counted",
    "test": [row("test", number) for number in range(1, 5)],
    "heartbeat_interval_ms": 300,
}
PLACES = {
    "train-old": "baseline",
    "critic": "search",
    "editor": "search",
    "train-new": "search",
    "val-old": "confirm",
    "val-new": "confirm",
    "test-old": "final",
    "test-new": "final",
}
"""Where a run is killed, and its phase then."""


def rollouts_of(bench: Bench, run: Optimization, *statuses: RolloutStatus) -> set[str]:
    """Return the items of a run that have one of some statuses."""
    found = bench.store.rollouts.query(RolloutQuery(statuses=statuses)).rollouts
    return {rollout.rollout_id for rollout in found if rollout.queue == run.run_id}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "content"),
    [*((place, "redacted") for place in PLACES), ("critic", "none"), ("val-new", "none")],
)
def test_a_killed_run_that_is_resumed_ends_like_one_that_was_not(
    bench: Bench, start: Start, place: str, content: str
) -> None:
    changes = {**CHANGES, "content": content}
    whole = bench.run(**changes)
    (bench.folder / "executed").unlink()
    (bench.folder / f"gate-{place}").touch()
    leader = start("--config", bench.config(**changes))
    wait_for(lambda: notes("at"))
    time.sleep(0.2)  # the other worker goes on

    leader.kill()
    leader.wait()
    (bench.folder / f"gate-{place}").unlink()
    killed = bench.store.optimizations.runs()[0]
    in_flight = [*rollouts_of(bench, killed, RolloutStatus.PREPARING, RolloutStatus.RUNNING)]
    before, done = rollouts_of(bench, killed, RolloutStatus.SUCCEEDED), Counter(notes("executed"))
    recovery = resume(bench.store, killed.run_id, who="ada")
    resumed = bench.lead(bench.store.optimizations.run(killed.run_id))

    after = Counter(notes("executed"))
    assert killed.phase == PLACES[place]
    assert outcome(bench.store, resumed.run_id) == outcome(bench.store, whole.run_id)
    assert before <= done.keys()
    assert {id_: after[id_] for id_ in before} == {id_: done[id_] for id_ in before}
    assert max(after.values()) <= 2
    assert resumed.calls >= killed.calls
    assert recovery["crash_detected"] is True
    assert recovery["prior_lifecycle_state"] == "running"
    assert recovery["prior_training_state"] == PLACES[place]
    assert recovery["requeued_rollouts"] == len(in_flight) >= ("-" in place)
    assert json.loads((bench.folder / RECOVERY).read_text()) == recovery


@pytest.mark.slow
def test_a_resumed_run_keeps_the_scores_of_a_phase_that_was_over(bench: Bench) -> None:
    run = bench.run(**CHANGES)
    whole = outcome(bench.store, run.run_id)
    bench.store.optimizations.change(run.run_id, state="failed", reason_code="interrupted")

    resume(bench.store, run.run_id, who="ada")
    again = bench.lead(bench.store.optimizations.run(run.run_id))

    assert outcome(bench.store, again.run_id) == whole
    assert max(Counter(notes("executed")).values()) == 1
    assert len(bench.store.resources.versions("system_prompt")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSTOP])
def test_another_worker_does_the_items_of_one_that_is_gone(
    bench: Bench, start: Start, ending: signal.Signals
) -> None:
    for name in ("leader", "helper", "test-new"):
        (bench.folder / f"gate-{name}").touch()
    changes = {**CHANGES, "agent": f"{HERE}:paired", "worker_count": 1}
    leader = start("--config", bench.config(**changes), "--json")
    wait_for(lambda: "leader" in notes("at"))
    helper = start("worker", **{HELPER: "1"})
    wait_for(lambda: "helper" in notes("at"))

    helper.send_signal(ending)  # in an item
    (bench.folder / "gate-leader").unlink()
    wait_for(lambda: "test-new" in notes("at"))  # the leader does all of the others
    (bench.folder / "gate-helper").unlink()
    helper.send_signal(signal.SIGCONT)
    run = bench.store.optimizations.runs()[0]
    if ending is signal.SIGSTOP:
        wait_for(lambda: bench.store.optimizations.late_results(run.run_id))
    (bench.folder / "gate-test-new").unlink()
    ended = Ended(leader)

    status = ended.json
    items = bench.store.rollouts.query(RolloutQuery()).rollouts
    again = [item for item in items if item.attempt_count > 1]
    attempts = [bench.store.rollouts.attempts(item.rollout_id) for item in again]
    owners = [len({attempt.owner for attempt in own}) for own in attempts]
    assert ended.code == 0, ended.err
    assert [[attempt.status for attempt in own] for own in attempts] == [
        ["unresponsive", "succeeded"]
    ]
    assert owners == [2]
    assert (status["run_state"], status["requeued"]) == ("completed", 1)
    assert status["late_results"] == (1 if ending is signal.SIGSTOP else 0)
    assert status["total_rollouts"] == status["succeeded"]


@pytest.mark.slow
def test_an_item_that_kills_its_process_is_given_up(bench: Bench, start: Start) -> None:
    (bench.folder / "gate-leader").touch()
    config = bench.config(
        agent=f"{HERE}:killing", optimize=[row("train", 2), row("train", 1)],
        search={"algorithm": "none"}, worker_count=1,
    )  # fmt: skip
    leader = start("--config", config, "--json")
    wait_for(lambda: "leader" in notes("at"))

    codes = [start("worker", **{HELPER: "1"}).wait(timeout=60) for _ in range(2)]
    (bench.folder / "gate-leader").unlink()
    ended = Ended(leader)

    status = ended.json
    assert codes == [-signal.SIGKILL] * 2
    assert ended.code == 0, ended.err
    assert (status["run_state"], status["failed"], status["missing"]) == ("completed", 1, 1)
    assert status["scores"]["baseline"]["missing"] == 1


@pytest.mark.slow
def test_a_changed_config_is_not_resumed(bench: Bench, start: Start) -> None:
    (bench.folder / "gate-train-old").touch()
    leader = start("--config", bench.config(**CHANGES))
    wait_for(lambda: notes("at"))
    leader.kill()
    leader.wait()
    bench.config(**CHANGES, seed=3)

    ended = Ended(start("--resume", "latest"))

    run = bench.store.optimizations.runs()[0]
    assert ended.code == 1
    assert f"config.json has changed since {run.run_id} began: start another run" in ended.err
    assert run.state == "running"


@pytest.fixture
def elsewhere(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with another module of the name of the agent's, and the run that began beside it."""
    home, other = bench.folder / "home", bench.folder / "other"
    for folder in (home, other):
        folder.mkdir()
    (home / "agent_of_leader.py").write_text("def agent(row, resources, item):\n    return '1'\n")
    (other / "agent_of_leader.py").touch()
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(home)
    run = bench.begin(agent="agent_of_leader:agent", search={"algorithm": "none"})
    bench.store.optimizations.change(run.run_id, state="failed", reason_code="interrupted")
    return other


@pytest.mark.parametrize(
    ("command", "end"),
    [
        pytest.param(("--resume", "latest"), "completed", id="resume", marks=pytest.mark.slow),
        pytest.param(("worker",), "failed: there is nothing to work on", id="worker"),
    ],
)
def test_an_agent_is_imported_from_the_folder_in_which_its_run_began(
    bench: Bench,
    elsewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    end: str,
) -> None:
    monkeypatch.chdir(elsewhere)
    monkeypatch.delitem(sys.modules, "agent_of_leader", raising=False)

    ended = CliRunner().invoke(main, ["optimize", *command, "--store", str(bench.store.path)])

    assert end in ended.output
    assert sys.modules["agent_of_leader"].__file__ == str(
        bench.folder / "home" / "agent_of_leader.py"
    )
