"""The reference host's own event JSON (Tau, ``--json-events``) as events.

Tau tells its events without ids, in one sequence for each of its processes, and in this order: what
its safety policy says of the user's message, that message, ``agent_start``, the turns, and
``agent_end`` if the run succeeded; no other end is told. So runs are numbered within the stream,
and how the others ended is inferred from what was last heard of them, the first that applies:

================================================  =========  ==============
what was last heard                               status     reason
================================================  =========  ==============
``agent_end``                                     ok         completed
a safety rule blocked and nothing came after it   cancelled  safety_blocked
the cost reached the budget                       limit      limit
a circuit breaker, escalation or termination      error      error
the next run                                      error      error
the end of the stream                             unknown    abandoned
================================================  =========  ==============

A run that the host left for the next one was cancelled, timed out, out of turns or without an
answer from its provider; Tau does not tell these apart, and all but the first are failures.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from tau_live.events import Content, Event, Fidelity, Reason, RunEnd, RunStart, Status
from tau_live_hooks import tau_records as told
from tau_live_hooks.tau_steps import Run, Verdict, step, verdict

HOST = "tau"

_HELD = 64
_LAST_SECOND = 253_402_300_799.0
_MILLISECONDS_FROM = 1e11
_ANYWHERE = (
    told.UnknownEvent,
    told.ToolHealthReport,
    told.ToolExecutionEnd,
    told.CostUpdated,
    told.CostBudgetAlert,
    told.CircuitBreakerTripped,
    told.FailureDetected,
    told.RecoveryAttempted,
    told.EscalationRequired,
    told.GracefulTermination,
)
"""What may be told before a run's start or after its end."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """A line, when it was told, and those of its fields that have no place of their own."""

    record: told.Line
    at: float
    stamped: bool
    rest: dict[str, object]

    @property
    def is_user(self) -> bool:
        return isinstance(self.record, told.MessageAdded) and self.record.role == "user"

    @property
    def is_inbound(self) -> bool:
        """Whether it is what the safety policy says of a user's message, which then follows."""
        return (
            isinstance(self.record, told.SafetyPolicyApplied)
            and self.record.stage == "inbound_message"
        )

    @property
    def begins(self) -> bool:
        """Whether it can be told of a new run alone."""
        return self.is_inbound or isinstance(self.record, told.AgentStart)

    @property
    def may_precede_start(self) -> bool:
        return self.is_user or self.begins or isinstance(self.record, _ANYWHERE)


