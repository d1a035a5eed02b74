"""The watch over openai-agents in one process: its runs, spans, hooks and models.

Each wrapper does the host's own step exactly once and outside of all our code, returns what it
returned, and raises what it raised. A failure of ours is reported to the runtime and goes no
further.

A function's span shows when it starts and how it ends, a hook the call and its arguments. So a
tool's start is reported by the hook, and by the span's end where no hook came: then it did not run.
Spans may end long after their run has.

Guardrails of input and output have spans while the run is traced. Those of tools, and all of them
where it is not, are read from what the run returned or raised.

A request starts when the model opens the host's span of it, so that it has that id; one for which
the model opens none starts with its first answer.

Models and hooks are proxies, so that whatever the host or anybody else reads of them is theirs, in
this version of the host and in later ones.
"""

import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, fields, replace
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import uuid4

import wrapt
from agents import RunHooks, run_config
from agents.lifecycle import RunHooksBase
from agents.run_internal.run_loop import get_model, get_model_settings
from agents.run_state import RunState
from agents.tracing import get_current_span, get_current_trace
from agents.tracing.setup import get_trace_provider
from msgspec import structs

from tau_live.core import events as ev
from tau_live.core.errors import suppress
from tau_live.core.events import Content, ErrorInfo
from tau_live.core.gate import Kind
from tau_live.core.records import Reason
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings.tables import Point
from tau_live.decisions.runs import RunHandle, error_of
from tau_live.runtime import api
from tau_live.runtime.adapters import InForce
from tau_live.runtime.runtime import Runtime
from tau_live_hooks import openai_agents_events as read
from tau_live_hooks.common import (
    Border,
    RunBook,
    Situation,
    as_text,
    content_of,
    enclosing_run,
    few,
    positive_counts,
    remember,
    reset,
    situation_of,
)
from tau_live_hooks.common_choices import Choices

HOST = "openai-agents"

_GUARDRAILS = {
    "input_guardrail_results": "input",
    "output_guardrail_results": "output",
    "tool_input_guardrail_results": "tool",
    "tool_output_guardrail_results": "tool",
}
"""The attributes with the results of guardrails, and what each of these checked."""

_LATE = frozenset({"ModelTimeoutError", "ToolTimeoutError"})


def _keeps_content(config: Any) -> bool:
    """Return whether inputs and outputs of a run may be reported at all."""
    own = read.of(config, "trace_include_sensitive_data")
    default = getattr(run_config, "_default_trace_include_sensitive_data", lambda: True)
    return bool(default() if own is None else own)


def _is_traced(config: Any) -> bool:
    """Return whether the host reports spans of a run, as far as that is known."""
    provider = get_trace_provider()
    refresh = getattr(provider, "_refresh_disabled_flag", None)
    if refresh is not None:  # it reads the environment at the first call
        refresh()
    in_untraced = getattr(get_current_trace(), "trace_id", "") == read.NO_OP
    is_off = read.of(config, "tracing_disabled", default=False)
    return not (is_off or in_untraced or getattr(provider, "_disabled", False))


Waiting = tuple[str | None, str, tuple[str, ...]]
"""The approvals that a run waits for, which identify the run that resumes it: the trace in which it
waits, the agent that was started, and the calls that have to be approved, sorted."""

REMEMBERED = 10_000
"""The most traces, and the most waiting runs, that are remembered."""


class RunIds:
    """Names the runs of a process.

    A run that makes its own trace has the trace's id, which its user may choose and which a run
    that is resumed in another process still has. A run inside somebody else's trace has the id of
    its task; without tracing it gets an id of ours.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: OrderedDict[str, None] = OrderedDict()
        self._waiting: OrderedDict[Waiting, str] = OrderedDict()

    def name_run(
        self, *, own_trace: str | None, span_id: str | None, waited: Waiting | None
    ) -> str:
        """Return the id of a run that starts.

        Args:
            own_trace: The id of the trace that it makes; ``None`` if it runs in another's.
            span_id: The id of its task; ``None`` if unknown.
            waited: The approvals that it waited for, if it resumes a run.
        """
        with self._lock:
            known = self._waiting.pop(waited, None) if waited is not None else None
            if known is not None:
                return known
            if own_trace is not None and own_trace not in self._done:
                return own_trace  # else one of several runs under one id that a user chose
        return span_id or f"run_{uuid4().hex}"

    def mark_done(self, run_id: str) -> None:
        """Note that a run of this id ended for good: the next of the same trace is another one."""
        with self._lock:
            remember(self._done, run_id, None, limit=REMEMBERED)

    def mark_waiting(self, run_id: str, waiting: Waiting) -> None:
        """Note that a run waits for approvals."""
        with self._lock:
            remember(self._waiting, waiting, run_id, limit=REMEMBERED)


@dataclass(slots=True)
class _ToolCall:
    """A tool's open call."""

    call_id: str
    tool: str
    parent: str | None
    called: bool = False
    returned: bool = False
    result: object = None


