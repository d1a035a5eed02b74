"""What a process hears of others through a database: orders, and nothing of what is recorded."""

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import psycopg
import pytest

from tau_live.core.gate_keeper import GateKeeper
from tau_live.core.reasons import Part, Pause
from tau_live.record import heartbeats
from tau_live.record.heartbeats import ACKNOWLEDGED_S, Heart
from tau_live.store.forks import Forks
from tau_live.store.opening import open_at
from tau_live.store.postgres.listener import Listener
from tau_live.store.records import Topic
from tau_live.store.roles import Store
from tests.contracts.making import change_heard, ready, reward
from tests.live.running import until
from tests.postgres import needs_postgres, server
from tests.writes import writes

pytestmark = needs_postgres

PAUSE = Pause(part=Part.LEARNING, reason="odd", who="me@here", at=5.0)

END_LISTENING = """
select pg_terminate_backend(pid) from pg_stat_activity
where application_name = 'tau-live listening' and datname = current_database()
"""


@pytest.fixture
def address() -> str:
    return server().new_database()


@pytest.fixture
def other(address: str) -> Iterator[Store]:
    with closing(open_at(address)) as opened:
        yield opened


def test_what_is_recorded_is_announced_to_nobody_and_an_order_to_all(
    address: str, other: Store
) -> None:
    with closing(Listener(address)) as listener:
        first = listener.is_due()
        ready(other, "live-1", "model")
        writes(other).add_reward(reward(0.5, "live-1"))
        other.counters.add({"x": 1})
        recorded = listener.is_due()
        other.pauses.begin(PAUSE)
        until(listener.is_due, deadline_s=1.0)

    assert (first, recorded) == (True, False)


def test_many_who_hear_an_order_acknowledge_it_one_after_the_other(
    other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(heartbeats, "time", SimpleNamespace(monotonic=lambda: now[0]))
    keepers = [GateKeeper(limit=3, who=f"host-{number}", in_fleet=True) for number in range(40)]
    hearts = [Heart(f"host-{place}:1:1", own, limit=3) for place, own in enumerate(keepers)]
    for heart in hearts:
        heart.beat(other)
    held = replace(other.gate.load(), state="hold", revision=1)
    assert other.gate.save(held, entry=None)
    for keeper in keepers:
        keeper.refresh(other.gate)

    due = []
    for seconds in (0.0, ACKNOWLEDGED_S / 2, ACKNOWLEDGED_S):
        now[0] = 100.0 + seconds
        due.append(sum(heart.is_due(other) for heart in hearts))

    assert due[0] < due[1] < due[2] == 40
    assert 5 < due[1] < 35


def test_a_store_that_nobody_watches_does_not_listen(address: str, other: Store) -> None:
    other.pauses.begin(PAUSE)
    with closing(psycopg.connect(address)) as raw:
        ended = raw.execute(END_LISTENING).fetchall()

    assert ended == []


def test_who_lost_the_connection_reads_at_once(address: str, other: Store) -> None:
    with closing(open_at(address)) as mine:
        mine.changes()
        other.pauses.begin(PAUSE)
        first = change_heard(mine)
        with closing(psycopg.connect(address, autocommit=True)) as raw:
            assert len(raw.execute(END_LISTENING).fetchall()) == 1
        other.pauses.end(PAUSE.part)
        until(lambda: Topic.PAUSES in mine.changes(), deadline_s=1.0)

    assert first == {Topic.PAUSES}


def test_a_forked_child_leaves_its_parent_listening(address: str, other: Store) -> None:
    forks = Forks()
    with closing(forks.open(lambda: open_at(address))) as mine:
        mine.changes()
        forks.before()
        child = os.fork()
        if not child:
            os._exit(0 if forks.in_child() else 1)
        forks.in_parent()
        _, status = os.waitpid(child, 0)
        other.pauses.begin(PAUSE)
        heard = change_heard(mine)
        again = mine.changes()

    assert (status, {*heard}, {*again}) == (0, {Topic.PAUSES}, set())
