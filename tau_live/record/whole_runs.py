"""Runs that are over when they are first recorded, as from a log: rows, and no events.

Where something of such a run is known already, it is recorded event by event like any other; what
comes of it is the same either way.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import fields

from tau_live.core import events as ev
from tau_live.core.records import Decision, Reward, WholeRollout

_OF_DECISIONS = tuple(
    {field.name for field in fields(Decision)}.intersection(
        field.name for field in fields(ev.Decision)
    )
    - {"attempt", "seq"}  # those of an event are what its host and its process count
)
_OF_REWARDS = ("decision_id", "name", "value", "source", "at")


class StepOfRun(NamedTuple):
    """Stands where a whole run went on among others, or came to its end.

    Attributes:
        rollout_id: The rollout.
        at: Epoch seconds.
        is_last: Whether that is its end.
    """

    rollout_id: str
    at: float
    is_last: bool


RecordItem: TypeAlias = ev.Event | WholeRollout | StepOfRun
"""What a batch is made of; a whole run stands where it began."""


def steps_of(rows: WholeRollout) -> Iterator[list[ev.Event]]:
    """Yield the events of each step of a run.

    It begins with its first decision, goes on with another and what the one before has earned, and
    ends with what itself has earned.
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
    """Yield the events of a batch, those of whole runs too."""
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
    """Return the event that tells of a decision of the run with these ids."""
    return ev.Decision(**ids, **{name: getattr(decision, name) for name in _OF_DECISIONS})


def event_of_reward(reward: Reward, ids: Mapping[str, Any]) -> ev.Reward:
    """Return the event that tells of a reward of the run with these ids."""
    return ev.Reward(**ids, **{name: getattr(reward, name) for name in _OF_REWARDS})
