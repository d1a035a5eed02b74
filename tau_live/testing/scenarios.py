"""What a host is made to do, and what is stored of it."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from tau_live.rollouts import Attempt, Decision, Rollout, Span
from tau_live.settings import Settings
from tau_live.store.records import RolloutQuery
from tau_live.system_parts import open_store


class Scenario(StrEnum):
    """What a host is made to do.

    ``one_turn``: a model answers. ``tool_call``: it calls a tool, which returns, and answers.
    ``failing_tool``: the tool raises. ``model_error``: the model raises, and the run fails.
    ``retry``: the tool is called again, because the first call was refused. ``parallel_tools``: two
    tools in one turn. ``nested_agent``: a tool runs another agent. ``streaming``: the answer comes
    in pieces. ``early_close``: whoever reads them stops reading. ``cancellation``: the run is
    cancelled while a tool goes on. ``timeout``: the host itself ends it. ``two_runs``: two runs
    interleave, each calling a tool. ``threads``: four threads run one each. ``handoff``: one agent
    hands over to another, which answers. ``interrupt_resume``: the run waits for somebody who is to
    approve of a tool, and goes on when that is done.
    """

    ONE_TURN = "one_turn"
    TOOL_CALL = "tool_call"
    FAILING_TOOL = "failing_tool"
    MODEL_ERROR = "model_error"
    RETRY = "retry"
    PARALLEL_TOOLS = "parallel_tools"
    NESTED_AGENT = "nested_agent"
    STREAMING = "streaming"
    EARLY_CLOSE = "early_close"
    CANCELLATION = "cancellation"
    TIMEOUT = "timeout"
    TWO_RUNS = "two_runs"
    THREADS = "threads"
    HANDOFF = "handoff"
    INTERRUPT_RESUME = "interrupt_resume"


Play = Callable[[Scenario], str]
"""Plays a scenario on the host and returns what its user sees; catches what the host raises."""


class Recorded(NamedTuple):
    """One rollout that was stored, with its steps.

    Attributes:
        rollout: The rollout.
        spans: Its steps, in the order in which they were told.
        attempts: The tries at it.
        decisions: What was decided in it.
    """

    rollout: Rollout
    spans: Sequence[Span]
    attempts: Sequence[Attempt] = ()
    decisions: Sequence[Decision] = ()

    def of(self, kind: str) -> list[Span]:
        """Return the steps of one kind."""
        return [span for span in self.spans if span.kind == kind]

    def statuses(self, kind: str) -> list[str]:
        """Return how the steps of one kind ended, sorted."""
        return sorted(span.status for span in self.of(kind))


def recorded_in(settings: Settings) -> list[Recorded]:
    """Return all that is stored, in the order in which it began."""
    store = open_store(settings)
    try:
        return [
            Recorded(
                rollout,
                store.rollouts.spans(rollout.rollout_id),
                store.rollouts.attempts(rollout.rollout_id),
                store.decisions.decisions(rollout.rollout_id),
            )
            for rollout in store.rollouts.query(RolloutQuery(limit=1_000)).rollouts
        ]
    finally:
        store.close()
