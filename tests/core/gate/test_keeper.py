"""One process's view of the gate: alone, and among others."""

import threading

import pytest

from tau_live.core.errors import TauLiveError
from tau_live.core.gate import HoldReason, Kind
from tau_live.core.gate_keeper import GateKeeper, GateStore, ProcessReport
from tests.core.gate.keeping import (
    C,
    Connect,
    D,
    FailingStore,
    U,
    history,
    keeper_on,
    reset_from_another_terminal,
    trip,
)

# Alone


def test_failures_in_a_row_hold_at_once_and_are_written_at_the_next_refresh(
    connect: Connect,
) -> None:
    store = connect()
    keeper = keeper_on(store)

    trip(keeper)
    held_before_refresh = not keeper.passes
    changed = keeper.refresh(store)

    assert held_before_refresh
    assert changed
    row = store.load()
    assert (row.state, row.reason, row.since) == ("hold", "collection_failures", 1.0)
    assert (row.detail, row.streaks["collection"]) == ("disk I/O error", 3)
    assert history(store) == [("hold", "hold", "one", "collection_failures")]


def test_fault_6_a_hold_outlives_the_process_and_can_be_reset(connect: Connect) -> None:
    store = connect()
    keeper = keeper_on(store)
    trip(keeper, U)
    keeper.refresh(store)

    restarted = keeper_on(connect(), who="two")
    held_after_restart = not restarted.passes
    reset_from_another_terminal(connect(), at=3.0)
    changed = keeper.refresh(store)

    assert held_after_restart
    assert changed
    assert keeper.passes
    assert history(store)[-1] == ("reset", "pass", "anna", "disk repaired")


def test_fault_6_successes_of_collection_do_not_hide_failing_updates(connect: Connect) -> None:
    store = connect()
    keeper = keeper_on(store)

    for at in range(1, 4):
        keeper.record_failure(U, "no memory", at=at)
        keeper.refresh(store)
        keeper.record_success(C, at=at)
        keeper.refresh(store)

    assert keeper.gate.reason == HoldReason.UPDATE_FAILURES


def test_fault_5_the_host_s_thread_does_no_work_and_never_waits_for_the_store(
    connect: Connect,
) -> None:
    store = FailingStore(connect())
    store.fails = False
    keeper = keeper_on(store)
    keeper.record_failure(D, "too slow", at=1.0)
    seen: list[tuple[bool, bool, int]] = []

    def let_the_host_work() -> None:  # while the writer stands at the disk
        store.before_save = lambda: None
        host = threading.Thread(target=lambda: trip(keeper, D, times=2, at=2.0), daemon=True)
        host.start()
        host.join(timeout=10)
        seen.append((host.is_alive(), keeper.passes, store.saves))

    store.before_save = let_the_host_work
    keeper.refresh(store)
    keeper.refresh(store)

    assert seen == [(False, False, 0)]  # it went on, the gate held at once, and nothing was written
    assert store.load().streaks["decision"] == 3


def test_successes_of_a_healthy_process_write_nothing(connect: Connect) -> None:
    store = FailingStore(connect())
    store.fails = False
    keeper = keeper_on(store)

    for at in range(100):
        keeper.record_success(C, at=at)
        keeper.refresh(store)

    assert store.saves == 0
    assert not keeper.has_unsaved


def test_a_success_ends_a_streak_that_was_written_already(connect: Connect) -> None:
    store = connect()
    keeper = keeper_on(store)
    trip(keeper, times=2)
    keeper.refresh(store)

    keeper.record_success(C, at=2.0)
    keeper.refresh(store)

    assert store.load().streaks["collection"] == 0
    assert keeper.gate.streaks == {}


def test_a_hold_of_an_operator_is_written_with_his_name(connect: Connect) -> None:
    store = connect()
    keeper = keeper_on(store)

    keeper.hold(HoldReason.OPERATOR, at=1.0, detail="migration", who="anna")
    keeper.refresh(store)

    assert history(store) == [("hold", "hold", "anna", "operator")]
    assert store.load().detail == "migration"


@pytest.mark.parametrize(("reason", "who"), [("", "anna"), ("  ", "anna"), ("disk repaired", "")])
def test_a_reset_without_a_reason_or_a_name_is_refused(reason: str, who: str) -> None:
    keeper = GateKeeper(limit=1, who="one")
    trip(keeper, times=1)

    with pytest.raises(TauLiveError, match="a reset needs a reason and a name, got "):
        keeper.reset(reason, who=who, at=2.0)

    assert not keeper.passes


def test_a_reset_of_a_passing_gate_ends_streaks_and_is_written_too(connect: Connect) -> None:
    store = connect()
    keeper = keeper_on(store)
    trip(keeper, times=2)
    keeper.refresh(store)

    reset_from_another_terminal(connect(), at=2.0)
    keeper.refresh(store)
    trip(keeper, times=2, at=3.0)

    assert keeper.passes
    assert history(store) == [("reset", "pass", "anna", "disk repaired")]


