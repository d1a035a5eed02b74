"""What has to be in the store after each scenario."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from tau_live.rollouts import ROLLOUT_ENDS, Reason, RolloutStatus
from tau_live.testing.scenarios import Recorded, Scenario


def missing_in(recorded: Sequence[Recorded], scenario: Scenario, *, host: str) -> list[str]:
    """Return what is wrong with what was stored of a scenario, one sentence each."""
    return [*_broken_rules(recorded, host), *_EXPECTED[scenario](recorded)]


def _broken_rules(recorded: Sequence[Recorded], host: str) -> Iterator[str]:
    """Yield what is wrong whatever was played."""
    for one in recorded:
        rollout = one.rollout
        if rollout.host != host:
            yield f"a rollout is of {rollout.host!r}"
        if rollout.status not in ROLLOUT_ENDS:
            yield f"rollout {rollout.run_id} has not ended"
        if rollout.reason is Reason.ABANDONED:
            yield f"rollout {rollout.run_id} never got an end event"
        for span in one.spans:
            if span.ended_at is None:
                yield f"{span.name} of {rollout.run_id} has not ended"
    ids = [
        (one.rollout.run_id, step.attempt, step.span_id) for one in recorded for step in one.spans
    ]
    if len(ids) != len(set(ids)):
        yield "two steps of a run have the same id"


def _is(found: object, expected: object, what: str) -> list[str]:
    return [] if found == expected else [f"{what}: {found!r} instead of {expected!r}"]


def _ends(recorded: Sequence[Recorded], *expected: tuple[RolloutStatus, Reason]) -> list[str]:
    found = [(one.rollout.status, one.rollout.reason) for one in recorded]
    return _is(found, list(expected), "the ends of the rollouts")


_DONE = (RolloutStatus.SUCCEEDED, Reason.COMPLETED)
_FAILED = (RolloutStatus.FAILED, Reason.ERROR)
_CANCELLED = (RolloutStatus.CANCELLED, Reason.CANCELLED)


def _steps(recorded: Sequence[Recorded], kind: str, *expected: Sequence[str]) -> list[str]:
    found = [one.statuses(kind) for one in recorded]
    return _is(found, [list(one) for one in expected], f"how the {kind} steps ended")


def _one_turn(recorded: Sequence[Recorded]) -> list[str]:
    used = [bool(one.rollout.metadata.get("usage")) for one in recorded]
    return [
        *_ends(recorded, _DONE),
        *_steps(recorded, "model", ["ok"]),
        *_steps(recorded, "tool", []),
        *_is([len(one.of("turn")) for one in recorded], [1], "the turns"),
        *_is(used, [True], "whether tokens were counted"),
    ]


def _tool_call(recorded: Sequence[Recorded]) -> list[str]:
    return [
        *_ends(recorded, _DONE),
        *_steps(recorded, "model", ["ok", "ok"]),
        *_steps(recorded, "tool", ["ok"]),
    ]


def _failing_tool(recorded: Sequence[Recorded]) -> list[str]:
    return [
        *_steps(recorded, "tool", ["error"]),
        *_is(
            ["error" in span.attributes for one in recorded for span in one.of("tool")],
            [True],
            "whether the tool's error was reported",
        ),
    ]


def _model_error(recorded: Sequence[Recorded]) -> list[str]:
    return [*_ends(recorded, _FAILED), *_steps(recorded, "model", ["error"])]


def _retry(recorded: Sequence[Recorded]) -> list[str]:
    retries = [len(one.of("retry")) for one in recorded]
    return [
        *_ends(recorded, _DONE),
        *_steps(recorded, "tool", ["ok", "retry"]),
        *_is(retries, [1], "the retries"),
    ]


def _parallel_tools(recorded: Sequence[Recorded]) -> list[str]:
    parents = [{span.parent_span_id for span in one.of("tool")} for one in recorded]
    return [
        *_ends(recorded, _DONE),
        *_steps(recorded, "tool", ["ok", "ok"]),
        *_is([len(one) for one in parents], [1], "the turns with tools"),
    ]


def _nested_agent(recorded: Sequence[Recorded]) -> list[str]:
    parents = [one.rollout.parent_id for one in recorded]
    outer = recorded[0].rollout.rollout_id if recorded else ""
    return [*_ends(recorded, _DONE, _DONE), *_is(parents, [None, outer], "the rollouts' parents")]


def _streaming(recorded: Sequence[Recorded]) -> list[str]:
    told = [span.attributes.get("streaming") for one in recorded for span in one.of("model")]
    return [*_one_turn(recorded), *_is(told, [True], "whether the answer was streamed")]


def _early_close(recorded: Sequence[Recorded]) -> list[str]:
    return _is(
        [one.rollout.status is not RolloutStatus.FAILED for one in recorded],
        [True],
        "whether stopping to read is no failure",
    )


def _cancellation(recorded: Sequence[Recorded]) -> list[str]:
    return [*_ends(recorded, _CANCELLED), *_steps(recorded, "tool", ["cancelled"])]


def _timeout(recorded: Sequence[Recorded]) -> list[str]:
    return _ends(recorded, (RolloutStatus.FAILED, Reason.TIMEOUT))


def _two_runs(recorded: Sequence[Recorded]) -> list[str]:
    alone = [one.rollout.parent_id for one in recorded]
    return [
        *_ends(recorded, _DONE, _DONE),
        *_steps(recorded, "tool", ["ok"], ["ok"]),
        *_is(alone, [None, None], "the rollouts' parents"),
    ]


def _threads(recorded: Sequence[Recorded]) -> list[str]:
    alone = [one.rollout.parent_id for one in recorded]
    return [*_ends(recorded, *[_DONE] * 4), *_is(alone, [None] * 4, "the rollouts' parents")]


def _handoff(recorded: Sequence[Recorded]) -> list[str]:
    told = [step.attributes for one in recorded for step in one.of("handoff")]
    named = [bool(one.get("from_agent")) and bool(one.get("to_agent")) for one in told]
    return [
        *_ends(recorded, *[_DONE] * max(1, len(recorded))),
        *_is(named, [True], "whether both agents of the handoff were reported"),
    ]


def _interrupt_resume(recorded: Sequence[Recorded]) -> list[str]:
    tries = [[attempt.status.value for attempt in one.attempts] for one in recorded]
    steps = [[step.name for step in one.of("run")] for one in recorded]
    return [
        *_ends(recorded, _DONE),
        *_is(tries, [["succeeded", "succeeded"]], "the attempts"),
        *_is(steps, [["agent.interrupt", "agent.resume"]], "what was reported of the interruption"),
        *_is(
            [one.statuses("tool").count("ok") for one in recorded], [1], "the tools that were run"
        ),
    ]


_EXPECTED: Mapping[Scenario, Callable[[Sequence[Recorded]], list[str]]] = {
    Scenario.ONE_TURN: _one_turn,
    Scenario.TOOL_CALL: _tool_call,
    Scenario.FAILING_TOOL: _failing_tool,
    Scenario.MODEL_ERROR: _model_error,
    Scenario.RETRY: _retry,
    Scenario.PARALLEL_TOOLS: _parallel_tools,
    Scenario.NESTED_AGENT: _nested_agent,
    Scenario.STREAMING: _streaming,
    Scenario.EARLY_CLOSE: _early_close,
    Scenario.CANCELLATION: _cancellation,
    Scenario.TIMEOUT: _timeout,
    Scenario.TWO_RUNS: _two_runs,
    Scenario.THREADS: _threads,
    Scenario.HANDOFF: _handoff,
    Scenario.INTERRUPT_RESUME: _interrupt_resume,
}
