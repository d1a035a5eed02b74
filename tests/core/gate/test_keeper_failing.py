"""One process's view of the gate while the store fails."""

from tau_live.core.gate import Kind
from tau_live.core.gate_keeper import GateKeeper
from tests.core.gate.keeping import (
    C,
    Connect,
    FailingStore,
    history,
    keeper_on,
    reset_from_another_terminal,
    trip,
)


def test_fault_17_a_store_that_fails_is_said_and_raises_nothing(connect: Connect) -> None:
    store = FailingStore(connect())
    keeper = GateKeeper(limit=3, who="one")

    for _ in range(1, 9):
        keeper.refresh(store)

    snapshot = keeper.snapshot()
    assert (snapshot["state"], snapshot["stored"]) == ("pass", False)
    assert snapshot["store_error"] == "disk I/O error"


def test_a_hold_because_of_the_store_is_in_memory_alone_and_ends_with_its_cause(
    connect: Connect,
) -> None:
    store = FailingStore(connect())
    store.fails = False
    keeper = keeper_on(store)
    keeper.suspend("disk I/O error", at=1.0)
    keeper.suspend("again", at=2.0)
    keeper.record_failure(C, "full", at=3.0)
    keeper.refresh(store)
    held, epoch, stored = keeper.snapshot(), keeper.epoch, store.load().state

    keeper.resume()
    keeper.resume()
    keeper.refresh(store)

    words = {name: held[name] for name in ("state", "reason", "detail", "since", "stored")}
    assert words == {
        "state": "hold",
        "reason": "store_unavailable",
        "detail": "disk I/O error",
        "since": 1.0,
        "stored": False,
    }
    assert (epoch, stored) == (1, "pass")
    assert keeper.passes
    assert keeper.snapshot()["stored"] is True
    assert history(store) == [("held_in_memory", "pass", "one", "store_unavailable")]


def test_the_end_of_a_hold_because_of_the_store_ends_no_other(connect: Connect) -> None:
    store = FailingStore(connect())
    store.fails = False
    keeper = keeper_on(store)
    keeper.suspend("disk I/O error", at=1.0)
    reset_from_another_terminal(connect(), at=2.0)
    keeper.hold("operator", at=3.0, who="anna")

    keeper.resume()
    keeper.refresh(store)

    assert not keeper.passes
    assert (keeper.snapshot()["reason"], store.load().state) == ("operator", "hold")


def test_a_hold_by_failures_of_others_and_one_s_own_is_kept_although_writing_it_failed(
    connect: Connect,
) -> None:
    mine, other = FailingStore(connect()), connect()
    mine.fails = False
    here, there = keeper_on(mine, who="here"), keeper_on(other, who="there")
    trip(there, times=2, at=1.0)
    there.refresh(other)
    here.record_failure(C, "full", at=2.0)
    mine.fails_after_loading = True
    here.refresh(mine)
    held = not here.passes
    there.record_success(C, at=3.0)
    there.refresh(other)

    mine.fails_after_loading = False
    here.refresh(mine)

    assert held
    assert not here.passes
    assert history(other) == [("hold", "hold", "here", "collection_failures")]


def test_a_store_that_works_again_is_said_too(connect: Connect) -> None:
    store = FailingStore(connect())
    keeper = GateKeeper(limit=2, who="one")
    keeper.refresh(store)

    store.fails = False
    keeper.refresh(store)

    assert keeper.store_error is None


def test_a_hold_is_written_down_when_the_store_is_back(connect: Connect) -> None:
    store = FailingStore(connect())
    keeper = GateKeeper(limit=2, who="one")
    trip(keeper, times=2, at=2.0)
    keeper.refresh(store)

    store.fails = False
    keeper.refresh(store)

    assert not keeper.passes
    assert keeper.snapshot()["stored"] is True
    assert (store.load().state, store.load().since) == ("hold", 2.0)
    assert history(store) == [("hold", "hold", "one", "collection_failures")]


def test_a_reset_from_another_terminal_ends_a_hold_that_only_memory_knew(connect: Connect) -> None:
    store = FailingStore(connect())
    keeper = GateKeeper(limit=1, who="one")
    trip(keeper, times=1, at=1.0)
    keeper.refresh(store)
    held = not keeper.passes

    reset_from_another_terminal(
        connect(), at=2.0
    )  # the disk works again, the process was not there
    store.fails = False
    changed = keeper.refresh(store)

    assert held
    assert changed
    assert keeper.passes
    assert store.load().state == "pass"
    assert history(store) == [
        ("reset", "pass", "anna", "disk repaired"),
        ("held_in_memory", "pass", "one", "collection_failures"),
    ]


def test_a_reset_that_came_before_the_hold_does_not_end_it(connect: Connect) -> None:
    store = FailingStore(connect())
    keeper = GateKeeper(limit=1, who="one")
    reset_from_another_terminal(connect(), at=1.0)
    trip(keeper, times=1, at=2.0)
    keeper.refresh(store)

    store.fails = False
    keeper.refresh(store)

    assert not keeper.passes
    assert store.load().state == "hold"


def test_a_hold_and_its_reset_that_only_memory_knew_are_both_written(connect: Connect) -> None:
    store = FailingStore(connect())
    keeper = GateKeeper(limit=1, who="one")
    trip(keeper, times=1, at=1.0)
    keeper.refresh(store)

    keeper.reset("it is known", who="anna", at=2.0)
    store.fails = False
    keeper.refresh(store)

    assert keeper.passes
    assert history(store) == [
        ("hold", "hold", "one", "collection_failures"),
        ("reset", "pass", "anna", "it is known"),
    ]


def test_a_reset_that_was_written_although_it_seemed_to_fail_is_not_done_twice(
    connect: Connect,
) -> None:
    store, other = FailingStore(connect()), connect()
    store.fails = False
    operator = keeper_on(store, who="terminal")
    operator.reset("disk repaired", who="anna", at=1.0)
    store.fails_after_saving = True
    operator.refresh(store)
    colleague = keeper_on(other, who="two")
    trip(colleague, at=2.0)
    colleague.refresh(other)

    store.fails_after_saving = False
    operator.refresh(store)

    assert not operator.passes
    assert [event for event, *_ in history(other)] == ["reset", "hold"]


def test_what_waits_to_be_written_is_bounded(connect: Connect) -> None:
    store = FailingStore(connect())
    keeper = GateKeeper(limit=1000, who="one")

    for at in range(5000):
        kind = list(Kind)[at % 3]
        keeper.record_failure(kind, "full", at=at)
        if at % 7 == 0:
            keeper.record_success(kind, at=at)
    store.fails = False
    keeper.refresh(store)

    assert store.saves == 1
    assert not keeper.has_unsaved
