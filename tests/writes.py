"""Single writes to a store, each in a transaction and a batch of its own."""

from collections.abc import Callable
from typing import Any

from tau_live.core.records import Span
from tau_live.store.roles import Store


class Writes:
    """The methods of a batch, of which each is stored at once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add_span(self, span: Span) -> bool:
        return bool(self.add_spans([span]))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def write(*args: Any, **options: Any) -> Any:
            with self._store.begin(), self._store.batch([]) as batch:
                return getattr(batch, name)(*args, **options)

        return write


def writes(store: Store) -> Writes:
    """Return what writes to a store at once."""
    return Writes(store)


def forget_old(store: Store, *, before: float, limit: int) -> int:
    """Forget rollouts, and rewards whose rollout never came; return how many rollouts."""
    gone = store.retention.sweep(before=before, limit=limit).gone
    store.retention.sweep_rewards(before=before, limit=limit)
    return gone
