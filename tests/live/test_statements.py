"""How many statements processes send to a PostgreSQL server that all share."""

import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tau_live.store.opening import open_at
from tests.contracts.making import queued
from tests.live.fleet import started
from tests.live.running import line
from tests.postgres import needs_postgres, server

pytestmark = [needs_postgres, pytest.mark.slow, pytest.mark.timed]

IDLE = """
import sys, time, tau_live
tau_live.attach()
with tau_live.run("answer") as run:
    run.decide("model", ["small", "large"])
tau_live.flush(10)
print("ready", flush=True)
time.sleep(60)
"""

IDLE_S = 16.0

WAITED_S = 10.0
MOST_WAITING = 150
"""Some 60 looks, and four statements each second for what is overdue; without back-off 980."""


def logged(address: str) -> Callable[[], Counter[int]]:
    """Log the statements of new connections to a database; return how many there were, by pid."""
    with psycopg.connect(address, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"alter database {name} set log_statement = 'all'".encode())
    log = server().folder / "log"
    before = log.stat().st_size

    def count() -> Counter[int]:
        with log.open() as file:
            file.seek(before)
            found = re.findall(r"\[(\d+)\] LOG:  (?:statement|execute [^:]*):", file.read())
        return Counter(map(int, found))

    return count


def test_an_idle_host_sends_one_statement_every_five_seconds(home: Path) -> None:
    address = server().new_database()
    count = logged(address)

    with (
        started(IDLE, address, learner="off") as first,
        started(IDLE, address, learner="off") as second,
    ):
        assert [line(first), line(second)] == ["ready", "ready"]
        time.sleep(1.0)
        before = count()
        time.sleep(IDLE_S)
        sent = count() - before
        first.kill()
        second.kill()

    by_host = sorted(sent.values())
    print(f"in {IDLE_S:g} s: {by_host}")
    # one of the two keeps house for both; the server's clock is read every half minute
    assert 1 <= min(by_host) <= IDLE_S / 5.0 + 1


def test_waiting_for_results_backs_off() -> None:
    address = server().new_database()
    with closing(open_at(address)) as store:
        store.queue.enqueue(queued("task"))
    count = logged(address)

    with closing(open_at(address)) as store:
        before = count()
        found = store.queue.wait(["task"], timeout_s=WAITED_S)
        sent = sum((count() - before).values())

    print(f"in {WAITED_S:g} s: {sent} statements")
    assert found == []
    assert WAITED_S < sent <= MOST_WAITING
