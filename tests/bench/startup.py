"""What tau-live adds to the start of a process, beside what importing numpy adds.

Every figure is the processor's time of whole processes, less that of as many bare interpreters in
the same round.
"""

import resource
import subprocess
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tests.bench.timing import Goal, Measured, Timed, command, interleaved
from tests.boot.hosting import ENTRY_POINTS, HOST, NAMED, PLUGIN
from tests.scratch import Scratch

PROCESSES = 3
"""So many of each kind make one figure."""

LEAST_S = 1e-4
"""Less than this cannot be told from nothing."""

AUTO = "import tau_live.auto"
PEER = "import numpy"
NOTHING = Goal(0.05, faster=False)
LIMIT = Goal(1.5, faster=False)


def measure(rounds: int, *, processes: int = PROCESSES) -> list[Measured]:
    """Measure each way in which a process can start."""
    with tempfile.TemporaryDirectory() as name:
        plain = _scratch(Path(name) / "plain")
        named = _scratch(Path(name) / "named")
        named.install("bakery", HOST)
        named.install("bakery_hook", PLUGIN, NAMED)
        plugged = _scratch(Path(name) / "plugged")
        plugged.install("bakery_hook", PLUGIN, ENTRY_POINTS)
        enabled = _scratch(Path(name) / "enabled")
        enabled.cli("autostart", "enable")
        added = partial(_added, bare=plain, processes=processes)
        off, on = plain.environ(None), plain.environ("1")
        ways = [
            ("off, import tau_live", added(plain, "import tau_live", off), NOTHING),
            ("off, import tau_live.auto", added(plain, AUTO, off), NOTHING),
            ("off, autostart enabled", added(enabled, "pass", off), NOTHING),
            ("on, no host", added(plain, AUTO, on), LIMIT),
            ("on, no host, autostart enabled", added(enabled, "pass", on), LIMIT),
            ("on, no host, another's adapter", added(named, AUTO, on), LIMIT),
            ("on, no host, another's plugin", added(plugged, AUTO, on), LIMIT),
            ("on, a host with store and learner", added(named, f"{AUTO}, bakery", on), None),
        ]
        theirs = added(plain, PEER, off)
        return [
            interleaved(work, ours, theirs, peer=PEER, rounds=rounds, goal=goal)
            for work, ours, goal in ways
        ]


def _scratch(folder: Path) -> Scratch:
    folder.mkdir()
    return Scratch(folder)


def _added(
    scratch: Scratch, code: str, environ: Mapping[str, str], *, bare: Scratch, processes: int
) -> Timed:
    """Return what measures the time that code adds to that of a bare interpreter."""

    def added() -> float:
        took = 0.0
        for _ in range(processes):
            took += _took_s(scratch, code, environ) - _took_s(bare, "pass", bare.environ(None))
        return max(took / processes, LEAST_S)

    return added


def _took_s(scratch: Scratch, code: str, environ: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [str(scratch.python), "-c", code], cwd=scratch.folder, env=dict(environ), check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


main = command("startup", "The start of a process", measure)

if __name__ == "__main__":
    main()
