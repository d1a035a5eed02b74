"""What an update measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """What an update measured; ``None`` where it did not come so far.

    Attributes:
        rollouts: How many rollouts were new.
        samples: Decisions that the update looked at, older ones included.
        window_rollouts: Older rollouts that taught the actor; the oldest are left out where the
            effective sample would be too small.
        mean_reward: Of the new rollouts.
        lag_mean: Versions between deciding and learning, mean over the decisions.
        lag_max: The same, the largest.
        base_kl: Divergence (in nats) of the policy with the new base from the version before.
        policy_loss: Clipped surrogate after the update.
        value_loss: Half the mean squared error of the critic, returns having a variance of 1.
        total_loss: The sum that was made small.
        entropy: Of the policy after the update, in nats, mean over the decisions of the actor.
        kl_k1: Estimate of the divergence by PPO's steps, mean of ``-log ratio``.
        kl_k2: The same, mean of ``log(ratio)**2 / 2``.
        kl_k3: The same, mean of ``ratio - 1 - log ratio``.
        mean_ratio: Probability after over before, mean over the decisions of the actor.
        clip_fraction: Share of ratios beyond the clip.
        effective_sample_size: ``sum(w)**2 / sum(w**2)`` of the importance weights.
        gradient_norm: Of the scorer, before it is cut, mean over the steps.
        epochs_run: Passes begun.
        early_stop: Whether the divergence ended the update before its last step.
        ppo_skipped: Why PPO took no step, or none that changed a weight, so that the regressions
            alone moved the policy; ``None`` where it did, and where the whole update was skipped.
        explained_variance: Of the new returns, by the values logged when they were still unknown.
        near_certain_share: Share of decisions in which one option has 0.95 or more.
    """

    rollouts: int
    samples: int
    window_rollouts: int = 0
    mean_reward: float | None = None
    lag_mean: float | None = None
    lag_max: int | None = None
    base_kl: float | None = None
    policy_loss: float | None = None
    value_loss: float | None = None
    total_loss: float | None = None
    entropy: float | None = None
    kl_k1: float | None = None
    kl_k2: float | None = None
    kl_k3: float | None = None
    mean_ratio: float | None = None
    clip_fraction: float | None = None
    effective_sample_size: float | None = None
    gradient_norm: float | None = None
    epochs_run: int = 0
    early_stop: bool = False
    ppo_skipped: str | None = None
    explained_variance: float | None = None
    near_certain_share: float | None = None
