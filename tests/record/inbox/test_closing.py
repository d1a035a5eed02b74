"""Waiting until all is written: flushes, and the end."""

import threading
from collections.abc import Callable
from functools import partial

import pytest

from tau_live.core import events as ev
from tau_live.core.records import Reason
from tau_live.record import inbox as boxes
from tau_live.record import shutdown
from tau_live.record.inbox import Inbox
from tests.live.running import until
from tests.record.inbox.conftest import LONG_S, Written, end, filled, finished, start, tool
from tests.streams import event

RUN = tool(0).host, "r", tool(0).execution


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
    assert inbox.drops == {"closed": 2}
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

    assert len(written.events) + inbox.drops.get("closed", 0) == 4 * 500


def test_a_close_gives_up(stopped: Inbox) -> None:
    assert stopped.close(0.01) is False


def test_what_was_never_started_closes(make: Callable[..., Inbox]) -> None:
    inbox = make()
    inbox.put(tool(1))

    assert inbox.close(LONG_S) is False
    assert inbox.drops == {"closed": 1}


def test_the_writer_ticks_at_the_start_and_between_batches(
    make: Callable[..., Inbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "TICK_S", 0.001)
    ticks = threading.Semaphore(0)
    inbox = make(tick=ticks.release)

    inbox.start()

    assert all(ticks.acquire(timeout=LONG_S) for _ in range(3))


def test_what_came_in_behind_the_close_is_written(stopped: Inbox, written: Written) -> None:
    closing = threading.Thread(target=stopped.close, args=(LONG_S,))
    closing.start()
    until(lambda: stopped.depth)
    stopped._queue.put(tool(2))  # by a thread that had asked before it was closed

    written.go_on.set()
    closing.join(LONG_S)

    assert written.events == [tool(0, "first"), tool(2)]
    assert stopped.drops == {}


@pytest.mark.parametrize("grace_s", [0.5, -LONG_S])  # the first batch is tried however late it is
@pytest.mark.parametrize("kept", [[], [1], [1, 2]])
def test_what_there_is_no_time_for_is_counted_and_what_was_begun_is_ended(
    stopped: Inbox,
    written: Written,
    monkeypatch: pytest.MonkeyPatch,
    kept: list[int],
    grace_s: float,
) -> None:
    monkeypatch.setattr(shutdown, "ROOM", len(kept))
    monkeypatch.setattr(boxes, "LAST_WRITES_S", grace_s)
    late = event(ev.Reward, "first", value=1.0)
    for one in (tool(1, "first"), start("new"), tool(1, "new"), end("new")):
        stopped.put(one)
    stopped.put((lambda: tool(2, "first"), (tool(0).host, "first", tool(0).execution)))
    stopped.put(tool(3, "first"))
    stopped.put(late)
    stopped.put(event(ev.Reward, "new", value=1.0))

    stopped.close(0.0)
    written.go_on.set()
    stopped._thread.join(LONG_S)

    first, *more, reward, ended = written.events
    assert (first, more, reward) == (tool(0, "first"), [tool(n, "first") for n in kept], late)
    assert isinstance(ended, ev.RunEnd)
    assert (ended.run_id, ended.reason, ended.dropped) == ("first", Reason.ABANDONED, 3 - len(kept))
    assert stopped.drops == {"unwritten": 7 - len(kept)}


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
        assert inbox.put((partial(made, seq), RUN))
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

    assert inbox.put((broken, RUN))
    assert inbox.put(tool(1))

    assert finished(inbox, written) == [tool(1)]
    assert inbox.drops == {"unmade": 1}
    assert [str(error) for error in told] == ["cannot be made"]


def test_what_is_made_later_has_no_more_room_than_what_is_made_at_once(
    stopped: Inbox, written: Written
) -> None:
    filled(stopped, 20)

    taken = stopped.put((lambda: tool(1, "late"), RUN))

    assert not taken
    assert stopped.drops == {"queue_full": 1}
    assert all(one.run_id != "late" for one in finished(stopped, written))


def test_the_end_of_a_run_tells_which_of_its_events_could_not_be_made(
    make: Callable[..., Inbox], written: Written
) -> None:
    inbox = make()
    inbox.start()

    def broken() -> ev.Event:
        raise ValueError("cannot be made")

    for _ in range(2):
        inbox.put((broken, RUN))
    for run in ("other", "r", "r"):
        inbox.put(end(run))

    ends = [one for one in finished(inbox, written) if isinstance(one, ev.RunEnd)]
    assert [one.dropped for one in ends] == [0, 2, 0]
