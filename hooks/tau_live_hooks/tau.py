"""The reference host's own event JSON (Tau, ``--json-events``) as events.

Tau reports its events without ids, in one sequence for each of its processes, and in this order:
the safety policy's verdict on the user's message, that message, ``agent_start``, the turns, and
``agent_end`` if the run succeeded; no other end is reported. So runs are numbered within the
stream, and the ends of the others are inferred from their last lines, by the first rule that
applies:

================================================  =========  ==============
last lines                                        status     reason
================================================  =========  ==============
``agent_end``                                     ok         completed
a safety rule blocked and nothing came after it   cancelled  safety_blocked
the cost reached the budget                       limit      limit
a circuit breaker, escalation or termination      error      error
the next run                                      error      error
the end of the stream                             unknown    abandoned
================================================  =========  ==============

A run that the host left for the next one was cancelled, timed out, out of turns or without an
answer from its provider; Tau does not distinguish these, and all but the first are failures.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import singledispatch
from typing import Annotated, Any, TypeAlias

import msgspec

from tau_live.core.events import (
    Content,
    Context,
    ErrorInfo,
    Event,
    Fidelity,
    Fields,
    Message,
    ModelEnd,
    Policy,
    Retry,
    RunEnd,
    RunStart,
    Status,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnStart,
)
from tau_live.core.hookspecs import Register, Translator, hookimpl
from tau_live.core.records import Reason
from tau_live.core.sanitize import JsonObject

_REMEMBERED = 4_096


@dataclass(slots=True)
class Run:
    """The state of a run.

    Attributes:
        run_id: ``{stream}#{ordinal}``.
        began_at: Epoch seconds of its first line.
        stamped: Whether that time is the host's own.
        last_at: Epoch seconds of its last line so far.
        last_type: That line's type.
        started: Whether its start was reported.
        ended: Whether its end was reported.
        prompt: The last of the user's messages before the start.
        reply: The last of the assistant's messages.
        turn: The latest turn.
        turns: The number of turns that started.
        messages: The number of messages that were added.
        usage: Sums over the turns.
        cost_usd: Sum over the turns; ``None`` if none is known.
        replanning: Whether the next message of the user will be one the host writes itself.
        blocked: Whether a safety rule blocked, and nothing has come after it.
        over_budget: Whether the cost reached the budget.
        gave_up: The host's error when it gave up, if it did.
        names: The number of uses of each span name; only the newest are remembered.
        tools: The span and turn of each call that is open; only the newest are remembered.
    """

    run_id: str
    began_at: float
    stamped: bool
    last_at: float
    last_type: str = ""
    started: bool = False
    ended: bool = False
    prompt: str | None = None
    reply: str | None = None
    turn: int | None = None
    turns: int = 0
    messages: int = 0
    usage: dict[str, float] = field(default_factory=dict)
    cost_usd: float | None = None
    replanning: bool = False
    blocked: bool = False
    over_budget: bool = False
    gave_up: ErrorInfo | None = None
    names: dict[str, int] = field(default_factory=dict)
    tools: dict[str, tuple[str, int | None]] = field(default_factory=dict)

    def span(self, name: str) -> str:
        """Return an id for a span of this name, unlike any before it in this run."""
        number = self.names.pop(name, 0) + 1
        self.names[name] = number
        if len(self.names) > _REMEMBERED:
            del self.names[next(iter(self.names))]
        return name if number == 1 else f"{name}#{number}"

    def turn_span(self, turn: int | None) -> str | None:
        """Return the id of a turn's span, if it is known."""
        number = self.names.get(f"agent.turn.{turn}", 0)
        return None if not number else f"agent.turn.{turn}" + f"#{number}" * (number > 1)


def verdict(run: Run, *, next_came: bool) -> dict[str, Any]:
    """Return how a run ended, from its last lines before the next run or the stream's end."""
    if run.blocked:
        return {"status": Status.CANCELLED, "reason": Reason.SAFETY_BLOCKED}
    if run.over_budget:
        return {"status": Status.LIMIT, "reason": Reason.LIMIT}
    error = run.gave_up
    if error is None and next_came:
        error = ErrorInfo(type="run_not_completed", message="the next run came", fatal=True)
    if error is not None:
        return {"status": Status.ERROR, "reason": Reason.ERROR, "error": error}
    return {"status": Status.UNKNOWN, "reason": Reason.ABANDONED}


Step: TypeAlias = tuple[type[Event], dict[str, Any]]
"""An event to be made: its class and its fields besides the envelope's beginning."""

