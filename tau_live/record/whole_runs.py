"""Runs that are over when they are first recorded, as from a log: rows instead of events.

If anything of such a run is stored already, it is recorded event by event like any other; the
result is the same either way.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from tau_live.core import events as ev
from tau_live.core.records import Decision, Reward, WholeRollout
from tau_live.record.spans import OF_DECISIONS

_OF_REWARDS = ("decision_id", "name", "value", "source", "at")


class StepOfRun(NamedTuple):
    """The place of a whole run's next step, or of its end, among other items.

    Attributes:
        rollout_id: The rollout.
        at: Epoch seconds, UTC.
        is_last: Whether it is the run's end.
    """

    rollout_id: str
    at: float
    is_last: bool


RecordItem: TypeAlias = ev.Event | WholeRollout | StepOfRun
"""An item of a batch; a whole run stands at its start."""


def steps_of(rows: WholeRollout) -> Iterator[list[ev.Event]]:
    """Yield the events of each step of a run.

    First its start and first decision; then each reward of a decision with the next decision; at
    last the run's own rewards and its end.
    """
    rollout, rewards = rows.rollout, deque(rows.rewards)
    ids: dict[str, Any] = {
        "host": rollout.host,
        "run_id": rollout.run_id,
        "execution": rows.attempt.execution,
    }
    begin = ev.RunStart(**ids, at=rows.at, name=rollout.name, session_id=rollout.session_id)
    step: list[ev.Event] = [begin]
    for decision in rows.decisions:
        yield [*step, event_of_decision(decision, ids)]
        is_earned = rewards and rewards[0].decision_id == decision.decision_id
        step = [event_of_reward(rewards.popleft(), ids)] if is_earned else []
    step += [event_of_reward(reward, ids) for reward in rewards]
    yield [*step, ev.RunEnd(**ids, at=rows.attempt.ended_at or rows.at, status=ev.Status.OK)]


def singly(items: Iterable[RecordItem]) -> Iterator[ev.Event]:
    """Yield the events of a batch, including those of whole runs."""
    whole: dict[str, Iterator[list[ev.Event]]] = {}
    for item in items:
        if isinstance(item, ev.Event):
            yield item
            continue
        if isinstance(item, WholeRollout):
            rollout_id = item.rollout.rollout_id
            whole[rollout_id] = steps_of(item)
        else:
            rollout_id = item.rollout_id
        yield from next(whole[rollout_id])


def event_of_decision(decision: Decision, ids: Mapping[str, Any]) -> ev.Decision:
    """Return the event of a decision of the run with these ids."""
    return ev.Decision(**ids, **{name: getattr(decision, name) for name in OF_DECISIONS})


def event_of_reward(reward: Reward, ids: Mapping[str, Any]) -> ev.Reward:
    """Return the event of a reward of the run with these ids."""
    return ev.Reward(**ids, **{name: getattr(reward, name) for name in _OF_REWARDS})
