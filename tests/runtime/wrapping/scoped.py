"""Scopes that write down what happens to them, and functions to wrap in them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

current: ContextVar[str | None] = ContextVar("current", default=None)


class Run:
    """A scope that writes down what happens to it."""

    def __init__(self, log: list[str], name: str) -> None:
        self._log = log
        self._name = name

    def __enter__(self) -> "Run":
        self.begin()
        self._token = current.set(self._name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        current.reset(self._token)
        self.finish(error)

    def begin(self) -> None:
        self._log.append(f"{self._name} began")

    @contextmanager
    def step(self) -> Iterator[None]:
        token = current.set(self._name)
        try:
            yield
        finally:
            current.reset(token)

    def finish(self, error: BaseException | None) -> None:
        self._log.append(f"{self._name} ended with {type(error).__name__ if error else 'nothing'}")


def scopes(log: list[str]) -> Any:
    return lambda *args, **kwargs: Run(log, f"run {args[0] if args else ''}".strip())


def numbers(upto: int) -> Generator[object, object, str]:
    """Count."""
    for number in range(upto):
        yield (number, current.get())
    return f"done in {current.get()}"


async def async_numbers(upto: int) -> AsyncGenerator[object, object]:
    """Count."""
    for number in range(upto):
        await asyncio.sleep(0)
        yield (number, current.get())


async def first_of(steps: AsyncIterator[T]) -> T:
    return await anext(steps)


def fails() -> None:
    raise KeyError("boom")
