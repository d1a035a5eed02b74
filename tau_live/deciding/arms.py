"""Which arm decides a rollout: the learner or the control, assigned once by a hash of its id."""

from typing import NamedTuple

from tau_live.store.records import Trial

LEARNER = "learner"
CONTROL = "control"
KEPT_SHARE = 0.05
"""What a champion that was replaced keeps for a while."""


class Arm(NamedTuple):
    """Who decides a rollout at a point.

    Attributes:
        name: ``learner`` or ``control``.
        share: The probability with which it would have been the learner; ``None`` where nobody
            was assigned, so that the rollout is in neither arm.
    """

    name: str
    share: float | None


NEITHER = Arm(CONTROL, None)
"""The host decides by itself, and nothing is concluded from that."""


def arm_of(share: float, at: float) -> Arm:
    """Return the arm of a rollout whose sticky number in ``[0, 1)`` is ``at``."""
    return Arm(LEARNER if at < share else CONTROL, share)


def share_of(
    trial: Trial | None, *, start: float | None, has_control: bool, control_share: float
) -> float:
    """Return the share of rollouts that the learner may decide at a point.

    Args:
        trial: What is known of the point; ``None`` if nothing is.
        start: What the learner decides before any exposure was set, where an adapter acts on a
            host's own decision point; 0 is shadow. ``None`` for an explicit decision.
        has_control: Whether the host named a choice of its own.
        control_share: What is kept back for the control where no exposure was set.
    """
    if trial is not None and trial.stopped is not None:
        return 0.0
    champion = None if trial is None else trial.control
    if start is None and not has_control and champion is None:
        return 1.0  # there is nothing to compare with, and somebody has to choose
    if trial is not None and trial.exposure is not None and not (start and trial.in_first_shadow):
        share = trial.exposure
    else:
        share = 1.0 - control_share if start is None else start
    if trial is not None and trial.kept:
        share = min(share, 1.0 - KEPT_SHARE)
    return share
