"""Logged decisions in the form that evaluation takes, whatever their origin."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import nan, sqrt
from typing import NamedTuple

import numpy as np

from tau_live.core.errors import PolicyError
from tau_live.core.reasons import WhyNot
from tau_live.core.records import Decision, LearnableRollout, Rollout
from tau_live.core.settings import Settings
from tau_live.learn.trajectories import explored_of, mask_of, trajectories_of
from tau_live.record.rewards import outcome_of
from tau_live.rl.arrays import FloatArray
from tau_live.rl.bounds import is_usable
from tau_live.rl.evaluation.estimators import Support
from tau_live.rl.evaluation.report import Estimate, Evaluation
from tau_live.rl.features import WIDTH, Features, unpack
from tau_live.rl.policy import Policy
from tau_live.store.roles import Store

_SUM_ROUNDING = 1e-6


class Record(NamedTuple):
    """One decision.

    Attributes:
        rollout: The id of its rollout; the steps of one are in order.
        options: ``[A]``, the options offered; empty where unknown.
        allowed: ``[A]``, which of them were allowed; ``None`` if all were.
        applied: The index of the applied option; -1 where it is none of them.
        default: The index of the host's own choice; ``None`` if it has none.
        propensity: Probability with which the applied option was chosen; NaN if unknown.
        reward: The reward before the next step; NaN if unknown.
        packed: Its packed features.
        explored: ``[A]``, false where an option was unsafe to explore; ``None`` if none was.
        logged: ``[A]``, the logged probability of each option; empty if unknown.
        value: The value estimate; NaN if there was none.
        version: The version that decided; 0 is the untrained policy.
        place: The ``ready_seq`` of its rollout; 0 in a log from elsewhere.
        total: The reward of its whole rollout; NaN if unknown.
        context: The context as the host gave it; ``None`` where it was not read.
        features: ``[A]``, features of each option as the host gave them; empty where not read.
    """

    rollout: str
    options: tuple[str, ...]
    allowed: tuple[bool, ...] | None
    applied: int
    default: int | None
    propensity: float
    reward: float
    packed: bytes
    explored: tuple[bool, ...] | None = None
    logged: tuple[float, ...] = ()
    value: float = math.nan
    version: int = 0
    place: int = 0
    total: float = math.nan
    context: Features | None = None
    features: tuple[Features | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Records:
    """Decisions, and how many were left out before anything was computed.

    Attributes:
        records: The decisions, in order.
        left_out: How many were left out, by reason.
        incomplete: Ids of rollouts with a step left out: they cannot be evaluated as a whole.
    """

    records: list[Record] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    incomplete: set[str] = field(default_factory=set)


Target = Callable[[Record], FloatArray]
"""Returns ``[A]``, the probability with which a policy would have chosen each option."""


Function = Callable[[Features, Mapping[str, Features]], object]
"""A user's policy: takes the context and the options with their features, and returns the option
that it takes, or a mapping of options to probabilities."""


def function_target(function: Function, name: str) -> Target:
    """Return a user's function as a target policy.

    Raises:
        PolicyError: When the target is called: the function raised, or returned neither an allowed
            option nor probabilities of such.
    """

    def probabilities(record: Record) -> FloatArray:
        features = record.features or (None,) * len(record.options)
        offered = {
            option: dict(row or {})
            for at, (option, row) in enumerate(zip(record.options, features, strict=True))
            if record.allowed is None or record.allowed[at]
        }
        try:
            answer = function(dict(record.context or {}), offered)
        except Exception as error:  # the user's code
            raise PolicyError(f"{name} raised {type(error).__name__}: {error}") from error
        answered = {answer: 1.0} if isinstance(answer, str) else answer
        if not isinstance(answered, Mapping) or not {*answered} <= {*offered}:
            raise PolicyError(
                f"{name} must return one of {sorted(offered)}, or their probabilities, "
                f"got {answer!r}"
            )
        try:
            shares = np.array([float(answered.get(option, 0.0)) for option in record.options])
        except (TypeError, ValueError) as error:
            raise PolicyError(f"{name} must return numbers, got {answer!r}") from error
        if not ((shares >= 0.0).all() and abs(float(shares.sum()) - 1.0) <= _SUM_ROUNDING):
            raise PolicyError(f"{name} must return probabilities that sum to 1, got {answer!r}")
        return shares

    return probabilities


def uniform(record: Record) -> FloatArray:
    """Return the same probability for every allowed option."""
    allowed = (
        np.ones(len(record.options)) if record.allowed is None else np.array(record.allowed, float)
    )
    shares: FloatArray = allowed / allowed.sum()
    return shares


def constant(option: str) -> Target:
    """Return the policy that always takes one option; where that is not allowed, any other."""

    def always(record: Record) -> FloatArray:
        if option not in record.options:
            return uniform(record)
        at = record.options.index(option)
        if record.allowed is not None and not record.allowed[at]:
            return uniform(record)
        shares = np.zeros(len(record.options))
        shares[at] = 1.0
        return shares

    return always


def policy_target(policy: Policy) -> Target:
    """Return a version of a policy as a target; its width must be that of the packed features."""

    def probabilities(record: Record) -> FloatArray:
        mask = None if record.allowed is None else np.array(record.allowed, dtype=np.bool_)
        flags = None if record.explored is None else np.array(record.explored, dtype=np.bool_)
        encoded = unpack(record.packed)
        return policy.probabilities(encoded, default=record.default, allowed=mask, explored=flags)

    return probabilities


def best_fixed(log: Records) -> str | None:
    """Return the option with the highest self-normalised estimate; ``None`` where there is none.

    Chosen with hindsight from the log that it is then evaluated on, so slightly too good.
    """
    weights: dict[str, float] = {}
    earned: dict[str, float] = {}
    for record in log.records:
        if record.applied >= 0 and record.propensity > 0.0 and is_usable(record.reward):
            name = record.options[record.applied]
            weights[name] = weights.get(name, 0.0) + 1.0 / record.propensity
            earned[name] = earned.get(name, 0.0) + record.reward / record.propensity
    means = {name: earned[name] / weights[name] for name in weights}
    return max(means, key=lambda name: (means[name], name), default=None)


def returns_of(log: Records) -> FloatArray:
    """Return ``[N]`` the sum of rewards from each decision to the end of its rollout."""
    returns = np.array([record.reward for record in log.records], dtype=np.float64)
    after: dict[str, float] = {}
    for at in range(len(returns) - 1, -1, -1):
        rollout = log.records[at].rollout
        returns[at] += after.get(rollout, 0.0)
        after[rollout] = float(returns[at])
    return returns


PAGE = 256

FORCED = frozenset({WhyNot.ONE_OPTION, WhyNot.EARLIER_ATTEMPT})
"""Reasons that leave a rollout complete: every policy does the same there, or it does not count."""


def stored_records(  # noqa: PLR0913  # keyword-only but for the first three
    store: Store,
    settings: Settings,
    point: str,
    *,
    since: float | None = None,
    limit: int | None = None,
    width: int = WIDTH,
    with_features: bool = False,
    tell: Callable[[int], None],
) -> Records:
    """Return the decisions at a point of every rollout that is ready to be learned from.

    Args:
        store: The store.
        settings: The weights of rewards.
        point: The decision point.
        since: Takes only rollouts that ended then or later, in epoch seconds; ``None`` all.
        limit: Takes only so many of the newest rollouts; ``None`` all.
        width: Width of the features.
        with_features: Whether to read contexts and features as the host gave them, too.
        tell: Called with the number of further rollouts read.
    """
    records = Records()
    for page in _pages(store, point, limit=limit):
        for rollout in page:
            if since is None or (rollout.rollout.ended_at or 0.0) >= since:
                rollout_id = rollout.rollout.rollout_id
                decisions = (
                    store.decisions.decisions(rollout_id) if with_features else rollout.decisions
                )
                whole = rollout._replace(decisions=decisions)
                _add(records, whole, point, settings=settings, width=width)
        tell(len(page))
    return records


def _pages(store: Store, point: str, *, limit: int | None) -> Iterator[list[LearnableRollout]]:
    ready = store.rewards.ready_count(point, after=0)
    wanted = ready if limit is None else min(limit, ready)
    after = 0
    if wanted < ready:
        after = _position_before(store, point, wanted)
    while page := store.rewards.ready_rollouts(point, after=after, limit=PAGE):
        yield page
        after = page[-1].rollout.ready_seq or after + 1


def _position_before(store: Store, point: str, wanted: int) -> int:
    """Return the ``ready_seq`` after which the newest ``wanted`` rollouts come."""
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
    records: Records, learnable: LearnableRollout, point: str, *, settings: Settings, width: int
) -> None:
    collected = trajectories_of(
        [learnable],
        point,
        versions=[],
        discount=1.0,
        outcome=lambda known: outcome_of(known.rewards, known.rollout, settings),
        width=width,
    )
    left = {entry.decision_id: entry.reason for entry in collected.left_out}
    whole = left.pop(None, None)
    here = [decision for decision in learnable.decisions if decision.point == point]
    steps = [decision for decision in here if decision.decision_id not in left]
    reasons = list(left.values()) + [whole] * len(steps if whole else [])
    records.left_out.update(reason.value for reason in reasons if reason)
    if any(reason not in FORCED for reason in reasons):
        records.incomplete.add(learnable.rollout.rollout_id)
    if collected.trajectories is None:
        return
    for decision, reward in zip(steps, collected.trajectories.reward.tolist(), strict=True):
        records.records.append(_record(decision, reward, rollout=learnable.rollout))


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


def _features(value: object) -> Features | None:
    return value if isinstance(value, Mapping) else None


MOST = 0.01
"""Largest share of a policy's choices without support; it biases an estimate by at most that share
of the range of rewards."""


FEWEST_TAKEN = 30
"""How often an option must have been taken before its propensities can count as wrong."""

_ROUNDING = 1e-9


def unexplored_share(
    records: Iterable[Record], targets: Iterable[FloatArray | None]
) -> tuple[int, str | None]:
    """Return how many decisions give weight to options without support, and why that is too much.

    An option that was not explored has support where one over its logged probability is no larger
    than the largest weight that an estimate may rest on.

    Args:
        records: ``N`` decisions.
        targets: ``[N]`` of ``[A]``, the policy's probabilities; ``None`` where unknown.

    Returns:
        How many; and why there is no estimate, in words, ``None`` where there may be one.
    """
    least = 1.0 / Support().largest_weight
    shares = [
        0.0 if target is None else float(target[_unsupported_options(record, least)].sum())
        for record, target in zip(records, targets, strict=True)
    ]
    decisions, share = sum(share > least for share in shares), float(np.mean(shares or [0.0]))
    if share <= MOST:
        return decisions, None
    return decisions, (
        f"{share:.3g} of what the policy would do, in {decisions} decisions, was unsafe to explore "
        f"and hardly ever chosen; at most {MOST:g} may be"
    )


def misreported_option(records: Iterable[Record]) -> str | None:
    """Return, in words, an option whose logged propensities cannot be right; ``None`` without one.

    Where an option is offered, its indicator over its propensity is 1 on average, whatever the
    policy that is evaluated. In the mean of all weights, errors of two options may cancel, and the
    error of an option that the policy never takes does not show at all.

    Source:
        Li et al. 2015, arXiv:1409.6890 (checks of logged randomisation); Horvitz and Thompson 1952.
    """
    sums: dict[str, list[float]] = {}
    for record in records:
        if record.applied < 0 or not 0.0 < record.propensity <= 1.0 + 1e-9:
            continue
        weight = 1.0 / record.propensity
        for at, name in enumerate(record.options):
            if record.allowed is not None and not record.allowed[at]:
                continue
            totals = sums.setdefault(name, [0.0, 0.0, 0.0, 0.0])
            is_applied = at == record.applied
            totals[0] += 1.0
            totals[1] += is_applied
            totals[2] += weight * is_applied
            totals[3] += weight * weight * is_applied
    for name, (offered, times, total, squares) in sorted(sums.items()):
        if times < FEWEST_TAKEN:
            continue
        mean = total / offered
        error = sqrt(max(squares / offered - mean * mean, 0.0) / offered)
        if abs(mean - 1.0) > Support().mean_errors * error + _ROUNDING:
            return (
                f"mean weight {mean:.3g} of option {name!r}, which is 1 where propensities are "
                f"right (it was taken {times:.0f} times of {offered:.0f})"
            )
    return None


def without_support(evaluation: Evaluation, why: str | None) -> Evaluation:
    """Return the evaluation with every estimate refused, if there is a reason."""
    if why is None:
        return evaluation
    estimates = {
        name: Estimate(estimator=name, weights=estimate.weights, refused=(*estimate.refused, why))
        for name, estimate in evaluation.estimates.items()
    }
    return replace(evaluation, estimates=estimates)


def _unsupported_options(
    record: Record, least: float
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return ``[A]`` which options were not explored and had a probability below ``least``."""
    if record.explored is None:
        return np.zeros(len(record.options), dtype=np.bool_)
    logged = np.zeros(len(record.options))
    if len(record.logged) == len(logged):
        logged[:] = record.logged
    elif record.applied >= 0:  # the log holds the propensity of the applied option only
        logged[record.applied] = record.propensity
    return ~np.array(record.explored, dtype=np.bool_) & ~(logged >= least)
