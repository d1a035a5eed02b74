"""From the rewards that came, those that were declared, and the time: what a rollout is worth.

Unknown is not zero (law 6): a rollout waits for its primary rewards until their deadline; then
their declared default counts, and without one the rollout is left out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tau_live.machine.quick import made
from tau_live.reasons import WhyNot
from tau_live.rewards.safety import HARD_GATE_TRIGGERED, Part, settled, total_of
from tau_live.rewards.safety import SOURCE as SAFETY
from tau_live.rl.bounds import is_usable
from tau_live.rollouts import Reward, RewardSource
from tau_live.settings import DeclaredReward


class State(StrEnum):
    """What is to be done with a rollout."""

    READY = "ready"
    WAITING = "waiting"
    LEFT_OUT = "left_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a rollout is worth, as far as it is known.

    Attributes:
        state: ``ready``, ``waiting`` or ``left_out``; a later reward may change any of them.
        total: What the rollout is worth by itself; ``None`` unless it is ready.
        decisions: What each of its decisions is worth besides, by decision id.
        early: What of the total was given while the run went on, by how many decisions it had
            made by then.
        until: Epoch seconds when to look again; ``None`` when only a new event can change it.
        reason: Why it is left out.
        names: The rewards concerned: those that are missing, wrong, or were given their default.
    """

    state: State
    total: float | None = None
    decisions: Mapping[str, float] = field(default_factory=dict)
    early: Mapping[int, float] = field(default_factory=dict)
    until: float | None = None
    reason: WhyNot | None = None
    names: tuple[str, ...] = ()

    @property
    def earned(self) -> float | None:
        """What the rollout and its decisions are worth together; ``None`` unless it is ready."""
        if self.total is None or not self.decisions:
            return self.total
        return total_of([self.total, *self.decisions.values()])


def as_number(given: object) -> tuple[float | None, str | None]:
    """Return a given reward as its value and label.

    Numbers are values, booleans are 1 and 0 with ``true`` and ``false`` as their labels, anything
    else has no value; a text is the label.
    """
    if isinstance(given, bool):
        return float(given), str(given).lower()
    if isinstance(given, (int, float)):
        try:
            return float(given), None
        except OverflowError:
            return math.inf if given > 0 else -math.inf, None
    return None, given if isinstance(given, str) else None


def outcome(  # everything that it depends on, and it must depend on nothing else
    rewards: Sequence[Reward],
    declared: Sequence[DeclaredReward] = (),
    *,
    ended_at: float | None,
    now: float,
    deadline_s: float | None = None,
    ceiling: float = 0.0,
) -> Outcome:
    """Return what a rollout is worth at a time.

    Each numeric reward counts with the weight declared for its name, or, when nothing is declared,
    with 1. Inferred ones count only when there is no other. Rewards given by ``safety`` always
    count, make nothing ready, and have the last word. Safety costs are no part of it
    (``rewards.cost``): they add nothing, and nothing waits for them.

    Args:
        rewards: All that were given for the rollout and its decisions, in any order.
        declared: What is expected; their names are unique.
        ended_at: Epoch seconds; ``None`` while it runs, when nothing is ready.
        now: Epoch seconds.
        deadline_s: For what is declared without a deadline, and when nothing is declared; ``None``
            waits for ever.
        ceiling: The most that a hard-gated rollout is worth, at most 0.
    """
    if ended_at is None:
        return Outcome(state=State.WAITING)
    if not declared and len(rewards) == 1 and _is_plain(rewards[0]):  # as mostly
        return made(Outcome, state=State.READY, total=total_of([rewards[0].value or 0.0]))
    costs = {one.name for one in declared if one.cost}
    rewards = [one for one in rewards if one.name not in costs]
    declared = [one for one in declared if not one.cost]
    counted = _counted(rewards, declared)
    present = {reward.name for reward in counted}
    missing = [one for one in declared if one.name not in present]
    dues = {one.name: _due(one.deadline_s, deadline_s, ended_at) for one in missing}
    if declared:
        unsettled = _wrong(counted, declared) or _unsettled(declared, dues, now=now)
    elif counted:
        unsettled = _wrong(counted, declared)
    else:
        unsettled = _overdue(_due(None, deadline_s, ended_at), (), now=now)
    return unsettled or _ready(counted, declared, missing, _penalties(rewards), ceiling=ceiling)


def _is_plain(reward: Reward) -> bool:
    """Say whether a reward, where it is the only one, is all that a run is worth."""
    return (
        reward.value is not None
        and is_usable(reward.value)
        and reward.source != SAFETY
        and reward.decision_id is None
        and reward.decisions_before is None
    )


