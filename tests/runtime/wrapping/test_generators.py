"""Wrapped generators: inside their run while they are stepped, and nowhere else."""

from collections.abc import Generator

import pytest

from tau_live.runtime.api import each_call_in
from tests.runtime.wrapping.scoped import current, numbers, scopes


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
