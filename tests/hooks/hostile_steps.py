"""Steps of a host's own, as callbacks are given them to make, and what comes of those."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Step:
    """The host's own step, as a callback gets it to make; it returns or raises what it is told.

    Args:
        kind: ``plain``, ``coroutine``, ``generator`` or ``asyncgen``.
        outcome: What it returns, or what a generator yields.
        error: What it raises instead, or in the end.
        meanwhile: Is given what it is given by name.

    Attributes:
        calls: How often it was made.
    """

    def __init__(
        self,
        kind: str,
        outcome: Any,
        error: BaseException | None,
        *,
        meanwhile: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self.kind = kind
        self.outcome = outcome
        self.error = error
        self._meanwhile = meanwhile
        self.calls = 0

    def __call__(self, *_: Any, **named: Any) -> Any:
        self.calls += 1
        self._meanwhile(named)
        made: Mapping[str, Callable[[], Any]] = {
            "plain": self._plain,
            "coroutine": self._coroutine,
            "generator": self._generator,
            "asyncgen": self._asyncgen,
        }
        return made[self.kind]()

    def _plain(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.outcome

    async def _coroutine(self) -> Any:
        return self._plain()

    def _generator(self) -> Iterator[Any]:
        yield from self.outcome
        if self.error is not None:
            raise self.error

    async def _asyncgen(self) -> Any:
        for one in self.outcome:
            yield one
        if self.error is not None:
            raise self.error


def driven(made: Any) -> Any:
    """Return what a coroutine returns, none of whose steps waits for anything."""
    try:
        made.send(None)
    except StopIteration as stop:
        return stop.value
    made.close()
    raise TimeoutError("it waits")


def read(kind: str, made: Any) -> Any:
    """Return what a callback returned, or what it yields, to its end."""
    if kind == "coroutine":
        return driven(made)
    if kind == "generator":
        return [*made]
    if kind == "asyncgen":
        return driven(_listed(made))
    return made


async def _listed(made: Any) -> list[Any]:
    return [one async for one in made]
