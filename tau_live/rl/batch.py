"""Rollouts as arrays, and the batch that the loss is taken over."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import BoolArray, FloatArray, IntArray, lengths_of, offsets, spans
from tau_live.rl.crossing import Crossed, cross, rows, states
from tau_live.rl.features import Encoded
from tau_live.rl.kernel import KernelInput
from tau_live.rl.kernel import features as waves_of
from tau_live.rl.policy import Policy
from tau_live.rl.throttle import yield_gil

_OF_DECISIONS = (
    "chosen",
    "default",
    "propensity",
    "value",
    "reward",
    "discount",
    "version_lag",
)
_LEAST = 1e-300  # of a propensity; below, a weight would not be finite


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trajectories:
    """``R`` rollouts laid end to end, ``N`` decisions in all.

    Attributes:
        encoded: ``[N]``, features of each decision.
        chosen: ``[N]``, index of the option that was applied.
        default: ``[N]``, index of the host's default, -1 where it had none.
        propensity: ``[N]``, probability with which the applied option had been chosen, in
            ``(0, 1]``; NaN where there is none, which teaches the critic only.
        value: ``[N]``, the return that the deciding version expected.
        reward: ``[N]``, received after each decision.
        discount: ``[N]``, in ``[0, 1]``; 0 where the decision ended a rollout that finished.
        bootstrap: ``[R]``, value of the state in which a rollout was cut off; without effect
            where the last discount is 0.
        length: ``[R]``, decisions of each rollout, at least 1.
        run_decisions: ``[R]``, the same at every point of the run, not at this one alone; ``None``
            if there is no other.
        version_lag: ``[N]``, how many versions ago the deciding version was the newest.
        allowed: ``[N]`` masks ``[A]``, ``None`` where all options were allowed; ``None`` if
            all always were.
        explored: ``[N]`` flags ``[A]``, false where an option is unsafe to explore, ``None`` where
            none is; ``None`` if none ever was.
        cost: ``[N]``, safety cost incurred after each decision; a NaN makes the cost of its whole
            rollout unknown. ``None`` if none is known.
    """

    encoded: Sequence[Encoded]
    chosen: IntArray
    default: IntArray
    propensity: FloatArray
    value: FloatArray
    reward: FloatArray
    discount: FloatArray
    bootstrap: FloatArray
    length: IntArray
    version_lag: IntArray
    allowed: Sequence[BoolArray | None] | None = None
    cost: FloatArray | None = None
    explored: Sequence[BoolArray | None] | None = None
    run_decisions: IntArray | None = None

    def __post_init__(self) -> None:
        self._check_shapes()
        for name in ("value", "reward", "discount", "bootstrap"):
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} must be finite")
        bounds = {
            "discount": (0.0, 1.0),
            "propensity": (_LEAST, 1.0 + 1e-9),
            "version_lag": (0, np.inf),
        }
        for name, (low, high) in bounds.items():
            if (getattr(self, name) < low).any() or (getattr(self, name) > high).any():
                raise ValueError(f"{name} must be within [{low!r}, {high!r}]")
        self._check_options()
        if self.cost is not None and (
            self.cost.shape != self.reward.shape or np.isinf(self.cost).any()
        ):
            raise ValueError(f"cost must be {self.reward.shape} and not infinite")

    def _check_shapes(self) -> None:
        decisions = len(self.encoded)
        for name in _OF_DECISIONS:
            if getattr(self, name).shape != (decisions,):
                raise ValueError(f"{name} must be [{decisions}], got {getattr(self, name).shape}")
        if self.bootstrap.shape != self.length.shape or self.length.ndim != 1:
            raise ValueError(
                f"bootstrap and length must be [R], got {self.bootstrap.shape}, {self.length.shape}"
            )
        if (self.length < 1).any() or self.length.sum() != decisions:
            raise ValueError(f"length must be at least 1 and sum to {decisions}")

    def _check_options(self) -> None:
        options = np.array([decision.options for decision in self.encoded], dtype=np.int64)
        if len({decision.width for decision in self.encoded}) > 1:
            raise ValueError("all decisions must be encoded with one width")
        if (self.chosen < 0).any() or (self.chosen >= options).any():
            raise ValueError("chosen must be the index of an option")
        if (self.default < -1).any() or (self.default >= options).any():
            raise ValueError("default must be the index of an option, or -1")
        self._check_flags("allowed", self.masks, options)
        self._check_flags("explored", self.flags, options)
        for index, mask in enumerate(self.masks):
            if mask is not None and not mask[self.chosen[index]]:
                raise ValueError(f"allowed must fit the choice of decision {index}")

    def _check_flags(self, name: str, flags: Sequence[BoolArray | None], options: IntArray) -> None:
        if len(flags) != len(options):
            raise ValueError(f"{name} must be [{len(options)}], got {len(flags)}")
        for index, own in enumerate(flags):
            if own is not None and own.shape != (options[index],):
                raise ValueError(f"{name} must fit the options of decision {index}")

    @property
    def masks(self) -> Sequence[BoolArray | None]:
        """``[N]``, which options were allowed; ``None`` where all were."""
        return [None] * len(self.encoded) if self.allowed is None else self.allowed

    @property
    def flags(self) -> Sequence[BoolArray | None]:
        """``[N]``, which options were explored; ``None`` where all were."""
        return [None] * len(self.encoded) if self.explored is None else self.explored

    @property
    def run_lengths(self) -> IntArray:
        """``[R]``, the decisions of each run at every point."""
        return self.length if self.run_decisions is None else self.run_decisions

    @property
    def rollout_rewards(self) -> FloatArray:
        """``[R]``, the sum of each rollout's rewards."""
        totals: FloatArray = np.add.reduceat(self.reward, offsets(self.length)[:-1])
        return totals