class TauStream:
    """Turns one process's lines into events, run by run; no line makes it raise.

    Attributes:
        stream: The name of the stream, which is the session of its runs; a run's key is
            ``{stream}#{ordinal}``, the ordinal from 1.
        bad: How many lines were not understood, by what is wrong with them; they are left out.
    """

    def __init__(self, stream: str, *, clock: Callable[[], float]) -> None:
        """Begin a stream; ``clock`` is asked once for each line that tells no time of its own."""
        self.stream = stream
        self.bad: dict[str, int] = {}
        self._clock = clock
        self._run: Run | None = None
        self._runs = 0
        self._seq = 0
        self._held: list[_Heard] = []
        self._out: list[Event] = []

    def events(self, line: bytes | str | dict[str, object]) -> list[Event]:
        """Return what one more line tells: often one event, sometimes several, or none yet."""
        blank = not isinstance(line, dict) and not line.strip()
        heard = None if blank else self._heard(line)
        if heard is not None:
            if self._held and not heard.is_user:
                self._settle(heard)
            self._take(heard)
        return self._said()

    def end(self) -> list[Event]:
        """Return what is to be said at the end of the stream: a run that is open is abandoned."""
        self._settle(None)
        if self._run is not None and not self._run.ended:
            self._close(self._run, next_came=False)
        return self._said()

    def _said(self) -> list[Event]:
        said, self._out = self._out, []
        return said

    def _heard(self, line: bytes | str | dict[str, object]) -> _Heard | None:
        """Return what a line holds, or ``None`` if it is none of the host's, which is counted."""
        read = _read(line)
        if not isinstance(read, str) and isinstance(read[0], told.AgentEnd):
            read = (
                read if self._run is not None and not self._run.ended else "agent_end without a run"
            )
        if isinstance(read, str):
            self.bad[read] = self.bad.get(read, 0) + 1
            return None
        record, fields = read
        at = _time_of(fields)
        named = {"type", *record.__struct_fields__}
        rest = {name: value for name, value in fields.items() if name not in named}
        return _Heard(record, self._clock() if at is None else at, at is not None, rest)

    def _settle(self, following: _Heard | None) -> None:
        """Decide whose the held messages are: the open run's, or those of the next one.

        A user's message within a run that has started is the next prompt after a run without an
        end, or one that the host wrote itself; what follows it tells.
        """
        held, self._held = self._held, []
        run = self._run
        if not held or run is None:
            return
        next_came = following is None or following.begins
        if following is not None and isinstance(following.record, told.TurnStart):
            next_came = run.turn is not None and following.record.turn <= run.turn
        if next_came:
            self._close(run, next_came=True)
            run = self._open(held[0])
        for heard in held:
            self._say_step(run, heard, {} if next_came else {"synthetic": True})

    def _take(self, heard: _Heard) -> None:
        run = self._run
        if heard.is_user and run is not None and run.started and not run.ended:
            if not run.replanning:
                self._hold(run, heard)
                return
            self._say_step(run, heard, {"synthetic": True})
            return
        run = self._run_of(heard)
        if isinstance(heard.record, told.AgentStart):
            self._start(run, heard.at, heard.rest, Fidelity.NATIVE)
        elif isinstance(heard.record, told.AgentEnd):
            self._note(run, heard)
            raw = {"new_messages": heard.record.new_messages, **heard.rest}
            self._end(run, Verdict(Status.OK, Reason.COMPLETED, None), raw)
        else:
            self._say_step(run, heard, {})
            if heard.is_inbound and run.blocked:  # the prompt is refused: there will be no start
                self._close(run, next_came=False)

    def _hold(self, run: Run, heard: _Heard) -> None:
        self._held.append(heard)
        if len(self._held) == _HELD:  # so many prompts in a row without a start are none
            held, self._held = self._held, []
            for one in held:
                self._say_step(run, one, {"synthetic": True})

    def _run_of(self, heard: _Heard) -> Run:
        """Return the run that a line belongs to: the open one, or one that begins with it."""
        run = self._run
        if run is not None and run.ended and isinstance(heard.record, _ANYWHERE):
            return run
        if run is not None and not run.ended and run.started and heard.begins:
            self._close(run, next_came=True)
        if run is None or run.ended:
            run = self._open(heard)
        if not run.started and not heard.may_precede_start:  # its start was lost, or before us
            self._start(run, heard.at, {}, Fidelity.INFERRED)
        return run

    def _open(self, heard: _Heard) -> Run:
        self._runs += 1
        self._run = Run(
            f"{self.stream}#{self._runs}",
            began_at=heard.at,
            stamped=heard.stamped,
            last_at=heard.at,
        )
        return self._run

    def _note(self, run: Run, heard: _Heard) -> None:
        if not run.ended:
            run.last_at, run.last_type = heard.at, heard.record.type
            run.stamped = run.stamped and heard.stamped

    def _say_step(self, run: Run, heard: _Heard, more: dict[str, object]) -> None:
        self._note(run, heard)
        kind, fields = step(heard.record, run)
        raw = {**heard.rest, **fields.get("raw", {}), **more}
        self._say(kind, run, heard.at, {**fields, "raw": raw})

    def _say(self, kind: type[Event], run: Run, at: float, fields: Mapping[str, Any]) -> None:
        self._seq += 1
        envelope: dict[str, Any] = {"turn": run.turn, **fields}
        self._out.append(
            kind(
                host=HOST,
                run_id=run.run_id,
                session_id=self.stream,
                at=at,
                seq=self._seq,
                **envelope,
            )
        )

    def _start(self, run: Run, at: float, raw: dict[str, object], fidelity: Fidelity) -> None:
        run.started = True
        run.last_at = at
        fields = {
            "input": None if run.prompt is None else Content(text=run.prompt),
            "trigger": None if run.prompt is None else "user",
            "fidelity": fidelity,
            "raw": raw,
        }
        self._say(RunStart, run, at, fields)

    def _close(self, run: Run, *, next_came: bool) -> None:
        self._end(run, verdict(run, next_came=next_came), {"last_type": run.last_type})

    def _end(self, run: Run, how: Verdict, raw: dict[str, object]) -> None:
        if not run.started:
            self._start(run, run.began_at, {}, Fidelity.INFERRED)
        run.ended = True
        told_so = how.reason is Reason.COMPLETED
        fields = {
            "turn": None,
            "output": None if run.reply is None else Content(text=run.reply),
            "usage": run.usage,
            "cost_usd": run.cost_usd,
            "turns": run.turns,
            "duration_ms": (run.last_at - run.began_at) * 1e3 if run.stamped else None,
            "status": how.status,
            "reason": how.reason,
            "error": how.error,
            "fidelity": Fidelity.NATIVE if told_so else Fidelity.INFERRED,
            "raw": raw,
        }
        self._say(RunEnd, run, run.last_at, fields)


def _read(line: bytes | str | dict[str, object]) -> tuple[told.Line, dict[str, object]] | str:
    """Return the record and all fields of a line, or what is wrong with it."""
    try:
        data = msgspec.json.encode(line) if isinstance(line, dict) else line
        fields = msgspec.json.decode(data)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return "not JSON"
    if not isinstance(fields, dict):
        return "not an object"
    type_ = fields.get("type")
    if not isinstance(type_, str) or type_ not in told.TYPES:
        return "unknown type"
    try:
        return told.read(fields), fields
    except (msgspec.ValidationError, RecursionError):
        return f"malformed {type_}"


def _time_of(fields: Mapping[str, object]) -> float | None:
    """Return the epoch seconds that a line tells, if it tells them in one of the usual ways."""
    for name in ("timestamp_unix_ms", "timestamp", "ts"):
        seconds = _seconds(fields.get(name))
        if seconds is not None:
            in_ms = name == "timestamp_unix_ms" or seconds > _MILLISECONDS_FROM
            seconds = seconds / 1e3 if in_ms else seconds
            if 0.0 < seconds <= _LAST_SECOND:
                return seconds
    return None


def _seconds(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e18 else None
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        found = datetime.fromisoformat(value)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
