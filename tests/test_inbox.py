"""The inbox: order, bounds and waiting, with real threads."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tau_live import events as ev
from tau_live import inbox as boxes
from tau_live.inbox import Inbox
from tests.streams import event

LONG_S = 30.0
"""Longer than any test may take; nothing here waits for it unless it fails."""


class Written:
    """Keeps what is written; stops the writer until it is let go on."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        self.batches: list[int] = []
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def write(self, batch: list[ev.Event]) -> None:
        self.entered.set()
        assert self.go_on.wait(LONG_S)
        self.events += batch
        self.batches.append(len(batch))


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def make(written: Written) -> Iterator[Callable[..., Inbox]]:
    made: list[Inbox] = []

    def inbox(limit: int = 100_000, **fields: Any) -> Inbox:
        known: dict[str, Any] = {"write": written.write, "tick": lambda: None}
        made.append(Inbox(limit=limit, **(known | fields)))
        return made[-1]

    yield inbox
    written.go_on.set()
    for one in made:
        one.close(LONG_S)


@pytest.fixture
def stopped(make: Callable[..., Inbox], written: Written) -> Inbox:
    """An inbox of 20 whose writer is busy with one event and takes no other."""
    inbox = make(limit=20)
    written.go_on.clear()
    inbox.start()
    inbox.put(tool(0, "first"))
    assert written.entered.wait(LONG_S)
    return inbox


def tool(seq: int, run: str = "r", **fields: Any) -> ev.ToolStart:
    return event(ev.ToolStart, run, seq=seq, **fields)


def start(run: str, **fields: Any) -> ev.RunStart:
    return event(ev.RunStart, run, **fields)


def end(run: str, **fields: Any) -> ev.RunEnd:
    return event(ev.RunEnd, run, **fields)


def filled(inbox: Inbox, upto: int, run: str = "filler") -> None:
    while inbox.depth < upto:
        assert inbox.put(tool(1, run))


def finished(inbox: Inbox, written: Written) -> list[ev.Event]:
    written.go_on.set()
    assert inbox.flush(LONG_S)
    return written.events


def test_events_are_written_in_their_order(make: Callable[..., Inbox], written: Written) -> None:
    inbox = make()
    inbox.start()
    events = [tool(seq) for seq in range(5_000)]

    for one in events:
        assert inbox.put(one)

    assert finished(inbox, written) == events
    assert max(written.batches) <= boxes.BATCH_LIMIT
    assert inbox.dropped == {}


def test_what_was_put_before_the_start_is_written(
    make: Callable[..., Inbox], written: Written
) -> None:
    inbox = make()
    inbox.put(tool(1))

    inbox.start()

    assert finished(inbox, written) == [tool(1)]


