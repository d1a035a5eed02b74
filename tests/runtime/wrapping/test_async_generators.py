"""Wrapped async generators: inside their run while they are stepped, and nowhere else."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from tau_live.runtime.api import each_call_in
from tests.runtime.wrapping.scoped import async_numbers, current, first_of, scopes


async def async_echo() -> AsyncGenerator[object, object]:
    got: object = "ready"
    while True:
        try:
            got = yield (got, current.get())
        except KeyError as error:
            got = f"caught {error.args[0]}"
        await asyncio.sleep(0)


def test_an_async_generator_is_sent_and_thrown_what_it_was(log: list[str]) -> None:
    async def steps() -> list[object]:
        inside = each_call_in(async_echo, scopes(log))()
        found = [await anext(inside), await inside.asend("a"), await inside.athrow(KeyError("k"))]
        found.append(current.get())
        await inside.aclose()
        return found

    found = asyncio.run(steps())

    assert found == [("ready", "run"), ("a", "run"), ("caught k", "run"), None]
    assert log == ["run began", "run ended with GeneratorExit"]


def test_an_async_generator_is_exhausted_inside_its_run(log: list[str]) -> None:
    async def all_of() -> list[object]:
        return [item async for item in each_call_in(async_numbers, scopes(log))(2)]

    found = asyncio.run(all_of())

    assert found == [(0, "run 2"), (1, "run 2")]
    assert log == ["run 2 began", "run 2 ended with nothing"]


def test_an_async_generator_may_be_stepped_by_one_task_after_another(log: list[str]) -> None:
    async def tasks() -> list[object]:
        inside = each_call_in(async_numbers, scopes(log))(2)
        return [await asyncio.create_task(first_of(inside)) for _ in range(2)]

    assert asyncio.run(tasks()) == [(0, "run 2"), (1, "run 2")]


def test_what_an_async_generator_does_not_catch_comes_out_as_it_was(log: list[str]) -> None:
    thrown = ValueError("x")

    async def throws() -> None:
        inside = each_call_in(async_echo, scopes(log))()
        await anext(inside)
        await inside.athrow(thrown)

    with pytest.raises(ValueError, match="x") as caught:
        asyncio.run(throws())

    assert caught.value is thrown
    assert log == ["run began", "run ended with ValueError"]


def test_an_async_generator_that_fails_while_closing_fails(log: list[str]) -> None:
    async def fails() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            raise KeyError("late")

    async def closes() -> None:
        inside = each_call_in(fails, scopes(log))()
        await anext(inside)
        await inside.aclose()

    with pytest.raises(KeyError, match="late"):
        asyncio.run(closes())
    assert log == ["run began", "run ended with KeyError"]


def test_an_async_generator_whose_task_is_cancelled_says_so(log: list[str]) -> None:
    async def waits() -> AsyncGenerator[int, None]:
        await asyncio.get_running_loop().create_future()
        yield 1

    async def cancelled() -> None:
        task = asyncio.ensure_future(first_of(each_call_in(waits, scopes(log))()))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert log == ["run began", "run ended with CancelledError"]
