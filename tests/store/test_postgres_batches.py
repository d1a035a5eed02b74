"""A batch waits for the server as often for hundreds of runs as for a few."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tau_live.core.errors import StoreBusyError
from tau_live.core.records import RolloutStatus, Trial
from tau_live.store.opening import open_at
from tau_live.store.postgres.connection import PostgresConnection
from tau_live.store.sql.connection import Row
from tests.bench.fleet import store_live
from tests.contracts.making import update
from tests.postgres import needs_postgres, server

pytestmark = needs_postgres


def test_the_statements_of_a_batch_do_not_grow_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    psycopg = pytest.importorskip("psycopg")
    sent = 0

    def counted(execute: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal sent
            sent += 1
            return execute(*arguments, **options)

        return call

    with closing(open_at(server().new_database())) as store:
        store_live(store, ["warm"])
        for kind in (psycopg.Connection, psycopg.Cursor):
            monkeypatch.setattr(kind, "execute", counted(kind.execute))
        counts = []
        for size in (4, 64):
            sent = 0
            store_live(store, [f"of-{size}-{number}" for number in range(size)])
            counts.append(sent)
        assert counts[0] == counts[1] < 60, counts
        rollouts, ready = (
            store.rollouts.counts_by_status(),
            store.rewards.ready_count("model", after=0),
        )
        assert (rollouts[RolloutStatus.SUCCEEDED], ready) == (69, 69)


def test_who_was_refused_a_lock_goes_on_with_the_next_transaction() -> None:
    psycopg = pytest.importorskip("psycopg")
    address = server().new_database()

    with closing(open_at(address, busy_timeout_s=0.1)) as store:
        with psycopg.connect(address) as other:
            other.execute("lock table turns")
            with pytest.raises(StoreBusyError, match="lock timeout"):
                store.counters.add({"x": 1})
            with pytest.raises(StoreBusyError, match="lock timeout"):
                store_live(store, ["late"])
        store.counters.add({"x": 1})
        store_live(store, ["late"])

        assert store.counters.counts()["x"] == 1
        assert store.rewards.ready_count("model", after=0) == 1


def test_who_forgets_some_rollouts_does_not_read_all(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def counted(read: Callable[..., list[Row]]) -> Callable[..., list[Row]]:
        def reading(*arguments: Any) -> list[Row]:
            found = read(*arguments)
            sizes.append(len(found))
            return found

        return reading

    with closing(open_at(server().new_database())) as store:
        for number in range(40):
            store_live(store, [f"run-{number}-{place}" for place in range(10)])
        store.policies.add_update(update(400), None)
        store.trials.save(Trial(point="model", watermark=400, revision=1))
        for name in ("rows", "rows_bound"):
            read = getattr(PostgresConnection, name)
            monkeypatch.setattr(PostgresConnection, name, counted(read))

        gone = store.retention.sweep(before=1e12, limit=10).gone

    assert gone == 10
    assert sum(sizes) < 300