def test_a_failure_from_before_a_reset_is_not_counted_after_it(connect: Connect) -> None:
    store = connect()
    keeper = keeper_on(store)
    keeper.record_failure(C, "full", at=1.0)

    reset_from_another_terminal(connect(), at=2.0)
    keeper.refresh(store)

    assert keeper.gate.streaks == {}
    assert store.load().streaks["collection"] == 0
    assert history(store) == [("reset", "pass", "anna", "disk repaired")]


def test_a_reset_is_all_that_is_written_of_what_it_ended(connect: Connect) -> None:
    store, other = connect(), connect()
    keeper, colleague = keeper_on(store), keeper_on(other, who="two")
    trip(colleague, times=2)
    colleague.refresh(other)
    keeper.record_failure(C, "full", at=2.0)

    keeper.reset("disk repaired", who="anna", at=3.0)
    keeper.refresh(store)

    assert history(store) == [("reset", "pass", "anna", "disk repaired")]


def test_what_fails_while_it_holds_is_not_counted(connect: Connect) -> None:
    store = connect()
    keeper = keeper_on(store)
    trip(keeper)
    keeper.refresh(store)

    trip(keeper, U, times=50)

    assert not keeper.has_unsaved
    assert keeper.gate.streaks == {C: 3}


def test_the_snapshot_says_what_an_operator_asks_first(connect: Connect) -> None:
    keeper = keeper_on(connect(), limit=2)
    trip(keeper, U, times=2, at=7.0)

    assert keeper.snapshot() == {
        "state": "hold",
        "reason": "update_failures",
        "detail": "disk I/O error",
        "since": 7.0,
        "streaks": {"collection": 0, "update": 2, "decision": 0},
        "limit": 2,
        "revision": 0,
        "stored": False,
        "store_error": None,
    }


# Among others


def test_failures_of_several_processes_make_one_streak(connect: Connect) -> None:
    store = connect()
    keepers = [keeper_on(connect(), who=who) for who in ("one", "two", "three")]

    for at, keeper in enumerate(keepers, start=1):
        keeper.record_failure(C, "full", at=at)
        keeper.refresh(store)

    assert keepers[-1].gate.reason == "collection_failures"
    assert history(store) == [("hold", "hold", "three", "collection_failures")]


def test_a_healthy_process_does_not_hide_one_that_fails(connect: Connect) -> None:
    store = connect()
    healthy, failing = keeper_on(store, who="healthy"), keeper_on(store, who="failing")

    for at in range(1, 4):
        failing.record_failure(C, "full", at=at)
        failing.refresh(store)
        healthy.refresh(store)
        healthy.record_success(C, at=at)
        healthy.refresh(store)

    assert not failing.passes
    assert not healthy.passes


def test_limit_failures_in_one_process_hold_even_if_another_ended_the_shared_streak(
    connect: Connect,
) -> None:
    store = connect()
    failing = keeper_on(store, who="failing")
    trip(failing, times=2)
    failing.refresh(store)
    newcomer = keeper_on(store, who="newcomer")  # finds a streak of two, so it answers for it
    newcomer.record_success(C, at=2.0)
    newcomer.refresh(store)
    ended = store.load().streaks["collection"]

    failing.refresh(store)
    trip(failing, times=1, at=3.0)
    failing.refresh(store)

    assert ended == 0
    assert (store.load().state, store.load().streaks["collection"]) == ("hold", 3)


def test_a_process_that_dies_of_each_failure_is_held_in_the_end(connect: Connect) -> None:
    store = connect()

    for at in range(1, 4):
        keeper = keeper_on(store, who=f"life {at}")
        keeper.record_failure(C, "killed", at=at)
        keeper.refresh(store)

    assert store.load().state == "hold"


def test_two_processes_that_trip_at_once_make_one_hold_and_both_say_so(connect: Connect) -> None:
    store, racing = connect(), FailingStore(connect())
    racing.fails = False
    one, two = keeper_on(store, who="one"), keeper_on(racing, who="two")
    trip(one, U, at=1.0)
    trip(two, D, at=2.0)
    racing.before_save = lambda: one.refresh(store)  # between two's read and its write

    two.refresh(racing)

    assert store.load().reason == two.gate.reason == one.gate.reason == "update_failures"
    assert history(store) == [
        ("hold", "hold", "one", "update_failures"),
        ("hold", "hold", "two", "decision_failures"),
    ]


