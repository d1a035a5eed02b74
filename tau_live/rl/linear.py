"""Products and solutions whose bits do not depend on the number of threads.

A linear algebra library splits large matrices among its threads, and every split adds numbers up
in another order. Here everything goes in tiles of a fixed size, which such libraries compute in
one thread (OpenBLAS splits no product of at most 2**18 multiplications), in a fixed order. On two
threads that is also faster than a split: of matrices this small the threads mostly wait.
"""

import numpy as np

from tau_live.rl.arrays import FloatArray

_TILE = 32
_WIDE = 64  # of a product's tiles: 64 * 32 * 64 multiplications are half of what is never split


def norm(vector: FloatArray) -> float:
    """Return the Euclidean length of ``vector [D]``."""
    return float(np.sqrt(np.add.reduce(vector * vector)))


def product(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Return ``matrix [N, D]`` times ``vector [D]``, ``[N]``."""
    found: FloatArray = np.einsum("nd,d->n", matrix, vector)
    return found


def gram(rows: FloatArray) -> FloatArray:
    """Return ``rows.T @ rows``, ``[D, D]``, of ``rows [N, D]``."""
    samples, width = rows.shape
    tiles, chunks = -(-width // _WIDE), -(-samples // _TILE)
    padded = np.zeros((chunks * _TILE, tiles * _WIDE))
    padded[:samples, :width] = rows
    found = np.zeros((tiles, tiles, _WIDE, _WIDE))
    for chunk in padded.reshape(chunks, _TILE, tiles, _WIDE):
        right = chunk.transpose(1, 0, 2).copy()  # apart from the left, or a library takes a
        left = chunk.transpose(1, 2, 0).copy()  # shortcut for symmetric products, which it splits
        found += left[:, None] @ right[None]
    whole = found.transpose(0, 2, 1, 3).reshape(tiles * _WIDE, tiles * _WIDE)
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
            taken = turned[row] @ blocks[: row + 1]
            lower[at : at + _TILE, end : at + _TILE] -= taken.transpose(1, 0, 2).reshape(_TILE, -1)
    return np.ascontiguousarray(lower[:width, :width])


def _panel(columns: FloatArray) -> FloatArray:
    """Return the first columns of the triangle, each as a row; zeros before its own place."""
    for index in range(_TILE):
        pivot = columns[index, index]
        if not pivot > 0.0:  # NaN too
            raise np.linalg.LinAlgError("the matrix is not positive definite")
        columns[index] /= np.sqrt(pivot)
        columns[index, :index] = 0.0
        below = columns[index, index + 1 : _TILE]
        columns[index + 1 :] -= below[:, None] * columns[index]
    return columns


def solved(lower: FloatArray, targets: FloatArray) -> FloatArray:
    """Return ``x`` with ``lower @ lower.T @ x = targets``, of the shape of ``targets``.

    Args:
        lower: ``[D, D]``, as ``cholesky`` gave it.
        targets: ``[D]``, or ``[D, M]`` for ``M`` of them at once.
    """
    return _backward(lower, _forward(lower, targets))


def _forward(lower: FloatArray, targets: FloatArray) -> FloatArray:
    found = _columns(targets)
    turned = np.ascontiguousarray(lower.T)
    for index in range(len(found)):
        found[index] /= lower[index, index]
        found[index + 1 :] -= turned[index, index + 1 :, None] * found[index]
    return found.reshape(targets.shape)


def _backward(lower: FloatArray, targets: FloatArray) -> FloatArray:
    found = _columns(targets)
    for index in reversed(range(len(found))):
        found[index] /= lower[index, index]
        found[:index] -= lower[index, :index, None] * found[index]
    return found.reshape(targets.shape)


def _columns(targets: FloatArray) -> FloatArray:
    return np.array(targets if targets.ndim == 2 else targets[:, None], dtype=np.float64)
