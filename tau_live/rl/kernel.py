"""A kernel regression for each option, for what slopes cannot represent; its trust is earned.

Beside the ridge regression on slopes there is, for each option by its name, one on random Fourier
features of the context. Both predict every return before they learn from it. The trust in the
second, from 0 to 1, is how far it would have corrected the errors of the first; and its penalty is
the one that would have predicted best.

The inner product of these features is on average the mean of two Gaussian kernels of two contexts,
a wide one and a narrow one, whatever their number. The frequencies are hashed, so no version has to
carry them.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tau_live.rl.arrays import Array, BoolArray, FloatArray, IntArray, frozen, required_array
from tau_live.rl.crossing import Crossed
from tau_live.rl.recursive import NUMBERS, OF_SQUARES, TARGETS, Columns, Regression
from tau_live.rl.throttle import yield_gil

MOST = 32
"""Most options with a regression of their own: the first that came. Each takes half a megabyte."""

_SURE = 1.5  # standard errors by which the improvement must be above 0
_FAR = 2.0  # the same for another penalty
_LEAST, _LARGEST = 1 / 32, 32.0


class KernelInput(NamedTuple):
    """The input of kernels: ``N`` decisions with ``M`` options.

    Attributes:
        names: ``[M]``, slots of the options' names.
        waves: ``[N, width]``, features of the contexts.
        counts: ``[N]``, how many options each has; they sum to ``M``.
    """

    names: IntArray
    waves: FloatArray
    counts: IntArray


class Kernel(NamedTuple):
    """The kernel regressions of a version. Frozen.

    Attributes:
        names: ``[O]``, slots of options' names, ascending.
        gains: ``[O, width]``, weights of ``Q - lambda * C``.
        trust: ``[O]``, share of the kernel in the estimate of each option, in ``[0, 1]``.
    """

    names: IntArray
    gains: FloatArray
    trust: FloatArray

    @classmethod
    def none(cls, width: int) -> "Kernel":
        """Return the kernel that knows no option."""
        return cls(np.zeros(0, dtype=np.int64), frozen(np.zeros((0, width))), frozen(np.zeros(0)))

    @property
    def width(self) -> int:
        """How many waves there are."""
        return int(self.gains.shape[1])

    @property
    def is_trusted(self) -> bool:
        """Whether it has a share in any estimate."""
        return bool(self.trust.any())

    def places(self, names: IntArray) -> tuple[IntArray, BoolArray]:
        """Return ``[M]`` the rows of options, and ``[M]`` whether the kernel knows them."""
        if not len(self.names):
            return np.zeros(len(names), dtype=np.int64), np.zeros(len(names), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self.names, names), len(self.names) - 1)
        return at, self.names[at] == names

    def predict(self, inputs: KernelInput) -> tuple[FloatArray, BoolArray, FloatArray]:
        """Return the estimates of ``M`` options.

        Returns:
            ``[M]`` of ``Q - lambda * C``, 0 for unknown options; ``[M]``, whether the option is
            known; and ``[M]``, the kernel's share in the estimate, 0 for unknown options.
        """
        at, known = self.places(inputs.names)
        if not len(self.names):
            return np.zeros(len(at)), known, np.zeros(len(at))
        owners = np.repeat(np.arange(len(inputs.counts)), inputs.counts)
        gains = np.einsum("nc,oc->no", inputs.waves, self.gains)[owners, at]
        return np.where(known, gains, 0.0), known, np.where(known, self.trust[at], 0.0)

    def interpolate(self, other: "Kernel", share: float) -> "Kernel":
        """Interpolate from another kernel (``share`` 0) to this one (1).

        An option that the other did not know was left to slopes there: its trust begins at 0.
        """
        gains, trust = self.gains.copy(), np.zeros(len(self.names))
        at, known = other.places(self.names)
        if known.any():  # a policy without kernels is of another width
            gains[known], trust[known] = other.gains[at[known]], other.trust[at[known]]
        return Kernel(
            self.names,
            frozen((1.0 - share) * gains + share * self.gains),
            frozen((1.0 - share) * trust + share * self.trust),
        )

    def arrays(self) -> dict[str, Array]:
        """Return everything by name."""
        return {
            "kernel_names": self.names,
            "kernel_gains": self.gains,
            "kernel_trust": self.trust,
            "kernel_size": np.array([len(self.names), *_WIDTHS]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], *, width: int) -> "Kernel":
        """Return the kernel that ``arrays`` gave.

        Raises:
            ValueError: An array is missing or malformed.
        """
        if _has_other_waves(arrays):
            return cls.none(width)
        size, *widths = required_array(arrays, "kernel_size", (1 + len(_WIDTHS),)).tolist()
        if widths != [*_WIDTHS]:
            raise ValueError(f"kernel_size is of other waves: {widths!r}")
        names = _names(arrays, "kernel_names", int(size))
        if (np.diff(names) < 0).any():  # ``places`` searches them by bisection
            raise ValueError("kernel_names must be ascending")
        trust = required_array(arrays, "kernel_trust", (len(names),))
        if (trust < 0.0).any() or (trust > 1.0).any():
            raise ValueError(f"kernel_trust is out of range: {trust.tolist()!r}")
        gains = required_array(arrays, "kernel_gains", (len(names), width))
        return cls(names, frozen(gains), frozen(trust))


class Sums(NamedTuple):
    """How well slopes predicted returns, and how much better kernels did.

    Kernels are judged by how they tell options apart, not by how well they know the context: the
    mean of their correction over all options is subtracted.

    Attributes:
        samples: How many returns.
        errors: Sum of squared errors of slopes.
        blind: The same with that mean subtracted from the errors.
        mended: Sum of those errors, each times the kernels' correction beside the mean.
        changes: Sum of squares of that correction.
    """

    samples: float = 0.0
    errors: float = 0.0
    blind: float = 0.0
    mended: float = 0.0
    changes: float = 0.0

    def including(self, errors: FloatArray, shared: FloatArray, own: FloatArray) -> "Sums":
        """Return the sums with more returns, ``[M]``.

        Args:
            errors: ``[M]``, errors of slopes.
            shared: ``[M]``, the kernels' mean correction over all options.
            own: ``[M]``, their correction of the chosen option beside that mean.
        """
        blind = errors - shared
        return Sums(
            self.samples + len(errors),
            self.errors + float(np.add.reduce(errors**2)),
            self.blind + float(np.add.reduce(blind**2)),
            self.mended + float(np.add.reduce(blind * own)),
            self.changes + float(np.add.reduce(own**2)),
        )

    @property
    def trust(self) -> float:
        """Share of kernels that would have predicted best, 0 if that may be chance.

        Source:
            Breiman 1996, "Stacked Regressions", section 2: least squares on predictions.
        """
        spread = np.sqrt(self.blind / max(self.samples, 1.0))
        if not self.mended > _SURE * float(np.sqrt(self.changes) * spread):  # also refuses NaN
            return 0.0
        return min(self.mended / self.changes, 1.0)

    @property
    def residual_share(self) -> float:
        """Deviation of the remaining errors as a share of that of slopes alone, at most 1."""
        trust = self.trust
        if not trust or not self.errors:
            return 1.0
        squares = self.blind - 2.0 * trust * self.mended + trust**2 * self.changes
        return float(np.sqrt(min(max(squares, 0.0) / self.errors, 1.0)))


class Penalty(NamedTuple):
    """The ridge penalty of kernels, and the evidence for another one.

    With weights ``w``, covariance ``P`` and waves ``x``, the prediction ``x . w`` changes by
    ``m = -penalty * x . P w`` with the logarithm of the penalty. An error ``e`` made before
    learning gets smaller with a larger penalty where ``e * m`` is above 0.

    Attributes:
        value: Noise variance over the prior variance of returns over contexts.
        gain: Sum of ``e * m``.
        squares: Sum of their squares.
    """

    value: float = 0.125
    gain: float = 0.0
    squares: float = 0.0

    def including(self, errors: FloatArray, moves: FloatArray) -> "Penalty":
        """Return it with more errors ``e`` and moves ``m``, each ``[M]``.

        It is doubled where that would have predicted better beyond chance, and halved where that
        would; the evidence then begins anew.
        """
        gains = errors * moves
        gain = self.gain + float(np.add.reduce(gains))
        squares = self.squares + float(np.add.reduce(gains**2))
        if not abs(gain) > _FAR * float(np.sqrt(squares)):  # also refuses NaN
            return Penalty(self.value, gain, squares)
        value = self.value * 2.0 if gain > 0.0 else self.value / 2.0
        return Penalty(min(max(value, _LEAST), _LARGEST))


class Kernels(NamedTuple):
    """The state of the kernel regressions.

    Attributes:
        names: ``[O]``, slots of options' names, in the order in which they came.
        fits: One regression for each.
        sums: The evidence for their trust.
        penalty: Their ridge penalty.
        width: How many waves there are; 0 leaves kernels out.
    """

    names: IntArray
    fits: tuple[Regression, ...]
    sums: Sums
    penalty: Penalty
    width: int

    @classmethod
    def empty(cls, width: int) -> "Kernels":
        """Return the regressions without samples."""
        return cls(np.zeros(0, dtype=np.int64), (), Sums(), Penalty(), width)

    def including(
        self,
        names: IntArray,
        waves: FloatArray,
        rewards: FloatArray,
        costs: FloatArray,
        *,
        cost_mean: float = 0.0,
    ) -> "Kernels":
        """Return the regressions with more samples.

        Args:
            names: ``[M]``, slots of the names of the options that were chosen.
            waves: ``[M, width]``, features of the contexts.
            rewards: ``[M]``.
            costs: ``[M]``, NaN where unknown.
            cost_mean: Mean cost of all options: an unknown cost must not make an option cheap.
        """
        new = names[~np.isin(names, self.names)]
        new = new[np.sort(np.unique(new, return_index=True)[1])][: MOST - len(self.names)]
        known = np.concatenate([self.names, new])
        fits = [*self.fits, *[Regression.empty(self.width, self.width, draws=0) for _ in new]]
        unused_rng = np.random.default_rng(0)  # without draws nothing is drawn
        for place in range(len(known)):
            at = np.flatnonzero(names == known[place])
            fits[place] = fits[place].including(
                _dense(waves[at]),
                rewards[at],
                costs[at],
                penalty=self.penalty.value,
                rng=unused_rng,
                cost_mean=cost_mean,
            )
        return self._replace(names=known, fits=tuple(fits))

    def judge(
        self,
        inputs: KernelInput,
        slopes: FloatArray,
        rewards: FloatArray,
        *,
        chosen: IntArray,
        probabilities: FloatArray,
        mean: float,
    ) -> "Kernels":
        """Return the regressions with trust and penalty updated by decisions not learned from yet.

        Args:
            inputs: ``N`` decisions with ``M`` options.
            slopes: ``[M]``, estimates of the ridge regression, less the mean.
            rewards: ``[N]``, returns.
            chosen: ``[N]``, indices of the chosen options among the ``M``.
            probabilities: ``[M]``, of the options.
            mean: Mean of all returns.
        """
        gains, known, _ = self.to_kernel(0.0, (mean, 0.0), trust=1.0).predict(inputs)
        change = np.where(known, gains - slopes, 0.0)
        starts = np.cumsum(inputs.counts) - inputs.counts
        shared = np.add.reduceat(probabilities * change, starts)
        errors = rewards - mean - slopes[chosen]
        sums = self.sums.including(errors, shared, change[chosen] - shared)
        order = np.argsort(self.names)
        by_penalty = [
            -self.penalty.value * np.einsum("ij,j->i", fit.covariance, fit.gain(mean))
            for fit in self.fits
        ]
        moving = Kernel(self.names[order], np.array(by_penalty)[order], np.ones(len(order)))
        moves = moving.predict(inputs)[0][chosen]
        seen = known[chosen]
        penalty = self.penalty.including((rewards - mean - gains[chosen])[seen], moves[seen])
        more = penalty.value - self.penalty.value
        fits = tuple(fit.penalise(more) for fit in self.fits) if more else self.fits
        return self._replace(fits=fits, sums=sums, penalty=penalty)

    def restart(self) -> "Kernels":
        """Return the regressions without samples, trusted and penalised as before."""
        return Kernels.empty(self.width)._replace(sums=self.sums, penalty=self.penalty)

    def forget(self, names: IntArray) -> "Kernels":
        """Return the regressions without these options."""
        kept = ~np.isin(self.names, names)
        fits = tuple(fit for fit, keeps in zip(self.fits, kept, strict=True) if keeps)
        return self._replace(names=self.names[kept], fits=fits)

    def to_kernel(
        self, multiplier: float, means: tuple[float, float], *, trust: float | None = None
    ) -> Kernel:
        """Return the frozen kernel of a version.

        Args:
            multiplier: Price of one unit of cost in units of reward, at least 0.
            means: Mean of all rewards, and of all costs.
            trust: Share of kernels in an estimate, in ``[0, 1]``; ``None`` takes ``sums.trust``.
        """
        if not self.fits:
            return Kernel.none(self.width)
        mean, cost_mean = means
        gains = [fit.gain(mean, cost_mean=cost_mean, multiplier=multiplier) for fit in self.fits]
        order = np.argsort(self.names)
        trusts = np.full(len(order), self.sums.trust if trust is None else trust)
        return Kernel(self.names[order], frozen(np.array(gains)[order]), frozen(trusts))

    def arrays(self) -> dict[str, Array]:
        """Return all arrays by name, options stacked; of symmetric covariances one half."""
        options, width = len(self.fits), self.width
        upper = np.triu_indices(width)
        covariances = np.empty((options, len(upper[0])))
        weights = np.empty((options, width, TARGETS))
        for place, fit in enumerate(self.fits):
            covariances[place], weights[place] = fit.covariance[upper], fit.weights
        numbers = [fit.numbers for fit in self.fits]
        return {
            "kernels_names": self.names,
            "kernels_sums": np.array([options, *self.sums, *self.penalty]),
            "kernels_numbers": np.array(numbers).reshape(options, NUMBERS),
            "kernels_covariances": covariances,
            "kernels_weights": weights,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], *, width: int) -> "Kernels":
        """Return the regressions that ``arrays`` gave.

        Raises:
            ValueError: An array is missing or malformed.
        """
        if _has_other_waves(arrays) or np.size(arrays.get("kernels_sums", ())) == 1 + _SUMS:
            return cls.empty(width)
        size, *rest = required_array(
            arrays, "kernels_sums", (1 + _SUMS + len(Penalty._fields),)
        ).tolist()
        options, sums, penalty = int(size), Sums(*rest[:_SUMS]), Penalty(*rest[_SUMS:])
        if (
            not 0 <= options <= MOST
            or min(*sums[:3], sums.changes, penalty.squares) < 0.0
            or not _LEAST <= penalty.value <= _LARGEST
        ):
            raise ValueError(f"kernels_sums are out of range: {size!r}, {sums!r}, {penalty!r}")
        names, upper = _names(arrays, "kernels_names", options), np.triu_indices(width)
        halves = required_array(arrays, "kernels_covariances", (options, len(upper[0])))
        weights = required_array(arrays, "kernels_weights", (options, width, TARGETS))
        numbers = required_array(arrays, "kernels_numbers", (options, NUMBERS))
        if options and numbers[:, OF_SQUARES].min() < 0.0:
            raise ValueError("kernels_numbers are out of range")
        columns = Columns(np.arange(width, dtype=np.int32), width, width)
        fits = []
        for place in range(options):
            samples, *moments = numbers[place].tolist()
            covariance = np.empty((width, width))
            covariance[upper] = halves[place]
            covariance.T[upper] = halves[place]
            parameters = covariance, np.zeros(0), weights[place].copy()
            fits.append(Regression(columns, width, *parameters, int(samples), *moments))
        return cls(names, tuple(fits), sums, penalty, width)


def _dense(waves: FloatArray) -> Crossed:
    samples, width = waves.shape
    slots = np.tile(np.arange(width), samples)
    return Crossed(slots, waves.ravel(), np.arange(samples + 1) * width)


_SUMS = len(Sums._fields)


def _has_other_waves(arrays: Mapping[str, Array]) -> bool:
    """Whether an earlier version made these arrays, with waves of one width."""
    return np.size(arrays.get("kernel_size", ())) == 1


def _names(arrays: Mapping[str, Array], name: str, size: int) -> IntArray:
    names = required_array(arrays, name, (size,)).astype(np.int64)
    if len(np.unique(names)) != len(names):
        raise ValueError(f"{name} must be distinct")
    return names


_WIDTHS = (0.4, 0.8)  # deviations of frequencies by turns, for contexts of length 2 on average
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_PHASES = np.uint64(2**40)  # first key of the phases, after those of all slots
_PARTS = np.arange(0, 64, 16, dtype=np.uint64)
_CHUNK = 2**16  # entries times features that are added up together: 512 KB


def frequencies(slots: IntArray, width: int, *, count: int) -> FloatArray:
    """Return ``[C, count]``, the frequencies of each feature of a context.

    Args:
        slots: ``[C]``, in ``[0, width]``; the constant, in the slot ``width``, has frequency 0.
        width: Slots of features.
        count: Number of waves.

    Source:
        Steele, Lea and Flood 2014 (SplitMix64). The sum of four equal parts of a hash is nearly
        normal, with the same bits on every machine.
    """
    keys = slots.astype(np.int64)[:, None] * count + np.arange(count)
    hashed = _mix(keys.astype(np.uint64))
    total = np.zeros(hashed.shape)
    for shift in _PARTS:
        total += ((hashed >> shift) & np.uint64(0xFFFF)).astype(np.float64)
    normal = (total / 65_535.0 - 2.0) * np.sqrt(3.0)
    deviations = np.resize(_WIDTHS, count)
    normals: FloatArray = np.where((slots == width)[:, None], 0.0, deviations * normal)
    return normals


def phases(count: int) -> FloatArray:
    """Return ``[count]``, the phase of each wave, in ``[0, 2 pi)``."""
    hashed = _mix(_PHASES + np.arange(count, dtype=np.uint64))
    phases: FloatArray = (hashed >> np.uint64(11)).astype(np.float64) * (2.0 * np.pi / 2.0**53)
    return phases


def waves(angles: FloatArray) -> FloatArray:
    """Return ``[..., count]`` features from ``angles [..., count]``; rows are about of length 1.

    Source:
        Rahimi and Recht 2007, "Random Features for Large-Scale Kernel Machines", algorithm 1.
    """
    cosines = np.cos(angles)
    cosines *= np.sqrt(2.0 / angles.shape[-1])
    return cosines


def features(contexts: Crossed, width: int, *, count: int) -> FloatArray:
    """Return ``[N, count]`` features of contexts.

    Args:
        contexts: ``N`` scaled contexts, each with at least one entry.
        width: Slots of features.
        count: Number of waves.
    """
    known, at = np.unique(contexts.slots, return_inverse=True)
    table, begin = frequencies(known, width, count=count), phases(count)
    features = np.empty((len(contexts.starts) - 1, count))
    yield_gil()
    for part, entries, edges in contexts.parts(_CHUNK // count):
        products = table[at[entries]]
        products *= contexts.values[entries, None]
        features[part] = waves(np.add.reduceat(products, edges, axis=0) + begin)
        yield_gil()
    return features


def _mix(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed = (keys + np.uint64(1)) * _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
