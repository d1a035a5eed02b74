"""Golden recordings of each scenario: written, compared with those of today, and replayed.

``python -m tau_live.testing ADAPTER PLAY FOLDER`` makes them all, for example::

    python -m tau_live.testing tau_live_hooks.pydantic_ai:ADAPTER \
        tests.hooks.conformance.pydantic_ai_play:play tests/hooks/golden/pydantic-ai

Normalised events are the same whenever a scenario is played, in whichever order threads ran.
"""

import difflib
import hashlib
import itertools
import json
import re
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module, metadata
from itertools import groupby
from math import inf
from pathlib import Path
from typing import TypeAlias, TypeVar

from tau_live.core.settings import Content, Learner, Settings
from tau_live.runtime.adapters import Adapter
from tau_live.runtime.replay import replay_file
from tau_live.runtime.runtime import start
from tau_live.testing.expected import Play, Recorded, Scenario, recorded_in

Row: TypeAlias = dict[str, object]
Mask: TypeAlias = Callable[[Row], Row]
"""Returns an event without the values that differ each time."""

_WITHOUT_START, _WHOLE, _WITHOUT_END = range(3)


def in_order(rows: Sequence[Row], mask: Mask) -> list[Row]:
    """Return a run's events, with tools and steps that may have run at once one after the other.

    Where nothing else is between tools and steps, their order may be chance. So those that began
    before come first, those that do not end here last; the others are in the order in which the
    model requested tools, and then in that of their texts. What happens inside of one stays there:
    a request inside of a tool, or a tool that names the step it is in.

    Args:
        rows: The events, as they came.
        mask: Returns one without the values that differ each time.
    """
    spans = _spans_of_tools(rows)
    call_order: dict[str, int] = {}
    ordered: list[Row] = []
    for movable, group in groupby(rows, key=lambda row: _strand_of(row, spans) is not None):
        stretch = [*group]
        if movable:
            ordered += _order_stretch(stretch, spans, call_order, mask)
            continue
        ordered += stretch
        for call in _requested_calls(stretch):
            call_order[call] = len(call_order)
    return ordered


def _order_stretch(
    rows: Sequence[Row],
    spans: Mapping[object, str],
    call_order: Mapping[str, int],
    mask: Mask,
) -> list[Row]:
    """Return tools and steps of a run with nothing else between them, one after the other.

    Args:
        rows: Their events, as they came.
        spans: The strand of each step, by its id.
        call_order: The index of each call that a model requested, by its id.
        mask: Returns an event without the values that differ each time.
    """
    own: dict[str, list[Row]] = {}
    for row in rows:
        own.setdefault(_strand_of(row, spans) or "", []).append(row)
    inside: dict[str | None, list[str]] = {}
    for strand in own:
        inside.setdefault(_enclosing_step(strand, own), []).append(strand)

    def whole(strand: str) -> list[Row]:
        has_start = str(own[strand][0]["event"]).endswith(".start")
        return [*own[strand][:has_start], *within(strand), *own[strand][has_start:]]

    def key(strand: str, rows: Sequence[Row]) -> tuple[int, float, str]:
        has_start = str(own[strand][0]["event"]).endswith(".start")
        has_end = str(own[strand][-1]["event"]).endswith(".end")
        state = _WHOLE if has_start == has_end else _WITHOUT_END if has_start else _WITHOUT_START
        positions = [call_order.get(str(row.get("call_id")), inf) for row in rows]
        first = min(positions)
        return state, -1.0 if first == inf else first, text_of(rows, mask)

    def within(outer: str | None) -> list[Row]:
        strands = [(strand, whole(strand)) for strand in inside.get(outer, ())]
        strands.sort(key=lambda strand: key(*strand))
        return [row for _, rows in strands for row in rows]

    return within(None)


def _enclosing_step(strand: str, own: Mapping[str, Sequence[Row]]) -> str | None:
    """Return the step around a strand: its parent span, or one that a tool's event names."""
    for row in own[strand]:
        parent = row.get("parent_span_id")
        for name in [parent] if strand.startswith("step ") else [parent, *_texts(row)]:
            if f"step {name}" in own and f"step {name}" != strand:
                return f"step {name}"
    return None


def text_of(rows: Iterable[Row], mask: Mask) -> str:
    """Return events as text, without their run, time, process and versions."""
    return json.dumps(
        [
            mask({name: value for name, value in row.items() if name not in _LEFT_OUT})
            for row in rows
        ],
        sort_keys=True,
    )


_LEFT_OUT = frozenset(  # where, when and by which versions
    {
        "host", "run_id", "parent_run_id", "execution", "seq", "pid", "at", "mono_ns",
        "host_version", "adapter_version",
    }
)  # fmt: skip