def concatenate(first: Trajectories, second: Trajectories | None) -> Trajectories:
    """Return the rollouts of both, those of ``first`` before those of ``second``."""
    if second is None or not len(second.length):
        return first
    both = (first, second)
    costs = None
    if not first.cost is second.cost is None:
        unknown = [np.full(len(part.encoded), np.nan) for part in both]
        known = (part.cost for part in both)
        costs = np.concatenate([a if b is None else b for a, b in zip(unknown, known, strict=True)])
    return Trajectories(
        **{
            name: np.concatenate([getattr(part, name) for part in both])
            for name in (*_OF_DECISIONS, "bootstrap", "length")
        },
        encoded=[*first.encoded, *second.encoded],
        allowed=[*first.masks, *second.masks],
        explored=[*first.flags, *second.flags],
        cost=costs,
        run_decisions=np.concatenate([part.run_lengths for part in both]),
    )


def newest(window: Trajectories | None, *, decisions: int) -> Trajectories | None:
    """Return the longest run of last rollouts with at most so many decisions; ``None`` for none."""
    if window is None or len(window.encoded) <= decisions:
        return window
    starts = offsets(window.length)
    first = int(np.searchsorted(starts, starts[-1] - decisions))
    if first >= len(window.length):
        return None
    at = int(starts[first])
    return Trajectories(
        **{name: getattr(window, name)[at:] for name in ("encoded", *_OF_DECISIONS)},
        bootstrap=window.bootstrap[first:],
        length=window.length[first:],
        allowed=window.masks[at:],
        cost=None if window.cost is None else window.cost[at:],
        explored=window.flags[at:],
        run_decisions=window.run_lengths[first:],
    )