def test_threads_with_connections_of_their_own_lose_no_failure(connect: Connect) -> None:
    barrier, took_part = threading.Barrier(4), []

    def work(name: str) -> None:
        store = connect()
        keeper = keeper_on(store, limit=20, who=name)
        barrier.wait(timeout=30)
        for at in range(1, 5):
            keeper.record_failure(C, "full", at=at)
            while keeper.has_unsaved:
                keeper.refresh(store)
        took_part.append(name)

    threads = [threading.Thread(target=work, args=(f"process {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    assert len(took_part) == 4
    assert connect().load().streaks["collection"] == 16


def test_a_clock_that_was_set_back_does_not_undo_a_reset(connect: Connect) -> None:
    store = connect()
    keeper = keeper_on(store)
    trip(keeper, at=1_000_000.0)
    keeper.refresh(store)

    reset_from_another_terminal(connect(), at=1.0)
    keeper.refresh(store)
    trip(keeper, times=2, at=3.0)
    keeper.refresh(store)

    assert keeper.passes


# The kill switch


def test_while_it_is_killed_it_holds_and_no_reset_ends_that(connect: Connect) -> None:
    store = connect()
    keeper = keeper_on(store)
    epoch = keeper.epoch

    keeper.set_kill("nonsense", at=5.0)
    keeper.reset("looked at", who="me", at=6.0)
    keeper.refresh(store)

    assert not keeper.passes
    assert keeper.epoch == epoch + 1
    told = keeper.snapshot()
    assert (told["state"], told["reason"], told["detail"], told["since"]) == (
        "hold", "killed", "nonsense", 5.0,
    )  # fmt: skip
    assert store.load().state == "pass"


def test_after_it_the_gate_is_what_it_was(connect: Connect) -> None:
    passing, held = keeper_on(connect()), keeper_on(connect())
    held.hold("operator", at=1.0, detail="audit")

    for keeper in (passing, held):
        keeper.set_kill("nonsense", at=5.0)
        keeper.set_kill(None, at=0.0)

    assert passing.snapshot()["state"] == "pass"
    assert (held.snapshot()["state"], held.snapshot()["reason"]) == ("hold", "operator")


def test_a_gate_that_holds_keeps_its_own_reason_while_it_is_killed(connect: Connect) -> None:
    keeper = keeper_on(connect())
    keeper.hold("operator", at=1.0, detail="audit")

    keeper.set_kill("nonsense", at=5.0)

    assert keeper.snapshot()["reason"] == "operator"


# In a fleet


def fleet_keeper(store: GateStore, *, who: str = "one") -> GateKeeper:
    keeper = GateKeeper(limit=3, who=who, in_fleet=True)
    keeper.refresh(store)
    return keeper


@pytest.mark.parametrize("kind", [C, D])
def test_in_a_fleet_failures_of_a_process_hold_it_alone(connect: Connect, kind: Kind) -> None:
    store = connect()
    one, two = fleet_keeper(store), fleet_keeper(store, who="two")
    failing = FailingStore(store)
    failing.fails = False

    trip(one, kind)
    trip(two, kind, times=2)
    one.refresh(failing)
    two.refresh(store)

    assert (one.passes, one.epoch, two.passes) == (False, 1, True)
    assert (one.holds_alone, two.holds_alone) == (True, False)
    assert failing.saves == 0  # it costs others nothing
    assert store.load().revision == 0
    shown = one.snapshot()
    assert (shown["state"], shown["reason"]) == ("hold", f"{kind}_failures")
    assert (shown["streaks"][kind], two.snapshot()["streaks"][kind]) == (3, 2)
    assert (one.report().reason, two.report().reason) == (f"{kind}_failures", None)


def test_in_a_fleet_failing_updates_hold_all(connect: Connect) -> None:
    store = connect()
    one, two = fleet_keeper(store), fleet_keeper(store, who="two")

    trip(one, U)
    one.refresh(store)
    two.refresh(store)

    assert (one.passes, two.passes, one.holds_alone) == (False, False, False)


def test_in_a_fleet_a_reset_ends_holds_of_processes_whatever_their_clocks_say(
    connect: Connect,
) -> None:
    store = connect()
    keeper = fleet_keeper(store)
    trip(keeper, D, at=5_000.0)
    keeper.refresh(store)

    reset_from_another_terminal(connect(), at=3.0)
    changed = keeper.refresh(store)

    assert changed
    assert keeper.passes
    assert keeper.report() == ProcessReport(revision=1, reset=1, since=3.0)
    trip(keeper, D, times=2)
    assert keeper.passes


def test_in_a_fleet_a_success_ends_the_streak(connect: Connect) -> None:
    keeper = fleet_keeper(connect())

    trip(keeper, D, times=2)
    keeper.record_success(D, at=2.0)
    trip(keeper, D, times=2)

    assert keeper.passes
    assert keeper.report().streaks == {D: 2}


def test_in_a_fleet_the_hold_of_a_process_does_not_hide_an_order(connect: Connect) -> None:
    store = connect()
    keeper = fleet_keeper(store)
    trip(keeper, D)

    keeper.hold("reward_hacking", at=2.0)
    keeper.refresh(store)

    assert (store.load().state, store.load().reason) == ("hold", "reward_hacking")
    assert keeper.snapshot()["reason"] == "reward_hacking"


@pytest.mark.parametrize(("reset", "passes"), [(1, False), (0, True)])
def test_in_a_fleet_who_replaces_a_dead_process_goes_on_with_its_hold(
    connect: Connect, reset: int, passes: bool
) -> None:
    store = connect()
    reset_from_another_terminal(connect(), at=1.0)
    dead = ProcessReport(revision=0, reset=reset, reason="decision_failures", since=7.0)
    keeper = fleet_keeper(store)

    keeper.take_over_from(dead)

    assert keeper.passes is passes  # before the newest reset, it is over
