"""The doors and hosts of each attached process, in a small file of its own beside the store.

``tau-live doctor`` reads them, also when the process is over: somebody whose agent has just ended
without a rollout wants to know what was attached.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from tau_live.boot.hosts import Standing
from tau_live.core.files import write_whole
from tau_live.core.processes import is_alive

FOLDER = "processes"
KEPT = 8
"""So many files of processes that are over are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """The record that one process wrote of itself.

    Attributes:
        process: Its name, as ``machine.processes.this_process`` makes it.
        doors: Which doors fired, in their order.
        hosts: How its hosts stand.
    """

    process: str
    doors: tuple[str, ...]
    hosts: tuple[Standing, ...]

    @property
    def alive(self) -> bool:
        """True while the process runs, as far as can be known from here."""
        return is_alive(self.process) is not False


def note(store: Path, process: str, doors: Iterable[str], hosts: Iterable[Standing]) -> None:
    """Write down the record of this process, by the store, which need not be there yet.

    Raises:
        OSError: It could not be written.
    """
    folder = store.absolute().parent / FOLDER
    for ancestor in (*reversed(folder.parents), folder):
        if not ancestor.exists():
            ancestor.mkdir(mode=0o700, exist_ok=True)
    content = {"process": process, "doors": [*doors], "hosts": [asdict(host) for host in hosts]}
    file = folder / f"{os.getpid()}.json"
    write_whole(file, json.dumps(content, indent=2).encode() + b"\n")
    others = [(path, _read_file(path)) for path in _files(folder) if path != file]
    over = [path for path, known in others if known is None or not known.alive]
    for path in over[KEPT:]:
        path.unlink(missing_ok=True)


def attachments(store: Path) -> list[Attachment]:
    """Return the records of processes, the newest first; what cannot be read is left out."""
    known = (_read_file(path) for path in _files(store.parent / FOLDER))
    return [attachment for attachment in known if attachment is not None]


def _files(folder: Path) -> list[Path]:
    """Return the files of processes, the newest first."""
    dated: list[tuple[float, Path]] = []
    for path in folder.glob("*.json"):
        try:
            dated.append((path.stat().st_mtime, path))
        except OSError:  # its process has just removed it
            continue
    return [path for _, path in sorted(dated, reverse=True)]


def _read_file(path: Path) -> Attachment | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Attachment)
    except (OSError, msgspec.DecodeError):
        return None
