"""Digests of what is stored of a policy or of a learner's state: the same bits, the same digest."""

import hashlib
from collections.abc import Mapping

import numpy as np

from tau_live.rl.arrays import Array
from tau_live.rl.policy import Policy
from tau_live.rl.state import LearnerState


def digest_of(stored: Policy | LearnerState) -> str:
    """Return the SHA-256 of all arrays, the same on every machine."""
    return digest(stored.arrays())


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