def _counted(rewards: Sequence[Reward], declared: Sequence[DeclaredReward]) -> list[Reward]:
    numeric = [one for one in rewards if one.value is not None and one.source != SAFETY]
    reported = [one for one in numeric if one.source != RewardSource.INFERRED]
    names = {one.name for one in declared}
    return [one for one in reported or numeric if not declared or one.name in names]


def _penalties(rewards: Sequence[Reward]) -> list[Part]:
    return [
        Part(one.name, one.value)
        for one in rewards
        if one.source == SAFETY and one.value is not None and one.decision_id is None
    ]


def _due(own_s: float | None, common_s: float | None, ended_at: float) -> float:
    wait_s = common_s if own_s is None else own_s
    return math.inf if wait_s is None else ended_at + wait_s


def _wrong(counted: Sequence[Reward], declared: Sequence[DeclaredReward]) -> Outcome | None:
    by_name = {one.name: one for one in declared}
    infinite = {one.name for one in counted if not is_usable(one.value or 0.0)}
    if infinite:
        return _left_out(WhyNot.REWARD_NOT_FINITE, infinite)
    outside = {
        one.name
        for one in counted
        if one.name in by_name and not by_name[one.name].allows(one.value or 0.0)
    }
    return _left_out(WhyNot.REWARD_OUT_OF_RANGE, outside) if outside else None


def _unsettled(
    declared: Sequence[DeclaredReward], dues: Mapping[str, float], *, now: float
) -> Outcome | None:
    """Return what a rollout waits for or lacks; ``None`` if it has all that it needs.

    Args:
        declared: What is expected.
        dues: When each of those that are missing is too late.
        now: Epoch seconds.
    """
    primary = [one for one in declared if one.primary]
    if primary:
        awaited = [one for one in primary if one.name in dues]
        lost = [one.name for one in awaited if dues[one.name] <= now and one.default is None]
        if lost:
            return _left_out(WhyNot.REWARD_MISSING, lost)
        late = [one.name for one in awaited if dues[one.name] > now]
        return _overdue(min(dues[name] for name in late), late, now=now) if late else None
    if len(dues) < len(declared):
        return None  # none is primary, and one has come
    last = max(dues.values())
    if last <= now and any(one.default is not None for one in declared):
        return None
    return _overdue(last, [*dues], now=now)


def _overdue(due: float, names: Iterable[str], *, now: float) -> Outcome:
    if due <= now:
        return _left_out(WhyNot.REWARD_MISSING, names)
    until = due if math.isfinite(due) else None
    return Outcome(state=State.WAITING, until=until, names=tuple(sorted(names)))


def _left_out(reason: WhyNot, names: Iterable[str]) -> Outcome:
    return Outcome(state=State.LEFT_OUT, reason=reason, names=tuple(sorted(names)))


def _ready(
    counted: Sequence[Reward],
    declared: Sequence[DeclaredReward],
    missing: Sequence[DeclaredReward],
    penalties: Sequence[Part],
    *,
    ceiling: float,
) -> Outcome:
    weights = {one.name: one.weight for one in declared}
    by_target: dict[str | None, list[float]] = {None: []}
    early: dict[int, list[float]] = {}
    for reward in counted:
        share = weights.get(reward.name, 1.0) * (reward.value or 0.0)
        by_target.setdefault(reward.decision_id, []).append(share)
        if reward.decision_id is None and reward.decisions_before is not None:
            early.setdefault(reward.decisions_before, []).append(share)
    defaulted = [one for one in missing if one.default is not None]
    by_target[None] += [one.weight * (one.default or 0.0) for one in defaulted]
    gate = [part for part in penalties if part.name == HARD_GATE_TRIGGERED]
    try:
        total = settled(by_target.pop(None), penalties, ceiling=ceiling)
        decisions = {
            str(target): settled(shares, gate, ceiling=ceiling)
            for target, shares in sorted(by_target.items(), key=str)
        }
        whole = total_of([total, *decisions.values()]) if decisions else total
    except OverflowError:
        return _left_out(WhyNot.REWARD_NOT_FINITE, {reward.name for reward in counted})
    if not all(map(is_usable, (whole, total, *decisions.values()))):
        return _left_out(WhyNot.REWARD_NOT_FINITE, {reward.name for reward in counted})
    return made(
        Outcome,
        state=State.READY,
        total=total,
        decisions=decisions,
        early={before: math.fsum(shares) for before, shares in sorted(early.items())},
        names=tuple(sorted(one.name for one in defaulted)),
    )
