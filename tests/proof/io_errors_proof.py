"""Every call that SQLite makes of the disk fails once, or from then on, in a whole small life.

A life opens a store, collects, decides, rewards, updates, promotes, rolls back and closes. The
quick tier lets a sample of its calls fail, the long one every one of them.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.proof.figures import Figure, Progress, Tier
from tests.proof.io_lives import Life, Wanted

KINDS = ("once", "from then on", "full", "torn")
ROOT = Path(__file__).parents[2]
QUICK_LIVES = 7
PROCESSES = {Tier.QUICK: 3, Tier.LONG: 6}
"""A life mostly waits for the next attempt."""


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Live every life, and count what reached the host and what is left on the disk."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        [whole] = _living([{"kind": "none", "at": 0}], place / "0")
        calls = {"once": whole.seen, "torn": whole.writes}
        calls |= {"from then on": calls["once"], "full": calls["torn"]}
        wanted: list[Wanted] = [
            {"kind": kind, "at": at} for kind in KINDS for at in _chosen(calls[kind], tier)
        ]
        lives = _spread(wanted, place, processes=PROCESSES[tier], progress=progress)
    yield Figure(1, "small lives on a disk that fails at one call or from one on", len(lives),
                 at_least=4 * QUICK_LIVES)  # fmt: skip
    failed = sum(life.failed > 0 for life in lives)  # one that batches better makes fewer calls
    yield Figure(1, "of these, lives whose disk really failed", failed, at_least=0.6 * len(lives))
    yield Figure(1, "exceptions that reached the host", _sum(lives, "raised"), at_most=0)
    took = sorted(ms for life in lives for ms in life.decide_ms)
    p99 = took[int(0.99 * len(took))]
    yield Figure(1, "a decision meanwhile, p99 in ms of its thread", p99, at_most=5)
    yield Figure(2, "answers that were not among the options", _sum(lives, "strange"), at_most=0)
    yield Figure(1, "lives in which something was missing and nothing said so",
                 _sum(lives, "unsaid"), at_most=0)  # fmt: skip
    yield Figure(3, "acknowledged runs lost", _sum(lives, "lost"), at_most=0)
    yield Figure(4, "runs neither stored nor counted", _sum(lives, "unaccounted"), at_most=0)
    yield Figure(5, "rows, updates or checkpoints stored in part",
                 sum(len(life.half) for life in lives), at_most=0)  # fmt: skip
    damaged = sum(life.integrity != "ok" for life in lives)
    yield Figure(3, "files that SQLite finds damaged", damaged, at_most=0)
    yield Figure(1, "lives that went on by themselves when the disk was mended",
                 sum(life.recovered for life in lives), at_least=len(lives))  # fmt: skip


def _sum(lives: Sequence[Life], name: str) -> int:
    return sum(int(getattr(life, name)) for life in lives)


def _chosen(calls: int, tier: Tier) -> list[int]:
    if tier is Tier.LONG:
        return list(range(1, calls + 1))
    return [1 + place * (calls - 1) // (QUICK_LIVES - 1) for place in range(QUICK_LIVES)]


def _spread(wanted: list[Wanted], place: Path, *, processes: int, progress: Progress) -> list[Life]:
    lives: list[Life] = []
    lock = threading.Lock()
    parts = [wanted[number::processes] for number in range(processes)]

    def live(number: int) -> None:
        for life in _living(parts[number], place / f"{number + 1}"):
            with lock:
                lives.append(life)
                progress(len(lives), len(wanted))
            if life.raised or life.half or not life.recovered or life.lost or life.unaccounted:
                print(f"{life}", file=sys.stderr)

    with ThreadPoolExecutor(processes) as pool:
        for done in [pool.submit(live, number) for number in range(processes)]:
            done.result()
    return lives


def _living(wanted: Sequence[Wanted], folder: Path) -> Iterator[Life]:
    """Yield the outcomes of lives in a process of their own."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TAU_LIVE")}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.proof.io_lives", str(folder)],
        cwd=ROOT,
        env={**own, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a process without pipes")
        process.stdin.write("".join(f"{json.dumps(life)}\n" for life in wanted))
        process.stdin.close()
        for line in process.stdout:
            yield Life(**json.loads(line))
    if process.returncode:
        raise RuntimeError(f"the process of the lives ended with {process.returncode}")
