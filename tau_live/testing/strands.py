"""The events of a run in an order that does not depend on how its threads were scheduled."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import inf
from typing import TypeAlias

Row: TypeAlias = dict[str, object]
Shown: TypeAlias = Callable[[Row], Row]
"""Returns an event without what is different each time."""

_BEGAN_BEFORE, _WHOLE, _GOES_ON = range(3)


def in_order(rows: Sequence[Row], shown: Shown) -> list[Row]:
    """Return a run's events, with tools and steps that may have run at once one after the other.

    Of tools and steps with nothing else between them nobody can say whether one waited for the
    other. Those come first that began before, last those that go on; else they are in the order in
    which the model asked for tools, and then in that of what they say. What is told inside of one
    stays there: a request inside of a tool, or a tool that names the step it is in.

    Args:
        rows: The events, as they came.
        shown: Returns one without what is different each time.
    """
    spans = _spans_of_tools(rows)
    asked: dict[str, int] = {}
    found: list[Row] = []
    for movable, together in groupby(rows, key=lambda row: _strand_of(row, spans) is not None):
        stretch = [*together]
        if movable:
            found += _Stretch(stretch, spans, asked, shown).rows()
            continue
        found += stretch
        for call in _asked_in(stretch):
            asked[call] = len(asked)
    return found


class _Stretch:
    """Tools and steps of a run with nothing else between them.

    Args:
        rows: Their events, as they came.
        spans: Of which tool each step is, by its id.
        asked: The place of each call that a model asked for.
        shown: Returns an event without what is different each time.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        spans: Mapping[object, str],
        asked: Mapping[str, int],
        shown: Shown,
    ) -> None:
        self._asked = asked
        self._shown = shown
        self._own: dict[str, list[Row]] = {}
        for row in rows:
            self._own.setdefault(_strand_of(row, spans) or "", []).append(row)
        self._inside: dict[str | None, list[str]] = {}
        for strand in self._own:
            self._inside.setdefault(self._around(strand), []).append(strand)

    def rows(self, around: str | None = None) -> list[Row]:
        """Return the events of what is inside of a step, or of all, in their order."""
        whole = [(strand, self._whole(strand)) for strand in self._inside.get(around, ())]
        whole.sort(key=lambda one: self._key(*one))
        return [row for _, rows in whole for row in rows]

    def _around(self, strand: str) -> str | None:
        """Return the step that something is in: that it names, or whose part it says it is."""
        for row in self._own[strand]:
            named = row.get("parent_span_id")
            for name in [named] if strand.startswith("step ") else [named, *_texts(row)]:
                if f"step {name}" in self._own and f"step {name}" != strand:
                    return f"step {name}"
        return None

    def _whole(self, strand: str) -> list[Row]:
        own = self._own[strand]
        began = 1 if str(own[0]["event"]).endswith(".start") else 0
        return [*own[:began], *self.rows(strand), *own[began:]]

    def _key(self, strand: str, rows: Sequence[Row]) -> tuple[int, float, str]:
        own = [str(row["event"]) for row in self._own[strand]]
        began, ended = own[0].endswith(".start"), own[-1].endswith(".end")
        state = _WHOLE if began == ended else _GOES_ON if began else _BEGAN_BEFORE
        asked = [self._asked.get(str(row.get("call_id")), inf) for row in rows]
        first = min(asked)
        return state, -1.0 if first == inf else first, shown_as(rows, self._shown)


def shown_as(rows: Iterable[Row], shown: Shown) -> str:
    """Return what events say, but for which run's they are, and when and where they were told."""
    return json.dumps(
        [shown({name: one for name, one in row.items() if name not in _LEFT_OUT}) for row in rows],
        sort_keys=True,
    )


_WHERE = frozenset({"host", "run_id", "parent_run_id", "execution", "seq", "pid"})
_WHEN = frozenset({"at", "mono_ns"})
_VERSIONS = frozenset({"host_version", "adapter_version"})
_LEFT_OUT = _WHERE | _WHEN | _VERSIONS


def _spans_of_tools(rows: Sequence[Row]) -> dict[object, str]:
    found: dict[object, str] = {}
    for row in rows:
        strand = _strand_of(row, found)
        if strand is not None and not strand.startswith("step ") and row.get("span_id"):
            found.setdefault(row["span_id"], strand)
    return found


def _strand_of(row: Row, spans: Mapping[object, str]) -> str | None:
    """Return the tool or the step that an event is of; ``None`` if it is of neither."""
    event = str(row["event"])
    if event.startswith("tool."):
        return spans.get(row.get("parent_span_id")) or f"tool {_call(row)}"
    if event.startswith("step."):
        return spans.get(row.get("parent_span_id")) or f"step {row.get('span_id')}"
    return None if event.startswith("run.") else spans.get(row.get("parent_span_id"))


def _call(row: Row) -> str:
    return str(row.get("call_id") or row.get("span_id"))


def _asked_in(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the ids of the calls that models asked for."""
    for row in rows:
        calls = row.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, Mapping) and call.get("id"):
                yield str(call["id"])


def _texts(value: object) -> Iterator[str]:
    """Yield every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
