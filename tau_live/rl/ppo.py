"""One PPO update: rollouts in, the next version of the policy out.

New rollouts first update the regressions, and the base follows them by a bounded step; then PPO
takes its steps.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import BoolArray, FloatArray, IntArray, frozen, squared_length
from tau_live.rl.base import Base, Estimates, EstimatesBySource, base_of
from tau_live.rl.batch import Batch, Trajectories, batch, batch_without_base, concatenate, newest
from tau_live.rl.config import PPOConfig
from tau_live.rl.net import Net
from tau_live.rl.policy import Policy
from tau_live.rl.state import Adam, LearnerState
from tau_live.rl.surrogate import (
    TrainingBatch,
    apply_cost,
    build_batch,
    choices,
    costs_to_go,
    objective,
    rewards_to_go,
)
from tau_live.rl.throttle import yield_gil

SAME_REWARDS = "fewer than two distinct rewards"
ONE_DECISION = "runs have one decision"
NO_CHOICE = "no decision with a choice and a propensity"
NO_WEIGHT = "none would change a weight"
_NEAR_CERTAIN = 0.95
_TRIES = 12
_SAMPLED = 64  # decisions from which the variety of contexts is estimated


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """Figures measured by an update; ``None`` where it ended before they were measured.

    Attributes:
        rollouts: How many rollouts were new.
        samples: Decisions in the update, older ones included.
        window_rollouts: Older rollouts that taught the actor; the oldest are left out where the
            effective sample would be too small.
        mean_reward: Mean reward of the new rollouts.
        lag_mean: Versions between deciding and learning, mean over the decisions.
        lag_max: The largest such lag.
        recent_evidence: Whether recent evidence decides, because it foresees better than all does.
        base_kl: Divergence (in nats) of the policy with the new base from the version before.
        policy_loss: Clipped surrogate after the update.
        value_loss: Half the mean squared error of the critic, returns having a variance of 1.
        total_loss: The sum that was minimized.
        entropy: Entropy of the policy after the update, in nats, mean over the actor's decisions.
        kl_k1: Estimate of the divergence by PPO's steps, mean of ``-log ratio``.
        kl_k2: The same divergence, mean of ``log(ratio)**2 / 2``.
        kl_k3: The same divergence, mean of ``ratio - 1 - log ratio``.
        mean_ratio: Probability after over before, mean over the decisions of the actor.
        clip_fraction: Share of ratios beyond the clip.
        effective_sample_size: ``sum(w)**2 / sum(w**2)`` of the importance weights.
        gradient_norm: Norm of the scorer's gradient before clipping, mean over the steps.
        epochs_run: Passes started.
        early_stop: Whether the divergence ended the update before its last step.
        ppo_skipped: Why PPO took no step, or none that changed a weight, so that the regressions
            alone moved the policy; ``None`` where it did, and where the whole update was skipped.
        explained_variance: Share of the new returns' variance that the values logged at decision
            time explain.
        near_certain_share: Share of decisions in which an option has a probability of at least
            0.95.
    """

    rollouts: int
    samples: int
    window_rollouts: int = 0
    mean_reward: float | None = None
    lag_mean: float | None = None
    lag_max: int | None = None
    recent_evidence: bool = False
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


class Circumstances(NamedTuple):
    """The circumstances of an update besides its rollouts.

    Attributes:
        price: Price of one unit of safety cost in units of reward, at least 0.
        doubted: ``[N]``, which new decisions chose an option that has drifted; ``None`` if none
            did.
        improved: Whether an option has become better than all evidence expects.
    """

    price: float = 0.0
    doubted: BoolArray | None = None
    improved: bool = False


_AS_USUAL = Circumstances()


class TrainingResult(NamedTuple):
    """The parameters after the steps of an update.

    Attributes:
        weights: ``[cross_width]``, the scorer.
        critic: ``[critic_width]``, what the critic adds to its regression, in units of the returns'
            deviation.
        net: The network, its values in the same units.
        adam: The optimiser's moments, of scorer and critic.
        net_adam: The optimiser's moments of the network.
        epochs: Passes started.
        early_stop: Whether the divergence ended them.
        gradient_norm: Norm of the scorer's gradient before clipping, mean over the steps.
        changed: Whether any parameter changed.
    """

    weights: FloatArray
    critic: FloatArray
    net: Net
    adam: Adam
    net_adam: Adam
    epochs: int
    early_stop: bool
    gradient_norm: float
    changed: bool


def train(
    state: LearnerState,
    training_batch: TrainingBatch,
    config: PPOConfig,
    *,
    rollouts: int,
    rng: np.random.Generator,
) -> TrainingResult:
    """Take PPO's steps and return the result; none is taken once the divergence exceeds the target.

    Minibatches are of equal size but for one decision, so that none weighs more than another.

    Args:
        state: State with the policy at the start of the update.
        training_batch: The decisions and their targets.
        config: How to learn.
        rollouts: How many rollouts are new.
        rng: Source of the order of the decisions.
    """
    policy, unit = state.policy, state.unit
    decisions, split = len(training_batch.batch.chosen), len(policy.weights)
    parts = -(-decisions // config.minibatch)
    before = np.concatenate([policy.weights, (policy.critic - state.value_base) / unit])
    linear, adam = before.copy(), state.adam.writable_copy()  # changed in place, as the network is
    net_before = policy.net.scale_values(1.0 / unit)
    net, net_adam = net_before.writable_copy(), state.net_adam.writable_copy()
    epochs = epochs_for(config, rollouts)
    norms: list[float] = []
    epochs_run, early_stop = 0, False
    minibatches = (
        (epoch, part)
        for epoch in range(1, epochs + 1)
        for part in np.array_split(rng.permutation(decisions), parts)
    )
    for epochs_run, part in minibatches:  # noqa: B007  # read after the loop
        targets = training_batch.targets.select(part)
        step = objective(
            training_batch.batch.select(part),
            targets,
            linear[:split],
            linear[split:],
            net=net,
            config=config,
        )
        log_ratios = (step.logprobs - targets.logprobs)[training_batch.acting[part]]
        if not config.from_logged and len(log_ratios) and k3(log_ratios) > config.target_kl:
            early_stop = True
            break
        norms.append(_clip_norm(step.weights, config.gradient_norm))
        _clip_norm(step.critic, config.gradient_norm)
        _clip_norm(step.net, config.gradient_norm)
        gradient = np.concatenate([step.weights, step.critic])
        adam = adam.descend(linear, gradient, learning_rate=config.learning_rate)
        net_adam = net_adam.descend(net.flat, step.net, learning_rate=config.net_learning_rate)
        yield_gil()
        if (
            config.from_logged
            and _kl_of_fresh(training_batch, linear[:split], net) > config.target_kl
        ):
            early_stop = True
            break
    is_same = np.array_equal(linear, before) and np.array_equal(net.flat, net_before.flat)
    return TrainingResult(
        linear[:split],
        linear[split:],
        net.frozen(),
        adam.frozen(),
        net_adam.frozen(),
        epochs_run,
        early_stop,
        float(np.mean(norms)) if norms else 0.0,
        not is_same,
    )


def _kl_of_fresh(training_batch: TrainingBatch, weights: FloatArray, net: Net) -> float:
    """Return the divergence of the new decisions from their logged probabilities."""
    at = np.flatnonzero(training_batch.fresh)
    if not len(at):
        return 0.0
    logprobs = choices(training_batch.batch.select(at), weights, net).logprobs
    return k2(logprobs - training_batch.targets.logged[at])


def logged_kl(policy: Policy, trajectories: Trajectories) -> float:
    """Return the divergence of a policy from the logged probabilities of decisions.

    It is the mean of ``log(ratio)**2 / 2`` over those with a choice and a propensity; 0 for none.
    """
    data = batch(policy, trajectories)
    at = np.flatnonzero(np.isfinite(trajectories.propensity) & (data.counts > 1))
    if not len(at):
        return 0.0
    logprobs = choices(data, policy.weights, policy.net).logprobs
    return k2(logprobs[at] - np.log(trajectories.propensity[at]))


def epochs_for(config: PPOConfig, rollouts: int) -> int:
    """Return how many passes to make over this many new rollouts."""
    return config.epochs or round(float(np.interp(rollouts, [8, 32, 64], [2, 6, 10])))


def k3(log_ratios: FloatArray) -> float:
    """Return the mean of ``r - 1 - log r``, which estimates the divergence and is never negative.

    Source:
        Schulman 2020, "Approximating KL Divergence", estimator k3.
    """
    return float((np.expm1(log_ratios) - log_ratios).mean())


def k2(log_ratios: FloatArray) -> float:
    """Return the mean of ``log(r)**2 / 2``: estimator k2 of the same source."""
    return float(0.5 * (log_ratios**2).mean())


def _clip_norm(gradient: FloatArray, longest: float) -> float:
    """Shorten a gradient that is too long, in place; return its norm before that."""
    norm = float(np.sqrt(squared_length(gradient)))
    if norm > longest:
        gradient *= longest / norm
    return norm


class Update(NamedTuple):
    """The result of an update.

    Attributes:
        state: The next state.
        diagnostics: The measured figures.
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
    now: Circumstances = _AS_USUAL,
    rng: np.random.Generator,
) -> Update:
    """Learn from new rollouts, and once more from older ones; return the next state.

    First the base of the policy follows the returns, by a bounded step; then PPO goes on from
    there. The clipped ratio is to the policy between the two; decisions of older versions are
    weighted by ``min(1, pi / mu)``. Where only PPO has nothing to learn, the base moves all the
    same.
    A skipped or undone update keeps the policy and the optimiser as they are; the state that it
    returns has counted the rollouts, the state before has not.

    Args:
        state: From the update before.
        fresh: Rollouts never learned from.
        window: Rollouts that this policy decided and has learned from before, the newest last.
        config: How to learn.
        now: Circumstances besides the rollouts.
        rng: Source of the order of the minibatches, and of the noise of the regressions'
            posteriors.

    Source:
        Schulman et al. 2017, arXiv:1707.06347; Hilton et al. 2022, arXiv:2110.00641 (decoupled
        clip); Espeholt et al. 2018, arXiv:1802.01561 (V-trace).
    """
    new = len(fresh.length)
    if not new:
        return _skip(state, Diagnostics(rollouts=0, samples=0), "no new rollouts")
    everything = concatenate(fresh, newest(window, decisions=config.window_decisions))
    state_counted, state_after_base, data, base_kl = _base_step(
        state, fresh, everything, config=config, now=now, rng=rng
    )
    diagnostics = Diagnostics(
        rollouts=new,
        samples=len(everything.encoded),
        mean_reward=float(fresh.rollout_rewards.mean()),
        lag_mean=float(everything.version_lag.mean()),
        lag_max=int(everything.version_lag.max()),
        recent_evidence=state_after_base.recency.serves,
        base_kl=base_kl,
    )
    paid = apply_cost(everything, now.price)
    result = _learn(
        state_counted, state_after_base, data, fresh, paid, diagnostics, config=config, rng=rng
    )
    if not config.from_logged or result.skipped_reason is not None:
        return result
    if logged_kl(result.state.policy, fresh) <= config.max_kl:
        return result
    return Update(_count(state_counted, undone=1), result.diagnostics, None, True)


