"""The doors and hosts of each attached process, in a small file of its own beside the store.

``tau-live doctor`` reads them, also after the process has ended: somebody whose agent has just
ended without a rollout wants to know what was attached.
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
KEPT_FILES = 8
"""The number of files of ended processes that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """The record that one process wrote of itself.

    Attributes:
        process: Its name, as ``core.processes.this_process`` makes it.
        doors: The doors that fired, in their order.
        hosts: The standing of each of its hosts.
    """

    process: str
    doors: tuple[str, ...]
    hosts: tuple[Standing, ...]

    @property
    def alive(self) -> bool:
        """True while the process runs, as far as this process can tell."""
        return is_alive(self.process) is not False


def note(store: Path, process: str, doors: Iterable[str], hosts: Iterable[Standing]) -> None:
    """Write the record of this process beside the store, which need not exist yet.

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
    ended = [path for path, record in others if record is None or not record.alive]
    for path in ended[KEPT_FILES:]:
        path.unlink(missing_ok=True)


def attachments(store: Path) -> list[Attachment]:
    """Return the records of processes, the newest first; unreadable ones are left out."""
    records = (_read_file(path) for path in _files(store.parent / FOLDER))
    return [record for record in records if record is not None]


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
