"""Groups: several attempts at one task with one prompt, which differ by their seeds alone."""

from collections.abc import Collection, Iterator
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID, uuid5

import numpy as np

from tau_live.core.prompts import canonical_json

IDS = UUID("5f0d7f0e-2b0c-5c53-9a5e-0d1f6f1d7c11")
"""The namespace of the ids of rollouts."""

HEX = 13
"""Hexadecimal digits of a seed and of a share: 52 bits, which a float holds exactly."""


class Draw(NamedTuple):
    """A task that is drawn in an epoch.

    Attributes:
        number: The number of the draw in the epoch, from 0.
        task: The place of the task in its split.
    """

    number: int
    task: int


def draws(seed: int, epoch: int, tasks: int, *, sample_size: int) -> list[Draw]:
    """Return the tasks of an epoch: a permutation of all of them, again where there are too few.

    Args:
        seed: Of the run.
        epoch: From 1.
        tasks: How many tasks there are, at least 1.
        sample_size: How many are drawn.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    order = [int(place) for place in rng.permutation(tasks)]
    return [Draw(number, order[number % tasks]) for number in range(sample_size)]


def group_id(*place: object) -> str:
    """Return the id of a group at a place: run, epoch, step, task, and the number of its draw."""
    return f"g-{_digest(*place)[:16]}"


def seed_of(seed: int, *place: object) -> int:
    """Return a seed in ``[0, 2**52)`` that depends on the run's seed and on a place alone.

    That of a member has the place ``group_id, member``.
    """
    return int(_digest(seed, *place)[:HEX], 16)


def share_of(seed: int, *place: object) -> float:
    """Return a number in ``[0, 1)`` that depends on the run's seed and on a place alone."""
    return seed_of(seed, *place) / float(16**HEX)


def rollout_id(*place: object) -> str:
    """Return the id of a rollout; that of a member has the place ``run_id, group_id, member``."""
    return f"tfg-{uuid5(IDS, canonical_json([*place]).decode())}"


def withheld(seed: int, group: str, ids: Collection[str], *, dropout: float) -> Iterator[str]:
    """Yield the lessons that are left out of a group, so that their effect can be measured.

    Args:
        seed: Of the run.
        group: The group.
        ids: The lessons that could be in its prompt.
        dropout: The share that is left out, in ``[0, 1)``.
    """
    return (id_ for id_ in ids if share_of(seed, group, id_) < dropout)


def _digest(*place: object) -> str:
    return sha256(canonical_json([*place])).hexdigest()
