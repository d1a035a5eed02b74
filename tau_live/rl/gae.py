"""Generalized advantage estimation: the reference form, and a fast batched one.

A long array is scanned in parts that fit into the cache, the last one first; the result of each
part is carried into the part before it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import FloatArray, IntArray, offsets

_DOUBLING_LONGEST = 64  # above, a blocked scan does less work; measured on 1M steps
_DOUBLING_PART = 16_384
_BLOCK = 65  # steps; odd, so that the rows of a column lie in different sets of the cache
_BLOCKED_PART = 1_008 * _BLOCK


def reverse_scan(terms: FloatArray, factors: FloatArray, *, longest: int) -> FloatArray:
    """Return ``[N]`` ``y[t] = terms[t] + factors[t] * y[t+1]``, with ``y[N] = 0``.

    Args:
        terms: ``[N]``, finite.
        factors: ``[N]``, finite; 0 at the last step of every rollout.
        longest: Steps of the longest rollout, the longest run without a factor of 0.
    """
    sums = terms.copy()
    room = _room(len(terms), longest)
    carried = 0.0
    for begin, end in parts(len(terms), longest):
        room[0, : end - begin] = factors[begin:end]
        carried = scan_part(sums[begin:end], room, carried=carried, longest=longest)
    return sums


def _room(steps: int, longest: int) -> FloatArray:
    """Return ``[3, P]`` buffers for the largest part, its factors in the first row."""
    return np.empty((3, min(steps, _part(longest))))


def parts(steps: int, longest: int) -> Iterator[tuple[int, int]]:
    """Yield where each part begins and ends, the last one first."""
    size = _part(longest)
    end = steps
    if longest > _DOUBLING_LONGEST and steps % _BLOCK:  # so that the others are whole blocks
        end -= steps % _BLOCK
        yield end, steps
    while end > 0:
        begin = (end - 1) // size * size
        yield begin, end
        end = begin


def scan_part(sums: FloatArray, room: FloatArray, *, carried: float, longest: int) -> float:
    """Turn the terms of one part, ``[P]``, into sums, in place.

    Args:
        sums: ``[P]``, the terms.
        room: ``[3, P]`` at least; its first row begins with the factors of this part, and all of
            it is overwritten.
        carried: Sum of the step after the part.
        longest: As in ``reverse_scan``.

    Returns:
        Sum of the first step.
    """
    size = len(sums)
    factors, spare, others = room[:, :size]
    sums[-1] += factors[-1] * carried
    factors[-1] = 0.0
    if longest <= _DOUBLING_LONGEST or size < _BLOCK:
        _double(sums, factors, spare, others, longest=min(longest, size))
    else:
        _scan_blocks(sums, factors, spare, others)
    return float(sums[0])


def _part(longest: int) -> int:
    return _DOUBLING_PART if longest <= _DOUBLING_LONGEST else _BLOCKED_PART


def _double(
    sums: FloatArray,
    products: FloatArray,
    spare: FloatArray,
    others: FloatArray,
    *,
    longest: int,
) -> None:
    """Scan by recursive doubling: ``log2(longest)`` rounds over all steps."""
    reach = 1
    while reach < longest:
        np.multiply(products[:-reach], sums[reach:], out=spare[:-reach])
        np.add(sums[:-reach], spare[:-reach], out=sums[:-reach])
        if 2 * reach < longest:
            np.multiply(products[:-reach], products[reach:], out=others[:-reach])
            others[-reach:] = 0.0
            products, others = others, products
        reach *= 2


def _scan_blocks(
    sums: FloatArray, factors: FloatArray, spare: FloatArray, others: FloatArray
) -> None:
    """Scan all blocks at once, a block in a column, then carry from block to block.

    Source:
        Blelloch 1990, section 1.4 (first-order recurrences), in two levels.
    """
    blocks = len(sums) // _BLOCK
    by_step, reaches = spare.reshape(_BLOCK, blocks), others.reshape(_BLOCK, blocks)
    by_step[:], reaches[:] = sums.reshape(blocks, _BLOCK).T, factors.reshape(blocks, _BLOCK).T
    rows, reach_rows = [*by_step], [*reaches]
    carried = factors[:blocks]
    for t in range(_BLOCK - 2, -1, -1):
        np.multiply(reach_rows[t], rows[t + 1], out=carried)
        np.add(rows[t], carried, out=rows[t])
        np.multiply(reach_rows[t], reach_rows[t + 1], out=reach_rows[t])
    firsts, lengths, *rooms = np.zeros((4, blocks))
    firsts[:], lengths[:] = rows[0], reach_rows[0]
    _double(firsts, lengths, *rooms, longest=blocks)
    reaches[:, :-1] *= firsts[1:]
    by_step[:, :-1] += reaches[:, :-1]
    sums.reshape(blocks, _BLOCK)[:] = by_step.T


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
    """The result of GAE.

    Attributes:
        advantages: ``[T]``, how much better each action was than expected.
        returns: ``[T]``, ``advantages + values``: the critic's targets.
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
    ``bootstrap``, so that an interruption does not count as a failure.

    Args:
        rewards: ``[T]``, reward received after action ``t``.
        discounts: ``[T]``, in ``[0, 1]``; 0 where step ``t`` ended the rollout.
        values: ``[T]``, the deciding policy's estimate of the return from state ``t``.
        bootstrap: Estimate of the return from the state after the last step.
        lambda_: In ``[0, 1]``; 0 trusts ``values`` (bias), 1 trusts ``rewards`` (variance).

    Returns:
        ``advantages`` and ``returns``, each ``[T]``; ``returns = advantages + values``.

    Raises:
        ValueError: The arrays are empty, not of one length or not finite, or ``lambda_`` or a
            discount is out of range.

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


