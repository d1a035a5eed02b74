"""What an adapter has to show, played on its real host: for our own tests, and for those of others.

A *play* runs one scenario on the host and returns everything that its user would get to see, as a
text. ``faults`` plays it without us, then with the adapter attached under each condition, and says
what was different, and what is missing in the store::

    @pytest.mark.parametrize("scenario", Scenario)
    def test_the_adapter_conforms(scenario: Scenario, tmp_path: Path) -> None:
        assert faults(ADAPTER, play, scenario, folder=tmp_path) == []
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from tau_live.adapters import Adapter, InForce
from tau_live.rollouts import ROLLOUT_ENDS, Reason, Rollout, RolloutStatus, Span
from tau_live.runtime import Runtime
from tau_live.settings import DeclaredDecision, Learner, Settings
from tau_live.settings.decisions import Every
from tau_live.starting import open_store, start
from tau_live.store.records import RolloutQuery


class Scenario(StrEnum):
    """What a host is made to do.

    ``one_turn``: a model answers. ``tool_call``: it calls a tool, which returns, and answers.
    ``failing_tool``: the tool raises. ``model_error``: the model raises, and the run fails.
    ``retry``: the tool is called again, because the first call was refused. ``parallel_tools``: two
    tools in one turn. ``nested_agent``: a tool runs another agent. ``streaming``: the answer comes
    in pieces. ``early_close``: whoever reads them stops reading. ``cancellation``: the run is
    cancelled while a tool goes on. ``timeout``: the host itself ends it. ``two_runs``: two runs
    interleave, each calling a tool. ``threads``: four threads run one each.
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


class Condition(StrEnum):
    """How tau-live fares while a scenario is played.

    ``well``: it works, and what it stored is looked at. ``acting``: likewise, and every decision
    point is declared, which begins in shadow. ``absent``: it was detached. ``broken``: asking for
    it raises. ``failing``: all that it is told raises. ``held``: it cannot store.
    """

    WELL = "well"
    ACTING = "acting"
    ABSENT = "absent"
    BROKEN = "broken"
    FAILING = "failing"
    HELD = "held"


_STORING = frozenset({Condition.WELL, Condition.ACTING})
_DECLARED = (
    DeclaredDecision(point="model", options={"other": "no-such:model"}),
    DeclaredDecision(point="prompt", options={"other": "Say something else."}, every=Every.REQUEST),
    DeclaredDecision(point="params", options={"other": {"temperature": 0.5}}),
)

Play = Callable[[Scenario], str]
"""Plays a scenario on the host and returns what its user sees; catches what the host raises."""


class Recorded(NamedTuple):
    """One rollout that was stored, with its steps.

    Attributes:
        rollout: The rollout.
        spans: Its steps, in the order in which they were told.
    """

    rollout: Rollout
    spans: Sequence[Span]

    def of(self, kind: str) -> list[Span]:
        """Return the steps of one kind."""
        return [span for span in self.spans if span.kind == kind]

    def statuses(self, kind: str) -> list[str]:
        """Return how the steps of one kind ended, sorted."""
        return sorted(span.status for span in self.of(kind))


def faults(adapter: Adapter, play: Play, scenario: Scenario, *, folder: Path) -> list[str]:
    """Return what an adapter does wrong in a scenario, one sentence each; empty if nothing.

    Args:
        adapter: What is looked at; it must not be attached already.
        play: Plays a scenario.
        scenario: Which one.
        folder: Where stores may be made.
    """
    missing = adapter.probe()
    if missing is not None:
        return [f"{adapter.host} is not as the adapter needs it: {missing} is missing"]
    expected = play(scenario)
    found: list[str] = []
    for condition in Condition:
        seen, recorded = _played(adapter, play, scenario, condition=condition, folder=folder)
        if seen != expected:
            found.append(f"{condition}: the host shows {seen!r} instead of {expected!r}")
        if condition in _STORING:
            found += missing_in(recorded, scenario, host=adapter.host)
    return found


def missing_in(recorded: Sequence[Recorded], scenario: Scenario, *, host: str) -> list[str]:
    """Return what is wrong with what was stored of a scenario, one sentence each."""
    return [*_broken_rules(recorded, host), *_EXPECTED[scenario](recorded)]


def _played(
    adapter: Adapter, play: Play, scenario: Scenario, *, condition: Condition, folder: Path
) -> tuple[str, list[Recorded]]:
    place = folder / condition
    place.mkdir()
    (place / "file").write_text("in the way")
    settings = Settings(
        store=place / ("file/store.sqlite" if condition is Condition.HELD else "store.sqlite"),
        learner=Learner.FLUSH,
        act=condition is Condition.ACTING,
        decisions=_DECLARED,
    )
    runtime = start({}, settings)
    if runtime is None:
        raise RuntimeError("tau-live did not start; its log says why")
    detach = adapter.attach(_in_force(runtime, condition))
    try:
        seen = play(scenario)
    finally:
        detach()
        runtime.flush(30.0)
        runtime.close(30.0)
    return seen, recorded_in(settings) if condition in _STORING else []


def recorded_in(settings: Settings) -> list[Recorded]:
    """Return all that is stored, in the order in which it began."""
    store = open_store(settings)
    try:
        return [
            Recorded(rollout, store.rollouts.spans(rollout.rollout_id))
            for rollout in store.rollouts.query(RolloutQuery(limit=1_000)).rollouts
        ]
    finally:
        store.close()


def _in_force(runtime: Runtime, condition: Condition) -> InForce:
    def broken() -> Runtime | None:
        raise RuntimeError("broken on purpose")

    def failing() -> Runtime | None:
        return _failing(runtime)

    ways: Mapping[Condition, InForce] = {
        Condition.ABSENT: lambda: None,
        Condition.BROKEN: broken,
        Condition.FAILING: failing,
    }
    return ways.get(condition, lambda: runtime)


def _failing(runtime: Runtime) -> Runtime:
    """Return a running system that lets runs begin, and then raises at everything."""

    def fail(*_args: object, **_named: object) -> None:
        raise RuntimeError("failing on purpose")

    failing = Runtime.__new__(Runtime)
    failing.__dict__.update(vars(runtime))
    for name in ("tell", "decide", "end_run", "emit", "failed", "reward", "count"):
        failing.__dict__[name] = fail
    return failing


def _broken_rules(recorded: Sequence[Recorded], host: str) -> Iterator[str]:
    """Yield what is wrong whatever was played."""
    for one in recorded:
        rollout = one.rollout
        if rollout.host != host:
            yield f"a rollout is of {rollout.host!r}"
        if rollout.status not in ROLLOUT_ENDS:
            yield f"rollout {rollout.run_id} has not ended"
        if rollout.reason is Reason.ABANDONED:
            yield f"rollout {rollout.run_id} was never told to end"
        for span in one.spans:
            if span.ended_at is None:
                yield f"{span.name} of {rollout.run_id} has not ended"
    ids = [(one.rollout.run_id, span.span_id) for one in recorded for span in one.spans]
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
            "whether the tool's error was told",
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
}
