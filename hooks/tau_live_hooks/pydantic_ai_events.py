"""Fields of our events from pydantic-ai's objects; nothing here imports the host.

Everything is read by name and may be missing: an older or newer host then reports less.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

from tau_live.core import events as ev
from tau_live.core.errors import suppress
from tau_live.core.events import Content
from tau_live.core.records import Reason
from tau_live.decisions.runs import ending_of
from tau_live_hooks.common import RunBook, as_text, content_of, few, positive_counts, tool_call

ROLES: Mapping[str, str] = {
    "system-prompt": "system",
    "user-prompt": "user",
    "text": "assistant",
    "thinking": "assistant",
    "tool-call": "assistant",
    "tool-return": "tool",
    "retry-prompt": "user",
    "retry-feedback": "user",
}
"""The role of a part of a message, by the host's name for its kind."""


def usage_of(usage: Any) -> dict[str, float]:
    """Return the tokens of a request by the host's own names, without those that are 0."""
    if not is_dataclass(usage):
        return {}
    counts = {field.name: getattr(usage, field.name, None) for field in fields(usage)}
    details = counts.pop("details", None)
    kinds = {**(details if isinstance(details, Mapping) else {}), **counts}
    kinds.pop("cost", None)
    return positive_counts(kinds)


def cost_of(usage: Any) -> float | None:
    """Return the cost of a request in US dollars, if the host knows its price."""
    cost = getattr(usage, "cost", None)
    return None if cost is None or callable(cost) else float(cost)


def model_name(model: Any) -> str | None:
    """Return the name of a model as the host selects it: ``openai:gpt-5``."""
    if model is None or isinstance(model, str):
        return model
    return (
        as_text(getattr(model, "model_id", None) or getattr(model, "model_name", None) or "")
        or None
    )


def start_of(ctx: Any) -> ev.Fields:
    """Return the fields of a run's start."""
    agent = getattr(getattr(ctx, "agent", None), "name", None)
    return {
        "input": content_of(getattr(ctx, "prompt", None)),
        "model": model_name(getattr(ctx, "model", None)),
        "agent": None if agent is None else as_text(agent),
    }


def request_of(request: Any) -> ev.Fields:
    """Return the fields of a model request's start."""
    parameters = request.model_request_parameters
    instructions = [as_text(part.content) for part in few(parameters.instruction_parts)]
    raw: dict[str, object] = {
        "messages": len(request.messages),
        "output_tools": [tool.name for tool in few(parameters.output_tools)],
    }
    if instructions:
        raw["instructions"] = instructions
    return {
        "model_requested": model_name(request.model),
        "provider": getattr(request.model, "system", None),
        "params": dict(request.model_settings or {}),
        "tools_offered": tuple(tool.name for tool in few(parameters.function_tools)),
        "streaming": bool(getattr(request, "streaming", False)),
        "raw": raw,
    }


def response_of(response: Any) -> ev.Fields:
    """Return the fields of a model request's end."""
    reason = getattr(response, "finish_reason", None)
    texts = [part.content for part in few(response.parts) if part.part_kind == "text"]
    return {
        "model_used": response.model_name,
        "response_id": getattr(response, "provider_response_id", None),
        "finish_reasons": () if reason is None else (as_text(reason),),
        "tool_calls": tuple(
            tool_call(part.tool_call_id, part.tool_name, part.args)
            for part in few(response.parts)
            if part.part_kind == "tool-call"
        ),
        "output": Content(text="".join(texts)) if texts else None,
    }


def messages_of(message: Any) -> Iterator[ev.Fields]:
    """Yield the fields of each part that a message of the host adds to the conversation."""
    for part in few(message.parts):
        kind = as_text(part.part_kind)
        raw: dict[str, object] = {"part": kind}
        for name in ("tool_name", "tool_call_id", "outcome"):
            if getattr(part, name, None) is not None:
                raw[name] = as_text(getattr(part, name))
        content = part.args if kind == "tool-call" else getattr(part, "content", None)
        yield {
            "role": ROLES.get(kind, "assistant" if message.kind == "response" else "user"),
            "content": content_of(content),
            "raw": raw,
        }


