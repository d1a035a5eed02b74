"""The envelope of every event, and what several kinds share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from math import isfinite
from operator import attrgetter
from typing import TypeVar

E = TypeVar("E", bound="Event")
VERSION = 1
_LATEST = 2**53

OWN_HOST = "tau_live"
"""The host of runs of the public door; their rewards may arrive much later."""


class Status(StrEnum):
    """How a span or a run ended."""

    OK = "ok"
    ERROR = "error"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    RETRY = "retry"
    VETOED = "vetoed"
    LIMIT = "limit"
    UNKNOWN = "unknown"


class Fidelity(StrEnum):
    """How directly the host reported it."""

    NATIVE = "native"
    HOOKS = "hooks"
    END_ONLY = "end_only"
    INFERRED = "inferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """An error in the host.

    Attributes:
        type: The class of the exception.
        message: Its text; kept only if content may be kept.
        fatal: Whether it ended the run.
    """

    type: str
    message: str = ""
    fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """An input or output text, or what may be kept of it.

    Attributes:
        text: The text; ``None`` if only its size and hash are kept.
        chars: Its length in characters.
        sha256: The SHA-256 of its UTF-8 form, in hexadecimal.
    """

    text: str | None = None
    chars: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call requested by a model.

    Attributes:
        id: The model's id of the call.
        name: The tool.
        args: Its arguments.
    """

    id: str
    name: str
    args: Content | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The envelope of every event.

    Attributes:
        event: The name of its kind.
        host: The framework.
        run_id: The host's run id.
        at: Epoch seconds, UTC.
        v: The version of the format.
        mono_ns: The process's monotonic clock.
        seq: Number of the event in its process, from 1; the order is ``(pid, seq)``.
        pid: The process.
        host_version: The host's version.
        adapter_version: The adapter's version.
        session_id: The id that the runs of one conversation share.
        parent_run_id: The parent run.
        parent_host: The parent run's host, if it is another one.
        execution: Distinguishes executions under the same key.
        span_id: The host's id of this step, verbatim.
        parent_span_id: The parent step.
        agent: The agent's name.
        turn: The turn, from 1.
        attempt: The attempt, from 1; ``None`` if the host does not count them.
        status: How it ended; ``None`` if it has no end.
        error: The error.
        fidelity: How directly the host reported it.
        raw: The host's attributes that have no field of their own.
    """

    event: str
    host: str
    run_id: str
    at: float
    v: int = VERSION
    mono_ns: int = 0
    seq: int = 0
    pid: int = 0
    host_version: str | None = None
    adapter_version: str | None = None
    session_id: str | None = None
    parent_run_id: str | None = None
    parent_host: str | None = None
    execution: str = ""
    span_id: str | None = None
    parent_span_id: str | None = None
    agent: str | None = None
    turn: int | None = None
    attempt: int | None = None
    status: Status | None = None
    error: ErrorInfo | None = None
    fidelity: Fidelity = Fidelity.NATIVE
    raw: Mapping[str, object] = field(default_factory=dict)


def is_sound(event: object) -> bool:
    """Return whether something is an event with a valid run and time."""
    if not issubclass(type(event), Event) or not isinstance(event, Event):
        return False
    if not type(event.event) is type(event.host) is type(event.run_id) is str:
        return False
    at = event.at
    if type(event.execution) is not str:
        return False
    return (type(at) is float and isfinite(at)) or (type(at) is int and abs(at) < _LATEST)


def replaced(event: E, changes: Mapping[str, object]) -> E:
    """Return an event with other values in some of its fields.

    No event checks itself, so its fields are set: a tenth of the time of ``dataclasses.replace``,
    which was the most that the thread that writes did.
    """
    copied: E = object.__new__(type(event))
    kind: type = type(event)
    names, values = _form(kind)
    for name, value in zip(names, values(event), strict=True):
        object.__setattr__(copied, name, value)
    for name, value in changes.items():
        object.__setattr__(copied, name, value)
    return copied


@cache
def _form(kind: type) -> tuple[tuple[str, ...], Callable[[Event], tuple[object, ...]]]:
    names = tuple(one.name for one in fields(kind))
    return names, attrgetter(*names)
