"""The gate, its history, and leases."""

import math
from collections.abc import Callable
from dataclasses import replace
from threading import Barrier, Thread

from tau_live.core.gate import GateEntry, GateRow
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


def test_a_lease_has_one_holder_until_it_runs_out(store: Store) -> None:
    acquired = [
        store.leases.acquire("update", "a", ttl_s=10.0, now=0.0),
        store.leases.acquire("update", "b", ttl_s=10.0, now=9.9),
        store.leases.acquire("update", "b", ttl_s=10.0, now=10.0),
        store.leases.acquire("update", "a", ttl_s=10.0, now=11.0),
    ]

    assert acquired == [True, False, True, False]
    assert store.leases.holder("update", now=19.9) == "b"
    assert store.leases.holder("update", now=20.0) is None


def test_a_holder_renews_its_lease(store: Store) -> None:
    store.leases.acquire("update", "a", ttl_s=10.0, now=0.0)

    renewed = store.leases.acquire("update", "a", ttl_s=10.0, now=8.0)

    assert renewed
    assert store.leases.holder("update", now=17.0) == "a"


def test_only_the_holder_gives_a_lease_back(store: Store) -> None:
    store.leases.acquire("update", "a", ttl_s=10.0, now=0.0)

    store.leases.release("update", "b")
    store.leases.release("other", "a")
    kept = store.leases.holder("update", now=1.0)
    store.leases.release("update", "a")

    assert kept == "a"
    assert store.leases.holder("update", now=1.0) is None


def test_leases_in_force_are_found_by_the_beginning_of_their_names(store: Store) -> None:
    for name, ttl_s in [("process:1", 10.0), ("process:2", 1.0), ("proc%", 10.0), ("update", 10.0)]:
        store.leases.acquire(name, f"holder of {name}", ttl_s=ttl_s, now=0.0)

    assert store.leases.holders("process:", now=5.0) == {"process:1": "holder of process:1"}
    assert set(store.leases.holders("proc", now=0.5)) == {"process:1", "process:2", "proc%"}
    assert store.leases.holders("%", now=0.5) == {}
    assert len(store.leases.holders("", now=0.5)) == 4


def test_leases_are_found_by_when_they_end(store: Store) -> None:
    for name, ttl_s in [("process:1", 10.0), ("process:2", 1.0), ("update", 1.0)]:
        store.leases.acquire(name, f"holder of {name}", ttl_s=ttl_s, now=0.0)

    assert store.leases.ending("process:", after=-60.0, until=5.0) == {
        "process:2": "holder of process:2"
    }
    assert store.leases.ending("process:", after=1.0, until=5.0) == {}
    assert len(store.leases.ending("process:", after=-math.inf, until=math.inf)) == 2


def test_a_lease_taken_before_a_clock_was_put_back_blocks_nobody(store: Store) -> None:
    years = 3e8
    store.leases.acquire("update", "a", ttl_s=10.0, now=years)
    store.leases.acquire("process:a", "a", ttl_s=10.0, now=years)

    taken = store.leases.acquire("update", "b", ttl_s=10.0, now=100.0)

    assert taken
    assert store.leases.holders("process:", now=100.0) == {}


def test_of_many_who_want_a_lease_at_once_one_gets_it(opened: OpenStore) -> None:
    opened()
    start = Barrier(8)
    got: list[str] = []

    def want(holder: str) -> None:
        leases = opened().leases
        start.wait(timeout=10)
        if leases.acquire("update", holder, ttl_s=10.0, now=0.0):
            got.append(holder)

    threads = [Thread(target=want, args=(f"h-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)

    assert got == [opened().leases.holder("update", now=1.0)]
