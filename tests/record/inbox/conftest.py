"""An inbox whose writer can be stopped, and events to put into it."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tau_live.core import events as ev
from tau_live.record.inbox import Inbox
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
