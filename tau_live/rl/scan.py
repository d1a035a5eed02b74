"""The recurrence that returns and advantages follow, without a loop over steps.

A long array is taken in parts that fit into the cache, the last one first; what one part comes to
is carried into the part before it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import FloatArray

_DOUBLING_LONGEST = 64  # above, a blocked scan does less work; measured on 1M steps
_DOUBLING_PART = 16_384
_BLOCK = 65  # steps; odd, so that the rows of a column lie in different sets of the cache
_BLOCKED_PART = 1_008 * _BLOCK


def reverse_scan(terms: FloatArray, factors: FloatArray, *, longest: int) -> FloatArray:
    """Return ``[N]`` ``y[t] = terms[t] + factors[t] * y[t+1]``, with ``y[N] = 0``.

    Args:
        terms: ``[N]``, finite.
        factors: ``[N]``, finite; 0 at the last step of every rollout.
        longest: Steps of the longest rollout, that is the longest run without a factor of 0.
    """
    sums = terms.copy()
    room = Room.of(len(terms), longest)
    carried = 0.0
    for begin, end in parts(len(terms), longest):
        room.factors[: end - begin] = factors[begin:end]
        carried = scan_part(sums[begin:end], room, carried=carried, longest=longest)
    return sums


class Room(NamedTuple):
    """Buffers for one part.

    Attributes:
        factors: ``[P]``, to be filled before a part is scanned, which uses them up.
        spare: ``[P]``.
        others: ``[P]``.
    """

    factors: FloatArray
    spare: FloatArray
    others: FloatArray

    @classmethod
    def of(cls, steps: int, longest: int) -> "Room":
        """Return buffers for the largest part of so many steps."""
        size = min(steps, _part(longest))
        return cls(np.empty(size), np.empty(size), np.empty(size))


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


def scan_part(sums: FloatArray, room: Room, *, carried: float, longest: int) -> float:
    """Turn the terms of one part, ``[P]``, into sums, in place.

    Args:
        sums: The terms.
        room: Its first ``P`` factors are those of this part.
        carried: What the step after the part came to.
        longest: As ``reverse_scan``.

    Returns:
        What the first step came to.
    """
    size = len(sums)
    factors, spare, others = (array[:size] for array in room)
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
    """Reach twice as far in every round: ``log2(longest)`` rounds over all steps."""
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
