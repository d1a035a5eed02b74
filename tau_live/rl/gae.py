"""Generalized advantage estimation: the reference form, and the batched one that is fast."""

from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import FloatArray, IntArray, offsets

_DOUBLING_LONGEST = 64  # above, a blocked scan does less work; measured on 1M steps, two cores
_SHORTEST_BLOCK = 16


class Steps(NamedTuple):
    """``R`` rollouts laid end to end, ``N`` steps in all.

    Attributes:
        rewards: ``[N]``, received after each step.
        discounts: ``[N]``, in ``[0, 1]``; 0 where a step ended its rollout.
        values: ``[N]``, estimates of the return from each state.
        bootstraps: ``[R]``, estimate of the return from the state after each rollout's last step.
        lengths: ``[R]``, steps of each rollout, at least 1; they sum to ``N``.
    """

    rewards: FloatArray
    discounts: FloatArray
    values: FloatArray
    bootstraps: FloatArray
    lengths: IntArray


class Advantages(NamedTuple):
    """What GAE gives.

    Attributes:
        advantages: ``[T]``, how much better each action was than expected.
        returns: ``[T]``, ``advantages + values``: what the critic should have said.
    """

    advantages: FloatArray
    returns: FloatArray


def gae(
    rewards: FloatArray,
    discounts: FloatArray,
    values: FloatArray,
    bootstrap: float,
    *,
    lambda_: float,
) -> Advantages:
    r"""Estimate how much better each action of one rollout was than the policy expected.

    ``A[t] = delta[t] + discounts[t] * lambda_ * A[t+1]``, with
    ``delta[t] = rewards[t] + discounts[t] * values[t+1] - values[t]``.

    A terminal step has a discount of 0; there is no separate ``done``. A run that was cut
    off keeps its discount and passes the value of the state it was cut off in as
    ``bootstrap``, so that being interrupted is not taken for failing.

    Args:
        rewards: ``[T]``, reward received after action ``t``.
        discounts: ``[T]``, in ``[0, 1]``; 0 where step ``t`` ended the rollout.
        values: ``[T]``, the deciding policy's estimate of the return from state ``t``.
        bootstrap: Estimate of the return from the state after the last step.
        lambda_: In ``[0, 1]``; 0 trusts ``values`` (bias), 1 trusts ``rewards`` (variance).

    Returns:
        ``advantages`` and ``returns``, each ``[T]``; ``returns = advantages + values``.

    Raises:
        ValueError: The arrays are empty, not of one length, or hold what is not finite, or
            ``lambda_`` or a discount is out of range.

    Source:
        Schulman et al. 2016, arXiv:1506.02438, equations 11 and 16.
    """
    _check_steps(rewards, discounts, values)
    _check_within_unit(lambda_=np.array([lambda_]), discounts=discounts)
    for name, array in {
        "rewards": rewards,
        "values": values,
        "bootstrap": np.array([bootstrap]),
    }.items():
        if not np.isfinite(array).all():
            raise ValueError(f"non-finite values detected in '{name}'")

    deltas = rewards + discounts * np.append(values[1:], bootstrap) - values
    advantages = np.empty_like(deltas)
    carried = 0.0
    for t in reversed(range(len(deltas))):
        carried = deltas[t] + discounts[t] * lambda_ * carried
        advantages[t] = carried
    return Advantages(advantages, advantages + values)


def normalised(
    numbers: FloatArray, *, epsilon: float = 1e-8, clip: float | None = None
) -> FloatArray:
    """Return ``(numbers - mean) / sqrt(variance + epsilon)``, then cut to ``[-clip, clip]``.

    The reference does this to each rollout by itself, by which a rollout of one step always
    becomes 0: use it over many rollouts only, or not at all.

    Args:
        numbers: ``[T]``, at least one.
        epsilon: Added to the (population) variance, above 0.
        clip: Above 0; ``None`` does not cut.

    Raises:
        ValueError: ``numbers`` is empty, or a bound is not finite and above 0.
    """
    if not len(numbers):
        raise ValueError("gae inputs must contain at least one step")
    for name, bound in {"epsilon": epsilon, "clip": 1.0 if clip is None else clip}.items():
        if not 0.0 < bound < np.inf:
            raise ValueError(f"gae config field '{name}' must be finite and > 0.0, got {bound!r}")
    centred: FloatArray = (numbers - numbers.mean()) / np.sqrt(numbers.var() + epsilon)
    return centred if clip is None else np.clip(centred, -clip, clip)


