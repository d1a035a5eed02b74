"""Checkpoint files that somebody made to do harm are refused before they can."""

import hashlib
import io
import json
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tau_live.core.errors import CheckpointError
from tau_live.store.checkpoints import name_of
from tests.decisions.paths import load, load_some


def sealed(content: bytes) -> bytes:
    """Return an archive with a checksum that fits, as somebody who knows how could make it."""
    body = content[:-2] + struct.pack("<H", 64)
    return body + hashlib.sha256(body).hexdigest().encode()


def archive_of(entries: dict[str, bytes], *, compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def npy(array: npt.NDArray[np.generic], *, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


def header(**changes: object) -> bytes:
    known = {
        "format": 1,
        "version": 1,
        "point": "p",
        "parent": 0,
        "parent_sha256": "",
        "metadata": {},
        "arrays": {},
        "sha256": "",
    }
    text = json.dumps(known | changes).encode()
    return npy(np.frombuffer(text, dtype=np.uint8))


HUGE = npy(np.zeros(1)).replace(b"(1,)", b"(%d,)" % 10**9)
HARMFUL = {
    "no header": {"a.x": npy(np.zeros(1))},
    "a header that is no object": {"checkpoint": npy(np.frombuffer(b"[1]", dtype=np.uint8))},
    "a header that is no JSON": {"checkpoint": npy(np.frombuffer(b"{", dtype=np.uint8))},
    "another format": {"checkpoint": header(format=2)},
    "no version": {"checkpoint": header(version=None)},
    "metadata that is none": {"checkpoint": header(metadata=[1])},
    "arrays that are none": {"checkpoint": header(arrays=["x"])},
    "a checksum that does not fit": {"checkpoint": header(sha256="0" * 64)},
    "an array of objects": {
        "checkpoint": header(),
        "a.x": npy(np.array([{}], dtype=object), allow_pickle=True),
    },
    "an array larger than the file": {"checkpoint": header(), "a.x": HUGE},
    "an array that is none": {"checkpoint": header(), "a.x": b"nothing"},
    "an array with code for a shape": {
        "checkpoint": header(),
        "a.x": npy(np.zeros(1)).replace(b"(1,)", b"f()+"),
    },
}


@pytest.mark.parametrize("entries", HARMFUL.values(), ids=HARMFUL)
def test_a_file_that_was_made_to_harm_is_refused(tmp_path: Path, entries: dict[str, bytes]) -> None:
    path = tmp_path / name_of(1)
    path.write_bytes(sealed(archive_of(entries)))

    with pytest.raises(CheckpointError):
        load(path)
    with pytest.raises(CheckpointError):
        load_some(path, ["x"])


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / name_of(1)
    bomb = archive_of({"checkpoint": bytes(2**26)}, compression=zipfile.ZIP_DEFLATED)
    path.write_bytes(sealed(bomb))

    with pytest.raises(CheckpointError, match="compressed"):
        load(path)


def test_a_file_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    content = bytearray(archive_of({"checkpoint": header()}))
    central = content.index(b"PK\x01\x02")
    content[central + 24 : central + 28] = struct.pack("<I", 2**30)
    path = tmp_path / name_of(1)
    path.write_bytes(sealed(bytes(content)))

    with pytest.raises(CheckpointError, match="claims to hold more than"):
        load(path)
    with pytest.raises(CheckpointError, match="claims to hold more than"):
        load_some(path, [])


def members(number: int) -> bytes:
    """Return an archive whose list has so many entries, all of them the same."""
    whole = archive_of({"checkpoint": header()})
    begin, end = whole.index(b"PK\x01\x02"), whole.index(b"PK\x05\x06")
    listed = whole[begin:end] * number
    last = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, number, number, len(listed), begin, 0)
    return sealed(whole[:begin] + listed + last)


def claiming(shape: bytes) -> bytes:
    array = npy(np.zeros(1)).replace(b"(1,)", b"(%s,)" % shape)
    return sealed(archive_of({"checkpoint": header(), "a.x": array}))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(members(60_000), "claims to have 60000 entries", id="many members"),
        pytest.param(claiming(b"%d" % 10**12), "claims to be an array of", id="a large array"),
        pytest.param(claiming(b"1," * 30_000), "cannot read", id="a long shape"),
        pytest.param(
            sealed(archive_of({"checkpoint": header(more="x" * 2**23)})),
            "its header is larger",
            id="a large header",
        ),
    ],
)
def test_what_a_file_claims_is_refused_before_it_is_read(
    tmp_path: Path, content: bytes, why: str
) -> None:
    path = tmp_path / name_of(1)
    path.write_bytes(content)

    with pytest.raises(CheckpointError, match=why):
        load(path)
    with pytest.raises(CheckpointError, match=why):
        load_some(path, ["x"])


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / name_of(1)
    os.mkfifo(path)

    with pytest.raises(CheckpointError, match="not a regular file"):
        load(path)
    with pytest.raises(CheckpointError, match="not a regular file"):
        load_some(path, ["x"])
