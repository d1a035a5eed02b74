"""Recursive ridge regression, updated decision by decision, with draws from its posterior.

The base of a policy. A sample costs the square of the number of features seen, up to a limit:
features that come later have a variance, but no covariances. Products are too small to be split
among threads (``arrays``), so the bits do not depend on how many there are.

Besides the targets, the same regression is run on noise. Its weights for the noise are draws from
the posterior, so that a few per feature give the uncertainty of any combination of features: a
decision needs no matrix.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import (
    Array,
    FloatArray,
    Int32Array,
    IntArray,
    add_gram,
    cholesky,
    forward,
    lengths_of,
    multiply,
    required_array,
)
from tau_live.rl.crossing import Crossed
from tau_live.rl.throttle import yield_gil

DRAWS = 32
"""Draws from the posterior: the uncertainty of a combination is known to one part in eight."""

UNSEEN, LEFT_OUT = -1, -2
"""In place of a column: the feature was never seen, or came when no column was left."""

REWARD, COST, ONE = 0, 1, 2
TARGETS = 3
_MOMENTS = 6  # of rewards and costs, three each
NUMBERS = 1 + _MOMENTS
OF_SQUARES = [0, 2, 3, 5, 6]
"""Indices of the numbers of a regression that are at least 0: samples, and sums of squares."""

_LEAST_NOISE = 0.01  # smallest noise, as a share of the deviation of returns


class Columns(NamedTuple):
    """Which features have a column of their own: the first that came, up to a limit.

    Attributes:
        of: ``[slots]``, the column of every hashed feature, or ``UNSEEN`` or ``LEFT_OUT``.
        used: How many columns are used.
        most: How many there may be.
    """

    of: Int32Array
    used: int
    most: int

    @classmethod
    def none(cls, slots: int, most: int) -> "Columns":
        """Return the columns before any feature was seen."""
        return cls(np.full(slots, UNSEEN, dtype=np.int32), 0, most)

    def including(self, slots: IntArray) -> "Columns":
        """Return the columns with one for every new slot, in the order in which they came."""
        unseen = slots[self.of[slots] == UNSEEN]
        if not len(unseen):
            return self
        new = unseen[np.sort(np.unique(unseen, return_index=True)[1])]
        of = self.of.copy()
        room = self.most - self.used
        of[new[:room]] = np.arange(self.used, self.used + min(room, len(new)), dtype=np.int32)
        of[new[room:]] = LEFT_OUT
        return Columns(of, min(self.most, self.used + len(new)), self.most)


class Regression(NamedTuple):
    """The state of a regression.

    Attributes:
        columns: The features that it knows.
        joint: How many columns may have covariances, those of the features that came first.
        covariance: ``[J, J]``, inverse of the penalised sum of outer products.
        variances: ``[D - J]``, of the columns that have no covariances.
        weights: ``[D, TARGETS + draws]``: of the reward, the cost, a constant 1, and of noise.
        samples: How many; what has faded counts in part.
        mean: Mean reward.
        squares: Sum of squared distances of the rewards from their mean.
        residuals: Sum of squared errors of the rewards, each predicted from the samples before.
        cost_mean: Mean cost, an unknown one counting as the mean before it.
        cost_squares: Sum of squared distances of the costs from their mean.
        cost_residuals: Sum of squared errors of the known costs, predicted likewise.
    """

    columns: Columns
    joint: int
    covariance: FloatArray
    variances: FloatArray
    weights: FloatArray
    samples: float
    mean: float
    squares: float
    residuals: float
    cost_mean: float
    cost_squares: float
    cost_residuals: float

    @classmethod
    def empty(cls, slots: int, joint: int, *, draws: int = DRAWS) -> "Regression":
        """Return the regression without samples."""
        columns, weights = Columns.none(slots, slots), np.zeros((0, TARGETS + draws))
        nothing = np.zeros((0, 0)), np.zeros(0)
        return cls(columns, joint, *nothing, weights, 0, *[0.0] * _MOMENTS)

    @property
    def draws(self) -> int:
        """How many draws from the posterior there are."""
        return len(self.weights.T) - TARGETS

    @property
    def deviation(self) -> float:
        """Standard deviation of the rewards."""
        return self._root_mean(self.squares)

    @property
    def noise(self) -> float:
        """Standard deviation of the rewards' residuals."""
        return max(self._root_mean(self.residuals), _LEAST_NOISE * self.deviation)

    @property
    def cost_deviation(self) -> float:
        """Standard deviation of the costs."""
        return self._root_mean(self.cost_squares)

    @property
    def cost_noise(self) -> float:
        """Standard deviation of the costs' residuals."""
        return max(self._root_mean(self.cost_residuals), _LEAST_NOISE * self.cost_deviation)

    @property
    def reward(self) -> FloatArray:
        """``[D]``, weights of the reward less its mean."""
        weights: FloatArray = self.weights[:, REWARD] - self.mean * self.weights[:, ONE]
        return weights

    @property
    def cost(self) -> FloatArray:
        """``[D]``, weights of the cost less its mean."""
        weights: FloatArray = self.weights[:, COST] - self.cost_mean * self.weights[:, ONE]
        return weights

    def gain(self, mean: float, *, cost_mean: float = 0.0, multiplier: float = 0.0) -> FloatArray:
        """Return ``[slots]`` weights of the reward less the priced cost, both centred."""
        reward, cost, intercept = (self.weights[:, at] for at in (REWARD, COST, ONE))
        padded = np.append(
            reward - mean * intercept - multiplier * (cost - cost_mean * intercept), 0.0
        )
        weights: FloatArray = padded[np.maximum(self.columns.of, -1)]
        return weights

    def including(
        self,
        features: Crossed,
        rewards: FloatArray,
        costs: FloatArray | None = None,
        *,
        penalty: float,
        rng: np.random.Generator,
        cost_mean: float | None = None,
    ) -> "Regression":
        """Return the regression with more samples.

        Args:
            features: Features of ``M`` samples.
            rewards: ``[M]``.
            costs: ``[M]``, NaN where unknown; ``None`` where none is known.
            penalty: Ridge penalty on squared weights, above 0; the mean is not penalised.
            rng: Source of the noise.
            cost_mean: Mean of all costs, where these samples are only some of them.

        Source:
            Plackett 1950, "Some theorems in least squares" (recursive least squares); the noise
            targets are those of Osband et al. 2018, arXiv:1806.03335, section 3; variances alone
            are those of AROW with a diagonal matrix, Crammer et al. 2009, section 6.
        """
        if not len(rewards):
            return self
        costs = np.full(len(rewards), np.nan) if costs is None else costs
        grown = _widen(self, features.slots, penalty=penalty, rng=rng)
        updated = _update_moments(grown, rewards, costs)
        updated = updated if cost_mean is None else updated._replace(cost_mean=cost_mean)
        return _update_weights(updated, features, rewards, costs, rng=rng)

    def forget(self, slots: IntArray, *, penalty: float, rng: np.random.Generator) -> "Regression":
        """Return the regression with these features unlearned, all others as they are."""
        columns = np.unique(self.columns.of[slots])
        columns = columns[columns >= 0]
        covariance, variances = self.covariance.copy(), self.variances.copy()
        weights, joint = self.weights.copy(), len(covariance)
        variances[columns[columns >= joint] - joint] = 1.0 / penalty
        weights[columns] = 0.0
        draws = rng.standard_normal((len(columns), self.draws)) / np.sqrt(penalty)
        weights[columns, TARGETS:] = draws
        columns = columns[columns < joint]
        covariance[columns, :] = 0.0
        covariance[:, columns] = 0.0
        covariance[columns, columns] = 1.0 / penalty
        return self._replace(covariance=covariance, variances=variances, weights=weights)

    def fade(self, share: float, *, penalty: float, rng: np.random.Generator) -> "Regression":
        """Return the regression with a share of its evidence forgotten.

        Every weight drifts back toward its prior, as in an Ornstein-Uhlenbeck process observed
        through the samples: ``P' = (1 - share) P + share / penalty``.

        Args:
            share: How much, in ``[0, 1]``.
            penalty: Ridge penalty, above 0.
            rng: Source of the noise that the draws gain.
        """
        kept = 1.0 - share
        covariance = self.covariance * kept
        np.fill_diagonal(covariance, covariance.diagonal() + share / penalty)
        weights = self.weights * float(np.sqrt(kept))
        fresh = rng.standard_normal((len(weights), self.draws))
        weights[:, TARGETS:] += float(np.sqrt(share / penalty)) * fresh
        return self._replace(
            covariance=covariance,
            variances=self.variances * kept + share / penalty,
            weights=weights,
            samples=kept * self.samples,
            squares=kept * self.squares,
            residuals=kept * self.residuals,
            cost_squares=kept * self.cost_squares,
            cost_residuals=kept * self.cost_residuals,
        )

    def penalise(self, more: float) -> "Regression":
        """Return the regression, which has no draws, with a ridge penalty larger by ``more``.

        Each weight is observed once more, as 0: a sample of the weight ``more``, which may be
        negative.

        Args:
            more: Above minus the penalty, and not 0.

        Source:
            The matrix inversion lemma, Golub and Van Loan 2013, section 2.1.4.
        """
        covariance, weights = self.covariance.copy(), self.weights.copy()
        sign = float(np.sign(more))
        for begin in range(0, len(weights), BLOCK):
            part = slice(begin, begin + BLOCK)
            rows, known = covariance[part].copy(), weights[part].copy()
            spread = sign * covariance[part, part] + np.eye(len(rows)) / abs(more)
            inverse = forward(cholesky(spread), np.eye(len(rows)))
            scaled, shift = np.empty_like(rows), np.empty_like(known)
            multiply(inverse, rows, out=scaled)
            multiply(inverse, known, out=shift)
            moved = np.empty_like(weights)
            multiply(scaled.T, shift, out=moved)
            weights -= sign * moved
            add_gram(covariance, scaled, sign=-sign)
        return self._replace(covariance=covariance, weights=weights)

    @property
    def numbers(self) -> FloatArray:
        """``[NUMBERS]``, the sample count and the moments."""
        return np.array([self.samples, *self[-_MOMENTS:]])

    def _root_mean(self, squares: float) -> float:
        return float(np.sqrt(squares / max(self.samples, 1)))

    def arrays(self, prefix: str) -> dict[str, Array]:
        """Return all arrays by name; of the symmetric covariance one half."""
        upper = np.triu_indices(len(self.covariance))
        return {
            f"{prefix}_columns": self.columns.of,
            f"{prefix}_covariance": self.covariance[upper],
            f"{prefix}_variances": self.variances,
            f"{prefix}_weights": self.weights,
            f"{prefix}_numbers": np.append(self.numbers, self.columns.used),
        }

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, Array], prefix: str, *, slots: int, joint: int, draws: int = DRAWS
    ) -> "Regression":
        """Return the regression that ``arrays`` gave.

        Earlier versions had no columns but ``joint``; features that they left out are new.

        Raises:
            ValueError: An array is missing or malformed.
        """
        numbers = required_array(arrays, f"{prefix}_numbers", (NUMBERS + 1,)).tolist()
        samples, *moments, used = numbers
        if min(numbers[at] for at in OF_SQUARES) < 0.0 or not 0 <= used <= slots:
            raise ValueError(f"{prefix}_numbers are out of range: {numbers!r}")
        size = int(used)
        columns = required_array(arrays, f"{prefix}_columns", (slots,)).astype(np.int32)
        if len(columns) and (columns.min() < LEFT_OUT or columns.max() >= max(size, 0)):
            raise ValueError(f"{prefix}_columns must be within [{LEFT_OUT}, {size})")
        columns[columns == LEFT_OUT] = UNSEEN
        covariance = np.zeros((min(size, joint), min(size, joint)))
        upper = np.triu_indices(len(covariance))
        covariance[upper] = required_array(arrays, f"{prefix}_covariance", (len(upper[0]),))
        covariance.T[upper] = covariance[upper]
        variances = np.zeros(0)
        if size > joint or f"{prefix}_variances" in arrays:
            variances = required_array(arrays, f"{prefix}_variances", (size - len(covariance),))
        if variances.min(initial=0.0) < 0.0:
            raise ValueError(f"{prefix}_variances must be at least 0")
        weights = required_array(arrays, f"{prefix}_weights", (size, TARGETS + draws))
        known = Columns(columns, size, slots)
        return cls(known, joint, covariance, variances, weights, samples, *moments)


