"""All rollouts by start, cut into stretches, with a sample of each."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tau_live.core.prompts import prompt_of_trial
from tau_live.core.records import RolloutStatus
from tau_live.core.settings import Settings
from tau_live.learn.evaluation.records import Record, returns_of, stored_records
from tau_live.learn.promotion.rules import Move
from tau_live.operate.report.choices import Tally, compare_estimates, mean_of, share_of, spread_of
from tau_live.operate.report.facts import Bin, Decided, Error, Mark, Point, Stretch
from tau_live.rl.arrays import FloatArray
from tau_live.store.records import Assignment, Choice, RolloutColumns
from tau_live.store.roles import Store

STRETCHES = 15
"""Most stretches; more would flicker, since each has fewer rollouts and a wider interval."""

EACH = 512
"""Most rollouts of a stretch that are examined; their mean is known to a twentieth of their
standard deviation."""


ENDS = (RolloutStatus.SUCCEEDED, RolloutStatus.FAILED, RolloutStatus.CANCELLED)

Tell = Callable[[int], None]


class Cut(NamedTuple):
    """The rollouts of one stretch, before any is read.

    Attributes:
        first: Position of its first rollout.
        last: Position of its last.
        seqs: Positions of the sample.
    """

    first: int
    last: int
    seqs: list[int]


def cuts_of(store: Store, total: int, *, most: int = STRETCHES, each: int = EACH) -> list[Cut]:
    """Return the stretches of a store.

    Their number is about the root of that of the rollouts, so that each can have an interval. Where
    there are too many rollouts to read, evenly spread ones are sampled.

    Args:
        store: The store.
        total: About how many rollouts it has.
        most: Most stretches, at least 1.
        each: Most rollouts sampled of each, at least 1.
    """
    span = store.surveys.span()
    if span is None or total < 1:
        return []
    parts = max(1, min(most, round(0.8 * math.sqrt(total))))
    parts -= parts % 3 if parts > 3 else 0  # so that a third of them is a third of the rollouts
    if total <= parts * each:
        seqs = store.surveys.places(limit=parts * each)
        split = [part.tolist() for part in np.array_split(seqs, parts) if len(part)]
        return [Cut(part[0], part[-1], part) for part in split]
    first, last = span
    ends = np.linspace(first, last + 1, parts + 1).astype(np.int64).tolist()
    return [
        Cut(begin, end - 1, sample_places(begin, end - 1, most=each))
        for begin, end in pairwise(ends)
    ]


def sample_places(first: int, last: int, *, most: int = EACH) -> list[int]:
    """Return at most ``most`` positions, one from each part of a stretch, at varying distances.

    A fixed distance would pick the same kind each time where kinds take turns.
    """
    width = last - first + 1
    if width <= most:
        return list(range(first, last + 1))
    part = np.arange(most)
    within = part * 0.6180339887498949 % 1.0  # the golden ratio less 1
    places: list[int] = np.unique(first + ((part + within) * width / most).astype(int)).tolist()
    return places


def survey(
    store: Store, cuts: Sequence[Cut], *, within: tuple[float, float] | None, tell: Tell
) -> tuple[list[Stretch], list[dict[str, Decided]], dict[str, Tally]]:
    """Return a survey of sampled rollouts of each stretch, and of their decisions.

    Args:
        store: The store.
        cuts: The stretches.
        within: The least and the largest reward; ``None`` if not declared.
        tell: Called with 1 after each stretch.

    Returns:
        The stretches; the decisions in each, by decision point; the choices at each point.
    """
    stretches: list[Stretch] = []
    decided: list[dict[str, Decided]] = []
    tallies: dict[str, Tally] = {}
    for cut in cuts:
        rollouts = store.surveys.rollouts(cut.seqs)
        choices = store.surveys.choices(cut.seqs, limit=4096)
        assignments = [
            assignment
            for assignment in store.surveys.assignments(cut.seqs)
            if prompt_of_trial(assignment.point) is None
        ]
        stretches.append(stretch_of(cut, rollouts, choices, within=within))
        decided.append(_decisions(cut, rollouts, choices, assignments, within=within))
        for choice in choices:
            tallies.setdefault(choice.point, Tally()).add(choice)
        tell(1)
    return stretches, decided, tallies


def stretch_of(
    cut: Cut,
    rollouts: Sequence[RolloutColumns],
    choices: Sequence[Choice],
    *,
    within: tuple[float, float] | None,
) -> Stretch:
    """Return a stretch, from a sample of its rollouts and of their decisions.

    Args:
        cut: Where it begins and ends.
        rollouts: The sampled rollouts.
        choices: The sampled decisions.
        within: The least and the largest reward; ``None`` if not declared.
    """
    ended = [rollout for rollout in rollouts if rollout.status in ENDS]
    counts = Counter(rollout.status for rollout in rollouts)
    began = [rollout.started_at for rollout in rollouts if rollout.started_at is not None]
    return Stretch(
        first=cut.first,
        last=cut.last,
        began_at=min(began, default=None),
        looked_at=len(rollouts),
        succeeded=counts["succeeded"],
        failed=counts["failed"],
        cancelled=counts["cancelled"],
        open=len(rollouts) - len(ended),
        waiting=sum(rollout.reward is None and rollout.left_out is None for rollout in ended),
        left_out=sum(rollout.left_out is not None for rollout in ended),
        reward=mean_of(
            [rollout.reward for rollout in rollouts if rollout.reward is not None], within=within
        ),
        duration_s=spread_of(
            [
                max(0.0, rollout.ended_at - rollout.started_at)
                for rollout in ended
                if rollout.ended_at is not None and rollout.started_at is not None
            ]
        ),
        cost_usd=spread_of(
            [rollout.cost_usd for rollout in rollouts if rollout.cost_usd is not None]
        ),
        latency_us=spread_of([choice.latency_us for choice in choices if choice.latency_us > 0.0]),
    )


def _decisions(
    cut: Cut,
    rollouts: Sequence[RolloutColumns],
    choices: Sequence[Choice],
    assignments: Sequence[Assignment],
    *,
    within: tuple[float, float] | None,
) -> dict[str, Decided]:
    rewards = {rollout.seq: rollout.reward for rollout in rollouts if rollout.reward is not None}
    options: dict[str, Counter[str]] = {}
    for choice in choices:
        counter = options.setdefault(choice.point, Counter())
        if choice.applied is not None:
            counter[choice.applied] += 1
    by_point: dict[str, list[Assignment]] = {point: [] for point in options}
    for assignment in assignments:
        by_point.setdefault(assignment.point, []).append(assignment)
    return {
        point: Decided(
            first=cut.first,
            last=cut.last,
            exposure=share_of(sum(assignment.learner for assignment in assigned), len(assigned)),
            share=mean_of([assignment.share for assignment in assigned]).mean,
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


FEWEST = 16
"""Fewest decisions of a bin or a stretch, unless there are fewer in all."""


def with_recent(
    point: Point, store: Store, settings: Settings, *, tell: Callable[[int], None]
) -> Point:
    """Return a point with the errors of value and log estimates for its newest rewarded rollouts.

    Args:
        point: The decision point.
        store: The store.
        settings: The weights of rewards.
        tell: Called with the number of further parts done, of ``choices.PARTS``.
    """
    logged = stored_records(store, settings, point.point, limit=1_024, tell=lambda _: None)
    returns = returns_of(logged)
    expected = np.array([record.value for record in logged.records], dtype=np.float64)
    errors = returns - expected
    return replace(
        point,
        lived=len({record.rollout for record in logged.records}),
        calibration=calibration(expected, returns),
        error=mean_of(errors),
        errors=errors_over_time(logged.records, errors),
        compared=compare_estimates(store, settings, logged, returns, point=point.point, tell=tell),
    )


def calibration(expected: FloatArray, returns: FloatArray) -> list[Bin]:
    """Return bins of about equal size, by value estimate.

    Args:
        expected: ``[N]``, NaN where there is no estimate.
        returns: ``[N]``.
    """
    known = np.isfinite(expected) & np.isfinite(returns)
    expected, returns = expected[known], returns[known]
    if not len(expected):
        return []
    order = np.argsort(expected, kind="stable")
    parts = np.array_split(order, min(10, max(1, len(order) // FEWEST)))
    return [
        Bin(expected=float(expected[part].mean()), came=mean_of(returns[part])) for part in parts
    ]


def errors_over_time(records: Sequence[Record], errors: FloatArray) -> list[Error]:
    """Return the return less the value estimate, stretch by stretch.

    Args:
        records: ``[N]``, in order.
        errors: ``[N]``, NaN without a value estimate.
    """
    known = np.flatnonzero(np.isfinite(errors))
    if not len(known):
        return []
    parts = np.array_split(known, min(24, max(1, len(known) // FEWEST)))
    return [
        Error(
            first=records[int(part[0])].place,
            last=records[int(part[-1])].place,
            error=mean_of(errors[part]),
        )
        for part in parts
    ]


MOST = 200
"""How many of the newest marks are shown."""

LOOKED_AT = 2_000
"""How many of the newest lines of the audit are read."""

KINDS: Mapping[str, str] = {
    "champion_frozen": "promotion",
    "policy_freeze": "promotion",
    "policy_promote": "promotion",
    "champion_returned": "rollback",
    "policy_rollback": "rollback",
    "policy_reset": "rollback",
    "policy_use": "rollback",
    "exposure_climbed": "exposure",
    "exposure_lowered": "exposure",
    "policy_exposure": "exposure",
    "learner_stopped": "stop",
    "policy_stop": "stop",
}
"""The kind of mark of each action in the audit; other actions do not change who decides."""

EVIDENCE_ACTIONS = frozenset(Move)

GATE: Mapping[str, str] = {"hold": "hold", "held_in_memory": "hold", "reset": "reset"}


def marks_of(store: Store, stretches: Sequence[Stretch], *, limit: int = LOOKED_AT) -> list[Mark]:
    """Return the changes of who decides, oldest first.

    Args:
        store: The store.
        stretches: All rollouts, which map a time to a position in their order.
        limit: How many of the newest lines of the audit, and of the gate's history, are read.
    """
    changes = [
        Mark(
            at=entry.at,
            place=None,
            kind=KINDS[entry.action],
            point=point if isinstance(point := entry.details.get("point"), str) else None,
            who="evidence" if entry.action in EVIDENCE_ACTIONS else entry.who,
            sentence=f"{entry.action.replace('_', ' ')}: {entry.reason}",
        )
        for entry in store.audit.entries(limit=limit)
        if entry.action in KINDS
    ]
    stops = [
        Mark(
            at=entry.at,
            place=None,
            kind=GATE[entry.event],
            point=None,
            who=entry.who,
            sentence=f"gate {entry.event.replace('_', ' ')}: {entry.reason or 'no reason given'}",
        )
        for entry in store.gate.log(limit=min(limit, MOST))
        if entry.event in GATE
    ]
    newest = sorted([*changes, *stops], key=lambda mark: mark.at)[-MOST:]
    places = _places([mark.at for mark in newest], stretches)
    return [replace(mark, place=place) for mark, place in zip(newest, places, strict=True)]


def _places(times: Sequence[float], stretches: Sequence[Stretch]) -> list[float | None]:
    """Return the approximate positions of times in the order of rollouts."""
    known = [
        (stretch.began_at, stretch.first) for stretch in stretches if stretch.began_at is not None
    ]
    if not known:
        return [None] * len(times)
    began = np.maximum.accumulate([at for at, _ in known])  # imported rollouts may be older
    places = np.array([first for _, first in known], dtype=np.float64)
    last = float(stretches[-1].last)
    positions = np.interp(times, began, places, right=last)
    return [float(place) for place in positions]
