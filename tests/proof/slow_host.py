"""Work on a disk that is slow to synchronise: ``python -m tests.proof.slow_host STORE SECONDS``."""

import json
import os
import sys
import time
from pathlib import Path

import tau_live
from tau_live.core.settings import Durability, Learner, Settings
from tests.faulty_vfs import faulty_disk

RUNS = 200
LONG_S = 600.0


def main() -> None:
    """Print what each run took while each commit waited for the disk, in ms."""
    os.environ["TAU_LIVE_RL"] = "1"
    settings = Settings(store=Path(sys.argv[1]), durability=Durability.FULL,
                        decide_deadline_ms=60_000.0, learner=Learner.THREAD)  # fmt: skip
    with faulty_disk() as disk:
        tau_live.attach(settings)
        tau_live.flush(LONG_S)
        for at in range(20):
            _run(f"warm-{at}")
        tau_live.flush(LONG_S)
        disk.slow_s = float(sys.argv[2])
        before = disk.counts["sync"]
        took = [_run(str(at)) for at in range(RUNS)]
        synced = disk.counts["sync"] - before
        slow_s, disk.slow_s = disk.slow_s, 0.0
        stored = tau_live.flush(LONG_S)
        tau_live.detach()
    print(json.dumps({"took_ms": took, "synced": synced, "slow_s": slow_s, "stored": stored}))


def _run(key: str) -> float:
    began = time.perf_counter()
    with tau_live.run("job", key=key) as run:
        run.decide("model", ["a", "b", "c"], default="b")
        run.reward(1.0)
    took = (time.perf_counter() - began) * 1e3
    time.sleep(0.002)  # an agent does something besides
    return took


if __name__ == "__main__":
    main()