def _spans_of_tools(rows: Sequence[Row]) -> dict[object, str]:
    spans: dict[object, str] = {}
    for row in rows:
        strand = _strand_of(row, spans)
        if strand is not None and not strand.startswith("step ") and row.get("span_id"):
            spans.setdefault(row["span_id"], strand)
    return spans


def _strand_of(row: Row, spans: Mapping[object, str]) -> str | None:
    """Return the tool or the step that an event belongs to; ``None`` if to neither."""
    event = str(row["event"])
    if event.startswith("tool."):
        return (
            spans.get(row.get("parent_span_id"))
            or f"tool {row.get('call_id') or row.get('span_id')}"
        )
    if event.startswith("step."):
        return spans.get(row.get("parent_span_id")) or f"step {row.get('span_id')}"
    return None if event.startswith("run.") else spans.get(row.get("parent_span_id"))


def _requested_calls(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the ids of the calls that models requested."""
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
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


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
"""Matches random ids."""

_TEXTS = (
    (
        re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"),
        "some time",
    ),
    (re.compile(r"<Task .*", re.DOTALL), "<a task>"),
    (re.compile(r"(?<![\w/:.])(?:/[\w.+@-]+){2,}"), "a path"),
)
_MEASURED = re.compile(r"(?:_ms|_us|_ns|_at|_time|timestamp|duration|latency)$")
_NUMBERED = re.compile(r"(?P<before>.+)(?P<sign>[/>])(?P<name>[^/>]+)#\d+", re.DOTALL)
_DROPPED = frozenset({"mono_ns", "host_version", "adapter_version"})


def normalise(rows: Iterable[Row], *, stream: str | None = None) -> list[Row]:
    """Return the events of a play without the values that differ each time.

    Runs stand one after the other, each followed by those inside it; in each the steps are in their
    order, but tools and steps that may have run at once stand one after the other. Random ids are
    numbered, and so are runs that have a number because their host gave them no id.

    Args:
        rows: The events as they were recorded.
        stream: The stream in the ids of such runs: ``name/stream#1``.
    """
    events = [*rows]
    ids = sorted({str(row["run_id"]) for row in events}, key=len, reverse=True)
    numbered = [  # those that have only a number: of their stream, or among those inside a run
        run_id
        for run_id in ids
        if (match := _NUMBERED.fullmatch(run_id))
        and (match["sign"] == ">" or match["name"] == stream)
    ]
    known = [rf"(?<!\w){re.escape(run_id)}(?!\d)" for run_id in numbered]
    pattern = re.compile("|".join([*known, RANDOM.pattern]), re.VERBOSE)
    mask = partial(mask_row, pattern=pattern, replace=lambda _: "id")
    ordered = [row for run in _runs(events, mask) for row in run]
    numbers = _renumber(dict.fromkeys(str(row["run_id"]) for row in ordered), {*numbered})
    random = itertools.count(1)

    def number(text: str) -> str:
        if text not in numbers:
            numbers[text] = f"id-{next(random)}"
        return numbers[text]

    executions: dict[object, str] = {}
    normal: list[Row] = []
    for seq, row in enumerate(ordered, 1):
        own = row.get("execution")
        execution = executions.setdefault(own, f"execution-{len(executions) + 1}")
        kept = {name: value for name, value in row.items() if name not in _DROPPED}
        plain = mask_row({**kept, "execution": ""}, pattern=pattern, replace=number)
        plain["execution"] = execution if own else ""
        normal.append({**plain, "at": float(seq), "seq": seq, "pid": 1})
    return normal


def mask_row(
    value: Mapping[str, object], *, pattern: re.Pattern[str], replace: Callable[[str], str]
) -> Row:
    """Return a mapping without the values that differ each time; hashes are of the masked texts.

    Args:
        value: The mapping, of any JSON values.
        pattern: Matches random ids.
        replace: Returns the replacement of such an id.
    """

    def mask(value: object, name: str) -> object:
        if isinstance(value, str):
            for known, replacement in _TEXTS:
                value = known.sub(replacement, value)
            return pattern.sub(lambda match: replace(match[0]), value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return 1.0 if _MEASURED.search(name) else value
        if isinstance(value, Mapping):
            return mask_row(value, pattern=pattern, replace=replace)
        return [mask(item, name) for item in value] if isinstance(value, Sequence) else value

    if {"text", "sha256"} <= value.keys() and isinstance(value["text"], str):
        text = str(mask(value["text"], "text"))
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        return {**value, "text": text, "chars": len(text), "sha256": digest}
    return {name: item if name == "sha256" else mask(item, name) for name, item in value.items()}


def _renumber(run_ids: Iterable[str], numbered: Collection[str]) -> dict[str, str]:
    """Return new ids for runs that have only a number, numbered in this order."""
    renumbered: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for run_id in run_ids:
        parts = _NUMBERED.fullmatch(run_id) if run_id in numbered else None
        if parts is None:
            continue
        before, sign, name = parts["before"], parts["sign"], parts["name"]
        group = before if sign == ">" else name
        numbers[group] = numbers.get(group, 0) + 1
        renumbered[run_id] = f"{renumbered.get(before, before)}{sign}{name}#{numbers[group]}"
    return renumbered


def _runs(rows: Sequence[Row], mask: Mask) -> list[list[Row]]:
    """Return the events of each run, in an order that does not depend on their times."""
    by_run: dict[object, list[Row]] = {}
    parents: dict[object, object] = {}
    for row in rows:
        by_run.setdefault(row["run_id"], []).append(row)
        if row.get("parent_run_id"):
            parents[row["run_id"]] = row["parent_run_id"]
    steps = {run: in_order(events, mask) for run, events in by_run.items()}
    own = {run: text_of(events, mask) for run, events in steps.items()}
    inside: dict[object, list[object]] = {}
    for run in steps:
        inside.setdefault(parents.get(run), []).append(run)
    ordered: list[list[Row]] = []

    def key(run: object) -> str:
        return json.dumps([own[run], *sorted(map(key, inside.get(run, ())))])

    def add(run: object) -> None:
        ordered.append(steps[run])
        for child in sorted(inside.get(run, ()), key=key):
            add(child)

    tops = [run for run in steps if parents.get(run) not in steps]
    for run in sorted(tops, key=key):
        add(run)
    return ordered


T = TypeVar("T")


def load_named(name: str, kind: type[T]) -> T:
    """Import an object by its name, ``module:attribute``.

    Raises:
        TypeError: It is not of that kind.
        ImportError: There is no such module.
        AttributeError: It has no such attribute.
    """
    module, _, attribute = name.partition(":")
    value = getattr(import_module(module), attribute)
    if not isinstance(value, kind):
        raise TypeError(f"expected {name} to be of the kind {kind.__name__}, got {value!r}")
    return value


VERSION_FILE = "host-version.txt"
"""The file with the version of the host that the recordings of a folder were made with."""

_STREAM = "golden"
_WAIT_S = 30.0


def golden_faults(
    adapter: Adapter, play: Play, scenario: Scenario, *, golden: Path, folder: Path
) -> list[str]:
    """Return where the recording of a play differs from the one that is kept, as lines.

    Args:
        adapter: The adapter under test; it must not be attached already.
        play: Plays a scenario.
        scenario: The scenario to play.
        golden: The folder of the recordings that are kept.
        folder: An existing folder for stores.
    """
    kept = golden_file(golden, scenario)
    if not kept.exists():
        return [f"there is no recording of {scenario.value}: there is no {kept.name}"]
    lines, _ = record_play(adapter, play, scenario, folder=folder)
    return _differences(kept.read_text().splitlines(), lines)


def replay_faults(
    adapter: Adapter, play: Play, scenario: Scenario, *, golden: Path, folder: Path
) -> list[str]:
    """Return where a replay of the kept recording stores other rows than a play, as lines.

    The arguments are those of ``golden_faults``.
    """
    _, stored = record_play(adapter, play, scenario, folder=folder)
    settings = Settings(store=folder / "replayed.sqlite", learner=Learner.OFF)
    replayed = replay_file(
        golden_file(golden, scenario), settings, progress=lambda _done, _of: None
    )
    refused = [f"line {bad.number}: {bad.reason}" for bad in replayed.bad]
    refused += [f"refused: {why}" for why in replayed.refused]
    return refused or _differences(stored, outline(recorded_in(settings)))


def write_golden(adapter: Adapter, play: Play, *, golden: Path, cannot: Sequence[str] = ()) -> int:
    """Record every scenario anew that the host can play; return their number."""
    golden.mkdir(parents=True, exist_ok=True)
    scenarios = [scenario for scenario in Scenario if scenario not in cannot]
    for scenario in scenarios:
        with tempfile.TemporaryDirectory() as folder:
            lines, _ = record_play(adapter, play, scenario, folder=Path(folder))
        golden_file(golden, scenario).write_text("".join(f"{line}\n" for line in lines))
    (golden / VERSION_FILE).write_text(f"{host_version(adapter)}\n")
    return len(scenarios)


def golden_file(golden: Path, scenario: Scenario) -> Path:
    """Return the file of a scenario's recording."""
    return golden / f"{scenario.value}.jsonl"


def golden_version(golden: Path) -> str:
    """Return the version of the host that recordings were made with; empty if there are none."""
    file = golden / VERSION_FILE
    return file.read_text().strip() if file.exists() else ""


def host_version(adapter: Adapter) -> str:
    """Return the installed version of an adapter's host; empty if it is no installed package."""
    packages = metadata.packages_distributions().get(adapter.module.partition(".")[0], [])
    return metadata.version(packages[0]) if packages else ""


def record_play(
    adapter: Adapter, play: Play, scenario: Scenario, *, folder: Path
) -> tuple[list[str], list[str]]:
    """Play a scenario with an adapter; return its recording and an outline of its store, as lines.

    Neither contains values that differ each time.
    """
    settings = Settings(
        store=folder / "played.sqlite",
        record=folder / "played.jsonl",
        stream=_STREAM,
        learner=Learner.FLUSH,
        content=Content.REDACTED,
    )
    runtime = start({}, settings)
    if runtime is None:
        raise RuntimeError("tau-live did not start; see its log")
    detach = adapter.attach(lambda: runtime)
    try:
        play(scenario)
    finally:
        detach()
        runtime.flush(_WAIT_S)
        runtime.close(_WAIT_S)
    recorded = (folder / "played.jsonl").read_text().splitlines()
    rows = normalise((json.loads(line) for line in recorded), stream=_STREAM)
    lines = [  # without empty fields: reading an event fills them in
        json.dumps(
            {name: value for name, value in row.items() if value not in (None, "", [], {})},
            ensure_ascii=False,
        )
        for row in rows
    ]
    return lines, outline(recorded_in(settings))


def outline(recorded: Sequence[Recorded]) -> list[str]:
    """Return the stored runs as sorted lines without times and ids."""
    runs = {stored.rollout.rollout_id: stored for stored in recorded}
    outlines: list[tuple[str, list[str]]] = []
    for stored in recorded:
        rollout = stored.rollout
        parent = runs.get(rollout.parent_id or "")
        head = {
            "name": RANDOM.sub("id", rollout.name),
            "status": rollout.status,
            "reason": rollout.reason,
            "inside": None if parent is None else parent.rollout.name,
            "session": rollout.session_id is not None,
            "attempts": [[attempt.number, attempt.status] for attempt in stored.attempts],
            "turns": rollout.metadata.get("turns"),
            "usage": rollout.metadata.get("usage"),
        }
        steps = sorted(
            json.dumps([span.attempt, span.kind, RANDOM.sub("id", span.name), span.status])
            for span in stored.spans
        )
        outlines.append((json.dumps(head, sort_keys=True), [f"  {step}" for step in steps]))
    return [line for head, steps in sorted(outlines) for line in (head, *steps)]


def _differences(expected: Sequence[str], actual: Sequence[str]) -> list[str]:
    lines = [*difflib.unified_diff(expected, actual, "kept", "today", lineterm="", n=0)]
    return lines[:40]


def cannot_of(play: str) -> list[str]:
    """Return the scenarios that a play, such as ``package.module:play_code``, cannot play.

    ``CANNOT`` of its module applies to each of the module's plays. Further scenarios that one of
    them cannot play are under its own name, without ``play_``: ``CANNOT_CODE`` for ``play_code``.
    """
    name, _, function = play.partition(":")
    own = f"CANNOT_{function.removeprefix('play_').upper()}"
    module = import_module(name)
    return [scenario for table in ("CANNOT", own) for scenario in getattr(module, table, ())]


def main() -> None:
    """Record every scenario of a play anew, but those that its module lists as ``CANNOT``."""
    parser = ArgumentParser(
        prog="python -m tau_live.testing",
        description="Play every scenario on an adapter's host, and store the recordings.",
        epilog="Scenarios in a module's CANNOT are skipped; for its play_code, CANNOT_CODE too. "
        "Example: python -m tau_live.testing theirs:ADAPTER tests.their_play:play golden",
    )
    parser.add_argument("adapter", help="module:name of the adapter")
    parser.add_argument("play", help="module:name of what plays its scenarios")
    parser.add_argument("golden", type=Path, help="folder of the recordings")
    options = parser.parse_args()
    for name in (options.adapter, options.play):
        if not re.fullmatch(r"[\w.]+:\w+", name):
            parser.error(f"expected module:name, got {name!r}")
    try:
        adapter = load_named(options.adapter, Adapter)
        play: Play = load_named(options.play, object)  # type: ignore[assignment]  # checked below
        cannot = cannot_of(options.play)
        options.golden.mkdir(parents=True, exist_ok=True)
    except (ImportError, AttributeError, TypeError, OSError) as error:
        parser.error(str(error))
    if not callable(play):
        parser.error(f"expected {options.play} to be a function, got {play!r}")
    number = write_golden(adapter, play, golden=options.golden, cannot=cannot)
    sys.stdout.write(f"{number} scenarios recorded in {options.golden}\n")
