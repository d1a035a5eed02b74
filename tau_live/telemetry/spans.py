"""The parts of an OpenTelemetry span that matter, whatever its source."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import NamedTuple, Protocol

from tau_live.handed.values import text_of

Attributes = Mapping[str, object]
"""What a span says of itself: texts, numbers, truths, and sequences of them, by name."""

TEXT_LIMIT = 1_000_000


class Happened(NamedTuple):
    """Something that happened while a span went on.

    Attributes:
        name: What: ``exception``, ``gen_ai.evaluation.result``.
        attributes: What is said of it.
    """

    name: str
    attributes: Attributes


class Begun(NamedTuple):
    """A span that begins.

    Attributes:
        trace: The trace it is of, in hexadecimal.
        id: Its id, in hexadecimal.
        parent: The span around it; ``None`` for a trace's root.
        name: Its name.
        scope: Who made it: the name of the instrumentation.
        at: When, in epoch seconds.
        attributes: What it says so far; grows while it goes on.
        service: Returns who it is of, where that is known.
    """

    trace: str
    id: str
    parent: str | None
    name: str
    scope: str
    at: float
    attributes: Attributes
    service: Callable[[], str | None] | None = None


class Ended(NamedTuple):
    """How a span ended.

    Attributes:
        begun: How it began, with all that it says.
        at: When it ended, in epoch seconds.
        failed: Whether it says that it failed.
        description: What it says of that.
        happened: What happened meanwhile.
        linked: Spans it points to: trace and id of each.
        raised: What went through the code that ended it, where that says that it was cancelled.
    """

    begun: Begun
    at: float
    failed: bool = False
    description: str = ""
    happened: Sequence[Happened] = ()
    linked: Sequence[tuple[str, str]] = ()
    raised: str | None = None


class Around(Protocol):
    """A run of ours around a span, as its handle knows it."""

    host: str
    run_id: str
    execution: str
    session_id: str | None


def text(said: Attributes, *names: str, limit: int = 200) -> str | None:
    """Return the first of these attributes that holds a text, or a number as one."""
    for name in names:
        value = said.get(name)
        if isinstance(value, str | int) and value != "":
            return text_of(value, limit=limit)
    return None


def number(said: Attributes, *names: str) -> float | None:
    """Return the first of these attributes that holds a finite number."""
    for name in names:
        value = said.get(name)
        if isinstance(value, int | float) and isfinite(value):
            return float(value)
    return None


def texts(value: object) -> tuple[str, ...]:
    """Return a sequence of texts, or one of them."""
    if isinstance(value, str):
        return (text_of(value),)
    return tuple(text_of(one) for one in value) if isinstance(value, list | tuple) else ()
