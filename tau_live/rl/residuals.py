"""What came minus what had been expected of the option that was chosen: what drift is read from."""

from dataclasses import replace

import numpy as np

from tau_live.rl.arrays import FloatArray
from tau_live.rl.batch import Batch, Trajectories, batch
from tau_live.rl.config import PPOConfig
from tau_live.rl.lesson import rewards_to_go
from tau_live.rl.state import LearnerState


def forward_residuals(state: LearnerState, fresh: Trajectories, *, config: PPOConfig) -> FloatArray:
    """Return ``[N]`` the reward-to-go less what the regression expected of the applied option.

    The regression has not seen these rollouts, so an error is never explained away. It is that of
    the option and not the critic of the state: that one follows the policy, so what an option
    earned less it falls as the others get better. On three tasks with two to six options (24,000
    decisions without a change) the state's critic raised five alarms and this one a single one.

    Args:
        state: From the update before.
        fresh: Rollouts never learned from.
        config: How it learns.

    Returns:
        NaN where nothing was known yet, and for what was not chosen by us.
    """
    if not state.action_fit.samples:
        return np.full(len(fresh.encoded), np.nan)
    data = batch(replace(state.policy, scale=state.scale), fresh)
    residuals = rewards_to_go(fresh, gamma=config.gamma) - _expected(state, data)
    ours: FloatArray = np.where(np.isfinite(fresh.propensity), residuals, np.nan)
    return ours


def _expected(state: LearnerState, data: Batch) -> FloatArray:
    fit, choices = state.action_fit, data.choices()
    weights = np.zeros(len(fit.columns.of))
    known = fit.columns.of >= 0
    weights[known] = fit.reward[fit.columns.of[known]]
    expected: FloatArray = choices.dot(weights) + fit.mean
    return expected
