"""Array types, ragged rows, products whose bits do not depend on threads.

A linear algebra library splits a large product among as many threads as there are cores, and each
split adds numbers in another order, which changes the last bits. Here products are computed in
tiles of a fixed size and order that such libraries leave to one thread (OpenBLAS splits no product
of at most 2**18 multiplications): the bits are the same on any number of cores, and the cores of
the host are left alone. On two threads that is also faster than a split: with matrices this small
the threads mostly wait.
"""

from collections.abc import Mapping

import numpy as np
import numpy.ma
import numpy.typing as npt

from tau_live.rl.throttle import yield_gil

FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]
Array = npt.NDArray[np.generic]


def frozen(array: FloatArray) -> FloatArray:
    """Return a read-only float64 copy, so that what a version holds can never change."""
    copy = np.array(array, dtype=np.float64)
    copy.setflags(write=False)
    return copy


def offsets(lengths: IntArray) -> IntArray:
    """Return ``[N+1]``: where each of the rows laid end to end begins, and where the last ends."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def lengths_of(starts: IntArray) -> IntArray:
    """Return ``[N]``: how long each of the rows is that begin at ``starts``, ``[N+1]``."""
    lengths: IntArray = starts[1:] - starts[:-1]
    return lengths


def spans(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return ``lengths[i]`` numbers from ``starts[i]`` on, for every ``i``, end to end."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - ends + lengths, lengths) + np.arange(total, dtype=np.int64)


def required_array(arrays: Mapping[str, Array], name: str, shape: tuple[int, ...]) -> FloatArray:
    """Return the array of that name as float64, checked to be finite and of that shape.

    Raises:
        ValueError: It is missing, of another shape, or holds a NaN or an infinity.
    """
    if name not in arrays:
        raise ValueError(f"array {name!r} is missing")
    array = np.asarray(arrays[name])
    if array.shape != shape or array.dtype.kind not in "fiu":
        raise ValueError(
            f"array {name!r} must be numbers of shape {shape}, got {array.dtype} {array.shape}"
        )
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(f"array {name!r} must be finite")
    return numbers


_LARGEST = 262_144
"""Multiplications up to which OpenBLAS uses one thread for a matrix product: ``interface/gemm.c``,
``SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD``."""

_LARGEST_VECTOR = 8_192
"""The same for a matrix and a vector (``interface/gemv.c``: 9216) and two vectors (10000)."""


_FEW = 4
"""Rows that are multiplied together if there are as many."""


def multiply(left: FloatArray, right: FloatArray, *, out: FloatArray) -> None:
    """Write ``left @ right`` to ``out``, in parts that give way between each other.

    Args:
        left: ``[M, K]`` or ``[B, M, K]``.
        right: ``[K, N]`` or ``[B, K, N]``.
        out: ``[M, N]`` or ``[B, M, N]``.
    """
    inner, columns = right.shape[-2:]
    rows = left.shape[-2]
    if inner > _LARGEST_VECTOR:
        first, rest = slice(inner // 2), slice(inner // 2, None)
        more = np.empty_like(out)
        multiply(left[..., first], right[..., first, :], out=out)
        multiply(left[..., rest], right[..., rest, :], out=more)
        out += more
        return
    largest = _LARGEST_VECTOR if 1 in {rows, columns} else _LARGEST
    width = max(largest // max(inner * min(rows, _FEW), 1), 1)
    if columns > width:
        for begin in range(0, columns, width):
            part = slice(begin, begin + width)
            multiply(left, right[..., part], out=out[..., part])
        return
    at_once = max(largest // max(inner * columns, 1), 1)
    parts = max(-(-rows // at_once), 1)  # of like size: a single row is multiplied as a vector
    for place in range(parts):
        part = slice(rows * place // parts, rows * (place + 1) // parts)
        np.matmul(left[..., part, :], right, out=out[..., part, :])
        yield_gil()


def squared_length(vector: FloatArray) -> float:
    """Return the sum of the squares of ``vector [S]``."""
    total = 0.0
    for begin in range(0, len(vector), _LARGEST_VECTOR):
        part = vector[begin : begin + _LARGEST_VECTOR]
        total += float(np.dot(part, part))
    return total


def add_gram(matrix: FloatArray, rows: FloatArray, *, sign: float) -> None:
    """Add ``sign * rows.T @ rows`` to ``matrix [D, D]``, in place, in parts that give way.

    Args:
        matrix: Symmetric, and stays so to the last bit.
        rows: ``[N, D]``, at most 64 of them.
        sign: 1 or -1.
    """
    width = len(matrix)
    parts = [slice(begin, begin + _WIDE) for begin in range(0, width, _WIDE)]
    tiles = [np.ascontiguousarray(rows[:, part]) for part in parts]
    turned = [tile.T.copy() for tile in tiles]
    for place, part in enumerate(parts):
        for other, right in zip(parts[place:], tiles[place:], strict=True):
            tile = turned[place] @ right
            if other is part:
                tile = np.triu(tile)
                tile += np.triu(tile, 1).T
            matrix[part, other] += sign * tile
            if other is not part:
                matrix[other, part] = matrix[part, other].T
        yield_gil()


_TILE = 32
_WIDE = 64  # width of a product's tiles: 64 * 32 * 64 multiplications, half of the limit above


def product(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Return ``matrix [N, D]`` times ``vector [D]``, ``[N]``."""
    products: FloatArray = np.einsum("nd,d->n", matrix, vector)
    return products


