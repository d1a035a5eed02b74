"""How what a host raised is told, whatever the exception does."""

import asyncio
import concurrent.futures

import pytest

from tau_live.core.events import Status
from tau_live.core.records import Reason
from tau_live.decisions.runs import ending_of, error_of


class TooLateError(TimeoutError):
    """A kind of its own."""


class HostileError(Exception):
    """Cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        pytest.param(None, Status.OK, Reason.COMPLETED, id="nothing"),
        pytest.param(asyncio.CancelledError(), Status.CANCELLED, Reason.CANCELLED, id="cancelled"),
        pytest.param(
            concurrent.futures.CancelledError(), Status.CANCELLED, Reason.CANCELLED, id="a future"
        ),
        pytest.param(KeyboardInterrupt(), Status.CANCELLED, Reason.CANCELLED, id="by a person"),
        pytest.param(SystemExit(1), Status.CANCELLED, Reason.CANCELLED, id="the process ends"),
        pytest.param(GeneratorExit(), Status.CANCELLED, Reason.CANCELLED, id="not read on"),
        pytest.param(TooLateError(), Status.ERROR, Reason.TIMEOUT, id="any kind of timeout"),
        pytest.param(HostileError(), Status.ERROR, Reason.ERROR, id="anything else"),
    ],
)
def test_what_was_raised_says_how_it_ended(
    error: BaseException | None, status: Status, reason: Reason
) -> None:
    found = ending_of(error)

    assert found == (status, reason)


def test_an_exception_that_cannot_be_printed_is_told_by_its_kind() -> None:
    found = error_of(HostileError(), fatal=True)

    assert (found.type, found.fatal) == ("HostileError", True)
