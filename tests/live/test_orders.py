"""Orders of operators, in force in all processes of a fleet that share a PostgreSQL database."""

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

import psycopg
import pytest

from tau_live.core.reasons import Part, Pause
from tau_live.store.opening import open_at
from tau_live.store.roles import Store
from tests.live.fleet import command, started
from tests.live.running import until
from tests.postgres import Server, needs_postgres, server

pytestmark = [needs_postgres, pytest.mark.slow, pytest.mark.timed]

HOSTS = int(os.environ.get("TAU_LIVE_RL_TESTS_HOSTS", "4"))
"""How many processes listen; the proof has 32."""

ROUNDS = int(os.environ.get("TAU_LIVE_RL_TESTS_ORDERS", "2"))
"""How often each order is given; the proof gives 40."""

MEDIAN_S, WORST_S, UNHEARD_S = 0.3, 1.0, 6.0
"""How long the slowest process takes, and takes where nothing is announced."""

AGENT = """
import json, sys, time, tau_live
name, runs, *watches = sys.argv[1:]
runtime = tau_live.attach()
for number in range(int(runs)):
    with tau_live.run("answer", key=f"{name}-{number}") as run:
        run.decide("model", ["small", "large"])
        run.reward(number % 2)
tau_live.flush(1)
known = None
while watches:
    decider = runtime._decider
    seen = [runtime._gate.passes, decider.paused, decider.versions().get("model", 0)]
    if seen != known:
        known = seen
        print(json.dumps([time.time(), seen]), flush=True)
    time.sleep(0.005)
"""

SILENCE = """
create or replace function revise() returns trigger language plpgsql as $$
begin
    update revisions set revision = revision + 1 where topic = tg_argv[0];
    return null;
end $$
"""
"""Lets nothing be announced any more."""


def hold(store: Store) -> None:
    row = store.gate.load()
    assert store.gate.save(replace(row, state="hold", revision=row.revision + 1), entry=None)


def reset(store: Store) -> None:
    row = store.gate.load()
    assert store.gate.save(replace(row, state="pass", revision=row.revision + 1), entry=None)


def pause(store: Store) -> None:
    assert store.pauses.begin(Pause(part=Part.DECIDING, reason="test", who="tests", at=1.0))


def serve(store: Store, version: int) -> None:
    store.policies.put_in_service("model", version, pinned=True, at=time.time())


ORDERS: Sequence[tuple[Callable[[Store], object], Sequence[object]]] = (
    (hold, [False, False, 1]),
    (reset, [True, False, 1]),
    (pause, [True, True, 1]),
    (lambda store: store.pauses.end(Part.DECIDING), [True, False, 1]),
    (lambda store: serve(store, 0), [True, False, 0]),
    (lambda store: serve(store, 1), [True, False, 1]),
)
"""Orders, and what a process that has heard of each sees."""


class Fleet:
    """Processes on one database, and what each has seen last.

    Args:
        address: The database.
        folder: A folder for what they print.
    """

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self._files = [folder / f"host-{number}" for number in range(HOSTS)]

    @contextmanager
    def running(self) -> Iterator[Store]:
        """Run the processes on a version that was learned; yields the store."""
        with started(AGENT, self.address, "first", 64, learner="off") as first:
            assert first.wait(60.0) == 0
        command(self.address, "learn", "--once")
        with ExitStack() as stack, closing(open_at(self.address)) as store:
            serve(store, 1)
            for file in self._files:
                printed = stack.enter_context(file.open("w"))
                host = started(
                    AGENT, self.address, file.name, 1, "watches", learner="off", stdout=printed
                )
                stack.enter_context(host)
                stack.callback(host.kill)
            self.wait_for([True, False, 1], deadline_s=20.0 + 2.0 * HOSTS)
            yield store

    def wait_for(self, wanted: object, *, deadline_s: float) -> float:
        """Wait until all have seen something; return when the last of them did."""
        until(lambda: all(seen == wanted for _, seen in self._last()), deadline_s=deadline_s)
        return max(at for at, _ in self._last())

    def _last(self) -> list[tuple[float, object]]:
        lines = [file.read_text().splitlines() for file in self._files]
        return [tuple(json.loads(each[-1])) if each else (0.0, None) for each in lines]

    def delays(self, store: Store, *, deadline_s: float) -> list[float]:
        """Give every order; return how long each took to be in force in all, in seconds."""
        delays = []
        for _, (order, wanted) in product(range(ROUNDS), ORDERS):
            order(store)
            given_at = time.time()
            delays.append(self.wait_for(wanted, deadline_s=deadline_s) - given_at)
        return delays


@pytest.fixture
def fleet(home: Path) -> Fleet:
    return Fleet(server().new_database(), home)


def test_orders_are_in_force_everywhere_at_once(
    fleet: Fleet, record_property: Callable[[str, object], None]
) -> None:
    with fleet.running() as store:
        delays = fleet.delays(store, deadline_s=10.0)
        record_property("delays_s", delays)

    print(f"median {statistics.median(delays):.3f} s, worst {max(delays):.3f} s")
    assert statistics.median(delays) <= MEDIAN_S
    assert max(delays) <= WORST_S


def test_orders_that_nobody_announces_are_in_force_in_six_seconds(fleet: Fleet) -> None:
    with psycopg.connect(fleet.address, autocommit=True) as raw:
        raw.execute(SILENCE)
    with fleet.running() as store:
        delays = fleet.delays(store, deadline_s=10.0)

    print(f"median {statistics.median(delays):.3f} s, worst {max(delays):.3f} s")
    assert max(delays) <= UNHEARD_S


def test_orders_are_heard_after_the_server_was_killed(home: Path) -> None:
    own = Server()
    try:
        fleet = Fleet(own.new_database(), home)
        with fleet.running():
            own.stop("immediate")
            fleet.wait_for([False, False, 1], deadline_s=10.0)
            own.start()
            fleet.wait_for([True, False, 1], deadline_s=30.0)
            until(lambda: sessions(fleet.address) == HOSTS)
            with closing(open_at(fleet.address)) as store:
                hold(store)
                given_at = time.time()
                delay = fleet.wait_for([False, False, 1], deadline_s=10.0) - given_at
    finally:
        own.remove()

    assert delay <= WORST_S


def sessions(address: str) -> int:
    """Return how many listen."""
    with psycopg.connect(address) as raw:
        [(count,)] = raw.execute(
            "select count(*) from pg_stat_activity where application_name = 'tau-live listening'"
        ).fetchall()
    return int(count)
