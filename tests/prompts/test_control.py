"""Control of a run from other processes, and what stops it by itself."""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from tau_live.core.errors import TauLiveError
from tau_live.core.gate_keeper import hold_stored
from tau_live.core.processes import this_process
from tau_live.operate.optimizations import FILE, publish_optimization, read_status, state_now
from tau_live.operate.stops import kill, kill_file, unkill
from tau_live.prompts.control import move, store_deaths
from tau_live.prompts.lead import Shown
from tau_live.prompts.optimizer import resume
from tau_live.store.records import Optimization, OptimizationState
from tau_live.store.sqlite.store import SqliteStore
from tests.prompts.agents import HERE, notes
from tests.prompts.runs import Bench, Ended, Start, row, wait_for

MANY = [row("train", number) for number in range(1, 2001)]
STEADY = {"agent": f"{HERE}:steady", "worker_count": 4, "optimize": MANY}
DEAD = f"{this_process().rsplit(':', 1)[0]}:1-dead"

STATES: dict[str, dict[str, object]] = {
    "preparing": {},
    "running": {"state": "running"},
    "paused": {"state": "paused"},
    "cancelling": {"state": "cancelling", "reason_code": "cancelled"},
    "died": {"state": "running", "owner": DEAD},
    "interrupted": {"state": "failed", "reason_code": "interrupted"},
    "no store": {"state": "failed", "reason_code": "store_unavailable"},
    "failed": {"state": "failed", "reason_code": "provider_rejected"},
    "completed": {"state": "completed"},
    "cancelled": {"state": "cancelled", "reason_code": "cancelled"},
}
OVER = ("completed", "failed", "cancelled", "cancelling")
TABLE = [
    *[(state, "pause", "paused") for state in ("preparing", "running")],
    ("paused", "pause", "no change"),
    ("preparing", "resume", "no change"),
    ("running", "resume", "no change"),
    ("paused", "resume", "running"),
    *[(state, "cancel", "cancelling") for state in ("preparing", "running")],
    ("paused", "cancel", "cancelled"),
    *[(state, "cancel", "cancelled") for state in ("died", "interrupted", "no store")],
    *[(state, "cancel", "no change") for state in OVER],
    *[
        (state, command, "refused")
        for state in ("died", "interrupted", "no store", *OVER)
        for command in ("pause", "resume")
    ],
]  # fmt: skip


def in_state(bench: Bench, name: str) -> Optimization:
    run = bench.begin()
    if STATES[name]:
        bench.store.optimizations.change(run.run_id, **STATES[name])  # type: ignore[arg-type]
    return bench.store.optimizations.run(run.run_id)


def audited(store: SqliteStore) -> list[tuple[str, str, str]]:
    return [(entry.action, entry.who, entry.reason) for entry in store.audit.entries()]


@contextmanager
def led(bench: Bench, **changes: object) -> Iterator[Callable[[], Optimization]]:
    """Lead a run in a thread of this process; yields what reads it."""
    run = bench.begin(**{**STEADY, **changes})
    own = SqliteStore.open(bench.store.path)
    thread = Thread(target=Bench(bench.folder, own).lead, args=(run,))
    thread.start()
    try:
        yield lambda: bench.store.optimizations.run(run.run_id)
        if bench.store.optimizations.state(run.run_id) in {"running", "paused"}:
            move(bench.store, run.run_id, "cancel", reason="enough", who="ada")
    finally:
        thread.join(timeout=60)
        own.close()


