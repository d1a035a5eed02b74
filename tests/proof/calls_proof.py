"""How long a call may keep its host, while everything behind it is at work."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.proof.figures import Figure, Progress, Tier

SECONDS = {Tier.QUICK: 3.0, Tier.LONG: 60.0}
P99_MS = 5.0
WORST_MS = 50.0


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Time every call of a host that runs agents in several threads while we store and learn.

    The processor's time of the calling thread, because a clock measures the neighbours as well;
    the clock's time is bound in the long tier alone.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.proof.calls_host"]
        done = subprocess.run(
            [*command, str(Path(folder) / "store.sqlite"), str(SECONDS[tier])],
            check=True,
            capture_output=True,
            text=True,
        )
    progress(1, 1)
    result = json.loads(done.stdout.splitlines()[-1])
    for name, took in result["processor"].items():
        yield Figure(1, f"{name}, p99, ms of the thread", _percentile(took, 99), at_most=P99_MS)
        yield Figure(1, f"{name}, longest, ms of the thread", max(took), at_most=WORST_MS)
    clock = [took for each in result["clock"].values() for took in each]
    long = tier is Tier.LONG
    yield Figure(1, "any call, p99, ms by the clock", _percentile(clock, 99),
                 at_most=P99_MS if long else None)  # fmt: skip
    yield Figure(1, "any call, longest, ms by the clock", max(clock))
    yield Figure(1, "the longest that Python's garbage collector took in one, which is apart, ms",
                 result["collected"])  # fmt: skip
    yield Figure(1, "calls", len(clock), at_least=1_000)
    yield Figure(2, "decisions that are none of the options", result["strange"], at_most=0)
    yield Figure(1, "versions made meanwhile", result["versions"], at_least=1)
    worked = result["worked"]
    yield Figure(1, "times that threads of ours have paused", len(worked), at_least=100)
    # With what numpy, SHA-256 and the disk do in it, which lets others run; 111 without pauses.
    yield Figure(1, "work of theirs between two pauses, p99, ms of the thread",
                 _percentile(worked, 99), at_most=2 * P99_MS)  # fmt: skip
    yield Figure(1, "the longest, ms of the thread, the garbage collector apart", max(worked))


def _percentile(took: list[float], share: float) -> float:
    return float(np.percentile(took, share))
