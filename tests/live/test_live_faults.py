"""Faults of the reference's live loop that must not come along; the numbers are its list's."""

import asyncio
import stat
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import tau_live
from tau_live.core.records import AttemptStatus, RolloutStatus, rollout_id_of
from tau_live.core.settings import Content, Settings
from tau_live.decisions.policies import load_policy
from tau_live.operate.status import status_file
from tau_live.store.files import policies_of
from tests.live.running import (
    decisions,
    done,
    ended_by,
    gate,
    opened,
    process,
    rollout,
    rollouts,
    rounds,
    throw,
    until,
)

RUNS = """
import tau_live
assert tau_live.attach() is not None
for _ in range(20):
    with tau_live.run("agent") as run:
        print(run.id)
assert tau_live.flush(30)
assert tau_live.snapshot()["gate"]["state"] == "pass"
"""


@pytest.mark.slow
def test_fault_01_ids_of_a_second_process_do_not_collide(path: Path) -> None:
    ids: list[str] = []
    for _ in range(3):
        with process(RUNS, path) as host:
            ids += done(host).split()

    assert len(set(ids)) == 60
    assert {row.rollout_id for row in rollouts(path)} == set(ids)


def test_fault_02_what_comes_before_the_start_is_linked_by_id(live: Path) -> None:
    rollout_id = rollout_id_of("tau_live", "agent/1")

    tau_live.reward(1.0, run=rollout_id)
    with tau_live.run("agent", key=1):
        pass
    assert tau_live.flush(30)

    assert rollout(live, rollout_id).total_reward == 1.0


def test_fault_03_every_end_leaves_an_outcome_and_may_be_rewarded(live: Path) -> None:
    ids = []
    for error in (None, ValueError(), TimeoutError(), asyncio.CancelledError()):
        with ended_by(error), tau_live.run("agent", key=type(error).__name__) as run:
            ids.append(run.id)
            throw(error)
        run.reward(-1.0)
    assert tau_live.flush(30)

    found = [rollout(live, id_) for id_ in ids]
    assert [row.reason for row in found] == ["completed", "error", "timeout", "cancelled"]
    assert {row.total_reward for row in found} == {-1.0}


@pytest.mark.slow
def test_fault_04_parallel_and_nested_runs_do_not_mix(live: Path) -> None:
    async def agent(number: int) -> None:
        with tau_live.run("agent", key=number) as run:
            await asyncio.sleep(0)
            with tau_live.run("sub", key=number) as sub:
                await asyncio.sleep(0)
                sub.decide("model", [f"s{number}", "x"])
            run.decide("model", [f"r{number}", "x"])
            run.reward(float(number))

    async def agents() -> None:
        await asyncio.gather(*map(agent, range(20)))

    asyncio.run(agents())
    assert tau_live.flush(30)

    for number in range(20):
        run, sub = (rollout_id_of("tau_live", f"{name}/{number}") for name in ("agent", "sub"))
        assert decisions(live, run)[0].options == (f"r{number}", "x")
        assert decisions(live, sub)[0].options == (f"s{number}", "x")
        assert rollout(live, sub).parent_id == run
        assert rollout(live, run).total_reward == float(number)


@pytest.mark.timed
@pytest.mark.slow
def test_fault_05_nothing_slow_runs_in_the_hosts_thread_and_nothing_is_dropped_silently(
    live: Path, settings: Settings
) -> None:
    runtime = tau_live.attach()
    assert runtime is not None
    tau_live.detach()
    assert tau_live.attach(replace(settings, queue_limit=100)) is not None
    with opened(live) as store, store.begin():  # the disk takes no more for a while
        began = time.perf_counter()
        ids = rounds(300)
        took = time.perf_counter() - began
    assert tau_live.flush(30)

    drops = tau_live.snapshot()["drops"]
    assert isinstance(drops, dict)
    stored = {row.rollout_id: row for row in rollouts(live)}
    dropped = sum(number for number in drops.values() if isinstance(number, int))
    assert took < 3.0
    assert 0 < len(stored) < 300
    assert dropped > 0
    assert set(stored) <= set(ids)
    until(lambda: counted(live) == dropped)


def counted(path: Path) -> int:
    with opened(path) as store:
        counts = store.counters.counts()
    return sum(number for name, number in counts.items() if name.startswith("dropped"))


def test_fault_06_a_hold_is_stored_seen_and_reset_and_update_failures_trip_it(
    live: Path, settings: Settings
) -> None:
    policies_of(settings.store).write_text("not a folder")
    for start in range(0, 200, 8):
        rounds(8, start=start)
        tau_live.flush(10)
        if gate()["state"] == "hold":
            break
    reason = gate()["reason"]
    tau_live.detach()

    assert tau_live.attach(settings) is not None
    runtime = tau_live.attach()
    assert runtime is not None
    held = gate()["state"]
    runtime._gate.reset("mended", who="tests", at=time.time())
    until(lambda: gate()["stored"])

    assert (reason, held, gate()["state"]) == ("update_failures", "hold", "pass")
    with opened(live) as store:
        assert [entry.event for entry in store.gate.log()] == ["reset", "hold"]