def _learn(  # noqa: PLR0913, PLR0917  # one step of an update
    state_counted: LearnerState,
    state_after_base: LearnerState,
    data: Batch,
    fresh: Trajectories,
    paid: Trajectories,
    diagnostics: Diagnostics,
    *,
    config: PPOConfig,
    rng: np.random.Generator,
) -> Update:
    """Return the update after the base's step.

    Args:
        state_counted: As ``_base_step`` returns it.
        state_after_base: Likewise.
        data: Likewise.
        fresh: Rollouts never learned from.
        paid: These and older ones, their rewards less the price of their costs.
        diagnostics: What was measured so far.
        config: How to learn.
        rng: Source of the order of the minibatches.
    """
    new, decisions = len(fresh.length), len(fresh.encoded)
    if len(np.unique(paid.rollout_rewards)) < 2:
        if state_counted.action_fit.deviation > 0.0:  # the regression can learn from their reward
            return _wait(state_after_base, diagnostics, SAME_REWARDS)
        return _skip(state_counted, diagnostics, SAME_REWARDS)
    yield_gil()
    if state_counted.is_short(config):
        return _learn_base(
            state_counted, state_after_base, data, fresh, paid, diagnostics, config=config
        )
    training_batch = build_batch(
        state_counted, state_after_base, data, paid, config=config, new=new
    )
    diagnostics = replace(
        diagnostics,
        window_rollouts=training_batch.window_rollouts,
        effective_sample_size=training_batch.effective_sample_size,
        explained_variance=_explained_variance(fresh.value, training_batch.returns[:decisions]),
    )
    reason = _reason_to_skip(training_batch, config)
    if reason is not None:
        # a new decision teaches the regressions even if it is too old for the actor
        known = np.isfinite(fresh.propensity) & (data.counts[:decisions] > 1)
        if training_batch.acting.any() or known.any():
            return _wait(state_after_base, diagnostics, reason)
        return _skip(state_counted, diagnostics, reason)
    yield_gil()
    return _train_actor(
        state_counted, state_after_base, training_batch, diagnostics, config=config, rng=rng
    )


