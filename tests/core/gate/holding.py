"""Processes that hold the gate in memory, as one does whose disk is full."""

import subprocess
import sys
from pathlib import Path

HOLDING = """
import sys
from pathlib import Path
from tau_live.core.memory_holds import MemoryHoldSign
sign = MemoryHoldSign(Path(sys.argv[1]))
sign.show(("store_unavailable", float(sys.argv[2])))
print("held", flush=True)
sys.stdin.readline()
"""


def holding(store: Path, *, since: float = 1_800_000_000.0) -> subprocess.Popen[str]:
    """Return a process that holds in memory on a store, until it is killed or given a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(store), str(since)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process