def test_fault_08_being_interrupted_is_not_failing(live: Path) -> None:
    with tau_live.run("agent", key=1) as run:
        run.decide("model", ["a", "b"])
        runtime = tau_live.attach()
        assert runtime is not None
        assert tau_live.flush(30)
        runtime._gate.hold("operator", at=time.time())
        until(lambda: rollout(live, run.id).reason == "interrupted")

    found = rollout(live, run.id)
    assert (found.total_reward, found.ready_seq) == (None, None)


def test_an_end_in_the_moment_of_a_hold_loses_nothing(
    live: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = tau_live.attach()
    assert runtime is not None
    run = tau_live.run("agent", key=1).__enter__()
    assert tau_live.flush(30)

    runtime._gate.hold("operator", at=time.time())
    closed = runtime.close(30.0)

    assert closed
    assert "events_unwritten" not in caplog.text
    assert rollout(live, run.id).reason == "interrupted"


@pytest.mark.slow
def test_fault_07_updates_change_what_is_decided(live: Path, settings: Settings) -> None:
    for start in range(0, 160, 8):
        rounds(8, start=start)
        assert tau_live.flush(30)

    with opened(live) as store:
        found = store.policies.versions()
        policies = [load_policy(store.checkpoints, row) for row in found[-3:]]
    last = rollouts(live)[-40:]
    chosen = Counter(decisions(live, row.rollout_id)[0].applied for row in last)
    assert len(found) > 3
    assert not np.array_equal(policies[0].base.gains, policies[-1].base.gains)
    assert chosen["large"] > 30


@pytest.mark.slow
def test_fault_10_the_schedule_is_in_the_store_and_survives_a_restart(
    live: Path, settings: Settings
) -> None:
    for start in range(0, 40, 5):  # never eight in one process
        rounds(5, start=start)
        assert tau_live.flush(30)
        tau_live.detach()
        assert tau_live.attach(settings) is not None

    with opened(live) as store:
        updates = store.policies.updates()[::-1]
    ranges = [(update.first_ready, update.last_ready) for update in updates if update.executed]
    assert len(updates) == 4
    assert all(first > last for (_, last), (first, _) in pairwise(ranges))


def test_fault_11_the_report_is_stored_and_not_wiped_by_the_next_rollout(
    live: Path, settings: Settings
) -> None:
    rounds(9)
    assert tau_live.flush(30)
    report = tau_live.snapshot()["last_report"]

    rounds(3, start=9)
    assert tau_live.flush(30)
    tau_live.detach()
    kept = status_file(settings).exists()
    assert tau_live.attach(settings) is not None

    again = tau_live.snapshot()["last_report"]
    assert isinstance(report, dict)
    assert isinstance(again, dict)
    assert kept
    assert again["update"] == report["update"] == 1


@pytest.mark.slow
def test_fault_16_attempts_are_written_and_orphans_are_ended(path: Path) -> None:
    code = (
        "import os, tau_live\n"
        "assert tau_live.attach() is not None\n"
        "run = tau_live.run('agent', key=1).__enter__()\n"
        "assert tau_live.flush(30)\n"
        "os._exit(1)\n"
    )
    with process(code, path) as dying:
        dying.wait()
    with process("import tau_live; assert tau_live.attach(); tau_live.flush(30)", path) as next_:
        done(next_)

    rollout_id = rollout_id_of("tau_live", "agent/1")
    with opened(path) as store:
        attempts = store.rollouts.attempts(rollout_id)
        claimed = store.queue.claim("worker", at=time.time())
    assert [attempt.status for attempt in attempts] == [AttemptStatus.UNRESPONSIVE]
    assert rollout(path, rollout_id).status is RolloutStatus.FAILED
    assert claimed is None


def test_fault_17_texts_are_not_kept_files_are_private_and_a_bad_store_starts(
    live: Path, settings: Settings
) -> None:
    secret = "sk-ant-api03-" + "x" * 90
    with tau_live.run("agent", key=1, metadata={"prompt": f"use {secret} " * 20}) as run:
        run.decide("model", ["a", "b"], context={"question": f"what of {secret}? " * 20})
        run.reward(1.0, comment=f"thanks, {secret}")
    assert tau_live.flush(30)
    tau_live.detach()

    kept = b"".join(file.read_bytes() for file in live.parent.glob("store*") if file.is_file())
    assert settings.content is Content.NONE
    assert secret.encode() not in kept
    assert b"what of" not in kept
    assert stat.S_IMODE(live.stat().st_mode) == 0o600