def batched_gae(
    rewards: FloatArray,
    discounts: FloatArray,
    values: FloatArray,
    bootstraps: FloatArray,
    *,
    lengths: IntArray,
    lambda_: float,
) -> Advantages:
    """Return what ``gae`` gives for every one of ``R`` rollouts laid end to end.

    Args:
        rewards: ``[N]``, reward received after each step.
        discounts: ``[N]``, in ``[0, 1]``; 0 where a step ended its rollout.
        values: ``[N]``, estimates of the return from each state.
        bootstraps: ``[R]``, estimate of the return from the state after each rollout's last step.
        lengths: ``[R]``, steps of each rollout, at least 1; they sum to ``N``.
        lambda_: In ``[0, 1]``.

    Returns:
        ``advantages`` and ``returns``, each ``[N]``.

    Raises:
        ValueError: A shape or a range does not fit, or a number is not finite; the message names
            the first rollout concerned.
    """
    deltas, factors = _recurrence(Steps(rewards, discounts, values, bootstraps, lengths), lambda_)
    advantages = reverse_scan(deltas, factors, longest=int(lengths.max()))
    return Advantages(advantages, advantages + values)


def batched_vtrace(
    steps: Steps,
    traces: FloatArray,
    *,
    lambda_: float,
) -> Advantages:
    """Return advantages and value targets for the policy of now from what another one did.

    ``D[t] = c[t] * delta[t] + discounts[t] * lambda_ * c[t] * D[t+1]`` corrects the values,
    ``returns = values + D``, and ``advantages[t] = delta[t] + discounts[t] * lambda_ * D[t+1]``
    is still to be weighted by ``c[t]``. With all traces 1 it is GAE.

    Args:
        steps: ``N`` steps of ``R`` rollouts.
        traces: ``[N]``, ``c = min(1, pi / mu)`` of the action taken, in ``[0, 1]``.
        lambda_: In ``[0, 1]``.

    Raises:
        ValueError: As ``batched_gae``.

    Source:
        Espeholt et al. 2018, arXiv:1802.01561, equation 1 and remark 2, rho bar = c bar = 1.
    """
    deltas, factors = _recurrence(steps, lambda_)
    if traces.shape != deltas.shape:
        raise ValueError(f"traces must be [{len(deltas)}], got {traces.shape}")
    _check_within_unit(traces=traces)
    corrections = reverse_scan(deltas * traces, factors * traces, longest=int(steps.lengths.max()))
    carried = np.zeros_like(corrections)
    carried[:-1] = factors[:-1] * corrections[1:]
    return Advantages(deltas + carried, steps.values + corrections)


def reverse_scan(terms: FloatArray, factors: FloatArray, *, longest: int) -> FloatArray:
    """Return ``[N]`` ``y[t] = terms[t] + factors[t] * y[t+1]``, with ``y[N] = 0``.

    Args:
        terms: ``[N]``, finite.
        factors: ``[N]``, finite; 0 at the last step of every rollout.
        longest: Steps of the longest rollout, that is the longest run without a factor of 0.
    """
    if longest <= _DOUBLING_LONGEST or len(terms) < 4 * _SHORTEST_BLOCK:
        return _doubled(terms, factors, longest=longest)
    return _blocked(terms, factors)


def _doubled(terms: FloatArray, factors: FloatArray, *, longest: int) -> FloatArray:
    """Reach twice as far in every round: ``log2(longest)`` rounds over all steps."""
    sums, products = terms.copy(), factors.copy()
    reach = 1
    while reach < min(longest, len(terms)):
        sums[:-reach] += products[:-reach] * sums[reach:]
        products[:-reach] *= products[reach:].copy()
        products[-reach:] = 0.0
        reach *= 2
    return sums