def goes_on() -> bool:
    """Return whether another item is executed within half a second."""
    before = len(notes("executed"))
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        if len(notes("executed")) > before:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(("state", "command", "expected"), TABLE)
def test_every_move_does_what_the_table_says(
    bench: Bench, state: str, command: str, expected: str
) -> None:
    run = in_state(bench, state)
    before = state_now(run)[0]

    if expected == "refused":
        with pytest.raises(TauLiveError, match=f"^cannot {command} a run that is {before}"):
            move(bench.store, run.run_id, command, reason="why", who="ada")
    else:
        moved = move(bench.store, run.run_id, command, reason="why", who="ada")

        assert moved.state == (before if expected == "no change" else expected)
        assert moved.idempotent == (expected == "no change")
        assert bench.store.audit.entries()[0].seq == moved.audit_seq
    after = bench.store.optimizations.run(run.run_id)
    if expected in {"refused", "no change"}:
        assert after == run
        assert audited(bench.store) == (
            [] if expected == "refused" else [(f"optimize {command}", "ada", "why")]
        )
    else:
        assert state_now(after)[0] == expected
        assert audited(bench.store) == [(f"optimize {command}", "ada", "why")]


@pytest.mark.parametrize("state", STATES)
def test_only_what_was_interrupted_is_resumed(bench: Bench, state: str) -> None:
    run = in_state(bench, state)

    if state in {"died", "interrupted", "no store"}:
        recovery = resume(bench.store, run.run_id, who="ada")

        assert bench.store.optimizations.state(run.run_id) == "running"
        assert recovery["crash_detected"] == (state == "died")
    else:
        with pytest.raises(TauLiveError, match=r"^cannot resume a run that is "):
            resume(bench.store, run.run_id, who="ada")
        assert bench.store.optimizations.run(run.run_id) == run


def test_the_next_command_stores_that_a_process_died(bench: Bench) -> None:
    died, cancelling = in_state(bench, "died"), in_state(bench, "cancelling")
    bench.store.optimizations.change(cancelling.run_id, owner=DEAD)

    store_deaths(bench.store)

    found = [bench.store.optimizations.run(run.run_id) for run in (died, cancelling)]
    assert [(run.state, run.reason_code) for run in found] == [
        ("failed", "owner_died"),
        ("cancelled", "cancelled"),
    ]


def test_the_status_file_says_that_the_process_of_the_newest_run_died(bench: Bench) -> None:
    died = in_state(bench, "died")
    path = bench.store.path.with_name(FILE)
    publish_optimization(path, {"run_state": "running", "run_id": died.run_id})

    store_deaths(bench.store)

    found = read_status(path)
    assert (found["run_state"], found["reason_code"]) == ("failed", "owner_died")
    assert found["run_id"] == died.run_id


def test_the_status_file_stays_that_of_the_newest_run_where_an_older_one_died(
    bench: Bench,
) -> None:
    in_state(bench, "died")
    newest = in_state(bench, "running")

    store_deaths(bench.store)

    found = read_status(bench.store.path.with_name(FILE))
    assert (found["run_id"], found["run_state"]) == (newest.run_id, "running")


@pytest.mark.slow
def test_a_paused_run_waits_and_goes_on(bench: Bench) -> None:
    with led(bench) as run:
        wait_for(lambda: notes("executed"))
        paused = move(bench.store, run().run_id, "pause", reason="rates", who="ada")
        time.sleep(0.5)
        waits = not goes_on()
        control = run().control
        move(bench.store, run().run_id, "resume", reason="better", who="ada")

        assert paused.state == "paused"
        assert waits
        assert (control["reason"], control["who"]) == ("rates", "ada")
        assert goes_on()


@pytest.mark.slow
def test_a_cancelled_run_ends_its_items_as_cancelled(bench: Bench) -> None:
    with led(bench) as run:
        wait_for(lambda: notes("executed"))
        move(bench.store, run().run_id, "cancel", reason="enough", who="ada")
        time.sleep(0.5)
        waits = not goes_on()

    counts = bench.store.optimizations.items(run().run_id)
    adoption = run().report["adoption"]
    assert waits
    assert (run().state, run().reason_code) == ("cancelled", "cancelled")
    assert (counts.open, counts.failed) == (0, 0)
    assert counts.cancelled > 1900
    assert isinstance(adoption, dict)
    assert adoption["reason_code"] == "cancelled"


