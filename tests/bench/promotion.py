"""Promotion: is a learner promoted when it is better and safe, and only then?

Simulated rollouts of a learner and its control, each at half share, looked at after every 8:
equal ones (A/A), better ones, and one that is better but unsafe.
"""

from collections.abc import Iterator
from functools import partial
from statistics import NormalDist

import numpy as np

from tau_live.rl.verdict import Evidence, Outcomes, Rule, Verdict
from tests.bench.harness import OURS, Bench, Contestant, Figures, Goal, main

ROLLOUTS = 20_000
EVERY = 8
EQUAL = 200
"""A/A streams of one seed; five seeds make a thousand."""

UNEQUAL = 40
DIFFERENCES = (0.05, 0.10, 0.20)
COST, UNSAFE_COST = 0.02, 0.12
SHARE = 0.5
AA = "A/A promoted"
UNSAFE = "unsafe promoted"


def outcomes(
    rng: np.random.Generator, count: int, *, difference: float = 0.0, costlier: float = 0.0
) -> Outcomes:
    """Return rollouts that succeed at a rate of 0.5, the learner's by ``difference`` more often."""
    learner = rng.random(count) < SHARE
    return Outcomes(
        rewards=(rng.random(count) < 0.5 + difference * learner).astype(np.float64),
        costs=(rng.random(count) < COST + costlier * learner).astype(np.float64),
        learner=learner,
        shares=np.full(count, SHARE),
    )


def promoted_at(found: Outcomes, rule: Rule) -> int | None:
    """Return after how many rollouts the verdict is to promote; ``None`` if it never is.

    The looks at which no bound tells anything are passed over by the same bounds at once.
    """
    evidence, done = Evidence.none(rewards=(0.0, 1.0)), 0
    for place in _telling(found, rule):
        evidence = evidence.including(_part(found, done, place))
        done = place
        verdict = evidence.finding(rule).verdict
        if verdict is not Verdict.WAIT:
            return place if verdict is Verdict.PROMOTE else None
    return None


def promoted_by_interval_at(found: Outcomes, rule: Rule) -> int | None:
    """Return the same for who looks at a one-sided 95 % interval of the difference."""
    del rule  # it looks at the reward alone
    arms = []
    for arm in (found.learner, ~found.learner):
        counts = np.cumsum(arm)[EVERY - 1 :: EVERY]
        sums = np.cumsum(found.rewards * arm)[EVERY - 1 :: EVERY]
        means = sums / np.maximum(counts, 1)
        arms.append((counts, means, means * (1.0 - means) / np.maximum(counts - 1, 1)))
    (ours, mean, error), (theirs, control, control_error) = arms
    bound = mean - control - NormalDist().inv_cdf(0.95) * np.sqrt(error + control_error)
    proven = np.flatnonzero((bound > 0.0) & (np.minimum(ours, theirs) >= Rule().fewest))
    return int(EVERY * (proven[0] + 1)) if len(proven) else None


def play(
    seed: int,
    *,
    by_interval: bool = False,
    rollouts: int = ROLLOUTS,
    equal: int = EQUAL,
    unequal: int = UNEQUAL,
) -> Figures:
    """Return the share promoted of equal and of unsafe learners, and how soon better ones are."""
    ask = promoted_by_interval_at if by_interval else promoted_at
    rng = np.random.default_rng([seed, 5])
    costless = Rule(cost_margin=None)
    same = [ask(outcomes(rng, rollouts), costless) for _ in range(equal)]
    found = {AA: float(np.mean([at is not None for at in same]))}
    for difference in DIFFERENCES:
        better = [
            ask(outcomes(rng, rollouts, difference=difference), costless) for _ in range(unequal)
        ]
        found[f"rollouts to prove {difference:.2f}"] = float(
            np.median([rollouts if at is None else at for at in better])
        )
        found[f"of {difference:.2f} promoted"] = float(np.mean([at is not None for at in better]))
    unsafe = [
        ask(outcomes(rng, rollouts, difference=0.2, costlier=UNSAFE_COST - COST), Rule())
        for _ in range(unequal)
    ]
    return {**found, UNSAFE: float(np.mean([at is not None for at in unsafe]))}


def _telling(found: Outcomes, rule: Rule) -> Iterator[int]:
    begun, alpha = Evidence.none(rewards=(0.0, 1.0)), rule.alpha_of(1)
    reward, cost = (
        difference.path_bounds(
            values, learner=found.learner, shares=found.shares, alpha=alpha, every=EVERY
        )
        for difference, values in ((begun.reward, found.rewards), (begun.cost, found.costs))
    )
    tells = (reward.lower > rule.margin) | (reward.upper < rule.margin)
    if rule.cost_margin is not None:
        tells |= cost.lower > rule.cost_margin
    yield from (int(place) for place in reward.rollouts[tells])


def _part(whole: Outcomes, start: int, end: int) -> Outcomes:
    return Outcomes(
        rewards=whole.rewards[start:end],
        costs=whole.costs[start:end],
        learner=whole.learner[start:end],
        shares=whole.shares[start:end],
    )


BENCH = Bench(
    name="promotion",
    needs=(),
    goals=(Goal(AA, 0.01, at_least=False), Goal(UNSAFE, 0.0, at_least=False)),
    contestants=(
        Contestant(OURS, play),
        Contestant("95 % interval", partial(play, by_interval=True)),
    ),
    note=(
        f"{EQUAL} A/A streams a seed and {UNEQUAL} of every other kind, each of {ROLLOUTS} "
        f"rollouts, looked at after every {EVERY}. Rollouts to prove are medians; the interval's "
        "are those of someone who is wrong as often as its first figure says. The unsafe learner "
        f"succeeds 0.20 more often, and violates at {UNSAFE_COST:g} instead of {COST:g}."
    ),
)

if __name__ == "__main__":
    main(BENCH)
