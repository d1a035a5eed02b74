"""What the learner carries from one update to the next."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tau_live.rl.adam import AdamState
from tau_live.rl.arrays import (
    Array,
    BoolArray,
    FloatArray,
    IntArray,
    digest,
    frozen,
    required,
    spans,
)
from tau_live.rl.batch import Batch, Trajectories
from tau_live.rl.breathing import Breathe, at_once
from tau_live.rl.crossing import pair_slots, places, rows
from tau_live.rl.fourier import features
from tau_live.rl.kernel import Kernels
from tau_live.rl.policy import Policy, PolicyConfig
from tau_live.rl.recursive import Regression
from tau_live.rl.scaling import AdvantageScale, Moments, Scale
from tau_live.rl.states import critic_width
from tau_live.rl.towers import widened


class Returns(NamedTuple):
    """What followed ``N`` decisions.

    Attributes:
        rewards: ``[N]``.
        costs: ``[N]``, of safety; NaN where nobody told.
    """

    rewards: FloatArray
    costs: FloatArray


class Counts(NamedTuple):
    """What happened so far.

    Attributes:
        rollouts: New rollouts received.
        decisions: Decisions in them.
        updates: Updates that made a new version.
        skipped: Updates that had too little to learn from.
        undone: Updates that went too far and were taken back.
    """

    rollouts: int = 0
    decisions: int = 0
    updates: int = 0
    skipped: int = 0
    undone: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnerState:
    """Everything that an update needs besides rollouts; saved and loaded, it goes on bit for bit.

    Attributes:
        policy: The newest version.
        adam: The optimiser's moments, of scorer and critic.
        net_adam: The same of the network.
        moments: Of all numbers seen in features.
        scale: How the next version will scale numbers; the sums below are under it.
        scaled_rollouts: How many rollouts that scale was made from.
        action_fit: What is known of the return of crossed features.
        kernels: What is known of the return of options beyond that.
        value_fit: What is known of the return of contexts.
        value_base: ``[critic_width]``, the part of the policy's critic that is the regression.
        advantage_scale: The running scale of advantages.
        counts: What happened so far.
    """

    policy: Policy
    adam: AdamState
    net_adam: AdamState
    moments: Moments
    scale: Scale
    scaled_rollouts: int
    action_fit: Regression
    kernels: Kernels
    value_fit: Regression
    value_base: FloatArray
    advantage_scale: AdvantageScale
    counts: Counts

    @classmethod
    def untrained(cls, config: PolicyConfig) -> "LearnerState":
        """Return the state before the first rollout."""
        policy = Policy.untrained(config)
        return cls(
            policy=policy,
            adam=AdamState.untrained(config.cross_width + critic_width(config.width)),
            net_adam=AdamState.untrained(policy.net.shape.size),
            moments=Moments.empty(config.width),
            scale=Scale.untrained(config.width),
            scaled_rollouts=0,
            action_fit=_no_action_fit(config),
            kernels=Kernels.empty(config.kernels),
            value_fit=_no_value_fit(config),
            value_base=frozen(np.zeros(critic_width(config.width))),
            advantage_scale=AdvantageScale(),
            counts=Counts(),
        )

    @property
    def unit(self) -> float:
        """What values are measured in while the critic learns: the deviation of returns."""
        return self.action_fit.deviation or 1.0

    def counting(self, fresh: Trajectories, everything: Trajectories) -> "LearnerState":
        """Return the state that has counted these rollouts and knows their numbers.

        Args:
            fresh: Rollouts never seen before.
            everything: The same, and older ones after them. When these are all there ever were, and
                twice as many as the last time, every number is scaled anew and the regressions
                begin again; else only names never scaled before are.
        """
        numeric = np.concatenate([one.numeric for one in fresh.encoded])
        values = np.concatenate([one.values for one in fresh.encoded])[numeric]
        at = np.concatenate([places(one) for one in fresh.encoded])[numeric]
        moments = self.moments.including(values.astype(np.float64), at)
        counts = self.counts._replace(
            rollouts=self.counts.rollouts + len(fresh.length),
            decisions=self.counts.decisions + len(fresh.encoded),
        )
        whole = len(everything.length) >= counts.rollouts >= 2 * self.scaled_rollouts
        scale = moments.scale(self.scale, whole=whole)
        counted = replace(self, moments=moments, counts=counts, scale=scale)
        if not whole:
            return counted
        return replace(
            counted,
            scale=_lengthened(scale, everything),
            scaled_rollouts=counts.rollouts,
            action_fit=_no_action_fit(self.policy.config),
            kernels=self.kernels.restarted(),
            value_fit=_no_value_fit(self.policy.config),
        )

    def learning(
        self,
        batch: Batch,
        known: Returns,
        *,
        chosen: BoolArray,
        penalty: float,
        rng: np.random.Generator,
        breathe: Breathe = at_once,
    ) -> "LearnerState":
        """Return the state whose regressions include these decisions, ``[N]``, under its scale.

        Args:
            batch: The decisions.
            known: What followed each.
            chosen: Which of them were chosen by us, with a propensity; the others say nothing
                about the options, because what made the host choose so is not known.
            penalty: Of the regressions, above 0.
            rng: Draws the noise of their posteriors.
            breathe: Called between two of them.
        """
        ours = np.flatnonzero(chosen)
        mine, told = batch.select(ours), Returns(known.rewards[ours], known.costs[ours])
        action_fit = self.action_fit.including(
            mine.choices(), *told, penalty=penalty, rng=rng, breathe=breathe
        )
        value_fit = self.value_fit.including(
            batch.contexts, *known, penalty=penalty, rng=rng, breathe=breathe
        )
        kernels = self._heard(mine, told, action_fit.cost_mean, breathe)
        return replace(self, action_fit=action_fit, kernels=kernels, value_fit=value_fit)

    def _heard(self, batch: Batch, known: Returns, cost_mean: float, breathe: Breathe) -> Kernels:
        """Return the kernels that learned from decisions; contexts without features say nothing."""
        some = np.flatnonzero(np.diff(batch.plain.starts) > 1)
        if not self.kernels.width or not len(some):
            return self.kernels
        kept = batch.select(some)
        waves = features(
            kept.plain, self.policy.config.width, count=self.kernels.width, breathe=breathe
        )
        names = kept.names[kept.starts[:-1] + kept.chosen]
        breathe()
        rewards, costs = known.rewards[some], known.costs[some]
        return self.kernels.including(
            names, waves, rewards, costs, cost_mean=cost_mean, breathe=breathe
        )

    def judging(
        self, batch: Batch, rewards: FloatArray, probabilities: FloatArray
    ) -> "LearnerState":
        """Return the state that knows how well it foresaw decisions that it has not learned from.

        Args:
            batch: ``N`` decisions, under the scale of the sums.
            rewards: ``[N]``, what followed.
            probabilities: ``[M]``, of their options.
        """
        fit = self.action_fit
        seen = batch.heard_by(self.policy).seen if self.kernels.fits else None
        if seen is None:
            return self
        judged = self.kernels.judging(
            seen,
            batch.options.dot(fit.gain(fit.mean)),
            rewards,
            chosen=batch.starts[:-1] + batch.chosen,
            probabilities=probabilities,
            mean=fit.mean,
        )
        return replace(self, kernels=judged)

    def knowing(self, contexts: IntArray, options: IntArray) -> "LearnerState":
        """Return the state whose network has seen these features.

        Args:
            contexts: Slots, in the order in which they came.
            options: Slots likewise.
        """
        before = self.policy.net
        net = before.including(contexts, options)
        if net is before:
            return self
        first, second = (
            frozen(widened(moment, before.shape, net.shape).astype(np.float64))
            for moment in self.net_adam[:2]
        )
        return replace(
            self,
            policy=replace(self.policy, net=net),
            net_adam=AdamState(first, second, self.net_adam.steps),
        )

    def forgetting(
        self, options: IntArray, *, penalty: float, rng: np.random.Generator
    ) -> "LearnerState":
        """Return the state that knows nothing of options any more, as if they were new.

        Args:
            options: Slots of their entries; what these said in any context is forgotten.
            penalty: Of the regressions, above 0.
            rng: Draws the noise of their posteriors.
        """
        config = self.policy.config
        contexts = np.flatnonzero(self.value_fit.columns.of[: config.width + 1] >= 0)
        slots = pair_slots(contexts, options, width=config.width, cross_width=config.cross_width)
        weights = self.policy.weights.copy()
        weights[slots] = 0.0
        return replace(
            self,
            action_fit=self.action_fit.forgetting(slots, penalty=penalty, rng=rng),
            kernels=self.kernels.forgetting(options),
            policy=replace(
                self.policy, weights=frozen(weights), net=self.policy.net.forgetting(options)
            ),
        )

    def expectation(self, multiplier: float) -> FloatArray:
        """Return ``[critic_width]`` weights of contexts that give the return itself.

        Args:
            multiplier: What one unit of cost takes from it.
        """
        fit, columns = self.value_fit, self.value_fit.columns.of
        weights = np.zeros(len(columns))
        found = fit.reward - multiplier * fit.cost
        weights[columns >= 0] = found[columns[columns >= 0]]
        weights[self.policy.config.width] += fit.mean - multiplier * fit.cost_mean
        return weights

    def arrays(self) -> dict[str, Array]:
        """Return everything as arrays by name, those of the policy first."""
        return {
            **self.policy.arrays(),
            **self.adam.arrays("adam"),
            **self.net_adam.arrays("net_adam"),
            **self.moments.arrays(),
            **self.action_fit.arrays("action"),
            **self.kernels.arrays(),
            **self.value_fit.arrays("value"),
            "value_base": self.value_base,
            **self.scale.arrays("next_scale"),
            "scaled_rollouts": np.array([self.scaled_rollouts], dtype=np.int64),
            "advantage_scale": np.array(self.advantage_scale, dtype=np.float64),
            "counts": np.array(self.counts, dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> "LearnerState":
        """Return the state that ``arrays`` gave; arrays of other names are ignored.

        Raises:
            ValueError: An array is missing, misshapen, not finite, or out of range.
        """
        policy = Policy.from_arrays(arrays)
        config = policy.config
        counts = required(arrays, "counts", (len(Counts._fields),)).astype(np.int64)
        scaled = required(arrays, "scaled_rollouts", (1,)).astype(np.int64)
        if (counts < 0).any() or (scaled < 0).any():
            raise ValueError(f"counts must be at least 0, got {counts.tolist()!r}")
        return cls(
            policy=policy,
            adam=AdamState.from_arrays(
                arrays, "adam", size=config.cross_width + critic_width(config.width)
            ),
            net_adam=AdamState.from_arrays(arrays, "net_adam", size=policy.net.shape.size),
            moments=Moments.from_arrays(arrays, width=config.width),
            scale=Scale.from_arrays(arrays, "next_scale", width=config.width),
            scaled_rollouts=int(scaled[0]),
            action_fit=Regression.from_arrays(
                arrays, "action", slots=config.cross_width, most=config.ridge_width
            ),
            kernels=Kernels.from_arrays(arrays, width=config.kernels),
            value_fit=Regression.from_arrays(
                arrays, "value", slots=critic_width(config.width), most=_STATES, draws=0
            ),
            value_base=frozen(required(arrays, "value_base", (critic_width(config.width),))),
            advantage_scale=AdvantageScale(*required(arrays, "advantage_scale", (3,)).tolist()),
            counts=Counts(*counts.tolist()),
        )

    def digest(self) -> str:
        """Return the SHA-256 of all arrays, the same on every machine."""
        return digest(self.arrays())


def _no_action_fit(config: PolicyConfig) -> Regression:
    return Regression.empty(config.cross_width, config.ridge_width)


def _no_value_fit(config: PolicyConfig) -> Regression:
    return Regression.empty(critic_width(config.width), _STATES, draws=0)


_STATES = 1_024  # features of states that the critic's regression keeps apart
_FEW_NAMES = 16.0  # of options: each is learned about by its name as well as by its features
_LENGTH = 2.0  # of a row beside its constant: what digits, text and numbers all learned well with


def _lengthened(scale: Scale, everything: Trajectories) -> Scale:
    """Return the scale under which rows are of one length on average, however many entries."""
    plain = scale._replace(context=1.0, options=1.0, own=1.0)
    found = rows(everything.encoded, everything.masks, plain)
    context = _mean_square(found.values, found.context_starts, found.context_lengths)
    options = _mean_square(found.values, found.option_starts, found.option_lengths)
    names = len(np.unique(found.slots[found.option_starts]))
    own = min(1.0, float(np.sqrt(_FEW_NAMES / names)))
    return scale._replace(context=_over(context), options=_over(options), own=own)


def _mean_square(values: FloatArray, starts: IntArray, lengths: IntArray) -> float:
    squares = values[spans(starts, lengths)] ** 2
    return float(np.add.reduce(squares)) / len(starts) - 1.0  # without the constant


def _over(square: float) -> float:
    return _LENGTH / float(np.sqrt(square)) if square > 1e-6 else 1.0
