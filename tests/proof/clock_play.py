"""A process whose wall clock is set while it runs; prints how its deadlines were kept.

python -m tests.proof.clock_play SECONDS_BY DEADLINE_S HOW_TO_END
"""

import os
import sys
import time

REAL, REAL_NS = time.time, time.time_ns


class Clock:
    """By how much the wall clock is wrong."""

    by_s = 0.0


time.time = lambda: REAL() + Clock.by_s  # before anybody takes a reference to it
time.time_ns = lambda: REAL_NS() + int(Clock.by_s * 1e9)

import json  # noqa: E402
import math  # noqa: E402

import tau_live  # noqa: E402
from tau_live.core.settings import Settings  # noqa: E402
from tau_live.store.sqlite.store import SqliteStore  # noqa: E402

PATIENCE_S = 20.0


def learned(start: int, number: int) -> None:
    """Run agents whose rewards differ."""
    for at in range(start, start + number):
        with tau_live.run("clock", key=at) as run:
            choice = run.decide("point", ["a", "b"], context={"at": at % 5})
            run.reward(float(choice.option == "a"))


def silent(key: str) -> tuple[str, float]:
    """Run an agent that nobody rewards; return its rollout's id, and when it was over."""
    with tau_live.run("silent", key=key) as run:
        run.decide("point", ["a", "b"])
    return run.id, time.monotonic()


def waited(store: SqliteStore, rollout_id: str, since: float) -> float:
    """Return how long a rollout waited for its reward until it was given up."""
    query = "select count(*) from awaiting join rollouts on seq = rollout_seq where rollout_id = ?"
    while time.monotonic() - since < PATIENCE_S:
        if not store._connection.count(query, (rollout_id,)):
            return time.monotonic() - since
        time.sleep(0.02)
    return math.inf


def main() -> None:
    """Set the clock between two halves of the same work."""
    by_s, deadline_s, end = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    path = os.environ["TAU_LIVE_RL_STORE"]
    settings = Settings.from_env(os.environ).settings
    assert settings.reward_deadline_s == deadline_s
    assert tau_live.attach() is not None
    learned(0, 24)
    flushed = [tau_live.flush(PATIENCE_S)]
    store = SqliteStore.open(path)
    updates = [len(store.policies.updates())]
    before, over = silent("before")
    tau_live.flush(PATIENCE_S)
    rows = [store.rollouts.counts_by_status()]

    Clock.by_s = by_s
    after, later = silent("after")
    began = time.monotonic()
    learned(100, 24)
    flushed.append(tau_live.flush(PATIENCE_S))
    took = time.monotonic() - began
    updates.append(len(store.policies.updates()))
    waits = [waited(store, before, over), waited(store, after, later)]
    rows.append(store.rollouts.counts_by_status())
    gate = tau_live.snapshot()["gate"]
    facts = {
        "flushed": all(flushed),
        "took": took,
        "updates": updates,
        "waits": waits,
        "forgotten": sum(rows[0].values()) + 25 - sum(rows[1].values()),
        "gate": gate["state"] if isinstance(gate, dict) else "",
        "at": time.monotonic(),
    }
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
    if end == "suddenly":
        open_ = tau_live.run("left open")
        open_.__enter__()
        tau_live.flush(PATIENCE_S)
        os._exit(0)


if __name__ == "__main__":
    main()
