"""Streams of events as hosts tell them, for the tests of what collects them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import strategies as st
from msgspec.structs import replace

from tau_live.core import events as ev
from tau_live.core.records import Reward, Rollout
from tau_live.record.collector import Collector
from tau_live.record.rewards import Rewarding
from tau_live.store.roles import Batch, Store
from tau_live.store.sqlite.store import SqliteStore

HOST = "host"
E = TypeVar("E", bound=ev.Event)


class ByReward(Rewarding):
    """Makes a finished rollout ready as soon as it has a reward, the sum of them."""

    def __init__(self) -> None:
        """Need no settings."""

    def refuses(self, reward: Reward) -> bool:
        return False

    def mistake_in(self, reward: Reward) -> str | None:
        return None

    def rejects(self, rollout: Rollout, *, batch: Batch) -> bool:
        return False

    def settle(self, rollout: Rollout, *, batch: Batch, now: float) -> bool:
        rewards = batch.rewards(rollout.rollout_id)
        values = [r.value for r in rewards if r.value is not None and r.decision_id is None]
        return bool(values) and batch.mark_ready(rollout.rollout_id, total_reward=sum(values))


def opened(path: Path) -> SqliteStore:
    return SqliteStore.open(path / "store.sqlite")


def collector_of(store: Store, *, owner: str | None = "here:1:1") -> Collector:
    return Collector(store, rewarding=ByReward(), owner=owner)


def collected(store: Store, events: Sequence[ev.Event], *, owner: str | None = "here:1:1") -> None:
    collector = collector_of(store, owner=owner)
    with store.begin():
        collector.apply(events)


def event(kind: type[E], run: str = "r", at: float = 0.0, **fields: Any) -> E:
    return kind(host=HOST, run_id=run, at=at, **fields)


def stamped(events: Iterable[E]) -> list[E]:
    """Count the events, and let two of them at a time have the same time."""
    return [
        replace(one, at=float(1 + place // 2), seq=1 + place, pid=7)
        for place, one in enumerate(events)
    ]


def _inside(draw: st.DrawFn, run: str, execution: str, ordinal: int) -> list[ev.Event]:
    """Return one thing that happens inside a run, as one or two events."""
    known: dict[str, Any] = {"run": run, "execution": execution}
    which = draw(st.sampled_from(["tool", "open tool", "model", "message", "decision", "reward"]))
    if which in ("tool", "open tool"):
        call = f"call-{ordinal}"
        start = event(ev.ToolStart, tool="grep", call_id=call, **known)
        end = event(ev.ToolEnd, tool="grep", call_id=call, is_error=draw(st.booleans()), **known)
        return [start] if which == "open tool" else [start, end]
    if which == "model":
        span = f"span-{ordinal}"
        return [
            event(ev.ModelStart, span_id=span, **known),
            event(ev.ModelEnd, span_id=span, usage={"input": 3.0}, **known),
        ]
    if which == "message":
        return [event(ev.Message, role="user", **known)]
    if which == "decision":
        known |= {"options": ("a", "b"), "chosen": "a", "applied": "a", "propensity": 0.5}
        return [event(ev.Decision, ordinal=ordinal, point="model", **known)]
    return [event(ev.Reward, run=run, value=float(draw(st.integers(-1, 1))))]


def _execution(draw: st.DrawFn, run: str, execution: str, *, parent: str | None) -> list[ev.Event]:
    known: dict[str, Any] = {"run": run, "execution": execution}
    found: list[ev.Event] = []
    if draw(st.integers(0, 4)):
        found.append(event(ev.RunStart, name="agent", parent_run_id=parent, **known))
    for ordinal in range(1, 1 + draw(st.integers(0, 4))):
        found += _inside(draw, run, execution, ordinal)
        if not draw(st.integers(0, 5)):
            found.append(event(ev.RunInterrupt, reason="approval", **known))
            found.append(event(ev.RunResume, **known))
    if draw(st.integers(0, 4)):
        found.append(event(ev.RunEnd, status=draw(st.sampled_from(ev.Status)), **known))
    return found


@st.composite
def runs(draw: st.DrawFn, *, executions: int = 2) -> list[list[ev.Event]]:
    """Draw the events of some runs, each in order, not yet stamped."""
    found: list[list[ev.Event]] = []
    for number in range(draw(st.integers(1, 3))):
        run = f"run-{number}"
        parent = f"run-{number - 1}" if number and draw(st.booleans()) else None
        mine: list[ev.Event] = []
        if not draw(st.integers(0, 3)):
            mine.append(event(ev.Reward, run=run, value=0.5, key="early"))
        named = executions == 1 or draw(st.booleans())
        for execution in range(1, 1 + draw(st.integers(1, executions))):
            name = f"execution-{execution}" if named else ""
            mine += _execution(draw, run, name, parent=parent)
        if draw(st.booleans()):
            mine.append(event(ev.Reward, run=run, value=1.0, key="late"))
        found.append(mine)
    return found


@st.composite
def streams(draw: st.DrawFn) -> list[ev.Event]:
    """Draw several runs whose events take turns."""
    waiting = [mine for mine in draw(runs()) if mine]
    found: list[ev.Event] = []
    while waiting:
        mine = waiting[draw(st.integers(0, len(waiting) - 1))]
        found.append(mine.pop(0))
        waiting = [others for others in waiting if others]
    return stamped(found)