@dataclass(kw_only=True, eq=False)
class HostRun:
    """One run; it starts with the first thing that the host does in it.

    Args:
        runtime: Takes the events.
        ids: Names it.
        agent: The agent that is started.
        given: The run's input.
        options: The other arguments: ``run_config``, ``session``, ``conversation_id``.
        state: The host's state that it resumes; ``None`` for a new run.
        owns_trace: Whether it makes a trace of its own.
        streamed: The result that the host's user reads from, where the answer is streamed.

    Attributes:
        book: Reports its steps; ``None`` until it starts.
        choices: Decides it; ``None`` where nothing is to be decided.
        native: Whether it is traced.
        keeps: Whether inputs and outputs may be reported at all.
    """

    runtime: Runtime
    ids: RunIds
    agent: Any
    given: Any
    options: Mapping[str, Any]
    state: Any
    owns_trace: bool
    streamed: Any = None
    native: bool = field(default=False, init=False)
    book: RunBook | None = field(default=None, init=False)
    choices: Choices | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.config = self.options.get("run_config")
        self.keeps = _keeps_content(self.config)
        self._agent_name = as_text(getattr(self.agent, "name", None))
        self._metadata: JsonObject = {}
        self._trace_id: str | None = None
        self._outer = enclosing_run()
        self._token: Token[Any] | None = None
        self._results_before = {name: len(_entries(self.state, f"_{name}")) for name in _GUARDRAILS}
        self._tripped = False
        self._guards: dict[str, str] = {}
        self._waits: dict[str, str] = {}
        self._requests = 0
        self._tries = 0
        self._has_turn_spans = False
        self._spans: dict[str, _ToolCall] = {}
        self._calls: dict[str, _ToolCall] = {}
        self._failures: dict[str, ErrorInfo] = {}
        self._messages: int | None = None

    def begin(self, span: Any = None) -> RunBook:
        """Start the run once, with the span that the host opened first; ``None`` for none."""
        if self.book is not None:
            return self.book
        trace = get_current_trace()
        self._trace_id = read.known_id(getattr(trace, "trace_id", None))
        self.native = span is not None
        fidelity = ev.Fidelity.NATIVE if self.native else ev.Fidelity.HOOKS
        handle = self._handle(trace if self.native else None, span, fidelity)
        agent = as_text(getattr(self.agent, "name", None) or "agent")
        self.book = RunBook(self.runtime, handle, agent=agent, fidelity=fidelity)
        if self.runtime.settings.act:
            self.choices = Choices(self.runtime, handle)
        self._token = self.enter()
        if self.state is not None:
            waited = few(self.state.get_interruptions())
            self._waits = {read.call_id_of(item): read.tool_name_of(item) for item in waited}
        return self.book

    def enter(self) -> "Token[Any] | None":
        """Make it the current run here, unless it is; it may have started in another context."""
        if self.book is None or enclosing_run() is self.book.handle:
            return None
        return api.enter(self.book.handle)

    def leave(self) -> None:
        """Make the run outside of it the current one again."""
        reset(self._token)

    def end(self, result: Any, error: BaseException | None) -> None:
        """Report how it ended; a run that failed before the host did anything starts only here."""
        book = self.begin()
        fields: ev.Fields = {}
        try:
            self._report_results(result, error)
            waiting = None
            if error is None:
                waiting = self._waiting(self._trace_id, getattr(result, "interruptions", None))
            if waiting is not None:
                self.ids.mark_waiting(book.handle.run_id, waiting)
                book.interrupt("approval", resume_key=",".join(waiting[2]))
                return
            fields = self._outcome(result, error)
            if not isinstance(error, Exception):  # a failed run may be tried again
                self.ids.mark_done(book.handle.run_id)
        finally:  # a run whose end cannot be reported in full still ends
            book.end(error, fields)

    def situation(self, known: Situation) -> Situation:
        """Return the situation before a choice, with the facts that belong to it alone."""
        agent = None if self.book is None else self.book.agent
        return situation_of(
            {"agent": agent or "agent", "step": self._requests, **known}, self._metadata
        )

    def on_agent_start(self, _context: Any, agent: Any) -> None:
        """Note the name of the current agent."""
        self.begin().agent = as_text(getattr(agent, "name", None))

    def on_tool_start(self, context: Any, _agent: Any, tool: Any) -> None:
        """Report that a tool is called, inside its span where it has one."""
        book = self.begin()
        span_id = _current_span_id()
        call_id = read.known_id(getattr(context, "tool_call_id", None))
        name = as_text(getattr(context, "tool_name", None) or getattr(tool, "name", "tool"))
        call = self._spans.get(span_id or "")
        if call is None:
            call_id = call_id or f"{name}#{len(self._calls) + 1}"
            call = self._calls[call_id] = _ToolCall(call_id, name, book.turn_span)
        else:
            call.call_id = call_id or call.call_id
        call.called = True
        fields = {"tool_kind": read.kind_of_tool(tool)}
        self._start_tool(call, span_id, getattr(context, "tool_arguments", None), fields)

    def on_tool_end(self, context: Any, _agent: Any, tool: Any, result: object) -> None:
        """Note what a tool returned; report it where no span will."""
        book = self.begin()
        call = self._spans.get(_current_span_id() or "")
        if call is not None:
            call.returned, call.result = True, result
            return
        call_id = read.known_id(getattr(context, "tool_call_id", None))
        if call_id is None:
            name = getattr(tool, "name", "tool")
            call_ids = [known.call_id for known in self._calls.values() if known.tool == name]
            call_id = call_ids[-1] if call_ids else ""
        call = self._calls.pop(call_id, None)
        if call is not None:
            error = self._failures.pop(call.call_id, None)
            fields = {**self._within(call, None, result), "error": error}
            status = ev.Status.OK if error is None else ev.Status.ERROR
            book.end_tool(call.call_id, call.tool, fields, status=status)

    def on_handoff(self, _context: Any = None, *, from_agent: Any, to_agent: Any) -> None:
        """Report that another agent takes over, where no span does."""
        book = self.begin()
        if not self.native:
            book.hand_over(to_agent.name, from_agent=from_agent.name)

    def start_span(self, span: Any) -> None:
        """Take the start of a span."""
        book = self.begin(span)
        kind = span.span_data.type
        if kind == "agent":
            book.agent = as_text(span.span_data.name)
        elif kind == "turn":
            self._has_turn_spans = True
            book.begin_turn(span.span_data.turn, span_id=span.span_id)
        elif kind == "function":
            self._spans[span.span_id] = _ToolCall(span.span_id, span.span_data.name, book.turn_span)
        elif kind == "guardrail":
            self._guards[span.span_id] = self._stage_of(span.span_data.name)
        elif kind in {"generation", "response"} and (call := _open_call.get()) is not None:
            call.start(span)

    def end_span(self, span: Any) -> None:
        """Report the end of a span that matters."""
        book, data = self.begin(), span.span_data
        if data.type == "function":
            self._end_function(book, span)
        elif data.type == "handoff":
            book.hand_over(data.to_agent, from_agent=data.from_agent, span_id=span.span_id)
        elif data.type == "guardrail":
            stage = self._guards.pop(span.span_id, "output")
            fields = _policy(stage, data.name, blocked=bool(data.triggered))
            book.tell(ev.Policy, {**fields, "span_id": span.span_id})
        elif span.span_id == book.turn_span:  # unless another turn has started
            usage = getattr(data, "usage", None)
            counts = positive_counts(usage) if isinstance(usage, Mapping) else {}
            book.end_turn({"usage": counts} if counts else {})

    def start_request(self) -> None:
        """Start a turn where the host reports none: each request of the loop is one."""
        book = self.begin()
        self._requests += 1
        self._tries = 0
        if not self._has_turn_spans:
            book.begin_turn()

    def request_id(self) -> str:
        """Return an id for a request; the same request again is a retry, and reported as one."""
        self._tries += 1
        if self._tries == 1:
            return f"model:{self._requests}"
        self.begin().record_retry("model", number=self._tries)
        return f"model:{self._requests}.{self._tries}"

    def note_tool_failure(self, context: Any, error: BaseException | None) -> None:
        """Note why a tool failed; an error of ``None`` is a timeout."""
        call_id = read.known_id(getattr(context, "tool_call_id", None))
        if self.book is None or call_id is None or (error is None and call_id in self._failures):
            return
        info = ErrorInfo(type="ToolTimeoutError") if error is None else error_of(error)
        self._failures[call_id] = info if self.keeps else structs.replace(info, message="")

    def report_input(self, request: "Request") -> None:
        """Report the new messages of a request; those before them were reported by other runs."""
        book, items = self.begin(), request.get("input")
        messages = few([{"role": "user", "content": items}] if isinstance(items, str) else items)
        self._report_vetoes(book, messages)
        start = self._messages
        if request.get("previous_response_id") or request.get("conversation_id"):
            start = 0  # the service has the rest
        elif start is None:
            given = self.given if self.state is None else None
            own = len(given) if isinstance(given, list | tuple) else int(isinstance(given, str))
            start = max(0, len(messages) - own)
        elif start > len(messages):
            before, start = start, len(messages)
            book.tell(ev.Context, {"op": "truncate", "before": before, "after": start})
        self._report_messages(book, messages[start:], start)

    def report_output(self, output: Sequence[Any]) -> None:
        """Report the answer of a model, which the next request contains again."""
        self._report_messages(self.begin(), output, self._messages or 0)

    def _report_messages(self, book: RunBook, items: Sequence[Any], start: int) -> None:
        for index, item in enumerate(items, start):
            fields = read.message_of(item, keeps=self.keeps)
            book.tell(ev.Message, {**fields, "index": index})
        self._messages = start + len(items)

    def _report_vetoes(self, book: RunBook, items: Sequence[Any]) -> None:
        """Report which of the waiting tools were not approved: only the model sees that."""
        for item in items if self._waits else ():
            call_id = as_text(read.of(item, "call_id") or "")
            if call_id in self._waits and read.of(item, "type") == "function_call_output":
                fields = {"result": self._content(read.of(item, "output"))}
                tool = self._waits.pop(call_id)
                book.end_tool(call_id, tool, fields, status=ev.Status.VETOED)

    def _end_function(self, book: RunBook, span: Any) -> None:
        """Report how a tool ended: a call without a hook was refused, or waits for somebody."""
        call = self._spans.pop(span.span_id, None)
        if call is None:
            return
        data, error = span.span_data, self._failures.pop(call.call_id, None)
        if error is None and getattr(span, "error", None) is not None:
            error = self._error_of(span.error)
        result = call.result if call.returned else data.output
        if not call.called:
            self._start_tool(call, span.span_id, data.input, {})
        if error is not None:
            status = ev.Status.ERROR
        elif call.called:
            is_over = call.returned or data.output is not None
            status = ev.Status.OK if is_over else ev.Status.CANCELLED
        else:
            status = ev.Status.INTERRUPTED if data.output is None else ev.Status.VETOED
        fields = {**self._within(call, span.span_id, result), "error": error}
        if getattr(data, "mcp_data", None):
            fields["raw"] = {"mcp": True}
        book.end_tool(call.call_id, call.tool, fields, status=status)

    def _error_of(self, error: Any) -> ErrorInfo:
        message = as_text(read.of(error, "message") or "")
        data = read.of(error, "data")
        cause = as_text(read.of(data, "error") or "") if self.keeps else ""
        return ErrorInfo(type="ToolError", message=": ".join(filter(None, (message, cause))))

    def _start_tool(
        self, call: _ToolCall, span_id: str | None, args: object, details: ev.Fields
    ) -> None:
        self._waits.pop(call.call_id, None)
        fields = {"args": self._content(args), "span_id": span_id, "parent_span_id": call.parent}
        self.begin().start_tool(call.call_id, call.tool, {**fields, **details})

    def _within(self, call: _ToolCall, span_id: str | None, result: object) -> ev.Fields:
        return {"result": self._content(result), "span_id": span_id, "parent_span_id": call.parent}

    def _content(self, value: object) -> Content | None:
        return content_of(value) if self.keeps else None

    def _report_results(self, result: Any, error: BaseException | None) -> None:
        """Report the results of guardrails that nothing has reported yet."""
        source = result if error is None else getattr(error, "run_data", None) or result
        outputs: list[Any] = []
        for name, stage in _GUARDRAILS.items():
            for entry in _entries(source, name)[self._results_before[name] :]:
                outputs.append(read.of(entry, "output"))
                self._report_result(entry, stage)
        if error is not None and type(error).__name__.startswith("Tool"):
            output = getattr(error, "output", None)
            if output is not None and not any(entry is output for entry in outputs):
                self._report_result(error, "tool")

    def _report_result(self, result: Any, stage: str) -> None:
        if stage == "tool":
            blocked = read.is_rejection(result)
        else:
            blocked = bool(read.of(read.of(result, "output"), "tripwire_triggered"))
            self._tripped |= blocked
        if stage == "tool" or not self.native:
            name = read.guardrail_name(read.of(result, "guardrail"))
            self.begin().tell(ev.Policy, _policy(stage, name, blocked=blocked))

    def _stage_of(self, name: str) -> str:
        """Return what a guardrail of this name checks: ``input`` or ``output``."""
        guardrails = [*_entries(self.agent, "input_guardrails")]
        guardrails += _entries(self.config, "input_guardrails")
        return "input" if name in map(read.guardrail_name, guardrails) else "output"

    def _handle(self, trace: Any, span: Any, fidelity: ev.Fidelity) -> RunHandle:
        outer = self._outer
        nested = outer is not None and outer.host == HOST and not outer.ended
        task = getattr(span, "span_id", None)
        own, waited = None, None
        if self.owns_trace:
            own = self._trace_id or read.known_id(read.of(self.config, "trace_id"))
        if self.state is not None:
            before = getattr(getattr(self.state, "_trace_state", None), "trace_id", None)
            waited = self._waiting(read.known_id(before), self.state.get_interruptions())
        run_id = self.ids.name_run(own_trace=own, span_id=task, waited=waited)
        self._metadata = self._run_metadata(trace, task)
        aliases = {task, None if nested else self._trace_id} - {None, run_id}
        name = getattr(self.agent, "name", None)
        trigger = "tool" if nested else "user"
        return self.runtime.begin_run(
            name or "agent",
            key=run_id,
            session=self._session(trace, outer if nested else None),
            metadata=self._metadata,
            parent=outer,
            host=HOST,
            fields={
                "input": self._content(self.given) if self.state is None else None,
                "model": read.model_name(getattr(self.agent, "model", None)),
                "agent": name,
                "tools": read.names_of(getattr(self.agent, "tools", ())),
                "instructions_hash": _hash(getattr(self.agent, "instructions", None)),
                "trigger": trigger if self.state is None else "resume",
                "fidelity": fidelity,
                "aliases": tuple(sorted(map(as_text, aliases))),
            },
            resumed=None if self.state is None else {"reason": "approval"},
        )

    def _session(self, trace: Any, outer: RunHandle | None) -> str | None:
        """Return the id that a conversation's runs share: of its group, session or itself."""
        group = read.of(self.config, "group_id") or getattr(trace, "group_id", None)
        session = None
        with suppress(Exception):  # a session that the service keeps has no id before its first use
            session = getattr(self.options.get("session"), "session_id", None)
        own = group or session or self.options.get("conversation_id")
        return own or (outer.session_id if outer is not None else None)

    def _run_metadata(self, trace: Any, task: str | None) -> JsonObject:
        """Return the run's metadata."""
        given = getattr(trace, "metadata", None) or read.of(self.config, "trace_metadata")
        workflow = getattr(trace, "name", None) or read.of(self.config, "workflow_name")
        own = {"trace_id": self._trace_id, "task_span_id": task, "workflow_name": workflow}
        known = {name: value for name, value in own.items() if isinstance(value, str)}
        return {**known, **(given if isinstance(given, Mapping) else {})}

    def _waiting(self, trace_id: str | None, interruptions: Any) -> Waiting | None:
        """Return the approvals that it waits for; ``None`` if for none."""
        call_ids = tuple(sorted(map(read.call_id_of, few(interruptions))))
        return (trace_id, self._agent_name, call_ids) if call_ids else None

    def _outcome(self, result: Any, error: BaseException | None) -> ev.Fields:
        name = type(error).__name__
        if name.endswith("GuardrailTripwireTriggered") or self._tripped:
            return {"status": ev.Status.VETOED, "reason": Reason.SAFETY_BLOCKED}
        if name == "MaxTurnsExceeded":
            return {"status": ev.Status.LIMIT, "reason": Reason.LIMIT}
        if name in _LATE:
            return {"status": ev.Status.ERROR, "reason": Reason.TIMEOUT}
        if error is not None:
            return {}
        output = getattr(result, "final_output", None)
        if output is None and getattr(self.streamed, "_cancel_mode", "none") != "none":
            return {"status": ev.Status.CANCELLED, "reason": Reason.CANCELLED}
        return {"output": self._content(output)}