def _learn_base(  # noqa: PLR0913, PLR0917  # one step of an update
    state_counted: LearnerState,
    state_after_base: LearnerState,
    data: Batch,
    fresh: Trajectories,
    paid: Trajectories,
    diagnostics: Diagnostics,
    *,
    config: PPOConfig,
) -> Update:
    """Return the update of the regressions alone, measured over its new decisions."""
    decisions = len(fresh.encoded)
    known = np.isfinite(paid.propensity) & (data.counts > 1)
    if not known.any():
        return _skip(state_counted, diagnostics, NO_CHOICE)
    returns = rewards_to_go(paid, gamma=config.gamma)
    state = state_after_base.expect(data.contexts, returns)
    diagnostics = replace(
        diagnostics, explained_variance=_explained_variance(fresh.value, returns[:decisions])
    )
    if known[:decisions].any():
        new = data.select(np.flatnonzero(known[:decisions]))
        after = choices(new, state.policy.weights, state.policy.net)
        surest = np.maximum.reduceat(after.probabilities, new.starts[:-1])
        diagnostics = replace(
            diagnostics,
            entropy=float(after.entropies.mean()),
            near_certain_share=float((surest >= _NEAR_CERTAIN).mean()),
        )
    return _wait(state, diagnostics, ONE_DECISION)


