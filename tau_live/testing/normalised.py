"""Recorded events without what is different each time: times, processes, ids made at random.

What is left is the same whenever the same scenario is played, in whichever order threads were.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

Row: TypeAlias = dict[str, object]

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
_DROPPED = frozenset({"mono_ns", "host_version", "adapter_version"})
_KEYS = frozenset({"host", "run_id", "parent_run_id", "execution"})


def normalised(rows: Iterable[Row], *, also: str | None = None) -> list[Row]:
    """Return the events of a play without what is different each time.

    Runs stand one after the other, each followed by those inside it; in each the steps are in their
    order, but tools that ran at once are told one after the other. Ids made at random are numbered.

    Args:
        rows: The events as they were recorded.
        also: A regular expression of what else is an id, where the host makes it at random.
    """
    pattern = RANDOM if also is None else re.compile(f"{RANDOM.pattern}|{also}", re.VERBOSE)
    masked = _Masks(pattern, lambda _: "id")
    ordered = [row for run in _runs([*rows], masked) for row in run]
    numbers: dict[str, str] = {}

    def number(found: str) -> str:
        return numbers.setdefault(found, f"id-{len(numbers) + 1}")

    masks = _Masks(pattern, number)
    executions: dict[object, str] = {}
    found: list[Row] = []
    for place, row in enumerate(ordered, 1):
        told = row.get("execution")
        execution = executions.setdefault(told, f"execution-{len(executions) + 1}")
        kept = {name: value for name, value in row.items() if name not in _DROPPED}
        plain = masks.row({**kept, "execution": ""})
        within = {"execution": execution if told else ""}
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


def _runs(rows: Sequence[Row], masks: _Masks) -> list[list[Row]]:
    """Return the events of each run, in an order that does not depend on when they came."""
    by_run: dict[object, list[Row]] = {}
    parents: dict[object, object] = {}
    for row in rows:
        by_run.setdefault(row["run_id"], []).append(row)
        if row.get("parent_run_id"):
            parents[row["run_id"]] = row["parent_run_id"]
    steps = {run: _in_order(own) for run, own in by_run.items()}
    keys = {run: _key(own, masks) for run, own in steps.items()}
    found: list[list[Row]] = []

    def add(run: object) -> None:
        found.append(steps[run])
        for child in sorted(
            (one for one in steps if parents.get(one) == run), key=keys.__getitem__
        ):
            add(child)

    tops = [run for run in steps if parents.get(run) not in steps]
    for run in sorted(tops, key=keys.__getitem__):
        add(run)
    return found


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """Return a run's events with tools that ran at once one after the other, as they began."""
    found: list[Row] = []
    for tools, together in groupby(rows, key=lambda row: str(row["event"]).startswith("tool.")):
        stretch = [*together]
        if tools:
            first = {_call(row): place for place, row in reversed([*enumerate(stretch)])}
            stretch.sort(key=lambda row: first[_call(row)])
        found += stretch
    return found


def _call(row: Row) -> str:
    return str(row.get("call_id") or row.get("span_id"))


def _key(rows: Sequence[Row], masks: _Masks) -> str:
    left_out = _KEYS | _DROPPED | {"at", "seq", "pid"}
    shown = [
        masks.row({name: one for name, one in row.items() if name not in left_out}) for row in rows
    ]
    return json.dumps(shown, sort_keys=True)
