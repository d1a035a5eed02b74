"""Machines whose clocks differ share a store: its own clock decides for all (law of the fleet)."""

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tau_live.core.records import RolloutQuery, RolloutStatus
from tau_live.store.opening import open_at
from tests.postgres import needs_postgres, server

pytestmark = needs_postgres

HOUR_S = 3_600.0

AGENT = """
import sys, time
off_s, address, runs = float(sys.argv[1]), sys.argv[2], int(sys.argv[3])
own = time.time
time.time = lambda: own() + off_s
import tau_live
from tau_live.core.settings import Settings
tau_live.attach(Settings(store=address, reward_deadline_s=2 * 3600.0, update_interval=64))
for number in range(runs):
    with tau_live.run("task", key=f"{off_s}-{number}") as run:
        run.decide("model", ["a", "b"])
        if number % 2:
            run.reward(1.0)
assert tau_live.flush(30.0)
if len(sys.argv) > 4:
    time.sleep(float(sys.argv[4]))
tau_live.detach()
"""


def agent(off_s: float, address: str, *more: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", AGENT, str(off_s), address, "6", *more],
        env={"TAU_LIVE_RL": "1", "HOME": str(Path.home()), "PATH": "/usr/bin"},
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("off_s", [-72 * HOUR_S, -2 * HOUR_S, 2 * HOUR_S, 72 * HOUR_S])
def test_what_a_machine_with_another_clock_records_is_dated_by_the_stores(off_s: float) -> None:
    address = server().new_database()

    own = agent(off_s, address)

    _, log = own.communicate(timeout=60.0)
    assert own.returncode == 0, log
    assert log.count("clock_differs") == 1
    with closing(open_at(address)) as store:
        rollouts = store.rollouts.query(RolloutQuery()).rollouts
        assert len(rollouts) == 6
        for rollout in rollouts:
            assert rollout.status is RolloutStatus.SUCCEEDED
            assert abs((rollout.ended_at or 0.0) - time.time()) < 60.0
        assert store.rewards.ready_count("model", after=0) == 3
        assert store.rewards.overdue(time.time() + 1.9 * HOUR_S, limit=9) == []
        assert len(store.rewards.overdue(time.time() + 2.1 * HOUR_S, limit=9)) == 3


@pytest.mark.slow
def test_a_machine_with_another_clock_ends_nobodys_wait_and_takes_no_lease() -> None:
    address = server().new_database()
    _, log = agent(0.0, address).communicate(timeout=60.0)
    with closing(open_at(address)) as store:
        token = store.leases.acquire("learner:model", "elsewhere:1:x", ttl_s=20.0)
        assert token

    ahead = [agent(off_s, address, "4") for off_s in (72 * HOUR_S, -72 * HOUR_S)]

    for own in ahead:
        _, log = own.communicate(timeout=60.0)
        assert own.returncode == 0, log
    with closing(open_at(address)) as store:
        assert store.leases.holder("learner:model") == "elsewhere:1:x"
        assert store.rewards.ready_count("model", after=0) == 9
        assert len(store.rewards.overdue(time.time() + 2.1 * HOUR_S, limit=99)) == 9
        assert store.counters.counts().get("clock_was_set", 0) == 0