def _train_actor(
    state_counted: LearnerState,
    state_after_base: LearnerState,
    training_batch: TrainingBatch,
    diagnostics: Diagnostics,
    *,
    config: PPOConfig,
    rng: np.random.Generator,
) -> Update:
    """Return the state after PPO's steps, or the state before them where they went too far."""
    rollouts = diagnostics.rollouts
    trained = train(state_after_base, training_batch, config, rollouts=rollouts, rng=rng)
    if not trained.changed:
        return _wait(state_after_base, diagnostics, NO_WEIGHT)
    yield_gil()
    diagnostics = _measure(diagnostics, training_batch, trained, config)
    yield_gil()
    if not config.from_logged and not (diagnostics.kl_k3 or 0.0) <= config.max_kl:
        return Update(_count(state_counted, undone=1), diagnostics, None, True)
    unit, policy = state_after_base.unit, state_after_base.policy
    state = replace(
        state_after_base,
        policy=replace(
            policy,
            weights=frozen(trained.weights),
            critic=frozen(state_after_base.value_base + unit * trained.critic),
            net=trained.net.scale_values(unit),
        ),
        adam=trained.adam,
        net_adam=trained.net_adam,
        advantage_scale=training_batch.advantage_scale,
    )
    return Update(_count(state, updates=1), diagnostics, None, False)


def _wait(state_after_base: LearnerState, diagnostics: Diagnostics, reason: str) -> Update:
    """Return an update of the regressions alone, without PPO's steps."""
    diagnostics = replace(diagnostics, ppo_skipped=reason)
    return Update(_count(state_after_base, updates=1), diagnostics, None, False)


def _skip(state: LearnerState, diagnostics: Diagnostics, reason: str) -> Update:
    return Update(_count(state, skipped=1), diagnostics, reason, False)


def _count(state: LearnerState, **more: int) -> LearnerState:
    counts = {name: getattr(state.counts, name) + number for name, number in more.items()}
    return replace(state, counts=state.counts._replace(**counts))


def _reason_to_skip(training_batch: TrainingBatch, config: PPOConfig) -> str | None:
    actors = int(training_batch.acting.sum())
    if not actors:
        return NO_CHOICE
    if training_batch.effective_sample_size < config.effective_share * actors:
        return (
            f"effective sample of {training_batch.effective_sample_size:.1f} is too small "
            f"for {actors} decisions"
        )
    return None


def _measure(
    diagnostics: Diagnostics,
    training_batch: TrainingBatch,
    trained: TrainingResult,
    config: PPOConfig,
) -> Diagnostics:
    batch, targets = training_batch.batch, training_batch.targets
    result = objective(
        batch, targets, trained.weights, trained.critic, net=trained.net, config=config
    )
    log_ratios = (result.logprobs - targets.logprobs)[training_batch.acting]
    ratios = np.exp(log_ratios)
    after = choices(batch, trained.weights, trained.net).probabilities
    surest = np.maximum.reduceat(after, batch.starts[:-1])[training_batch.acting]
    return replace(
        diagnostics,
        policy_loss=result.policy,
        value_loss=result.value,
        total_loss=result.total,
        entropy=result.entropy,
        kl_k1=float(-log_ratios.mean()),
        kl_k2=k2(log_ratios),
        kl_k3=k3(log_ratios),
        mean_ratio=float(ratios.mean()),
        clip_fraction=float((np.abs(ratios - 1.0) > config.clip).mean()),
        gradient_norm=trained.gradient_norm,
        epochs_run=trained.epochs,
        early_stop=trained.early_stop,
        near_certain_share=float((surest >= _NEAR_CERTAIN).mean()),
    )


