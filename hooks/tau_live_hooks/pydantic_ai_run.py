"""One run of a pydantic-ai agent, as it is told to the runtime; nothing here imports the host."""

import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tau_live import events as ev
from tau_live.handles import RunHandle
from tau_live.runs import ending_of, error_of
from tau_live.runtime import Runtime
from tau_live_hooks import pydantic_ai_events as said

HOST = "pydantic-ai"

_LIMITS = frozenset({"UsageLimitExceeded"})
_RETRIES = frozenset({"ToolRetryError", "ModelRetry"})
_WAITS = frozenset({"CallDeferred", "ApprovalRequired"})


class HostRun:
    """What has been told of one run, and what is still to be told.

    Args:
        runtime: Who is told.
        handle: The run.
        run_id: The host's id of it, by which its own messages are known from older ones.
    """

    def __init__(self, runtime: Runtime, handle: RunHandle, run_id: str) -> None:
        self.runtime = runtime
        self.handle = handle
        self._run_id = run_id
        self._agent: str | None = None
        self._began = time.perf_counter()
        self._turn: int | None = None
        self._turn_began = 0.0
        self._turns = 0
        self._usage: Counter[str] = Counter()
        self._turn_usage: Mapping[str, float] = {}
        self._costs: list[float] = []
        self._heard = 0
        self._calls: dict[str, float] = {}
        self._turn_calls = 0

    def named(self, agent: str | None) -> None:
        """Know the agent's name, which every event of the run carries."""
        self._agent = agent

    def tell(self, kind: type[ev.Event], fields: Mapping[str, object]) -> None:
        """Tell that something happened."""
        told = {"agent": self._agent, "turn": self._turn, **fields}
        self.runtime.tell(self.handle, kind, told)

    def asked(self, ctx: Any, request: Any) -> None:
        """Tell that a model is asked, once for each attempt; a new step is a new turn."""
        attempt = getattr(request, "attempt", 1)
        if attempt > 1:
            self.tell(ev.Retry, {"what": "model", "number": attempt, **self._within()})
            return
        self._next_turn(ctx.run_step)
        self.listen(ctx.messages)
        self.tell(
            ev.ModelStart, {**said.request_of(request), **self._within(f"model:{ctx.run_step}")}
        )

    def answered(self, ctx: Any, response: Any, began: float) -> None:
        """Tell what a model answered."""
        fields = said.response_of(response)
        self._usage.update(said.usage_of(response.usage))
        self._turn_usage = said.usage_of(response.usage)
        cost = said.cost_of(response.usage)
        if cost is not None:
            self._costs.append(cost)
        self._tell_end(ctx, fields, began)

    def refused(self, ctx: Any, error: BaseException, began: float) -> None:
        """Tell that a model did not answer."""
        status, _ = ending_of(error)
        if type(error).__name__ in _RETRIES:
            status = ev.Status.RETRY
        self._tell_end(ctx, {"status": status, "error": error_of(error)}, began)

    def _tell_end(self, ctx: Any, fields: Mapping[str, object], began: float) -> None:
        if self._turn != ctx.run_step:  # it was refused before it was asked
            self._next_turn(ctx.run_step)
        self.tell(
            ev.ModelEnd,
            {**fields, "duration_ms": _since(began), **self._within(f"model:{ctx.run_step}")},
        )

    def calls(self, ctx: Any, call: Any, kind: object) -> None:
        """Tell that a tool is called."""
        self._calls[call.tool_call_id] = time.perf_counter()
        self._turn_calls += 1
        self.tell(
            ev.ToolStart,
            {
                "call_id": call.tool_call_id,
                "tool": call.tool_name,
                "args": said.content_of(call.args),
                "tool_kind": "function",
                "raw": {"retry": ctx.retry, "kind": str(kind)},
                **self._within(),
            },
        )

    def returned(self, ctx: Any, call: Any, result: object, error: BaseException | None) -> None:
        """Tell what a tool returned or raised."""
        fields: dict[str, object] = {
            "call_id": call.tool_call_id,
            "tool": call.tool_name,
            "duration_ms": _since(self._calls[call.tool_call_id]),
            "is_error": error is not None,
            "status": ev.Status.OK,
            "result": said.content_of(result),
        }
        if error is not None:
            fields |= {"status": _tool_status(error), "error": error_of(error)}
            if type(error).__name__ in _WAITS:
                fields["is_error"] = False
        self.tell(ev.ToolEnd, {**fields, **self._within()})
        if fields["status"] is ev.Status.RETRY:
            retry = {"what": "tool", "number": ctx.retry + 1, "reason": fields["tool"]}
            self.tell(ev.Retry, {**retry, **self._within()})

    def listen(self, messages: Any) -> None:
        """Tell the messages of this run that were not told yet; older ones were other runs'."""
        for place in range(self._heard, len(messages)):
            message = messages[place]
            if getattr(message, "run_id", None) in (None, self._run_id):
                for fields in said.messages_of(message):
                    self.tell(ev.Message, {**fields, "index": place, **self._within()})
                    self._note(fields)
        self._heard = max(self._heard, len(messages))

    def _note(self, fields: Mapping[str, object]) -> None:
        """Tell calls that never reached a tool, and answers that the host did not accept."""
        raw = fields["raw"]
        raw = raw if isinstance(raw, dict) else {}
        call_id, retried = raw.get("tool_call_id"), raw.get("outcome") == "retried"
        if raw["part"] in {"retry-prompt", "retry-feedback"} and call_id is None:
            self.tell(ev.Retry, {"what": "output", **self._within()})
        elif (retried or raw["part"] == "retry-prompt") and call_id not in self._calls:
            self._calls[str(call_id)] = time.perf_counter()
            tool = raw.get("tool_name", "")
            call = {"call_id": call_id, "tool": tool, **self._within()}
            failed = {"is_error": True, "status": ev.Status.RETRY, "result": fields["content"]}
            self.tell(ev.ToolEnd, {**call, **failed})
            self.tell(ev.Retry, {"what": "tool", "reason": tool, **self._within()})

    def ended(self, ctx: Any, result: Any, error: BaseException | None) -> dict[str, object]:
        """Tell what is left to be told, and return the fields of the run's end."""
        self.listen(ctx.messages)
        self._end_turn()
        found: dict[str, object] = {
            "agent": self._agent,
            "usage": {**self._usage},
            "cost_usd": sum(self._costs) if self._costs else None,
            "turns": self._turns,
            "duration_ms": _since(self._began),
        }
        if error is not None and type(error).__name__ in _LIMITS:
            found |= {"status": ev.Status.LIMIT, "reason": ev.Reason.LIMIT}
        if error is not None and _is_late(ctx, error):
            found |= {"status": ev.Status.ERROR, "reason": ev.Reason.TIMEOUT}
        if error is None and result is not None:
            found["output"] = said.content_of(result.output)
            if type(result.output).__name__ == "DeferredToolRequests":
                found |= {"status": ev.Status.INTERRUPTED, "reason": ev.Reason.INTERRUPTED}
        return found

    def _next_turn(self, turn: int) -> None:
        if turn == self._turn:
            return
        self._end_turn()
        self._turn, self._turn_began = turn, time.perf_counter()
        self._turns += 1
        self.tell(ev.TurnStart, {})

    def _end_turn(self) -> None:
        if self._turn is None:
            return
        fields = {"usage": {**self._turn_usage}, "tool_calls": self._turn_calls}
        self.tell(ev.TurnEnd, {**fields, "duration_ms": _since(self._turn_began)})
        self._turn, self._turn_usage, self._turn_calls = None, {}, 0

    def _within(self, span_id: str | None = None) -> dict[str, object]:
        parent = None if self._turn is None else f"turn:{self._turn}"
        return {"span_id": span_id, "parent_span_id": parent}


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1e3


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
