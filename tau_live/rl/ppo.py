"""One PPO update: rollouts in, the next version of the policy out."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tau_live.rl.adam import AdamState, adam_step
from tau_live.rl.arrays import BoolArray, FloatArray, frozen
from tau_live.rl.batch import Batch, Trajectories, batch, joined
from tau_live.rl.config import PPOConfig
from tau_live.rl.diagnostics import Diagnostics
from tau_live.rl.gae import Steps, batched_vtrace
from tau_live.rl.loss import PPOCoefficients, PPOLoss, PPOSamples, ppo_loss
from tau_live.rl.state import AdvantageScale, LearnerState
from tau_live.rl.surrogate import Coefficients, Targets, choices, objective

__all__ = [
    "Diagnostics",
    "LearnerState",
    "PPOCoefficients",
    "PPOConfig",
    "PPOLoss",
    "PPOSamples",
    "Trajectories",
    "Update",
    "ppo_loss",
    "update",
]

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


def update(
    state: LearnerState,
    fresh: Trajectories,
    *,
    window: Trajectories | None = None,
    config: PPOConfig,
    rng: np.random.Generator,
) -> Update:
    """Return the state after learning from new rollouts, and from older ones once more.

    The ratio that is clipped is to the policy at the start of the update; what an older version
    did counts by ``min(1, pi / mu)``. A skipped or undone update keeps the policy as it is, but
    the rollouts count as seen: call it once for every new rollout.

    Args:
        state: From the update before.
        fresh: Rollouts never learned from.
        window: Rollouts that this policy decided and has learned from before.
        config: How to learn.
        rng: For the order of the minibatches.

    Source:
        Schulman et al. 2017, arXiv:1707.06347; Hilton et al. 2022, arXiv:2110.00641 (decoupled
        clip); Espeholt et al. 2018, arXiv:1802.01561 (V-trace).
    """
    if not len(fresh.length):
        return _skipped(state, Diagnostics(rollouts=0, samples=0), "no new rollouts")
    everything = joined(fresh, window)
    seen = state.including(fresh)
    diagnostics = Diagnostics(
        rollouts=len(fresh.length),
        samples=len(everything.encoded),
        mean_reward=float(fresh.rollout_rewards.mean()),
        lag_mean=float(everything.version_lag.mean()),
        lag_max=int(everything.version_lag.max()),
    )
    if len(np.unique(everything.rollout_rewards)) < 2:
        return _skipped(seen, diagnostics, "fewer than two distinct rewards")
    scaled = seen.rescaled(len(everything.length))
    lesson = _lesson(scaled, everything, config, new=len(fresh.encoded))
    diagnostics = replace(
        diagnostics,
        effective_sample_size=lesson.effective_sample_size,
        explained_variance=_explained_variance(everything.value, lesson.targets.returns),
    )
    reason = _reason_to_skip(lesson, config)
    if reason is not None:
        return _skipped(seen, diagnostics, reason)
    trained = _trained(scaled, lesson, config, epochs=config.epochs_for(len(fresh.length)), rng=rng)
    diagnostics = _measured(diagnostics, lesson, trained, _coefficients(scaled, config))
    if not (diagnostics.kl_k3 or 0.0) <= config.max_kl:
        undone = seen.counts._replace(undone=seen.counts.undone + 1)
        return Update(replace(seen, counts=undone), diagnostics, None, True)
    return Update(_promoted(scaled, lesson, trained), diagnostics, None, False)


class _Lesson(NamedTuple):
    """What an update learns from."""

    batch: Batch
    targets: Targets
    acting: BoolArray
    effective_sample_size: float
    advantage_scale: AdvantageScale


class _Trained(NamedTuple):
    """Where the steps of an update led."""

    weights: FloatArray
    critic: FloatArray
    adam: AdamState
    epochs: int
    early_stop: bool
    gradient_norm: float


def _skipped(state: LearnerState, diagnostics: Diagnostics, reason: str) -> Update:
    counts = state.counts._replace(skipped=state.counts.skipped + 1)
    return Update(replace(state, counts=counts), diagnostics, reason, False)


def _lesson(
    state: LearnerState, everything: Trajectories, config: PPOConfig, *, new: int
) -> _Lesson:
    """Return the decisions with advantages and weights; the first ``new`` are the fresh ones."""
    policy = state.policy
    data = batch(policy, everything)
    before = choices(data, policy.weights, epsilon=policy.config.epsilon)
    known = np.isfinite(everything.propensity)
    propensities = np.where(known, everything.propensity, 1.0)
    traces = np.where(known, np.minimum(np.exp(before.logprobs) / propensities, 1.0), 1.0)
    steps = Steps(
        everything.reward,
        everything.discount * config.gamma,
        data.contexts.dot(policy.critic),
        everything.bootstrap,
        everything.length,
    )
    estimated = batched_vtrace(steps, traces, lambda_=config.lambda_)
    acting = known & (data.counts > 1) & (everything.version_lag <= config.lag_bound)
    scale = state.advantage_scale.including(estimated.advantages[:new][acting[:new]])
    weights = traces * acting
    squares = float((weights**2).sum())
    return _Lesson(
        data,
        Targets(before.logprobs, scale.scaled(estimated.advantages), weights, estimated.returns),
        acting,
        float(weights.sum()) ** 2 / squares if squares > 0.0 else 0.0,
        scale,
    )


def _reason_to_skip(lesson: _Lesson, config: PPOConfig) -> str | None:
    actors = int(lesson.acting.sum())
    if not actors:
        return "no decision with a choice, a propensity and a version that is recent enough"
    if lesson.effective_sample_size < config.effective_share * actors:
        return (
            f"effective sample of {lesson.effective_sample_size:.1f} is too small "
            f"for {actors} decisions"
        )
    return None


def _trained(
    state: LearnerState,
    lesson: _Lesson,
    config: PPOConfig,
    *,
    epochs: int,
    rng: np.random.Generator,
) -> _Trained:
    """Take the steps, and stop before the one that would start too far from where all began."""
    decisions = len(lesson.batch.chosen)
    parts = -(-decisions // config.minibatch)
    split = state.policy.config.cross_width
    parameters = np.concatenate([state.policy.weights, state.policy.critic])
    adam = state.adam
    norms: list[float] = []
    for epoch in range(epochs):
        for part in np.array_split(rng.permutation(decisions), parts):
            found = objective(
                lesson.batch.select(part),
                lesson.targets.select(part),
                parameters[:split],
                parameters[split:],
                coefficients=_coefficients(state, config),
            )
            log_ratios = (found.logprobs - lesson.targets.logprobs[part])[lesson.acting[part]]
            if len(log_ratios) and _k3(log_ratios) > config.target_kl:
                return _Trained(
                    parameters[:split],
                    parameters[split:],
                    adam,
                    epoch + 1,
                    True,
                    float(np.mean(norms)),
                )
            norms.append(float(np.linalg.norm(found.weights)))
            gradient = np.concatenate(
                [
                    _cut(found.weights, config.gradient_norm),
                    _cut(found.critic, config.gradient_norm),
                ]
            )
            parameters, adam = adam_step(
                parameters,
                gradient * (len(part) * parts / decisions),
                adam,
                learning_rate=config.learning_rate,
            )
    return _Trained(
        parameters[:split], parameters[split:], adam, epochs, False, float(np.mean(norms))
    )


def _cut(gradient: FloatArray, longest: float) -> FloatArray:
    norm = float(np.linalg.norm(gradient))
    return gradient * (longest / norm) if norm > longest else gradient


def _k3(log_ratios: FloatArray) -> float:
    """Return the mean of ``r - 1 - log r``, which estimates the divergence and is never negative.

    Source:
        Schulman 2020, "Approximating KL Divergence", estimator k3.
    """
    return float((np.expm1(log_ratios) - log_ratios).mean())


def _coefficients(state: LearnerState, config: PPOConfig) -> Coefficients:
    return Coefficients(
        config.clip,
        config.value_coefficient,
        config.entropy_coefficient,
        state.policy.config.epsilon,
    )


def _measured(
    diagnostics: Diagnostics, lesson: _Lesson, trained: _Trained, coefficients: Coefficients
) -> Diagnostics:
    weights, critic = trained.weights, trained.critic
    found = objective(lesson.batch, lesson.targets, weights, critic, coefficients=coefficients)
    log_ratios = (found.logprobs - lesson.targets.logprobs)[lesson.acting]
    ratios = np.exp(log_ratios)
    after = choices(lesson.batch, weights, epsilon=coefficients.epsilon)
    surest = np.maximum.reduceat(after.probabilities, lesson.batch.starts[:-1])[lesson.acting]
    return replace(
        diagnostics,
        policy_loss=found.policy,
        value_loss=found.value,
        total_loss=found.total,
        entropy=found.entropy,
        kl_k1=float(-log_ratios.mean()),
        kl_k2=float(0.5 * (log_ratios**2).mean()),
        kl_k3=_k3(log_ratios),
        mean_ratio=float(ratios.mean()),
        clip_fraction=float((np.abs(ratios - 1.0) > coefficients.clip).mean()),
        gradient_norm=trained.gradient_norm,
        epochs_run=trained.epochs,
        early_stop=trained.early_stop,
        near_certain_share=float((surest >= _NEAR_CERTAIN).mean()),
    )


def _explained_variance(values: FloatArray, returns: FloatArray) -> float | None:
    spread = float(returns.var())
    return 1.0 - float((returns - values).var()) / spread if spread > 0.0 else None


def _promoted(state: LearnerState, lesson: _Lesson, trained: _Trained) -> LearnerState:
    policy = replace(
        state.policy,
        weights=frozen(trained.weights),
        critic=frozen(trained.critic),
        rollouts=state.counts.rollouts,
    )
    return replace(
        state,
        policy=policy,
        adam=trained.adam,
        advantage_scale=lesson.advantage_scale,
        counts=state.counts._replace(updates=state.counts.updates + 1),
    )
