"""Checkpoint files made to take all memory or time, or to run code, and what reading them takes."""

import hashlib
import io
import json
import os
import pickle
import resource
import struct
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tau_live.core.errors import CheckpointError
from tau_live.store.checkpoints import name_of
from tests.decisions.paths import load, load_some
from tests.proof.inputs_tally import Tally

_END = struct.Struct("<4s4H2LH")
_LISTED = struct.Struct("<4s4B4HL2L5H2L")
MARK = "TAU_LIVE_CODE_WAS_RUN"


class Code:
    """Leaves a mark when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return os.putenv, (MARK, "1")


def _npy(array: npt.NDArray[np.generic], *, pickled: bool = False) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=pickled)
    return file.getvalue()


def _header(**more: object) -> bytes:
    known = {"format": 1, "version": 1, "point": "p", "parent": 0, "parent_sha256": ""}
    text = json.dumps({**known, "metadata": {}, "arrays": {}, "sha256": "", **more}).encode()
    return _npy(np.frombuffer(text, dtype=np.uint8))


def _archive(entries: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def _sealed(content: bytes) -> bytes:
    body = content[:-2] + struct.pack("<H", 64)
    return body + hashlib.sha256(body).hexdigest().encode()


def _claiming(shape: bytes) -> bytes:
    array = _npy(np.zeros(1)).replace(b"(1,)", b"(%s,)" % shape)
    return _sealed(_archive({"checkpoint": _header(), "a.x": array}))


def _members(number: int) -> bytes:
    """Return an archive whose list has so many entries, all of them the same."""
    whole = _archive({"checkpoint": _header()})
    begin = whole.index(b"PK\1\2")
    body, listed = whole[:begin], whole[begin : whole.index(b"PK\5\6")]
    count = min(number, 65_535)
    end = _END.pack(b"PK\5\6", 0, 0, count, count, len(listed) * number, begin, 0)
    return _sealed(body + listed * number + end)


def _sparse(path: Path) -> None:
    content = _sealed(_archive({"checkpoint": _header()}))
    with path.open("wb") as file:
        file.truncate(2**40)
        file.seek(0, os.SEEK_END)
        file.write(content[content.index(b"PK\5\6") :])


def _two_ends() -> bytes:
    """Return an archive whose comment looks like another end, with another list."""
    content = _archive({"checkpoint": _header()})
    other = _END.pack(b"PK\5\6", 0, 0, 9, 9, 2**31, 0, 0)
    return content[:-2] + struct.pack("<H", 64) + other.ljust(64, b"0")


BOMBS: Mapping[str, Callable[[], bytes]] = {
    "256 MB of zeros, deflated": lambda: _sealed(
        _archive({"checkpoint": bytes(2**28)}, zipfile.ZIP_DEFLATED)
    ),
    "deflated in front of a good header": lambda: _sealed(
        _archive({"checkpoint": _header(), "a.x": bytes(2**28)}, zipfile.ZIP_DEFLATED)
    ),
    "an array of 8 TB": lambda: _claiming(b"%d" % 10**12),
    "an array of 80 GB": lambda: _claiming(b"%d" % 10**10),
    "an array of 8 GB in many dimensions": lambda: _claiming(b"1000,1000,1000"),
    "an array of a negative shape": lambda: _claiming(b"-1"),
    "an array whose shape is very long": lambda: _claiming(b"1," * 30_000 + b"1"),
    "an array of wide items": lambda: _sealed(
        _archive(
            {"checkpoint": _header(), "a.x": _npy(np.zeros(1)).replace(b"<f8", b"V9999999999")}
        )
    ),
    "a million members": lambda: _members(1_000_000),
    "65,000 members": lambda: _members(65_000),
    "two ends": _two_ends,
    "a pickle": lambda: _sealed(
        _archive({"checkpoint": _header(), "a.x": _npy(np.array([Code()]), pickled=True)})
    ),
    "a bare pickle": lambda: pickle.dumps(Code()),
    "a pickle for a header": lambda: _sealed(
        _archive({"checkpoint": _npy(np.array([Code()]), pickled=True)})
    ),
    "a header of 100 MB": lambda: _sealed(_archive({"checkpoint": _header(more=["x"] * 2**24)})),
    "a header 100,000 deep": lambda: _sealed(
        _archive({"checkpoint": _npy(np.frombuffer(b"[" * 100_000, dtype=np.uint8))})
    ),
    "nothing": lambda: b"",
    "zeros": lambda: bytes(2**24),
}


def bomb_cases(tally: Tally, seed: int, cases: range, folder: Path) -> Mapping[str, object]:
    """Read every bomb; return how many were not refused, and what refusing took at most."""
    path = folder / name_of(1)
    taken: list[float] = []
    grown: list[float] = []
    for name, make in BOMBS.items():
        path.write_bytes(make())
        _defused(tally, name, path, taken, grown)
    _sparse(path)
    _defused(tally, "a terabyte of nothing", path, taken, grown)
    path.unlink()
    os.mkfifo(path)
    _defused(tally, "a pipe", path, taken, grown)
    path.unlink()
    path.symlink_to("/dev/zero")
    _defused(tally, "a device without an end", path, taken, grown)
    tally.check(MARK not in os.environ and os.getenv(MARK) is None, "odd", "code was run")
    return {"bombs": len(taken), "most_ms": max(taken), "most_mb": max(grown)}


def _defused(tally: Tally, name: str, path: Path, taken: list[float], grown: list[float]) -> None:
    """Read one in a child, so that the most memory that it ever took is its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os.write(writer, json.dumps(_tried(path)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        words = pipe.read()
    os.waitpid(child, 0)
    result: dict[str, Any] = (
        json.loads(words) if words else {"kinds": ["it died"], "ms": 0.0, "mb": 0.0}
    )
    tally.cases += 1
    tally.case = name
    refused = result["kinds"] == ["CheckpointError", "CheckpointError"]
    tally.check(refused, "odd", f"{result['kinds']}")
    taken.append(result["ms"])
    grown.append(result["mb"])


def _tried(path: Path) -> dict[str, Any]:
    kinds = []
    resident = _resident_mb()
    began = time.monotonic()
    for reading in (load, lambda path: load_some(path, ["x"])):
        try:
            reading(path)
            kinds.append("read")
        except CheckpointError as error:
            kinds.append(type(error).__name__)
        except BaseException as error:  # it is what is looked for
            kinds.append(repr(error)[:200])
    took = (time.monotonic() - began) * 1e3
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"kinds": kinds, "ms": took, "mb": max(0.0, most - resident)}


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20
