"""Stores for the gate: every test runs on each of them."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tau_live.core.gate import Gate, GateEntry, GateRow
from tau_live.core.gate_keeper import GateStore
from tau_live.store.sqlite.store import SqliteStore


@dataclass
class Shelf:
    """What the connections of one in-memory store share."""

    row: GateRow = field(default_factory=lambda: Gate(limit=1).to_row())
    entries: list[GateEntry] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class MemoryGate:
    """A connection to a gate that is kept in memory, with a real compare-and-set."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def load(self) -> GateRow:
        with self._shelf.lock:
            return self._shelf.row

    def save(self, row: GateRow, *, entry: GateEntry | None) -> bool:
        with self._shelf.lock:
            if self._shelf.row.revision != row.revision - 1:
                return False
            self._shelf.row = row
            if entry is not None:
                seq = len(self._shelf.entries) + 1
                self._shelf.entries.append(replace(entry, seq=seq))
            return True

    def log(self, *, limit: int | None = None) -> list[GateEntry]:
        with self._shelf.lock:
            newest_first = self._shelf.entries[::-1]
        return newest_first[:limit]


@pytest.fixture(params=["memory", "sqlite"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], GateStore]]:
    """Open another connection to the store of this test, as another process would."""
    shelf, opened = Shelf(), []

    def in_sqlite() -> GateStore:
        opened.append(SqliteStore.open(tmp_path / "store.sqlite"))
        return opened[-1].gate

    yield in_sqlite if request.param == "sqlite" else lambda: MemoryGate(shelf)
    for store in opened:
        store.close()