class Batch(NamedTuple):
    """Decisions ready for the loss: crossed once for a whole update.

    Attributes:
        options: Crossed features of the ``M`` allowed options of all ``N`` decisions.
        rows: ``[M]``, the features of those options, uncrossed.
        base: ``[M]``, logits before the scorer and the network add to them.
        preferred: ``[M]``, 1 for the host's default, else 0.
        starts: ``[N + 1]``, decision ``n`` has the options ``starts[n]:starts[n + 1]``.
        chosen: ``[N]``, which of its allowed options was applied.
        contexts: The critic's features of each state, ``N`` rows.
        plain: The contexts' features, uncrossed, ``N`` rows.
        epsilon: The policy's share of uniform exploration.
        explored: ``[M]``, false where an option is unsafe to explore; ``None`` if none is.
        waves: ``[N, count]``, the contexts' features for kernels; ``None`` until needed.
    """

    options: Crossed
    rows: Crossed
    base: FloatArray
    preferred: FloatArray
    starts: IntArray
    chosen: IntArray
    contexts: Crossed
    plain: Crossed
    epsilon: float
    explored: BoolArray | None = None
    waves: FloatArray | None = None

    @property
    def counts(self) -> IntArray:
        """``[N]``, how many options were allowed."""
        return lengths_of(self.starts)

    def under(self, policy: Policy) -> "Batch":
        """Return the same decisions with the base of another policy of the same scale."""
        batch = self.with_waves(policy) if policy.base.kernel.is_trusted else self
        ridge = np.zeros(len(self.base))
        if policy.base.sharpness:
            estimates = policy.base.estimates(self.options, batch.kernel_input)
            yield_gil()
            ridge = policy.base.logits(estimates, self.starts, self.explored)
            yield_gil()
        return batch._replace(base=policy.default_bonus * self.preferred + ridge)

    def with_waves(self, policy: Policy) -> "Batch":
        """Return the same decisions with the features that kernels need."""
        if self.waves is not None:
            return self
        width, count = policy.config.width, policy.config.kernels
        return self._replace(waves=waves_of(self.plain, width, count=count))

    @property
    def names(self) -> IntArray:
        """``[M]``, the slots of the options' names."""
        return self.rows.slots[self.rows.starts[:-1]]

    @property
    def kernel_input(self) -> KernelInput | None:
        """The input of kernels; ``None`` without ``waves``."""
        return None if self.waves is None else KernelInput(self.names, self.waves, self.counts)

    def choices(self) -> Crossed:
        """Return the crossed features of the options that were applied, ``[N]``."""
        return self.options.rows(self.starts[:-1] + self.chosen)

    def select(self, decisions: IntArray) -> "Batch":
        """Return the decisions at these indices alone, in that order."""
        counts = self.starts[decisions + 1] - self.starts[decisions]
        at = spans(self.starts[decisions], counts)
        return Batch(
            self.options.rows(at),
            self.rows.rows(at),
            self.base[at],
            self.preferred[at],
            offsets(counts),
            self.chosen[decisions],
            self.contexts.rows(decisions),
            self.plain.rows(decisions),
            self.epsilon,
            None if self.explored is None else self.explored[at],
            None if self.waves is None else self.waves[decisions],
        )


def batch(policy: Policy, trajectories: Trajectories) -> Batch:
    """Return the decisions of ``trajectories`` as ``policy`` scales and prefers them."""
    return batch_without_base(policy, trajectories).under(policy)


def batch_without_base(policy: Policy, trajectories: Trajectories) -> Batch:
    """Return the same as ``batch``, the base holding only the flags of the host's default."""
    width, masks = policy.config.width, trajectories.masks
    contexts, options, counts = rows(trajectories.encoded, masks, policy.scale)
    starts = offsets(counts)
    preferred = _default_flags(trajectories, starts)
    return Batch(
        cross(contexts, options, counts, width=width, cross_width=policy.config.cross_width),
        options,
        preferred,
        preferred,
        starts,
        _ranks(trajectories.chosen, masks),
        states(contexts, width=width),
        contexts,
        policy.epsilon,
        _explored_flags(trajectories),
    )


def _explored_flags(trajectories: Trajectories) -> BoolArray | None:
    """Return ``[M]`` which of the allowed options are explored; ``None`` if all are."""
    if all(flags is None for flags in trajectories.flags):
        return None
    masks = []
    for decision, mask, flags in zip(
        trajectories.encoded, trajectories.masks, trajectories.flags, strict=True
    ):
        explored = np.ones(decision.options, dtype=np.bool_) if flags is None else flags
        masks.append(explored if mask is None else explored[mask])
    return np.concatenate(masks)


def _default_flags(trajectories: Trajectories, starts: IntArray) -> FloatArray:
    preferred = np.zeros(int(starts[-1]))
    allowed_default = trajectories.default >= 0
    for index, mask in enumerate(trajectories.masks):
        if mask is not None and allowed_default[index]:
            allowed_default[index] = mask[trajectories.default[index]]
    ranks = _ranks(np.maximum(trajectories.default, 0), trajectories.masks)
    preferred[(starts[:-1] + ranks)[allowed_default]] = 1.0
    return preferred


def _ranks(indices: IntArray, masks: Sequence[BoolArray | None]) -> IntArray:
    """Return ``[N]`` the ranks of these options among those allowed."""
    ranks = indices.copy()
    for index, mask in enumerate(masks):
        if mask is not None:
            ranks[index] = int(mask[: indices[index]].sum())
    return ranks
