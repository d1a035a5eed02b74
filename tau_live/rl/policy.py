"""The frozen policy of one decision point: arrays, and the decisions they give."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import Array, BoolArray, FloatArray, digest, frozen, required
from tau_live.rl.base import Base
from tau_live.rl.exploring import added, floor_of
from tau_live.rl.features import MAX_WIDTH, WIDTH, Encoded, pack
from tau_live.rl.net import Net
from tau_live.rl.scaling import Scale
from tau_live.rl.served import Layouts, Sums, sums
from tau_live.rl.states import critic_width


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """The shape of a policy; never changes over its versions.

    Attributes:
        width: Slots that feature names are hashed into, in ``[1, 65535]``.
        cross_width: Slots for pairs of features; a power of two in ``[16, 2**20]``.
        ridge_width: Pairs that the regression keeps apart; a power of two in ``[16, cross_width]``.
        epsilon: Share of uniform exploration, in ``[0, 1]``.
        default_bonus: Added to the logit of the host's default at first, at least 0.
        default_fade: Rollouts trained on until that bonus is halved, above 0.
        net_width: Units of each layer of the tanh networks, in ``[0, 256]``; 0 leaves them out.
        kernels: Waves of each option's kernel regression, in ``[0, 1024]``; 0 leaves them out.
    """

    width: int = WIDTH
    cross_width: int = 16_384
    ridge_width: int = 1_024
    epsilon: float = 0.02
    default_bonus: float = 2.0
    default_fade: float = 64.0
    net_width: int = 32
    kernels: int = 256

    def __post_init__(self) -> None:
        self._check_sizes()
        if not 0.0 <= self.epsilon <= 1.0:
            raise ValueError(f"epsilon must be within [0, 1], got {self.epsilon!r}")
        if not 0.0 <= self.default_bonus <= 100.0:
            raise ValueError(f"default_bonus must be within [0, 100], got {self.default_bonus!r}")
        if not 0.0 < self.default_fade <= 1e12:
            raise ValueError(f"default_fade must be within (0, 1e12], got {self.default_fade!r}")

    def _check_sizes(self) -> None:
        if not 1 <= self.width <= MAX_WIDTH:
            raise ValueError(f"width must be within [1, {MAX_WIDTH}], got {self.width!r}")
        for name, widest in (("cross_width", 2**20), ("ridge_width", self.cross_width)):
            size = getattr(self, name)
            if not 16 <= size <= widest or size & (size - 1):
                raise ValueError(
                    f"{name} must be a power of two within [16, {widest}], got {size!r}"
                )
        for name, widest in (("net_width", 256), ("kernels", 1_024)):
            size = getattr(self, name)
            if not 0 <= size <= widest:
                raise ValueError(f"{name} must be within [0, {widest}], got {size!r}")


class Judged(NamedTuple):
    """What a policy makes of a decision.

    Attributes:
        probabilities: ``[A]``: finite, 0 where not allowed, summing to 1.
        value: Its estimate of the return from here, in units of reward.
        packed: The decision as ``features.pack`` gives it.
    """

    probabilities: FloatArray
    value: float
    packed: bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """One version of a policy. Nothing in it ever changes.

    ``logit[k] = base[k] + weights . cross(context, option k) + net(context, option k)``, the base
    being what the ridge regression expects of an option plus a bonus for the host's default, and
    ``pi = (1 - epsilon) * softmax(logits of the allowed) + epsilon / allowed``, where options that
    are unsafe to explore have no part in the floor and none in what doubt adds to the base.

    Attributes:
        config: The shape.
        weights: ``[cross_width]``, the scorer of crossed features.
        base: What the ridge regression says.
        net: The tanh networks that add to logits and values.
        critic: ``[critic_width]``, a state's value is its inner product with what ``states`` sees,
            and what the network adds.
        scale: How numbers are scaled.
        rollouts: How many rollouts taught it; 0 is untrained.
        layouts: What it worked out for decisions that look alike; changes nothing but the time.
    """

    config: PolicyConfig
    weights: FloatArray
    net: Net
    base: Base
    critic: FloatArray
    scale: Scale
    rollouts: int
    layouts: Layouts = field(default_factory=Layouts, init=False, repr=False)

    @classmethod
    def untrained(cls, config: PolicyConfig) -> "Policy":
        """Return version 0: the host's default preferred, otherwise uniform."""
        return cls(
            config=config,
            weights=frozen(np.zeros(config.cross_width)),
            net=Net.untrained(config.net_width, slots=config.width),
            base=Base.untrained(config.cross_width, config.kernels),
            critic=frozen(np.zeros(critic_width(config.width))),
            scale=Scale.untrained(config.width),
            rollouts=0,
        )

    @property
    def default_bonus(self) -> float:
        """What the host's default has added to its logit; fades as evidence grows."""
        fade = self.config.default_fade
        return self.config.default_bonus * fade / (fade + self.rollouts)

    @property
    def has_base(self) -> bool:
        """Whether the regression adds anything to the logits."""
        return self.rollouts > 0 and self.base.sharpness > 0.0

    def logits(self, encoded: Encoded, *, default: int | None = None) -> FloatArray:
        """Return ``[A]`` the logits of all options, masked ones included.

        Raises:
            ValueError: There is no option, ``default`` is none of them, or the width differs.
        """
        self._check(encoded, default)
        return self._logits(self._sums(encoded), default=default)

    def probabilities(
        self,
        encoded: Encoded,
        *,
        default: int | None = None,
        allowed: BoolArray | None = None,
        explored: BoolArray | None = None,
    ) -> FloatArray:
        """Return ``[A]`` the probability of each option: finite, 0 where not allowed, summing to 1.

        Args:
            encoded: The decision.
            default: Which option the host would take, ``None`` when it has no preference.
            allowed: ``[A]``, false where an option must not be taken; ``None`` allows all.
            explored: ``[A]``, false where an option is unsafe to explore; ``None`` explores all.

        Raises:
            ValueError: No option is allowed, or a shape, ``default`` or the width does not fit.
        """
        return self.judged(
            encoded, default=default, allowed=allowed, explored=explored
        ).probabilities

    def value(self, encoded: Encoded) -> float:
        """Return the estimate of the return from this state, in units of reward."""
        self._check(encoded, None)
        return self._sums(encoded).value

    def judged(
        self,
        encoded: Encoded,
        *,
        default: int | None = None,
        allowed: BoolArray | None = None,
        explored: BoolArray | None = None,
    ) -> Judged:
        """Return ``probabilities`` and ``value`` at once; ``encoded`` must be fit to be packed."""
        self._check(encoded, default)
        if explored is not None and explored.shape != (encoded.options,):
            raise ValueError(f"expected explored to be [{encoded.options}], got {explored!r}")
        if allowed is not None and (allowed.shape != (encoded.options,) or not allowed.any()):
            raise ValueError(f"expected [{encoded.options}] with one allowed, got {allowed!r}")
        if allowed is not None and explored is not None:
            explored = explored[allowed]
        layout = self.layouts.of(self, encoded)
        found = sums(self, layout, layout.scaled(encoded))
        logits = self._logits(found, default=default, allowed=allowed, explored=explored)
        mixed = self._mixed(logits, explored)
        probabilities = mixed
        if allowed is not None:
            probabilities = np.zeros(encoded.options)
            probabilities[allowed] = mixed
        return Judged(probabilities, found.value, pack(encoded, frame=layout.frame))

    def arrays(self) -> dict[str, Array]:
        """Return everything as arrays by name."""
        shape = [getattr(self.config, field.name) for field in fields(self.config)]
        return {
            "config": np.array(shape, dtype=np.float64),
            "weights": self.weights,
            **self.net.arrays(),
            **self.base.arrays(),
            "critic": self.critic,
            **self.scale.arrays("scale"),
            "rollouts": np.array([self.rollouts], dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> "Policy":
        """Return the policy that ``arrays`` gave; arrays of other names are ignored.

        Raises:
            ValueError: An array is missing, misshapen, not finite, or out of range.
        """
        width, cross_width, ridge_width, *rest = required(arrays, "config", (8,)).tolist()
        config = PolicyConfig(
            width=int(width),
            cross_width=int(cross_width),
            ridge_width=int(ridge_width),
            epsilon=rest[0],
            default_bonus=rest[1],
            default_fade=rest[2],
            net_width=int(rest[3]),
            kernels=int(rest[4]),
        )
        rollouts = int(required(arrays, "rollouts", (1,))[0])
        if rollouts < 0:
            raise ValueError(f"rollouts must be at least 0, got {rollouts!r}")
        return cls(
            config=config,
            weights=frozen(required(arrays, "weights", (config.cross_width,))),
            net=Net.from_arrays(arrays, width=config.net_width, slots=config.width),
            base=Base.from_arrays(arrays, cross_width=config.cross_width, kernels=config.kernels),
            critic=frozen(required(arrays, "critic", (critic_width(config.width),))),
            scale=Scale.from_arrays(arrays, "scale", width=config.width),
            rollouts=rollouts,
        )

    def digest(self) -> str:
        """Return the SHA-256 of all arrays, the same on every machine."""
        return digest(self.arrays())

    def _check(self, encoded: Encoded, default: int | None) -> None:
        if encoded.width != self.config.width or encoded.options < 1:
            raise ValueError(
                f"expected options encoded {self.config.width} wide, got {encoded.options} "
                f"options encoded {encoded.width} wide"
            )
        if default is not None and not 0 <= default < encoded.options:
            raise ValueError(f"default must be one of {encoded.options} options, got {default!r}")

    def _sums(self, encoded: Encoded) -> Sums:
        layout = self.layouts.of(self, encoded)
        return sums(self, layout, layout.scaled(encoded))

    def _logits(
        self,
        found: Sums,
        *,
        default: int | None = None,
        allowed: BoolArray | None = None,
        explored: BoolArray | None = None,
    ) -> FloatArray:
        """Return the logits of the allowed options: scorer, network, regression, the default."""
        parts, unseen = found.parts, found.unseen
        if allowed is not None:
            parts, unseen = parts[:, allowed], unseen[allowed]
        logits: FloatArray = parts[0]
        if self.has_base:
            estimates = self.base.estimated(parts[1:], unseen)
            starts = np.array([0, len(logits)])
            logits = logits + added(self.base, estimates, starts, explored)
        if default is not None and (allowed is None or allowed[default]):
            logits[default if allowed is None else int(allowed[:default].sum())] += (
                self.default_bonus
            )
        return logits

    def _mixed(self, logits: FloatArray, explored: BoolArray | None = None) -> FloatArray:
        weights = np.exp(logits - logits.max())
        epsilon = self.config.epsilon
        if explored is not None:
            floor = floor_of(np.array([len(logits)]), explored, epsilon=epsilon)
            shared: FloatArray = floor.kept * (weights / weights.sum()) + floor.least
            return shared
        mixed: FloatArray = (1.0 - epsilon) * (weights / weights.sum()) + epsilon / len(logits)
        return mixed


def sample(probabilities: FloatArray, rng: np.random.Generator) -> int:
    """Return the index of one option, drawn with these probabilities; never one that has 0.

    Args:
        probabilities: ``[A]``, at least 0, summing to 1.
        rng: Drawn from once.
    """
    cumulative = np.cumsum(probabilities)
    drawn = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
    return min(drawn, int(np.flatnonzero(probabilities)[-1]))
