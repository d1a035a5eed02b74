"""Orders of operators to processes that listen, from the order's return to its effect in the last.

The processes share a PostgreSQL database, and the machine on which the kill switch stops them.
"""

import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import psycopg
import pytest

from tau_live.core.reasons import Part, Pause
from tau_live.operate.stops import kill, kill_file, unkill
from tau_live.store.opening import open_at
from tau_live.store.roles import Store
from tests.live.fleet import command, started
from tests.live.running import until
from tests.postgres import Server, why_absent
from tests.proof.figures import Figure, Progress, Tier

HOSTS = {Tier.QUICK: 4, Tier.LONG: 32}
ROUNDS = {Tier.QUICK: 2, Tier.LONG: 20}
"""Rounds in each of which there are two orders of each kind."""

UNHEARD_ROUNDS = {Tier.QUICK: 1, Tier.LONG: 5}

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
    """Let the gate hold."""
    row = store.gate.load()
    assert store.gate.save(replace(row, state="hold", revision=row.revision + 1), entry=None)


def reset(store: Store) -> None:
    """Let the gate pass."""
    row = store.gate.load()
    assert store.gate.save(replace(row, state="pass", revision=row.revision + 1), entry=None)


def pause(store: Store) -> None:
    """Pause decisions."""
    assert store.pauses.begin(Pause(part=Part.DECIDING, reason="test", who="tests", at=1.0))


def serve(store: Store, version: int) -> None:
    """Put a version into service."""
    store.policies.put_in_service("model", version, pinned=True, at=time.time())


def switch(store: Store, *, on: bool) -> None:
    """Turn the kill switch of this machine on or off."""
    path = kill_file(store.path, None)
    if on:
        kill(path, "test", who="tests", at=time.time())
    else:
        unkill(path)


ORDERS: Sequence[tuple[str, Callable[[Store], object], Sequence[object]]] = (
    ("gate", hold, [False, False, 1]),
    ("gate", reset, [True, False, 1]),
    ("pause", pause, [True, True, 1]),
    ("pause", lambda store: store.pauses.end(Part.DECIDING), [True, False, 1]),
    ("version", lambda store: serve(store, 0), [True, False, 0]),
    ("version", lambda store: serve(store, 1), [True, False, 1]),
    ("kill", lambda store: switch(store, on=True), [False, False, 1]),
    ("kill", lambda store: switch(store, on=False), [True, False, 1]),
)
"""Orders by kind, and what a process that has heard of each sees."""


class Fleet:
    """Processes on one database, and what each has seen last.

    Args:
        address: The database.
        folder: A folder for what they print.
        hosts: How many there are.
    """

    def __init__(self, address: str, folder: Path, hosts: int) -> None:
        self.address = address
        self._files = [folder / f"host-{number}" for number in range(hosts)]

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
            self.wait_for([True, False, 1], deadline_s=20.0 + 2.0 * len(self._files))
            yield store

    def wait_for(self, wanted: object, *, deadline_s: float) -> float:
        """Wait until all have seen something; return when the last of them did."""
        until(lambda: all(seen == wanted for _, seen in self._last()), deadline_s=deadline_s)
        return max(at for at, _ in self._last())

    def _last(self) -> list[tuple[float, object]]:
        lines = [file.read_text().splitlines() for file in self._files]
        return [tuple(json.loads(each[-1])) if each else (0.0, None) for each in lines]

    def delays(self, store: Store, rounds: int) -> Mapping[str, list[float]]:
        """Give every order; return by kind how long each took to be in force in all, in seconds."""
        delays: dict[str, list[float]] = defaultdict(list)
        for _ in range(rounds):
            for kind, order, wanted in ORDERS:
                order(store)
                given_at = time.time()
                delays[kind].append(self.wait_for(wanted, deadline_s=10.0) - given_at)
        return delays


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Give orders, announced by the database and not."""
    if why_absent() is not None:
        return
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("XDG_STATE_HOME", home)
        server = Server()
        stack.callback(server.remove)
        progress(0, 2)
        fleet = Fleet(server.new_database(), Path(home), HOSTS[tier])
        with fleet.running() as store:
            heard = fleet.delays(store, ROUNDS[tier])
            progress(1, 2)
            with psycopg.connect(fleet.address, autocommit=True) as raw:
                raw.execute(SILENCE)
            unheard = fleet.delays(store, UNHEARD_ROUNDS[tier])
        progress(2, 2)
    print(dict(heard), dict(unheard), file=sys.stderr)
    yield Figure(6, "processes that listen to orders", HOSTS[tier], at_least=HOSTS[tier])
    for kind, delays in heard.items():
        yield Figure(6, f"orders: {kind}", len(delays), at_least=2 * ROUNDS[tier])
        yield Figure(6, f"s from {kind} to its effect in the slowest, median", median(delays),
                     at_most=MEDIAN_S)  # fmt: skip
        yield Figure(6, f"s from {kind} to its effect in the slowest, at worst", max(delays),
                     at_most=WORST_S)  # fmt: skip
    silent = [delay for kind, delays in unheard.items() if kind != "kill" for delay in delays]
    yield Figure(6, "orders that the database does not announce", len(silent))
    yield Figure(6, "s from these to their effect in the slowest, at worst", max(silent),
                 at_most=UNHEARD_S)  # fmt: skip
