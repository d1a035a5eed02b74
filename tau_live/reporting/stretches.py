"""All rollouts by start, cut into stretches, some of each examined."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tau_live.reporting.choices import Tally
from tau_live.reporting.facts import Decided, Spread, Stretch
from tau_live.reporting.means import mean_of, share_of, spread_of
from tau_live.rollouts import RolloutStatus
from tau_live.store.roles import Store
from tau_live.store.surveys import Assignment, Choice, Surveyed

STRETCHES = 15
"""At most: more flicker, since each has fewer rollouts and a wider interval."""

EACH = 512
"""So many rollouts of a stretch are looked at; a mean of theirs is known to a twentieth of their
standard deviation."""

CHOICES = 4096
"""So many of their decisions."""

GOLDEN = 0.6180339887498949
ENDS = (RolloutStatus.SUCCEEDED, RolloutStatus.FAILED, RolloutStatus.CANCELLED)

Tell = Callable[[int], None]


class Cut(NamedTuple):
    """One stretch, before anything of it is read.

    Attributes:
        first: The place of its first rollout.
        last: The place of its last.
        seqs: The places that are looked at.
    """

    first: int
    last: int
    seqs: list[int]


class Surveyor(NamedTuple):
    """What was seen of the whole store.

    Attributes:
        stretches: Stretch by stretch.
        decided: Stretch by stretch, by decision point.
        tallies: What was chosen at each point.
    """

    stretches: list[Stretch]
    decided: list[dict[str, Decided]]
    tallies: dict[str, Tally]


def cuts_of(store: Store, total: int, *, most: int = STRETCHES, each: int = EACH) -> list[Cut]:
    """Return the stretches of a store with about so many rollouts.

    About as many as the root of their number, so that each can have an interval. What is too much
    to be looked at in whole is looked at in evenly spread places.

    Args:
        store: The store.
        total: How many rollouts it has.
        most: So many stretches at most.
        each: So many rollouts of one are looked at, at most.
    """
    span = store.surveys.span()
    if span is None or not total:
        return []
    parts = max(1, min(most, round(0.8 * math.sqrt(total))))
    if total <= parts * each:
        seqs = store.surveys.places(limit=parts * each)
        split = [part.tolist() for part in np.array_split(seqs, parts) if len(part)]
        return [Cut(part[0], part[-1], part) for part in split]
    first, last = span
    ends = np.linspace(first, last + 1, parts + 1).astype(np.int64).tolist()
    return [Cut(begin, end - 1, picked(begin, end - 1, most=each)) for begin, end in pairwise(ends)]


def picked(first: int, last: int, *, most: int = EACH) -> list[int]:
    """Return at most so many places, one out of each part of a stretch, in no step with anything.

    A fixed distance would pick the same kind each time where kinds take turns.
    """
    width = last - first + 1
    if width <= most:
        return list(range(first, last + 1))
    part = np.arange(most)
    within = part * GOLDEN % 1.0
    found: list[int] = np.unique(first + ((part + within) * width / most).astype(int)).tolist()
    return found


def surveyed(
    store: Store, cuts: Sequence[Cut], *, within: tuple[float, float] | None, tell: Tell
) -> Surveyor:
    """Return what is seen of some rollouts of each stretch, and of their decisions.

    Args:
        store: The store.
        cuts: The stretches.
        within: The least and the largest reward; ``None`` if nobody said.
        tell: Told that one more is done.
    """
    found = Surveyor([], [], {})
    for cut in cuts:
        rollouts = store.surveys.rollouts(cut.seqs)
        choices = store.surveys.choices(cut.seqs, limit=CHOICES)
        assignments = store.surveys.assignments(cut.seqs)
        found.stretches.append(_stretch(cut, rollouts, choices, within=within))
        found.decided.append(_decided(cut, rollouts, choices, assignments, within=within))
        for choice in choices:
            found.tallies.setdefault(choice.point, Tally()).add(choice)
        tell(1)
    return found


def glanced(
    store: Store, cuts: Sequence[Cut], *, within: tuple[float, float] | None
) -> list[Stretch]:
    """Return what is seen of some rollouts of each stretch, without their decisions.

    Args:
        store: The store.
        cuts: The stretches.
        within: The least and the largest reward; ``None`` if nobody said.
    """
    return [_stretch(cut, store.surveys.rollouts(cut.seqs), (), within=within) for cut in cuts]


def nothing_decided(cut: Stretch) -> Decided:
    """Return that nothing was done at a point in a stretch."""
    none = mean_of([])
    return Decided(
        first=cut.first,
        last=cut.last,
        exposure=none,
        share=None,
        learner=none,
        control=none,
        options={},
    )


def _stretch(
    cut: Cut,
    rollouts: Sequence[Surveyed],
    choices: Sequence[Choice],
    *,
    within: tuple[float, float] | None,
) -> Stretch:
    ended = [one for one in rollouts if one.status in ENDS]
    counts = Counter(one.status for one in rollouts)
    began = [one.started_at for one in rollouts if one.started_at is not None]
    return Stretch(
        first=cut.first,
        last=cut.last,
        began_at=min(began, default=None),
        looked_at=len(rollouts),
        succeeded=counts["succeeded"],
        failed=counts["failed"],
        cancelled=counts["cancelled"],
        open=len(rollouts) - len(ended),
        waiting=sum(one.reward is None and one.left_out is None for one in ended),
        left_out=sum(one.left_out is not None for one in ended),
        reward=mean_of([one.reward for one in rollouts if one.reward is not None], within=within),
        duration_s=_durations(ended),
        cost_usd=spread_of([one.cost_usd for one in rollouts if one.cost_usd is not None]),
        latency_us=spread_of([one.latency_us for one in choices if one.latency_us > 0.0]),
    )


def _durations(ended: Sequence[Surveyed]) -> Spread:
    return spread_of(
        [
            max(0.0, one.ended_at - one.started_at)
            for one in ended
            if one.ended_at is not None and one.started_at is not None
        ]
    )


def _decided(
    cut: Cut,
    rollouts: Sequence[Surveyed],
    choices: Sequence[Choice],
    assignments: Sequence[Assignment],
    *,
    within: tuple[float, float] | None,
) -> dict[str, Decided]:
    rewards = {one.seq: one.reward for one in rollouts if one.reward is not None}
    options: dict[str, Counter[str]] = {}
    for choice in choices:
        counter = options.setdefault(choice.point, Counter())
        if choice.applied is not None:
            counter[choice.applied] += 1
    by_point: dict[str, list[Assignment]] = {point: [] for point in options}
    for one in assignments:
        by_point.setdefault(one.point, []).append(one)
    return {
        point: Decided(
            first=cut.first,
            last=cut.last,
            exposure=share_of(sum(one.learner for one in assigned), len(assigned)),
            share=mean_of([one.share for one in assigned]).mean,
            learner=mean_of(
                [rewards[a.rollout] for a in assigned if a.learner and a.rollout in rewards],
                within=within,
            ),
            control=mean_of(
                [rewards[a.rollout] for a in assigned if not a.learner and a.rollout in rewards],
                within=within,
            ),
            options=dict(options.get(point, {})),
        )
        for point, assigned in by_point.items()
    }