def resumed_run(messages: Sequence[Any]) -> str | None:
    """Return the id of the run that waited for the results with which a history goes on.

    A run that was itself such a continuation begins with the results of the calls that the one
    before it requested. The first run of the chain is returned; it follows from the history alone,
    in any process.
    """
    runs: list[tuple[str, Any, Any]] = []
    for message in few(messages):
        run_id = getattr(message, "run_id", None)
        if run_id and runs and runs[-1][0] == run_id:
            runs[-1] = (run_id, runs[-1][1], message)
        elif run_id:
            runs.append((run_id, message, message))
    while len(runs) > 1 and _calls_in(runs[-2][2]) & _calls_in(runs[-1][1]):
        runs.pop()
    return runs[-1][0] if runs else None


def _calls_in(message: Any) -> set[str]:
    ids = {getattr(part, "tool_call_id", None) for part in few(message.parts)}
    return {as_text(id_) for id_ in ids if id_}


HOST = "pydantic-ai"

_RETRIES = frozenset({"ToolRetryError", "ModelRetry"})


class HostRun:
    """Reports the steps of one run to its book.

    Args:
        book: Takes the events.
        run_id: The host's id of it, which tells its own messages from older ones.

    Attributes:
        has_answer: True once a model has answered, until the next request.
    """

    def __init__(self, book: RunBook, run_id: str) -> None:
        self.book = book
        self.has_answer = False
        self._run_id = run_id
        self._messages = 0
        self._open_calls: Counter[str] = Counter()
        self._spans: dict[int, str] = {}

    def start_model(self, ctx: Any, request: Any) -> None:
        """Report a request, once for each attempt; a new step is a new turn."""
        self.has_answer = False
        attempt = getattr(request, "attempt", 1)
        if attempt > 1:
            self.book.record_retry("model", number=attempt)
            return
        self.book.begin_turn(ctx.run_step)
        self.report_messages(ctx.messages)
        self.book.start_model(_model(ctx), request_of(request))

    def end_model(self, ctx: Any, response: Any, first_s: float | None = None) -> None:
        """Report the answer of a model."""
        self.has_answer = True
        self.book.begin_turn(ctx.run_step)  # where the answer came before the request
        usage = response.usage
        timing = {} if first_s is None else {"ttft_ms": first_s * 1e3}
        fields = {**response_of(response), **timing}
        self.book.end_model(_model(ctx), fields, usage=usage_of(usage), cost=cost_of(usage))

    def fail_model(self, ctx: Any, error: BaseException) -> None:
        """Report that a model did not answer."""
        self.book.begin_turn(ctx.run_step)  # where the error came before the request
        retried = type(error).__name__ in _RETRIES
        self.book.fail_model(_model(ctx), error, status=ev.Status.RETRY if retried else None)

    def start_tool(self, ctx: Any, call: Any, tool: Any) -> None:
        """Report that a tool is called."""
        self._open_calls[as_text(call.tool_call_id)] += 1
        raw = {"retry": ctx.retry, "kind": as_text(getattr(tool, "kind", ""))}
        fields = {"args": content_of(call.args), "raw": raw}
        self._spans[id(call)] = self.book.start_tool(call.tool_call_id, call.tool_name, fields)

    def is_open(self, call: Any) -> bool:
        """Return whether a tool's call has not ended yet."""
        return id(call) in self._spans

    def end_tool(
        self, ctx: Any, call: Any, result: object, error: BaseException | None = None
    ) -> None:
        """Report what a tool returned or raised."""
        status = ending_of(error)[0]
        if type(error).__name__ in _RETRIES:
            status = ev.Status.RETRY
        elif type(error).__name__ in {"CallDeferred", "ApprovalRequired"}:
            status = ev.Status.INTERRUPTED
        self._end_call(call, result, status, error)
        if status is ev.Status.RETRY:
            self.book.record_retry("tool", number=ctx.retry + 1, reason=call.tool_name)

    def veto_tool(self, call: Any, text: str) -> None:
        """Report that a tool was not run, and the text in its place."""
        self._end_call(call, text, ev.Status.VETOED)

    def _end_call(
        self, call: Any, result: object, status: ev.Status, error: BaseException | None = None
    ) -> None:
        self.book.end_tool(
            call.tool_call_id,
            call.tool_name,
            {"result": content_of(result)},
            error=error,
            status=status,
            span_id=self._spans.pop(id(call), None),
        )

    def report_messages(self, messages: Any) -> None:
        """Report the new messages of this run; older ones were other runs'."""
        for index in range(self._messages, len(messages)):
            message = messages[index]
            if getattr(message, "run_id", None) in (None, self._run_id):
                for fields in messages_of(message):
                    self.book.tell(ev.Message, {**fields, "index": index})
                    self._note(fields)
        self._messages = max(self._messages, len(messages))

    def _note(self, fields: ev.Fields) -> None:
        """Report calls that never reached a tool, and answers that the host did not accept."""
        raw: Any = fields["raw"]
        call_id, retried = raw.get("tool_call_id"), raw.get("outcome") == "retried"
        if raw["part"] in {"retry-prompt", "retry-feedback"} and call_id is None:
            self.book.record_retry("output")
        elif raw["part"] in {"tool-return", "retry-prompt"} and self._open_calls[as_text(call_id)]:
            self._open_calls[as_text(call_id)] -= 1  # the answer to a call that reached its tool
        elif retried or raw["part"] == "retry-prompt":
            tool = as_text(raw.get("tool_name", ""))
            result = {"result": fields["content"]}
            self.book.end_tool(as_text(call_id), tool, result, status=ev.Status.RETRY)
            self.book.record_retry("tool", reason=tool)

    def end(self, ctx: Any, result: Any, error: BaseException | None) -> None:
        """Report the last messages, and that the run is over or waits for somebody."""
        fields: ev.Fields = {}
        waits = (
            error is None
            and type(getattr(result, "output", None)).__name__ == "DeferredToolRequests"
        )
        try:
            self.report_messages(ctx.messages)
            name = type(error).__name__
            if name == "UsageLimitExceeded":
                fields = {"status": ev.Status.LIMIT, "reason": Reason.LIMIT}
            elif name == "ContentFilterError":
                blocked = {"blocked": True, "rules": ("content_filter",)}
                self.book.tell(ev.Policy, {"stage": "output", "mode": "block", **blocked})
            elif error is not None and _is_late(ctx, error):
                fields = {"status": ev.Status.ERROR, "reason": Reason.TIMEOUT}
            elif error is None and result is not None:
                fields = {"output": content_of(result.output)}
        finally:  # a run whose end cannot be reported in full still ends
            if waits:
                reason = "approval" if result.output.approvals else "external"
                self.book.interrupt(
                    reason, resume_key=ctx.conversation_id, payload=content_of(result.output)
                )
            else:
                self.book.end(error, fields)


