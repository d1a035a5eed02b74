"""Checks of the place of a store."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tau_live.cli.doctor_checks.check import WARN, Check
from tau_live.store.migrations import APPLICATION_ID
from tau_live.switch import SWITCH

MOUNTS = Path("/proc/self/mountinfo")
NETWORKED = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "gpfs",
     "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
)  # fmt: skip
LOOKED_AT = 200
_AT = slice(68, 72)
_MAGIC = b"SQLite format 3\x00"


def place_checks(file: Path) -> Iterator[Check]:
    """Yield what is wrong with the place of a store, there or not."""
    kind = file_system_of(file, MOUNTS)
    if kind in NETWORKED:
        advice = f"set {SWITCH}_STORE to a file on a local disk"
        found = f"{file} is on {kind}, where locks are unreliable"
        yield Check("store", WARN, found, advice, "store-on-network")
    others = other_stores(file)
    if others:
        named = ", ".join(one.name for one in others[:3])
        found = f"{len(others)} more in {file.absolute().parent}: {named}"
        advice = f"set {SWITCH}_STORE to the same one everywhere, and move the others"
        yield Check("store", WARN, found, advice, "stores-several")


def file_system_of(file: Path, mounts: Path) -> str | None:
    """Return the kind of file system that a file is or will be on; ``None`` if nobody tells.

    Args:
        file: The file.
        mounts: Where the kernel lists what is mounted, see ``man 5 proc``.
    """
    try:
        lines = mounts.read_text(errors="replace").splitlines()
        place = os.path.realpath(file)
    except OSError:
        return None
    best: tuple[int, str] | None = None
    for line in lines:
        told, _, rest = line.partition(" - ")
        parts, kind = told.split(" "), rest.partition(" ")[0]
        at = _unescaped(parts[4]) if len(parts) > 4 else ""
        inside = place == at or place.startswith(at.rstrip("/") + "/")
        if at and inside and (best is None or len(at) >= best[0]):  # the last of a place counts
            best = (len(at), kind)
    return best[1] if best else None


def other_stores(file: Path) -> list[Path]:
    """Return the stores that lie beside one, the newest first."""
    try:
        beside = list(islice(file.absolute().parent.iterdir(), LOOKED_AT))
        found = [one for one in beside if one.name != file.name and _is_store(one)]
        return sorted(found, key=lambda one: one.stat().st_mtime, reverse=True)
    except OSError:
        return []


def _is_store(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with path.open("rb") as opened:
            begin = opened.read(_AT.stop)
    except OSError:
        return False
    return begin.startswith(_MAGIC) and begin[_AT] == APPLICATION_ID.to_bytes(4, "big")


def _unescaped(path: str) -> str:
    """Return a path as it is: the kernel writes a blank as its octal code."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path