_COUNT = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_AMOUNT = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
_TEXTS = tuple[str, ...]
_Field: TypeAlias = tuple[str, Any] | tuple[str, Any, Any]

_FIELDS: Mapping[str, list[_Field]] = {
    "agent_start": [],  # the loop begins; the user's message came before
    "agent_end": [("new_messages", _COUNT)],  # the run succeeded
    "turn_start": [("turn", _COUNT)],
    "turn_end": [
        ("turn", _COUNT),
        ("tool_results", _COUNT),
        ("request_duration_ms", _AMOUNT),
        ("usage", dict[str, _AMOUNT] | None, None),
        ("finish_reason", str | None, None),
    ],
    "message_added": [("role", str), ("text", str), ("tool_calls", _COUNT, 0)],
    "tool_execution_start": [("tool_call_id", str), ("tool_name", str), ("arguments", Any, None)],
    "tool_execution_end": [
        ("tool_call_id", str),
        ("tool_name", str),
        ("is_error", bool),
        ("content", Any, None),
    ],
    # all tools of a turn failed, and the host asks for another plan
    "replan_triggered": [("turn", _COUNT), ("reason", str)],
    # a model has answered, at this cost
    "cost_updated": [
        ("turn", _COUNT),
        ("turn_cost_usd", _AMOUNT),
        ("cumulative_cost_usd", _AMOUNT),
        ("budget_usd", _AMOUNT | None, None),
    ],
    # a share of the budget is used up
    "cost_budget_alert": [
        ("turn", _COUNT),
        ("threshold_percent", _COUNT),
        ("cumulative_cost_usd", _AMOUNT),
        ("budget_usd", _AMOUNT),
    ],
    # a safety rule matched something
    "safety_policy_applied": [
        ("stage", str),
        ("mode", str),
        ("blocked", bool),
        ("matched_rules", _TEXTS, ()),
        ("reason_codes", _TEXTS, ()),
    ],
    "tool_health_report": [],
    # a tool is not called any more
    "circuit_breaker_tripped": [("tool_name", str), ("reason", str, "")],
    # the conversation was shortened
    "context_compaction_triggered": [("messages_before", _COUNT), ("messages_after", _COUNT)],
    "failure_detected": [],  # the host noticed that it is stuck
    "recovery_attempted": [("attempt", _COUNT)],  # it tries to get on
    "escalation_required": [("message", str, "")],  # it wants somebody's help
    "graceful_termination": [("summary", str, "")],  # it gives up
    "unknown_event": [],  # something that the host does not show in its JSON
}
"""The fields of a line by its type, each with its default where it may be missing.

Fields that are not named here are no error: they are what newer versions of the host add.
"""

_LINES: Mapping[str, type[msgspec.Struct]] = {
    type_: msgspec.defstruct(type_, fields, tag_field="type", frozen=True)
    for type_, fields in _FIELDS.items()
}
"""The class of every line by its type; it validates the line as it comes in."""


@singledispatch
def step(record: Any, run: Run) -> Step:
    """Return the event of a line, and note in the run what its end will depend on.

    A line that has no event of its own becomes a ``context`` event that names it.
    """
    type_ = _type_of(record)
    return Context, {"op": type_, "span_id": run.span(f"agent.{type_}")}


def _type_of(record: Any) -> str:
    return str(record.__struct_config__.tag)


def _clear_flags(run: Run) -> None:
    run.blocked = run.replanning = False


def _json(value: object) -> Content:
    return Content(text=json.dumps(value, ensure_ascii=False, separators=(",", ":")))


@step.register(_LINES["turn_start"])
def _(record: Any, run: Run) -> Step:
    _clear_flags(run)
    run.gave_up = None
    run.turn = record.turn
    run.turns += 1
    return TurnStart, {"span_id": run.span(f"agent.turn.{record.turn}")}


@step.register(_LINES["turn_end"])
def _(record: Any, run: Run) -> Step:
    run.blocked = False
    for name, count in (record.usage or {}).items():
        run.usage[name] = run.usage.get(name, 0.0) + count
    span_id = run.turn_span(record.turn)
    return TurnEnd, {
        "turn": record.turn,
        "span_id": span_id or run.span(f"agent.turn.{record.turn}"),
        "usage": record.usage or {},
        "tool_calls": record.tool_results,
        "finish_reason": record.finish_reason,
        "duration_ms": record.request_duration_ms,
        "status": Status.OK,
        "fidelity": Fidelity.NATIVE if span_id else Fidelity.END_ONLY,
    }


