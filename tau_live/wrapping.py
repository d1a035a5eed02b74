"""Functions of every kind, each call of which is a run of its own.

A generator shares its caller's context variables, so its run is the current one only while it is
being stepped, never while its caller holds what it yielded.
"""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, Protocol, TypeVar

from tau_live.errors import pass_on, suppress

P = ParamSpec("P")
R = TypeVar("R")


class Scope(AbstractContextManager[object], Protocol):
    """A run: entered as a whole, or begun, stepped into again and again, and finished."""

    def begin(self) -> None:
        """Begin the run without making it the current one."""
        ...

    def step(self) -> AbstractContextManager[object]:
        """Make it the current one for a while."""
        ...

    def finish(self, error: BaseException | None) -> None:
        """End it, with what it raised."""
        ...


def each_call_in(function: Callable[P, R], scope: Callable[..., Scope]) -> Callable[P, R]:
    """Return ``function`` with each call inside a ``scope(*args, **kwargs)`` of its own.

    A coroutine, generator or async generator is inside it until it is exhausted, closed or fails,
    and keeps its kind and signature.
    """
    wrapper: Any
    if _is(inspect.isasyncgenfunction, function):
        wrapper = _async_generator(function, scope)
    elif _is(inspect.iscoroutinefunction, function):
        wrapper = _coroutine(function, scope)
    elif _is(inspect.isgeneratorfunction, function):
        wrapper = _generator(function, scope)
    else:
        wrapper = _plain(function, scope)
    with suppress(Exception):  # a host's callable may raise whatever it is asked
        functools.update_wrapper(wrapper, function)
    wrapped: Callable[P, R] = wrapper
    return wrapped


def _is(kind: Callable[[object], bool], function: object) -> bool:
    try:
        return kind(function) or kind(type(function).__call__)
    except Exception as error:  # noqa: BLE001  # a host's callable may raise whatever it is asked
        pass_on(error)
        return False


def _plain(function: Callable[..., Any], scope: Callable[..., Scope]) -> Callable[..., Any]:
    def call(*args: object, **kwargs: object) -> object:
        with scope(*args, **kwargs):
            return function(*args, **kwargs)

    return call


def _coroutine(function: Callable[..., Any], scope: Callable[..., Scope]) -> Callable[..., Any]:
    async def call(*args: object, **kwargs: object) -> object:
        with scope(*args, **kwargs):
            return await function(*args, **kwargs)

    return call


def _generator(function: Callable[..., Any], scope: Callable[..., Scope]) -> Callable[..., Any]:
    def call(*args: object, **kwargs: object) -> Generator[object, object, object]:
        inner = function(*args, **kwargs)  # before the run: it fails where the arguments do not fit
        inside = scope(*args, **kwargs)
        inside.begin()
        step: Callable[[], object] = functools.partial(next, inner)
        closed: GeneratorExit | None = None
        try:
            while True:
                with inside.step():
                    item = step()
                try:
                    step = functools.partial(inner.send, (yield item))
                except BaseException as error:  # noqa: BLE001  # whatever is thrown in goes on in
                    closed = error if isinstance(error, GeneratorExit) else None
                    step = functools.partial(inner.throw, error)
        except StopIteration as stop:
            inside.finish(closed)
            return stop.value
        except BaseException as error:
            inside.finish(error)
            raise

    return call


def _async_generator(
    function: Callable[..., Any], scope: Callable[..., Scope]
) -> Callable[..., Any]:
    async def call(*args: object, **kwargs: object) -> AsyncGenerator[object, object]:
        inner = function(*args, **kwargs)  # before the run: it fails where the arguments do not fit
        inside = scope(*args, **kwargs)
        inside.begin()
        step: Callable[[], Any] = inner.__anext__
        closed: GeneratorExit | None = None
        try:
            while True:
                with inside.step():
                    item = await step()
                try:
                    step = functools.partial(inner.asend, (yield item))
                except BaseException as error:  # noqa: BLE001  # whatever is thrown in goes on in
                    closed = error if isinstance(error, GeneratorExit) else None
                    step = functools.partial(inner.athrow, error)
        except StopAsyncIteration:
            inside.finish(closed)
        except BaseException as error:
            inside.finish(error)
            raise

    return call
