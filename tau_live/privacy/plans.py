"""Which fields of an event are checked before it is written: texts, ids and others."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING

from tau_live import rollouts
from tau_live.events import Decision, Event

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_DERIVED = frozenset({"rollout_id", "decision_id", "parent_id"})
"""Of what is stored, but not of events: what was made of other ids by a hash."""

_LEFT_ALONE = frozenset({"event", "at", "v", "mono_ns", "seq", "pid", "status", "fidelity"})
_IDS = frozenset(
    {
        *("host", "run_id", "parent_run_id", "parent_host", "execution", "session_id"),
        *("span_id", "parent_span_id", "call_id", "retry_of", "response_id", "resume_key"),
        *("rollout_id", "decision_id", "key", "source", "instructions_hash"),
        *("point", "chosen", "applied", "default", "arm"),
    }
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which fields of one class of events are looked at, and how.

    Attributes:
        texts: Strings that people or programs wrote.
        ids: Strings that name something.
        others: What is neither a string nor a number.
        text_values: Returns the values of ``texts``, in one call: there are more fields than any
            event fills.
        id_values: Returns those of ``ids``.
        other_values: Returns those of ``others``.
    """

    texts: tuple[str, ...]
    ids: tuple[str, ...]
    others: tuple[str, ...]
    text_values: Callable[[object], tuple[str | None, ...]]
    id_values: Callable[[object], tuple[str | None, ...]]
    other_values: Callable[[object], tuple[object, ...]]


def plan_of(kind: "type[DataclassInstance]") -> Plan:
    """Return which fields of a class of events, or of what is stored, are looked at."""
    alone = _LEFT_ALONE if issubclass(kind, Event) else _LEFT_ALONE | _DERIVED
    names = [field.name for field in fields(kind) if field.name not in alone]
    types = {field.name: field.type for field in fields(kind)}
    strings = [name for name in names if types[name] in (str, str | None)]
    kept = (
        {"probabilities", "encoded"} if issubclass(kind, (Decision, rollouts.Decision)) else set()
    )
    texts = tuple(name for name in strings if name not in _IDS)
    ids = tuple(name for name in strings if name in _IDS)
    others = tuple(
        name
        for name in names
        if name not in kept and name not in strings and not _is_number(types[name])
    )
    return Plan(texts, ids, others, *map(_values_of, (texts, ids, others)))


def _values_of(names: tuple[str, ...]) -> Callable[[object], tuple[str | None, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _is_number(annotation: object) -> bool:
    numbers = (int, float, bool, int | None, float | None, bool | None)
    return any(annotation == number for number in numbers)