def _explained_variance(values: FloatArray, returns: FloatArray) -> float | None:
    spread = float(returns.var())
    return 1.0 - float((returns - values).var()) / spread if spread > 0.0 else None


def _base_step(
    state: LearnerState,
    fresh: Trajectories,
    everything: Trajectories,
    *,
    config: PPOConfig,
    now: Circumstances,
    rng: np.random.Generator,
) -> tuple[LearnerState, LearnerState, Batch, float]:
    """Add new rollouts to the regressions and move the base; PPO's steps come after.

    Args:
        state: From the update before.
        fresh: Rollouts never seen before.
        everything: The same rollouts, followed by older ones.
        config: How to learn.
        now: Circumstances besides the rollouts.
        rng: Source of the noise of the regressions' posteriors.

    Returns:
        The state whose sums include the new rollouts, its policy still the version before; the
        same state with the policy whose base follows the sums, from which PPO goes on; ``[N]``
        decisions under that policy; and its mean divergence (in nats) from the version before.
    """
    state_counted = _compare(state, fresh, config)
    yield_gil()
    state_counted = state_counted.count_rollouts(fresh, everything)
    yield_gil()
    changed = now.doubted is not None and bool(now.doubted.any())
    if now.doubted is not None and changed:
        options = _chosen_slots(fresh, np.flatnonzero(now.doubted))
        state_counted = state_counted.forget(options, penalty=config.penalty, rng=rng)
    if now.improved:
        state_counted = replace(state_counted, recency=state_counted.recency.prefer())
    is_short = state_counted.is_short(config)
    start = state_counted.without_residual() if is_short else state_counted
    policy = replace(
        start.policy,
        scale=state_counted.scale,
        rollouts=state_counted.counts.rollouts,
        decisions=state_counted.counts.decisions,
    )
    yield_gil()
    data = batch_without_base(policy, everything)
    yield_gil()
    new = len((fresh if state_counted.action_fit.samples else everything).encoded)
    state_counted = state_counted.learn_returns(
        data.select(np.arange(new)),
        rewards_to_go(everything, gamma=config.gamma)[:new],
        costs_to_go(everything)[:new],
        chosen=np.isfinite(everything.propensity[:new]),
        config=config,
        rng=rng,
    )
    goal = _goal(state_counted, data, config, price=now.price, new=len(fresh.encoded))
    yield_gil()
    policy, base_kl = _move_base(
        policy,
        data,
        goal,
        before=state.policy,
        fresh=fresh,
        bound=inf if changed else config.base_kl,
    )
    yield_gil()
    data = data.under(policy)
    yield_gil()
    value_base = state_counted.expectation(now.price)
    policy = replace(policy, critic=frozen(policy.critic - state.value_base + value_base))
    state_after_base = replace(
        state_counted,
        policy=policy,
        adam=start.adam,
        net_adam=start.net_adam,
        value_base=frozen(value_base),
    )
    if not is_short:
        state_after_base = state_after_base.add_features(data.contexts.slots, data.rows.slots)
    return state_counted, state_after_base, data, base_kl


def _goal(
    state_counted: LearnerState,
    data: Batch,
    config: PPOConfig,
    *,
    price: float,
    new: int,
) -> Base:
    """Return the base that the sums imply, its exploration scaled by how much contexts differ.

    Args:
        state_counted: State that has learned from the new rollouts.
        data: All decisions, the new ones first.
        config: How to learn.
        price: Price of one unit of safety cost.
        new: How many decisions are new.
    """
    goal = base_of(
        state_counted.serving_fit,
        sharpness=config.sharpness,
        exploration=config.exploration,
        penalty=config.penalty,
        multiplier=price,
        together=state_counted.counts.together,
        kernels=state_counted.serving_kernels,
    )
    yield_gil()
    return goal._replace(exploration=goal.exploration / _variety(goal, data, new=new))


