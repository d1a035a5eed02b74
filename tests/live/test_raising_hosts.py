"""A host whose logging or whose clock raises loses lines and time, and nothing else."""

from pathlib import Path

import pytest

from tau_live.operate.stops import kill, kill_file, unkill
from tests.live.running import counters, done, go, process, rollouts, said, until

pytestmark = pytest.mark.slow

HOST = """
import json, logging, sys, threading, time, tau_live

class Broken(logging.Handler):
    def emit(self, record):
        raise {error}

logging.getLogger().addHandler(Broken())
assert tau_live.attach() is not None
for word in sys.stdin:
    if word.strip() == "end":
        break
    with tau_live.run("agent") as run:
        run.decide("model", ["a", "b"], default="c")
        accepted = run.reward(1.0)
    flushed = tau_live.flush(10)
    names = [thread.name for thread in threading.enumerate()]
    print(json.dumps(dict(accepted=accepted, flushed=flushed, writes="tau-live-writer" in names,
                          gate=tau_live.snapshot()["gate"]["state"])), flush=True)
tau_live.detach()
"""


@pytest.mark.parametrize("error", ["ValueError('no log server')", "SystemExit(1)"])
def test_a_log_that_raises_ends_no_thread(path: Path, error: str) -> None:
    if error.startswith("SystemExit"):  # in a thread of the host's it is the host's
        error = f"{error} if threading.current_thread().name.startswith('tau-live') else OSError()"
    switch, kept = kill_file(path, None), 0
    with process(HOST.replace("{error}", error), path) as host:

        def is_kept() -> bool:
            nonlocal kept
            go(host)
            found = said(host)
            assert found["writes"]
            kept += found["accepted"] is True
            return found["accepted"] is found["flushed"] is True and found["gate"] == "pass"

        until(is_kept)
        kill(switch, "a test", who="me", at=0.0)
        until(lambda: not is_kept())
        unkill(switch)
        until(is_kept)
        go(host, "end")
        done(host)

    assert len(rollouts(path)) == kept
    assert counters(path)["log_lines_lost"] >= 3


CLOCK = """
import threading, time, tau_live
with tau_live.run("before"):
    pass
assert tau_live.flush(10)
kept = {name: getattr(time, name) for name in ("time", "monotonic", "perf_counter", "thread_time")}

def broken():
    raise RuntimeError("clock")

for name in kept:
    setattr(time, name, broken)
with tau_live.run("meanwhile") as run:
    assert run.decide("model", ["a", "b"], default="b").option == "b"
    run.reward(1.0)
assert not tau_live.flush(1)
tau_live.snapshot()
threading.Event().wait(1.0)
for name, clock in kept.items():
    setattr(time, name, clock)
with tau_live.run("after"):
    pass
print(tau_live.flush(10))
for name in kept:
    setattr(time, name, broken)
tau_live.detach()
for name, clock in kept.items():
    setattr(time, name, clock)
"""


def test_a_clock_that_raises_ends_no_thread_and_does_not_reach_the_host(path: Path) -> None:
    with process(CLOCK, path) as host:
        assert done(host).splitlines() == ["True"]

    assert {"before", "after"} <= {row.name for row in rollouts(path)}
