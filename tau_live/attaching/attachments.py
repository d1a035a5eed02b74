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

from tau_live.attaching.hosts import Standing
from tau_live.machine.processes import is_alive
from tau_live.machine.whole_files import write_whole

FOLDER = "processes"
KEPT = 8
"""So many files of processes that are over are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """What one process said of itself.

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
        """Whether the process still runs, as far as can be told from here."""
        return is_alive(self.process) is not False


def note(store: Path, process: str, doors: Iterable[str], hosts: Iterable[Standing]) -> None:
    """Write down what this process says of itself, by the store, which need not be there yet.

    Raises:
        OSError: It could not be written.
    """
    folder = store.absolute().parent / FOLDER
    for missing in [one for one in (*reversed(folder.parents), folder) if not one.exists()]:
        missing.mkdir(mode=0o700, exist_ok=True)
    said = {"process": process, "doors": list(doors), "hosts": [asdict(one) for one in hosts]}
    file = folder / f"{os.getpid()}.json"
    write_whole(file, json.dumps(said, indent=2).encode() + b"\n")
    over = [path for path in _files(folder) if path != file and not _is_alive(path)]
    for path in over[KEPT:]:
        path.unlink(missing_ok=True)


def attachments(store: Path) -> list[Attachment]:
    """Return what processes said of themselves, the newest first; what cannot be read is not."""
    found = (_read(path) for path in _files(store.parent / FOLDER))
    return [one for one in found if one is not None]


def _is_alive(path: Path) -> bool:
    found = _read(path)
    return found is not None and found.alive


def _files(folder: Path) -> list[Path]:
    """Return the files of processes, the newest first."""
    dated: list[tuple[float, Path]] = []
    for path in folder.glob("*.json"):
        try:
            dated.append((path.stat().st_mtime, path))
        except OSError:  # its process has just removed it
            continue
    return [path for _, path in sorted(dated, reverse=True)]


def _read(path: Path) -> Attachment | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Attachment)
    except (OSError, msgspec.DecodeError):
        return None
