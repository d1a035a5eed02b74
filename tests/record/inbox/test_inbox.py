"""The inbox: order, and a put that never waits, with real threads."""

import threading
from collections import defaultdict
from collections.abc import Callable

from tau_live.core import events as ev
from tau_live.record import inbox as boxes
from tau_live.record.inbox import Inbox
from tests.record.inbox.conftest import LONG_S, Written, end, finished, start, tool


def test_events_are_written_in_their_order(make: Callable[..., Inbox], written: Written) -> None:
    inbox = make()
    inbox.start()
    events = [tool(seq) for seq in range(5_000)]

    for one in events:
        assert inbox.put(one)

    assert finished(inbox, written) == events
    assert max(written.batches) <= boxes.BATCH_LIMIT
    assert inbox.drops == {}


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
    assert inbox.drops.get("queue_full", 0) == taken.count(False)
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


def test_nothing_that_it_calls_ends_its_thread(
    make: Callable[..., Inbox], written: Written
) -> None:
    failures: list[str] = []

    def tick() -> None:
        raise ValueError("tick")

    def pause() -> None:
        raise ValueError("pause")

    def failed(error: Exception) -> None:
        failures.append(str(error))
        raise error

    inbox = make(tick=tick, pause=pause, failed=failed)
    inbox.start()
    for number in range(3):
        inbox.put(tool(number))

    assert inbox.flush(LONG_S)
    assert len(written.events) == 3
    assert {"tick", "pause"} <= set(failures)