@step.register(_LINES["message_added"])
def _(record: Any, run: Run) -> Step:
    _clear_flags(run)
    if record.role == "user" and not run.started:
        run.prompt = record.text
    if record.role == "assistant":
        run.reply = record.text
    index = run.messages
    run.messages += 1
    return Message, {
        "span_id": f"message.added.{index}",
        "parent_span_id": run.turn_span(run.turn),
        "role": record.role,
        "content": Content(text=record.text),
        "tool_calls": record.tool_calls,
        "index": index,
    }


@step.register(_LINES["tool_execution_start"])
def _(record: Any, run: Run) -> Step:
    _clear_flags(run)
    span_id = run.span(record.tool_call_id or f"tool.{record.tool_name}")
    run.tools.pop(record.tool_call_id, None)
    run.tools[record.tool_call_id] = (span_id, run.turn)
    if len(run.tools) > _REMEMBERED:
        del run.tools[next(iter(run.tools))]
    return ToolStart, {
        "span_id": span_id,
        "parent_span_id": run.turn_span(run.turn),
        "call_id": record.tool_call_id,
        "tool": record.tool_name,
        "args": _json(record.arguments),
    }


@step.register(_LINES["tool_execution_end"])
def _(record: Any, run: Run) -> Step:
    run.blocked = False
    known = run.tools.pop(record.tool_call_id, None)
    span_id, turn = known or (run.span(record.tool_call_id or "tool"), run.turn)
    return ToolEnd, {
        "span_id": span_id,
        "parent_span_id": run.turn_span(turn),
        "turn": turn,
        "call_id": record.tool_call_id,
        "tool": record.tool_name,
        "result": _json(record.content),
        "is_error": record.is_error,
        "status": Status.ERROR if record.is_error else Status.OK,
        "fidelity": Fidelity.NATIVE if known else Fidelity.END_ONLY,
    }


@step.register(_LINES["replan_triggered"])
def _(record: Any, run: Run) -> Step:
    run.replanning = True
    return Retry, {
        "turn": record.turn,
        "span_id": run.span("agent.replan_triggered"),
        "parent_span_id": run.turn_span(record.turn),
        "what": "plan",
        "reason": record.reason,
    }


@step.register(_LINES["recovery_attempted"])
def _(record: Any, run: Run) -> Step:
    span_id = run.span("agent.recovery_attempted")
    return Retry, {"span_id": span_id, "what": "recovery", "number": record.attempt}


@step.register(_LINES["cost_updated"])
def _(record: Any, run: Run) -> Step:
    run.cost_usd = (run.cost_usd or 0.0) + record.turn_cost_usd
    if record.budget_usd is not None:
        run.over_budget = record.cumulative_cost_usd >= record.budget_usd
    return ModelEnd, {
        "turn": record.turn,
        "span_id": run.span("agent.cost_updated"),
        "parent_span_id": run.turn_span(record.turn),
        "cost_usd": record.turn_cost_usd,
        "status": Status.OK,
        "fidelity": Fidelity.END_ONLY,
        "raw": {
            "cumulative_cost_usd": record.cumulative_cost_usd,
            "budget_usd": record.budget_usd,
        },
    }


@step.register(_LINES["cost_budget_alert"])
def _(record: Any, run: Run) -> Step:
    run.over_budget = run.over_budget or record.cumulative_cost_usd >= record.budget_usd
    return Policy, {
        "turn": record.turn,
        "span_id": run.span("agent.cost_budget_alert"),
        "stage": "cost_budget",
        "mode": "warn",
        "rules": (f"cost_budget.{record.threshold_percent}_percent",),
        "raw": {
            "threshold_percent": record.threshold_percent,
            "cumulative_cost_usd": record.cumulative_cost_usd,
            "budget_usd": record.budget_usd,
        },
    }


@step.register(_LINES["safety_policy_applied"])
def _(record: Any, run: Run) -> Step:
    run.blocked = record.blocked
    return Policy, {
        "span_id": run.span("agent.safety_policy_applied"),
        "parent_span_id": run.turn_span(run.turn),
        "stage": record.stage,
        "mode": record.mode,
        "blocked": record.blocked,
        "rules": record.matched_rules,
        "reason_codes": record.reason_codes,
        "status": Status.VETOED if record.blocked else Status.OK,
    }


@step.register(_LINES["context_compaction_triggered"])
def _(record: Any, run: Run) -> Step:
    return Context, {
        "span_id": run.span("agent.context_compaction_triggered"),
        "op": "compact",
        "before": record.messages_before,
        "after": record.messages_after,
    }


