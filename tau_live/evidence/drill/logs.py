"""Both logs of a drill: what the children wrote as they went, and what the operator did."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from tau_live.evidence.artifacts import ArtifactError, Fault, as_kind, parse, seconds_of
from tau_live.evidence.drill.child import ENDED, OPENED, STARTED
from tau_live.evidence.drill.documents import Drill, EventLine, OperatorEntry, StoreName

EVENTS = "/evidence/events_log_path"
OPERATOR = "/evidence/operator_log_path"

Line = TypeVar("Line", EventLine, OperatorEntry)


class Logs(NamedTuple):
    """The lines of both logs.

    Attributes:
        events: The events log.
        entries: The operator log.
    """

    events: Sequence[EventLine]
    entries: Sequence[OperatorEntry]

    def run_of(self, pid: int) -> OperatorEntry | None:
        """Return the run of a process."""
        runs = (entry for entry in self.entries if (entry.kind, entry.pid) == ("run", pid))
        return next(runs, None)

    def events_of(self, pid: int) -> list[EventLine]:
        """Return the lines of a process."""
        return [event for event in self.events if event.pid == pid]

    def entries_of(self, store: StoreName, kind: str) -> list[OperatorEntry]:
        """Return the entries about a store, of one kind."""
        return [entry for entry in self.entries if (entry.store, entry.kind) == (store, kind)]


def heads(logs: Logs, store: StoreName) -> list[tuple[int, str]]:
    """Return place and link of the head that each line has, from the first update on."""
    known = []
    for event in logs.events:
        place, _, link = (event.head or "0:").partition(":")
        is_later = event.event not in {STARTED, OPENED}
        if event.store == store and is_later and re.fullmatch("[1-9][0-9]{0,17}", place):
            known.append((int(place), link))
    return known


def logs_of(contents: Mapping[str, bytes], run_id: str) -> tuple[Logs, list[Fault]]:
    """Return both logs, and what is wrong with their lines by themselves."""
    events, faults = _lines(contents["events_log"], EventLine, EVENTS)
    entries, more = _lines(contents["operator_log"], OperatorEntry, OPERATOR)
    faults += more
    foreign = any(event.run_id != run_id for event in events)
    if foreign or any(entry.run_id != run_id for entry in entries):
        text = f"has lines of another drill than {run_id}"
        faults.append(Fault("records_foreign_run", "/evidence", text))
    return Logs(events, entries), faults


def _lines(content: bytes, kind: type[Line], at: str) -> tuple[list[Line], list[Fault]]:
    lines: list[Line] = []
    faults: list[Fault] = []
    for number, text in enumerate(content.splitlines(), 1):
        try:
            lines.append(as_kind(parse(text), kind))
        except ArtifactError as error:
            message = f"line {number}: {error}"
            faults.append(Fault("records_malformed", at, message))
    return lines, faults


def log_faults(logs: Logs, drill: Drill) -> Iterator[Fault]:
    """Yield where the two logs contradict each other, or the clock."""
    ends = [entry.ended_at for entry in logs.entries]
    begins_late = any(entry.at > entry.ended_at for entry in logs.entries)
    if begins_late or ends != sorted(ends):
        yield Fault("clock_order", OPERATOR, "its entries are not in the order of time")
    if ends and seconds_of(drill.generated_at) < int(max(ends)):
        yield Fault("clock_order", "/generated_at", "is before the end of the last command")
    runs = [entry for entry in logs.entries if entry.kind == "run"]
    pids = [entry.pid for entry in runs]
    if len(set(pids)) != len(pids):
        yield Fault("not_resumed", OPERATOR, "two commands have one process id")
    if {event.pid for event in logs.events} - {*pids}:
        text = "has lines of a process that the operator log does not have"
        yield Fault("records_foreign_run", EVENTS, text)
    if len({event.recording_sha256 for event in logs.events}) > 1:
        text = "its processes have trained on several recordings"
        yield Fault("inputs_mismatch", EVENTS, text)
    for run in runs:
        yield from _run_faults(run, logs.events_of(run.pid))


def _run_faults(run: OperatorEntry, events: Sequence[EventLine]) -> Iterator[Fault]:
    """Yield where the output of a command is not what its process wrote into the events log."""
    name = f"{run.store}, process {run.pid}"
    times = [run.at, *(event.at for event in events), run.ended_at]
    if times != sorted(times):
        yield Fault("clock_order", EVENTS, f"{name}: its lines are not in the order of time")
    if any(event.store != run.store for event in events):
        yield Fault("records_foreign_run", EVENTS, f"{name}: it has lines about another store")
    printed = [line for line in (run.output or "").splitlines() if line.startswith("{")]
    written = [msgspec.json.encode(event).decode() for event in events]
    # one that was killed may have died between writing a line and printing it
    rest = written[len(printed) :]
    if written[: len(printed)] != printed or len(rest) > (run.exit_code < 0):
        yield Fault("records_count_mismatch", EVENTS, f"{name}: it has printed other lines")
    names = [event.event for event in events]
    has_ended = names[:1] == [STARTED] and names[-1:] == [ENDED]
    if has_ended != (run.exit_code == 0):
        text = f"{name}: its exit code is {run.exit_code}, and its last line {names[-1:]}"
        yield Fault("records_count_mismatch", EVENTS, text)
