"""Hosts that record into a spool while their database is away: nothing is lost, nothing twice."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tau_live.core.records import RolloutQuery, RolloutStatus
from tau_live.store.opening import open_at, open_spool
from tau_live.store.roles import Store
from tests.cli.test_keys import undocumented
from tests.live.running import DEADLINE_S, environ, until
from tests.postgres import Server, needs_postgres

pytestmark = [needs_postgres, pytest.mark.slow]

AGENT = """
import json, sys, time
import tau_live

name, seconds, flush_s = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
late, number, end = [], 0, time.monotonic() + seconds
while time.monotonic() < end:
    with tau_live.run("answer", key=f"{name}-{number}") as run:
        began = time.perf_counter()
        choice = run.decide("model", ["small", "large"], context={"n": number % 2}, default="small")
        took_ms = (time.perf_counter() - began) * 1e3
        value = float((choice.option == "large") == (number % 2 == 0))
        if number % 3:
            run.reward(value)
        else:
            late.append((run, value))
    if len(late) > 5:
        before, earned = late.pop(0)
        before.reward(earned)
    print(json.dumps([run.id, choice.option, choice.source, value, took_ms]), flush=True)
    number += 1
    time.sleep(0.002)
for before, earned in late:
    before.reward(earned)
print(tau_live.flush(flush_s), flush=True)
sys.stdin.read()
"""

REWARD = """
import sys
import tau_live

tau_live.reward(0.5, run=sys.argv[1], name="late")
print(tau_live.flush(30.0))
"""


SHIP = """
import runpy, sys
from tests.faults import arming

with arming.arm(sys.argv.pop(), arming.crash):
    runpy.run_module("tau_live.cli", run_name="__main__")
