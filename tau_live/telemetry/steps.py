"""The events of a run that follow from one ended span."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tau_live import events as ev
from tau_live.telemetry import said as says
from tau_live.telemetry.kinds import Kind
from tau_live.telemetry.spans import Attributes, Begun, Ended, text

HANDS_OVER = "handoff to "
"""How the tool's calls begin by which one agent hands over to another."""

Told = tuple[type[ev.Event], dict[str, Any]]
"""A kind of event, and its fields but for those that say of which run it is."""


@dataclass(slots=True)
class Tally:
    """What the steps of a run come to.

    Attributes:
        usage: Tokens by kind.
        cost: US dollars; ``None`` while no step said any.
        turns: How many turns there were.
    """

    usage: dict[str, float]
    cost: float | None = None
    turns: int = 0

    def add(self, usage: Mapping[str, float], cost: float | None) -> None:
        """Count what a model's answer took."""
        for kind, number in usage.items():
            self.usage[kind] = self.usage.get(kind, 0.0) + number
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost


def steps_of(ended: Ended, kind: Kind, tally: Tally | None, inner: Tally | None) -> Iterator[Told]:
    """Yield what a span tells, and count it.

    Args:
        ended: The span.
        kind: What it is of.
        tally: Of its run; ``None`` for one that others tell, which has turns of its own.
        inner: What spans of the same answer came to, made by another instrumentation inside of
            this one; counts where this one says nothing.
    """
    if kind in {Kind.MODEL, Kind.EMBEDDING}:
        yield from _answer(ended, kind, tally, inner)
    elif kind in {Kind.TOOL, Kind.RETRIEVAL}:
        yield from _call(ended, kind, tally)
    elif kind is Kind.POLICY:
        begun, problem = ended.begun, says.problem_of(ended)
        fields = says.looked_of(begun.attributes, begun.name, failed=ended.failed)
        yield ev.Policy, {
            **_within(begun, at=ended.at), **fields, "error": problem.error,
            "turn": _turn(tally),
        }  # fmt: skip


def _turn(tally: Tally | None) -> int | None:
    return None if tally is None else tally.turns or None


def left_open(begun: Begun, kind: Kind, tally: Tally) -> Iterator[Told]:
    """Yield the start of a step whose end was not told, so that the end of its run closes it."""
    said, within = begun.attributes, _within(begun, at=begun.at)
    if kind is Kind.MODEL:
        yield ev.ModelStart, {**within, **says.request_of(said)}
    elif kind is Kind.TOOL:
        call = {**says.call_of(said, begun.name), "turn": tally.turns or None}
        yield ev.ToolStart, {**within, **call, **says.asked_of(said)}


def _answer(ended: Ended, kind: Kind, tally: Tally | None, inner: Tally | None) -> Iterator[Told]:
    begun, problem = ended.begun, says.problem_of(ended)
    said = begun.attributes
    asked, response = says.request_of(said), says.response_of(said)
    usage, cost = _counted(response, inner)
    response |= {"usage": usage, "cost_usd": cost}
    if tally is not None:
        tally.add(usage, cost)
        tally.turns += kind is Kind.MODEL
    turn = {"turn": _turn(tally)}
    took = {"duration_ms": took_ms(ended)}
    ending = {"status": problem.status, "error": problem.error}
    yield ev.ModelStart, {**_within(begun, at=begun.at), **asked, **turn}
    yield ev.ModelEnd, {**_within(begun, at=ended.at), **response, **ending, **turn, **took}
    if problem.status is ev.Status.RETRY:
        yield _retry(ended, "model", said)
    if kind is Kind.MODEL and tally is not None:
        calls = response["tool_calls"]
        yield ev.TurnEnd, {
            "at": ended.at, **turn, **took, "span_id": f"turn:{tally.turns}",
            "parent_span_id": begun.parent, "status": problem.status, "usage": usage,
            "tool_calls": len(calls) if isinstance(calls, tuple) else None,
            "fidelity": ev.Fidelity.INFERRED,
        }  # fmt: skip


def _counted(
    response: Mapping[str, object], inner: Tally | None
) -> tuple[Mapping[str, float], float | None]:
    """Return tokens and cost of an answer, from inside of it where it does not say them."""
    usage, cost = response["usage"], response["cost_usd"]
    own: dict[str, float] = dict(usage) if isinstance(usage, dict) else {}
    known = cost if isinstance(cost, float) else None
    if inner is None:
        return own, known
    return own or inner.usage, inner.cost if known is None else known


def _call(ended: Ended, kind: Kind, tally: Tally | None) -> Iterator[Told]:
    begun, problem = ended.begun, says.problem_of(ended)
    said = begun.attributes
    if begun.name.startswith(HANDS_OVER):
        yield ev.Handoff, {
            **_within(begun, at=ended.at), "status": problem.status, "error": problem.error,
            "from_agent": text(said, "input.value"), "turn": _turn(tally),
            "to_agent": begun.name.removeprefix(HANDS_OVER),
        }  # fmt: skip
        return
    call = {**says.call_of(said, begun.name), "turn": _turn(tally)}
    asked = says.asked_of(said)
    if kind is Kind.RETRIEVAL:
        asked["tool_kind"] = "builtin"
    yield ev.ToolStart, {**_within(begun, at=begun.at), **call, **asked}
    waits = problem.status is ev.Status.INTERRUPTED
    yield ev.ToolEnd, {
        **_within(begun, at=ended.at), **call, "result": says.result_of(said),
        "is_error": problem.error is not None and not waits, "status": problem.status,
        "error": problem.error, "duration_ms": took_ms(ended),
    }  # fmt: skip
    if problem.status is ev.Status.RETRY:
        yield _retry(ended, "tool", said)


def _retry(ended: Ended, what: str, said: Attributes) -> Told:
    begun = ended.begun
    number = said.get("pydantic_ai.tool.retry.attempt")
    return ev.Retry, {
        **_within(begun, at=ended.at), "span_id": f"{begun.id}:retry", "what": what,
        "number": number if isinstance(number, int) else None,
        "reason": says.call_of(said, begun.name)["tool"] if what == "tool" else None,
    }  # fmt: skip


def _within(begun: Begun, *, at: float) -> dict[str, Any]:
    return {
        "at": at,
        "span_id": begun.id,
        "parent_span_id": begun.parent,
        "fidelity": ev.Fidelity.END_ONLY,
    }


def took_ms(ended: Ended) -> float:
    """Return for how long a span went on, in milliseconds."""
    return max(0.0, ended.at - ended.begun.at) * 1e3