@pytest.mark.slow
def test_a_run_that_waits_for_its_critic_is_cancelled_at_once(bench: Bench) -> None:
    critic = {"critic_model": f"function/{HERE}:limited_critic", "editor_model": "test/any"}
    run = bench.begin(search=critic)
    moved: list[OptimizationState] = []
    began = time.monotonic()

    def cancel(shown: Shown) -> None:
        if shown.phase == "search" and notes("critic") and not moved:
            command = move(bench.store, run.run_id, "cancel", reason="enough", who="ada")
            moved.append(command.state)

    ended = bench.lead(run, show=cancel)

    assert (moved, ended.state) == (["cancelling"], "cancelled")
    assert time.monotonic() - began < 20.0  # the provider asks to wait for 25 seconds


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "adopted"), [("confirm", False), ("final", True)])
def test_a_cancel_after_the_last_item_of_a_phase_still_counts(
    bench: Bench, phase: str, adopted: bool
) -> None:
    run = bench.begin(test=[row("test", 1)])
    cancelled: list[OptimizationState] = []

    def cancel(shown: Shown) -> None:
        if shown.phase == phase and shown.done == shown.total and not cancelled:
            moved = move(bench.store, run.run_id, "cancel", reason="enough", who="ada")
            cancelled.append(moved.state)

    ended = bench.lead(run, show=cancel)

    adoption = ended.report["adoption"]
    assert cancelled == ["cancelling"]
    assert (ended.state, ended.reason_code) == ("cancelled", "cancelled")
    assert isinstance(adoption, dict)
    assert adoption["reason_code"] == ("adopted" if adopted else "cancelled")
    assert len(bench.store.resources.versions("system_prompt")) == (2 if adopted else 1)


@pytest.mark.slow
def test_a_paused_run_can_be_cancelled(bench: Bench) -> None:
    with led(bench) as run:
        wait_for(lambda: notes("executed"))
        move(bench.store, run().run_id, "pause", reason="rates", who="ada")
        move(bench.store, run().run_id, "cancel", reason="enough", who="ada")

    assert run().state == "cancelled"
    assert bench.store.optimizations.items(run().run_id).open == 0


@pytest.mark.slow
def test_the_kill_switch_pauses_a_run_until_it_is_off(bench: Bench) -> None:
    switch = kill_file(Path(bench.store.path), None)
    with led(bench) as run:
        wait_for(lambda: notes("executed"))
        kill(switch, "nonsense", who="ada", at=time.time())
        wait_for(lambda: run().state == "paused", timeout_s=5.0)
        reason = run().reason_code
        time.sleep(0.2)
        waits = not goes_on()
        unkill(switch)
        wait_for(lambda: run().state == "running", timeout_s=5.0)

        assert reason == "kill_switch"
        assert waits
        assert goes_on()


@pytest.mark.slow
def test_a_gate_that_holds_pauses_a_run(bench: Bench) -> None:
    with led(bench) as run:
        wait_for(lambda: notes("executed"))
        hold_stored(
            bench.store.gate, limit=3, reason="operator", detail="", who="ada", at=time.time()
        )
        wait_for(lambda: run().state == "paused", timeout_s=5.0)

        assert run().reason_code == "gate_hold"


@pytest.mark.slow
def test_a_run_that_an_operator_pauses_as_well_does_not_go_on_by_itself(bench: Bench) -> None:
    switch = kill_file(Path(bench.store.path), None)
    with led(bench) as run:
        wait_for(lambda: notes("executed"))
        kill(switch, "nonsense", who="ada", at=time.time())
        wait_for(lambda: run().state == "paused", timeout_s=5.0)
        move(bench.store, run().run_id, "pause", reason="rates", who="ada")
        unkill(switch)
        time.sleep(0.7)

        assert (run().state, run().reason_code) == ("paused", None)
        assert not goes_on()


