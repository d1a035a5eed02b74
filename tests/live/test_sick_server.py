"""A sick server hurts no agent: each says once what to do, and goes on when it is well."""

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from tau_live.core.records import RolloutQuery
from tau_live.store.opening import open_at
from tests.live.fleet import started
from tests.live.running import line, until
from tests.postgres import Server, needs_postgres

pytestmark = [needs_postgres, pytest.mark.slow]

RUNS = 20
SLOWEST_S = 0.5
"""A decision takes at most so long, whatever the server does; quietly it takes 0.1 ms."""

DELAY_S = 0.5

AGENT = """
import json, sys, time, tau_live
for number, flush_s in enumerate(sys.stdin):
    raised, slowest_s, sources = None, 0.0, []
    try:
        for turn in range(20):
            with tau_live.run("answer", key=f"{number}-{turn}") as run:
                began = time.monotonic()
                choice = run.decide("model", ["small", "large"], default="small")
                slowest_s = max(slowest_s, time.monotonic() - began)
                sources.append([choice.source, choice.option])
                run.reward(turn % 2)
            time.sleep(0.01)
        flushed = tau_live.flush(float(flush_s))
    except BaseException as error:
        raised = repr(error)
    print(json.dumps([raised, slowest_s, sources, flushed]), flush=True)
"""


class Turn(NamedTuple):
    """What an agent reports of some runs."""

    raised: str | None
    slowest_s: float
    sources: list[list[str]]
    flushed: bool


