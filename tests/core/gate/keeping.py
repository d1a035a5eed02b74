"""Keepers of a gate, and a store that fails when it is told to."""

from collections.abc import Callable

from tau_live.core.errors import StoreUnavailableError
from tau_live.core.gate import GateEntry, GateRow, Kind
from tau_live.core.gate_keeper import GateKeeper, GateStore

C, U, D = Kind.COLLECTION, Kind.UPDATE, Kind.DECISION
Connect = Callable[[], GateStore]


class FailingStore:
    """A connection whose disk can be made to fail: before it does anything, or after."""

    def __init__(self, store: GateStore) -> None:
        self.inner = store
        self.fails = True
        self.fails_after_loading = False
        self.fails_after_saving = False
        self.before_save: Callable[[], object] = lambda: None
        self.saves = 0

    def _check(self) -> None:
        if self.fails:
            raise StoreUnavailableError("disk I/O error")

    def load(self) -> GateRow:
        self._check()
        return self.inner.load()

    def save(self, row: GateRow, *, entry: GateEntry | None) -> bool:
        self._check()
        if self.fails_after_loading:
            raise StoreUnavailableError("disk I/O error")
        self.before_save()
        self.saves += 1
        saved = self.inner.save(row, entry=entry)
        if self.fails_after_saving:
            raise StoreUnavailableError("disk I/O error")
        return saved

    def log(self, *, limit: int | None = None) -> list[GateEntry]:
        self._check()
        return self.inner.log(limit=limit)


def keeper_on(store: GateStore, *, limit: int = 3, who: str = "one") -> GateKeeper:
    keeper = GateKeeper(limit=limit, who=who)
    keeper.refresh(store)
    return keeper


def reset_from_another_terminal(store: GateStore, *, at: float) -> None:
    operator = keeper_on(store, who="terminal")
    operator.reset("disk repaired", who="anna", at=at)
    operator.refresh(store)
    assert not operator.has_unsaved


def trip(keeper: GateKeeper, kind: Kind = C, *, times: int = 3, at: float = 1.0) -> None:
    for _ in range(times):
        keeper.record_failure(kind, "disk I/O error", at=at)


def history(store: GateStore) -> list[tuple[str, str, str, str | None]]:
    return [(e.event, e.state, e.who, e.reason) for e in reversed(store.log())]
