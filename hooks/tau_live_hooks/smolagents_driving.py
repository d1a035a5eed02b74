"""Generators of the host that are seen while whoever made them pulls them; nothing else changes."""

from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol


class Witness(Protocol):
    """What is told of a generator; none of it may raise."""

    def step(self) -> AbstractContextManager[object]:
        """Surround each piece of the host's own work."""
        ...

    def said(self, item: object) -> None:
        """Know what it yields."""
        ...

    def over(self, error: BaseException | None, result: object = None) -> None:
        """Know that it is over, with what it raised or returned."""
        ...


def driven(inner: Iterable[Any], witness: Witness) -> Generator[Any, Any, Any]:
    """Return a generator that does what ``inner`` does, and lets a witness know.

    Whatever is sent or thrown in goes on in, ``close`` too: a generator of the host that yields
    once more when it is closed does so here, and the same can be done with it afterwards.
    """
    made = inner if isinstance(inner, Generator) else (item for item in inner)
    driving = _driven(made, witness)
    for name in ("__name__", "__qualname__"):  # they are printed, as when it will not be closed
        setattr(driving, name, getattr(made, name))
    return driving


def _driven(inner: Generator[Any, Any, Any], witness: Witness) -> Generator[Any, Any, Any]:
    step: partial[Any] = partial(next, inner)
    closed: GeneratorExit | None = None
    try:
        while True:
            with witness.step():
                item = step()
            if closed is None:
                witness.said(item)
            else:
                witness.over(closed)
            try:
                step = partial(inner.send, (yield item))
            except BaseException as error:  # noqa: BLE001  # whatever is thrown in goes on in
                closed = error if isinstance(error, GeneratorExit) else closed
                step = partial(inner.throw, error)
    except StopIteration as stop:
        witness.over(closed, stop.value)
        return stop.value
    except BaseException as error:
        witness.over(error)
        raise
