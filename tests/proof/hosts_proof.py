"""A thousand hosts on one database: what it costs when idle, an order to all, a return of all."""

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tau_live.cli.gate import hold_gate, reset_gate
from tau_live.core.events import OWN_HOST
from tau_live.core.records import rollout_id_of
from tau_live.core.settings import Settings
from tau_live.decisions.runs import run_id_of
from tau_live.store.opening import open_at
from tau_live.store.roles import Store
from tests.live.running import environ, line, until
from tests.postgres import Server, why_absent
from tests.proof.figures import Figure, Progress, Tier
from tests.proof.hosts_play import OWN_TICK_S

HOSTS = {Tier.QUICK: 20, Tier.LONG: 1_000}
PROCESSES = {Tier.QUICK: 2, Tier.LONG: 8}
IDLE_S = {Tier.QUICK: 3.0, Tier.LONG: 60.0}
ORDERS = {Tier.QUICK: 2, Tier.LONG: 10}
OVER_S = {Tier.QUICK: 2.0, Tier.LONG: 60.0}
"""The seconds in which all hosts record something, one after the other."""

PERMIT_S = {Tier.QUICK: "60", Tier.LONG: "900"}
"""A host that returns waits for up to a thirtieth of it."""

RUNS = 8
SETTLED_S = {Tier.QUICK: 1.0, Tier.LONG: 40.0}
"""The seconds after which the start of all is over."""

PAUSE_S = {Tier.QUICK: 0.5, Tier.LONG: 6.0}
"""The seconds between two orders, in which all acknowledge the first."""


class Fleet:
    """Hosts on one server, some in each of some processes."""

    def __init__(self, stack: ExitStack, tier: Tier) -> None:
        hosts, processes = HOSTS[tier], PROCESSES[tier]
        self.server = Server(connections=2 * hosts + 50)
        stack.callback(self.server.remove)
        self.address = self.server.new_database()
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        own = environ(
            Path(), TAU_LIVE_RL_PERMIT_S=PERMIT_S[tier], XDG_STATE_HOME=str(self._folder),
            OMP_NUM_THREADS="1",
        )  # fmt: skip
        self._processes = []
        each = math.ceil(hosts / processes)
        for first in range(0, hosts, each):
            log = stack.enter_context((self._folder / f"log-{first}").open("w"))
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.proof.hosts_play", self.address,
                     str(self._folder), str(first), str(min(each, hosts - first))],
                    env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                )
            )  # fmt: skip
            stack.callback(process.kill)
            self._processes.append(process)
        self.hosts = sum(self._answers())

    def ask(self, what: str, *arguments: object) -> None:
        """Let all processes do something."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{json.dumps([what, *arguments])}\n")
            process.stdin.flush()

    def _answers(self) -> list[Any]:
        return [json.loads(line(process)) for process in self._processes]

    def all(self, what: str, *arguments: object) -> list[Any]:
        """Let all processes do something, and return all of their answers."""
        self.ask(what, *arguments)
        return [each for answer in self._answers() for each in answer or ()]

    def order(self, store: Store, passes: bool) -> float:
        """Reset the gate, or hold it; return the seconds until the last host does so."""
        self.ask("turn", passes)
        time.sleep(0.5)  # now all of them look
        turn = reset_gate if passes else hold_gate
        turn(store, Settings(), reason="proof", who="proof", at=time.time())
        returned = time.time()
        last: float = max(at for answer in self._answers() for at in answer)
        return last - returned


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Let all hosts rest, hear orders, work a little, and return at once from an outage."""
    if why_absent() is not None:
        return
    with ExitStack() as stack:
        progress(0, 5)
        fleet = Fleet(stack, tier)
        fleet.all("reach")
        time.sleep(SETTLED_S[tier])
        progress(1, 5)
        yield Figure(1, "hosts on one database, in a few processes", fleet.hosts,
                     at_least=HOSTS[tier])  # fmt: skip
        yield Figure(1, "cores that its server needs while they are idle", _idle(fleet, tier),
                     at_most=0.1)  # fmt: skip
        progress(2, 5)
        delays = _orders(fleet, tier)
        yield Figure(6, "orders to all of them: hold, reset", 2 * len(delays))
        yield Figure(6, "s from a reset to its effect in the slowest of them, median",
                     median(delays), at_most=2.0)  # fmt: skip
        yield Figure(6, "the same, at worst", max(delays), at_most=2.0)
        progress(3, 5)
        quiet = _quiet(fleet, tier)
        progress(4, 5)
        yield from _return(fleet, tier, quiet)
        progress(5, 5)