@step.register(_LINES["circuit_breaker_tripped"])
@step.register(_LINES["escalation_required"])
@step.register(_LINES["graceful_termination"])
def _(record: Any, run: Run) -> Step:
    type_, raw = _type_of(record), msgspec.structs.asdict(record)
    *_, message = raw.values()  # the last field of each of them
    run.gave_up = ErrorInfo(type=type_, message=message, fatal=True)
    return Context, {"op": type_, "span_id": run.span(f"agent.{type_}"), "raw": raw}


HOST = "tau"

_ANYWHERE = frozenset(
    {
        *("unknown_event", "tool_health_report", "tool_execution_end", "cost_updated"),
        *("cost_budget_alert", "circuit_breaker_tripped", "failure_detected"),
        *("recovery_attempted", "escalation_required", "graceful_termination"),
    }
)
"""The lines that may come before a run's start or after its end."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line, its type and time, and those of its fields that its record does not have."""

    type: str
    record: Any
    at: float
    stamped: bool
    rest: JsonObject

    @property
    def is_user(self) -> bool:
        return self.type == "message_added" and self.record.role == "user"

    @property
    def is_inbound(self) -> bool:
        """True for the safety policy's verdict on a user's message, which then follows."""
        return self.type == "safety_policy_applied" and self.record.stage == "inbound_message"

    @property
    def begins(self) -> bool:
        """True if it can only belong to a new run."""
        return self.is_inbound or self.type == "agent_start"


