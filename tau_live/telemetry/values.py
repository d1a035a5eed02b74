"""Rewards in spans and log records: evaluations, annotations, and tau-live's own."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tau_live import events as ev
from tau_live.handed.values import COMMENT_LIMIT
from tau_live.telemetry.spans import Attributes, Ended, number, text

RESULT = "gen_ai.evaluation.result"
"""The event of an evaluation, in a span or as a log record."""

REWARD = "tau.reward"

_PART = re.compile(
    r"(?:(?P<list>(?:trace\.)?(?:evaluations|annotations)\.[0-9]{1,4})\.)?"
    r"(?P<kind>gen_ai\.evaluation|evaluation|annotation)\."
    r"(?P<part>name|score|score\.value|score\.label|label|explanation|annotator_kind)"
)
_SOURCES: Mapping[str, str] = {"HUMAN": "user", "LLM": "judge", "CODE": "auto"}
_BEGINNINGS = ("gen_ai.evaluation", "evaluation", "annotation", "trace.", REWARD)


class Value(NamedTuple):
    """One thing that was measured.

    Attributes:
        name: What; ``None`` where nobody says.
        value: The score.
        label: The score in words.
        comment: What was said besides.
        source: Who says so; ``None`` where nobody says.
    """

    name: str | None
    value: float | None
    label: str | None = None
    comment: str | None = None
    source: str | None = None


def values_of(ended: Ended) -> list[Value]:
    """Return what a span says something was worth, in its own order."""
    found = [
        value
        for happened in ended.happened
        if happened.name == RESULT
        for value in evaluated(happened.attributes)
    ]
    said = ended.begun.attributes
    if any(name.startswith(_BEGINNINGS) for name in said):
        found += evaluated(said)
        own = number(said, REWARD)
        if own is not None:
            found.append(Value(text(said, f"{REWARD}.name"), own))
    return found


def evaluated(said: Attributes) -> Iterator[Value]:
    """Yield the evaluations that attributes hold, without those that say neither score nor word."""
    groups: dict[tuple[str, str], dict[str, object]] = {}
    for name, value in said.items():
        match = _PART.fullmatch(name)
        if match is not None:
            group = groups.setdefault((match["list"] or "", match["kind"]), {})
            group[match["part"]] = value
    for parts in groups.values():
        value = number(parts, "score.value", "score")
        label = text(parts, "score.label", "label")
        if value is None and label is None:
            continue
        kind = text(parts, "annotator_kind") or ""
        yield Value(
            text(parts, "name"),
            value,
            label,
            text(parts, "explanation", limit=COMMENT_LIMIT),
            _SOURCES.get(kind.upper()),
        )


def reward_of(value: Value, *, name: str, source: str, key: str) -> dict[str, object]:
    """Return the fields of a reward, with what is said where the value says nothing."""
    return {
        "name": value.name or name,
        "value": value.value,
        "label": value.label,
        "comment": None if value.comment is None else ev.Content(text=value.comment),
        "source": value.source or source,
        "key": key,
    }