class Agent:
    """An agent that makes some runs whenever it is asked to.

    Args:
        process: Its process.
        log: What it logs.
    """

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self.process = process
        self.log = log
        self.turns: list[Turn] = []

    def run(self, flush_s: float) -> Turn:
        """Make some runs, and wait so long for them to be stored."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{flush_s}\n")
        self.process.stdin.flush()
        self.turns.append(Turn(*json.loads(line(self.process))))
        return self.turns[-1]

    def warnings(self) -> list[str]:
        """Return the warnings about its store, in order."""
        lines = self.log.read_text().splitlines()
        return [each for each in lines if "event='store_fails'" in each or "store_slow" in each]


@pytest.fixture
def sick() -> Iterator[Server]:
    own = Server()
    try:
        yield own
    finally:
        with suppress(AssertionError):  # it is stopped
            own.stop()
        if (own.folder / "small").is_mount():
            subprocess.run(["umount", str(own.folder / "small")], check=True)
        shutil.rmtree(own.folder, ignore_errors=True)


@pytest.fixture
def run(home: Path) -> Iterator[Callable[[str], Agent]]:
    """Start an agent on a database."""
    with ExitStack() as stack:

        def start(address: str) -> Agent:
            log = home / "log"
            printed = stack.enter_context(log.open("w"))
            process = stack.enter_context(started(AGENT, address, learner="off", stderr=printed))
            stack.callback(process.kill)
            return Agent(process, log)

        yield start


def database_of(address: str) -> str:
    return address.partition("@/")[2].partition("?")[0]


def order(address: str, *statements: str) -> None:
    with psycopg.connect(address, autocommit=True) as raw:
        for statement in statements:
            raw.execute(statement.encode())


SESSIONS = "select pid from pg_stat_activity where application_name like 'tau-live%'"
END_SESSIONS = f"select pg_terminate_backend(pid) from ({SESSIONS}) as known"


@contextmanager
def read_only(server: Server, address: str) -> Iterator[None]:
    database = database_of(address)
    order(
        address, f"alter database {database} set default_transaction_read_only = on", END_SESSIONS
    )
    yield
    order(
        server.address("postgres"),
        f"alter database {database} reset default_transaction_read_only",
        END_SESSIONS,
    )


@contextmanager
def out_of_connections(server: Server, address: str) -> Iterator[None]:
    with ExitStack() as stack:
        first = stack.enter_context(closing(psycopg.connect(address, autocommit=True)))

        def fill() -> None:
            with suppress(psycopg.OperationalError):
                while True:
                    stack.enter_context(closing(psycopg.connect(address)))

        def is_full() -> bool:
            fill()
            return not first.execute(SESSIONS.encode()).fetchall()

        fill()
        first.execute(END_SESSIONS.encode())
        until(is_full)
        yield


@contextmanager
def wrong_version(server: Server, address: str) -> Iterator[None]:
    order(
        address,
        "update schema_version set version = version + 98, oldest = oldest + 98",
        END_SESSIONS,
    )
    yield
    order(address, "update schema_version set version = version - 98, oldest = oldest - 98")


@contextmanager
def full_disk(server: Server, address: str) -> Iterator[None]:
    folder = server.folder / "small"
    folder.mkdir()
    size = ["mount", "-t", "tmpfs", "-o", "size=48m,mode=777", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(size, check=False, capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here")
    inside = folder / "tables"
    inside.mkdir()
    shutil.chown(inside, "postgres", "postgres")
    database = database_of(address)
    order(server.address("postgres"), f"create tablespace small location '{inside}'")
    until(lambda: _has_moved(server, database))
    filler = folder / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    yield
    filler.unlink()


def _has_moved(server: Server, database: str) -> bool:
    try:
        order(
            server.address("postgres"), END_SESSIONS,
            f"alter database {database} set tablespace small",
        )  # fmt: skip
    except psycopg.Error:
        return False
    return True


@contextmanager
def restarted(server: Server, address: str) -> Iterator[None]:
    server.stop()
    yield
    server.start()


CASES = [
    pytest.param(read_only, "primary", id="read-only"),
    pytest.param(out_of_connections, "max_connections", id="out of connections"),
    pytest.param(wrong_version, "a newer one", id="wrong version"),
    pytest.param(full_disk, "disk", id="disk full"),
    pytest.param(restarted, "start the server", id="restarted"),
]


@pytest.mark.parametrize(("sickness", "todo"), CASES)
def test_a_sick_server_hurts_no_agent_and_is_reported_once(
    sick: Server, run: Callable[[str], Agent], sickness: Callable[..., Iterator[None]], todo: str
) -> None:
    address = sick.new_database()
    agent = run(address)
    agent.run(2.0)
    before = agent.warnings()
    with sickness(sick, address):  # type: ignore[attr-defined]
        agent.run(3.0)
        held = agent.run(1.0)
        stopped_at = time.monotonic()
    until(lambda: agent.run(3.0).sources[-1][0] != "default")
    well_s = time.monotonic() - stopped_at
    last = agent.run(3.0)
    warnings = agent.warnings()

    print(f"works again after {well_s:.1f} s", warnings)
    assert [turn.raised for turn in agent.turns] == [None] * len(agent.turns)
    assert max(turn.slowest_s for turn in agent.turns) <= SLOWEST_S
    assert {*map(tuple, held.sources)} == {("default", "small")}
    causes = [warning.partition("todo=")[2] for warning in warnings]
    if todo == "disk":  # the database moves there without its sessions, which is another
        causes = [cause for cause in causes if todo in cause]
    assert (before, len({*causes})) == ([], len(causes))
    assert todo in causes[-1]
    assert last.sources[-1][0] != "default"


class Slow:
    """A proxy to a server, before whose answer to each message of a client time goes by.

    Args:
        server: The server.
        folder: The folder of its socket.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        self.delay_s = 0.0
        self._to = str(server.folder / f".s.PGSQL.{server.port}")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(folder / f".s.PGSQL.{server.port}"))
        self._socket.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._to)
                for source, target, slow in ((client, server, True), (server, client, False)):
                    run = threading.Thread(
                        target=self._pass_on, args=(source, target, slow), daemon=True
                    )
                    run.start()

    def _pass_on(self, source: socket.socket, target: socket.socket, slow: bool) -> None:
        with source, suppress(OSError):
            while data := source.recv(65_536):
                if slow:
                    time.sleep(self.delay_s)
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


def test_a_slow_server_delays_nothing_but_what_is_stored(
    sick: Server, run: Callable[[str], Agent]
) -> None:
    address = sick.new_database()
    folder = sick.folder / "slow"
    folder.mkdir()
    with closing(Slow(sick, folder)) as slow:
        agent = run(address.replace(str(sick.folder), str(folder)))
        agent.run(2.0)
        slow.delay_s = DELAY_S
        for _ in range(3):
            agent.run(2.0)
        slow.delay_s = 0.0
        agent.run(10.0)
        warnings = agent.warnings()
        with closing(open_at(address)) as store:
            stored = store.rollouts.query(RolloutQuery()).total

    print(warnings, [turn.slowest_s for turn in agent.turns])
    assert [turn.raised for turn in agent.turns] == [None] * len(agent.turns)
    assert max(turn.slowest_s for turn in agent.turns) <= SLOWEST_S
    assert stored == RUNS * len(agent.turns)
    assert ["find out what" in warning for warning in warnings] == [True]