def _policy(stage: str, name: str, *, blocked: bool) -> ev.Fields:
    """Return the fields of a guardrail's result."""
    rules = (name,) if blocked else ()
    return {
        "stage": stage,
        "mode": "block",
        "rules": rules,
        "blocked": blocked,
        "reason_codes": rules,
        "raw": {"guardrail": name},
    }


def _entries(source: Any, name: str) -> list[Any]:
    return few(getattr(source, name, None))


def _current_span_id() -> str | None:
    return read.known_id(getattr(get_current_span(), "span_id", None))


def _hash(instructions: object) -> str | None:
    if not isinstance(instructions, str):
        return None
    return sha256(instructions.encode("utf-8", "replace")).hexdigest()


NAMES = (
    "system_instructions",
    "input",
    "model_settings",
    "tools",
    "output_schema",
    "handoffs",
    "tracing",
)
"""The positional parameters of models."""

_FAILED = frozenset({"response.failed", "response.incomplete", "error", "response.error"})


class Request(NamedTuple):
    """A request: the model, and its positional and named arguments."""

    model: Any
    args: tuple[Any, ...]
    named: Mapping[str, Any]

    def get(self, name: str) -> Any:
        """Return the model's argument of a name."""
        index = NAMES.index(name) if name in NAMES else len(self.args)
        return self.args[index] if index < len(self.args) else self.named.get(name)

    def put(self, name: str, value: object) -> "Request":
        """Return the request with another argument under a name."""
        index = NAMES.index(name)
        if index < len(self.args):
            args = (*self.args[:index], value, *self.args[index + 1 :])
            return self._replace(args=args)
        return self._replace(named={**self.named, name: value})


