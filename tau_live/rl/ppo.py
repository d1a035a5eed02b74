"""One PPO update: rollouts in, the next version of the policy out."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import FloatArray, frozen
from tau_live.rl.base_step import AS_EVER, Circumstances, base_step
from tau_live.rl.batch import Trajectories, joined, newest
from tau_live.rl.breathing import Breathe, at_once
from tau_live.rl.config import PPOConfig
from tau_live.rl.diagnostics import Diagnostics
from tau_live.rl.lesson import Lesson, charged, lesson
from tau_live.rl.state import LearnerState
from tau_live.rl.surrogate import Coefficients, choices, objective
from tau_live.rl.training import Trained, coefficients, k3, trained

__all__ = [
    "Circumstances",
    "Diagnostics",
    "LearnerState",
    "PPOConfig",
    "Trajectories",
    "Update",
    "update",
]

SAME_REWARDS = "fewer than two distinct rewards"

NO_WEIGHT = "none would change a weight"
_NEAR_CERTAIN = 0.95


class Update(NamedTuple):
    """What became of an update.

    Attributes:
        state: To go on from.
        diagnostics: What was measured.
        skipped_reason: Why there was nothing to learn, ``None`` when there was.
        undone: Whether the update went too far, so that the policy stayed as it was.
    """

    state: LearnerState
    diagnostics: Diagnostics
    skipped_reason: str | None
    undone: bool


def update(  # noqa: PLR0913  # its data, and who may interrupt, all keyword-only
    state: LearnerState,
    fresh: Trajectories,
    *,
    window: Trajectories | None = None,
    config: PPOConfig,
    now: Circumstances = AS_EVER,
    rng: np.random.Generator,
    breathe: Breathe = at_once,
) -> Update:
    """Return the state after learning from new rollouts, and from older ones once more.

    First the base of the policy follows the returns, by a bounded step; then PPO goes on from
    there. The ratio that is clipped is to the policy between the two; what an older version did
    counts by ``min(1, pi / mu)``. Where only PPO has nothing to go by, the base moves all the same.
    A skipped or undone update keeps the policy and the optimiser as they are; whoever goes on from
    the state that it returns has counted its rollouts, whoever keeps the state before has not.

    Args:
        state: From the update before.
        fresh: Rollouts never learned from.
        window: Rollouts that this policy decided and has learned from before, the newest last.
        config: How to learn.
        now: What of the world is not in the rollouts.
        rng: For the order of the minibatches, and for the noise of the regressions' posteriors.
        breathe: Called between the parts of the update, a millisecond or so apart.

    Source:
        Schulman et al. 2017, arXiv:1707.06347; Hilton et al. 2022, arXiv:2110.00641 (decoupled
        clip); Espeholt et al. 2018, arXiv:1802.01561 (V-trace).
    """
    if not len(fresh.length):
        return _skipped(state, Diagnostics(rollouts=0, samples=0), "no new rollouts")
    new = len(fresh.length)
    everything = joined(fresh, newest(window, decisions=config.window_decisions))
    counted, started, batch, base_kl = base_step(
        state, fresh, everything, config=config, now=now, rng=rng, breathe=breathe
    )
    diagnostics = _begun(fresh, everything, base_kl=base_kl)
    paid = charged(everything, now.price)
    if len(np.unique(paid.rollout_rewards)) < 2:
        if counted.action_fit.deviation > 0.0:  # what they all earned is news to the regression
            return _waiting(started, diagnostics, SAME_REWARDS)
        return _skipped(counted, diagnostics, SAME_REWARDS)
    breathe()
    learned = lesson(counted, started, batch, paid, config=config, new=new)
    decisions = len(fresh.encoded)
    diagnostics = replace(
        diagnostics,
        window_rollouts=learned.window_rollouts,
        effective_sample_size=learned.effective_sample_size,
        explained_variance=_explained(fresh.value, learned.returns[:decisions]),
    )
    reason = _reason_to_skip(learned, config)
    if reason is not None:
        waits = learned.acting.any() or _teaches_regressions(learned, fresh)
        left = _waiting if waits else _skipped
        return left(started if waits else counted, diagnostics, reason)
    return _stepped(counted, started, learned, diagnostics, config=config, rng=rng, breathe=breathe)


def _begun(fresh: Trajectories, everything: Trajectories, *, base_kl: float) -> Diagnostics:
    return Diagnostics(
        rollouts=len(fresh.length),
        samples=len(everything.encoded),
        mean_reward=float(fresh.rollout_rewards.mean()),
        lag_mean=float(everything.version_lag.mean()),
        lag_max=int(everything.version_lag.max()),
        base_kl=base_kl,
    )


def _stepped(  # noqa: PLR0913  # what it goes on from, and who may interrupt
    counted: LearnerState,
    started: LearnerState,
    learned: Lesson,
    diagnostics: Diagnostics,
    *,
    config: PPOConfig,
    rng: np.random.Generator,
    breathe: Breathe,
) -> Update:
    """Return the state after PPO's steps, or as it was before them where they led too far."""
    breathe()
    epochs = config.epochs_for(diagnostics.rollouts)
    moved = trained(started, learned, config, epochs=epochs, rng=rng, breathe=breathe)
    if not moved.changed:
        return _waiting(started, diagnostics, NO_WEIGHT)
    breathe()
    diagnostics = _measured(diagnostics, learned, moved, coefficients(started, config))
    breathe()
    if not (diagnostics.kl_k3 or 0.0) <= config.max_kl:
        counts = counted.counts._replace(undone=counted.counts.undone + 1)
        return Update(replace(counted, counts=counts), diagnostics, None, True)
    return Update(_promoted(started, learned, moved), diagnostics, None, False)


