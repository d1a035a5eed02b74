"""Generalized advantage estimation: the reference form, and the batched one that is fast."""

from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import FloatArray, IntArray, offsets
from tau_live.rl.scan import Room, parts, reverse_scan, scan_part

__all__ = [
    "Advantages",
    "Steps",
    "batched_gae",
    "batched_vtrace",
    "gae",
]


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
    steps = Steps(rewards, discounts, values, bootstraps, lengths)
    ends = _ends(steps)
    _check_within_unit(lambda_=np.array([lambda_]))
    with np.errstate(over="ignore", invalid="ignore"):  # checked afterwards
        found, sound = _part_by_part(steps, ends, lambda_)
    if not sound:
        _check_numbers(steps)
    return found


def _part_by_part(steps: Steps, ends: IntArray, lambda_: float) -> tuple[Advantages, bool]:
    """Return what GAE gives, and whether every number was certainly finite and in range.

    Whatever is not finite makes the advantage of its own step so, and with it the sum of all.
    """
    rewards, discounts, values, bootstraps, lengths = steps
    size, longest = len(rewards), int(lengths.max())
    advantages, returns = np.empty(size), np.empty(size)
    room = Room.of(size, longest)
    carried, total, least, most = 0.0, 0.0, 1.0, 0.0
    after = len(ends)
    for begin, end in parts(size, longest):
        part = advantages[begin:end]
        before = int(np.searchsorted(ends, begin))
        own = ends[before:after] - begin
        part[:-1] = values[begin + 1 : end]
        part[-1] = values[end] if end < size else 0.0
        part[own] = bootstraps[before:after]
        np.multiply(part, discounts[begin:end], out=part)
        np.add(part, rewards[begin:end], out=part)
        np.subtract(part, values[begin:end], out=part)
        least = min(least, float(discounts[begin:end].min()))
        most = max(most, float(discounts[begin:end].max()))
        np.multiply(discounts[begin:end], lambda_, out=room.factors[: end - begin])
        room.factors[own] = 0.0
        carried = scan_part(part, room, carried=carried, longest=longest)
        np.add(part, values[begin:end], out=returns[begin:end])
        total += float(part.sum())
        after = before
    sound = bool(np.isfinite(total)) and least >= 0.0 and most <= 1.0
    return Advantages(advantages, returns), sound


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


def _recurrence(steps: Steps, lambda_: float) -> tuple[FloatArray, FloatArray]:
    """Return ``[N]`` temporal differences, and factors that are 0 where a rollout ends."""
    ends = _ends(steps)
    _check_numbers(steps)
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