def test_nothing_is_lost_and_each_threads_order_is_kept(
    make: Callable[..., Inbox], written: Written
) -> None:
    inbox = make()
    inbox.start()
    together = threading.Barrier(8)
    arrived: list[int] = []

    def puts(number: int) -> None:
        arrived.append(together.wait(LONG_S))
        for seq in range(2_000):
            inbox.put(tool(seq, f"run-{number}"))

    threads = [threading.Thread(target=puts, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    found = defaultdict(list)
    for one in finished(inbox, written):
        found[one.run_id].append(one.seq)

    assert sorted(arrived) == list(range(8))
    assert found == {f"run-{number}": list(range(2_000)) for number in range(8)}


def test_every_event_is_written_or_counted_under_many_threads(
    make: Callable[..., Inbox], written: Written
) -> None:
    inbox = make(limit=50)
    inbox.start()
    together = threading.Barrier(8)
    taken: list[bool] = []

    def puts(number: int) -> None:
        together.wait(LONG_S)
        for run in range(100):
            name = f"{number}-{run}"
            stream = (start(name), tool(1, name), tool(2, name), end(name))
            taken.extend(inbox.put(one) for one in stream)

    threads = [threading.Thread(target=puts, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    events = finished(inbox, written)

    assert len(taken) == 8 * 100 * 4
    assert len(events) == taken.count(True)
    assert inbox.dropped.get("queue_full", 0) == taken.count(False)
    begun = {one.run_id for one in events if isinstance(one, ev.RunStart)}
    assert {one.run_id for one in events} == begun
    lost = [one for one in events if isinstance(one, ev.RunEnd) and one.dropped]
    whole = len(events) - sum(1 + 1 + (2 - one.dropped) for one in lost)
    assert whole == 4 * (len(begun) - len(lost))


def test_a_slow_write_does_not_slow_a_put(stopped: Inbox, written: Written) -> None:
    taken = [stopped.put(tool(seq)) for seq in range(20)]

    assert taken == [True] * 20
    assert stopped.depth == 20
    assert written.events == []


def test_no_run_is_begun_where_half_is_full_and_none_of_it_is_kept(
    stopped: Inbox, written: Written
) -> None:
    filled(stopped, 10)

    taken = [stopped.put(one) for one in (start("late"), tool(2, "late"), end("late"))]

    assert taken == [False, False, False]
    assert stopped.dropped == {"queue_full": 3}
    assert {one.run_id for one in finished(stopped, written)} == {"first", "filler"}


def test_a_run_that_was_refused_stays_so_when_there_is_room_again(
    stopped: Inbox, written: Written
) -> None:
    filled(stopped, 10)
    stopped.put(start("late"))
    finished(stopped, written)

    taken = [stopped.put(one) for one in (tool(2, "late"), end("late"), start("next"))]

    assert taken == [False, False, True]


def test_the_next_execution_of_a_refused_run_is_taken(stopped: Inbox, written: Written) -> None:
    filled(stopped, 10)
    stopped.put(start("late"))
    finished(stopped, written)

    taken = [stopped.put(one) for one in (start("late"), tool(2, "late"), end("late"))]

    assert taken == [True, True, True]


def test_another_hosts_run_of_the_same_name_is_another(stopped: Inbox, written: Written) -> None:
    filled(stopped, 10)
    stopped.put(start("late"))
    finished(stopped, written)

    assert stopped.put(ev.ToolStart(host="other", run_id="late", at=1.0))


def test_a_run_under_way_goes_on_until_all_is_full(stopped: Inbox) -> None:
    stopped.put(start("mine"))
    filled(stopped, 15)

    taken = [stopped.put(tool(seq, "mine")) for seq in range(10)]

    assert taken == [True] * 5 + [False] * 5


def test_a_run_that_was_cut_still_ends_and_says_what_was_lost(
    stopped: Inbox, written: Written
) -> None:
    stopped.put(start("mine"))
    filled(stopped, 20)

    taken = [stopped.put(one) for one in (tool(1, "mine"), tool(2, "mine"), end("mine"))]

    assert taken == [False, False, True]
    assert stopped.dropped == {"queue_full": 2}
    assert finished(stopped, written)[-1] == end("mine", dropped=2)


def test_a_run_that_was_cut_is_not_taken_up_again(stopped: Inbox, written: Written) -> None:
    stopped.put(start("mine"))
    filled(stopped, 20)
    stopped.put(tool(1, "mine"))
    finished(stopped, written)

    taken = [stopped.put(one) for one in (tool(2, "mine"), end("mine"))]

    assert taken == [False, True]
    assert finished(stopped, written)[-1] == end("mine", dropped=2)


def test_the_end_of_a_whole_run_is_taken_where_all_is_full(stopped: Inbox) -> None:
    stopped.put(start("mine"))
    filled(stopped, 20)

    assert stopped.put(end("mine"))


def test_rewards_are_the_last_to_be_dropped(stopped: Inbox) -> None:
    filled(stopped, 20)
    reward = event(ev.Reward, value=1.0)

    taken = [stopped.put(reward) for _ in range(25)]

    assert taken == [True] * 20 + [False] * 5
    assert stopped.depth == 40
    assert not stopped.put(end("filler"))


def test_a_reward_for_a_run_that_was_refused_is_taken(stopped: Inbox) -> None:
    filled(stopped, 10)
    stopped.put(start("late"))

    assert stopped.put(event(ev.Reward, "late", value=1.0))


def test_what_is_remembered_of_refused_runs_is_bounded(stopped: Inbox) -> None:
    filled(stopped, 10)

    for number in range(100):
        stopped.put(start(f"late-{number}"))

    assert len(stopped._cut) == 20
    assert stopped.dropped == {"queue_full": 100}


def test_a_flush_waits_until_all_is_written(stopped: Inbox, written: Written) -> None:
    seen: list[int] = []
    asked = threading.Event()

    def flushes() -> None:
        asked.set()
        assert stopped.flush(LONG_S)
        seen.append(len(written.events))

    for seq in range(9):
        stopped.put(tool(seq))
    thread = threading.Thread(target=flushes)
    thread.start()
    assert asked.wait(LONG_S)
    before = list(seen)
    written.go_on.set()
    thread.join(LONG_S)

    assert before == []
    assert seen == [10]


def test_a_flush_gives_up(stopped: Inbox) -> None:
    stopped.put(tool(1))

    assert stopped.flush(0.01) is False


def test_a_flush_of_what_was_never_started_says_whether_something_waits(
    make: Callable[..., Inbox],
) -> None:
    inbox = make()
    empty = inbox.flush(LONG_S)

    inbox.put(tool(1))

    assert (empty, inbox.flush(LONG_S)) == (True, False)


def test_a_flush_by_the_writer_does_not_wait_for_itself(make: Callable[..., Inbox]) -> None:
    found: list[bool] = []
    inbox: Inbox = make(write=lambda batch: found.append(inbox.flush(LONG_S)))
    inbox.start()

    inbox.put(tool(1))

    assert inbox.flush(LONG_S)
    assert found == [False]


def test_a_close_writes_what_waits_and_then_ends(
    make: Callable[..., Inbox], written: Written
) -> None:
    ended: list[int] = []
    inbox = make(end=lambda: ended.append(len(written.events)))
    inbox.start()
    for seq in range(1_000):
        inbox.put(tool(seq))

    closed = inbox.close(LONG_S)

    assert closed
    assert ended == [1_000]


def test_a_put_after_the_close_is_counted(make: Callable[..., Inbox], written: Written) -> None:
    inbox = make()
    inbox.start()
    inbox.close(LONG_S)

    taken = [inbox.put(tool(1)), inbox.put(event(ev.Reward, value=1.0))]

    assert taken == [False, False]
    assert inbox.dropped == {"closed": 2}
    assert written.events == []


def test_what_is_put_while_it_is_closed_is_written_or_counted(
    make: Callable[..., Inbox], written: Written
) -> None:
    inbox = make()
    inbox.start()
    together = threading.Barrier(5)

    def puts() -> None:
        together.wait(LONG_S)
        for seq in range(500):
            inbox.put(tool(seq))

    threads = [threading.Thread(target=puts) for _ in range(4)]
    for thread in threads:
        thread.start()
    together.wait(LONG_S)
    assert inbox.close(LONG_S)
    for thread in threads:
        thread.join(LONG_S)

    assert len(written.events) + inbox.dropped.get("closed", 0) == 4 * 500


def test_a_close_gives_up(stopped: Inbox) -> None:
    assert stopped.close(0.01) is False


def test_what_was_never_started_closes(make: Callable[..., Inbox]) -> None:
    inbox = make()
    inbox.put(tool(1))

    assert inbox.close(LONG_S) is False
    assert inbox.dropped == {"closed": 1}


def test_the_writer_ticks_at_the_start_and_between_batches(
    make: Callable[..., Inbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "TICK_S", 0.001)
    ticks = threading.Semaphore(0)
    inbox = make(tick=ticks.release)

    inbox.start()

    assert all(ticks.acquire(timeout=LONG_S) for _ in range(3))


def test_what_came_in_behind_the_close_is_written(stopped: Inbox, written: Written) -> None:
    stopped.close(0.0)
    stopped._queue.put(tool(2))  # by a thread that had asked before it was closed

    written.go_on.set()
    stopped._thread.join(LONG_S)

    assert written.events == [tool(0, "first"), tool(2)]
    assert stopped.dropped == {}


def test_what_is_made_later_is_made_where_it_is_written_and_in_its_order(
    make: Callable[..., Inbox], written: Written
) -> None:
    inbox = make()
    inbox.start()
    threads: list[str] = []

    def made(seq: int) -> ev.Event:
        threads.append(threading.current_thread().name)
        return tool(seq)

    for seq in range(0, 100, 2):
        assert inbox.put_later(partial(made, seq))
        assert inbox.put(tool(seq + 1))

    assert finished(inbox, written) == [tool(seq) for seq in range(100)]
    assert set(threads) == {"tau-live-writer"}


def test_an_event_that_cannot_be_made_is_counted_and_told_and_ends_nothing(
    make: Callable[..., Inbox], written: Written
) -> None:
    told: list[Exception] = []
    inbox = make(failed=told.append)
    inbox.start()

    def broken() -> ev.Event:
        raise ValueError("cannot be made")

    assert inbox.put_later(broken)
    assert inbox.put(tool(1))

    assert finished(inbox, written) == [tool(1)]
    assert inbox.dropped == {"unmade": 1}
    assert [str(error) for error in told] == ["cannot be made"]


def test_what_is_made_later_has_no_more_room_than_what_is_made_at_once(
    stopped: Inbox, written: Written
) -> None:
    filled(stopped, 20)

    taken = stopped.put_later(lambda: tool(1, "late"))

    assert not taken
    assert stopped.dropped == {"queue_full": 1}
    assert all(one.run_id != "late" for one in finished(stopped, written))