def _waiting(started: LearnerState, diagnostics: Diagnostics, reason: str) -> Update:
    """Return the update of the regressions alone: the evidence holds, only the actor waits."""
    counts = started.counts._replace(updates=started.counts.updates + 1)
    found = replace(diagnostics, ppo_skipped=reason)
    return Update(replace(started, counts=counts), found, None, False)


def _skipped(state: LearnerState, diagnostics: Diagnostics, reason: str) -> Update:
    counts = state.counts._replace(skipped=state.counts.skipped + 1)
    return Update(replace(state, counts=counts), diagnostics, reason, False)


def _reason_to_skip(learned: Lesson, config: PPOConfig) -> str | None:
    actors = int(learned.acting.sum())
    if not actors:
        return "no decision with a choice and a propensity"
    if learned.effective_sample_size < config.effective_share * actors:
        return (
            f"effective sample of {learned.effective_sample_size:.1f} is too small "
            f"for {actors} decisions"
        )
    return None


def _teaches_regressions(learned: Lesson, fresh: Trajectories) -> bool:
    """Say whether a new decision teaches the regressions, too old for the actor or not."""
    counts = learned.batch.counts[: len(fresh.encoded)]
    return bool((np.isfinite(fresh.propensity) & (counts > 1)).any())


def _measured(
    diagnostics: Diagnostics, learned: Lesson, moved: Trained, weighted: Coefficients
) -> Diagnostics:
    batch, targets = learned.batch, learned.targets
    found = objective(
        batch, targets, moved.weights, moved.critic, net=moved.net, coefficients=weighted
    )
    log_ratios = (found.logprobs - targets.logprobs)[learned.acting]
    ratios = np.exp(log_ratios)
    after = choices(batch, moved.weights, moved.net, epsilon=weighted.epsilon).probabilities
    surest = np.maximum.reduceat(after, batch.starts[:-1])[learned.acting]
    return replace(
        diagnostics,
        policy_loss=found.policy,
        value_loss=found.value,
        total_loss=found.total,
        entropy=found.entropy,
        kl_k1=float(-log_ratios.mean()),
        kl_k2=float(0.5 * (log_ratios**2).mean()),
        kl_k3=k3(log_ratios),
        mean_ratio=float(ratios.mean()),
        clip_fraction=float((np.abs(ratios - 1.0) > weighted.clip).mean()),
        gradient_norm=moved.gradient_norm,
        epochs_run=moved.epochs,
        early_stop=moved.early_stop,
        near_certain_share=float((surest >= _NEAR_CERTAIN).mean()),
    )


def _explained(values: FloatArray, returns: FloatArray) -> float | None:
    spread = float(returns.var())
    return 1.0 - float((returns - values).var()) / spread if spread > 0.0 else None


def _promoted(started: LearnerState, learned: Lesson, moved: Trained) -> LearnerState:
    return replace(
        started,
        policy=replace(
            started.policy,
            weights=frozen(moved.weights),
            critic=frozen(started.value_base + started.unit * moved.critic),
            net=moved.net.valued(started.unit),
        ),
        adam=moved.adam,
        net_adam=moved.net_adam,
        advantage_scale=learned.advantage_scale,
        counts=started.counts._replace(updates=started.counts.updates + 1),
    )
