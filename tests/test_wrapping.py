"""Wrapped functions: they stay what they were, and each call is a run of its own."""

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar

import pytest

from tau_live.wrapping import each_call_in

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


@pytest.fixture
def log() -> list[str]:
    return []


def scopes(log: list[str]) -> Callable[..., Run]:
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


def test_a_generator_is_current_only_while_it_is_stepped(log: list[str]) -> None:
    steps = each_call_in(numbers, scopes(log))(2)

    outside = [current.get()]
    first = next(steps)
    outside.append(current.get())
    second = next(steps)

    assert (first, second) == ((0, "run 2"), (1, "run 2"))
    assert outside == [None, None]
    assert log == ["run 2 began"]


def test_a_generator_returns_what_it_returned(log: list[str]) -> None:
    def outer() -> Generator[object, object, object]:
        return (yield from each_call_in(numbers, scopes(log))(1))

    steps = outer()
    next(steps)

    with pytest.raises(StopIteration) as stop:
        next(steps)
    assert stop.value.value == "done in run 1"
    assert log == ["run 1 began", "run 1 ended with nothing"]


def test_generators_that_take_turns_keep_their_runs_apart(log: list[str]) -> None:
    wrapped = each_call_in(numbers, scopes(log))

    found = list(zip(wrapped(1), wrapped(2), strict=False))

    assert found == [((0, "run 1"), (0, "run 2"))]


def echo() -> Generator[object, object, None]:
    got: object = "ready"
    while True:
        try:
            got = yield (got, current.get())
        except KeyError as error:
            got = f"caught {error.args[0]}"


def test_a_generator_is_sent_and_thrown_what_it_was(log: list[str]) -> None:
    steps = each_call_in(echo, scopes(log))()

    found = [next(steps), steps.send("a"), steps.throw(KeyError("k")), steps.send("b")]

    assert found == [("ready", "run"), ("a", "run"), ("caught k", "run"), ("b", "run")]


def test_what_a_generator_does_not_catch_comes_out_as_it_was(log: list[str]) -> None:
    steps = each_call_in(echo, scopes(log))()
    next(steps)
    thrown = ValueError("x")

    with pytest.raises(ValueError, match="x") as caught:
        steps.throw(thrown)

    assert caught.value is thrown
    assert thrown.__context__ is None
    assert log == ["run began", "run ended with ValueError"]


def test_a_closed_generator_cleans_up_inside_its_run(log: list[str]) -> None:
    def cleans() -> Generator[int, None, None]:
        try:
            yield 1
        finally:
            log.append(f"cleaned in {current.get()}")

    steps = each_call_in(cleans, scopes(log))()
    next(steps)

    steps.close()

    assert log == ["run began", "cleaned in run", "run ended with GeneratorExit"]


def test_a_generator_that_swallows_its_close_was_closed(log: list[str]) -> None:
    def swallows() -> Generator[int, None, None]:
        try:
            yield 1
        except GeneratorExit:
            return

    steps = each_call_in(swallows, scopes(log))()
    next(steps)

    steps.close()

    assert log == ["run began", "run ended with GeneratorExit"]


def test_a_generator_that_refuses_its_close_is_told_as_ever(log: list[str]) -> None:
    def refuses() -> Generator[int, None, None]:
        try:
            yield 1
        except GeneratorExit:
            yield 2

    steps = each_call_in(refuses, scopes(log))()
    next(steps)

    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        steps.close()


def test_a_generator_that_fails_while_closing_fails(log: list[str]) -> None:
    def fails() -> Generator[int, None, None]:
        try:
            yield 1
        finally:
            raise KeyError("late")

    steps = each_call_in(fails, scopes(log))()
    next(steps)

    with pytest.raises(KeyError, match="late"):
        steps.close()
    assert log == ["run began", "run ended with KeyError"]


def test_a_generator_that_is_never_stepped_is_no_run(log: list[str]) -> None:
    each_call_in(numbers, scopes(log))(3).close()

    assert log == []


def test_a_generator_that_was_dropped_has_ended(log: list[str]) -> None:
    steps = each_call_in(numbers, scopes(log))(3)
    next(steps)

    del steps

    assert log == ["run 3 began", "run 3 ended with GeneratorExit"]


def test_a_stop_raised_inside_a_generator_is_an_error(log: list[str]) -> None:
    def stops() -> Generator[int, None, None]:
        yield 1
        next(iter(()))

    steps = each_call_in(stops, scopes(log))()
    next(steps)

    with pytest.raises(RuntimeError, match="generator raised StopIteration"):
        next(steps)
    assert log == ["run began", "run ended with RuntimeError"]


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


async def first_of(steps: AsyncIterator[T]) -> T:
    return await anext(steps)


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


NOTHING: tuple[int, ...] = ()


def fails() -> None:
    raise KeyError("boom")


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
