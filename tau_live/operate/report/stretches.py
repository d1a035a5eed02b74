"""All rollouts by start, cut into stretches, some of each examined."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tau_live.core.records import RolloutStatus
from tau_live.core.settings import Settings
from tau_live.learn.evaluation.records import Record, returns_of, stored_records
from tau_live.learn.promotion.rules import Move
from tau_live.operate.report.choices import Tally, compare_estimates, mean_of, share_of, spread_of
from tau_live.operate.report.facts import Bin, Decided, Error, Mark, Point, Stretch
from tau_live.rl.arrays import FloatArray
from tau_live.store.records import Assignment, Choice, Surveyed
from tau_live.store.roles import Store

STRETCHES = 15
"""At most: more flicker, since each has fewer rollouts and a wider interval."""

EACH = 512
"""So many rollouts of a stretch are looked at; a mean of theirs is known to a twentieth of their
standard deviation."""


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
    return [
        Cut(begin, end - 1, sample_places(begin, end - 1, most=each))
        for begin, end in pairwise(ends)
    ]


def sample_places(first: int, last: int, *, most: int = EACH) -> list[int]:
    """Return at most so many places, one out of each part of a stretch, in no step with anything.

    A fixed distance would pick the same kind each time where kinds take turns.
    """
    width = last - first + 1
    if width <= most:
        return list(range(first, last + 1))
    part = np.arange(most)
    # The golden ratio less 1.
    within = part * 0.6180339887498949 % 1.0
    places: list[int] = np.unique(first + ((part + within) * width / most).astype(int)).tolist()
    return places


def survey(
    store: Store, cuts: Sequence[Cut], *, within: tuple[float, float] | None, tell: Tell
) -> tuple[list[Stretch], list[dict[str, Decided]], dict[str, Tally]]:
    """Return a survey of some rollouts of each stretch, and of their decisions.

    Args:
        store: The store.
        cuts: The stretches.
        within: The least and the largest reward; ``None`` if not declared.
        tell: Called with 1 when one more is done.

    Returns:
        The stretches; what was decided in each, by decision point; the choices at each point.
    """
    stretches: list[Stretch] = []
    decided: list[dict[str, Decided]] = []
    tallies: dict[str, Tally] = {}
    for cut in cuts:
        rollouts = store.surveys.rollouts(cut.seqs)
        # So many of their decisions.
        choices = store.surveys.choices(cut.seqs, limit=4096)
        assignments = store.surveys.assignments(cut.seqs)
        stretches.append(stretch_of(cut, rollouts, choices, within=within))
        decided.append(_decisions(cut, rollouts, choices, assignments, within=within))
        for choice in choices:
            tallies.setdefault(choice.point, Tally()).add(choice)
        tell(1)
    return stretches, decided, tallies


def stretch_of(
    cut: Cut,
    rollouts: Sequence[Surveyed],
    choices: Sequence[Choice],
    *,
    within: tuple[float, float] | None,
) -> Stretch:
    """Return a stretch, from some of its rollouts and of their decisions.

    Args:
        cut: Where it begins and ends.
        rollouts: Its rollouts that are looked at.
        choices: Their decisions that are.
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
    rollouts: Sequence[Surveyed],
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
"""No bin and no stretch has fewer decisions, unless there are no more."""


def with_recent(
    point: Point, store: Store, settings: Settings, *, tell: Callable[[int], None]
) -> Point:
    """Return a point with how value and log estimates held for its newest rewarded rollouts.

    Args:
        point: The decision point.
        store: The store.
        settings: What rewards are worth, and where checkpoints are.
        tell: Called with how many more of ``choices.PARTS`` parts are done.
    """
    # So many of the newest rewarded rollouts of a point are looked at.
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
    """Return bins of about as many decisions each, by value estimate.

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
        records: ``[N]``, in their order.
        errors: ``[N]``, NaN where nothing was expected.
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
"""So many marks are shown, the newest."""

LOOKED_AT = 2_000
"""So many lines of the audit are looked at, the newest."""

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
"""Lines of the audit by action; what is not here changes nobody who decides."""

BY_ITSELF = frozenset(Move)

GATE: Mapping[str, str] = {"hold": "hold", "held_in_memory": "hold", "reset": "reset"}


def marks_of(store: Store, stretches: Sequence[Stretch], *, limit: int = LOOKED_AT) -> list[Mark]:
    """Return the changes of who decides, oldest first.

    Args:
        store: The store.
        stretches: All rollouts, which tell where in their order something happened.
        limit: So many of the newest lines of the audit are looked at, and of the gate's history.
    """
    changes = [
        Mark(
            at=entry.at,
            place=None,
            kind=KINDS[entry.action],
            point=point if isinstance(point := entry.details.get("point"), str) else None,
            # Who did what no operator did.
            who="evidence" if entry.action in BY_ITSELF else entry.who,
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
    """Return about where in the order of rollouts something happened."""
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
