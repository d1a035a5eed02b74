"""The one border to the host: what fails inside it is counted, logged once per cause, and stays.

Only ``Exception`` is caught. ``CancelledError``, ``KeyboardInterrupt``, ``SystemExit`` and
``GeneratorExit`` belong to the host and pass through at once. So does what interrupts us, whatever
its class: an exception of a signal's handler, or one that another thread set (``errors``).
"""

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tau_live.core.errors import pass_on, place_of
from tau_live.core.files import hiding_files
from tau_live.core.offers import is_soon_printed

if TYPE_CHECKING:
    from collections.abc import MutableMapping

T = TypeVar("T")
F = TypeVar("F")

_CAUSES = 1000
_TEXT = 500
_OUR_THREADS = "tau-live-"
_SAID = 4_000
"""So much of an exception is searched for secrets; one must not be cut before it is found."""


class Log:
    """Gives lines to the host's logging; what its handlers, filters or processors raise stays here.

    Where somebody has configured structlog (our command line, or the host for itself), that
    configuration is used. Elsewhere the lines go to the standard logger ``tau_live``, as structlog
    would write them: its own default would print them to standard output, which belongs to the
    host. Who has configured it has imported it: importing it here would keep a host's thread for
    80 ms at its first failure.

    Attributes:
        lost: How many lines the logging of this process did not take; without a lock, which a fork
            could leave held.
    """

    lost = 0

    def info(self, event: str, **facts: object) -> None:
        """Log what is good to know."""
        _say("info", event, facts)

    def warning(self, event: str, **facts: object) -> None:
        """Log what an operator should know."""
        _say("warning", event, facts)

    def error(self, event: str, *, exc_info: BaseException | None = None, **facts: object) -> None:
        """Log what went wrong."""
        _say("error", event, facts, exc_info)


def logger() -> Log:
    """Return our logger, which never prints where the host does not expect it."""
    return Log()


def lines_lost() -> int:
    """Return how many lines the logging of this process did not take."""
    return Log.lost


def _say(
    level: str, event: str, facts: dict[str, object], exc_info: BaseException | None = None
) -> None:
    try:
        structlog = sys.modules.get("structlog")
        if structlog is not None and structlog.is_configured():
            more = facts if exc_info is None else {**facts, "exc_info": exc_info}
            getattr(structlog.get_logger("tau_live"), level)(event, **more)
        else:
            import logging

            facts = {**without_secrets(None, "", {"event": event, **facts})}
            line = " ".join(f"{name}={value!r}" for name, value in facts.items())
            log = getattr(logging.getLogger("tau_live"), level)
            log(line, exc_info=exc_info, stacklevel=3)
    except BaseException as error:
        if not isinstance(error, Exception) and not _is_our_thread():
            raise
        contain(error)
        Log.lost += 1


def _is_our_thread() -> bool:
    return threading.current_thread().name.startswith(_OUR_THREADS)


def text_of(error: BaseException) -> str:
    """Return what an exception says, cut and without secrets; even one whose ``__str__`` raises."""
    try:
        if not is_soon_printed(error.args):
            return f"{type(error).__name__} too deep to print"
        return _scrub(str.__getitem__(str(error), slice(_SAID)))[:_TEXT]
    except Exception as second:  # noqa: BLE001 - a hostile __str__ must not escape
        pass_on(second)
        return f"<{type(error).__name__} without a readable text>"


def reason_of(error: BaseException) -> str:
    """Return what an exception says, and which file it may come of, if one hides a module."""
    text = text_of(error)
    if not issubclass(type(error), ImportError | AttributeError):
        return text
    return "; ".join([text, *hiding_files()])


def without_secrets(
    logger: object,  # noqa: ARG001  # as structlog calls it
    method: str,  # noqa: ARG001  # as structlog calls it
    line: "MutableMapping[str, object]",
) -> "MutableMapping[str, object]":
    """Return a line of the log without the secrets in its texts; a processor of structlog."""
    for name, value in line.items():
        if isinstance(value, str):
            line[name] = _scrub(value)
    return line


