"""How an update learns."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalization:
    """How one update scales advantages, and the targets of its critic.

    Attributes:
        advantages: Whether advantages are brought to mean 0 and deviation 1.
        returns: Whether the critic's targets are.
        per_rollout: Whether over each rollout by itself; of one step nothing is left then.
        clip_advantages: Largest size of an advantage after that, above 0.
        clip_returns: Largest size of a target after that, above 0.
        epsilon: Added to the variance, above 0.
    """

    advantages: bool = True
    returns: bool = False
    per_rollout: bool = False
    clip_advantages: float = inf
    clip_returns: float = inf
    epsilon: float = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class PPOConfig:
    """How an update learns; the defaults are those that learned best from few rollouts.

    Attributes:
        clip: How far a ratio may be from 1 and still be rewarded, above 0.
        gamma: Discount of one step, in ``[0, 1]``.
        lambda_: GAE's, in ``[0, 1]``.
        learning_rate: Adam's learning rate, above 0.
        net_learning_rate: Learning rate of the network's Adam, above 0.
        epochs: Passes over the decisions; ``None`` takes 2, 6, 10 for 8, 32, 64 new rollouts.
        minibatch: Decisions of one step, at least 1.
        target_kl: Above this (k3) no further step is taken, at least 0.
        max_kl: Above this an update is undone, at least ``target_kl``.
        gradient_norm: Largest norm of a gradient, of scorer and critic each, above 0.
        value_coefficient: Weight of the critic's loss, at least 0.
        entropy_coefficient: Weight of the entropy, at least 0.
        lag_bound: How many versions older a decision may be and still teach the actor.
        least_decisions: Mean decisions of a rollout, at all points, below which PPO takes no step:
            what follows a single decision is its reward, which the regressions know, and PPO would
            learn its luck once more. Without a base PPO always takes its steps.
        effective_share: Smallest effective sample, as a share of the decisions, in ``[0, 1]``.
        window_decisions: Decisions of older rollouts that are learned from again, at least 0; else
            those of long older rollouts would outnumber the new ones.
        sharpness: Logits for a difference of one standard error of the ridge base, at least 0;
            0 switches that base off, which leaves PPO alone.
        exploration: Bonus of an option for being unknown, in standard errors, at least 0.
        penalty: Ridge penalty of the regressions, above 0.
        fading: Share of its evidence that the regression of recent evidence forgets with each
            rollout, in ``[0, 1)``; with 0 it is all evidence, until an option is forgotten.
        base_kl: How far (in nats) the base may move the policy in one update, at least 0.
        kl_coefficient: Weight of the divergence from the logged probabilities, at least 0.
        normalization: How an update scales its advantages by itself; ``None`` scales them by a
            running deviation.
        from_logged: Whether ``target_kl`` and ``max_kl`` bound the whole update, its base
            included: ``log(ratio)**2 / 2`` of the new decisions, from the logged probabilities,
            measured after each step.
    """

    clip: float = 0.2
    gamma: float = 1.0
    lambda_: float = 0.95
    learning_rate: float = 5e-3
    net_learning_rate: float = 5e-4
    epochs: int | None = None
    minibatch: int = 256
    target_kl: float = 0.03
    max_kl: float = 0.1
    gradient_norm: float = 0.5
    value_coefficient: float = 0.5
    entropy_coefficient: float = 0.01
    lag_bound: int = 32
    least_decisions: float = 1.5
    effective_share: float = 0.5
    window_decisions: int = 2_048
    sharpness: float = 6.0
    exploration: float = 0.5
    penalty: float = 4.0
    fading: float = 2e-3
    base_kl: float = 1.0
    kl_coefficient: float = 0.0
    normalization: Normalization | None = None
    from_logged: bool = False
