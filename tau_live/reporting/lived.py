"""What had been expected against what came: calibration, drift, and estimates from the log."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tau_live.evaluating.records import Record, returns_of
from tau_live.evaluating.stored import stored_records
from tau_live.reporting.compared import compared
from tau_live.reporting.facts import Bin, Compared, Error, Mean
from tau_live.reporting.means import mean_of
from tau_live.rl.arrays import FloatArray
from tau_live.settings import Settings
from tau_live.store.roles import Store

NEWEST = 1_024
"""So many of the newest rewarded rollouts of a point are looked at."""

BINS = 10
STRETCHES = 24
FEWEST = 16
"""No bin and no stretch has fewer decisions, unless there are no more."""


class Lived(NamedTuple):
    """What the newest rollouts of a point say.

    Attributes:
        rollouts: How many were looked at.
        calibration: By what was expected.
        error: Over all of them.
        errors: Over time.
        compared: Estimates from the log against what came.
    """

    rollouts: int = 0
    calibration: Sequence[Bin] = ()
    error: Mean = Mean()
    errors: Sequence[Error] = ()
    compared: Sequence[Compared] = ()


def lived(store: Store, settings: Settings, point: str, *, tell: Callable[[int], None]) -> Lived:
    """Return what the newest rewarded rollouts of a point say.

    Args:
        store: The store.
        settings: What rewards are worth, and where checkpoints are.
        point: The decision point.
        tell: Told that so many more of ``compared.PARTS`` parts are done.
    """
    found = stored_records(store, settings, point, limit=NEWEST, tell=lambda _: None)
    returns = returns_of(found)
    expected = np.array([one.value for one in found.records], dtype=np.float64)
    errors = returns - expected
    return Lived(
        len({one.rollout for one in found.records}),
        calibration(expected, returns),
        mean_of(errors),
        errors_over_time(found.records, errors),
        compared(store, settings, found, returns, point=point, tell=tell),
    )


def calibration(expected: FloatArray, returns: FloatArray) -> list[Bin]:
    """Return bins of about as many decisions each, by what was expected of them.

    Args:
        expected: ``[N]``, NaN where nothing was.
        returns: ``[N]``, what came.
    """
    known = np.isfinite(expected) & np.isfinite(returns)
    expected, returns = expected[known], returns[known]
    if not len(expected):
        return []
    order = np.argsort(expected, kind="stable")
    parts = np.array_split(order, min(BINS, max(1, len(order) // FEWEST)))
    return [
        Bin(expected=float(expected[part].mean()), came=mean_of(returns[part])) for part in parts
    ]


def errors_over_time(records: Sequence[Record], errors: FloatArray) -> list[Error]:
    """Return what came less what was expected, stretch by stretch.

    Args:
        records: ``[N]``, in their order.
        errors: ``[N]``, NaN where nothing was expected.
    """
    known = np.flatnonzero(np.isfinite(errors))
    if not len(known):
        return []
    parts = np.array_split(known, min(STRETCHES, max(1, len(known) // FEWEST)))
    return [
        Error(
            first=records[int(part[0])].place,
            last=records[int(part[-1])].place,
            error=mean_of(errors[part]),
        )
        for part in parts
    ]
