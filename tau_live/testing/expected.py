"""The checks of the store after each scenario."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from tau_live.core.records import (
    ROLLOUT_ENDS,
    Attempt,
    Decision,
    Reason,
    Rollout,
    RolloutQuery,
    RolloutStatus,
    Span,
)
from tau_live.core.settings import Settings
from tau_live.runtime.build import open_store


class Scenario(StrEnum):
    """A scenario that a host plays.

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
        spans: Its steps, in the order in which they were recorded; neither runs nor decisions.
        attempts: Its attempts.
        decisions: Its decisions.
    """

    rollout: Rollout
    spans: Sequence[Span]
    attempts: Sequence[Attempt] = ()
    decisions: Sequence[Decision] = ()

    def of(self, kind: str) -> list[Span]:
        """Return the steps of one kind."""
        return [span for span in self.spans if span.kind == kind]

    def statuses(self, kind: str) -> list[str]:
        """Return the statuses of the steps of one kind, sorted."""
        return sorted(span.status for span in self.of(kind))


def recorded_in(settings: Settings) -> list[Recorded]:
    """Return all stored rollouts, in the order in which they began."""
    store = open_store(settings)
    try:
        return [
            Recorded(
                rollout,
                [span for span in store.rollouts.spans(rollout.rollout_id) if span.seq],
                store.rollouts.attempts(rollout.rollout_id),
                store.decisions.decisions(rollout.rollout_id),
            )
            for rollout in store.rollouts.query(RolloutQuery(limit=1_000)).rollouts
        ]
    finally:
        store.close()


def missing_in(recorded: Sequence[Recorded], scenario: Scenario, *, host: str) -> list[str]:
    """Return what is wrong with the stored rollouts of a scenario, one sentence each."""
    observed = _observations(recorded)
    return [
        *_broken_rules(recorded, host),
        *(
            f"{what}: {observed[what]!r} instead of {expected!r}"
            for what, expected in _expectations(scenario, recorded).items()
            if observed[what] != expected
        ),
    ]


def _broken_rules(recorded: Sequence[Recorded], host: str) -> Iterator[str]:
    """Yield what is wrong by the rules of every scenario."""
    for run in recorded:
        rollout = run.rollout
        if rollout.host != host:
            yield f"a rollout is of {rollout.host!r}"
        if rollout.status not in ROLLOUT_ENDS:
            yield f"rollout {rollout.run_id} has not ended"
        if rollout.reason is Reason.ABANDONED:
            yield f"rollout {rollout.run_id} never got an end event"
        for span in run.spans:
            if span.ended_at is None:
                yield f"{span.name} of {rollout.run_id} has not ended"
    ids = [
        (run.rollout.run_id, step.attempt, step.span_id) for run in recorded for step in run.spans
    ]
    if len(ids) != len(set(ids)):
        yield "two steps of a run have the same id"


_DONE = (RolloutStatus.SUCCEEDED, Reason.COMPLETED)
_FAILED = (RolloutStatus.FAILED, Reason.ERROR)
_CANCELLED = (RolloutStatus.CANCELLED, Reason.CANCELLED)
_TIMED_OUT = (RolloutStatus.FAILED, Reason.TIMEOUT)

Observations: TypeAlias = Mapping[str, object]
"""Observations of the store, each by a phrase that names it."""

_ENDS = "the ends of the rollouts"
_PARENTS = "the rollouts' parents"
_MODELS = "how the model steps ended"
_TOOLS = "how the tool steps ended"


def _expectations(scenario: Scenario, recorded: Sequence[Recorded]) -> Observations:
    """Return the expected observations of a scenario, by the names of ``_observations``."""
    outer = recorded[0].rollout.rollout_id if recorded else ""
    one_turn = {
        _ENDS: [_DONE],
        _MODELS: [["ok"]],
        _TOOLS: [[]],
        "the turns": [1],
        "whether tokens were counted": [True],
    }
    by_scenario: Mapping[Scenario, Observations] = {
        Scenario.ONE_TURN: one_turn,
        Scenario.TOOL_CALL: {_ENDS: [_DONE], _MODELS: [["ok", "ok"]], _TOOLS: [["ok"]]},
        Scenario.FAILING_TOOL: {
            _TOOLS: [["error"]],
            "whether the tool's error was reported": [True],
        },
        Scenario.MODEL_ERROR: {_ENDS: [_FAILED], _MODELS: [["error"]]},
        Scenario.RETRY: {_ENDS: [_DONE], _TOOLS: [["ok", "retry"]], "the retries": [1]},
        Scenario.PARALLEL_TOOLS: {
            _ENDS: [_DONE],
            _TOOLS: [["ok", "ok"]],
            "the turns with tools": [1],
        },
        Scenario.NESTED_AGENT: {_ENDS: [_DONE, _DONE], _PARENTS: [None, outer]},
        Scenario.STREAMING: {**one_turn, "whether the answer was streamed": [True]},
        Scenario.EARLY_CLOSE: {"whether stopping to read is no failure": [True]},
        Scenario.CANCELLATION: {_ENDS: [_CANCELLED], _TOOLS: [["cancelled"]]},
        Scenario.TIMEOUT: {_ENDS: [_TIMED_OUT]},
        Scenario.TWO_RUNS: {
            _ENDS: [_DONE, _DONE],
            _TOOLS: [["ok"], ["ok"]],
            _PARENTS: [None, None],
        },
        Scenario.THREADS: {_ENDS: [_DONE] * 4, _PARENTS: [None] * 4},
        Scenario.HANDOFF: {
            _ENDS: [_DONE] * max(1, len(recorded)),
            "whether both agents of the handoff were reported": [True],
        },
        Scenario.INTERRUPT_RESUME: {
            _ENDS: [_DONE],
            "the attempts": [["succeeded", "succeeded"]],
            "what was reported of the interruption": [["agent.interrupt", "agent.resume"]],
            "the tools that were run": [1],
        },
    }
    return by_scenario[scenario]


def _observations(recorded: Sequence[Recorded]) -> Observations:
    """Return every observation of the store for which some scenario has an expectation."""
    tools = [span for run in recorded for span in run.of("tool")]
    models = [span for run in recorded for span in run.of("model")]
    handoffs = [step.attributes for run in recorded for step in run.of("handoff")]
    rollouts = [run.rollout for run in recorded]
    return {
        _ENDS: [(rollout.status, rollout.reason) for rollout in rollouts],
        _PARENTS: [rollout.parent_id for rollout in rollouts],
        _MODELS: [run.statuses("model") for run in recorded],
        _TOOLS: [run.statuses("tool") for run in recorded],
        "the turns": [len(run.of("turn")) for run in recorded],
        "the retries": [len(run.of("retry")) for run in recorded],
        "the turns with tools": [
            len({span.parent_span_id for span in run.of("tool")}) for run in recorded
        ],
        "the attempts": [[attempt.status.value for attempt in run.attempts] for run in recorded],
        "the tools that were run": [run.statuses("tool").count("ok") for run in recorded],
        "what was reported of the interruption": [
            [step.name for step in run.of("run")] for run in recorded
        ],
        "whether tokens were counted": [bool(of.metadata.get("usage")) for of in rollouts],
        "whether stopping to read is no failure": [
            rollout.status is not RolloutStatus.FAILED for rollout in rollouts
        ],
        "whether the tool's error was reported": ["error" in span.attributes for span in tools],
        "whether the answer was streamed": [span.attributes.get("streaming") for span in models],
        "whether both agents of the handoff were reported": [
            bool(of.get("from_agent")) and bool(of.get("to_agent")) for of in handoffs
        ],
    }
