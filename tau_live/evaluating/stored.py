"""The decisions of a store, as an evaluation needs them."""

from collections.abc import Callable, Iterator, Mapping
from math import nan

from tau_live.evaluating.records import Record, Records
from tau_live.learning.trajectories import trajectories_of
from tau_live.learning.usable import explored_of, mask_of
from tau_live.reasons import WhyNot
from tau_live.rewards.settling import earned_by_decisions, earned_early
from tau_live.rl.features import WIDTH
from tau_live.rollouts import Decision, Rollout
from tau_live.settings import Settings
from tau_live.store.records import LearnableRollout
from tau_live.store.roles import Store

PAGE = 256

FORCED = frozenset({WhyNot.ONE_OPTION, WhyNot.EARLIER_ATTEMPT})
"""Left out without spoiling its rollout: every policy does the same there, or it does not count."""


def stored_records(  # noqa: PLR0913  # what to read of it, all keyword-only but the first three
    store: Store,
    settings: Settings,
    point: str,
    *,
    since: float | None = None,
    limit: int | None = None,
    width: int = WIDTH,
    given: bool = False,
    tell: Callable[[int], None],
) -> Records:
    """Return the decisions at a point of every rollout that is ready to be learned from.

    Args:
        store: The store.
        settings: What rewards are worth.
        point: The decision point.
        since: Only of rollouts that ended then or later, in epoch seconds.
        limit: Only of so many rollouts, the newest.
        width: How wide the features must be.
        given: Whether contexts and features are read as the host gave them, too.
        tell: Told how many more rollouts were read.
    """
    found = Records()
    for page in _pages(store, point, limit=limit):
        for one in page:
            if since is None or (one.rollout.ended_at or 0.0) >= since:
                rollout_id = one.rollout.rollout_id
                decisions = store.decisions.decisions(rollout_id) if given else one.decisions
                whole = one._replace(decisions=decisions)
                _add(found, whole, point, settings=settings, width=width)
        tell(len(page))
    return found


def _pages(store: Store, point: str, *, limit: int | None) -> Iterator[list[LearnableRollout]]:
    ready = store.rewards.ready_count(point, after=0)
    wanted = ready if limit is None else min(limit, ready)
    after = 0
    if wanted < ready:
        after = _place_before(store, point, wanted)
    while page := store.rewards.ready_rollouts(point, after=after, limit=PAGE):
        yield page
        after = page[-1].rollout.ready_seq or after + 1


def _place_before(store: Store, point: str, wanted: int) -> int:
    """Return the place behind which the newest so many rollouts stand."""
    newest = store.rewards.ready_rollouts(point, after=0, limit=1, newest=True)
    low, high = 0, newest[0].rollout.ready_seq or 0
    while low < high:
        middle = (low + high) // 2
        if store.rewards.ready_count(point, after=middle) > wanted:
            low = middle + 1
        else:
            high = middle
    return low


def _add(
    found: Records, one: LearnableRollout, point: str, *, settings: Settings, width: int
) -> None:
    collected = trajectories_of(
        [one],
        point,
        versions=[],
        discount=1.0,
        earned=lambda rollout: earned_by_decisions(rollout, settings),
        early=lambda rollout: earned_early(rollout, settings),
        width=width,
    )
    left = {entry.decision_id: entry.reason for entry in collected.left_out}
    whole = left.pop(None, None)
    here = [decision for decision in one.decisions if decision.point == point]
    steps = [decision for decision in here if decision.decision_id not in left]
    reasons = list(left.values()) + [whole] * len(steps if whole else [])
    found.left_out.update(reason.value for reason in reasons if reason)
    if any(reason not in FORCED for reason in reasons):
        found.spoilt.add(one.rollout.rollout_id)
    if collected.trajectories is None:
        return
    for decision, reward in zip(steps, collected.trajectories.reward.tolist(), strict=True):
        found.records.append(_record(decision, reward, rollout=one.rollout))


def _record(decision: Decision, reward: float, *, rollout: Rollout) -> Record:
    mask, explored = mask_of(decision), explored_of(decision)
    options = decision.options
    return Record(
        rollout=decision.rollout_id,
        options=options,
        allowed=None if mask is None else tuple(mask.tolist()),
        applied=options.index(decision.applied) if decision.applied in options else -1,
        default=options.index(decision.default) if decision.default in options else None,
        propensity=nan if decision.propensity is None else decision.propensity,
        reward=reward,
        packed=decision.encoded,
        explored=None if explored is None else tuple(explored.tolist()),
        logged=decision.probabilities,
        value=nan if decision.value is None else decision.value,
        version=decision.policy_version,
        place=rollout.ready_seq or 0,
        total=nan if rollout.total_reward is None else rollout.total_reward,
        context=decision.context,
        features=tuple(_features(decision.features.get(option)) for option in options),
    )


def _features(given: object) -> Mapping[str, object] | None:
    return given if isinstance(given, Mapping) else None