def _model(ctx: Any) -> str:
    return f"model:{as_text(ctx.run_step)}"


def _is_late(ctx: Any, error: BaseException) -> bool:
    """Return whether the host cancelled a run because its time was over."""
    deadline = getattr(ctx, "deadline", None)
    if deadline is None or ending_of(error)[0] is not ev.Status.CANCELLED:
        return False
    return bool(datetime.now(UTC) >= deadline)


class FirstChunk:
    """Measures the time to the first piece of an answer, from now until ``close``.

    The host's capture of it is private: one that has it elsewhere, or not at all, reports none.

    Args:
        request: The host's ``ModelRequestContext``.

    Attributes:
        after_s: Seconds from the request to the first piece; ``None`` if unknown.
    """

    def __init__(self, request: Any) -> None:
        self.after_s: float | None = None
        self._capture: Any = None
        with suppress(Exception):
            if getattr(request, "streaming", None) is False:
                return
            from pydantic_ai._instrumentation import model_response_span_capture

            capture: Any = model_response_span_capture(request, self._capture_time)
            capture.__enter__()
            self._capture = capture

    def close(self) -> None:
        """Stop measuring; in another context than the first, that is the host's to undo."""
        if self._capture is not None:
            with suppress(Exception):
                self._capture.__exit__(None, None, None)
            self._capture = None

    def _capture_time(self, _response: object, after_s: object = None) -> None:
        if isinstance(after_s, int | float):
            self.after_s = float(after_s)
