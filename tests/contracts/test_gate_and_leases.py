"""The gate, its history, and leases."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Barrier, Thread

import pytest

from tau_live.core.errors import LeaseLostError
from tau_live.core.gate import GateEntry, GateRow
from tau_live.core.processes import PROCESSES, this_process
from tau_live.record.writer import beat, leave
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