def _widen(
    fit: Regression, slots: IntArray, *, penalty: float, rng: np.random.Generator
) -> Regression:
    columns = fit.columns.including(slots)
    new = columns.used - fit.columns.used
    if not new:
        return fit._replace(columns=columns)
    covariance, joint = fit.covariance, min(columns.used, fit.joint)
    if (before := len(covariance)) < joint:
        covariance = np.eye(joint) / penalty
        covariance[:before, :before] = fit.covariance
    variances = np.full(columns.used - joint, 1.0 / penalty)
    variances[: len(fit.variances)] = fit.variances
    fresh = np.zeros((new, fit.weights.shape[1]))
    fresh[:, TARGETS:] = rng.standard_normal((new, fit.draws)) / np.sqrt(penalty)
    return fit._replace(
        columns=columns,
        covariance=covariance,
        variances=variances,
        weights=np.concatenate([fit.weights, fresh]),
    )


def _update_moments(fit: Regression, rewards: FloatArray, costs: FloatArray) -> Regression:
    samples = fit.samples + len(rewards)
    share = len(rewards) / samples
    mean = float(np.add.reduce(rewards)) / len(rewards)
    gap = mean - fit.mean
    squares = float(np.add.reduce((rewards - mean) ** 2))
    costs = np.where(np.isnan(costs), fit.cost_mean, costs)
    cost_mean = float(np.add.reduce(costs)) / len(costs)
    cost_gap = cost_mean - fit.cost_mean
    cost_squares = float(np.add.reduce((costs - cost_mean) ** 2))
    return fit._replace(
        samples=samples,
        mean=fit.mean + gap * share,
        squares=fit.squares + squares + gap**2 * fit.samples * share,
        cost_mean=fit.cost_mean + cost_gap * share,
        cost_squares=fit.cost_squares + cost_squares + cost_gap**2 * fit.samples * share,
    )


