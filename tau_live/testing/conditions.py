"""How tau-live fares while a scenario is played, and what is then different for the host."""

import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from tau_live.adapters import Adapter, InForce
from tau_live.hookspecs import Answer, DecisionRequest, hookimpl
from tau_live.runtime import Runtime
from tau_live.settings import DeclaredDecision, Learner, Settings
from tau_live.settings.decisions import Every
from tau_live.store.records import Trial
from tau_live.system import start
from tau_live.system_parts import open_store
from tau_live.testing.expected import missing_in
from tau_live.testing.scenarios import Play, Recorded, Scenario, recorded_in


class Condition(StrEnum):
    """How tau-live fares while a scenario is played.

    ``well``: it works, and what it stored is looked at. ``acting``: likewise, and every decision
    point is declared, which begins in shadow. ``absent``: it was detached. ``broken``: asking for
    it raises. ``failing``: all that it is told raises. ``held``: it cannot store. ``late``: every
    decision would be another than the host's, and takes longer than its deadline.
    """

    WELL = "well"
    ACTING = "acting"
    ABSENT = "absent"
    BROKEN = "broken"
    FAILING = "failing"
    HELD = "held"
    LATE = "late"


_STORING = frozenset({Condition.WELL, Condition.ACTING, Condition.LATE})
_ACTING = frozenset({Condition.ACTING, Condition.LATE})
_DEADLINE_MS = 0.5
_DECLARED = (
    DeclaredDecision(point="model", options={"other": "no-such:model"}),
    DeclaredDecision(point="prompt", options={"other": "Say something else."}, every=Every.REQUEST),
    DeclaredDecision(point="params", options={"other": {"temperature": 0.5}}),
    DeclaredDecision(point="tools", options={"none": []}),
    DeclaredDecision(point="tool_gate", options={"veto": "This must not be done."}),
    DeclaredDecision(point="retry", options={"again": True, "stop": False}),
)


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
        return [f"{adapter.host} does not fit the adapter: {missing} is missing"]
    expected = play(scenario)
    found: list[str] = []
    for condition in Condition:
        seen, recorded = _played(adapter, play, scenario, condition=condition, folder=folder)
        if seen != expected:
            found.append(f"{condition}: the host shows {seen!r} instead of {expected!r}")
        if condition in _STORING:
            found += missing_in(recorded, scenario, host=adapter.host)
        if condition is Condition.LATE:
            found += _untimely(recorded)
    return found


def _played(
    adapter: Adapter, play: Play, scenario: Scenario, *, condition: Condition, folder: Path
) -> tuple[str, list[Recorded]]:
    place = folder / condition
    place.mkdir()
    (place / "file").write_text("in the way")
    settings = Settings(
        store=place / ("file/store.sqlite" if condition is Condition.HELD else "store.sqlite"),
        learner=Learner.FLUSH,
        act=condition in _ACTING,
        decisions=_DECLARED,
        decide_deadline_ms=_DEADLINE_MS if condition is Condition.LATE else 60_000.0,
    )
    if condition is Condition.LATE:
        _expose(settings)
    runtime = start({}, settings)
    if runtime is None:
        raise RuntimeError("tau-live did not start; see its log")
    if condition is Condition.LATE:
        runtime.plugins.register(_Slow(), name="slow")
    detach = adapter.attach(_in_force(runtime, condition))
    try:
        seen = play(scenario)
    except Exception as error:  # noqa: BLE001  # what it does not catch is not the host's
        seen = f"{type(error).__name__}: {error}"
    finally:
        detach()
        runtime.flush(30.0)
        runtime.close(30.0)
    return seen, recorded_in(settings) if condition in _STORING else []


class _Slow:
    """Decides otherwise than the host would, and too late."""

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer | None:
        until = time.thread_time() + 2 * _DEADLINE_MS / 1e3  # as the deadline is measured
        while time.thread_time() < until:
            pass
        others = [name for name in request.options if name != request.default]
        return Answer(option=others[0], probability=1.0) if others else None


def _expose(settings: Settings) -> None:
    """Let the learner decide everything from the beginning, or its being late would not show."""
    store = open_store(settings)
    try:
        with store.begin():
            for one in settings.decisions:
                store.trials.save(Trial(point=one.point, ladder=True, exposure=1.0, revision=1))
    finally:
        store.close()


def _untimely(recorded: Sequence[Recorded]) -> list[str]:
    made = [decision for one in recorded for decision in one.decisions]
    return [
        f"a decision at {one.point} that came too late has {one.applied!r} as applied, and "
        f"{one.why_not!r} as the reason"
        for one in made
        if one.applied not in {one.default, None} or one.why_not != "deadline"
    ]


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
