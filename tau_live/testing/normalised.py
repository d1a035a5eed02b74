"""Recorded events without what is different each time: times, processes, ids made at random.

What is left is the same whenever the same scenario is played, in whichever order threads were.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tau_live.testing.strands import Row, in_order, shown_as

RANDOM = re.compile(
    r"""
    [0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}   # UUID
    | (?<![0-9a-zA-Z])[0-9a-f]{16,64}(?![0-9a-zA-Z])       # hexadecimal
    | (?<=_)[0-9a-f]{16,64}(?![0-9a-zA-Z])                 # likewise, behind a prefix
    | (?<![0-9A-Za-z])[0-9A-HJKMNP-TV-Z]{26}(?![0-9A-Za-z])  # ULID, upper case
    | (?<![0-9A-Za-z])01[0-9a-hjkmnp-tv-z]{24}(?![0-9A-Za-z])  # ULID, lower case
    | (?<=0x)[0-9a-f]{6,16}                                # an address in memory
    | (?<=\ )[0-9a-f]{12}(?=\ )                            # likewise, as some write it
    """,
    re.VERBOSE,
)
"""What is taken for an id that was made at random."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?")
_TASK = re.compile(r"<Task .*", re.DOTALL)
_PATH = re.compile(r"(?<![\w/:.])(?:/[\w.+@-]+){2,}")
_TEXTS = ((_TIME, "some time"), (_TASK, "<a task>"), (_PATH, "a path"))
_MEASURED = re.compile(r"(?:_ms|_us|_ns|_at|_time|timestamp|duration|latency)$")
_COUNTED = re.compile(r"(?P<before>.+)(?P<sign>[/>])(?P<name>[^/>]+)#\d+", re.DOTALL)
_DROPPED = frozenset({"mono_ns", "host_version", "adapter_version"})


def normalised(
    rows: Iterable[Row], *, also: str | None = None, stream: str | None = None
) -> list[Row]:
    """Return the events of a play without what is different each time.

    Runs stand one after the other, each followed by those inside it; in each the steps are in their
    order, but tools and steps that may have run at once are told one after the other. Ids made at
    random are numbered, and so are runs that have a number because their host gave them no id.

    Args:
        rows: The events as they were recorded.
        also: A regular expression of what else is an id, where the host makes it at random.
        stream: What the ids of such runs are made of: ``name/stream#1``.
    """
    told = [*rows]
    ids = sorted({str(row["run_id"]) for row in told}, key=len, reverse=True)
    counted = [one for one in ids if _is_counted(one, stream)]
    known = [rf"(?<!\w){re.escape(one)}(?!\d)" for one in counted]
    pattern = re.compile("|".join([*known, RANDOM.pattern, *([also] if also else [])]), re.VERBOSE)
    masked = _Masks(pattern, lambda _: "id")
    ordered = [row for run in _runs(told, masked) for row in run]
    numbers = _counted_anew(dict.fromkeys(str(row["run_id"]) for row in ordered), {*counted})
    random = itertools.count(1)

    def number(found: str) -> str:
        if found not in numbers:
            numbers[found] = f"id-{next(random)}"
        return numbers[found]

    masks = _Masks(pattern, number)
    executions: dict[object, str] = {}
    found: list[Row] = []
    for place, row in enumerate(ordered, 1):
        made_by = row.get("execution")
        execution = executions.setdefault(made_by, f"execution-{len(executions) + 1}")
        kept = {name: value for name, value in row.items() if name not in _DROPPED}
        plain = masks.row({**kept, "execution": ""})
        within = {"execution": execution if made_by else ""}
        found.append({**plain, **within, "at": float(place), "seq": place, "pid": 1})
    return found


class _Masks:
    """Replaces what is different each time, in any JSON value.

    Args:
        pattern: What is an id that was made at random.
        named: What stands for such an id.
    """

    def __init__(self, pattern: re.Pattern[str], named: Callable[[str], str]) -> None:
        self._pattern = pattern
        self._named = named

    def of(self, value: object, name: str) -> object:
        """Return a value, of a field of this name, without what is different each time."""
        if isinstance(value, str):
            text = value
            for pattern, instead in _TEXTS:
                text = pattern.sub(instead, text)
            return self._pattern.sub(lambda found: self._named(found[0]), text)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return 1.0 if _MEASURED.search(name) else value
        if isinstance(value, Mapping):
            return self.row(value)
        if isinstance(value, Sequence):
            return [self.of(one, name) for one in value]
        return value

    def row(self, value: Mapping[str, object]) -> Row:
        """Return a mapping without what is different each time; hashes are of what is left."""
        if {"text", "sha256"} <= value.keys() and isinstance(value["text"], str):
            text = str(self.of(value["text"], "text"))
            digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
            return {**value, "text": text, "chars": len(text), "sha256": digest}
        return {
            name: one if name == "sha256" else self.of(one, name) for name, one in value.items()
        }


def _is_counted(run_id: str, stream: str | None) -> bool:
    """Say whether a run has only a number: of its stream, or among those inside a run."""
    found = _COUNTED.fullmatch(run_id)
    return found is not None and (found["sign"] == ">" or found["name"] == stream)


def _counted_anew(run_ids: Iterable[str], counted: Collection[str]) -> dict[str, str]:
    """Return the ids of runs that have only a number, with numbers in the order given."""
    found: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for run_id in run_ids:
        parts = _COUNTED.fullmatch(run_id) if run_id in counted else None
        if parts is None:
            continue
        before, sign, name = parts["before"], parts["sign"], parts["name"]
        among = before if sign == ">" else name
        numbers[among] = numbers.get(among, 0) + 1
        found[run_id] = f"{found.get(before, before)}{sign}{name}#{numbers[among]}"
    return found


def _runs(rows: Sequence[Row], masks: _Masks) -> list[list[Row]]:
    """Return the events of each run, in an order that does not depend on when they came."""
    by_run: dict[object, list[Row]] = {}
    parents: dict[object, object] = {}
    for row in rows:
        by_run.setdefault(row["run_id"], []).append(row)
        if row.get("parent_run_id"):
            parents[row["run_id"]] = row["parent_run_id"]
    steps = {run: in_order(told, masks.row) for run, told in by_run.items()}
    own = {run: shown_as(told, masks.row) for run, told in steps.items()}
    inside: dict[object, list[object]] = {}
    for run in steps:
        inside.setdefault(parents.get(run), []).append(run)
    found: list[list[Row]] = []

    def key(run: object) -> str:
        return json.dumps([own[run], *sorted(map(key, inside.get(run, ())))])

    def add(run: object) -> None:
        found.append(steps[run])
        for child in sorted(inside.get(run, ()), key=key):
            add(child)

    tops = [run for run in steps if parents.get(run) not in steps]
    for run in sorted(tops, key=key):
        add(run)
    return found
