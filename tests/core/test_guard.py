"""What fails inside the border stays inside it, and what belongs to the host passes through."""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from tau_live.core.gate import Kind, State
from tau_live.core.guard import Cause, Guard, lines_lost, logger, text_of
from tau_live.core.reasons import Part


class HostileError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text for you")

    __repr__ = __str__


class HostileText(str):
    def __getitem__(self, key: object) -> str:
        raise ValueError("no slice for you")

    def __format__(self, spec: str) -> str:
        raise ValueError("no format for you")


class HostileTextError(Exception):
    def __str__(self) -> str:
        return HostileText("readable all the same")


def failing(error: BaseException) -> object:
    raise error


def test_a_result_passes_through() -> None:
    assert Guard().call("decision", max, 1, 2, fallback=None) == 2


def test_an_exception_becomes_the_fallback() -> None:
    guard = Guard()

    found = guard.call("decision", failing, RuntimeError("full"), fallback="the host's own")

    assert found == "the host's own"


def test_a_context_ends_at_an_exception_which_goes_no_further() -> None:
    guard, reached = Guard(), []

    with guard.catching("collection"):
        reached.append("before")
        failing(OSError("disk"))
        reached.append("after")

    assert reached == ["before"]
    assert [(cause.kind, cause.type) for cause in guard.counts()] == [("collection", "OSError")]


@pytest.mark.parametrize(
    "error",
    [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(3), GeneratorExit()],
    ids=lambda error: type(error).__name__,
)
def test_what_belongs_to_the_host_passes_at_once_and_uncounted(error: BaseException) -> None:
    guard = Guard()

    with pytest.raises(type(error)) as first:
        guard.call("decision", failing, error, fallback=None)
    with pytest.raises(type(error)) as second, guard.catching("decision"):
        failing(error)

    assert first.value is second.value is error
    assert guard.counts() == {}


def test_a_cancelled_task_inside_the_border_is_cancelled() -> None:
    guard, reached = Guard(), []

    async def work() -> None:
        with guard.catching("collection"):
            reached.append("waiting")
            await asyncio.Event().wait()

    async def main() -> bool:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(main())
    assert reached == ["waiting"]


def test_every_failure_is_counted_and_told_but_each_cause_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[tuple[str, Exception]] = []
    guard = Guard(lambda kind, error: told.append((kind, error)))
    errors = [ValueError("a"), ValueError("b"), KeyError("c")]

    with caplog.at_level(logging.ERROR, logger="tau_live"):
        for error in errors:
            guard.call("update", failing, error, fallback=None)

    assert told == [("update", error) for error in errors]
    assert sorted(guard.counts().values()) == [1, 2]
    assert len(caplog.records) == 2
    assert "event='failure_contained' kind='update' type='ValueError'" in caplog.text


def test_two_failures_of_one_type_from_two_places_have_two_causes() -> None:
    guard = Guard()

    for function in (failing, lambda error: failing(error) if not error else int("two")):
        guard.call("update", function, ValueError(), fallback=None)

    places = [cause.place for cause in guard.counts()]
    assert len(set(places)) == 2
    assert all(Path(place.rpartition(":")[0]).name == Path(__file__).name for place in places)
    assert guard.counts().keys() == {
        Cause(kind="update", type="ValueError", place=place) for place in places
    }


def test_nothing_is_printed_where_the_host_has_not_configured_logging(
    capfd: pytest.CaptureFixture[str],
) -> None:
    guard = Guard()

    guard.call("update", failing, ValueError("quiet"), fallback=None)

    assert capfd.readouterr().out == ""


def test_members_of_enumerations_are_logged_as_their_values(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger().warning("changed", paused=[Part.LEARNING], state=State.HOLD, counts={Kind.UPDATE: 1})

    (line,) = caplog.records
    assert line.getMessage() == (
        "event='changed' paused=['learning'] state='hold' counts={'update': 1}"
    )


def test_a_host_s_own_structlog_is_used() -> None:
    guard = Guard()

    structlog.configure()
    try:
        with structlog.testing.capture_logs() as lines:
            guard.call("update", failing, ValueError("seen"), fallback=None)
    finally:
        structlog.reset_defaults()

    (line,) = lines
    assert (line["event"], line["kind"], line["error"]) == ("failure_contained", "update", "seen")


@pytest.mark.parametrize("error", [HostileError(), HostileTextError(), Exception(HostileError())])
def test_an_exception_that_cannot_be_printed_does_not_escape(error: Exception) -> None:
    told: list[str] = []
    guard = Guard(lambda kind, error: told.append(kind))

    found = guard.call("decision", failing, error, fallback="default")

    assert found == "default"
    assert told == ["decision"]
    assert type(text_of(error)) is str


def test_a_text_of_a_hostile_type_is_read_all_the_same() -> None:
    assert text_of(HostileTextError()) == "readable all the same"


def test_a_long_text_is_cut() -> None:
    assert len(text_of(ValueError("x" * 10_000))) == 500


def test_a_callback_that_raises_does_not_escape_and_is_not_told_of_itself() -> None:
    calls: list[str] = []

    def broken(kind: str, error: Exception) -> None:
        calls.append(kind)
        raise HostileError

    guard = Guard(broken)

    guard.call("decision", failing, ValueError(), fallback=None)

    assert calls == ["decision"]
    assert sorted(cause.kind for cause in guard.counts()) == ["decision", "on_failure"]


def test_a_callback_that_meets_the_border_again_does_not_recurse() -> None:
    calls: list[str] = []

    def callback(kind: str, error: Exception) -> None:
        calls.append(kind)
        guard.call("inner", failing, error, fallback=None)

    guard = Guard(callback)

    guard.call("outer", failing, ValueError(), fallback=None)

    assert calls == ["outer"]
    assert {cause.kind for cause in guard.counts()} == {"outer", "inner"}


def test_logging_that_raises_does_not_escape() -> None:
    def broken(*_: object) -> str:
        raise RuntimeError("closed")

    guard, before = Guard(), lines_lost()

    structlog.configure(processors=[broken])
    try:
        found = guard.call("update", failing, ValueError(), fallback="default")
    finally:
        structlog.reset_defaults()

    assert found == "default"
    assert lines_lost() == before + 1


def test_the_number_of_causes_is_bounded() -> None:
    guard = Guard()

    for n in range(1500):
        guard.record_failure(f"kind {n}", ValueError())

    assert len(guard.counts()) == 1001
    assert sum(guard.counts().values()) == 1500


def test_threads_lose_no_count() -> None:
    guard, took_part = Guard(), []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait(timeout=10)
        for _ in range(500):
            guard.call("update", failing, ValueError(), fallback=None)
        took_part.append(threading.get_ident())

    run_in_threads([work] * 4)

    assert len(set(took_part)) == 4
    assert sum(guard.counts().values()) == 2000


def run_in_threads(functions: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)


def test_an_exception_of_lists_that_hold_each_other_is_not_printed() -> None:
    doubled: list[object] = ["x"]
    for _ in range(64):
        doubled = [doubled, doubled]

    assert text_of(ValueError(doubled)) == "ValueError too deep to print"
