"""The learner's state from one update to the next."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import (
    Array,
    BoolArray,
    FloatArray,
    IntArray,
    frozen,
    lengths_of,
    required_array,
)
from tau_live.rl.batch import Batch, Trajectories
from tau_live.rl.config import PPOConfig
from tau_live.rl.crossing import (
    AdvantageScale,
    Crossed,
    Moments,
    Scale,
    critic_width,
    hashed_pairs,
    numbers_of,
    rows,
)
from tau_live.rl.kernel import Kernels, features
from tau_live.rl.net import Net, widen
from tau_live.rl.policy import Policy, PolicyConfig
from tau_live.rl.recursive import Regression
from tau_live.rl.throttle import yield_gil

MOST_STEPS = 4
"""Most decisions of a rollout by which a change of the world is noticed: the rewards of longer ones
depend more on what the policy has learned meanwhile."""

_EPSILON = 1e-8
_DECAYS = (0.9, 0.999)


class Adam(NamedTuple):
    """Adam's moments of flat parameters.

    Attributes:
        first: ``[S]``, decaying mean of gradients.
        second: ``[S]``, decaying mean of squared gradients.
        steps: How many steps were taken.
    """

    first: FloatArray
    second: FloatArray
    steps: int

    @classmethod
    def initial(cls, size: int) -> "Adam":
        """Return the state before the first step."""
        return cls(frozen(np.zeros(size)), frozen(np.zeros(size)), 0)

    def writable_copy(self) -> "Adam":
        """Return a writable copy, for ``descend``."""
        return Adam(self.first.copy(), self.second.copy(), self.steps)

    def frozen(self) -> "Adam":
        """Return a read-only copy."""
        return Adam(frozen(self.first), frozen(self.second), self.steps)

    def descend(
        self, parameters: FloatArray, gradient: FloatArray, *, learning_rate: float
    ) -> "Adam":
        """Move ``parameters [S]`` one step down ``gradient [S]``, which is overwritten.

        ``p - learning_rate * (m / (1 - b1**t)) / (sqrt(v / (1 - b2**t)) + epsilon)``. Parameters
        and moments are changed in place.

        Returns:
            The same moments, one step on.

        Source:
            Kingma and Ba 2015, arXiv:1412.6980, algorithm 1, its bias corrections combined as in
            the last line of section 2.
        """
        first, second, steps = self.first, self.second, self.steps + 1
        first_decay, second_decay = _DECAYS
        correction = np.sqrt(1.0 - second_decay**steps)
        first *= first_decay
        first += gradient * (1.0 - first_decay)
        second *= second_decay
        gradient *= gradient
        gradient *= 1.0 - second_decay
        second += gradient
        step = np.sqrt(second, out=gradient)
        step += float(_EPSILON * correction)
        np.divide(first, step, out=step)
        step *= float(learning_rate * correction / (1.0 - first_decay**steps))
        parameters -= step
        return self._replace(steps=steps)

    def arrays(self, prefix: str) -> dict[str, Array]:
        """Return all arrays by name."""
        return {
            f"{prefix}_first": self.first,
            f"{prefix}_second": self.second,
            f"{prefix}_steps": np.array([self.steps], dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], prefix: str, *, size: int) -> "Adam":
        """Return the state that ``arrays`` gave.

        Raises:
            ValueError: An array is missing or malformed.
        """
        first = required_array(arrays, f"{prefix}_first", (size,))
        second = required_array(arrays, f"{prefix}_second", (size,))
        steps = int(required_array(arrays, f"{prefix}_steps", (1,))[0])
        if steps < 0 or (second < 0.0).any():
            raise ValueError(f"{prefix}_steps and {prefix}_second must be at least 0")
        return cls(frozen(first), frozen(second), steps)


class Recency(NamedTuple):
    """How much better recent evidence foresees returns than all evidence does.

    Attributes:
        gain: Sum of the squared errors of all evidence less those of recent evidence, in units of
            the returns' variance; an earlier rollout weighs ``_RECENT`` of the next.
        squares: Sum of the squares of these differences, weighted likewise.
        serves: Whether recent evidence decides.
    """

    gain: float = 0.0
    squares: float = 0.0
    serves: bool = False

    def including(self, differences: FloatArray) -> "Recency":
        """Return it with more differences of squared errors, ``[R]``, of a rollout each.

        Recent evidence takes over where the gain is above what chance explains, and gives way once
        there is none.
        """
        gain, squares, serves = self
        for difference in differences.tolist():
            gain = gain * _RECENT + difference
            squares = squares * _RECENT + difference**2
        least = 0.0 if serves else max(_SURE * sqrt(squares), _LEAST_GAIN)
        return Recency(gain, squares, gain > least)

    def prefer(self) -> "Recency":
        """Return it with recent evidence deciding, until it is found to be no better."""
        return Recency(max(self.gain, 1.0), self.squares, True)


class Counts(NamedTuple):
    """Counts of what happened so far.

    Attributes:
        rollouts: New rollouts received.
        decisions: Decisions in them.
        updates: Updates that made a new version.
        skipped: Updates that had too little to learn from.
        undone: Updates that went too far and were undone.
        run_decisions: Decisions of the rollouts at every point.
    """

    rollouts: int = 0
    decisions: int = 0
    updates: int = 0
    skipped: int = 0
    undone: int = 0
    run_decisions: int = 0

    @property
    def together(self) -> float:
        """Mean decisions of a rollout, at least 1: they share its luck."""
        return max(self.decisions / max(self.rollouts, 1), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnerState:
    """The state that an update needs besides rollouts; saving and loading it keeps every bit.

    Attributes:
        policy: The newest version.
        adam: The optimiser's moments, of scorer and critic.
        net_adam: The optimiser's moments of the network.
        moments: Moments of all numbers seen in features.
        scale: The scale of the next version; the sums below are under it.
        scaled_rollouts: How many rollouts that scale was made from.
        action_fit: Regression of returns on crossed features.
        recent_fit: The same, of evidence that fades.
        recency: Which of the two foresees better.
        kernels: Kernel regressions of options.
        value_fit: Regression of returns on contexts.
        value_base: ``[critic_width]``, the part of the policy's critic that is the regression.
        advantage_scale: The running scale of advantages.
        counts: Counts so far.
    """

    policy: Policy
    adam: Adam
    net_adam: Adam
    moments: Moments
    scale: Scale
    scaled_rollouts: int
    action_fit: Regression
    recent_fit: Regression
    recency: Recency
    kernels: Kernels
    value_fit: Regression
    value_base: FloatArray
    advantage_scale: AdvantageScale
    counts: Counts

    @classmethod
    def initial(cls, config: PolicyConfig) -> "LearnerState":
        """Return the state before the first rollout."""
        policy = Policy.initial(config)
        return cls(
            policy=policy,
            adam=Adam.initial(config.cross_width + critic_width(config.width)),
            net_adam=Adam.initial(policy.net.shape.size),
            moments=Moments.empty(config.width),
            scale=Scale.initial(config.width),
            scaled_rollouts=0,
            action_fit=Regression.empty(config.cross_width, config.ridge_width),
            recent_fit=Regression.empty(config.cross_width, config.ridge_width),
            recency=Recency(),
            kernels=Kernels.empty(config.kernels),
            value_fit=Regression.empty(critic_width(config.width), _STATES, draws=0),
            value_base=frozen(np.zeros(critic_width(config.width))),
            advantage_scale=AdvantageScale(),
            counts=Counts(),
        )

    @property
    def unit(self) -> float:
        """The unit of values while the critic learns: the standard deviation of returns."""
        return self.action_fit.deviation or 1.0

    def count_rollouts(self, fresh: Trajectories, everything: Trajectories) -> "LearnerState":
        """Return the state with new rollouts in its counts, its moments and its scale.

        Args:
            fresh: Rollouts never seen before.
            everything: The same rollouts, followed by older ones. When these are all there ever
                were, and twice as many as the last time, every number is scaled anew and the
                regressions begin again; else only names never scaled before are scaled.
        """
        moments = self.moments.including(*numbers_of(fresh.encoded))
        counts = self.counts._replace(
            rollouts=self.counts.rollouts + len(fresh.length),
            decisions=self.counts.decisions + len(fresh.encoded),
            run_decisions=self.counts.run_decisions + int(fresh.run_lengths.sum()),
        )
        whole = len(everything.length) >= counts.rollouts >= 2 * self.scaled_rollouts
        scale = moments.scale(self.scale, whole=whole)
        state = replace(self, moments=moments, counts=counts, scale=scale)
        if not whole:
            return state
        config = self.policy.config
        return replace(
            state,
            scale=_lengthen(scale, everything),
            scaled_rollouts=counts.rollouts,
            action_fit=Regression.empty(config.cross_width, config.ridge_width),
            recent_fit=Regression.empty(config.cross_width, config.ridge_width),
            recency=Recency(),
            kernels=self.kernels.restart(),
            value_fit=Regression.empty(critic_width(config.width), _STATES, draws=0),
        )

    def learn_returns(
        self,
        batch: Batch,
        rewards: FloatArray,
        costs: FloatArray,
        *,
        chosen: BoolArray,
        config: PPOConfig,
        rng: np.random.Generator,
    ) -> "LearnerState":
        """Return the state whose regressions include these decisions, ``[N]``, under its scale.

        Args:
            batch: The decisions.
            rewards: ``[N]``, reward-to-go of each.
            costs: ``[N]``, safety cost to go of each; NaN where unknown.
            chosen: ``[N]``, which of them the policy chose, with a propensity; the others tell
                nothing about the options, because the reasons of the host's choice are unknown.
            config: How to learn.
            rng: Source of the noise of the regressions' posteriors.
        """
        ours = np.flatnonzero(chosen)
        own, returns = batch.select(ours), (rewards[ours], costs[ours])
        choices, penalty = own.choices(), config.penalty
        action_fit = self.action_fit.including(choices, *returns, penalty=penalty, rng=rng)
        faded = 1.0 - (1.0 - config.fading) ** (len(ours) / self.counts.together)
        recent_fit = self.recent_fit.fade(faded, penalty=penalty, rng=rng)
        recent_fit = recent_fit.including(choices, *returns, penalty=penalty, rng=rng)
        value_fit = self.value_fit.including(
            batch.contexts, rewards, costs, penalty=penalty, rng=rng
        )
        kernels = self.kernels
        # Others tell kernels nothing
        with_context = np.flatnonzero(lengths_of(own.plain.starts) > 1)
        if kernels.width and len(with_context):
            own = own.select(with_context)
            waves = features(own.plain, self.policy.config.width, count=kernels.width)
            names = own.names[own.starts[:-1] + own.chosen]
            yield_gil()
            kernels = kernels.including(
                names,
                waves,
                *(part[with_context] for part in returns),
                cost_mean=action_fit.cost_mean,
            )
        return replace(
            self,
            action_fit=action_fit,
            recent_fit=recent_fit,
            kernels=kernels,
            value_fit=value_fit,
        )

    @property
    def serving_fit(self) -> Regression:
        """The regression that decides: of all evidence, or of recent evidence."""
        return self.recent_fit if self.recency.serves else self.action_fit

    @property
    def serving_kernels(self) -> Kernels:
        """The kernels beside it: none beside recent evidence, for theirs does not fade."""
        return Kernels.empty(self.kernels.width) if self.recency.serves else self.kernels

    def compare(
        self, batch: Batch, rewards: FloatArray, probabilities: FloatArray, *, rollouts: IntArray
    ) -> "LearnerState":
        """Return the state whose regressions are compared by decisions not learned from yet.

        Kernels with slopes; and fading evidence with all of it, by the mean of each rollout of at
        most ``MOST_STEPS`` decisions.

        Args:
            batch: ``N`` decisions, under the scale of the sums.
            rewards: ``[N]``, reward-to-go of each.
            probabilities: ``[M]``, of their options.
            rollouts: ``[N]``, the same number for decisions of one rollout, ascending.
        """
        fit, chosen = self.action_fit, batch.starts[:-1] + batch.chosen
        slopes = batch.options.dot(fit.gain(fit.mean))
        expected, kernels = slopes[chosen], self.kernels
        inputs = batch.with_waves(self.policy).kernel_input if self.kernels.fits else None
        if inputs is not None:
            gains, known, trust = kernels.to_kernel(0.0, (fit.mean, 0.0)).predict(inputs)
            expected = (slopes + np.where(known, trust * (gains - slopes), 0.0))[chosen]
            kernels = kernels.judge(
                inputs,
                slopes,
                rewards,
                chosen=chosen,
                probabilities=probabilities,
                mean=fit.mean,
            )
        recent = self.recent_fit
        foreseen = batch.choices().dot(recent.gain(recent.mean)) + recent.mean
        errors = (rewards - expected - fit.mean) / self.unit
        recent_errors = (rewards - foreseen) / self.unit
        differences = np.bincount(rollouts, weights=errors**2 - recent_errors**2)
        sizes = np.bincount(rollouts)
        counted = (sizes > 0) & (sizes <= MOST_STEPS)
        recency = self.recency.including(differences[counted] / sizes[counted])
        return replace(self, kernels=kernels, recency=recency)

    def is_short(self, config: PPOConfig) -> bool:
        """Whether rollouts have so few decisions that the regressions learn alone."""
        counts = self.counts
        few = counts.run_decisions < config.least_decisions * counts.rollouts
        return few and config.sharpness > 0.0

    def without_residual(self) -> "LearnerState":
        """Return the state whose policy is its base alone, as before PPO's first step."""
        policy, config = self.policy, self.policy.config
        net = Net.initial(config.net_width, slots=config.width)
        if not policy.weights.any() and policy.net.shape == net.shape:
            return self
        weights = frozen(np.zeros(config.cross_width))
        return replace(
            self,
            policy=replace(policy, weights=weights, net=net),
            adam=Adam.initial(config.cross_width + critic_width(config.width)),
            net_adam=Adam.initial(net.shape.size),
        )

    def expect(self, contexts: Crossed, returns: FloatArray) -> "LearnerState":
        """Return the state whose critic is its regression, right on average for these returns.

        The regression weighs all returns alike; a policy that learns earns more than it did.

        Args:
            contexts: The critic's features of ``N`` states.
            returns: ``[N]``, what followed each, in units of reward.
        """
        critic = self.value_base.copy()
        errors = returns - contexts.dot(critic)
        critic[self.policy.config.width] += float(np.add.reduce(errors)) / len(errors)
        return replace(self, policy=replace(self.policy, critic=frozen(critic)))

    def add_features(self, contexts: IntArray, options: IntArray) -> "LearnerState":
        """Return the state whose network knows these features.

        Args:
            contexts: Slots, in the order in which they came.
            options: The same for options.
        """
        before = self.policy.net
        net = before.including(contexts, options)
        if net is before:
            return self
        *moments, steps = self.net_adam
        first, second = (frozen(widen(moment, before.shape, net.shape)) for moment in moments)
        return replace(
            self, policy=replace(self.policy, net=net), net_adam=Adam(first, second, steps)
        )

    def forget(
        self, options: IntArray, *, penalty: float, rng: np.random.Generator
    ) -> "LearnerState":
        """Return the state with these options unlearned, as if they were new, and deciding so.

        Recent evidence keeps them: if all of them were worse only for a while, it foresees better.

        Args:
            options: Slots of their entries; their contributions in any context are forgotten.
            penalty: Ridge penalty of the regressions, above 0.
            rng: Source of the noise of their posteriors.
        """
        config = self.policy.config
        contexts = np.flatnonzero(self.value_fit.columns.of[: config.width + 1] >= 0)
        slots, _ = hashed_pairs(
            contexts[:, None],
            options[None, :],
            width=config.width,
            cross_width=config.cross_width,
        )
        slots = np.unique(slots)
        weights = self.policy.weights.copy()
        weights[slots] = 0.0
        return replace(
            self,
            action_fit=self.serving_fit.forget(slots, penalty=penalty, rng=rng),
            recency=Recency(),
            kernels=self.kernels.forget(options),
            policy=replace(
                self.policy, weights=frozen(weights), net=self.policy.net.forget(options)
            ),
        )

    def expectation(self, multiplier: float) -> FloatArray:
        """Return ``[critic_width]`` weights whose product with a state is its expected return.

        Args:
            multiplier: Price of one unit of cost in units of reward, at least 0.
        """
        fit = self.value_fit
        weights = fit.gain(fit.mean, cost_mean=fit.cost_mean, multiplier=multiplier)
        weights[self.policy.config.width] += fit.mean - multiplier * fit.cost_mean
        return weights

    def arrays(self) -> dict[str, Array]:
        """Return all arrays by name, those of the policy first."""
        return {
            **self.policy.arrays(),
            **self.adam.arrays("adam"),
            **self.net_adam.arrays("net_adam"),
            **self.moments.arrays(),
            **self.action_fit.arrays("action"),
            **self.recent_fit.arrays("recent"),
            "recency": np.array(self.recency, dtype=np.float64),
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
        counts = _counts(arrays)
        scaled = required_array(arrays, "scaled_rollouts", (1,)).astype(np.int64)
        if min(counts) < 0 or (scaled < 0).any():
            raise ValueError(f"counts must be at least 0, got {counts!r}")
        size = {"slots": config.cross_width, "joint": config.ridge_width}
        action_fit = Regression.from_arrays(arrays, "action", **size)
        recent_fit, recency = action_fit, Recency()
        if "recency" in arrays:  # earlier versions had all evidence alone
            recent_fit = Regression.from_arrays(arrays, "recent", **size)
            gain, squares, serves = required_array(arrays, "recency", (3,)).tolist()
            if squares < 0.0 or serves not in {0.0, 1.0}:
                raise ValueError(f"recency is out of range: {squares!r}, {serves!r}")
            recency = Recency(gain, squares, bool(serves))
        return cls(
            policy=policy,
            adam=Adam.from_arrays(
                arrays, "adam", size=config.cross_width + critic_width(config.width)
            ),
            net_adam=Adam.from_arrays(arrays, "net_adam", size=policy.net.shape.size),
            moments=Moments.from_arrays(arrays, width=config.width),
            scale=Scale.from_arrays(arrays, "next_scale", width=config.width),
            scaled_rollouts=int(scaled[0]),
            action_fit=action_fit,
            recent_fit=recent_fit,
            recency=recency,
            kernels=Kernels.from_arrays(arrays, width=config.kernels),
            value_fit=Regression.from_arrays(
                arrays, "value", slots=critic_width(config.width), joint=_STATES, draws=0
            ),
            value_base=frozen(required_array(arrays, "value_base", (critic_width(config.width),))),
            advantage_scale=AdvantageScale(
                *required_array(arrays, "advantage_scale", (3,)).tolist()
            ),
            counts=counts,
        )


_RECENT = 0.995  # weight of a difference beside that of the next rollout
_SURE = 1.5  # standard errors by which recent evidence must be better
_LEAST_GAIN = 1e-6  # more than rounding explains
_STATES = 1_024  # columns of the critic's regression that have covariances
_FEW_NAMES = 16.0  # up to so many options, names count as much as features
_LENGTH = 2.0  # of a row without its constant; digits, text and numbers all learned well with it


def _counts(arrays: Mapping[str, Array]) -> Counts:
    fields = len(Counts._fields)
    if np.size(arrays.get("counts", ())) == fields:
        return Counts(*required_array(arrays, "counts", (fields,)).astype(np.int64).tolist())
    earlier = required_array(arrays, "counts", (fields - 1,)).astype(np.int64).tolist()
    return Counts(*earlier)._replace(run_decisions=earlier[1])  # they knew one point alone


def _lengthen(scale: Scale, everything: Trajectories) -> Scale:
    """Return the scale under which rows have one length on average, however many entries."""
    plain = scale._replace(context=1.0, options=1.0, own=1.0)
    contexts, options, _ = rows(everything.encoded, everything.masks, plain)
    names = len(np.unique(options.slots[options.starts[:-1]]))
    own = min(1.0, float(np.sqrt(_FEW_NAMES / names)))
    return scale._replace(context=_factor(contexts), options=_factor(options), own=own)


def _factor(rows: Crossed) -> float:
    """Return the factor that gives rows a root mean square length of 2, constants excluded."""
    square = float(np.add.reduce(rows.values**2)) / (len(rows.starts) - 1) - 1.0
    return _LENGTH / float(np.sqrt(square)) if square > 1e-6 else 1.0
