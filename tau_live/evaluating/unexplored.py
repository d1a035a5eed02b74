"""Where a log has no support: options hardly ever chosen, or wrong propensities."""

from collections.abc import Iterable
from dataclasses import replace
from math import sqrt
from typing import NamedTuple

import numpy as np

from tau_live.evaluating.records import Record
from tau_live.rl.arrays import FloatArray
from tau_live.rl.evaluation import Evaluation
from tau_live.rl.evaluation.support import Support

MOST = 0.01
"""So much of what a policy would do may be without support; an estimate is off by at most as much
of the range of rewards."""


FEWEST_TAKEN = 30
"""So often an option must have been taken before its propensities are called wrong."""

_ROUNDING = 1e-9


class Unexplored(NamedTuple):
    """What of a policy is on options that were not explored and next to never chosen.

    Attributes:
        decisions: In so many decisions it would choose one of them.
        share: Of all that it would do, in ``[0, 1]``.
    """

    decisions: int
    share: float

    @property
    def why(self) -> str | None:
        """Why there is no estimate, in words; ``None`` where it may be given."""
        if self.share <= MOST:
            return None
        return (
            f"{self.share:.3g} of what the policy would do, in {self.decisions} decisions, was "
            f"unsafe to explore and hardly ever chosen; at most {MOST:g} may be"
        )


def unexplored(records: Iterable[Record], targets: Iterable[FloatArray | None]) -> Unexplored:
    """Return what of a policy is on options without support.

    An option that was not explored has support where it was chosen with a probability of which one
    over is no larger than the largest weight that an estimate may rest on.

    Args:
        records: ``N`` decisions.
        targets: ``[N]`` of ``[A]``, what the policy would do; ``None`` where nobody knows.
    """
    least = 1.0 / Support().largest_weight
    shares = [
        0.0 if target is None else float(target[_unsupported(record, least)].sum())
        for record, target in zip(records, targets, strict=True)
    ]
    return Unexplored(sum(share > least for share in shares), float(np.mean(shares or [0.0])))


def misreported(records: Iterable[Record]) -> str | None:
    """Return which option's logged propensities cannot be right; ``None`` where all may be.

    Where an option is offered, its indicator over its propensity is 1 on average, whatever the
    policy that is evaluated: errors of two options may cancel in the mean of all weights, and one
    of an option that the policy never takes does not show there at all.

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
            found = sums.setdefault(name, [0.0, 0.0, 0.0, 0.0])
            taken = at == record.applied
            found[0] += 1.0
            found[1] += taken
            found[2] += weight * taken
            found[3] += weight * weight * taken
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


def without_support(found: Evaluation, why: str | None) -> Evaluation:
    """Return an evaluation that refuses every estimate, if there is a reason to."""
    if why is None:
        return found
    estimates = {
        name: replace(
            one,
            value=None,
            standard_error=None,
            bootstrap=None,
            bernstein=None,
            refused=(*one.refused, why),
        )
        for name, one in found.estimates.items()
    }
    return replace(found, estimates=estimates)


def _unsupported(record: Record, least: float) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return ``[A]`` which options were not explored and had no more than so small a chance."""
    if record.explored is None:
        return np.zeros(len(record.options), dtype=np.bool_)
    logged = np.zeros(len(record.options))
    if len(record.logged) == len(logged):
        logged[:] = record.logged
    elif record.applied >= 0:  # somebody else chose, and only said how likely that was
        logged[record.applied] = record.propensity
    return ~np.array(record.explored, dtype=np.bool_) & ~(logged >= least)
