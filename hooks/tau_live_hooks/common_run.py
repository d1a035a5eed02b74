"""One run of a host's agent as it is told to the runtime: its turns, usage, costs and durations.

Any thread may tell; what is counted is kept under a lock. Nothing here knows a host: an adapter
keeps one ``RunBook`` for each run and tells it what its host does.
"""

import threading
import time
from collections.abc import Mapping
from types import MappingProxyType

from tau_live import events as ev
from tau_live.runs.handles import RunHandle
from tau_live.runs.raised import ending_of, error_of
from tau_live.runtime import Runtime
from tau_live_hooks.common_text import is_a, printed

_NOTHING: Mapping[str, object] = MappingProxyType({})
_TURNS = frozenset({ev.TurnStart, ev.TurnEnd})
_USED_AGAIN = "#again-"
_UNCOUNTED: Mapping[str, float] = MappingProxyType({})


class RunBook:
    """What has been told of one run, and what is still to be told.

    Args:
        runtime: Who is told.
        handle: The run.
        agent: The agent's name, which every event of the run carries.
        fidelity: How directly the host tells, which every event of the run carries too.

    Attributes:
        agent: The same; another one after a handoff.
        turn: The turn that goes on; ``None`` between turns.
        turn_span: The span of that turn.
    """

    def __init__(
        self,
        runtime: Runtime,
        handle: RunHandle,
        *,
        agent: str | None = None,
        fidelity: ev.Fidelity = ev.Fidelity.NATIVE,
    ) -> None:
        self.runtime = runtime
        self.handle = handle
        self.agent = agent
        self.turn: int | None = None
        self.turn_span: str | None = None
        self._fidelity = fidelity
        self._lock = threading.Lock()
        self._began = time.perf_counter()
        self._turns = 0
        self._turn_began = 0.0
        self._turn_usage: dict[str, float] = {}
        self._turn_calls = 0
        self._usage: dict[str, float] = {}
        self._costs: list[float] = []
        self._steps: dict[str, float] = {}
        self._calls: dict[str, int] = {}
        self._open_calls: dict[str, list[str]] = {}
        self._first: dict[str, float] = {}

    def tell(self, kind: type[ev.Event], fields: Mapping[str, object] = _NOTHING) -> None:
        """Tell that something happened, in the turn that goes on unless ``fields`` say more."""
        told: dict[str, object] = {
            "agent": self.agent,
            "turn": self.turn,
            "fidelity": self._fidelity,
            "span_id" if kind in _TURNS else "parent_span_id": self.turn_span,
            **fields,
        }
        self.runtime.tell(self.handle, kind, told)

    def begin_turn(self, number: int | None = None, *, span_id: str | None = None) -> None:
        """Tell that a turn begins, and that the one before is over; the same again is nothing.

        Args:
            number: Which one it is; ``None`` for the one after the last.
            span_id: The host's id of it; ``None`` makes one.
        """
        if not is_a(number, int):  # whatever else a host may say
            number = None
        elif number == self.turn:
            return
        self.end_turn()
        with self._lock:
            self._turns += 1
            self.turn = self._turns if number is None else number
            self.turn_span = span_id or f"turn:{self.turn}"
            self._turn_began = time.perf_counter()
        self.tell(ev.TurnStart)

    def end_turn(self, fields: Mapping[str, object] = _NOTHING) -> None:
        """Tell that the turn that goes on is over; nothing if there is none."""
        with self._lock:
            turn, self.turn = self.turn, None
            span_id, self.turn_span = self.turn_span, None
            usage, self._turn_usage = self._turn_usage, {}
            calls, self._turn_calls = self._turn_calls, 0
        if turn is None:
            return
        counts = {"turn": turn, "span_id": span_id, "usage": usage, "tool_calls": calls}
        self.tell(ev.TurnEnd, {**counts, "duration_ms": since(self._turn_began), **fields})

    def asked(self, span_id: str, fields: Mapping[str, object] = _NOTHING) -> None:
        """Tell that a model is asked; ``span_id`` is the host's id of that, or one made for it."""
        self._steps[f"model {printed(span_id)}"] = time.perf_counter()
        self.tell(ev.ModelStart, {"span_id": span_id, **fields})

    def heard(self, span_id: str) -> None:
        """Know that a part of a model's answer came; the first one's time is told at its end."""
        began = self._steps.get(f"model {printed(span_id)}")
        if began is not None:
            self._first.setdefault(span_id, since(began))

    def answered(
        self,
        span_id: str,
        fields: Mapping[str, object],
        *,
        usage: Mapping[str, float] = _UNCOUNTED,
        cost: float | None = None,
    ) -> None:
        """Tell what a model answered, and what that took.

        Args:
            span_id: As it was asked.
            fields: Fields of ``events.ModelEnd``, without those that follow.
            usage: Tokens by kind, of this request alone.
            cost: In US dollars; ``None`` where nobody knows.
        """
        with self._lock:
            _count(self._usage, usage)
            _count(self._turn_usage, usage)
            if cost is not None:
                self._costs.append(cost)
        told = {"status": ev.Status.OK, "usage": {**usage}, "cost_usd": cost}
        self._answer(span_id, {**told, **fields})

    def refused(
        self, span_id: str, error: BaseException, *, status: ev.Status | None = None
    ) -> None:
        """Tell that a model did not answer; ``status`` where the error's kind does not say it."""
        self._answer(span_id, {"status": status or ending_of(error)[0], "error": error_of(error)})

    def _answer(self, span_id: str, fields: Mapping[str, object]) -> None:
        began = self._steps.pop(f"model {printed(span_id)}", None)
        took: dict[str, object] = {"ttft_ms": self._first.pop(span_id, None)}
        if began is not None:
            took["duration_ms"] = since(began)
        self.tell(ev.ModelEnd, {"span_id": span_id, **took, **fields})

    def called(self, call_id: str, tool: str, fields: Mapping[str, object] = _NOTHING) -> str:
        """Record that a tool is called; return the span of the call, for ``returned``.

        Args:
            call_id: The model's id of it, or one made for it. A model may use one again: then it
                is another call.
            tool: The tool's name.
            fields: More fields of ``events.ToolStart``.
        """
        span_id = self._call_span(call_id)
        self._steps[span_id] = time.perf_counter()
        with self._lock:
            self._turn_calls += 1
            self._open_calls.setdefault(printed(call_id), []).append(span_id)
        told = {"call_id": call_id, "tool": tool, "tool_kind": "function", **_again(span_id)}
        self.tell(ev.ToolStart, {**told, **fields})
        return span_id

    def _call_span(self, call_id: str) -> str:
        with self._lock:
            number = self._calls[printed(call_id)] = self._calls.get(printed(call_id), 0) + 1
        return f"tool:{printed(call_id)}" + (f"{_USED_AGAIN}{number}" if number > 1 else "")

    def returned(
        self,
        call_id: str,
        tool: str,
        fields: Mapping[str, object] = _NOTHING,
        *,
        error: BaseException | None = None,
        status: ev.Status | None = None,
        span_id: str | None = None,
    ) -> None:
        """Record what a tool returned or raised.

        One that has to wait for somebody, and one that was vetoed, did not fail.

        Args:
            call_id: As it was called; one that was not is a call of its own.
            tool: The tool's name.
            fields: More fields of ``events.ToolEnd``.
            error: What it raised.
            status: How it ended, where the error's kind does not say it.
            span_id: What ``called`` returned; ``None`` is the call of that id that began first.
        """
        how = status or ending_of(error)[0]
        meant = how in {ev.Status.INTERRUPTED, ev.Status.VETOED, ev.Status.OK}
        told: dict[str, object] = {"status": how, "is_error": not meant}
        if error is not None:
            told["error"] = error_of(error)
        span_id = self._ended_call(printed(call_id), span_id)
        began = self._steps.pop(span_id, None)
        if began is not None:
            told["duration_ms"] = since(began)
        self.tell(
            ev.ToolEnd, {"call_id": call_id, "tool": tool, **_again(span_id), **told, **fields}
        )

    def _ended_call(self, call_id: str, span_id: str | None) -> str:
        with self._lock:
            waiting = self._open_calls.get(call_id, [])
            if span_id is None and waiting:
                span_id = waiting[0]
            if span_id in waiting:
                waiting.remove(span_id)
            if not waiting:
                self._open_calls.pop(call_id, None)
        return span_id or self._call_span(call_id)

    def retried(self, what: str, *, number: int | None = None, reason: str | None = None) -> None:
        """Tell that the host tries something again: a ``model``, a ``tool`` or an ``output``."""
        self.tell(ev.Retry, {"what": what, "number": number, "reason": reason})

    def handed_over(self, to: str, *, reason: str | None = None) -> None:
        """Tell that another agent takes over, whose name later events carry."""
        self.tell(ev.Handoff, {"from_agent": self.agent, "to_agent": to, "reason": reason})
        self.agent = to

    def interrupt(
        self, reason: str, *, resume_key: str | None = None, payload: ev.Content | None = None
    ) -> None:
        """Tell that the run waits for somebody: its attempt ends here, the rollout does not.

        ``Runtime.begin_run(..., resumed=...)`` under the same key goes on with it.
        """
        self.end_turn()
        told = {"reason": reason, "resume_key": resume_key, "payload": payload}
        with self._lock:
            raw = {"usage": {**self._usage}, "cost_usd": sum(self._costs) if self._costs else None}
        self.tell(ev.RunInterrupt, {**told, "raw": raw})
        self.handle.ended = True

    def end(
        self, error: BaseException | None = None, fields: Mapping[str, object] = _NOTHING
    ) -> None:
        """Tell that the run is over, with what it used; nothing after an interruption."""
        try:
            self.end_turn()
        finally:  # a run whose end cannot be told in full still ends
            with self._lock:
                usage, costs = {**self._usage}, [*self._costs]
            told = {
                "agent": self.agent,
                "usage": usage,
                "cost_usd": sum(costs) if costs else None,
                "turns": self._turns,
                "duration_ms": since(self._began),
                "fidelity": self._fidelity,
            }
            self.runtime.end_run(self.handle, error, {**told, **fields})


def _count(counts: dict[str, float], more: Mapping[str, float]) -> None:
    for kind, number in more.items():
        counts[kind] = counts.get(kind, 0) + number


def _again(span_id: str) -> dict[str, object]:
    """Return the span of a call whose id was used before; else the id itself names it."""
    return {"span_id": span_id} if _USED_AGAIN in span_id else {}


def since(began: float) -> float:
    """Return the milliseconds since a time of ``time.perf_counter``."""
    return (time.perf_counter() - began) * 1e3