class TauStream:
    """Turns one process's lines into events, run by run; no line makes it raise.

    Attributes:
        stream: The name of the stream, which is the session of its runs; a run's key is
            ``{stream}#{ordinal}``, the ordinal from 1.
        bad: The number of lines left out because they could not be read, by what is wrong.
    """

    def __init__(self, stream: str, *, clock: Callable[[], float]) -> None:
        """Begin a stream; ``clock`` is called once for each line without a time of its own."""
        self.stream = stream
        self.bad: dict[str, int] = {}
        self._clock = clock
        self._run: Run | None = None
        self._runs = 0
        self._seq = 0
        self._held: list[_Line] = []
        self._out: list[Event] = []

    def events(self, line: bytes | str | JsonObject) -> list[Event]:
        """Return the events of one more line: often one, sometimes several, or none yet."""
        if not isinstance(line, bytes | str) or line.strip():
            try:
                parsed = self._read(line)
            except ValueError as error:
                self.bad[str(error)] = self.bad.get(str(error), 0) + 1
            else:
                if self._held and not parsed.is_user:
                    self._settle(parsed)
                self._take(parsed)
        return self._take_events()

    def end(self) -> list[Event]:
        """Return the events of the end of the stream: a run that is open is abandoned."""
        self._settle(None)
        if self._run is not None and not self._run.ended:
            self._close(self._run, next_came=False)
        return self._take_events()

    def _take_events(self) -> list[Event]:
        events, self._out = self._out, []
        return events

    def _read(self, line: bytes | str | JsonObject) -> _Line:
        """Parse a line.

        Raises:
            ValueError: It is not a line of the host's; the text says why.
        """
        try:
            data = line if isinstance(line, bytes | str) else msgspec.json.encode(line)
            fields = msgspec.json.decode(data)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError("not JSON") from error
        if not isinstance(fields, dict):
            raise ValueError("not an object")  # noqa: TRY004  # each of these is a text to count
        type_ = fields.get("type")
        if not isinstance(type_, str) or type_ not in _LINES:
            raise ValueError("unknown type")
        try:
            record = msgspec.convert(fields, _LINES[type_])
        except (msgspec.ValidationError, RecursionError) as error:
            raise ValueError(f"malformed {type_}") from error
        if type_ == "agent_end" and (self._run is None or self._run.ended):
            raise ValueError("agent_end without a run")
        at = _time_of(fields)
        named = {"type", *record.__struct_fields__}
        rest = {name: value for name, value in fields.items() if name not in named}
        return _Line(type_, record, self._clock() if at is None else at, at is not None, rest)

    def _settle(self, following: _Line | None) -> None:
        """Assign the held messages to the open run, or to the next one.

        A user's message within a run that has started is the next prompt after a run without an
        end, or one that the host wrote itself; the line that follows it shows which.
        """
        held, self._held = self._held, []
        run = self._run
        if not held or run is None:
            return
        next_came = following is None or following.begins
        if following is not None and following.type == "turn_start":
            next_came = run.turn is not None and following.record.turn <= run.turn
        if next_came:
            self._close(run, next_came=True)
            run = self._open(held[0])
        for line in held:
            self._emit_step(run, line, {} if next_came else {"synthetic": True})

    def _take(self, line: _Line) -> None:
        run = self._run
        if line.is_user and run is not None and run.started and not run.ended:
            self._held.append(line)
            # a prompt that the host writes itself, or so many in a row without a start: none of
            # them begins a run
            if run.replanning or len(self._held) == 64:
                held, self._held = self._held, []
                for prompt in held:
                    self._emit_step(run, prompt, {"synthetic": True})
            return
        run = self._run_of(line)
        if line.type == "agent_start":
            self._start(run, line.at, line.rest, Fidelity.NATIVE)
        elif line.type == "agent_end":
            self._note(run, line)
            raw = {"new_messages": line.record.new_messages, **line.rest}
            self._end(run, {"status": Status.OK, "reason": Reason.COMPLETED}, raw)
        else:
            self._emit_step(run, line, {})
            if line.is_inbound and run.blocked:  # the prompt is refused: there will be no start
                self._close(run, next_came=False)

    def _run_of(self, line: _Line) -> Run:
        """Return the run that a line belongs to: the open one, or one that begins with it."""
        run = self._run
        if run is not None and run.ended and line.type in _ANYWHERE:
            return run
        if run is not None and not run.ended and run.started and line.begins:
            self._close(run, next_came=True)
        if run is None or run.ended:
            run = self._open(line)
        may_precede_start = line.is_user or line.begins or line.type in _ANYWHERE
        if not run.started and not may_precede_start:  # its start was lost, or before us
            self._start(run, line.at, {}, Fidelity.INFERRED)
        return run

    def _open(self, line: _Line) -> Run:
        self._runs += 1
        self._run = Run(
            f"{self.stream}#{self._runs}",
            began_at=line.at,
            stamped=line.stamped,
            last_at=line.at,
        )
        return self._run

    def _note(self, run: Run, line: _Line) -> None:
        if not run.ended:
            run.last_at, run.last_type = line.at, line.type
            run.stamped = run.stamped and line.stamped

    def _emit_step(self, run: Run, line: _Line, more: JsonObject) -> None:
        self._note(run, line)
        kind, fields = step(line.record, run)
        raw = {**line.rest, **fields.get("raw", {}), **more}
        self._emit(kind, run, line.at, {**fields, "raw": raw})

    def _emit(self, kind: type[Event], run: Run, at: float, fields: Mapping[str, Any]) -> None:
        self._seq += 1
        envelope = {"host": HOST, "run_id": run.run_id, "session_id": self.stream, "at": at}
        self._out.append(kind(**{**envelope, "seq": self._seq, "turn": run.turn, **fields}))

    def _start(self, run: Run, at: float, raw: JsonObject, fidelity: Fidelity) -> None:
        run.started = True
        run.last_at = at
        fields = {
            "input": None if run.prompt is None else Content(text=run.prompt),
            "trigger": None if run.prompt is None else "user",
            "fidelity": fidelity,
            "raw": raw,
        }
        self._emit(RunStart, run, at, fields)

    def _close(self, run: Run, *, next_came: bool) -> None:
        self._end(run, verdict(run, next_came=next_came), {"last_type": run.last_type})

    def _end(self, run: Run, how: Fields, raw: JsonObject) -> None:
        if not run.started:
            self._start(run, run.began_at, {}, Fidelity.INFERRED)
        run.ended = True
        is_native = how["reason"] is Reason.COMPLETED
        fields = {
            "turn": None,
            "output": None if run.reply is None else Content(text=run.reply),
            "usage": run.usage,
            "cost_usd": run.cost_usd,
            "turns": run.turns,
            "duration_ms": (run.last_at - run.began_at) * 1e3 if run.stamped else None,
            "fidelity": Fidelity.NATIVE if is_native else Fidelity.INFERRED,
            "raw": raw,
            **how,
        }
        self._emit(RunEnd, run, run.last_at, fields)


def _time_of(fields: JsonObject) -> float | None:
    """Return the time of a line in epoch seconds, if it has one in one of the usual forms."""
    for name in ("timestamp_unix_ms", "timestamp", "ts"):
        seconds = _seconds(fields.get(name))
        if seconds is not None:
            # as seconds it would be after the year 5138
            in_ms = name == "timestamp_unix_ms" or seconds > 1e11
            seconds = seconds / 1e3 if in_ms else seconds
            if 0.0 < seconds <= 253_402_300_799.0:  # the last second of the year 9999
                return seconds
    return None


def _seconds(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e18 else None
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


@hookimpl
def register_hosts(register: Register) -> None:
    """Register ``tau``."""
    register("tau", _translator)


def _translator(stream: str, clock: Callable[[], float]) -> Translator:
    return TauStream(stream, clock=clock)
