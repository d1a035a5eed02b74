"""One process's view of the gate while the store fails."""

from tau_live.gate import GateKeeper, Kind
from tests.gate.keeping import (
    C,
    Connect,
    FailingStore,
    history,
    keeper_on,
    reset_from_another_terminal,
    trip,
)


def test_fault_17_a_store_that_fails_holds_the_gate_and_raises_nothing(connect: Connect) -> None:
    store = FailingStore(connect())
    keeper = GateKeeper(limit=3, who="one")

    states = []
    for at in range(1, 4):
        keeper.refresh(store, at=at)
        states.append(keeper.passes)

    assert states == [True, True, False]
    snapshot = keeper.snapshot()
    assert (snapshot["state"], snapshot["reason"]) == ("hold", "store_unavailable")
    assert (snapshot["stored"], snapshot["store_error"]) == (False, "disk I/O error")


def test_a_hold_by_failures_of_others_and_one_s_own_is_kept_although_writing_it_failed(
    connect: Connect,
) -> None:
    mine, other = FailingStore(connect()), connect()
    mine.fails = False
    here, there = keeper_on(mine, who="here"), keeper_on(other, who="there")
    trip(there, times=2, at=1.0)
    there.refresh(other, at=1.0)
    here.failed(C, "full", at=2.0)
    mine.fails_after_loading = True
    here.refresh(mine, at=2.0)
    held = not here.passes
    there.succeeded(C, at=3.0)
    there.refresh(other, at=3.0)

    mine.fails_after_loading = False
    here.refresh(mine, at=4.0)

    assert held
    assert not here.passes
    assert history(other) == [("hold", "hold", "here", "collection_failures")]


def test_one_hiccup_of_the_store_holds_nothing(connect: Connect) -> None:
    store = FailingStore(connect())
    keeper = GateKeeper(limit=2, who="one")

    for at in range(10):
        store.fails = at % 2 == 0
        keeper.refresh(store, at=at)

    assert keeper.passes
    assert keeper.store_error is None


def test_a_hold_is_written_down_when_the_store_is_back(connect: Connect) -> None:
    store = FailingStore(connect())
    keeper = GateKeeper(limit=2, who="one")
    for at in (1.0, 2.0):
        keeper.refresh(store, at=at)

    store.fails = False
    keeper.refresh(store, at=3.0)

    assert not keeper.passes
    assert keeper.snapshot()["stored"] is True
    assert (store.load().state, store.load().since) == ("hold", 2.0)
    assert history(store) == [("hold", "hold", "one", "store_unavailable")]


def test_a_reset_from_another_terminal_ends_a_hold_that_only_memory_knew(connect: Connect) -> None:
    store = FailingStore(connect())
    keeper = GateKeeper(limit=1, who="one")
    keeper.refresh(store, at=1.0)
    held = not keeper.passes

    reset_from_another_terminal(
        connect(), at=2.0
    )  # the disk works again, the process was not there
    store.fails = False
    changed = keeper.refresh(store, at=3.0)

    assert held
    assert changed
    assert keeper.passes
    assert store.load().state == "pass"
    assert history(store) == [
        ("reset", "pass", "anna", "disk repaired"),
        ("held_in_memory", "pass", "one", "store_unavailable"),
    ]


def test_a_reset_that_came_before_the_hold_does_not_end_it(connect: Connect) -> None:
    store = FailingStore(connect())
    keeper = GateKeeper(limit=1, who="one")
    reset_from_another_terminal(connect(), at=1.0)
    keeper.refresh(store, at=2.0)

    store.fails = False
    keeper.refresh(store, at=3.0)

    assert not keeper.passes
    assert store.load().state == "hold"


def test_a_hold_and_its_reset_that_only_memory_knew_are_both_written(connect: Connect) -> None:
    store = FailingStore(connect())
    keeper = GateKeeper(limit=1, who="one")
    keeper.refresh(store, at=1.0)

    keeper.reset("it is known", who="anna", at=2.0)
    store.fails = False
    keeper.refresh(store, at=3.0)

    assert keeper.passes
    assert history(store) == [
        ("hold", "hold", "one", "store_unavailable"),
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
    operator.refresh(store, at=1.0)
    colleague = keeper_on(other, who="two")
    trip(colleague, at=2.0)
    colleague.refresh(other, at=2.0)

    store.fails_after_saving = False
    operator.refresh(store, at=3.0)

    assert not operator.passes
    assert [event for event, *_ in history(other)] == ["reset", "hold"]


def test_what_waits_to_be_written_is_bounded(connect: Connect) -> None:
    store = FailingStore(connect())
    keeper = GateKeeper(limit=1000, who="one")

    for at in range(5000):
        kind = list(Kind)[at % 3]
        keeper.failed(kind, "full", at=at)
        if at % 7 == 0:
            keeper.succeeded(kind, at=at)
    store.fails = False
    keeper.refresh(store, at=5000)

    assert store.saves == 1
    assert not keeper.unsaved
