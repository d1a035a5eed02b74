"""The gate, its history, and leases."""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Barrier, Thread

import pytest

from tau_live.core.errors import LeaseLostError
from tau_live.core.gate import GateEntry, GateRow, Kind
from tau_live.core.gate_keeper import GateKeeper, ProcessReport
from tau_live.core.processes import PROCESSES, this_process
from tau_live.record.heartbeats import (
    Heart,
    beat,
    forget_dead,
    heartbeats,
    hold_all,
    holding_alone,
    leave,
    replace_dead,
    unaware,
)
from tau_live.store.records import Lease
from tau_live.store.roles import Store

OpenStore = Callable[[], Store]

HELD = GateRow(
    state="hold",
    reason="update_failures",
    detail="disk full",
    since=5.0,
    streaks={"update": 3, "collection": 0},
    revision=1,
)
ENTRY = GateEntry(
    at=5.0, event="held", state="hold", kind="update", reason="update_failures", who="host:1"
)


def test_the_gate_passes_when_nothing_was_ever_stored(store: Store) -> None:
    expected = GateRow(state="pass", reason=None, detail=None, since=0.0, streaks={}, revision=0)

    assert store.gate.load() == expected
    assert store.gate.log() == []


def test_the_gate_comes_back_as_it_was_saved(opened: OpenStore) -> None:
    saved = opened().gate.save(HELD, entry=ENTRY)

    assert saved
    assert opened().gate.load() == HELD
    assert [replace(entry, seq=0) for entry in opened().gate.log()] == [ENTRY]


def test_a_gate_that_has_changed_meanwhile_is_not_overwritten(store: Store) -> None:
    store.gate.save(HELD, entry=None)

    answers = [
        store.gate.save(replace(HELD, state="pass", revision=revision), entry=ENTRY)
        for revision in (0, 1, 3)
    ]

    assert answers == [False, False, False]
    assert store.gate.load() == HELD
    assert store.gate.log() == []


def test_a_gate_that_was_never_saved_begins_at_one(store: Store) -> None:
    assert not store.gate.save(replace(HELD, revision=2), entry=ENTRY)
    assert store.gate.load().revision == 0


