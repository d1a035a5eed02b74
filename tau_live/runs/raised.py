"""Exceptions of the host, as events report them."""

from tau_live.envelope import ErrorInfo, Status
from tau_live.handed.values import kind_of, text_of
from tau_live.rollouts import Reason


def error_of(error: BaseException, *, fatal: bool = False) -> ErrorInfo:
    """Return what went wrong, whatever the exception does when it is printed."""
    return ErrorInfo(type=kind_of(error), message=text_of(error), fatal=fatal)


def ending_of(error: BaseException | None) -> tuple[Status, Reason]:
    """Return how a run ended that raised ``error``, or nothing."""
    if error is None:
        return Status.OK, Reason.COMPLETED
    names = {kind.__name__ for kind in type.mro(type(error))}
    if names & {"CancelledError", "GeneratorExit", "KeyboardInterrupt", "SystemExit"}:
        return Status.CANCELLED, Reason.CANCELLED
    if "TimeoutError" in names:
        return Status.ERROR, Reason.TIMEOUT
    return Status.ERROR, Reason.ERROR