def _blocked(terms: FloatArray, factors: FloatArray) -> FloatArray:
    """Scan all blocks of a long stream at once, then carry from block to block.

    Columns are walked in place: transposing them first took twice as long on 1M steps. An odd
    number of steps in a block keeps the rows of a column in different sets of the cache.

    Source:
        Blelloch 1990, section 1.4 (first-order recurrences), in two levels.
    """
    size = len(terms)
    block = max(_SHORTEST_BLOCK, int(np.sqrt(size))) | 1
    blocks = -(-size // block)
    sums, products = np.zeros((2, blocks * block))
    sums[:size], products[:size] = terms, factors
    by_step, reach_by_step = sums.reshape(blocks, block).T, products.reshape(blocks, block).T
    carried = np.empty(blocks)
    for t in range(block - 2, -1, -1):
        np.multiply(reach_by_step[t], by_step[t + 1], out=carried)
        by_step[t] += carried
        reach_by_step[t] *= reach_by_step[t + 1]
    firsts, reaches = by_step[0].tolist(), reach_by_step[0].tolist()
    carries = [0.0] * blocks
    for index in range(blocks - 2, -1, -1):
        carries[index] = firsts[index + 1] + reaches[index + 1] * carries[index + 1]
    products.reshape(blocks, block)[:] *= np.array(carries)[:, None]
    sums += products
    return sums[:size]


def _recurrence(steps: Steps, lambda_: float) -> tuple[FloatArray, FloatArray]:
    """Return ``[N]`` temporal differences, and factors that are 0 where a rollout ends."""
    ends = _checked_ends(steps)
    _check_within_unit(lambda_=np.array([lambda_]))
    following = np.empty_like(steps.values)
    following[:-1] = steps.values[1:]
    following[ends] = steps.bootstraps
    deltas = steps.discounts * following
    deltas += steps.rewards
    deltas -= steps.values
    factors = steps.discounts * lambda_
    factors[ends] = 0.0
    return deltas, factors


def _checked_ends(steps: Steps) -> IntArray:
    """Return ``[R]`` the last step of each rollout."""
    rewards, discounts, values, bootstraps, lengths = steps
    _check_steps(rewards, discounts, values)
    if lengths.shape != bootstraps.shape or lengths.ndim != 1 or (lengths < 1).any():
        raise ValueError(
            f"expected [R] lengths of at least 1 and [R] bootstraps, "
            f"got {lengths.shape}, {bootstraps.shape}"
        )
    starts = offsets(lengths)
    if starts[-1] != len(rewards):
        raise ValueError(f"gae input length mismatch: lengths={starts[-1]}, steps={len(rewards)}")
    for name, array in {"rewards": rewards, "values": values, "discounts": discounts}.items():
        if not np.isfinite(array).all():
            step = int(np.flatnonzero(~np.isfinite(array))[0])
            rollout = int(np.searchsorted(starts, step, side="right")) - 1
            raise ValueError(f"non-finite values detected in '{name}' of rollout {rollout}")
    if not np.isfinite(bootstraps).all():
        rollout = int(np.flatnonzero(~np.isfinite(bootstraps))[0])
        raise ValueError(f"non-finite values detected in 'bootstraps' of rollout {rollout}")
    _check_within_unit(discounts=discounts)
    return starts[1:] - 1


def _check_steps(rewards: FloatArray, discounts: FloatArray, values: FloatArray) -> None:
    if not rewards.shape == discounts.shape == values.shape or rewards.ndim != 1:
        raise ValueError(
            f"gae input length mismatch: expected three [T] arrays, "
            f"got rewards={rewards.shape}, discounts={discounts.shape}, values={values.shape}"
        )
    if not len(rewards):
        raise ValueError("gae inputs must contain at least one step")


def _check_within_unit(**arrays: FloatArray) -> None:
    for name, array in arrays.items():
        if not (array.min() >= 0.0 and array.max() <= 1.0):  # also refuses NaN
            raise ValueError(f"gae config field '{name}' must be finite and within [0.0, 1.0]")