class Call:
    """An open request, reported to the run that makes it.

    Args:
        run: The run.
        request: The request, with its model.
        streaming: Whether the answer comes in pieces.
    """

    def __init__(self, run: HostRun, request: Request, *, streaming: bool) -> None:
        self.request = request
        self._run = run
        self._book = run.begin()
        self._streaming = streaming
        self._span_id = run.request_id()
        self._parent = self._book.turn_span
        self._is_reported = False
        self._span: Any = None
        self._completed: Any = None
        self._failed: str | None = None
        self._over = False

    def start(self, span: Any = None) -> None:
        """Report the request, once; under an id of ours if the host has opened no span."""
        if self._is_reported:
            return
        self._is_reported, self._span = True, span
        if span is not None:
            self._span_id = span.span_id
        request = self.request
        handoffs = [getattr(handoff, "tool_name", None) for handoff in few(request.get("handoffs"))]
        raw: dict[str, object] = {}
        if names := [name for name in handoffs if isinstance(name, str)]:
            raw["handoffs"] = names
        instructions = request.get("system_instructions") if self._run.keeps else None
        if isinstance(instructions, str):
            raw["instructions"] = [instructions]
        fields = {
            "model_requested": read.model_name(request.model),
            "provider": read.provider_of(request.model),
            "params": read.params_of(request.get("model_settings")),
            "tools_offered": read.names_of(request.get("tools")),
            "streaming": self._streaming,
            "parent_span_id": self._parent,
            "raw": raw,
        }
        self._book.start_model(self._span_id, fields)

    def note_piece(self, event: Any) -> None:
        """Note a piece of the answer."""
        self.start()
        kind = as_text(getattr(event, "type", ""))
        if kind.endswith(".delta"):
            self._book.note_token(self._span_id)
        elif kind == "response.completed":
            self._completed = getattr(event, "response", None)
        elif kind in _FAILED:
            self._failed = kind

    def end(self, response: Any) -> None:
        """Report the answer of the model."""
        if self._close():
            output = few(getattr(response, "output", None))
            id_ = getattr(response, "response_id", None) or getattr(response, "id", None)
            fields = {
                "model_used": self._model(response),
                "response_id": id_,
                "parent_span_id": self._parent,
                **read.answer_of(output, keeps=self._run.keeps),
            }
            usage = read.usage_of(getattr(response, "usage", None))
            self._book.end_model(self._span_id, fields, usage=usage)
            self._run.report_output(output)

    def end_stream(self, error: BaseException | None) -> None:
        """Report how a streamed answer ended: as a whole, failed, or because nobody reads it."""
        if self._completed is not None and not isinstance(error, Exception):
            self.end(self._completed)
        elif self._failed is not None and not isinstance(error, Exception):
            if self._close():
                fields = {"status": ev.Status.ERROR, "error": ErrorInfo(type=self._failed)}
                self._book.end_model(self._span_id, {**fields, "parent_span_id": self._parent})
        elif error is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Report that the model did not answer."""
        if self._close():
            is_late = type(error).__name__ == "ModelTimeoutError"
            status = ev.Status.ERROR if is_late else None
            self._book.fail_model(self._span_id, error, status=status)

    def _close(self) -> bool:
        """Report the request if that is not done; return whether it was still open."""
        self.start()
        was_over, self._over = self._over, True
        return not was_over

    def _model(self, response: Any) -> str | None:
        """Return the model that answered: the provider's name for it, or the requested one."""
        data = getattr(self._span, "span_data", None)
        in_span = getattr(getattr(data, "response", None), "model", None)
        name = getattr(response, "model", None) or in_span or getattr(data, "model", None)
        return name if isinstance(name, str) else read.model_name(self.request.model)


