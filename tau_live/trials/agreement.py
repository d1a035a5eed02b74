"""How often a policy in shadow agrees with the host.

A decision in shadow is one for which the policy gave its probabilities and the host did what it
does without us. It has no propensity, so nothing is learned from it; it shows what the host does,
and whether the policy would do the same, before the policy is let act.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tau_live.store.records import Shadowed
from tau_live.store.roles import Store

WINDOW = 256
"""So many of the newest decisions of each point are looked at."""

HABITS = 8
"""So many of the options that the host takes most often are listed."""


class Agreement(NamedTuple):
    """What a policy and its host would both have done at one decision point.

    Attributes:
        decisions: How many decisions in shadow, of the newest ones.
        agreement: The share of them for which no option was more probable than the host's.
        probability: The mean probability that the policy gave to what the host did.
        host: The share of each option that the host took, the most frequent first.
    """

    decisions: int
    agreement: float
    probability: float
    host: dict[str, float]


def agreement(rows: Sequence[Shadowed]) -> Agreement | None:
    """Return how far policy and host agree; ``None`` where there was no choice to agree on."""
    given = [
        (row.applied, row.probabilities[row.options.index(row.applied)], max(row.probabilities))
        for row in rows
        if len(row.options) > 1
        and len(row.options) == len(row.probabilities)
        and row.applied in row.options
    ]
    if not given:
        return None
    taken = Counter(applied for applied, _, _ in given)
    habits = sorted(taken.items(), key=lambda one: (-one[1], one[0]))[:HABITS]
    return Agreement(
        len(given),
        sum(own >= most for _, own, most in given) / len(given),
        sum(own for _, own, _ in given) / len(given),
        {option: count / len(given) for option, count in habits},
    )


def agreements(store: Store, *, window: int = WINDOW) -> dict[str, Agreement]:
    """Return the agreement at every decision point that has newest decisions in shadow."""
    found = {
        point: agreement(store.decisions.shadowed(point, limit=window))
        for point in store.decisions.shadow_points()
    }
    return {point: one for point, one in found.items() if one is not None}
