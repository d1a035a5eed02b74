"""Array types, ragged rows, and a digest that does not depend on the machine."""

import hashlib
from collections.abc import Mapping

import numpy as np
import numpy.ma  # or `np.unique` would, in the middle of a host's first decision
import numpy.typing as npt

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
    """Return ``[N+1]`` where each row laid end to end begins, and where the last one ends."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def spans(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return ``lengths[i]`` numbers from ``starts[i]`` on, for every ``i``, end to end."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - ends + lengths, lengths) + np.arange(total, dtype=np.int64)


def digest(arrays: Mapping[str, Array]) -> str:
    """Return the SHA-256 of names, dtypes, shapes and little-endian bytes, as hexadecimal text."""
    hashed = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        kind = f"{little.dtype.kind}{little.dtype.itemsize}"
        hashed.update(f"{name}\0{kind}\0{array.shape}\0".encode())
        hashed.update(little.tobytes())
    return hashed.hexdigest()


def required(arrays: Mapping[str, Array], name: str, shape: tuple[int, ...]) -> FloatArray:
    """Return the finite float64 array of that name and shape.

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
