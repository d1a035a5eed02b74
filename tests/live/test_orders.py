"""Orders of operators are heard again by all who listen after the database was away."""

import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tau_live.store.opening import open_at
from tests.live.running import until
from tests.postgres import Server, needs_postgres
from tests.proof.orders_proof import WORST_S, Fleet, hold

pytestmark = [needs_postgres, pytest.mark.slow, pytest.mark.timed]

HOSTS = 4


def test_orders_are_heard_after_the_server_was_killed(home: Path) -> None:
    own = Server()
    try:
        fleet = Fleet(own.new_database(), home, HOSTS)
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
