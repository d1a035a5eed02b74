"""The base of an option's logit: the regression's estimate and its uncertainty. Frozen."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import (
    Array,
    BoolArray,
    Float32Array,
    FloatArray,
    Int32Array,
    IntArray,
    frozen,
    required_array,
)
from tau_live.rl.crossing import Crossed
from tau_live.rl.kernel import Kernel, KernelInput, Kernels
from tau_live.rl.recursive import LEFT_OUT, TARGETS, UNSEEN, Regression
from tau_live.rl.throttle import yield_gil

_SHARPEST = 50.0  # logits by which options differ whose returns are one standard deviation apart
_NUMBERS = 6  # scalars of a base, stored beside its arrays
_CROWD = float(np.sqrt(0.5))  # standard error of one option, as a share of that of a difference

_TINY = float(np.finfo(np.float64).tiny)
_CHUNK = 16_384  # pairs whose parts are looked up together: 4 MB


class Estimates(NamedTuple):
    """Estimates of ``M`` options.

    Attributes:
        gains: ``[M]``, expected reward less the priced cost, in units of reward.
        doubts: ``[M]``, standard errors of the gains.
    """

    gains: FloatArray
    doubts: FloatArray


class EstimatesBySource(NamedTuple):
    """Estimates of ``M`` options, split by their source.

    Attributes:
        slopes: Estimates of the ridge regression on features.
        kernels: ``[M]``, reward expected by the kernel regressions, less the priced cost.
        known: ``[M]``, whether the kernel regressions know the option.
        trust: ``[M]``, their share in its estimate; 0 where they do not know it.
    """

    slopes: Estimates
    kernels: FloatArray
    known: BoolArray
    trust: FloatArray

    def blend(self) -> Estimates:
        """Return the estimates of both, weighted by trust."""
        slopes = self.slopes.gains
        both = slopes + self.trust * (self.kernels - slopes)
        return self.slopes._replace(gains=np.where(self.known, both, slopes))


class Base(NamedTuple):
    """The part of a version's logits below its scorer. Frozen.

    ``base = beta * (Q - lambda * C + alpha * sigma)``. ``beta`` is ``sharpness + log(K - 1) /
    sqrt(2)`` over the root mean square of ``sigma`` among the ``K`` options of that decision: the
    more certain, the sharper, and many rivals together get no more than a single one.

    Attributes:
        columns: ``[cross_width]``, the column of every hashed feature, or ``UNSEEN``.
        gains: ``[D]``, weights of ``Q - lambda * C``.
        draws: ``[D, draws]``, from the posterior, in units of the noise.
        kernel: The kernel regressions.
        noise: Standard deviation of the residuals, in units of reward.
        limit: The largest ``beta``.
        sharpness: See above; 0 switches the base off.
        exploration: ``alpha`` is this times ``sqrt(log(1 + tries / K))``.
        tries: How many decisions were learned from.
        penalty: Ridge penalty: one over the prior variance of a weight.
    """

    columns: Int32Array
    gains: FloatArray
    draws: Float32Array
    kernel: Kernel
    noise: float
    limit: float
    sharpness: float
    exploration: float
    tries: float
    penalty: float

    @classmethod
    def initial(cls, cross_width: int, kernels: int = 0) -> "Base":
        """Return the base that prefers no option; ``kernels`` is the number of waves."""
        columns = np.full(cross_width, UNSEEN, dtype=np.int32)
        columns.setflags(write=False)
        nothing = _frozen32(np.zeros((0, 0)))
        numbers = (*[0.0] * (_NUMBERS - 1), 1.0)
        return cls(columns, frozen(np.zeros(0)), nothing, Kernel.none(kernels), *numbers)

    @property
    def depth(self) -> int:
        """``K``, the length of ``parts``: the gain and the draws of each slot."""
        return 1 + int(self.draws.shape[1])

    def parts(self, slots: IntArray) -> FloatArray:
        """Return ``[K, P]``: gain and draws of each slot, 0 where it has no column."""
        columns = self.columns[slots]
        known = np.flatnonzero(columns >= 0)
        parts = np.zeros((self.depth, len(slots)))
        parts[0, known] = self.gains[columns[known]]
        parts[1:, known] = self.draws[columns[known]].T
        return parts

    def unseen(self, slots: IntArray) -> FloatArray:
        """Return ``[P]``, 1 for slots that were never seen, else 0."""
        unseen: FloatArray = (self.columns[slots] == UNSEEN).astype(np.float64)
        return unseen

    def estimate(self, sums: FloatArray, unknown: FloatArray) -> Estimates:
        """Return the estimates of ``M`` options from sums over their features.

        Args:
            sums: ``[K, M]``, sums of ``parts``, each times the feature.
            unknown: ``[M]``, sums of ``unseen``, each times the feature's square.
        """
        gains, drawn = sums[0], sums[1:]
        spread = np.einsum("dm,dm->m", drawn, drawn) / max(len(drawn), 1)
        return Estimates(gains, self.noise * np.sqrt(spread + unknown / self.penalty))

    def estimates(self, options: Crossed, inputs: KernelInput | None = None) -> Estimates:
        """Return the estimates of ``M`` options; without ``inputs`` from slopes alone."""
        return self.estimates_by_source(options, inputs).blend()

    def estimates_by_source(
        self, options: Crossed, inputs: KernelInput | None
    ) -> EstimatesBySource:
        """Return the estimates of ``M`` options, split by their source."""
        slopes = self.estimate(*self._sums(options))
        if inputs is None:
            nothing = np.zeros(len(slopes.gains))
            return EstimatesBySource(slopes, nothing, nothing > 0.0, nothing)
        return EstimatesBySource(slopes, *self.kernel.predict(inputs))

    def _sums(self, options: Crossed) -> tuple[FloatArray, FloatArray]:
        """Return ``sums [K, M]`` and ``unknown [M]`` of the options, as ``estimate`` takes them."""
        count = len(options.starts) - 1
        sums, unknown = np.zeros((self.depth, count)), np.zeros(count)
        for part, pairs, edges in options.parts(_CHUNK):  # all at once would fill the memory
            slots, values = options.slots[pairs], options.values[pairs]
            products = self.parts(slots)
            products *= values
            sums[:, part] = np.add.reduceat(products, edges, axis=1)
            unknown[part] = np.add.reduceat(self.unseen(slots) * values**2, edges)
            yield_gil()
        return sums, unknown

    def variety(self, options: Crossed, names: IntArray) -> float:
        """Return the uncertainty in one context over that of an option's mean over contexts.

        A ratio of root mean squares, at least 1, which it is where the context never differs.

        Args:
            options: Crossed features of ``M`` options of several decisions.
            names: ``[M]``, the same number for the same option.
        """
        drawn = self._sums(options)[0][1:]
        _, groups, sizes = np.unique(names, return_inverse=True, return_counts=True)
        here = average = 0.0
        for draw in drawn:
            here += float(np.add.reduce(draw**2))
            average += float(np.add.reduce(np.bincount(groups, weights=draw) ** 2 / sizes))
        return float(np.sqrt(here / average)) if 0.0 < average < here else 1.0

    def interpolate(self, other: "Base", share: float) -> "Base":
        """Interpolate from another base (``share`` 0) to this one (1), with this one's draws."""
        both = np.flatnonzero((self.columns >= 0) & (other.columns >= 0))
        before = np.zeros(len(self.gains))
        before[self.columns[both]] = other.gains[other.columns[both]]
        return self._replace(
            gains=frozen((1.0 - share) * before + share * self.gains),
            kernel=self.kernel.interpolate(other.kernel, share),
            exploration=(1.0 - share) * other.exploration + share * self.exploration,
        )

    def logits(
        self, estimates: Estimates, starts: IntArray, explored: BoolArray | None = None
    ) -> FloatArray:
        """Return ``[M]``, the contribution of estimates to the logits.

        Args:
            estimates: Estimates of the options.
            starts: ``[N + 1]``, decision ``n`` has the options ``starts[n]:starts[n + 1]``.
            explored: ``[M]``, false where uncertainty earns no bonus; ``None`` explores all.
        """
        counts = starts[1:] - starts[:-1]
        betas, alphas = self.betas(estimates.doubts, starts), self.alphas(counts)
        if len(betas) > 1:
            betas, alphas = np.repeat(betas, counts), np.repeat(alphas, counts)
        added: FloatArray = betas * (estimates.gains + alphas * estimates.doubts)
        return added if explored is None else np.where(explored, added, betas * estimates.gains)

    def alphas(self, counts: IntArray) -> FloatArray:
        """Return ``[N]`` the exploration bonus in standard errors, given ``[N]`` counts of options.

        Source:
            The root of a logarithm is the rate of upper confidence bounds (Auer et al. 2002);
            dividing the tries by the options is from Audibert and Bubeck 2009 (MOSS).
        """
        alphas: FloatArray = self.exploration * np.sqrt(np.log1p(self.tries / counts))
        return alphas

    def betas(self, doubts: FloatArray, starts: IntArray) -> FloatArray:
        """Return ``[N]`` the logits per unit of reward, from ``doubts [M]`` of the options."""
        counts = starts[1:] - starts[:-1]
        means = np.add.reduceat(doubts**2, starts[:-1]) / counts
        sharpness = self.sharpness + _CROWD * np.log(np.maximum(counts - 1, 1))
        scales = np.maximum(np.sqrt(means), np.maximum(sharpness, 1.0) * _TINY)  # finite quotients
        betas: FloatArray = np.minimum(sharpness / scales, self.limit)
        return betas

    def arrays(self) -> dict[str, Array]:
        """Return all arrays by name."""
        return {
            "base_columns": self.columns,
            "base_gains": self.gains,
            "base_draws": self.draws,
            **self.kernel.arrays(),
            "base_numbers": np.array([*self[-_NUMBERS:], *self.draws.shape]),
        }

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, Array], *, cross_width: int, kernels: int = 0
    ) -> "Base":
        """Return the base that ``arrays`` gave.

        Raises:
            ValueError: An array is missing or malformed.
        """
        *numbers, size, draws = required_array(arrays, "base_numbers", (_NUMBERS + 2,)).tolist()
        columns = required_array(arrays, "base_columns", (cross_width,)).astype(np.int32)
        if (
            columns.min() < LEFT_OUT
            or columns.max() >= size
            or min(numbers) < 0.0
            or numbers[-1] <= 0.0
        ):
            raise ValueError("base_columns or base_numbers are out of range")
        columns.setflags(write=False)
        return cls(
            columns,
            frozen(required_array(arrays, "base_gains", (int(size),))),
            _frozen32(required_array(arrays, "base_draws", (int(size), int(draws)))),
            Kernel.from_arrays(arrays, width=kernels),
            *numbers,
        )