@dataclass(frozen=True, slots=True)
class RequestSeam:
    """Reads and changes a request; nothing of the host's is written to.

    Args:
        agent: The agent that makes the request.
        config: The run's configuration.
    """

    agent: Any
    config: Any

    def value_at(self, point: Point, request: Request) -> object:
        """Return a request's value at a point, as a copy that can be compared."""
        if point is Point.MODEL:
            return id(request.model)
        if point is Point.PARAMS:
            settings = request.get("model_settings")
            return {field.name: getattr(settings, field.name) for field in fields(settings)}
        if point is Point.TOOLS:
            return [*read.names_of(request.get("tools"))] or None
        return request.get("system_instructions") or ""

    def is_own(self, request: Request, model: object) -> bool:
        """Return whether an option is the request's own model."""
        if isinstance(model, str):
            own = getattr(self.config, "model", None) or getattr(self.agent, "model", None)
            return model in {own, read.model_name(request.model)}
        return model is request.model

    def instructions(self, request: Request) -> str:
        """Return the agent's own instructions."""
        return as_text(request.get("system_instructions") or "")

    def put(self, point: Point, request: Request, value: Any) -> Request:
        """Return the request with a choice in it.

        Raises:
            TypeError: It is no model, or there is no such setting.
        """
        if point is Point.MODEL:
            return self._request_to(value, request)
        if point is Point.PARAMS:
            return request.put("model_settings", _merge(request.get("model_settings"), value))
        if point is Point.TOOLS:
            tools = [
                tool for tool in few(request.get("tools")) if getattr(tool, "name", None) in value
            ]
            return request.put("tools", tools)
        return request.put("system_instructions", value)

    def _request_to(self, model: object, request: Request) -> Request:
        """Return the request to another model, with the settings that the host has for that one.

        The run's own changes to the settings of its model are kept.
        """
        if not isinstance(model, str) and not hasattr(model, "get_response"):
            raise TypeError(f"not a model of openai-agents: {type(model).__name__}")
        config = replace(self.config, model=model)
        default = get_model_settings(self.agent, self.config)
        settings = get_model_settings(self.agent, config)
        current = request.get("model_settings")
        changes = {
            field.name: getattr(current, field.name)
            for field in fields(default)
            if getattr(current, field.name) != getattr(default, field.name)
        }
        changed = request._replace(model=get_model(self.agent, config))
        return changed.put("model_settings", replace(settings, **changes))


