"""The reference's faults 14 to 16, where they are a matter of SQLite and not of the contract."""

import sqlite3
from collections.abc import Callable

import pytest

from tau_live.core.records import RolloutStatus
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import LIVE, begun, decision, ready, reward, span
from tests.writes import writes


def _statements(store: SqliteStore, act: Callable[[], object]) -> list[str]:
    raw = store._connection.raw
    statements: list[str] = []
    raw.set_trace_callback(lambda statement: statements.append(" ".join(statement.split())))
    act()
    raw.set_trace_callback(None)
    return statements


def _whole_rollout(store: SqliteStore) -> None:
    begun(store)
    writes(store).add_span(span())
    writes(store).add_decision(decision())
    writes(store).add_reward(reward())
    writes(store).set_status(LIVE, RolloutStatus.SUCCEEDED, at=9.0)
    writes(store).mark_ready(LIVE, total_reward=1.0)


def test_fault_14_one_connection_serves_every_call(store: SqliteStore) -> None:
    statements = _statements(store, lambda: _whole_rollout(store))

    assert [statement for statement in statements if statement.startswith("pragma")] == []


def test_fault_14_a_rollout_writes_no_snapshot_of_the_resources(store: SqliteStore) -> None:
    store.resources.publish({"prompt": "be brief"}, at=1.0)

    statements = _statements(store, lambda: _whole_rollout(store))

    assert [statement for statement in statements if " resources (" in statement] == []


@pytest.mark.parametrize("rollouts", [1, 60])
def test_fault_14_a_page_is_read_in_as_many_queries_whatever_its_size(
    store: SqliteStore, rollouts: int
) -> None:
    for number in range(rollouts):
        ready(store, f"live-{number}", "model")

    statements = _statements(
        store, lambda: store.rewards.ready_rollouts("model", after=0, limit=60)
    )

    assert len([statement for statement in statements if statement.startswith("select")]) == 3


def test_fault_15_a_move_is_checked_and_made_under_one_write_lock(store: SqliteStore) -> None:
    begun(store)

    statements = _statements(
        store, lambda: writes(store).set_status(LIVE, RolloutStatus.SUCCEEDED, at=9.0)
    )

    [move] = {s for s in statements if s.startswith("update rollouts set")}
    looks = [at for at, s in enumerate(statements) if s.startswith("select rollouts.*")]
    assert move.startswith("update rollouts set status = 'succeeded'")
    assert (statements[0], statements[-1]) == ("begin immediate", "commit")
    assert looks
    assert max(looks) < statements.index(move)


@pytest.mark.parametrize(
    "statement",
    [
        "update recorded_spans set attempt = 7",
        "update recorded_spans set span_id = 's-1'",
        "update decisions set ordinal = 1",
        "update attempts set rollout_seq = 99",
        "update recorded_spans set started_at = 'yesterday'",
    ],
    ids=["span without attempt", "span twice", "decision twice", "attempt alone", "no number"],
)
def test_fault_15_the_schema_itself_refuses_what_makes_no_sense(
    store: SqliteStore, statement: str
) -> None:
    begun(store)
    writes(store).add_spans([span("s-1"), span("s-2")])
    for ordinal in (1, 2):
        writes(store).add_decision(decision(ordinal))

    with pytest.raises(sqlite3.IntegrityError):
        store._connection.raw.execute(statement)