def _scrub(text: str) -> str:
    # All that is attached has it; where no host is found it would be half of what starting costs.
    from tau_live.core.redaction import scrub_text

    return scrub_text(text)


class Cause(NamedTuple):
    """Why something failed, as far as two failures are the same.

    Attributes:
        kind: What failed, in the words of whoever called.
        type: The class of the exception.
        place: ``file:line`` where it was raised.
    """

    kind: str
    type: str
    place: str


class Guard:
    """The border; one for a process, used by every thread, and by itself while it is at work.

    Args:
        on_failure: Called for every failure with its kind and the error; usually counts it in the
            gate.
    """

    def __init__(self, on_failure: Callable[[str, Exception], None] | None = None) -> None:
        self._on_failure = on_failure
        # Re-entrant: a finaliser or a signal may bring the same thread here a second time.
        self._lock = threading.RLock()
        self._counts: dict[Cause, int] = {}
        self._telling = threading.local()

    def call(self, kind: str, function: Callable[..., T], *args: object, fallback: F) -> T | F:
        """Return ``function(*args)``, or ``fallback`` if that raises an ``Exception``."""
        try:
            return function(*args)
        except Exception as error:  # noqa: BLE001 - this is the border
            self.record_failure(kind, error)
            return fallback

    def catching(self, kind: str) -> "_Border":
        """Return a context whose ``Exception`` ends it and goes no further."""
        return _Border(self, kind)

    def record_failure(self, kind: str, error: Exception) -> None:
        """Count a failure, log it if its cause is new, and tell ``on_failure``.

        Nothing is raised but what interrupted us, which is not counted.
        """
        self.note_cause(kind, error)
        if not issubclass(type(error), RecursionError):
            self._tell(kind, error)

    def note_cause(self, kind: str, error: Exception) -> None:
        """Count what was no failure of ours, and log it if its cause is new.

        Nothing is raised but what interrupted us, which is not counted.
        """
        pass_on(error)
        if issubclass(type(error), RecursionError):
            return  # the host's stack has no room: nothing of ours is wrong
        try:
            cause = Cause(kind, type(error).__qualname__, place_of(error))
            if self._count(cause):
                facts = {**cause._asdict(), "kind": str(kind), "error": reason_of(error)}
                logger().error("failure_contained", **facts)
        except Exception as second:  # noqa: BLE001 - a hostile exception must not reach the host
            pass_on(second)
            self._count(Cause("guard", "Exception", "unreadable"))

    def counts(self) -> dict[Cause, int]:
        """Return how often each cause was met."""
        with self._lock:
            return dict(self._counts)

    def _count(self, cause: Cause) -> bool:
        with self._lock:
            if cause not in self._counts and len(self._counts) >= _CAUSES:
                cause = Cause("guard", "Exception", "one of too many")
            self._counts[cause] = self._counts.get(cause, 0) + 1
            return self._counts[cause] == 1

    def _tell(self, kind: str, error: Exception) -> None:
        if self._on_failure is None or getattr(self._telling, "now", False):
            return  # a failure of the callback is not reported to the callback
        self._telling.now = True
        try:
            self._on_failure(kind, error)
        except Exception as second:  # noqa: BLE001 - it must not reach the host
            self.record_failure("on_failure", second)
        finally:
            self._telling.now = False


class _Border:
    __slots__ = ("_guard", "_kind")

    def __init__(self, guard: Guard, kind: str) -> None:
        self._guard = guard
        self._kind = kind

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self._guard.record_failure(self._kind, error)
        return True


def contain(error: BaseException) -> BaseException:
    """Return the error of a plugin, unless it is meant for whoever called: then raise it.

    What interrupted it is. Nobody exits or is cancelled in a thread of ours but by us, nor in a
    hook by asyncio.
    """
    pass_on(error)
    if isinstance(error, Exception) or type(error).__module__ == "asyncio.exceptions":
        return error
    if issubclass(type(error), SystemExit | KeyboardInterrupt):
        is_contained = threading.current_thread() is not threading.main_thread()
    else:
        theirs = not type(error).__module__.startswith("tau_live.")
        is_contained = theirs and _is_our_thread()
    if not is_contained:
        raise error
    return error
