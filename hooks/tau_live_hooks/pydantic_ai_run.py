"""One run of a pydantic-ai agent, as it is told to the runtime; nothing here imports the host."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tau_live import events as ev
from tau_live.runs.raised import ending_of
from tau_live_hooks import pydantic_ai_events as said
from tau_live_hooks.common_run import RunBook
from tau_live_hooks.common_text import content_of, printed

HOST = "pydantic-ai"

_LIMITS = frozenset({"UsageLimitExceeded"})
_FILTERS = frozenset({"ContentFilterError"})
_RETRIES = frozenset({"ToolRetryError", "ModelRetry"})
_DEFERRED = "DeferredToolRequests"
_WAITS = frozenset({"CallDeferred", "ApprovalRequired"})


class HostRun:
    """What the host does in one run, told to its book.

    Args:
        book: Who is told.
        run_id: The host's id of it, by which its own messages are known from older ones.

    Attributes:
        has_answer: Whether a model has answered, and none was asked since.
    """

    def __init__(self, book: RunBook, run_id: str) -> None:
        self.book = book
        self.has_answer = False
        self._run_id = run_id
        self._heard = 0
        self._called: Counter[str] = Counter()
        self._spans: dict[int, str] = {}

    def asked(self, ctx: Any, request: Any) -> None:
        """Tell that a model is asked, once for each attempt; a new step is a new turn."""
        self.has_answer = False
        attempt = getattr(request, "attempt", 1)
        if attempt > 1:
            self.book.retried("model", number=attempt)
            return
        self.book.begin_turn(ctx.run_step)
        self.listen(ctx.messages)
        self.book.asked(_model(ctx), said.request_of(request))

    def answered(self, ctx: Any, response: Any, first_s: float | None = None) -> None:
        """Tell what a model answered."""
        self.has_answer = True
        self.book.begin_turn(ctx.run_step)  # where it was answered before it was asked
        usage = said.usage_of(response.usage)
        cost = said.cost_of(response.usage)
        told = said.response_of(response)
        if first_s is not None:
            told["ttft_ms"] = first_s * 1e3
        self.book.answered(_model(ctx), told, usage=usage, cost=cost)

    def refused(self, ctx: Any, error: BaseException) -> None:
        """Tell that a model did not answer."""
        self.book.begin_turn(ctx.run_step)  # where it was refused before it was asked
        retried = type(error).__name__ in _RETRIES
        self.book.refused(_model(ctx), error, status=ev.Status.RETRY if retried else None)

    def calls(self, ctx: Any, call: Any, tool: Any) -> None:
        """Tell that a tool is called."""
        self._called[printed(call.tool_call_id)] += 1
        raw = {"retry": ctx.retry, "kind": printed(getattr(tool, "kind", ""))}
        fields = {"args": content_of(call.args), "raw": raw}
        self._spans[id(call)] = self.book.called(call.tool_call_id, call.tool_name, fields)

    def goes_on(self, call: Any) -> bool:
        """Say whether a tool's call has begun and not ended."""
        return id(call) in self._spans

    def returned(self, ctx: Any, call: Any, result: object, error: BaseException | None) -> None:
        """Tell what a tool returned or raised."""
        status = None if error is None else _tool_status(error)
        told = {"result": content_of(result)}
        self.book.returned(
            call.tool_call_id,
            call.tool_name,
            told,
            error=error,
            status=status,
            span_id=self._spans.pop(id(call), None),
        )
        if status is ev.Status.RETRY:
            self.book.retried("tool", number=ctx.retry + 1, reason=call.tool_name)

    def vetoed(self, call: Any, text: str) -> None:
        """Tell that a tool was not run, and what the model is told instead."""
        told = {"result": content_of(text)}
        self.book.returned(
            call.tool_call_id,
            call.tool_name,
            told,
            status=ev.Status.VETOED,
            span_id=self._spans.pop(id(call), None),
        )

    def listen(self, messages: Any) -> None:
        """Tell the messages of this run that were not told yet; older ones were other runs'."""
        for place in range(self._heard, len(messages)):
            message = messages[place]
            if getattr(message, "run_id", None) in (None, self._run_id):
                for fields in said.messages_of(message):
                    self.book.tell(ev.Message, {**fields, "index": place})
                    self._note(fields)
        self._heard = max(self._heard, len(messages))

    def _note(self, fields: Mapping[str, object]) -> None:
        """Tell calls that never reached a tool, and answers that the host did not accept."""
        raw = fields["raw"]
        raw = raw if isinstance(raw, dict) else {}
        call_id, retried = raw.get("tool_call_id"), raw.get("outcome") == "retried"
        if raw["part"] in {"retry-prompt", "retry-feedback"} and call_id is None:
            self.book.retried("output")
        elif raw["part"] in {"tool-return", "retry-prompt"} and self._called[printed(call_id)]:
            self._called[printed(call_id)] -= 1  # the answer to a call that reached its tool
        elif retried or raw["part"] == "retry-prompt":
            tool = printed(raw.get("tool_name", ""))
            told = {"result": fields["content"]}
            self.book.returned(printed(call_id), tool, told, status=ev.Status.RETRY)
            self.book.retried("tool", reason=tool)

    def ended(self, ctx: Any, result: Any, error: BaseException | None) -> None:
        """Tell what is left to be told, and that the run is over, or waits for somebody."""
        found: dict[str, object] = {}
        waits = error is None and type(getattr(result, "output", None)).__name__ == _DEFERRED
        try:
            self.listen(ctx.messages)
            if error is not None and type(error).__name__ in _LIMITS:
                found |= {"status": ev.Status.LIMIT, "reason": ev.Reason.LIMIT}
            if error is not None and _is_late(ctx, error):
                found |= {"status": ev.Status.ERROR, "reason": ev.Reason.TIMEOUT}
            if error is not None and type(error).__name__ in _FILTERS:
                self._told_filtered()
            if error is None and result is not None:
                found["output"] = content_of(result.output)
        finally:  # a run whose end cannot be told in full still ends
            if waits:
                reason = "approval" if result.output.approvals else "external"
                self.book.interrupt(
                    reason, resume_key=ctx.conversation_id, payload=content_of(result.output)
                )
            else:
                self.book.end(error, found)

    def _told_filtered(self) -> None:
        told = {"stage": "output", "mode": "block", "blocked": True}
        self.book.tell(ev.Policy, {**told, "rules": ("content_filter",)})


def _model(ctx: Any) -> str:
    return f"model:{printed(ctx.run_step)}"


def _is_late(ctx: Any, error: BaseException) -> bool:
    """Say whether a run was cancelled by the host, because its time was over."""
    deadline = getattr(ctx, "deadline", None)
    if deadline is None or ending_of(error)[0] is not ev.Status.CANCELLED:
        return False
    return bool(datetime.now(UTC) >= deadline)


def _tool_status(error: BaseException) -> ev.Status:
    name = type(error).__name__
    if name in _RETRIES:
        return ev.Status.RETRY
    if name in _WAITS:
        return ev.Status.INTERRUPTED
    return ending_of(error)[0]