@pytest.mark.slow
def test_commands_of_other_processes_take_effect_within_a_second(
    bench: Bench, start: Start
) -> None:
    with led(bench) as run:
        wait_for(lambda: notes("executed"))
        paused = Ended(start("pause", "--reason", "rates", "--json"))
        time.sleep(0.5)
        waits = not goes_on()
        again = Ended(start("pause", "--reason", "rates", "--json"))
        resumed = Ended(start("resume", "--reason", "better", "--json"))
        went_on = goes_on()
        cancelled = Ended(start("cancel", run().run_id, "--reason", "enough", "--json"))
        time.sleep(0.5)
        ends = not goes_on()
    refused = Ended(start("pause", "--reason", "late"))

    assert [each.code for each in (paused, again, resumed, cancelled)] == [0, 0, 0, 0]
    assert (waits, went_on, ends) == (True, True, True)
    assert set(paused.json) == {
        *("schema_version", "action", "principal", "run_id", "lifecycle_state", "idempotent"),
        *("reason", "store_path", "audit_seq", "training_status"),
    }
    assert [each.json["lifecycle_state"] for each in (paused, again, resumed, cancelled)] == [
        *("paused", "paused", "running", "cancelling")
    ]
    assert [each.json["idempotent"] for each in (paused, again, resumed)] == [False, True, False]
    assert paused.json["training_status"]["control"]["reason"] == "rates"
    assert refused.code == 1
    assert refused.err == "tau-live: cannot pause a run that is cancelled\n"
    assert [entry[0] for entry in audited(bench.store)][::-1] == [
        *("optimize pause", "optimize pause", "optimize resume", "optimize cancel")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("rules", ["{", json.dumps({
    "schema_version": 1, "team_mode": True,
    "bindings": [{"principal": "team:night", "roles": ["reader"]}],
    "roles": {"reader": {"allow": ["control:rl:*"], "deny": ["control:rl:pause"]}},
})])  # fmt: skip
def test_whom_the_access_file_denies_may_not_pause(bench: Bench, start: Start, rules: str) -> None:
    run = in_state(bench, "running")
    path = bench.folder / "access.json"
    path.write_text(rules)
    path.chmod(0o600)
    environ = {"TAU_LIVE_RL_ACCESS": str(path), "TAU_LIVE_RL_PRINCIPAL": "team:night"}

    denied = Ended(start("pause", "--reason", "rates", **environ))

    assert denied.code == 1
    assert denied.err.startswith("tau-live: ")
    assert denied.err.count("\n") == 1
    assert ("cannot be read" in denied.err) == (rules == "{")
    assert ("action=control:rl:pause reason_code=deny_role_policy" in denied.err) == (rules != "{")
    assert bench.store.optimizations.run(run.run_id) == run
    assert audited(bench.store) == []


@pytest.mark.slow
@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_can_be_resumed(
    bench: Bench, start: Start, asked: signal.Signals
) -> None:
    config = bench.config(**{**STEADY, "optimize": MANY[:500]})
    leader = start("--config", config)
    wait_for(lambda: notes("executed"))

    leader.send_signal(asked)
    interrupted = Ended(leader)
    status = Ended(start("status"))

    run = bench.store.optimizations.runs()[0]
    assert interrupted.code == 130
    assert "Traceback" not in interrupted.err
    hint = f"{run.run_id} goes on by `tau-live optimize --resume {run.run_id} --store "
    assert hint in interrupted.err
    assert hint in status.out
    assert (run.state, run.reason_code) == ("failed", "interrupted")
    assert bench.store.leases.holders("optimize:") == {}
    resumed = Ended(start("--resume", "latest", "--json"))
    assert resumed.code == 0, resumed.err
    assert resumed.json["run_state"] == "completed"
    assert resumed.json["report"]["recovery"]["crash_detected"] is False


def test_nobody_can_lead_a_run_that_another_process_leads(bench: Bench) -> None:
    run = bench.begin(**STEADY)
    other = f"{this_process().rsplit(':', 2)[0]}:{os.getppid()}:unknown"
    bench.store.leases.acquire(f"optimize:{run.run_id}", other, ttl_s=30.0)

    with pytest.raises(TauLiveError, match=re.escape(f"is led by {other}")):
        bench.lead(run)

    assert bench.store.optimizations.state(run.run_id) == OptimizationState.PREPARING
    assert notes("executed") == []
