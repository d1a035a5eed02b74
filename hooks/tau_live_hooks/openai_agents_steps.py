"""The steps of one run of openai-agents, by its spans and hooks; nothing here imports the host.

A function's span says when it begins and how it ends, a hook with which call and which arguments.
So a tool's start is told by the hook, and by the span's end where no hook came: then it did not
run. Spans may end long after their run has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tau_live import events as ev
from tau_live.envelope import Content, ErrorInfo
from tau_live.runs.raised import error_of
from tau_live_hooks import openai_agents_events as said
from tau_live_hooks.common_run import RunBook
from tau_live_hooks.common_text import content_of, counted, few, printed
from tau_live_hooks.openai_agents_policies import policy_of

if TYPE_CHECKING:
    from tau_live_hooks.openai_agents_requests import Request


@dataclass(slots=True)
class _Call:
    """A tool's call while it goes on."""

    call_id: str
    tool: str
    parent: str | None
    called: bool = False
    returned: bool = False
    result: object = None


class Steps:
    """Tells what happens in one run.

    Args:
        book: Who is told.
        keeps: Whether what goes in and out may be told.
        native: Whether the run is traced.

    Attributes:
        requests: So many models have been asked.
        guards: What the guardrails look at that go on, by their spans.
        waits: The tools that had to be approved before the run went on, by their calls.
    """

    def __init__(self, book: RunBook, *, keeps: bool, native: bool) -> None:
        self.book = book
        self.keeps = keeps
        self.native = native
        self.requests = 0
        self.guards: dict[str, str] = {}
        self.waits: dict[str, str] = {}
        self._tries = 0
        self._tells_turns = False
        self._spans: dict[str, _Call] = {}
        self._calls: dict[str, _Call] = {}
        self._failures: dict[str, ErrorInfo] = {}
        self._heard: int | None = None

    def agent_began(self, name: object) -> None:
        """Know which agent it is now."""
        self.book.agent = printed(name)

    def turn_began(self, span: Any) -> None:
        """Tell that a turn began."""
        self._tells_turns = True
        self.book.begin_turn(span.span_data.turn, span_id=span.span_id)

    def turn_ended(self, span: Any) -> None:
        """Tell that it is over, unless another one is on."""
        if span.span_id == self.book.turn_span:
            usage = getattr(span.span_data, "usage", None)
            told = counted(usage) if isinstance(usage, Mapping) else {}
            self.book.end_turn({"usage": told} if told else {})

    def request_began(self) -> None:
        """Begin a turn where the host tells none: each request of the loop is one."""
        self.requests += 1
        self._tries = 0
        if not self._tells_turns:
            self.book.begin_turn()

    def asked_anew(self) -> str:
        """Return an id for asking a model; the same request again is a retry, and told as one."""
        self._tries += 1
        if self._tries == 1:
            return f"model:{self.requests}"
        self.book.retried("model", number=self._tries)
        return f"model:{self.requests}.{self._tries}"

    def function_began(self, span: Any) -> None:
        """Know the span of a tool."""
        self._spans[span.span_id] = _Call(span.span_id, span.span_data.name, self.book.turn_span)

    def tool_began(self, context: Any, tool: Any, span: Any) -> None:
        """Tell that a tool is called, inside its span where it has one."""
        span_id = said.known_id(getattr(span, "span_id", None))
        call_id = said.known_id(getattr(context, "tool_call_id", None))
        name = printed(getattr(context, "tool_name", None) or getattr(tool, "name", "tool"))
        call = self._spans.get(span_id or "")
        if call is None:
            call_id = call_id or f"{name}#{len(self._calls) + 1}"
            call = _Call(call_id, name, self.book.turn_span)
            self._calls[call_id] = call
        else:
            call.call_id = call_id or call.call_id
        told = {"tool_kind": said.kind_of_tool(tool)}
        self._called(call, span_id, getattr(context, "tool_arguments", None), told)

    def tool_failed(self, context: Any, error: BaseException | None) -> None:
        """Know why a tool failed, whose model is told so; ``None`` says that its time was over."""
        call_id = said.known_id(getattr(context, "tool_call_id", None))
        if call_id is None or (error is None and call_id in self._failures):
            return
        info = ErrorInfo(type="ToolTimeoutError") if error is None else error_of(error)
        self._failures[call_id] = info if self.keeps else replace(info, message="")

    def tool_returned(self, context: Any, tool: Any, result: object, span: Any) -> None:
        """Know what a tool returned; tell it where no span will."""
        call = self._spans.get(said.known_id(getattr(span, "span_id", None)) or "")
        if call is not None:
            call.returned, call.result = True, result
            return
        call_id = said.known_id(getattr(context, "tool_call_id", None))
        name = getattr(tool, "name", "tool")
        if call_id is None:
            last = [one.call_id for one in self._calls.values() if one.tool == name]
            call_id = last[-1] if last else ""
        call = self._calls.pop(call_id, None)
        if call is not None:
            told = self._within(call, None, result)
            error = self._failures.pop(call.call_id, None)
            status = ev.Status.OK if error is None else ev.Status.ERROR
            self.book.returned(call.call_id, call.tool, {**told, "error": error}, status=status)

    def function_ended(self, span: Any) -> None:
        """Tell how a tool ended."""
        call = self._spans.pop(span.span_id, None)
        if call is None:
            return
        data, error = span.span_data, self._failures.pop(call.call_id, None)
        if error is None and getattr(span, "error", None) is not None:
            error = _error_of(span.error, keeps=self.keeps)
        result = call.result if call.returned else data.output
        if not call.called:
            self._called(call, span.span_id, data.input, {})
        told = self._within(call, span.span_id, result)
        told["error"] = error
        if getattr(data, "mcp_data", None):
            told["raw"] = {"mcp": True}
        self.book.returned(call.call_id, call.tool, told, status=_status_of(call, data, error))

    def handed_over(self, source: object, target: object, span_id: str | None = None) -> None:
        """Tell that another agent takes over."""
        told = {"from_agent": source, "to_agent": target, "span_id": span_id}
        self.book.tell(ev.Handoff, told)
        if isinstance(target, str):
            self.book.agent = target

    def guarded(self, span: Any, stage: str) -> None:
        """Tell what a guardrail said."""
        data = span.span_data
        told = policy_of(stage, data.name, blocked=bool(data.triggered))
        self.book.tell(ev.Policy, {**told, "span_id": span.span_id})

    def sent(self, request: "Request", given: object) -> None:
        """Tell what a model is sent that was not told yet.

        Args:
            request: What it is asked.
            given: What the run was to work on: what stands before that was told by other runs.
        """
        ours = len(given) if isinstance(given, list | tuple) else int(isinstance(given, str))
        served = request.get("previous_response_id") or request.get("conversation_id")
        self._listen(request.get("input"), own=None if served else ours)

    def _listen(self, items: object, *, own: int | None) -> None:
        given = [{"role": "user", "content": items}] if isinstance(items, str) else items
        listed = few(given)
        self._refused(listed)
        heard = self._heard
        if own is None:
            heard = 0
        elif heard is None:
            heard = max(0, len(listed) - own)
        elif heard > len(listed):
            before, heard = heard, len(listed)
            self.book.tell(ev.Context, {"op": "truncate", "before": before, "after": heard})
        self._tell_messages(listed, heard)
        self._heard = len(listed)

    def answered(self, output: Sequence[Any]) -> None:
        """Tell what a model answered, which the next request says again."""
        place = self._heard or 0
        for number, item in enumerate(output):
            told = said.message_of(item, keeps=self.keeps)
            self.book.tell(ev.Message, {**told, "index": place + number})
        self._heard = place + len(output)

    def _tell_messages(self, items: Sequence[Any], start: int) -> None:
        for place in range(start, len(items)):
            told = said.message_of(items[place], keeps=self.keeps)
            self.book.tell(ev.Message, {**told, "index": place})

    def _refused(self, items: Sequence[Any]) -> None:
        """Tell which of the tools that waited were not approved: only the model is told."""
        for item in items if self.waits else ():
            call_id = printed(said.of(item, "call_id") or "")
            if call_id in self.waits and said.of(item, "type") == "function_call_output":
                told = {"result": content_of(said.of(item, "output")) if self.keeps else None}
                tool = self.waits.pop(call_id)
                self.book.returned(call_id, tool, told, status=ev.Status.VETOED)

    def _called(
        self, call: _Call, span_id: str | None, args: object, told: Mapping[str, object]
    ) -> None:
        call.called = call.called or bool(told)
        self.waits.pop(call.call_id, None)
        given = content_of(args) if self.keeps else None
        fields = {"args": given, "span_id": span_id, "parent_span_id": call.parent, **told}
        self.book.called(call.call_id, call.tool, fields)

    def _within(self, call: _Call, span_id: str | None, result: object) -> dict[str, object]:
        found: Content | None = content_of(result) if self.keeps else None
        return {"result": found, "span_id": span_id, "parent_span_id": call.parent}


def _status_of(call: _Call, data: Any, error: object) -> ev.Status:
    """Return how a tool ended: what no hook announced was refused, or waits for somebody."""
    if error is not None:
        return ev.Status.ERROR
    if not call.called:
        return ev.Status.INTERRUPTED if data.output is None else ev.Status.VETOED
    return ev.Status.OK if call.returned or data.output is not None else ev.Status.CANCELLED


def _error_of(error: Any, *, keeps: bool) -> ErrorInfo:
    message, data = printed(said.of(error, "message") or ""), said.of(error, "data")
    cause = printed(said.of(data, "error") or "") if keeps else ""
    return ErrorInfo(type="ToolError", message=": ".join(filter(None, (message, cause))))