"""


class Host:
    """A host with a spool of its own, which several agents share."""

    def __init__(self, folder: Path, address: str, **more: str) -> None:
        self.folder = folder
        self.spool = folder / "spool.sqlite"
        self.environ = {
            **environ(Path()),
            "TAU_LIVE_RL_STORE": address,
            "TAU_LIVE_RL_SPOOL": str(self.spool),
            "TAU_LIVE_RL_UPDATE_INTERVAL": "1000000",  # flush waits for what is due
            "TAU_LIVE_RL_MAX_ROLLOUTS_PER_UPDATE": "1000000",
            "XDG_STATE_HOME": str(folder),
            **more,
        }

    @contextmanager
    def agent(self, name: str, seconds: float, flush_s: float) -> Iterator["Agent"]:
        """Start an agent that works for some seconds, flushes, and waits for its input to end."""
        agent = Agent(self, name, seconds, flush_s)
        try:
            yield agent
        finally:
            agent.end()

    def cli(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self.run("-m", "tau_live.cli", *arguments)

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *arguments],
            env=self.environ, capture_output=True, text=True, check=False, timeout=120.0,
        )  # fmt: skip


class Agent:
    """An agent of a host, which writes into files, so that nobody has to read meanwhile."""

    def __init__(self, host: Host, name: str, seconds: float, flush_s: float) -> None:
        self._out, self._log = host.folder / f"{name}.out", host.folder / f"{name}.log"
        command = [sys.executable, "-c", AGENT, name, str(seconds), str(flush_s)]
        with self._out.open("w") as out, self._log.open("w") as log:
            self.process = subprocess.Popen(
                command, env=host.environ, stdin=subprocess.PIPE, stdout=out, stderr=log
            )

    def runs(self) -> tuple[list[list[object]], str]:
        """Return what it printed of each run, and what its flush returned."""
        until(lambda: self._lines()[-1:] in (["True"], ["False"]), deadline_s=90.0)
        *runs, flushed = self._lines()
        return [json.loads(text) for text in runs], flushed

    def has_begun(self) -> bool:
        """Return whether a run of it is over."""
        return bool(self._lines())

    def logged(self) -> str:
        """Return what it has logged so far."""
        return self._log.read_text()

    def log(self) -> str:
        """Return what it has logged, once it has ended as it should."""
        assert self.end() == 0
        return self.logged()

    def end(self) -> int:
        """End its input, and return how it ended."""
        self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode

    def _lines(self) -> list[str]:
        return self._out.read_text().split("\n")[:-1]


@pytest.fixture
def own() -> Iterator[Server]:
    own = Server()
    try:
        yield own
    finally:
        own.remove()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def differences(hub: Store, runs: list[list[object]]) -> list[str]:
    """Return what the hub has otherwise than hosts said of their runs."""
    stored = {row.rollout_id: row for row in hub.rollouts.query(RolloutQuery(limit=None)).rollouts}
    found = [f"{len(stored)} rollouts, {len(runs)} runs"] if len(stored) != len(runs) else []
    for id_, choice, _source, value, _ in runs:
        rollout = stored.get(str(id_))
        if rollout is None or rollout.status is not RolloutStatus.SUCCEEDED:
            found.append(f"{id_}: {rollout}")
            continue
        decisions = [each.applied for each in hub.decisions.decisions(rollout.rollout_id)]
        rewards = [each.value for each in hub.rewards.rewards(rollout.rollout_id)]
        if (decisions, rewards, rollout.total_reward) != ([choice], [value], value):
            found.append(f"{id_}: {choice} {value}: {decisions} {rewards} {rollout.total_reward}")
    return found


def test_nothing_is_lost_or_twice_while_the_server_is_away_under_load(
    home: Path, own: Server
) -> None:
    address = own.new_database()
    host = Host(home, address, TAU_LIVE_RL_PERMIT_S="3", TAU_LIVE_RL_DECIDE_DEADLINE_MS="1000")
    with host.agent("a", 14.0, 60.0) as first, host.agent("b", 14.0, 60.0) as second:
        until(lambda: first.has_begun() and second.has_begun())
        pause(3.0)
        own.stop("immediate")
        pause(6.0)
        own.start()
        runs, flushed = first.runs()
        others, flushed_too = second.runs()
        log = first.log() + second.log()
    with closing(open_at(address)) as hub:
        different = differences(hub, [*runs, *others])
        reasons = {
            decision.why_not
            for rollout in hub.rollouts.query(RolloutQuery(limit=None)).rollouts
            for decision in hub.decisions.decisions(rollout.rollout_id)
        }
    took_ms = sorted(float(str(run[4])) for run in [*runs, *others])
    sources = [str(run[2]) for run in runs]

    median_ms, p99_ms = took_ms[len(took_ms) // 2], took_ms[len(took_ms) * 99 // 100]
    print(f"{len(took_ms)} decisions: p50 {median_ms:.2f}, p99 {p99_ms:.2f}, {took_ms[-1]:.1f} ms")
    assert (flushed, flushed_too, different) == ("True", "True", [])
    assert {"permit_over", None} <= reasons
    assert sources.count("default") > 20 < sources.count("policy")
    assert sources[-1] == "policy"  # the server is back
    assert (log.count("'hub_away'"), log.count("'hub_back'")) == (2, 2)
    assert p99_ms < 50.0


def pause(seconds: float) -> None:
    time.sleep(seconds)


def test_what_a_killed_host_had_recorded_is_shipped_by_hand(home: Path, own: Server) -> None:
    address = own.new_database()
    host = Host(home, address)
    own.stop("immediate")
    with host.agent("a", 2.0, 30.0) as agent:
        runs, flushed = agent.runs()
        os.kill(agent.process.pid, signal.SIGKILL)
    away = host.cli("ship", "--json")
    own.start()
    shipped = json.loads(host.cli("ship", "--json").stdout)
    again = json.loads(host.cli("ship", "--json").stdout)
    with closing(open_at(address)) as hub:
        different = differences(hub, runs)

    assert flushed == "True"
    assert {str(run[2]) for run in runs} == {"default"}
    assert (away.returncode, "Traceback" in away.stderr) == (1, False)
    assert (shipped["shipped"], shipped["unsent"], shipped["refused"]) == (len(runs), 0, 0)
    assert (again["shipped"], different) == (0, [])


@pytest.mark.parametrize("point", ["ship.read", "ship.stored", "ship.marked", "store.commit"])
def test_a_shipper_that_is_killed_leaves_nothing_behind_and_sends_nothing_twice(
    home: Path, own: Server, point: str
) -> None:
    address = own.new_database()
    host = Host(home, address)
    own.stop("immediate")
    with host.agent("a", 1.0, 30.0) as agent:
        runs, _ = agent.runs()
        os.kill(agent.process.pid, signal.SIGKILL)
    own.start()
    killed = host.run("-c", SHIP, "ship", point)
    shipped = host.cli("ship", "--json")
    with closing(open_at(address)) as hub:
        different = differences(hub, runs)

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert undocumented("ship", json.loads(shipped.stdout)) == (set(), set())
    assert different == []


def test_a_full_spool_drops_whole_runs_and_counts_them(home: Path, own: Server) -> None:
    address = own.new_database()
    host = Host(home, address, TAU_LIVE_RL_SPOOL_MAX_MB="1", TAU_LIVE_RL_PERMIT_S="1")
    own.stop("immediate")
    with host.agent("a", 12.0, 60.0) as agent:
        time.sleep(8.0)
        own.start()
        runs, flushed = agent.runs()
        log = agent.log()
    with host.agent("b", 1.0, 60.0) as agent:  # there is room again
        later, _ = agent.runs()
    runs += later
    with closing(open_at(address)) as hub:
        stored = {each.rollout_id for each in hub.rollouts.query(RolloutQuery(limit=None)).rollouts}
        different = differences(hub, [run for run in runs if run[0] in stored])
        dropped = hub.counters.counts()["runs_not_recorded_while_spool_full"]

    print(f"{len(runs)} runs: {len(stored)} stored, {dropped} dropped")
    assert (flushed, different) == ("True", [])
    assert 1 <= log.count("'spool_full'") <= 2  # once more if it is filled faster than sent
    assert len(runs) == len(stored) + dropped
    assert dropped > 50
    assert later[-1][0] in stored


def test_a_host_whose_network_swallows_everything_records_from_the_start(home: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:  # which accepts nobody
        address = f"postgresql://tau@127.0.0.1:{silent.getsockname()[1]}/tau"
        host = Host(home, address)
        with host.agent("a", 8.0, 10.0) as agent:
            runs, flushed = agent.runs()
            with closing(open_spool(host.spool)) as spool:
                stored = spool.retention.size().rollouts
            os.kill(agent.process.pid, signal.SIGKILL)

    assert (flushed, stored) == ("True", len(runs))
    assert len(runs) > 20


def test_a_server_that_hangs_blocks_neither_decisions_nor_the_end(home: Path, own: Server) -> None:
    address = own.new_database()
    host = Host(home, address, TAU_LIVE_RL_PERMIT_S="2")
    with host.agent("a", 8.0, 10.0) as agent:
        time.sleep(3.0)
        own.hang()
        runs, flushed = agent.runs()
        began = time.monotonic()
        agent.end()
        ended_s = time.monotonic() - began
        own.go_on()
    shipped = json.loads(host.cli("ship", "--json").stdout)
    with closing(open_at(address)) as hub:
        different = differences(hub, runs)

    assert (flushed, different, shipped["unsent"]) == ("True", [], 0)
    assert (runs[-1][2], ended_s < 15.0) == ("default", True)


def test_commands_say_what_the_spool_has_and_how_late_a_hold_may_come(
    home: Path, own: Server
) -> None:
    address = own.new_database()
    host = Host(home, address)
    with host.agent("a", 1.0, 30.0) as agent:
        runs, _ = agent.runs()
        own.stop("immediate")
        os.kill(agent.process.pid, signal.SIGKILL)
    away = host.cli("doctor", "--json")
    own.start()
    status, gate = (json.loads(host.cli(name, "--json").stdout) for name in ("status", "gate"))
    words = host.cli("gate").stdout
    [check] = [each for each in json.loads(away.stdout)["checks"] if each["check"] == "spool"]

    assert "0 rollouts to be sent" in check["found"], check
    assert (status["spool"]["unsent"], status["spool"]["oldest_at"]) == (0, None)
    assert abs(status["spool"]["heard_at"] - time.time()) < 120.0
    assert (status["rollouts"]["succeeded"], gate["reaches_within_s"]) == (len(runs), 900.0)
    assert "one without the database within 15" in words


def test_what_a_failover_has_lost_is_sent_again(home: Path, own: Server) -> None:
    address = own.new_database()
    host = Host(home, address)
    with host.agent("a", 1.0, 30.0) as agent:
        runs, _ = agent.runs()
    own.back_up()
    with host.agent("b", 1.0, 30.0) as agent:
        lost, _ = agent.runs()
    with closing(open_at(address)) as hub:
        before = differences(hub, [*runs, *lost])
    own.fail_over()
    with closing(open_at(address)) as hub:
        left = hub.rollouts.query(RolloutQuery()).total
    with host.agent("c", 0.5, 30.0) as agent:
        new, flushed = agent.runs()
        log = agent.log()
    with closing(open_at(address)) as hub:
        different = differences(hub, [*runs, *lost, *new])

    assert (before, left, flushed) == ([], len(runs), "True")
    assert ("hub_failed_over" in log, different) == (True, [])


def test_what_was_spooled_for_too_long_is_kept_and_never_learned_from(
    home: Path, own: Server
) -> None:
    address = own.new_database()
    host = Host(home, address, TAU_LIVE_RL_STALE_S="8")
    own.stop("immediate")
    with host.agent("a", 1.0, 30.0) as agent:
        late, _ = agent.runs()
        os.kill(agent.process.pid, signal.SIGKILL)
    pause(8.0)
    own.start()
    with host.agent("b", 1.0, 60.0) as agent:
        new, flushed = agent.runs()
    with closing(open_at(address)) as hub:
        different = differences(hub, [*late, *new])
        [decision] = hub.decisions.decisions(str(late[0][0]))
    status = json.loads(host.cli("status", "--json").stdout)
    words, verified = host.cli("status", "--all").stdout, host.cli("verify")
    why = host.cli("why", decision.decision_id).stdout

    assert (flushed, different) == ("True", [])
    assert status["not_learned_from"] == {"arrived_late": len(late)}
    assert status["became_ready"] == len(new)
    assert "arrived_late" in words, words
    assert verified.returncode == 0, verified.stdout
    assert "too long after its end" in why, why


def test_what_was_forgotten_comes_back_neither_by_a_late_reward_nor_after_a_failover(
    home: Path, own: Server
) -> None:
    address = own.new_database()
    host = Host(home, address)
    with host.agent("a", 4.0, 30.0) as agent:
        runs, _ = agent.runs()
    gone = [str(run[0]) for run in runs[:2]]
    forgotten = [host.cli("forget", id_, "--reason", "gdpr").returncode for id_ in gone]
    rewarded = host.run("-c", REWARD, gone[0])
    shipped = host.cli("ship")
    with closing(open_at(address)) as hub:
        different = differences(hub, runs[2:])
        late = [(each.name, each.value) for each in hub.rewards.rewards(gone[0])]
        counts = hub.counters.counts()
    own.back_up()
    own.fail_over()
    again = host.cli("ship")
    with closing(open_at(address)) as hub:
        different_again = differences(hub, runs[2:])
        exported = [row for row in hub.export() if row.get("rollout_id") in gone]
    words, verified = host.cli("status", "--all").stdout, host.cli("verify")

    assert len(runs) > 2
    assert (forgotten, rewarded.stdout, shipped.returncode) == ([0, 0], "True\n", 0)
    assert (different, late, counts["arrived_forgotten"]) == ([], [("late", 0.5)], 1)
    assert (again.returncode, different_again) == (0, [])
    assert [row["table"] for row in exported] == ["rewards"]
    assert "arrived_forgotten" in words, words
    assert verified.returncode == 0, verified.stdout


def stored_in(address: str) -> int:
    with closing(open_at(address)) as hub:
        return hub.rollouts.query(RolloutQuery()).total


def test_a_spool_of_another_database_is_never_sent_and_hurts_no_host(
    home: Path, own: Server
) -> None:
    address, other = own.new_database(), own.new_database()
    owner, stranger = Host(home, address), Host(home, other)
    own.stop("immediate")
    with owner.agent("a", 1.0, 30.0) as agent:
        runs, _ = agent.runs()
        os.kill(agent.process.pid, signal.SIGKILL)
    with stranger.agent("away", 1.0, 2.0) as agent:  # nor while nobody can be asked
        away, _ = agent.runs()
        log = agent.log()
    own.start()
    with stranger.agent("b", 1.0, 2.0) as agent:
        foreign, flushed = agent.runs()
        log += agent.log()
    by_hand = stranger.cli("ship", "--json")
    there = stored_in(other)
    shipped = json.loads(owner.cli("ship", "--json").stdout)
    with closing(open_at(address)) as hub:
        different = differences(hub, runs)

    assert {str(run[2]) for run in [*away, *foreign]} == {"default"}
    assert (flushed, there) == ("False", 0)
    assert log.count("'store_fails'") == 2
    assert "TAU_LIVE_RL_SPOOL" in log
    assert (by_hand.returncode, by_hand.stderr.count("\n")) == (1, 1), by_hand.stderr
    assert "belongs to" in by_hand.stderr
    assert (shipped["unsent"], different) == (0, [])


def test_tenants_of_one_database_may_not_share_a_spool(home: Path, own: Server) -> None:
    from tau_live.core.addresses import keep
    from tau_live.store.opening import make_tenant

    base = own.new_database(empty=True)
    tenants = [make_tenant(keep(base), name) for name in ("a", "b")]
    first, second = (Host(home, address) for address in tenants)
    with first.agent("a", 1.0, 30.0) as agent:
        runs, flushed = agent.runs()
    with second.agent("b", 1.0, 2.0) as agent:
        foreign, flushed_too = agent.runs()
    with closing(open_at(tenants[0])) as hub:
        different = differences(hub, runs)

    assert (flushed, flushed_too, different) == ("True", "False", [])
    assert {str(run[2]) for run in foreign} == {"default"}
    assert stored_in(tenants[1]) == 0


def test_a_server_that_has_another_name_gets_what_was_spooled_for_it(
    home: Path, own: Server
) -> None:
    address = own.new_database()
    with Host(home, address).agent("a", 1.0, 30.0) as agent:
        runs, _ = agent.runs()
    own.stop("immediate")
    with Host(home, address).agent("away", 1.0, 30.0) as agent:
        spooled, _ = agent.runs()
    own.start()
    with Host(home, f"{address}/").agent("b", 1.0, 30.0) as agent:  # the same folder
        more, flushed = agent.runs()
    with closing(open_at(address)) as hub:
        different = differences(hub, [*runs, *spooled, *more])

    assert (flushed, different) == ("True", [])


def test_a_new_database_at_the_address_of_another_gets_nothing_of_it(
    home: Path, own: Server
) -> None:
    import psycopg

    address = own.new_database(empty=True)
    host = Host(home, address)
    with host.agent("a", 1.0, 30.0) as agent:
        agent.runs()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("drop schema public cascade")
        connection.execute("create schema public")
    with host.agent("b", 1.0, 2.0) as agent:
        until(lambda: "an earlier database at this address" in agent.logged())
        agent.runs()
        agent.log()

    assert stored_in(address) == 0
