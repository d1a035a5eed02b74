"""A batch waits for the server as often for hundreds of runs as for a few."""

from contextlib import closing
from typing import Any

import pytest

from tau_live.core.records import RolloutStatus
from tau_live.store.opening import open_at
from tests.bench.fleet import store_live
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
