"""Rollouts as arrays, and what the loss needs of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import BoolArray, FloatArray, IntArray, offsets, spans
from tau_live.rl.breathing import Breathe, at_once
from tau_live.rl.crossing import Crossed, Rows, crossed, rows
from tau_live.rl.exploring import added
from tau_live.rl.features import Encoded
from tau_live.rl.fourier import features as waves_of
from tau_live.rl.kernel import Seen
from tau_live.rl.policy import Policy
from tau_live.rl.states import states

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
        encoded: ``[N]``, what each decision looked like.
        chosen: ``[N]``, index of the option that was applied.
        default: ``[N]``, index of the host's default, -1 where it had none.
        propensity: ``[N]``, probability with which the applied option had been chosen, in
            ``(0, 1]``; NaN where there is none, which teaches the critic only.
        value: ``[N]``, what the deciding version expected.
        reward: ``[N]``, received after each decision.
        discount: ``[N]``, in ``[0, 1]``; 0 where the decision ended a rollout that finished.
        bootstrap: ``[R]``, value of the state that a rollout was cut off in; without effect
            where the last discount is 0.
        length: ``[R]``, decisions of each rollout, at least 1.
        version_lag: ``[N]``, how many versions ago the deciding version was the newest.
        allowed: ``[N]`` masks ``[A]``, ``None`` where all options were allowed; ``None`` if
            all always were.
        explored: ``[N]`` flags ``[A]``, false where an option is unsafe to explore, ``None`` where
            none is; ``None`` if none ever was.
        cost: ``[N]``, of safety, incurred after each decision; NaN anywhere in a rollout makes that
            rollout's unknown. ``None`` if none is known.
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
        self._check_choices()
        self._check_explored()
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

    def _check_choices(self) -> None:
        options = np.array([one.options for one in self.encoded], dtype=np.int64)
        masks = self.masks
        if len({one.width for one in self.encoded}) > 1:
            raise ValueError("all decisions must be encoded with one width")
        if (self.chosen < 0).any() or (self.chosen >= options).any():
            raise ValueError("chosen must be the index of an option")
        if (self.default < -1).any() or (self.default >= options).any():
            raise ValueError("default must be the index of an option, or -1")
        if len(masks) != len(options):
            raise ValueError(f"allowed must be [{len(options)}], got {len(masks)}")
        for index, mask in enumerate(masks):
            if mask is None:
                continue
            if mask.shape != (options[index],) or not mask[self.chosen[index]]:
                raise ValueError(f"allowed must fit the options and the choice of decision {index}")

    def _check_explored(self) -> None:
        if len(self.flags) != len(self.encoded):
            raise ValueError(f"explored must be [{len(self.encoded)}], got {len(self.flags)}")
        for index, (one, flags) in enumerate(zip(self.encoded, self.flags, strict=True)):
            if flags is not None and flags.shape != (one.options,):
                raise ValueError(f"explored must fit the options of decision {index}")

    @property
    def masks(self) -> Sequence[BoolArray | None]:
        """``[N]``, which options were allowed; ``None`` where all were."""
        return [None] * len(self.encoded) if self.allowed is None else self.allowed

    @property
    def flags(self) -> Sequence[BoolArray | None]:
        """``[N]``, which options were explored; ``None`` where all were."""
        return [None] * len(self.encoded) if self.explored is None else self.explored

    @property
    def rollout_rewards(self) -> FloatArray:
        """``[R]``, the sum of each rollout's rewards."""
        totals: FloatArray = np.add.reduceat(self.reward, offsets(self.length)[:-1])
        return totals


def joined(first: Trajectories, second: Trajectories | None) -> Trajectories:
    """Return the rollouts of both, those of ``first`` before those of ``second``."""
    if second is None or not len(second.length):
        return first
    both = (first, second)
    return Trajectories(
        encoded=list(chain.from_iterable(one.encoded for one in both)),
        chosen=np.concatenate([one.chosen for one in both]),
        default=np.concatenate([one.default for one in both]),
        propensity=np.concatenate([one.propensity for one in both]),
        value=np.concatenate([one.value for one in both]),
        reward=np.concatenate([one.reward for one in both]),
        discount=np.concatenate([one.discount for one in both]),
        bootstrap=np.concatenate([one.bootstrap for one in both]),
        length=np.concatenate([one.length for one in both]),
        version_lag=np.concatenate([one.version_lag for one in both]),
        allowed=list(chain.from_iterable(one.masks for one in both)),
        cost=_joined_costs(first, second),
        explored=list(chain.from_iterable(one.flags for one in both)),
    )


def newest(window: Trajectories | None, *, decisions: int) -> Trajectories | None:
    """Return as many of the last rollouts as have so many decisions at most; ``None`` for none."""
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
        allowed=None if window.allowed is None else window.allowed[at:],
        cost=None if window.cost is None else window.cost[at:],
        explored=None if window.explored is None else window.explored[at:],
    )


def _joined_costs(first: Trajectories, second: Trajectories) -> FloatArray | None:
    if first.cost is None and second.cost is None:
        return None
    return np.concatenate(
        [
            np.full(len(one.encoded), np.nan) if one.cost is None else one.cost
            for one in (first, second)
        ]
    )


