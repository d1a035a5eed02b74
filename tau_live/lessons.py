"""One update from stored rollouts, without those that would break it."""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tau_live.guard import logger
from tau_live.reasons import WhyNot
from tau_live.rewarding import earned_by_decisions, earned_early
from tau_live.rl.ppo import LearnerState, PPOConfig, Trajectories, Update, update
from tau_live.settings import Settings
from tau_live.store.records import LearnableRollout, PolicyVersion
from tau_live.trajectories import Collected, LeftOut, trajectories_of

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
        versions: Every version of the point, in ascending order.
        state: What the update starts from.
    """

    def __init__(
        self,
        settings: Settings,
        config: PPOConfig,
        *,
        point: str,
        versions: Sequence[PolicyVersion],
        state: LearnerState,
    ) -> None:
        self._settings = settings
        self._config = config
        self._point = point
        self._versions = [version.version for version in versions]
        self._born = [version.created_at for version in versions]
        self._state = state

    def learnt(
        self, fresh: Sequence[LearnableRollout], older: Sequence[LearnableRollout]
    ) -> Learnt:
        """Return what learning from new rollouts, and from older ones once more, comes to.

        A rollout on which an update fails is left out, whatever is wrong with it: one must not
        keep the others from being learned from.

        Raises:
            ValueError: Only all of them together make it fail.
        """
        try:
            new = self._collected(fresh)
            if new.trajectories is None:
                return Learnt(None, new)
            return Learnt(self._update(new.trajectories, self._collected(older).trajectories), new)
        except _ERRORS as error:
            logger().warning("update_broke", point=self._point, error=str(error))
        sound = [one for one in fresh if self._is_sound(one)]
        bad = [
            LeftOut(one.rollout.rollout_id, None, WhyNot.BREAKS_UPDATE)
            for one in fresh
            if one not in sound
        ]
        new = self._collected(sound)
        new = new._replace(left_out=[*new.left_out, *bad])
        if new.trajectories is None:
            return Learnt(None, new)
        window = self._collected([one for one in older if self._is_sound(one)])
        return Learnt(self._update(new.trajectories, window.trajectories), new)

    def _is_sound(self, one: LearnableRollout) -> bool:
        """Say whether an update on this rollout alone goes well."""
        try:
            alone = self._collected([one]).trajectories
            if alone is not None:
                self._update(alone, None)
        except _ERRORS:
            return False
        return True

    def _update(self, fresh: Trajectories, window: Trajectories | None) -> Update:
        rng = np.random.default_rng(
            [self._settings.seed, zlib.crc32(self._point.encode()), self._state.counts.updates]
        )
        with np.errstate(all="ignore"):  # what is not finite is found below
            result = update(self._state, fresh, window=window, config=self._config, rng=rng)
        bad = [name for name, array in result.state.arrays().items() if not _is_finite(array)]
        if bad:
            raise ValueError(f"not finite after the update: {', '.join(bad)}")
        return result

    def _collected(self, rollouts: Sequence[LearnableRollout]) -> Collected:
        return trajectories_of(
            rollouts,
            self._point,
            versions=self._versions,
            born=self._born,
            width=self._state.policy.config.width,
            discount=self._config.gamma,
            lag_bound=self._config.lag_bound,
            learn_from_host=self._settings.learn_from_host,
            earned=lambda found: earned_by_decisions(found, self._settings),
            early=lambda found: earned_early(found, self._settings),
        )


def _is_finite(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bool:
    return bool(np.isfinite(array).all())
