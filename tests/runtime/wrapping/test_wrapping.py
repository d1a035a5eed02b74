"""Wrapped functions: they stay what they were, and each call is a run of its own."""

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any

import pytest

from tau_live.runtime.api import each_call_in
from tests.runtime.wrapping.scoped import async_numbers, current, fails, first_of, numbers, scopes


def add(a: int, /, b: int = 1, *, c: int = 2) -> int:
    """Add up."""
    return a + b + c


async def async_add(a: int, /, b: int = 1, *, c: int = 2) -> int:
    """Add up."""
    await asyncio.sleep(0)
    return a + b + c


KINDS = {
    add: lambda f: (
        not any(
            kind(f)
            for kind in (
                inspect.iscoroutinefunction,
                inspect.isgeneratorfunction,
                inspect.isasyncgenfunction,
            )
        )
    ),
    async_add: inspect.iscoroutinefunction,
    numbers: inspect.isgeneratorfunction,
    async_numbers: inspect.isasyncgenfunction,
}


@pytest.mark.parametrize("function", KINDS, ids=lambda f: f.__name__)
def test_a_function_keeps_its_kind_name_and_signature(
    function: Callable[..., object], log: list[str]
) -> None:
    wrapped = each_call_in(function, scopes(log))

    assert KINDS[function](wrapped)
    assert inspect.signature(wrapped) == inspect.signature(function)
    assert (wrapped.__name__, wrapped.__doc__) == (function.__name__, function.__doc__)
    assert log == []


def test_each_call_is_a_run_of_its_own(log: list[str]) -> None:
    wrapped = each_call_in(add, scopes(log))

    found = [wrapped(1), wrapped(2, b=5, c=0)]

    assert found == [4, 7]
    assert log == [
        *("run 1 began", "run 1 ended with nothing"),
        *("run 2 began", "run 2 ended with nothing"),
    ]


def test_a_coroutine_is_inside_its_run_until_it_returns(log: list[str]) -> None:
    async def inside(name: str) -> str | None:
        await asyncio.sleep(0)
        return current.get()

    wrapped = each_call_in(inside, scopes(log))

    async def both() -> list[str | None]:
        return list(await asyncio.gather(wrapped("a"), wrapped("b")))

    assert asyncio.run(both()) == ["run a", "run b"]
    assert sorted(log) == [
        *("run a began", "run a ended with nothing"),
        *("run b began", "run b ended with nothing"),
    ]


def test_a_coroutine_that_is_cancelled_says_so(log: list[str]) -> None:
    async def waits() -> None:
        await asyncio.get_running_loop().create_future()

    async def cancelled() -> None:
        task = asyncio.ensure_future(each_call_in(waits, scopes(log))())
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert log == ["run began", "run ended with CancelledError"]


def test_an_object_whose_call_is_a_coroutine_is_one(log: list[str]) -> None:
    class Agent:
        async def __call__(self) -> str | None:
            await asyncio.sleep(0)
            return current.get()

    async def called() -> str | None:
        return await each_call_in(Agent(), scopes(log))()

    assert asyncio.run(called()) == "run"


def test_a_partial_of_a_coroutine_function_is_one(log: list[str]) -> None:
    wrapped = each_call_in(functools.partial(async_add, 1), scopes(log))

    async def called() -> int:
        return await wrapped(b=2)

    assert asyncio.run(called()) == 5
    assert log == ["run began", "run ended with nothing"]


@pytest.mark.parametrize("function", [numbers, async_numbers], ids=lambda f: f.__name__)
def test_arguments_that_do_not_fit_begin_no_run(
    function: Callable[..., object], log: list[str]
) -> None:
    steps = each_call_in(function, scopes(log))(1, 2, 3)

    with pytest.raises(TypeError, match="positional"):
        if isinstance(steps, AsyncGenerator):
            asyncio.run(first_of(steps))
        else:
            assert isinstance(steps, Generator)
            next(steps)
    assert log == []


NOTHING: tuple[int, ...] = ()


async def async_fails() -> None:
    raise KeyError("boom")


def generator_fails() -> Generator[int, None, None]:
    yield from NOTHING
    raise KeyError("boom")


async def async_generator_fails() -> AsyncGenerator[int, None]:
    for nothing in NOTHING:
        yield nothing
    raise KeyError("boom")


async def awaited(awaitable: Awaitable[object]) -> object:
    return await awaitable


def run_of(function: Callable[..., Any]) -> object:
    found = function()
    if inspect.isasyncgen(found):
        return asyncio.run(first_of(found))
    if inspect.isgenerator(found):
        return next(found)
    return asyncio.run(awaited(found))


@pytest.mark.parametrize(
    "function",
    [fails, async_fails, generator_fails, async_generator_fails],
    ids=lambda f: f.__name__,
)
def test_an_exception_passes_through_with_the_traceback_that_it_had(
    function: Callable[..., Any], log: list[str]
) -> None:
    with pytest.raises(KeyError) as caught:
        run_of(each_call_in(function, scopes(log)))

    innermost = caught.value.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    assert innermost is not None
    assert innermost.tb_frame.f_code is function.__code__
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert log == ["run began", "run ended with KeyError"]
