"""A batch waits for the server as often for hundreds of runs as for a few."""

from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from tau_live.core.records import AttemptStatus, RolloutStatus
from tau_live.store.opening import open_at
from tau_live.store.roles import Store
from tests.contracts.making import attempt, decision, reward, rollout, span
from tests.postgres import needs_postgres, server

pytestmark = needs_postgres


def live(store: Store, ids: list[str]) -> None:
    """Store runs that begin in one batch, end in the next, and earn in a third."""
    with store.begin(), store.batch(ids) as batch:
        for id_ in ids:
            batch.begin_rollout(rollout(id_))
            batch.begin_attempt(attempt(id_))
        batch.add_spans([span("s-1", id_) for id_ in ids])
    with store.begin(), store.batch(ids) as batch:
        batch.add_spans([span("s-1", id_, ended_at=3.0) for id_ in ids])
        for id_ in ids:
            batch.add_decision(replace(decision(1, id_), arm="learner", share=0.5))
            batch.set_attempt_status(id_, 1, AttemptStatus.SUCCEEDED, at=4.0)
            batch.set_status(id_, RolloutStatus.SUCCEEDED, at=5.0)
            batch.await_reward(id_, until=100.0)
    with store.begin(), store.batch(ids) as batch:
        for id_ in ids:
            batch.add_reward(reward(1.0, id_))
            batch.mark_ready(id_, total_reward=1.0)


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
        live(store, ["warm"])
        for kind in (psycopg.Connection, psycopg.Cursor):
            monkeypatch.setattr(kind, "execute", counted(kind.execute))
        counts = []
        for size in (4, 64):
            sent = 0
            live(store, [f"of-{size}-{number}" for number in range(size)])
            counts.append(sent)
        assert counts[0] == counts[1] < 60, counts
        rollouts, ready = (
            store.rollouts.counts_by_status(),
            store.rewards.ready_count("model", after=0),
        )
        assert (rollouts[RolloutStatus.SUCCEEDED], ready) == (69, 69)