class Batch(NamedTuple):
    """Decisions ready for the loss: crossed once for a whole update.

    Attributes:
        options: Crossed features of the ``M`` allowed options of all ``N`` decisions.
        rows: ``[M]``, the features of those options as they are.
        base: ``[M]``, what a logit is before the scorer adds to it.
        preferred: ``[M]``, 1 for the host's default, else 0.
        starts: ``[N + 1]``, decision ``n`` has the options ``starts[n]:starts[n + 1]``.
        chosen: ``[N]``, which of its allowed options was applied.
        contexts: What the critic sees, as the crossed features of ``N`` "options" of it.
        plain: The contexts as they are, as the crossed features of ``N`` "options".
        explored: ``[M]``, false where an option is unsafe to explore; ``None`` if none is.
        waves: ``[N, count]``, the contexts as kernels see them; ``None`` until that is needed.
    """

    options: Crossed
    rows: Crossed
    base: FloatArray
    preferred: FloatArray
    starts: IntArray
    chosen: IntArray
    contexts: Crossed
    plain: Crossed
    explored: BoolArray | None = None
    waves: FloatArray | None = None

    @property
    def counts(self) -> IntArray:
        """``[N]``, how many options were allowed."""
        return np.diff(self.starts)

    def under(self, policy: Policy, breathe: Breathe = at_once) -> "Batch":
        """Return the same decisions with the base of another policy of the same scale."""
        heard = self.heard_by(policy, breathe) if policy.base.kernel.is_heard else self
        if self.explored is None:
            ridge = policy.base.of(self.options, self.starts, heard.seen)
        else:
            found = policy.base.estimates(self.options, heard.seen)
            ridge = added(policy.base, found, self.starts, self.explored)
        return heard._replace(base=policy.default_bonus * self.preferred + ridge)

    def heard_by(self, policy: Policy, breathe: Breathe = at_once) -> "Batch":
        """Return the same decisions as kernels see them, too."""
        if self.waves is not None:
            return self
        width, count = policy.config.width, policy.config.kernels
        return self._replace(waves=waves_of(self.plain, width, count=count, breathe=breathe))

    @property
    def names(self) -> IntArray:
        """``[M]``, own slots of the options."""
        return self.rows.slots[self.rows.starts[:-1]]

    @property
    def seen(self) -> Seen | None:
        """What kernels see, ``None`` while that was not needed."""
        return None if self.waves is None else Seen(self.names, self.waves, self.counts)

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
            None if self.explored is None else self.explored[at],
            None if self.waves is None else self.waves[decisions],
        )


def batch(policy: Policy, trajectories: Trajectories) -> Batch:
    """Return the decisions of ``trajectories`` as ``policy`` scales and prefers them."""
    return unbased(policy, trajectories).under(policy)


def unbased(policy: Policy, trajectories: Trajectories) -> Batch:
    """Return the same with nothing for a base but what the host prefers."""
    masks = trajectories.masks
    features = rows(trajectories.encoded, masks, policy.scale)
    starts = offsets(features.counts)
    options = crossed(features, width=policy.config.width, cross_width=policy.config.cross_width)
    preferred = _preferred(trajectories, starts)
    chosen = _ranks(trajectories.chosen, masks)
    plain = _contexts(features)
    seen = states(plain, width=policy.config.width)
    return Batch(
        options,
        _options(features),
        preferred,
        preferred,
        starts,
        chosen,
        seen,
        plain,
        _explored(trajectories),
    )


def _contexts(features: Rows) -> Crossed:
    """Return the scaled context rows alone, ``[N]`` of them."""
    at = spans(features.context_starts, features.context_lengths)
    return Crossed(features.slots[at], features.values[at], offsets(features.context_lengths))


def _explored(trajectories: Trajectories) -> BoolArray | None:
    """Return ``[M]`` which of the allowed options are explored; ``None`` if all are."""
    if all(flags is None for flags in trajectories.flags):
        return None
    found = []
    for one, mask, flags in zip(
        trajectories.encoded, trajectories.masks, trajectories.flags, strict=True
    ):
        of = np.ones(one.options, dtype=np.bool_) if flags is None else flags
        found.append(of if mask is None else of[mask])
    return np.concatenate(found)


def _options(features: Rows) -> Crossed:
    """Return the scaled rows of the allowed options alone, ``[M]`` of them."""
    at = spans(features.option_starts, features.option_lengths)
    return Crossed(features.slots[at], features.values[at], offsets(features.option_lengths))


def _preferred(trajectories: Trajectories, starts: IntArray) -> FloatArray:
    preferred = np.zeros(int(starts[-1]))
    allowed_default = trajectories.default >= 0
    for index, mask in enumerate(trajectories.masks):
        if mask is not None and allowed_default[index]:
            allowed_default[index] = mask[trajectories.default[index]]
    ranks = _ranks(np.maximum(trajectories.default, 0), trajectories.masks)
    preferred[(starts[:-1] + ranks)[allowed_default]] = 1.0
    return preferred


def _ranks(indices: IntArray, masks: Sequence[BoolArray | None]) -> IntArray:
    """Return ``[N]`` the places of these options among those allowed."""
    ranks = indices.copy()
    for index, mask in enumerate(masks):
        if mask is not None:
            ranks[index] = int(mask[: indices[index]].sum())
    return ranks