def _merge(settings: Any, changes: JsonObject) -> Any:
    """Return settings with changes; refuse an unknown name, which the host would drop."""
    unknown = changes.keys() - {field.name for field in fields(settings)}
    if unknown:
        raise TypeError(f"not model settings: {', '.join(sorted(unknown))}")
    return replace(settings, **changes)


class WatchedModel(wrapt.ObjectProxy):  # type: ignore[type-arg]  # older ones take none
    """A model whose requests are reported, and decided where they may be.

    Args:
        model: The host's.
        begin: Starts the call of a request, with the choices in it; may fail.
        safely: Calls our code, and contains its failures.
    """

    def __init__(
        self, model: Any, begin: Callable[..., Call | None], safely: Callable[..., Any]
    ) -> None:
        super().__init__(model)
        self._self_begin = begin
        self._self_safely = safely
        self._self_others: list[Any] = []
        self._self_called_model = model

    async def get_response(self, *args: Any, **named: Any) -> Any:
        """Send a request, and see how that ends."""
        call = self._self_begin_call(args, named, streaming=False)
        if call is None:
            return await self.__wrapped__.get_response(*args, **named)
        token = _open_call.set(call)
        request = call.request
        try:
            response = await request.model.get_response(*request.args, **request.named)
        except BaseException as raised:
            self._self_safely(call.fail, raised)
            raise
        finally:
            reset(token)
        self._self_safely(call.end, response)
        return response

    def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        """Send a request for an answer in pieces, and see how that ends."""
        call = self._self_begin_call(args, named, streaming=True)
        if call is None:
            theirs: AsyncIterator[Any] = self.__wrapped__.stream_response(*args, **named)
            return theirs
        request = call.request
        inner = request.model.stream_response(*request.args, **request.named)
        return self._self_pieces(inner, call)

    def get_retry_advice(self, request: Any) -> Any:
        """Return the advice of the model that failed."""
        return self._self_called_model.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        """Clean up after every model that was called in this one's place, too."""
        for other in self._self_others:
            with suppress(Exception):
                await other._cleanup_on_run_end(owner)  # noqa: SLF001  # as the host does
        await self.__wrapped__._cleanup_on_run_end(owner)  # noqa: SLF001

    def _self_begin_call(self, args: Any, named: Any, *, streaming: bool) -> Call | None:
        request = Request(self.__wrapped__, args, named)
        call: Call | None = self._self_safely(self._self_begin, request, streaming)
        self._self_called_model = self.__wrapped__ if call is None else call.request.model
        if self._self_called_model is not self.__wrapped__ and not any(
            self._self_called_model is other for other in self._self_others
        ):
            self._self_others.append(self._self_called_model)
        return call

    async def _self_pieces(self, inner: AsyncIterator[Any], call: Call) -> AsyncIterator[Any]:
        error: BaseException | None = None
        try:
            while True:
                token = _open_call.set(call)
                try:
                    piece = await inner.__anext__()
                except StopAsyncIteration:
                    return
                finally:
                    reset(token)
                self._self_safely(call.note_piece, piece)
                yield piece
        except BaseException as raised:
            error = raised
            raise
        finally:
            try:
                with suppress(Exception):  # as its host would: without a word
                    await inner.aclose()  # type: ignore[attr-defined]  # one without has nothing to close
            finally:
                self._self_safely(call.end_stream, error)
                del error


