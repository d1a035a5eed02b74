"""PPO on towers whose options are a fixed list: every step of an update in place."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tau_live.rl.adam import FlatAdam
from tau_live.rl.arrays import IntArray
from tau_live.rl.products import Floats, squared_length
from tau_live.rl.towers import (
    Hidden,
    Outputs,
    Shape,
    Towers,
    backward_heads,
    backward_hidden,
    forward_heads,
    forward_hidden,
    viewed,
)


class TowerSamples(NamedTuple):
    """What ``N`` decisions should teach.

    Attributes:
        inputs: ``[N, 1 + D]``, the first column ones.
        chosen: ``[N]``, which of the ``K`` options was applied.
        logprobs: ``[N]``, log-probability of the choice when it was made.
        advantages: ``[N]``.
        returns: ``[N]``, what the critic should say.
    """

    inputs: Floats
    chosen: IntArray
    logprobs: Floats
    advantages: Floats
    returns: Floats

    def select(self, decisions: IntArray) -> "TowerSamples":
        """Return the decisions at these indices alone, in that order."""
        return TowerSamples(
            np.take(self.inputs, decisions, axis=0),
            self.chosen[decisions],
            self.logprobs[decisions],
            self.advantages[decisions],
            self.returns[decisions],
        )

    def between(self, begin: int, end: int) -> "TowerSamples":
        """Return the decisions from ``begin`` up to ``end``, without a copy."""
        return TowerSamples(
            self.inputs[begin:end],
            self.chosen[begin:end],
            self.logprobs[begin:end],
            self.advantages[begin:end],
            self.returns[begin:end],
        )


class TowerConfig(NamedTuple):
    """How an update learns.

    Attributes:
        learning_rate: Of Adam.
        epochs: Passes over the decisions.
        minibatch: Decisions of one step.
        clip: How far a ratio may be from 1 and still be rewarded.
        value: Weight of half the mean squared error of the critic.
        entropy: Weight of the entropy.
        gradient_norm: Longest gradient, of everything.
        stop_kl: Above this (k3, of a minibatch) no further step is taken; ``None`` never stops.
        scaled: Whether every minibatch's advantages are centred and divided by their deviation.
        adam_epsilon: Added to the root of Adam's second moment.
    """

    learning_rate: float = 3e-4
    epochs: int = 10
    minibatch: int = 64
    clip: float = 0.2
    value: float = 1.0
    entropy: float = 0.0
    gradient_norm: float = 0.5
    stop_kl: float | None = None
    scaled: bool = True
    adam_epsilon: float = 1e-5


class Step(NamedTuple):
    """What one step of an update measured before it was taken.

    Attributes:
        policy: The clipped surrogate.
        value: Half the mean squared error of the critic.
        entropy: Mean entropy in nats.
        kl: Divergence from the policy that chose, the k3 estimate.
        clipped: Share of the decisions whose ratio was further from 1 than ``clip``.
        gradient_norm: Before it is cut.
    """

    policy: float
    value: float
    entropy: float
    kl: float
    clipped: float
    gradient_norm: float


class TowersTrained(NamedTuple):
    """What an update did.

    Attributes:
        steps: ``[S, 6]``, what every step measured, in the order of ``Step``.
        epochs: Passes begun.
        early_stop: Whether the divergence ended them.
    """

    steps: npt.NDArray[np.float64]
    epochs: int
    early_stop: bool

    @property
    def mean(self) -> Step:
        """The mean over the steps."""
        return Step(*self.steps.mean(axis=0).tolist())


def train_towers(
    parameters: Floats,
    adam: FlatAdam,
    samples: TowerSamples,
    config: TowerConfig,
    *,
    shape: Shape,
    rng: np.random.Generator,
) -> TowersTrained:
    """Change ``parameters`` and ``adam`` in place by one update.

    Args:
        parameters: ``[shape.size]``.
        adam: Of as many parameters.
        samples: At least one decision; all numbers of the type of the parameters.
        config: How to learn.
        shape: How large the towers are.
        rng: For the order of the decisions, one permutation for every epoch.

    Source:
        Schulman et al. 2017, arXiv:1707.06347, algorithm 1; the details are those of
        Stable-Baselines3, ``stable_baselines3/ppo/ppo.py``, ``PPO.train``.
    """
    decisions = len(samples.chosen)
    work = _Work.buffers(min(config.minibatch, decisions), parameters, shape)
    found: list[Step] = []
    for epoch in range(config.epochs):
        order = rng.permutation(decisions)
        shuffled = samples.select(order)
        for begin in range(0, decisions, config.minibatch):
            part = shuffled.between(begin, min(begin + config.minibatch, decisions))
            step = _gradient(work.rows(len(part.chosen)), part, config)
            found.append(step)
            if config.stop_kl is not None and step.kl > config.stop_kl:
                return TowersTrained(np.array(found), epoch + 1, True)
            if step.gradient_norm > config.gradient_norm:
                np.multiply(
                    work.flat, config.gradient_norm / (step.gradient_norm + 1e-6), out=work.flat
                )
            adam.descend(
                parameters,
                work.flat,
                learning_rate=config.learning_rate,
                epsilon=config.adam_epsilon,
            )
    return TowersTrained(np.array(found), config.epochs, False)


class _Work(NamedTuple):
    """Everything that a step writes to, made once for an update."""

    towers: Towers
    flat: Floats
    gradient: Towers
    hidden: Hidden
    outputs: Outputs
    by: Outputs

    @classmethod
    def buffers(cls, rows: int, parameters: Floats, shape: Shape) -> "_Work":
        flat = np.zeros_like(parameters)
        return cls(
            viewed(parameters, shape),
            flat,
            viewed(flat, shape),
            Hidden.buffers(rows, shape, dtype=flat.dtype),
            Outputs.buffers(rows, shape, dtype=flat.dtype),
            Outputs.buffers(rows, shape, dtype=flat.dtype),
        )

    def rows(self, count: int) -> "_Work":
        if count == len(self.hidden.first):
            return self
        outputs, by = (
            Outputs(np.zeros_like(one.logits[:, :count]), one.values[:count])
            for one in (self.outputs, self.by)
        )
        return self._replace(hidden=self.hidden.rows(count), outputs=outputs, by=by)


def _gradient(work: _Work, samples: TowerSamples, config: TowerConfig) -> Step:
    """Fill ``work.gradient`` for these decisions."""
    forward_hidden(work.towers, samples.inputs, work.hidden)
    forward_heads(work.towers, work.hidden, work.outputs)
    step = clipped_surrogate(work.outputs, work.by, samples, config)
    backward_heads(work.towers, work.gradient, work.hidden, work.by)
    backward_hidden(work.towers, work.gradient, samples.inputs, work.hidden)
    return step._replace(gradient_norm=squared_length(work.flat) ** 0.5)


def clipped_surrogate(
    outputs: Outputs, by: Outputs, samples: TowerSamples, config: TowerConfig
) -> Step:
    """Fill ``by``, the gradient of the loss by logits and values; use up ``outputs``.

    ``-mean(min(rho * A, clip(rho) * A)) - c_e * mean(H) + c_v * mean((v - R)**2) / 2``.

    Args:
        outputs: What the towers say about ``N`` decisions.
        by: Written.
        samples: The decisions.
        config: How the parts are weighted.

    Returns:
        What was measured, without a gradient's norm.
    """
    count = len(samples.chosen)
    advantages = _scaled(samples.advantages) if config.scaled else samples.advantages
    logs, probabilities = outputs.logits, by.logits
    np.subtract(logs, np.maximum.reduce(logs, axis=0), out=logs)
    np.exp(logs, out=probabilities)
    sums = np.add.reduce(probabilities, axis=0)
    np.divide(probabilities, sums, out=probabilities)
    np.subtract(logs, np.log(sums), out=logs)

    places = samples.chosen * count
    places += np.arange(count)
    moved = np.take(logs, places) - samples.logprobs
    ratios = np.exp(moved)
    beyond = ratios - 1.0
    plain = ratios * advantages
    cut = np.minimum(np.maximum(ratios, 1.0 - config.clip), 1.0 + config.clip)
    np.multiply(cut, advantages, out=cut)
    lesser = np.minimum(plain, cut)
    slopes = np.multiply(plain, plain <= cut)
    slopes *= -1.0 / count
    entropies = -np.einsum("kn,kn->n", probabilities, logs)

    if config.entropy:
        np.add(logs, entropies, out=logs)
        np.multiply(logs, config.entropy / count, out=logs)
        np.subtract(logs, slopes, out=logs)
        np.multiply(probabilities, logs, out=by.logits)
    else:
        np.multiply(probabilities, -slopes, out=by.logits)
    by.logits.ravel()[places] += slopes
    errors = np.subtract(outputs.values, samples.returns, out=by.values)
    squares = squared_length(errors)
    np.multiply(errors, config.value / count, out=by.values)
    return Step(
        policy=-float(lesser.sum()) / count,
        value=0.5 * squares / count,
        entropy=float(entropies.sum()) / count,
        kl=float((beyond - moved).sum()) / count,
        clipped=int(np.count_nonzero(np.abs(beyond) > config.clip)) / count,
        gradient_norm=0.0,
    )


def _scaled(advantages: Floats) -> Floats:
    """Return ``[N]`` the advantages less their mean, over their (sample) deviation."""
    count = len(advantages)
    if count < 2:
        return advantages
    centred: Floats = advantages - advantages.sum() / count
    deviation = (squared_length(centred) / (count - 1)) ** 0.5
    centred *= 1.0 / (deviation + 1e-8)
    return centred
