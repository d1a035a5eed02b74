"""A child of the drill: trains on the recording, and writes a line at every point of an update.

    python -P -m tau_live.evidence.drill --run-id ID --store NAME --state DIR --seed N

With ``--wait-at POINT --job JOB`` it waits at that point, to be killed there.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from tau_live.core import fault
from tau_live.evidence.artifacts import digest
from tau_live.evidence.drill.documents import EventLine, Paths, StoreName
from tau_live.evidence.drill.stores import ended_rollouts, job_after, settings_of
from tau_live.record.recording import BadLine, read
from tau_live.runtime.replay import Offline
from tau_live.store.opening import open_at
from tau_live.store.roles import Store

STARTED = "process.started"
OPENED = "store.opened"
ENDED = "process.ended"
LEASED = "update.leased"
STORED = "update.stored"
UPDATE = "update."
"""The beginning of the fault points of an update."""


class _Log:
    """Appends a line to the events log at each point of an update, and prints the same.

    Args:
        arguments: The arguments of the child.
        file: The descriptor of the events log, opened to append.
        recording_sha256: The digest of the recording.
    """

    def __init__(self, arguments: argparse.Namespace, file: int, recording_sha256: str) -> None:
        self._run_id: str = arguments.run_id
        self._name: StoreName = arguments.store
        self._wait_at = (arguments.wait_at, arguments.job)
        self._file = file
        self._recording_sha256 = recording_sha256
        self._job: str | None = None

    def write(self, event: str, store: Store | None) -> None:
        """Write a line; ``store`` is ``None`` while there is none."""
        line = EventLine(
            run_id=self._run_id,
            store=self._name,
            pid=os.getpid(),
            at=time.time(),
            event=event,
            job_id=self._job,
            ended=ended_rollouts(store) if store else 0,
            head=str(store.seals.head()) if store else None,
            recording_sha256=self._recording_sha256,
        )
        content = msgspec.json.encode(line) + b"\n"
        os.write(self._file, content)  # the file first: of a print, the drill may kill
        os.write(sys.stdout.fileno(), content)

    def reach(self, point: str, store: Store) -> None:
        """Write a line at a point of an update, and wait there if it is to be killed at it."""
        if not point.startswith(UPDATE):
            return
        if point == LEASED:
            self._job = job_after(store)
        self.write(point, store)
        if (point, self._job) == self._wait_at:
            threading.Event().wait()  # until the drill kills this process, or is gone itself
        if point == "update.pruned":
            self._job = None


def train(arguments: argparse.Namespace) -> None:
    """Train on the recording to its end, from wherever the store is."""
    paths = Paths(arguments.run_id, arguments.state)
    content = Path(paths.recording).read_bytes()
    path = Path(paths.store(arguments.store))
    file = os.open(paths.events, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    log = _Log(arguments, file, digest(content))
    log.write(STARTED, None)
    with (
        closing(Offline(settings_of(path, seed=arguments.seed))) as offline,
        closing(open_at(path, read_only=True)) as store,
        Path(paths.recording).open("rb") as lines,
    ):
        log.write(OPENED, store)
        fault.listeners.append(lambda point: log.reach(point, store))
        offline.take(event for event in read(lines) if not isinstance(event, BadLine))
        offline.finish()
        log.write(ENDED, store)


def arguments_of(argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a child."""
    parser = argparse.ArgumentParser(prog="tau_live.evidence.drill")
    for name in ("--run-id", "--store", "--state"):
        parser.add_argument(name, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--wait-at")
    parser.add_argument("--job")
    return parser.parse_args(argv)