class WatchedHooks(wrapt.ObjectProxy):  # type: ignore[type-arg]  # older ones take none
    """Hooks of a run, ours before theirs.

    Args:
        hooks: The user's, or the host's that do nothing.
        run: Has the same callbacks.
        safely: Calls our code, and contains its failures.
    """

    def __init__(self, hooks: Any, run: HostRun, safely: Callable[..., Any]) -> None:
        super().__init__(hooks)
        self._self_run = run
        self._self_safely = safely

    async def on_agent_start(self, *args: Any, **named: Any) -> None:
        """See that an agent starts."""
        self._self_safely(partial(self._self_run.on_agent_start, *args, **named))
        await self.__wrapped__.on_agent_start(*args, **named)

    async def on_tool_start(self, *args: Any, **named: Any) -> None:
        """See that a tool is called."""
        self._self_safely(partial(self._self_run.on_tool_start, *args, **named))
        await self.__wrapped__.on_tool_start(*args, **named)

    async def on_tool_end(self, *args: Any, **named: Any) -> None:
        """See the result of a tool."""
        self._self_safely(partial(self._self_run.on_tool_end, *args, **named))
        await self.__wrapped__.on_tool_end(*args, **named)

    async def on_handoff(self, *args: Any, **named: Any) -> None:
        """See that another agent takes over."""
        self._self_safely(partial(self._self_run.on_handoff, *args, **named))
        await self.__wrapped__.on_handoff(*args, **named)


REPORTED_AT_END = frozenset({"turn", "function", "handoff", "guardrail"})
"""The types of spans that are reported when they end."""

OPEN_SPANS = 50_000
"""The most open spans of these types that are kept."""

_current: ContextVar[HostRun | None] = ContextVar("tau_live_openai", default=None)
_open_call: ContextVar[Call | None] = ContextVar("tau_live_openai_call", default=None)
"""The open request, to which the span belongs that the model opens."""

Wrapped = Callable[..., Any]


