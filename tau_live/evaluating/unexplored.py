"""Options that were unsafe to explore: where they were hardly ever chosen, a log says nothing."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tau_live.evaluating.records import Record
from tau_live.rl.arrays import FloatArray
from tau_live.rl.evaluation import Evaluation
from tau_live.rl.evaluation.support import Support

MOST = 0.01
"""So much of what a policy would do may be without support; an estimate is off by at most as much
of the range of rewards."""


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