def gram(rows: FloatArray) -> FloatArray:
    """Return ``rows.T @ rows``, ``[D, D]``, of ``rows [N, D]``."""
    samples, width = rows.shape
    tiles, chunks = -(-width // _WIDE), -(-samples // _TILE)
    padded = np.zeros((chunks * _TILE, tiles * _WIDE))
    padded[:samples, :width] = rows
    sums = np.zeros((tiles, tiles, _WIDE, _WIDE))
    for chunk in padded.reshape(chunks, _TILE, tiles, _WIDE):
        right = chunk.transpose(1, 0, 2).copy()  # its own copy: for symmetric products a library
        left = chunk.transpose(1, 2, 0).copy()  # takes a shortcut, which it splits
        sums += left[:, None] @ right[None]
    whole = sums.transpose(0, 2, 1, 3).reshape(tiles * _WIDE, tiles * _WIDE)
    return np.ascontiguousarray(whole[:width, :width])


def cholesky(matrix: FloatArray) -> FloatArray:
    """Return the lower triangle ``L [D, D]`` with ``L @ L.T = matrix``.

    Only the lower triangle of ``matrix`` is read.

    Raises:
        LinAlgError: The matrix is not positive definite.

    Source:
        Golub and Van Loan 2013, "Matrix Computations", section 4.2.6 (block outer product).
    """
    width = len(matrix)
    size = -(-width // _TILE) * _TILE
    lower = np.eye(size)
    lower[:width, :width] = matrix
    for begin in range(0, size, _TILE):
        end = begin + _TILE
        panel = _panel(lower[begin:, begin:end].T.copy())
        lower[begin:, begin:end] = panel.T
        lower[begin:end, end:] = 0.0
        blocks = panel[:, _TILE:].reshape(_TILE, -1, _TILE).transpose(1, 0, 2).copy()
        turned = blocks.transpose(0, 2, 1).copy()
        for row in range(len(blocks)):
            at = end + row * _TILE
            update = turned[row] @ blocks[: row + 1]
            lower[at : at + _TILE, end : at + _TILE] -= update.transpose(1, 0, 2).reshape(_TILE, -1)
    return np.ascontiguousarray(lower[:width, :width])


def _panel(columns: FloatArray) -> FloatArray:
    """Return the first columns of the triangle as rows, with zeros before the diagonal."""
    for index in range(_TILE):
        pivot = columns[index, index]
        if not pivot > 0.0:  # NaN too
            raise np.linalg.LinAlgError("the matrix is not positive definite")
        columns[index] /= np.sqrt(pivot)
        columns[index, :index] = 0.0
        below = columns[index, index + 1 : _TILE]
        columns[index + 1 :] -= below[:, None] * columns[index]
    return columns


def solve(lower: FloatArray, targets: FloatArray) -> FloatArray:
    """Return ``x`` with ``lower @ lower.T @ x = targets``, of the shape of ``targets``.

    Args:
        lower: ``[D, D]``, as ``cholesky`` gave it.
        targets: ``[D]``, or ``[D, M]`` for ``M`` of them at once.
    """
    return _backward(lower, forward(lower, targets))


def forward(lower: FloatArray, targets: FloatArray) -> FloatArray:
    """Return ``x`` with ``lower @ x = targets``, as ``solve`` takes them."""
    solution = _columns(targets)
    turned = np.ascontiguousarray(lower.T)
    for index in range(len(solution)):
        solution[index] /= lower[index, index]
        solution[index + 1 :] -= turned[index, index + 1 :, None] * solution[index]
    return solution.reshape(targets.shape)


def _backward(lower: FloatArray, targets: FloatArray) -> FloatArray:
    solution = _columns(targets)
    for index in reversed(range(len(solution))):
        solution[index] /= lower[index, index]
        solution[:index] -= lower[index, :index, None] * solution[index]
    return solution.reshape(targets.shape)


def _columns(targets: FloatArray) -> FloatArray:
    return np.array(targets if targets.ndim == 2 else targets[:, None], dtype=np.float64)