def _update_weights(
    fit: Regression,
    features: Crossed,
    rewards: FloatArray,
    costs: FloatArray,
    *,
    rng: np.random.Generator,
) -> Regression:
    """Learn from samples, 32 at a time: as one by one, but for rounding.

    Features without covariances have them within a block, where what its samples share is known.
    """
    fit = fit._replace(
        covariance=fit.covariance.copy(),
        variances=fit.variances.copy(),
        weights=fit.weights.copy(),
    )
    targets = np.ones((len(rewards), fit.weights.shape[1]))
    targets[:, REWARD], targets[:, COST] = rewards, costs
    targets[:, TARGETS:] = rng.standard_normal((len(rewards), fit.draws))
    columns = fit.columns.of[features.slots].astype(np.int64)
    squares = np.array([fit.residuals, fit.cost_residuals])
    means = np.array([fit.mean, fit.cost_mean])
    for begin in range(0, len(rewards), BLOCK):
        starts = features.starts[begin : begin + BLOCK + 1]
        pairs = slice(int(starts[0]), int(starts[-1]))
        rows = _rows(columns[pairs], features.values[pairs], starts - starts[0])
        errors = _learn(fit, *rows, targets[begin : begin + BLOCK])
        squares += np.add.reduce((errors[:, :ONE] - means * errors[:, ONE, None]) ** 2, axis=0)
    return fit._replace(residuals=float(squares[REWARD]), cost_residuals=float(squares[COST]))