def _idle(fleet: Fleet, tier: Tier) -> float:
    """Return how many cores the server needs while nothing happens."""
    before, began = fleet.server.processor_s(), time.monotonic()
    time.sleep(IDLE_S[tier])
    return (fleet.server.processor_s() - before) / (time.monotonic() - began)


def _orders(fleet: Fleet, tier: Tier) -> list[float]:
    """Return how long each reset took to be in force everywhere, in seconds."""
    delays = []
    with closing(open_at(fleet.address)) as store:
        for _ in range(ORDERS[tier]):
            for passes in (False, True):
                delay = fleet.order(store, passes)
                time.sleep(PAUSE_S[tier])
            delays.append(delay)
    print("delays", delays, file=sys.stderr)
    return delays


def _quiet(fleet: Fleet, tier: Tier) -> float:
    """Return the p99 of a batch while one host after the other has something to send."""
    time.sleep(OWN_TICK_S)  # until then a host may end as interrupted what it began after a hold
    fleet.all("take_batches")
    fleet.all("record", "quiet", RUNS, OVER_S[tier], False)
    until(lambda: _count(fleet) >= RUNS * fleet.hosts, deadline_s=120.0)
    batches = fleet.all("take_batches")
    print("quiet", sorted(batches)[:: max(1, len(batches) // 20)], file=sys.stderr)
    return _p99(batches)


def _return(fleet: Fleet, tier: Tier, quiet_s: float) -> Iterator[Figure]:
    """Stop the server, let all hosts record something, and start it again."""
    fleet.server.stop("fast")
    fleet.all("lose")
    acknowledged = fleet.all("record", "away", RUNS, 0.0, True)
    fleet.all("take_batches")
    began = time.monotonic()
    fleet.server.start()
    ids = {
        rollout_id_of(OWN_HOST, run_id_of("answer", f"away-{host}-{number}"))
        for host in acknowledged
        for number in range(RUNS)
    }
    yield Figure(3, "runs acknowledged while it was away", len(ids), at_least=RUNS * fleet.hosts)
    with closing(open_at(fleet.address)) as store:
        until(lambda: not _missing(store, ids), deadline_s=300.0)
        took_s = time.monotonic() - began
        yield Figure(3, "of them lost", len(_missing(store, ids)), at_most=0)
    yield Figure(3, "s until all hosts have returned and sent them", took_s)
    batches = fleet.all("take_batches")
    print("return", sorted(batches)[:: max(1, len(batches) // 20)], file=sys.stderr)
    yield Figure(1, "batches that they sent then", len(batches), at_least=fleet.hosts)
    yield Figure(1, "ms of a batch while all is quiet, p99", 1e3 * quiet_s)
    yield Figure(1, "ms of a batch while all return, p99", 1e3 * _p99(batches))
    yield Figure(1, "times the quiet p99", _p99(batches) / quiet_s, at_most=10.0)


def _missing(store: Store, ids: set[str]) -> set[str]:
    rows = store._connection.rows("select rollout_id from rollouts where status = 'succeeded'")
    return ids - {row["rollout_id"] for row in rows}


def _count(fleet: Fleet) -> int:
    with closing(open_at(fleet.address)) as store:
        return store._connection.count("select count(*) from rollouts where status = 'succeeded'")


def _p99(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=100)[98] if len(seconds) > 1 else math.nan
