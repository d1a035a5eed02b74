"""Agents and commands that reach their database through PgBouncer, in transaction mode."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Barrier, Thread
from typing import NamedTuple

import psycopg
import pytest

from tau_live.core.errors import StoreUnavailableError
from tau_live.core.reasons import Part, Pause
from tau_live.core.records import RolloutQuery
from tau_live.store.opening import open_at
from tests.bench.fleet import store_live
from tests.contracts.making import change_heard
from tests.live.fleet import command, started
from tests.live.test_database import AGENT, line
from tests.pooler import SESSIONS, Pooler, needs_pooler
from tests.postgres import Server

pytestmark = [needs_pooler, pytest.mark.slow]

PAUSE = Pause(part=Part.LEARNING, reason="odd", who="me@here", at=5.0)

CHANGED = """
select name, setting from pg_settings where source = 'session' and name in (
    'default_transaction_read_only', 'lock_timeout', 'statement_timeout', 'synchronous_commit',
    'enable_seqscan', 'jit', 'client_min_messages'
)
"""

LISTENING = """
select count(*) from pg_stat_activity
where application_name = 'tau-live listening' and datname = %s
"""


class Pooled(NamedTuple):
    """A server behind a pooler.

    Attributes:
        server: The server.
        pooler: The pooler.
    """

    server: Server
    pooler: Pooler


@pytest.fixture(scope="module")
def pooled() -> Iterator[Pooled]:
    own = Server()
    try:
        pooler = Pooler(own, "agent_a", "agent_b")
        yield Pooled(own, pooler)
        pooler.stop()
    finally:
        own.remove()


@pytest.fixture
def address(pooled: Pooled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return pooled.pooler.address(pooled.server.new_database())


def test_more_agents_than_sessions_record_and_learn_beside_commands(
    pooled: Pooled, address: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("w"))
        agents = [
            stack.enter_context(
                started(AGENT, address, f"a{number}", 40, 1, learner="off", stderr=log)
            )
            for number in range(2 * SESSIONS)
        ]
        shown = [command(address, *words) for words in (("status",), ("gate",), ("rollouts",))]
        ended = [agent.wait(60.0) for agent in agents]
        learned = json.loads(command(address, "learn", "--once", "--json").splitlines()[-1])

    assert ended == [0] * len(agents)
    assert learned["executed"]
    assert all(shown)
    with closing(open_at(address, read_only=True)) as store:
        assert store.rollouts.query(RolloutQuery()).total == 40 * len(agents)
        assert store.gate.load().state == "pass"
    logged = (tmp_path / "log").read_text().splitlines()
    assert {text for text in logged if "announcements_not_certain" not in text} == set()


def test_batches_of_more_clients_than_sessions_are_stored_beside_each_other(
    pooled: Pooled, address: str
) -> None:
    meet, errors = Barrier(2 * SESSIONS), []

    def write(name: int) -> None:
        try:
            with closing(open_at(address, busy_timeout_s=60.0)) as store:
                meet.wait()
                for number in range(10):
                    store_live(store, [f"{name}-{number}-{place}" for place in range(4)])
        except Exception as error:
            errors.append(error)

    writers = [Thread(target=write, args=(name,)) for name in range(2 * SESSIONS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert errors == []
    with closing(open_at(address)) as store:
        assert store.rewards.ready_count("model", after=0) == 2 * SESSIONS * 40


def test_no_session_keeps_what_one_client_has_set(pooled: Pooled, address: str) -> None:
    with (
        closing(open_at(address, read_only=True)) as reader,
        closing(open_at(address, busy_timeout_s=0.5)) as writer,
    ):
        for _ in range(5):
            with reader.within(9.0):
                reader.gate.load()
            with pytest.raises(StoreUnavailableError, match="read-only"):
                reader.counters.add({"x": 1})
            writer.counters.add({"x": 1})
            writer.leases.acquire("one", "me", ttl_s=9.0)
        counts = writer.counters.counts()
    with psycopg.connect(address, autocommit=True) as raw:
        changed = raw.execute(CHANGED).fetchall()

    assert counts == {"x": 5}
    assert changed == []


def test_orders_are_heard_past_the_pooler(pooled: Pooled, address: str) -> None:
    database = address.partition("?")[0].rpartition("/")[2]
    with (
        closing(open_at(f"{address}&direct=:{pooled.server.port}")) as mine,
        closing(open_at(address)) as other,
        psycopg.connect(pooled.server.address("postgres"), autocommit=True) as raw,
    ):
        mine.changes()
        listening = raw.execute(LISTENING, (database,)).fetchall()
        other.pauses.begin(PAUSE)
        heard = change_heard(mine)

    assert listening == [(1,)]
    assert {*map(str, heard)} == {"pauses"}


def test_a_tenant_is_that_of_its_login(pooled: Pooled, address: str) -> None:
    direct = address.replace("&port=6432", "")
    for name in "ab":
        command(direct, "store", "create", "--tenant", name)
        with psycopg.connect(direct, autocommit=True) as raw:
            raw.execute(f"create role agent_{name} login in role tau_live_{name}_host".encode())
            raw.execute(f"alter role agent_{name} set search_path = {name}".encode())
    for name in "ab":
        own = address.replace("//tau@", f"//agent_{name}@")
        with started(AGENT, own, name, 3, 30, learner="off") as agent:
            assert line(agent) == "True"
        open_at(f"{own}&tenant={name}").close()
        with pytest.raises(StoreUnavailableError, match="may not use it"):  # not the login's own
            open_at(f"{own}&tenant={'ba'['ab'.index(name)]}")

    for name in "ab":
        with closing(open_at(f"{direct}&tenant={name}", read_only=True)) as store:
            assert store.rollouts.query(RolloutQuery()).total == 3