BLOCK = 32


def _rows(columns: IntArray, values: FloatArray, starts: IntArray) -> tuple[IntArray, FloatArray]:
    """Return ``[C]`` the columns that any sample has, in order, and ``[B, C]`` the samples."""
    known = np.flatnonzero(columns >= 0)
    samples = np.repeat(np.arange(len(starts) - 1), lengths_of(starts))[known]
    found, places = np.unique(columns[known], return_inverse=True)
    shape = len(starts) - 1, len(found)
    dense = np.bincount(
        samples * len(found) + places, weights=values[known], minlength=shape[0] * shape[1]
    )
    return found.astype(np.int64), dense.astype(np.float64, copy=False).reshape(shape)


def _learn(fit: Regression, columns: IntArray, rows: FloatArray, targets: FloatArray) -> FloatArray:
    """Change the weights and their covariance in place; return ``[B, T]`` the errors.

    Each is what its sample adds to those before, divided by its expected size.

    Args:
        fit: The regression, whose arrays can be written to.
        columns: ``[C]``, in ascending order.
        rows: ``[B, C]``.
        targets: ``[B, T]``, NaN for an unknown cost.

    Source:
        A Kalman filter that observes a block at once; a Cholesky factor makes its innovations
        independent (Kailath, Sayed and Hassibi 2000, "Linear Estimation", section 4.4).
    """
    covariance, variances, weights = fit.covariance, fit.variances, fit.weights
    count, joint = len(rows), len(covariance)
    early = int(np.searchsorted(columns, joint))
    late = columns[early:]
    directions = np.empty((count, joint + len(late)))
    multiply(rows[:, :early], covariance[columns[:early]], out=directions[:, :joint])
    directions[:, joint:] = rows[:, early:] * variances[late - joint]
    places = np.concatenate([columns[:early], np.arange(joint, joint + len(late))])
    spread = np.empty((count, count))
    multiply(rows, directions[:, places].T, out=spread)
    spread.flat[:: count + 1] += 1.0
    lower = cholesky(spread)
    yield_gil()
    inverse = forward(lower, np.eye(count))
    yield_gil()
    expected, errors = np.empty_like(targets), np.empty_like(targets)
    multiply(rows, weights[columns], out=expected)
    surprises = targets - expected
    multiply(inverse, surprises, out=errors)
    _set_cost_errors(errors, surprises, lower, fit.cost_mean)
    scaled = np.empty_like(directions)
    multiply(inverse, directions, out=scaled)
    add_gram(covariance, scaled[:, :joint], sign=-1.0)
    moves = np.empty((len(places) - early + joint, targets.shape[1]))
    multiply(scaled.T, errors, out=moves)
    weights[:joint] += moves[:joint]
    weights[late] += moves[joint:]
    variances[late - joint] -= np.add.reduce(scaled[:, joint:] ** 2, axis=0)
    return errors


def _set_cost_errors(
    errors: FloatArray, surprises: FloatArray, lower: FloatArray, cost_mean: float
) -> None:
    """Write the errors of costs; of an unknown one, that less the mean is 0, so it teaches nothing.

    Args:
        errors: ``[B, T]``.
        surprises: ``[B, T]``, targets less what is expected before the block.
        lower: ``[B, B]``, the Cholesky factor of what they share.
        cost_mean: The mean cost.
    """
    unknown = np.isnan(surprises[:, COST])
    if not unknown.any():
        return
    found = errors[:, COST]
    found[:] = cost_mean * errors[:, ONE]
    for sample in np.flatnonzero(~unknown).tolist():
        shared = float(np.add.reduce(lower[sample, :sample] * found[:sample]))
        found[sample] = (surprises[sample, COST] - shared) / lower[sample, sample]
