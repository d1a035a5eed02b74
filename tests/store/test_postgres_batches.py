"""A batch waits for the server as often for hundreds of runs as for a few."""

import re
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from tau_live.core.errors import StoreBusyError, StoreUnavailableError
from tau_live.core.records import RolloutStatus, Trial
from tau_live.store.opening import open_at
from tau_live.store.postgres.connection import IDLE_S, PostgresConnection
from tau_live.store.sql.connection import Row
from tests.bench.fleet import store_live
from tests.contracts.making import attempt, decision, rollout, update
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


def test_a_transaction_whose_client_is_frozen_keeps_others_out_for_seconds() -> None:
    address = server().new_database()
    with closing(open_at(address)) as frozen, closing(open_at(address)) as other:
        with pytest.raises(StoreUnavailableError), frozen.begin():
            frozen.counters.add({"frozen": 1})
            other.counters.add({"other": 1})  # which waits
            frozen.counters.add({"frozen": 1})
        assert frozen.counters.counts() == {"other": 1}
        frozen.counters.add({"later": 1})

        assert other.counters.counts() == {"other": 1, "later": 1}


def test_whoever_only_reads_may_take_its_time() -> None:
    with closing(open_at(server().new_database())) as store:
        store_live(store, ["run-1"])
        with store.reading():
            time.sleep(IDLE_S + 1)

            assert store.retention.size().rollouts == 1


def test_a_store_sets_for_itself_what_a_database_has_for_others() -> None:
    import psycopg

    address = server().new_database()
    one = replace(decision(1, "run-1"), propensity=1 / 3, probabilities=(1 / 3, 2 / 3))
    with psycopg.connect(address, autocommit=True) as connection:
        for setting in ("array_nulls = off", "extra_float_digits = -5", "client_encoding = latin1"):
            name = psycopg.conninfo.conninfo_to_dict(address)["dbname"]
            connection.execute(f"alter database {name} set {setting}".encode())
    with closing(open_at(address)) as store:
        with store.begin(), store.batch(["run-1"]) as batch:
            batch.begin_rollout(replace(rollout("run-1"), name="\N{SNOWMAN}"))
            batch.begin_attempt(attempt("run-1"))
            batch.add_decision(one)

        assert store.decisions.decisions("run-1")[0].probabilities == one.probabilities
        assert store.rollouts.rollout("run-1").name == "\N{SNOWMAN}"


def test_a_database_that_cannot_hold_every_text_is_refused() -> None:
    import psycopg

    address = server().new_database(empty=True)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("create database latin encoding 'LATIN1' template template0")

    with pytest.raises(StoreUnavailableError, match="has the encoding LATIN1, not UTF8"):
        open_at(re.sub(r"/case_\d+", "/latin", address))
