"""Recordings of each scenario that are kept, compared with what is recorded today, and replayed.

``python -m tau_live.testing ADAPTER PLAY FOLDER`` makes them all, for example::

    python -m tau_live.testing tau_live_hooks.pydantic_ai:ADAPTER \
        tests.hooks.conformance.pydantic_ai_play:play tests/hooks/golden/pydantic-ai

What is left is the same whenever the same scenario is played, in whichever order threads were.
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
Shown: TypeAlias = Callable[[Row], Row]
"""Returns an event without what is different each time."""

_BEGAN_BEFORE, _WHOLE, _GOES_ON = range(3)


def in_order(rows: Sequence[Row], shown: Shown) -> list[Row]:
    """Return a run's events, with tools and steps that may have run at once one after the other.

    Of tools and steps with nothing else between them nobody can say whether one waited for the
    other. Those come first that began before, last those that go on; else they are in the order in
    which the model requested tools, and then in that of their texts. What happens inside of one
    stays there: a request inside of a tool, or a tool that names the step it is in.

    Args:
        rows: The events, as they came.
        shown: Returns one without what is different each time.
    """
    spans = _spans_of_tools(rows)
    call_order: dict[str, int] = {}
    ordered: list[Row] = []
    for movable, together in groupby(rows, key=lambda row: _strand_of(row, spans) is not None):
        stretch = [*together]
        if movable:
            ordered += _order_stretch(stretch, spans, call_order, shown)
            continue
        ordered += stretch
        for call in _requested_calls(stretch):
            call_order[call] = len(call_order)
    return ordered


def _order_stretch(
    rows: Sequence[Row],
    spans: Mapping[object, str],
    call_order: Mapping[str, int],
    shown: Shown,
) -> list[Row]:
    """Return tools and steps of a run with nothing else between them, one after the other.

    Args:
        rows: Their events, as they came.
        spans: Of which tool each step is, by its id.
        call_order: The place of each call that a model requested.
        shown: Returns an event without what is different each time.
    """
    own: dict[str, list[Row]] = {}
    for row in rows:
        own.setdefault(_strand_of(row, spans) or "", []).append(row)
    inside: dict[str | None, list[str]] = {}
    for strand in own:
        inside.setdefault(_enclosing_step(strand, own), []).append(strand)

    def whole(strand: str) -> list[Row]:
        began = str(own[strand][0]["event"]).endswith(".start")
        return [*own[strand][:began], *within(strand), *own[strand][began:]]

    def key(strand: str, rows: Sequence[Row]) -> tuple[int, float, str]:
        began = str(own[strand][0]["event"]).endswith(".start")
        ended = str(own[strand][-1]["event"]).endswith(".end")
        state = _WHOLE if began == ended else _GOES_ON if began else _BEGAN_BEFORE
        positions = [call_order.get(str(row.get("call_id")), inf) for row in rows]
        first = min(positions)
        return state, -1.0 if first == inf else first, shown_as(rows, shown)

    def within(around: str | None) -> list[Row]:
        strands = [(strand, whole(strand)) for strand in inside.get(around, ())]
        strands.sort(key=lambda strand: key(*strand))
        return [row for _, rows in strands for row in rows]

    return within(None)


def _enclosing_step(strand: str, own: Mapping[str, Sequence[Row]]) -> str | None:
    """Return the step that something is in: that it names, or whose part it says it is."""
    for row in own[strand]:
        named = row.get("parent_span_id")
        for name in [named] if strand.startswith("step ") else [named, *_texts(row)]:
            if f"step {name}" in own and f"step {name}" != strand:
                return f"step {name}"
    return None


def shown_as(rows: Iterable[Row], shown: Shown) -> str:
    """Return what events say, but for which run's they are, and when and where they happened."""
    return json.dumps(
        [
            shown({name: value for name, value in row.items() if name not in _LEFT_OUT})
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
    """Return the tool or the step that an event is of; ``None`` if it is of neither."""
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
"""What is taken for an id that was made at random."""

_TEXTS = (
    (
        re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"),
        "some time",
    ),
    (re.compile(r"<Task .*", re.DOTALL), "<a task>"),
    (re.compile(r"(?<![\w/:.])(?:/[\w.+@-]+){2,}"), "a path"),
)
_MEASURED = re.compile(r"(?:_ms|_us|_ns|_at|_time|timestamp|duration|latency)$")
_COUNTED = re.compile(r"(?P<before>.+)(?P<sign>[/>])(?P<name>[^/>]+)#\d+", re.DOTALL)
_DROPPED = frozenset({"mono_ns", "host_version", "adapter_version"})


def normalise(rows: Iterable[Row], *, stream: str | None = None) -> list[Row]:
    """Return the events of a play without what is different each time.

    Runs stand one after the other, each followed by those inside it; in each the steps are in their
    order, but tools and steps that may have run at once stand one after the other. Ids made at
    random are numbered, and so are runs that have a number because their host gave them no id.

    Args:
        rows: The events as they were recorded.
        stream: What the ids of such runs are made of: ``name/stream#1``.
    """
    events = [*rows]
    ids = sorted({str(row["run_id"]) for row in events}, key=len, reverse=True)
    counted = [  # those that have only a number: of their stream, or among those inside a run
        run_id
        for run_id in ids
        if (match := _COUNTED.fullmatch(run_id))
        and (match["sign"] == ">" or match["name"] == stream)
    ]
    known = [rf"(?<!\w){re.escape(run_id)}(?!\d)" for run_id in counted]
    pattern = re.compile("|".join([*known, RANDOM.pattern]), re.VERBOSE)
    masked = partial(mask_row, pattern=pattern, named=lambda _: "id")
    ordered = [row for run in _runs(events, masked) for row in run]
    numbers = _counted_anew(dict.fromkeys(str(row["run_id"]) for row in ordered), {*counted})
    random = itertools.count(1)

    def number(text: str) -> str:
        if text not in numbers:
            numbers[text] = f"id-{next(random)}"
        return numbers[text]

    executions: dict[object, str] = {}
    normal: list[Row] = []
    for place, row in enumerate(ordered, 1):
        made_by = row.get("execution")
        execution = executions.setdefault(made_by, f"execution-{len(executions) + 1}")
        kept = {name: value for name, value in row.items() if name not in _DROPPED}
        plain = mask_row({**kept, "execution": ""}, pattern=pattern, named=number)
        within = {"execution": execution if made_by else ""}
        normal.append({**plain, **within, "at": float(place), "seq": place, "pid": 1})
    return normal


def mask_row(
    value: Mapping[str, object], *, pattern: re.Pattern[str], named: Callable[[str], str]
) -> Row:
    """Return a mapping without what is different each time; hashes are of what is left.

    Args:
        value: The mapping; whatever is inside of it, too, may be any JSON value.
        pattern: What is an id that was made at random.
        named: What stands for such an id.
    """

    def mask(value: object, name: str) -> object:
        if isinstance(value, str):
            for known, instead in _TEXTS:
                value = known.sub(instead, value)
            return pattern.sub(lambda match: named(match[0]), value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return 1.0 if _MEASURED.search(name) else value
        if isinstance(value, Mapping):
            return mask_row(value, pattern=pattern, named=named)
        return [mask(item, name) for item in value] if isinstance(value, Sequence) else value

    if {"text", "sha256"} <= value.keys() and isinstance(value["text"], str):
        text = str(mask(value["text"], "text"))
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        return {**value, "text": text, "chars": len(text), "sha256": digest}
    return {name: item if name == "sha256" else mask(item, name) for name, item in value.items()}


def _counted_anew(run_ids: Iterable[str], counted: Collection[str]) -> dict[str, str]:
    """Return the ids of runs that have only a number, with numbers in the order given."""
    renumbered: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for run_id in run_ids:
        parts = _COUNTED.fullmatch(run_id) if run_id in counted else None
        if parts is None:
            continue
        before, sign, name = parts["before"], parts["sign"], parts["name"]
        among = before if sign == ">" else name
        numbers[among] = numbers.get(among, 0) + 1
        renumbered[run_id] = f"{renumbered.get(before, before)}{sign}{name}#{numbers[among]}"
    return renumbered


def _runs(rows: Sequence[Row], shown: Shown) -> list[list[Row]]:
    """Return the events of each run, in an order that does not depend on when they came."""
    by_run: dict[object, list[Row]] = {}
    parents: dict[object, object] = {}
    for row in rows:
        by_run.setdefault(row["run_id"], []).append(row)
        if row.get("parent_run_id"):
            parents[row["run_id"]] = row["parent_run_id"]
    steps = {run: in_order(events, shown) for run, events in by_run.items()}
    own = {run: shown_as(events, shown) for run, events in steps.items()}
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
    """Return what is found under a name.

    Raises:
        TypeError: It is not of that kind.
        ImportError: There is no such module.
        AttributeError: It has no such attribute.
    """
    module, _, attribute = name.partition(":")
    value = getattr(import_module(module), attribute)
    if not isinstance(value, kind):
        raise TypeError(f"expected {name} to be a {kind.__name__}, got {value!r}")
    return value


VERSION_FILE = "host-version.txt"
"""Holds the version of the host that the recordings of a folder were made with."""

_STREAM = "golden"
_WAIT_S = 30.0


def golden_faults(
    adapter: Adapter, play: Play, scenario: Scenario, *, golden: Path, folder: Path
) -> list[str]:
    """Return where the recording of a play differs from the one that is kept, as lines.

    Args:
        adapter: What is looked at; it must not be attached already.
        play: Plays a scenario.
        scenario: Which one.
        golden: The folder of the recordings that are kept.
        folder: Where stores may be made.
    """
    kept = golden_file(golden, scenario)
    if not kept.exists():
        return [f"there is no recording of {scenario.value}: there is no {kept.name}"]
    lines, _ = made_of(adapter, play, scenario, folder=folder)
    return _differences(kept.read_text().splitlines(), lines)


def replay_faults(
    adapter: Adapter, play: Play, scenario: Scenario, *, golden: Path, folder: Path
) -> list[str]:
    """Return where a replay of the kept recording stores something else than a play, as lines.

    The arguments are those of ``golden_faults``.
    """
    _, stored = made_of(adapter, play, scenario, folder=folder)
    settings = Settings(store=folder / "replayed.sqlite", learner=Learner.OFF)
    replayed = replay_file(
        golden_file(golden, scenario), settings, progress=lambda _done, _of: None
    )
    refused = [f"line {bad.number}: {bad.reason}" for bad in replayed.bad]
    refused += [f"refused: {why}" for why in replayed.refused]
    return refused or _differences(stored, outline(recorded_in(settings)))


def write_golden(adapter: Adapter, play: Play, *, golden: Path, cannot: Sequence[str] = ()) -> int:
    """Record every scenario anew, but those that the host cannot play; return how many it were."""
    golden.mkdir(parents=True, exist_ok=True)
    scenarios = [scenario for scenario in Scenario if scenario not in cannot]
    for scenario in scenarios:
        with tempfile.TemporaryDirectory() as folder:
            lines, _ = made_of(adapter, play, scenario, folder=Path(folder))
        golden_file(golden, scenario).write_text("".join(f"{line}\n" for line in lines))
    (golden / VERSION_FILE).write_text(f"{host_version(adapter)}\n")
    return len(scenarios)


def golden_file(golden: Path, scenario: Scenario) -> Path:
    """Return where the recording of a scenario is kept."""
    return golden / f"{scenario.value}.jsonl"


def golden_version(golden: Path) -> str:
    """Return the version of the host that recordings were made with; empty if there are none."""
    file = golden / VERSION_FILE
    return file.read_text().strip() if file.exists() else ""


def host_version(adapter: Adapter) -> str:
    """Return the installed version of an adapter's host; empty if it is no installed package."""
    packages = metadata.packages_distributions().get(adapter.module.partition(".")[0], [])
    return metadata.version(packages[0]) if packages else ""


def made_of(
    adapter: Adapter, play: Play, scenario: Scenario, *, folder: Path
) -> tuple[list[str], list[str]]:
    """Play a scenario with an adapter, and return what was recorded and stored, as lines.

    Neither has anything in it that is different each time.
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
    lines = [  # without the fields that say nothing: reading an event fills them in
        json.dumps(
            {name: value for name, value in row.items() if value not in (None, "", [], {})},
            ensure_ascii=False,
        )
        for row in rows
    ]
    return lines, outline(recorded_in(settings))


def outline(recorded: Sequence[Recorded]) -> list[str]:
    """Return what was stored of runs, as sorted lines without times and ids."""
    runs = {stored.rollout.rollout_id: stored for stored in recorded}
    described: list[tuple[str, list[str]]] = []
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
        described.append((json.dumps(head, sort_keys=True), [f"  {step}" for step in steps]))
    return [line for head, steps in sorted(described) for line in (head, *steps)]


def _differences(expected: Sequence[str], actual: Sequence[str]) -> list[str]:
    lines = [*difflib.unified_diff(expected, actual, "kept", "today", lineterm="", n=0)]
    return lines[:40]


def cannot_of(play: str) -> list[str]:
    """Return the scenarios that a play, such as ``package.module:play_code``, cannot play.

    ``CANNOT`` of its module holds for each of the module's plays. What one of them cannot play
    besides stands under its own name, without ``play_``: ``CANNOT_CODE`` is of ``play_code``.
    """
    name, _, function = play.partition(":")
    own = f"CANNOT_{function.removeprefix('play_').upper()}"
    module = import_module(name)
    return [scenario for table in ("CANNOT", own) for scenario in getattr(module, table, ())]


def main() -> None:
    """Record every scenario of a play anew, but those that its module says it cannot play."""
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
    module = import_module(options.play.partition(":")[0])
    number = write_golden(
        load_named(options.adapter, Adapter),
        getattr(module, options.play.partition(":")[2]),
        golden=options.golden,
        cannot=cannot_of(options.play),
    )
    sys.stdout.write(f"{number} scenarios recorded in {options.golden}\n")
