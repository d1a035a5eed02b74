"""The one border to the host: failures inside it are counted, logged once per cause, and contained.

Only ``Exception`` is caught. ``CancelledError``, ``KeyboardInterrupt``, ``SystemExit`` and
``GeneratorExit`` belong to the host and pass through at once. So do interruptions of any class: an
exception from a signal handler, or one that another thread set (``errors``).
"""

import sys
import threading
from collections.abc import Callable
from enum import Enum
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
_SEARCHED = 4_000
"""Characters of a message searched for secrets; a secret must not be cut before it is found."""


class Log:
    """Writes to the host's logging; whatever its handlers, filters or processors raise stays here.

    Where structlog is configured (by the host for itself, or else by our command line), that
    configuration is used. Elsewhere the lines go to the standard logger ``tau_live``, as structlog
    would write them: its own default would print them to standard output, which belongs to the
    host. Whoever configured it has imported it: importing it here would block a host's thread for
    80 ms at its first failure.

    Attributes:
        lost: How many lines failed to be logged in this process; without a lock, which a fork
            could leave held.
        prepare: Called once, before the first line: by then the command line configures structlog.
    """

    lost = 0
    prepare: Callable[[], None] | None = None

    def info(self, event: str, **facts: object) -> None:
        """Log what is good to know."""
        _write("info", event, facts)

    def warning(self, event: str, **facts: object) -> None:
        """Log what an operator should know."""
        _write("warning", event, facts)

    def error(self, event: str, *, exc_info: BaseException | None = None, **facts: object) -> None:
        """Log what went wrong."""
        _write("error", event, facts, exc_info)


def logger() -> Log:
    """Return our logger, which never prints where the host does not expect it."""
    return Log()


def lines_lost() -> int:
    """Return how many lines failed to be logged in this process."""
    return Log.lost


def _write(
    level: str, event: str, facts: dict[str, object], exc_info: BaseException | None = None
) -> None:
    try:
        prepare, Log.prepare = Log.prepare, None
        if prepare is not None:
            prepare()
        facts = {name: _plain(value) for name, value in facts.items()}
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


def _plain(value: object) -> object:
    """Return a value with the members of enumerations as their own values."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return value


def _is_our_thread() -> bool:
    return threading.current_thread().name.startswith(_OUR_THREADS)


def text_of(error: BaseException) -> str:
    """Return an exception's message, cut and without secrets; even if its ``__str__`` raises."""
    try:
        if not is_soon_printed(error.args):
            return f"{type(error).__name__} too deep to print"
        return _scrub(str.__getitem__(str(error), slice(_SEARCHED)))[:_TEXT]
    except Exception as second:  # noqa: BLE001 - a hostile __str__ must not escape
        pass_on(second)
        return f"<{type(error).__name__} without a readable text>"


def reason_of(error: BaseException) -> str:
    """Return an exception's message, and the files that hide modules, if it may come from one."""
    text = text_of(error)
    if not issubclass(type(error), ImportError | AttributeError):
        return text
    return "; ".join([text, *hiding_files()])


def without_secrets(
    logger: object,  # noqa: ARG001  # as structlog calls it
    method: str,  # noqa: ARG001  # as structlog calls it
    line: "MutableMapping[str, object]",
) -> "MutableMapping[str, object]":
    """Return a log line without the secrets in its texts; a structlog processor."""
    for name, value in line.items():
        if isinstance(value, str):
            line[name] = _scrub(value)
    return line


def _scrub(text: str) -> str:
    # Late: where no host is found, importing it would be half the cost of starting.
    from tau_live.core.redaction import scrub_text

    return scrub_text(text)


class Cause(NamedTuple):
    """The cause of a failure; equal causes are the same failure.

    Attributes:
        kind: What failed, as the caller names it.
        type: The class of the exception.
        place: ``file:line`` where it was raised.
    """

    kind: str
    type: str
    place: str


class Guard:
    """The border; one per process, used by every thread, and re-entrant.

    Args:
        on_failure: Called for every failure with its kind and the error; usually counts it in the
            gate.
    """

    def __init__(self, on_failure: Callable[[str, Exception], None] | None = None) -> None:
        self._on_failure = on_failure
        # Re-entrant: a finaliser or a signal handler may call this from within a call.
        self._lock = threading.RLock()
        self._counts: dict[Cause, int] = {}
        self._reporting = threading.local()

    def call(self, kind: str, function: Callable[..., T], *args: object, fallback: F) -> T | F:
        """Return ``function(*args)``, or ``fallback`` if that raises an ``Exception``."""
        try:
            return function(*args)
        except Exception as error:  # noqa: BLE001 - this is the border
            self.record_failure(kind, error)
            return fallback

    def catching(self, kind: str) -> "_Border":
        """Return a context manager that contains any ``Exception``."""
        return _Border(self, kind)

    def record_failure(self, kind: str, error: Exception) -> None:
        """Count a failure, log it if its cause is new, and call ``on_failure``.

        Raises nothing but an interruption, which is not counted.
        """
        self.note_cause(kind, error)
        if not issubclass(type(error), RecursionError):
            self._report(kind, error)

    def note_cause(self, kind: str, error: Exception) -> None:
        """Count a failure that is not ours, and log it if its cause is new.

        Raises nothing but an interruption, which is not counted.
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
        """Return how often each cause occurred."""
        with self._lock:
            return dict(self._counts)

    def _count(self, cause: Cause) -> bool:
        with self._lock:
            if cause not in self._counts and len(self._counts) >= _CAUSES:
                cause = Cause("guard", "Exception", "one of too many")
            self._counts[cause] = self._counts.get(cause, 0) + 1
            return self._counts[cause] == 1

    def _report(self, kind: str, error: Exception) -> None:
        if self._on_failure is None or getattr(self._reporting, "now", False):
            return  # a failure of the callback is not reported to the callback
        self._reporting.now = True
        try:
            self._on_failure(kind, error)
        except Exception as second:  # noqa: BLE001 - it must not reach the host
            self.record_failure("on_failure", second)
        finally:
            self._reporting.now = False


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
    """Return a plugin's error if it is to be contained, else raise it.

    Interruptions are raised. In a thread of ours an exit or a cancellation that we did not cause
    is contained, and so is a cancellation by asyncio in a hook.
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