def test_of_many_who_save_at_once_one_does_at_each_revision(opened: OpenStore) -> None:
    opened()
    start = Barrier(6)
    saved: list[bool] = []

    def save(number: int) -> None:
        gate = opened().gate
        start.wait(timeout=10)
        for revision in (1, 2, 3):
            row = replace(HELD, detail=f"{number}", revision=revision)
            saved.append(gate.save(row, entry=replace(ENTRY, who=f"{number}")))

    threads = [Thread(target=save, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)

    store = opened()
    assert len(saved) == 18
    assert sum(saved) == store.gate.load().revision == len(store.gate.log())


def test_the_history_is_told_newest_first(store: Store) -> None:
    for revision in (1, 2, 3):
        store.gate.save(replace(HELD, revision=revision), entry=replace(ENTRY, at=revision))

    assert [entry.at for entry in store.gate.log()] == [3.0, 2.0, 1.0]
    assert [entry.at for entry in store.gate.log(limit=1)] == [3.0]


A, B = "elsewhere:1:2", "elsewhere:2:2"
"""Processes of another machine: nobody here knows whether they live."""


def test_a_lease_has_one_holder_until_it_runs_out(store: Store) -> None:
    acquired = []
    for holder, now in [(A, 0.0), (B, 9.9), (B, 10.0), (A, 11.0)]:
        store.clock = partial(float, now)
        acquired.append(store.leases.acquire("update", holder, ttl_s=10.0) > 0)
    store.clock = lambda: 19.9
    late = store.leases.holder("update")
    store.clock = lambda: 20.0

    assert acquired == [True, False, True, False]
    assert late == B
    assert store.leases.holder("update") is None


def test_each_taking_of_a_lease_has_a_higher_token_which_renewing_keeps(store: Store) -> None:
    store.clock = lambda: 0.0
    first = store.leases.acquire("update", A, ttl_s=10.0)
    other = store.leases.acquire("other", A, ttl_s=10.0)
    renewed = store.leases.acquire("update", A, ttl_s=20.0)
    store.clock = lambda: 20.0
    taken = store.leases.acquire("update", B, ttl_s=10.0)
    store.leases.release("update", B)
    again = store.leases.acquire("update", B, ttl_s=10.0)

    assert 0 < first == renewed
    assert first < other < taken < again


def test_who_lost_a_lease_cannot_confirm_it_not_even_when_it_is_free_again(store: Store) -> None:
    store.clock = lambda: 0.0
    token = store.leases.acquire("update", A, ttl_s=10.0)
    store.leases.confirm("update", token)
    store.clock = lambda: 11.0
    store.leases.confirm("update", token)  # it has expired, and nobody has taken it

    newer = store.leases.acquire("update", B, ttl_s=10.0)
    with pytest.raises(LeaseLostError):
        store.leases.confirm("update", token)
    store.leases.confirm("update", newer)
    store.leases.release("update", B)
    with pytest.raises(LeaseLostError):
        store.leases.confirm("update", token)
    store.leases.acquire("update", A, ttl_s=10.0)
    with pytest.raises(LeaseLostError):
        store.leases.confirm("update", token)


def test_a_holder_renews_its_lease(store: Store) -> None:
    store.clock = lambda: 0.0
    store.leases.acquire("update", A, ttl_s=10.0)
    store.clock = lambda: 8.0

    renewed = store.leases.acquire("update", A, ttl_s=10.0)
    store.clock = lambda: 17.0

    assert renewed
    assert store.leases.holder("update") == A


def test_a_dead_process_holds_no_lease(store: Store) -> None:
    dead = this_process().rsplit(":", 2)[0] + ":4194999:1"
    store.leases.acquire("update", dead, ttl_s=60.0)

    assert store.leases.acquire("update", A, ttl_s=60.0)
    assert store.leases.holder("update") == A


def test_only_the_holder_gives_a_lease_back(store: Store) -> None:
    store.leases.acquire("update", A, ttl_s=10.0)

    store.leases.release("update", B)
    store.leases.release("other", A)
    kept = store.leases.holder("update")
    store.leases.release("update", A)

    assert kept == A
    assert store.leases.holder("update") is None


def test_leases_in_force_are_found_by_the_beginning_of_their_names(store: Store) -> None:
    store.clock = lambda: 0.0
    for name, ttl_s in [("process:1", 10.0), ("process:2", 1.0), ("proc%", 10.0), ("update", 10.0)]:
        store.leases.acquire(name, f"holder of {name}", ttl_s=ttl_s)

    store.clock = lambda: 0.5
    assert set(store.leases.holders("proc")) == {"process:1", "process:2", "proc%"}
    assert store.leases.holders("%") == {}
    assert len(store.leases.holders("")) == 4
    store.clock = lambda: 5.0
    assert store.leases.holders("process:") == {"process:1": "holder of process:1"}
    assert store.leases.all("process:") == [
        Lease("process:1", "holder of process:1", 5.0),
        Lease("process:2", "holder of process:2", -4.0),
    ]


def test_a_lease_taken_before_a_clock_was_put_back_blocks_nobody(store: Store) -> None:
    store.clock = lambda: 3e8
    store.leases.acquire("update", A, ttl_s=10.0)
    store.leases.acquire("process:a", A, ttl_s=10.0)
    store.clock = lambda: 100.0

    taken = store.leases.acquire("update", B, ttl_s=10.0)

    assert taken
    assert store.leases.holders("process:") == {}


def test_of_many_who_want_a_lease_at_once_one_gets_it(opened: OpenStore) -> None:
    opened()
    start = Barrier(8)
    got: list[str] = []

    def want(holder: str) -> None:
        leases = opened().leases
        start.wait(timeout=10)
        if leases.acquire("update", holder, ttl_s=10.0):
            got.append(holder)

    threads = [Thread(target=want, args=(f"elsewhere:{number}:1",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)

    assert got == [opened().leases.holder("update")]


def test_of_all_machines_one_process_keeps_house_until_it_leaves(store: Store) -> None:
    first, second = "elsewhere/1:1:1", "elsewhere/2:1:1"

    keep_house = [beat(store, owner) for owner in (first, second, first)]
    leave(store, first)
    after = beat(store, second)

    assert keep_house == [True, not store.is_shared, True]
    assert after
    assert [*store.leases.holders(PROCESSES).values()] == [second]


def sick(
    store: Store, *hosts: str, of: int, reset: int = 0, reason: str = "decision_failures"
) -> None:
    """Let so many hosts be there, of which some hold by themselves."""
    for host in {*hosts, *(f"host-{number}" for number in range(of))}:
        held = ProcessReport(revision=0, reset=reset, reason=reason, detail=f"{host} fails")
        report = held if host in hosts else ProcessReport(revision=0)
        beat(store, f"{host}:1:2", report)
        beat(store, f"{host}:3:4", report)  # two processes of a host are one host


@pytest.mark.parametrize(
    ("of", "held", "holds"),
    [(1, 1, False), (2, 2, True), (3, 1, False), (20, 2, True), (21, 2, False), (21, 3, True)],
)
def test_all_hold_when_a_tenth_of_the_hosts_and_at_least_two_do(
    store: Store, of: int, held: int, holds: bool
) -> None:
    sick(store, *(f"host-{number}" for number in range(held)), of=of)

    began = hold_all(store, limit=3, who="me")

    assert began is holds
    row = store.gate.load()
    assert (row.state, row.reason) == (("hold", "decision_failures") if holds else ("pass", None))
    assert not hold_all(store, limit=3, who="me")  # it holds already


def test_hosts_that_hold_for_different_reasons_do_not_add_up(store: Store) -> None:
    sick(store, "host-0", of=3)
    sick(store, "host-1", of=0, reason="collection_failures")

    assert not hold_all(store, limit=3, who="me")


def test_hosts_that_have_not_heard_of_a_reset_do_not_hold_all_again(store: Store) -> None:
    sick(store, "host-0", "host-1", of=3)
    hold_all(store, limit=3, who="me")
    reset = replace(ENTRY, event="reset", state="pass", kind=None, reason="mended")
    store.gate.save(replace(HELD, state="pass", reason=None, revision=2), entry=reset)

    again = hold_all(store, limit=3, who="me")
    [newest] = [line.seq for line in store.gate.log(limit=1)]
    sick(store, "host-0", "host-1", of=3, reset=newest)  # failed after it

    assert not again
    assert hold_all(store, limit=3, who="me")


def test_hosts_not_seen_for_a_minute_do_not_count(store: Store) -> None:
    store.clock = lambda: 1_000.0
    sick(store, "host-0", "host-1", of=2)

    store.clock = lambda: 1_060.1

    assert not hold_all(store, limit=3, who="me")
    store.clock = lambda: 1_059.9
    assert hold_all(store, limit=3, who="me")


def test_processes_that_have_not_acknowledged_the_gate_are_known(store: Store) -> None:
    me = this_process()
    dead = me.replace(f":{os.getpid()}:", ":999999999:")
    for process, revision in {A: 4, B: 5, me: 3, dead: 3, "elsewhere:3:4": None}.items():
        beat(store, process, ProcessReport(revision=revision))

    beats = heartbeats(store.leases, within_s=60.0)

    assert {each.process for each in unaware(beats, 5)} == {A, me}


def test_the_failures_of_a_dead_process_are_taken_over_once(store: Store) -> None:
    me = this_process()
    dead = me.replace(f":{os.getpid()}:", ":999999999:")
    beat(store, dead, ProcessReport(revision=0, streaks={Kind.DECISION: 2}))
    beat(store, A, ProcessReport(revision=0, streaks={Kind.DECISION: 2}))  # of another machine
    first, second = (GateKeeper(limit=3, who="me", in_fleet=True) for _ in range(2))

    replace_dead(store, first, me)
    replace_dead(store, second, me)
    first.record_failure(Kind.DECISION, "wrong", at=1.0)
    second.record_failure(Kind.DECISION, "wrong", at=1.0)

    assert (first.passes, second.passes) == (False, True)


def test_a_process_that_ends_leaves_its_failures_behind(store: Store) -> None:
    gate = GateKeeper(limit=3, who="me", in_fleet=True)
    heart = Heart(A, gate, limit=3)
    heart.beat(store)
    gate.record_failure(Kind.COLLECTION, "wrong", at=1.0)

    heart.leave(store)

    assert store.leases.holders(PROCESSES) == {}
    left = [each.report for each in heartbeats(store.leases, within_s=60.0)]
    # a file knows its failures itself
    expected = ProcessReport(revision=None, streaks={Kind.COLLECTION: 1}, detail="wrong")
    assert left == ([expected] if store.is_shared else [])


def test_a_process_that_held_and_has_ended_holds_nobody_and_is_not_named(store: Store) -> None:
    hearts = [held(store, f"host-{number}:1:2") for number in range(2)]
    named = [each.host for each in holding_alone(store)]

    for heart in hearts:
        heart.leave(store)

    assert named == (["host-0", "host-1"] if store.is_shared else [])
    assert holding_alone(store) == []
    assert not hold_all(store, limit=3, who="me")


def held(store: Store, owner: str) -> Heart:
    """Let a process hold alone, and say so without a hold of all for now."""
    gate = GateKeeper(limit=3, who=owner, in_fleet=True)
    for at in (1.0, 2.0, 3.0):
        gate.record_failure(Kind.DECISION, "wrong", at=at)
    beat(store, owner, gate.report() if store.is_shared else None)
    return Heart(owner, gate, limit=3)


def test_a_hold_from_before_a_reset_is_named_while_its_process_may_not_know(store: Store) -> None:
    store.clock = lambda: 1_000.0
    sick(store, "host-0", of=1)
    reset = replace(ENTRY, event="reset", state="pass", kind=None, reason="mended")
    store.gate.save(replace(HELD, state="pass", reason=None, revision=1), entry=reset)
    before = len(holding_alone(store))

    store.clock = lambda: 1_021.0

    assert (before, holding_alone(store)) == (2, [])


def test_a_process_not_seen_for_a_day_is_forgotten(store: Store) -> None:
    store.clock = lambda: 100.0
    beat(store, A, ProcessReport(revision=0))
    store.clock = lambda: 90_000.0
    beat(store, B, ProcessReport(revision=0))

    forget_dead(store.leases)

    assert [lease.holder for lease in store.leases.all(PROCESSES)] == [B]
