"""Products and solutions in tiles: what they are, and that threads change no bit of them."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.rl import arrays
from tau_live.rl.arrays import FloatArray

WIDTHS = st.integers(0, 130)


def drawn(seed: int, *shape: int) -> FloatArray:
    return np.random.default_rng(seed).normal(size=shape)


def positive(seed: int, width: int) -> FloatArray:
    rows = drawn(seed, width + 3, width)
    return rows.T @ rows + np.eye(width)


@pytest.mark.parametrize("rows", [0, 1, 5, 65])
@pytest.mark.parametrize("inner", [1, 700, 17_000])
@pytest.mark.parametrize("columns", [0, 1, 66, 1_025])
def test_a_product_in_parts_is_the_product(rows: int, inner: int, columns: int) -> None:
    left, right = drawn(0, 2, rows, inner), drawn(1, 2, inner, columns)
    whole, single = np.empty((2, rows, columns)), np.empty((rows, columns))

    arrays.multiply(left, right, out=whole)
    arrays.multiply(left[0], right[0], out=single)

    np.testing.assert_allclose(whole, left @ right, rtol=0, atol=1e-9)
    np.testing.assert_allclose(single, left[0] @ right[0], rtol=0, atol=1e-9)


@given(st.integers(0, 99), st.integers(0, 64), WIDTHS, st.sampled_from([-1.0, 1.0]))
def test_an_added_gram_leaves_a_matrix_symmetric(
    seed: int, samples: int, width: int, sign: float
) -> None:
    rows, before = drawn(seed, samples, width), positive(seed, width)
    before = np.triu(before) + np.triu(before, 1).T
    found = before.copy()

    arrays.add_gram(found, rows, sign=sign)

    expected = before + sign * np.einsum("ni,nj->ij", rows, rows)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert np.array_equal(found, found.T)


@given(st.integers(0, 99), st.integers(0, 90), WIDTHS)
def test_a_gram_is_the_sum_of_outer_products(seed: int, samples: int, width: int) -> None:
    rows = drawn(seed, samples, width)

    found = arrays.gram(rows)

    np.testing.assert_allclose(found, np.einsum("ni,nj->ij", rows, rows), rtol=1e-12, atol=1e-12)
    assert np.array_equal(found, found.T)


@pytest.mark.slow
@given(st.integers(0, 99), WIDTHS)
def test_a_triangle_times_itself_turned_is_the_matrix(seed: int, width: int) -> None:
    matrix = positive(seed, width)

    lower = arrays.cholesky(matrix)

    np.testing.assert_allclose(lower @ lower.T, matrix, rtol=1e-10, atol=1e-9)
    assert np.array_equal(lower, np.tril(lower))


@pytest.mark.slow
@given(st.integers(0, 99), WIDTHS, st.integers(1, 3))
def test_a_solution_solves(seed: int, width: int, many: int) -> None:
    matrix, targets = positive(seed, width), drawn(seed + 1, width, many)
    lower = arrays.cholesky(matrix)

    found, one = arrays.solve(lower, targets), arrays.solve(lower, targets[:, 0])

    np.testing.assert_allclose(matrix @ found, targets, rtol=1e-7, atol=1e-8)
    assert np.array_equal(one, arrays.solve(lower, targets[:, :1])[:, 0])


def test_products_are_what_they_are_called() -> None:
    matrix, vector = drawn(0, 40, 700), drawn(1, 700)

    found = arrays.product(matrix, vector)

    np.testing.assert_allclose(found, matrix @ vector)


@pytest.mark.parametrize("width", [1, 31, 33, 70])
def test_what_is_not_positive_definite_is_refused(width: int) -> None:
    matrix = np.eye(width)
    matrix[-1, -1] = 0.0

    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        arrays.cholesky(matrix)
    with pytest.raises(np.linalg.LinAlgError):
        arrays.cholesky(np.full((width, width), np.nan))


THREADED = """
import hashlib
import numpy as np
from tau_live.rl import arrays

rng = np.random.default_rng(0)
hashed = hashlib.sha256()
for width in (100, 256, 512, 700):
    rows = rng.integers(-9, 9, size=(900, width)) / 7.0
    gram = arrays.gram(rows)
    lower = arrays.cholesky(gram + np.eye(width))
    products = arrays.product(rows.T, rows[:, 0])
    for array in (gram, lower, products, arrays.solve(lower, products)):
        hashed.update(array.tobytes())
print(hashed.hexdigest())
"""


@pytest.mark.slow
def test_the_number_of_threads_changes_no_bit() -> None:
    found = []
    for threads in ("1", "2", "4"):
        named = {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **named}
        done = subprocess.run(
            [sys.executable, "-c", THREADED],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(done.stdout)

    assert len(set(found)) == 1
    assert len(found[0]) == 65
