"""The conditions under which a scenario is played, and the differences that the host sees."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from tau_live.core.hookspecs import Answer, DecisionRequest, hookimpl
from tau_live.core.records import Trial
from tau_live.core.settings import Learner, Settings
from tau_live.core.settings.tables import DeclaredDecision, Every
from tau_live.runtime.adapters import Adapter
from tau_live.runtime.build import open_store
from tau_live.runtime.runtime import Runtime, start
from tau_live.testing.expected import Play, Recorded, Scenario, missing_in, recorded_in
from tau_live.testing.golden import load_named


class Condition(StrEnum):
    """A condition of tau-live while a scenario is played.

    ``well``: it works, and the store is checked. ``acting``: likewise, and every decision point is
    declared, which begins in shadow. ``absent``: it was detached. ``broken``: asking for it raises.
    ``failing``: every call to it raises. ``held``: it cannot store. ``late``: every decision would
    differ from the host's, and takes longer than its deadline.
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
        adapter: The adapter under test; it must not be attached already.
        play: Plays a scenario.
        scenario: The scenario to play.
        folder: An existing folder for stores.
    """
    missing = adapter.probe()
    if missing is not None:
        return [f"{adapter.host} does not fit the adapter: {missing} is missing"]
    expected = play(scenario)
    problems: list[str] = []
    for condition in Condition:
        seen, recorded = _play_under(adapter, play, scenario, condition=condition, folder=folder)
        if seen != expected:
            problems.append(f"{condition}: the host shows {seen!r} instead of {expected!r}")
        if condition in _STORING:
            problems += missing_in(recorded, scenario, host=adapter.host)
        if condition is Condition.LATE:
            problems += [
                f"a decision at {decision.point} that came too late has {decision.applied!r} as "
                f"applied, and {decision.why_not!r} as the reason"
                for run in recorded
                for decision in run.decisions
                if decision.applied not in {decision.default, None}
                or decision.why_not != "deadline"
            ]
    return problems


def _play_under(
    adapter: Adapter, play: Play, scenario: Scenario, *, condition: Condition, folder: Path
) -> tuple[str, list[Recorded]]:
    own = folder / condition
    own.mkdir()
    (own / "file").write_text("in the way")
    settings = Settings(
        store=own / ("file/store.sqlite" if condition is Condition.HELD else "store.sqlite"),
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
    detach = adapter.attach(lambda: _in_force(runtime, condition))
    try:
        seen = play(scenario)
    except Exception as error:  # noqa: BLE001  # a play catches the host's own errors
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
    """Give the learner full exposure from the start, or its lateness would not show."""
    store = open_store(settings)
    try:
        with store.begin():
            for declared in settings.decisions:
                store.trials.save(
                    Trial(point=declared.point, ladder=True, exposure=1.0, revision=1)
                )
    finally:
        store.close()


def _in_force(runtime: Runtime, condition: Condition) -> Runtime | None:
    """Return the running system that an adapter gets under a condition."""
    match condition:
        case Condition.ABSENT:
            return None
        case Condition.BROKEN:
            raise RuntimeError("broken on purpose")
        case Condition.FAILING:
            return _failing(runtime)
        case _:
            return runtime


def _failing(runtime: Runtime) -> Runtime:
    """Return a running system that lets runs begin, and raises at every other call."""

    def fail(*_args: object, **_named: object) -> None:
        raise RuntimeError("failing on purpose")

    failing = Runtime.__new__(Runtime)
    failing.__dict__.update(vars(runtime))
    for name in ("tell", "decide", "end_run", "emit", "report_failure", "reward", "count"):
        failing.__dict__[name] = fail
    return failing


_WAIT_S = 5.0
_CODE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from tau_live.testing.conditions import main
main(sys.argv[2:])
"""


def full_disk_faults(
    adapter: str, play: str, scenario: Scenario, *, folder: Path, timeout_s: float = 120.0
) -> list[str]:
    """Return what is different for the host while no file can grow, one sentence each.

    A process of its own plays the scenario without us and then with us, both after its limit on
    the size of files was set to 4,096 bytes, which is less than the store.

    Args:
        adapter: ``module:name`` of the adapter, such as ``tau_live_hooks.pydantic_ai:ADAPTER``.
        play: ``module:name`` of the play.
        scenario: The scenario to play.
        folder: An existing folder for a store.
        timeout_s: Seconds that the process may take.
    """
    path = json.dumps([str(Path(entry).resolve()) for entry in sys.path])
    done = subprocess.run(  # noqa: S603  # our own code
        [sys.executable, "-c", _CODE, path, adapter, play, scenario.value, str(folder)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        return [f"the process ended with {done.returncode}: {done.stderr}"]
    outcome = json.loads(done.stdout.splitlines()[-1])
    problems = []
    if outcome["seen"] != outcome["expected"]:
        problems.append(f"the host shows {outcome['seen']!r} instead of {outcome['expected']!r}")
    if outcome["stored"]:
        problems.append("the disk was not full: everything was stored")
    return problems


def main(arguments: Sequence[str]) -> None:
    """Play a scenario without and with an adapter while no file can grow; print both outputs."""
    adapter_name, play_name, scenario, folder = arguments
    adapter = load_named(adapter_name, Adapter)
    play: Play = load_named(play_name, object)  # type: ignore[assignment]  # called below
    runtime = start({}, Settings(store=Path(folder) / "store.sqlite", learner=Learner.FLUSH))
    if runtime is None or not runtime.flush(_WAIT_S):
        raise RuntimeError("tau-live did not start; see its log")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))
    expected = play(Scenario(scenario))
    detach = adapter.attach(lambda: runtime)
    seen = play(Scenario(scenario))
    detach()
    stored = runtime.flush(_WAIT_S)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    runtime.close(_WAIT_S)
    shown = {"seen": seen, "expected": expected, "stored": stored}
    sys.stdout.write(f"\n{json.dumps(shown)}\n")