def base_of(  # noqa: PLR0913  # keyword-only but for the first
    known: Regression,
    *,
    sharpness: float,
    exploration: float,
    penalty: float,
    multiplier: float,
    together: float = 1.0,
    kernels: Kernels | None = None,
) -> Base:
    """Return the base that follows from the regressions.

    Args:
        known: The ridge regression.
        sharpness: Logits for a difference of one standard error, at least 0.
        exploration: Bonus for being unknown, in standard errors, at least 0.
        penalty: Ridge penalty, above 0.
        multiplier: Price of one unit of cost in units of reward, at least 0.
        together: Mean decisions of a rollout, at least 1: they share its luck, so they tell as
            much as one (the design effect of Kish 1965, section 5.4, for clustered samples).
        kernels: The kernel regressions; ``None`` leaves them out.
    """
    kernels = Kernels.empty(0) if kernels is None else kernels
    columns = known.columns.of.copy()
    columns.setflags(write=False)
    deviation = known.deviation + multiplier * known.cost_deviation  # of the sum, at most
    if deviation <= 0.0:
        return Base.initial(len(columns), kernels.width)
    unexplained = kernels.sums.residual_share * known.noise + multiplier * known.cost_noise
    noise = max(unexplained * float(np.sqrt(together)), _TINY)
    return Base(
        columns,
        frozen(known.reward - multiplier * known.cost),
        _frozen32(known.weights[:, TARGETS:]),
        kernels.to_kernel(multiplier, (known.mean, known.cost_mean)),
        noise,
        _SHARPEST / max(deviation, noise),
        sharpness,
        exploration,
        float(known.samples),
        penalty,
    )


def _frozen32(array: FloatArray) -> Float32Array:
    copy = np.array(array, dtype=np.float32)
    copy.setflags(write=False)
    return copy
