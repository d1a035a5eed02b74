"""One update from stored rollouts, without those that would break it."""

import zlib
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from tau_live.breath import Breathe, at_once
from tau_live.guard import logger
from tau_live.learning.trajectories import Collected, LeftOut, trajectories_of
from tau_live.reasons import WhyNot
from tau_live.rewards.settling import (
    earned_by_decisions,
    earned_early,
    incurred,
    taken_by_safety,
)
from tau_live.rewards.sources import capped
from tau_live.rl.bounds import Limits
from tau_live.rl.ppo import Circumstances, LearnerState, PPOConfig, Trajectories, Update, update
from tau_live.settings import Settings
from tau_live.store.records import LearnableRollout, PolicyVersion

VERSIONS_KNOWN = 1_000
"""The newest of a point; no decision is told to be older by more versions."""

_NONE = Limits()
_ERRORS = (ValueError, ArithmeticError, np.linalg.LinAlgError)


class Learnt(NamedTuple):
    """What an update came to.

    Attributes:
        result: ``None`` where there was nothing usable.
        new: The new rollouts that it used, and those left out.
    """

    result: Update | None
    new: Collected


class Lessons:
    """Updates of one decision point, from one state.

    Args:
        settings: Seed, and what rewards are worth.
        config: How PPO learns.
        point: The decision point.
        versions: The newest versions of the point, in ascending order.
        state: What the update starts from.
        at: Epoch seconds, until when costs could come; their defaults count by then.
        breathe: Called between the parts of an update.
    """

    def __init__(  # noqa: PLR0913  # its parts, all keyword-only but two
        self,
        settings: Settings,
        config: PPOConfig,
        *,
        point: str,
        versions: Sequence[PolicyVersion],
        state: LearnerState,
        at: float,
        breathe: Breathe = at_once,
    ) -> None:
        self._settings = settings
        self._config = config
        self._point = point
        self._versions = [version.version for version in versions]
        self._born = [version.created_at for version in versions]
        self._state = state
        self._at = at
        self._breathe = breathe

    def learnt(
        self,
        fresh: Sequence[LearnableRollout],
        older: Sequence[LearnableRollout],
        *,
        new: Collected,
        price: float = 0.0,
        changed: Collection[str] = (),
        limits: Limits = _NONE,
    ) -> Learnt:
        """Return what learning from new rollouts, and from older ones once more, comes to.

        A rollout on which an update fails is left out, whatever is wrong with it: one must not
        keep the others from being learned from.

        Args:
            fresh: Rollouts never learned from.
            older: Rollouts learned from before.
            new: What of ``fresh`` can be learned from, with rewards within the limits.
            price: What one unit of safety cost weighs, in units of reward.
            changed: Options that are no longer what they were.
            limits: The lowest and the highest that a reward counts as.

        Raises:
            ValueError: Only all of them together make it fail.
        """
        if new.trajectories is None:
            return Learnt(None, new)
        try:
            older_ones = self.collected(older, limits).trajectories
            return Learnt(self._update(new, older_ones, price=price, changed=changed), new)
        except _ERRORS as error:
            logger().warning("update_broke", point=self._point, error=str(error))
        sound = [one for one in fresh if self._is_sound(one, limits)]
        bad = [
            LeftOut(one.rollout.rollout_id, None, WhyNot.BREAKS_UPDATE)
            for one in fresh
            if one not in sound
        ]
        new = self.collected(sound, limits)
        new = new._replace(left_out=[*new.left_out, *bad])
        if new.trajectories is None:
            return Learnt(None, new)
        window = self.collected([one for one in older if self._is_sound(one, limits)], limits)
        return Learnt(self._update(new, window.trajectories, price=price, changed=changed), new)

    def _is_sound(self, one: LearnableRollout, limits: Limits) -> bool:
        """Say whether an update on this rollout alone goes well."""
        try:
            alone = self.collected([one], limits)
            if alone.trajectories is not None:
                self._update(alone, None)
        except _ERRORS:
            return False
        return True

    def _update(
        self,
        new: Collected,
        window: Trajectories | None,
        *,
        price: float = 0.0,
        changed: Collection[str] = (),
    ) -> Update:
        if new.trajectories is None:
            raise ValueError("nothing to learn from")
        rng = np.random.default_rng(
            [self._settings.seed, zlib.crc32(self._point.encode()), self._state.counts.updates]
        )
        with np.errstate(all="ignore"):  # what is not finite is found below
            result = update(
                self._state,
                new.trajectories,
                window=window,
                config=self._config,
                now=Circumstances(
                    price, np.array([one.applied in changed for one in new.decisions])
                ),
                rng=rng,
                breathe=self._breathe,
            )
        bad = [name for name, array in result.state.arrays().items() if not _is_finite(array)]
        if bad:
            raise ValueError(f"not finite after the update: {', '.join(bad)}")
        return result

    def collected(self, rollouts: Sequence[LearnableRollout], limits: Limits = _NONE) -> Collected:
        """Return what of some rollouts can be learned from together, with rewards within limits."""
        kept, over = capped(rollouts, self._settings)
        found = trajectories_of(
            kept,
            self._point,
            versions=self._versions,
            born=self._born,
            width=self._state.policy.config.width,
            discount=self._config.gamma,
            lag_bound=self._config.lag_bound,
            learn_from_host=self._settings.learn_from_host,
            earned=lambda found: earned_by_decisions(found, self._settings),
            early=lambda found: earned_early(found, self._settings),
            cost=lambda found: incurred(found, self._settings, now=self._at),
            taken=lambda found: taken_by_safety(found, self._settings),
            breathe=self._breathe,
        )
        too_many = (LeftOut(one.rollout.rollout_id, None, WhyNot.SOURCE_OVER_CAP) for one in over)
        found = found._replace(left_out=[*found.left_out, *too_many])
        return found.within(limits)[0]


def known_at(rollouts: Sequence[LearnableRollout]) -> float:
    """Return when the last of these rollouts had ended and been rewarded, in epoch seconds."""
    ended = (found.rollout.ended_at or 0.0 for found in rollouts)
    rewarded = (reward.at for found in rollouts for reward in found.rewards)
    return max((*ended, *rewarded), default=0.0)


def by_reason(left_out: Sequence[LeftOut]) -> dict[str, int]:
    """Return how many were left out for each reason."""
    return dict(sorted(Counter(entry.reason for entry in left_out).items()))


def _is_finite(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bool:
    return bool(np.isfinite(array).all())
