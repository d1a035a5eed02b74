"""Hosts, a learner and a database's server are killed at random: nothing acknowledged is lost."""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tau_live.core.events import OWN_HOST
from tau_live.core.gate import GateRow
from tau_live.core.records import rollout_id_of
from tau_live.decisions.runs import run_id_of
from tau_live.store.opening import open_at
from tau_live.store.roles import Store
from tests.faults.whole import problems_of_learning, problems_of_policies
from tests.live.running import environ, until
from tests.postgres import Server, why_absent
from tests.proof.figures import Figure, Progress, Tier

ROUNDS = {Tier.QUICK: 8, Tier.LONG: 300}
HOSTS = 2
LONGEST_S = 1.5
SEED = 7
HOLD_EVERY = 5
"""So many rounds after each other one begins with an operator's hold, which must last."""

HOST = """
import sys, time, tau_live
name, number = sys.argv[1], 0
while True:
    accepted = []
    for number in range(number, number + 8):
        with tau_live.run("answer", key=f"{name}-{number}") as run:
            choice = run.decide("model", ["small", "large"], default="small")
            if run.reward(float(choice.option == "large")):
                accepted.append(number)
        tau_live.reward(float(choice.option == "large"), run=run.id)  # the same once more
        time.sleep(0.005)
    number += 1
    if tau_live.flush(5.0):
        print(*accepted, flush=True)
"""

LEARNER = "import sys; from tau_live.cli import main; sys.argv = ['tau-live', 'learn']; main()"

TWICE = """
select count(*) from (
    select rollout_seq from decisions group by rollout_seq having count(*) > 1
    union all select rollout_seq from arms group by rollout_seq, point having count(*) > 1
    union all select 1 from rewards group by rollout_id, name, source having count(*) > 1
    union all select ready_seq from rollouts where ready_seq is not null
    group by ready_seq having count(*) > 1
) as found
"""


class Fleet:
    """Processes on one database of a server, which all may be killed.

    Attributes:
        address: The database.
        kills: How many of each were killed.
        acknowledged: The ids of the rollouts whose flush returned true, as far as was looked.
    """

    def __init__(self, folder: Path, server: Server) -> None:
        self._folder = folder
        self._server = server
        self.address = server.new_database()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0
        self._files: list[tuple[str, Path]] = []
        self.kills = {"host": 0, "learner": 0, "server": 0}
        self.acknowledged: set[str] = set()

    def start(self) -> None:
        """Start what does not run."""
        for kind in ("learner", *(f"host-{number}" for number in range(HOSTS))):
            if kind not in self._processes:
                self._processes[kind] = self._start(kind)

    def _start(self, kind: str) -> "subprocess.Popen[bytes]":
        self._started += 1
        name = f"{kind}-{self._started}"
        printed = self._folder / name
        if kind != "learner":
            self._files.append((name, printed))
        own = environ(
            Path(), TAU_LIVE_RL_STORE=self.address, TAU_LIVE_RL_LEARNER="off",
            XDG_STATE_HOME=str(self._folder),
        )  # fmt: skip
        code = LEARNER if kind == "learner" else HOST
        with printed.open("wb") as out, (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-c", code, name], env=own, stdout=out, stderr=log
            )

    def kill(self, victims: list[str]) -> None:
        """Kill some of the processes with ``kill -9``, or the server as if so."""
        for victim in victims:
            self.kills[victim.partition("-")[0]] += 1
            if victim == "server":
                self._server.stop("immediate")
            else:
                process = self._processes.pop(victim)
                process.kill()
                process.wait()
        if "server" in victims:
            self._server.start()

    def read(self) -> None:
        """Read what the hosts have acknowledged."""
        for name, file in self._files:
            for line in file.read_text().split("\n")[:-1]:  # the last may be half written
                self.acknowledged.update(
                    rollout_id_of(OWN_HOST, run_id_of("answer", f"{name}-{number}"))
                    for number in line.split()
                )

    def stop(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.kill()
            process.wait()


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Kill and look; the seed is fixed, the moments are as random as the machine."""
    if why_absent() is not None:
        return
    server, rng, rounds = Server(), random.Random(SEED), ROUNDS[tier]
    faults = {"lost": 0, "twice": 0, "wrong": 0, "gate": 0}
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder), server)
        try:
            for number in range(rounds):
                fleet.start()
                _play(fleet, rng, faults, holds=number % HOLD_EVERY == HOLD_EVERY - 1)
                progress(number + 1, rounds)
            with closing(open_at(fleet.address)) as store:
                updates = len(store.policies.updates())
                held = [entry.reason for entry in store.gate.log() if entry.event != "reset"]
        finally:
            fleet.stop()
            server.remove()
    print(fleet.kills, faults, {*held}, file=sys.stderr)
    yield Figure(3, "rounds of kill -9 of hosts, learner and server", rounds, at_least=rounds)
    yield Figure(
        3, "hosts, learners and servers killed", sum(fleet.kills.values()), at_least=rounds
    )
    yield Figure(
        3, "runs acknowledged by a fleet before a kill", len(fleet.acknowledged), at_least=1
    )
    yield Figure(3, "of them lost", faults["lost"], at_most=0)
    yield Figure(4, "rows of a fleet that are there twice", faults["twice"], at_most=0)
    yield Figure(5, "updates applied or learned from twice, versions not whole", faults["wrong"],
                 at_most=0)  # fmt: skip
    yield Figure(
        5, "updates of a fleet made meanwhile", updates, at_least=1 if tier is Tier.LONG else None
    )
    yield Figure(5, "gates that were another after a kill", faults["gate"], at_most=0)


def _play(fleet: Fleet, rng: random.Random, faults: dict[str, int], *, holds: bool) -> None:
    """Kill some, and look at what is left."""
    time.sleep(rng.uniform(0.3, LONGEST_S))
    with closing(open_at(fleet.address)) as store:
        before = _turn(store, "hold") if holds else store.gate.load()
    kinds = ["server", "learner", *(f"host-{number}" for number in range(HOSTS))]
    fleet.kill(rng.sample(kinds, rng.randint(1, len(kinds))))
    fleet.read()
    with closing(open_at(fleet.address)) as store:
        gate = store.gate.load()
        faults["gate"] += (gate.state, gate.detail) != (before.state, before.detail)
        rows = store._connection.rows("select rollout_id from rollouts where status = 'succeeded'")
        faults["lost"] += len(fleet.acknowledged - {row["rollout_id"] for row in rows})
        faults["twice"] += store._connection.count(TWICE)
        wrong = [*problems_of_learning(store), *problems_of_policies(store)]
        faults["wrong"] += len(wrong)
        if wrong:
            print(wrong[:3], file=sys.stderr)
        if gate.state != "pass":
            _turn(store, "pass")


def _turn(store: Store, state: str) -> GateRow:
    """Hold the gate, or let it pass."""

    def turned() -> bool:
        row = store.gate.load()
        new = replace(row, state=state, detail=None, streaks={}, revision=row.revision + 1)
        return store.gate.save(new, entry=None)

    until(turned)
    return store.gate.load()