def _compare(state: LearnerState, fresh: Trajectories, config: PPOConfig) -> LearnerState:
    """Compare the regressions by how well they predicted the returns of new decisions."""
    if not state.action_fit.samples:
        return state
    policy = replace(state.policy, scale=state.scale)
    data = batch(policy, fresh)
    ours = np.flatnonzero(np.isfinite(fresh.propensity))
    data = data.select(ours)
    probabilities = choices(data, policy.weights, policy.net).probabilities
    return state.compare(
        data,
        rewards_to_go(fresh, gamma=config.gamma)[ours],
        probabilities,
        rollouts=np.repeat(np.arange(len(fresh.length)), fresh.length)[ours],
    )


def _variety(goal: Base, data: Batch, *, new: int) -> float:
    """Return the factor by which less exploration is needed, because contexts differ.

    What an option is worth in one context or another is learned anyway as contexts vary; what it is
    worth on average is not.

    Args:
        goal: The base whose uncertainty counts.
        data: Decisions, the new ones first, the newest of the others last.
        new: How many decisions are new.

    Source:
        Bastani, Bayati and Khosravi 2021, "Mostly exploration-free algorithms for contextual
        bandits": where contexts vary enough, even no exploration is enough.
    """
    decisions = len(data.chosen)
    older = min(decisions - new, max(_SAMPLED - new, 0))
    sample = data.select(
        np.concatenate([np.arange(min(new, _SAMPLED)), np.arange(decisions - older, decisions)])
    )
    return goal.variety(sample.options, sample.names)


def _chosen_slots(fresh: Trajectories, decisions: IntArray) -> IntArray:
    """Return the distinct slots of the entries of the options that these decisions chose."""
    slots = []
    for n in decisions.tolist():
        encoded, row = fresh.encoded[n], int(fresh.chosen[n]) + 1
        slots.append(encoded.indices[encoded.starts[row] : encoded.starts[row + 1]])
    return np.unique(np.concatenate(slots)).astype(np.int64)


def _move_base(
    policy: Policy, data: Batch, goal: Base, *, before: Policy, fresh: Trajectories, bound: float
) -> tuple[Policy, float]:
    """Move the base toward the goal as far as the bound allows; return the policy and how far.

    Args:
        policy: Policy with the new scale.
        data: All decisions under that scale, the new ones first.
        goal: The base to move toward.
        before: The version before.
        fresh: The new decisions, on which the divergence is measured.
        bound: Largest divergence, in nats.
    """
    old = choices(batch(before, fresh), before.weights, before.net).probabilities
    yield_gil()
    new = data.select(np.arange(len(fresh.encoded)))
    if before.base.kernel.is_trusted or goal.kernel.is_trusted:
        new = new.with_waves(policy)
    near = before.base.estimates_by_source(new.options, new.kernel_input)
    yield_gil()
    far = goal.estimates_by_source(new.options, new.kernel_input)
    yield_gil()
    preferred = policy.default_bonus * new.preferred
    divergence, share = 0.0, 1.0
    for _ in range(_TRIES):
        estimates = _interpolate(near, far, share)
        exploration = (1.0 - share) * before.base.exploration + share * goal.exploration
        base = goal._replace(exploration=exploration)
        ridge = base.logits(estimates, new.starts, new.explored)
        moved = choices(new._replace(base=preferred + ridge), policy.weights, policy.net)
        divergence = _divergence(old, moved.probabilities) / len(new.chosen)
        if divergence <= bound:
            break
        yield_gil()
        share *= min(0.7, float(np.sqrt(bound / divergence)))  # near 0 it grows with its square
    base = goal if share == 1.0 else goal.interpolate(before.base, share)
    return replace(policy, base=base), divergence


def _interpolate(near: EstimatesBySource, far: EstimatesBySource, share: float) -> Estimates:
    """Interpolate between the estimates of two bases; uncertainty is taken from ``far``."""
    gains = (1.0 - share) * near.slopes.gains + share * far.slopes.gains
    before = np.where(near.known, near.kernels, far.kernels)  # as ``Kernel.interpolate``
    return EstimatesBySource(
        far.slopes._replace(gains=gains),
        (1.0 - share) * before + share * far.kernels,
        far.known,
        (1.0 - share) * near.trust + share * far.trust,
    ).blend()


def _divergence(old: FloatArray, new: FloatArray) -> float:
    tiny = float(np.finfo(np.float64).tiny)
    return float((old * np.log(np.maximum(old, tiny) / np.maximum(new, tiny))).sum())