def batched_vtrace(
    steps: Steps,
    traces: FloatArray,
    *,
    lambda_: float,
) -> Advantages:
    """Return off-policy advantages and value targets (V-trace) for the current policy.

    ``D[t] = c[t] * delta[t] + discounts[t] * lambda_ * c[t] * D[t+1]`` corrects the values,
    ``returns = values + D``, and ``advantages[t] = delta[t] + discounts[t] * lambda_ * D[t+1]``
    is still to be weighted by ``c[t]``. With all traces 1 the result is ``gae`` of each rollout.

    Args:
        steps: ``N`` steps of ``R`` rollouts.
        traces: ``[N]``, ``c = min(1, pi / mu)`` of the action taken, in ``[0, 1]``.
        lambda_: In ``[0, 1]``.

    Returns:
        ``advantages`` and ``returns``, each ``[N]``.

    Raises:
        ValueError: A shape or a range does not fit, or a number is not finite; for the latter the
            message names the first such rollout.

    Source:
        Espeholt et al. 2018, arXiv:1802.01561, equation 1 and remark 2, rho bar = c bar = 1.
    """
    ends = _ends(steps)
    _check_within_unit(lambda_=np.array([lambda_]))
    if traces.shape != steps.rewards.shape:
        raise ValueError(f"traces must be [{len(steps.rewards)}], got {traces.shape}")
    with np.errstate(over="ignore", invalid="ignore"):  # checked afterwards
        estimated, is_finite = _part_by_part(steps, traces, ends, lambda_)
    if not is_finite:
        _check_numbers(steps)
    _check_within_unit(discounts=steps.discounts, traces=traces)
    return estimated


def _part_by_part(
    steps: Steps, traces: FloatArray, ends: IntArray, lambda_: float
) -> tuple[Advantages, bool]:
    """Return the V-trace advantages and returns, and whether every input is surely finite.

    An input that is not finite makes the advantage of its step so, and with it the sum of all.
    """
    rewards, discounts, values, bootstraps, lengths = steps
    size, longest = len(rewards), int(lengths.max())
    advantages, returns = np.empty(size), np.empty(size)
    room = _room(size, longest)
    discounted = np.empty(room.shape[1])
    carried, total, after = 0.0, 0.0, len(ends)
    for begin, end in parts(size, longest):
        own = slice(begin, end)
        before = int(np.searchsorted(ends, begin))
        last = ends[before:after] - begin
        deltas, corrections = advantages[own], returns[own]
        deltas[:-1] = values[begin + 1 : end]
        deltas[-1] = values[end] if end < size else 0.0
        deltas[last] = bootstraps[before:after]
        deltas *= discounts[own]
        deltas += rewards[own]
        deltas -= values[own]
        factors = discounted[: end - begin]
        np.multiply(discounts[own], lambda_, out=factors)
        factors[last] = 0.0
        np.multiply(deltas, traces[own], out=corrections)
        np.multiply(factors, traces[own], out=room[0, : end - begin])
        following = carried
        carried = scan_part(corrections, room, carried=carried, longest=longest)
        factors[:-1] *= corrections[1:]
        factors[-1] *= following
        deltas += factors
        corrections += values[own]
        total += float(deltas.sum())
        after = before
    return Advantages(advantages, returns), bool(np.isfinite(total))


def _ends(steps: Steps) -> IntArray:
    """Return ``[R]`` the last step of each rollout; checks the shapes alone."""
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
    return starts[1:] - 1


def _check_numbers(steps: Steps) -> None:
    rewards, discounts, values, bootstraps, lengths = steps
    starts = offsets(lengths)
    for name, array in {"rewards": rewards, "values": values, "discounts": discounts}.items():
        if not np.isfinite(array).all():
            step = int(np.flatnonzero(~np.isfinite(array))[0])
            rollout = int(np.searchsorted(starts, step, side="right")) - 1
            raise ValueError(f"non-finite values detected in '{name}' of rollout {rollout}")
    if not np.isfinite(bootstraps).all():
        rollout = int(np.flatnonzero(~np.isfinite(bootstraps))[0])
        raise ValueError(f"non-finite values detected in 'bootstraps' of rollout {rollout}")
    _check_within_unit(discounts=discounts)


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