class Watch:
    """Sees every run of a process.

    Args:
        in_force: Returns the running system.
    """

    def __init__(self, in_force: InForce) -> None:
        self._in_force = in_force
        self._safely = Border(in_force).safely
        self._ids = RunIds()
        self._spans: OrderedDict[str, HostRun] = OrderedDict()

    async def run(self, wrapped: Wrapped, _runner: object, args: Any, named: Any) -> Any:
        """See a run from its beginning to its end."""
        return await self._see(self._safely(self._new_run, args, named), wrapped, args, named)

    async def stream(self, wrapped: Wrapped, _module: object, args: Any, named: Any) -> Any:
        """See a streamed run, which goes on in a task of its own."""
        return await self._see(self._safely(self._new_stream, args, named), wrapped, args, named)

    async def _see(
        self, run: HostRun | None, wrapped: Callable[..., Awaitable[Any]], args: Any, named: Any
    ) -> Any:
        if run is None:
            return await wrapped(*args, **named)
        token = _current.set(run)
        result: Any = None
        error: BaseException | None = None
        with_hooks = self._safely(self._with_hooks, run, named) or named
        try:
            result = await wrapped(*args, **with_hooks)
            return result
        except BaseException as raised:
            error = raised
            raise
        finally:
            reset(token)
            self._safely(run.leave)
            self._safely(run.end, result if run.streamed is None else run.streamed, error)
            del error, result  # an exception's frames hold the run's inputs

    def model(self, wrapped: Wrapped, _module: object, args: Any, named: Any) -> Any:
        """Return the model of a run's next request, watched."""
        model = wrapped(*args, **named)
        run = _current.get()
        if run is None:
            return model
        watched = self._safely(self._watch_model, run, model, args, named)
        return model if watched is None else watched

    async def gate_tool(self, wrapped: Wrapped, _module: object, args: Any, named: Any) -> Any:
        """Decide whether to run a tool that the host's own guardrails let pass."""
        rejected = await wrapped(*args, **named)
        run = _current.get()
        if rejected is not None or run is None:
            return rejected
        return self._safely(self._veto, run, named, kind=Kind.DECISION)

    async def note_failure(self, wrapped: Wrapped, _module: object, args: Any, named: Any) -> Any:
        """See why a tool failed, before its model sees that."""
        run = _current.get()
        if run is not None:
            self._safely(run.note_tool_failure, named.get("context"), named.get("error"))
        return await wrapped(*args, **named)

    async def note_timeout(self, wrapped: Wrapped, _module: object, args: Any, named: Any) -> Any:
        """See that a tool took too long, where its model sees that."""
        result = await wrapped(*args, **named)
        self._safely(self._note_timeout, named.get("context"), result)
        return result

    def watch_span_start(self, wrapped: Wrapped, _processors: object, args: Any, named: Any) -> Any:
        """See the start of a span, before the host's processors do."""
        run = _current.get()
        if run is not None:
            self._safely(partial(self._start_span, run, *args, **named))
        return wrapped(*args, **named)

    def watch_span_end(self, wrapped: Wrapped, _processors: object, args: Any, named: Any) -> Any:
        """See the end of a span, maybe after its run."""
        if self._spans:
            self._safely(partial(self._end_span, *args, **named))
        return wrapped(*args, **named)

    def _new_run(self, args: Any, named: Any) -> HostRun | None:
        given = args[1] if len(args) > 1 else named.get("input")
        return self._new(
            agent=args[0] if args else named.get("starting_agent"),
            given=given,
            options=named,
            state=given if isinstance(given, RunState) else None,
            owns_trace=get_current_trace() is None,
        )

    def _new_stream(self, args: Any, named: Any) -> HostRun | None:
        if args:  # another layout than was probed
            return None
        streamed = named["streamed_result"]
        makes_trace = getattr(streamed, "trace", None) is not None
        return self._new(
            agent=named["starting_agent"],
            given=named["starting_input"],
            options=named,
            state=named.get("run_state") if named.get("is_resumed_state") else None,
            owns_trace=makes_trace or get_current_trace() is None,
            streamed=streamed,
        )

    def _new(self, **origin: Any) -> HostRun | None:
        runtime = self._in_force()
        if runtime is None:
            return None
        run = HostRun(runtime=runtime, ids=self._ids, **origin)
        if not _is_traced(run.config):
            run.begin()
        return run

    def _with_hooks(self, run: HostRun, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of a run with our hooks before the user's.

        Hooks of another class are left for the host to refuse.
        """
        hooks = options.get("hooks")
        theirs = RunHooks() if hooks is None else hooks
        if not isinstance(theirs, RunHooksBase):
            return options
        return {**options, "hooks": WatchedHooks(theirs, run, self._safely)}

    @staticmethod
    def _note_timeout(context: Any, result: Any) -> None:
        run = _current.get()
        if run is not None and getattr(result, "is_sdk_generated_error", False) is True:
            run.note_tool_failure(context, None)

    def _watch_model(self, run: HostRun, model: Any, args: Any, named: Any) -> Any:
        run.begin()
        agent = args[0] if args else named["agent"]
        config = args[1] if len(args) > 1 else named["run_config"]
        run.enter()
        run.start_request()
        begin = partial(self._begin_call, run, RequestSeam(agent, config))
        return WatchedModel(model, begin, self._safely)

    def _begin_call(
        self, run: HostRun, seam: RequestSeam, request: Request, streaming: bool
    ) -> Call:  # as the model calls it
        run.report_input(request)
        call = Call(run, request, streaming=streaming)
        choices = self._choices_of(run)
        if choices is not None:
            changed = self._safely(_change_request, run, choices, seam, request, kind=Kind.DECISION)
            call.request = request if changed is None else changed
        if not run.native:
            call.start()
        return call

    def _veto(self, run: HostRun, named: dict[str, Any]) -> str | None:
        choices = self._choices_of(run)
        if choices is None:
            return None
        context, tool = named.get("tool_context"), named.get("func_tool")
        name = getattr(context, "tool_name", None) or getattr(tool, "name", "tool")
        return choices.veto(run.situation({"tool": as_text(name)}))

    def _choices_of(self, run: HostRun) -> Choices | None:
        return run.choices if self._in_force() is run.runtime else None

    def _start_span(self, run: HostRun, span: Any) -> None:
        run.begin(span)
        if span.span_data.type in REPORTED_AT_END:  # the host may never end the oldest
            remember(self._spans, span.span_id, run, limit=OPEN_SPANS)
        run.start_span(span)

    def _end_span(self, span: Any) -> None:
        run = self._spans.pop(span.span_id, None)
        if run is not None:
            run.end_span(span)


def _change_request(run: HostRun, choices: Choices, seam: RequestSeam, request: Request) -> Request:
    """Return the request with the choices in it, and report them."""
    items, first = request.get("input"), run.given
    known = {
        "messages": 1 if isinstance(items, str) else len(items or ()),
        "tools": len(request.get("tools") or ()),
        "prompt_chars": len(first) if isinstance(first, str) else 0,
    }
    changed, pending = choices.change_request(seam, request, run.situation(known))
    pending.settle_sent(changed)  # nothing is between this and the model
    return changed
