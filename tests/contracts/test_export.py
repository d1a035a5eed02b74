"""The export: what a recording determines, and nothing else."""

import json
from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from tau_live.core.records import AuditEntry
from tau_live.store.roles import Store
from tests.contracts.making import (
    LIVE,
    begun,
    decision,
    policy,
    queued,
    ready,
    reward,
    span,
    update,
)
from tests.writes import writes

OpenStore = Callable[[], Store]


def _recorded(store: Store, *, owner: str = "host:1", clock: float = 100.0) -> None:
    begun(store, "live-2", owner=owner)
    ready(store, LIVE, "model", "tools")
    writes(store).add_span(span("z", ended_at=3.0, attributes={"duration_ms": 5, "x": None}))
    writes(store).add_span(span("a", rollout_id="live-2"))
    writes(store).add_reward(reward(0.5, "live-2"))
    writes(store).add_reward(reward(1.0, decision_id="live-1:attempt-1:decision-1"))
    report = {"loss": 0.5, "duration_s": clock, "wall_s": clock, "parts": [{"wall_ms": clock}]}
    store.policies.add_update(
        replace(update(1), report=report, at=clock), replace(policy(1), created_at=clock)
    )
    store.resources.publish({"prompt": "be brief"}, at=clock)
    store.counters.add({"seen": int(clock)})
    store.leases.acquire("update", owner, ttl_s=clock)
    store.audit.add(AuditEntry(at=clock, who=owner, action="x", reason="y"))
    store.queue.enqueue(queued(), at=clock)
    store.workers.register(owner, at=clock)


def _lines(store: Store) -> list[str]:
    return [json.dumps(row) for row in store.export()]


def test_an_empty_store_exports_nothing(store: Store) -> None:
    assert list(store.export()) == []


def test_the_tables_come_in_a_fixed_order_and_rows_by_their_rollouts(store: Store) -> None:
    _recorded(store)

    rows = list(store.export())

    assert list(dict.fromkeys(row["table"] for row in rows)) == [
        "rollouts",
        "attempts",
        "spans",
        "decisions",
        "rewards",
        "policies",
        "updates",
        "resources",
    ]
    assert [r["rollout_id"] for r in rows if r["table"] == "rollouts"] == [
        "live-2",
        "live-1",
        "q-1",
    ]
    assert [r["span_id"] for r in rows if r["table"] == "spans"] == [
        "live-2:attempt-1",
        "a",
        "live-1:attempt-1",
        "live-1:attempt-1:decision-1",
        "live-1:attempt-1:decision-2",
        "z",
    ]


def test_rows_are_told_with_public_ids_and_open_data_as_it_is(store: Store) -> None:
    begun(store)
    writes(store).add_decision(replace(decision(), share=0.75))

    [row] = [row for row in store.export() if row["table"] == "decisions"]

    assert row == {
        "table": "decisions",
        "rollout_id": LIVE,
        "attempt": 1,
        "ordinal": 1,
        "point": "model",
        "options": ["small", "large"],
        "allowed": None,
        "exploit_only": None,
        "chosen": "small",
        "applied": "small",
        "default": "large",
        "source": "policy",
        "why_not": None,
        "propensity": 0.25,
        "probabilities": [0.25, 0.75],
        "value": 0.5,
        "policy_version": 3,
        "arm": "control",
        "share": 0.75,
        "latency_us": 12.5,
        "at": 2.0,
        "context": {"words": 120, "lang": "de"},
        "features": {"small": {"usd": 0.1}, "large": {"usd": 2.0}},
        "encoded": "AP+A",
    }


COLUMNS: Mapping[str, str] = {
    "rollouts": """
        rollout_id host run_id session_id parent_id name status mode reason error_type input
        max_attempts retry_on timeout_s unresponsive_s metadata attempt_count started_at ended_at
        ready_seq total_reward run_reward
    """,
    "attempts": """
        rollout_id number status execution started_at last_heartbeat_at ended_at error_message
    """,
    "spans": """
        rollout_id attempt span_id parent_span_id kind name status attributes started_at ended_at
    """,
    "decisions": """
        rollout_id attempt ordinal point options allowed exploit_only chosen applied default
        source why_not propensity probabilities value policy_version arm share latency_us at
        context features encoded
    """,
    "rewards": "rollout_id decision_id name value label comment source key at decisions_before",
    "policies": "version point parent algorithm sha256 file rollouts metadata",
    "updates": """
        update point executed skipped_reason version parent first_ready last_ready trajectories
        samples report
    """,
    "resources": "name version content",
}


def test_every_table_tells_these_columns_and_no_others(store: Store) -> None:
    _recorded(store)

    found = {str(row["table"]): set(row) - {"table"} for row in store.export()}

    assert found == {table: set(columns.split()) for table, columns in COLUMNS.items()}


@pytest.fixture(params=["another process", "another time", "another write in between"])
def twin(request: pytest.FixtureRequest, opened: OpenStore) -> Store:
    store = opened()
    if request.param == "another write in between":
        begun(store, "live-2")
        writes(store).begin_rollout(store.rollouts.rollout("live-2"))
    owner = "elsewhere:9" if request.param == "another process" else "host:1"
    clock = 7e5 if request.param == "another time" else 100.0
    _recorded(store, owner=owner, clock=clock)
    return store


def test_the_same_recording_makes_the_same_export_whoever_made_it_and_when(
    twin: Store, elsewhere: OpenStore
) -> None:
    reference = elsewhere()
    _recorded(reference)

    assert _lines(twin) == _lines(reference)


def test_telling_everything_twice_adds_nothing(store: Store) -> None:
    def told() -> None:
        begun(store, "live-2")
        ready(store, LIVE, "model")
        writes(store).add_span(span(ended_at=3.0))
        writes(store).add_reward(reward())

    told()
    once = _lines(store)

    told()

    assert _lines(store) == once


def test_what_is_written_while_an_export_is_read_is_kept(opened: OpenStore) -> None:
    store = opened()
    begun(store)
    rows = store.export()
    next(iter(rows))

    store.counters.add({"x": 1})
    with store.begin():
        store.counters.add({"x": 1})
    list(rows)

    assert opened().counters.counts() == {"x": 2}


def test_an_export_shows_one_moment_even_while_others_write(opened: OpenStore) -> None:
    reader, writer = opened(), opened()
    ready(writer, LIVE, "model")
    rows = reader.export()
    first = next(iter(rows))

    ready(writer, "live-2", "model")

    assert first["rollout_id"] == LIVE
    assert {row.get("rollout_id", LIVE) for row in rows} == {LIVE}


def test_an_export_that_is_restored_is_exported_as_the_same_bytes(
    opened: OpenStore, elsewhere: OpenStore
) -> None:
    store, other = opened(), elsewhere()
    for rollout_id in ("live-1", "live-2"):
        ready(store, rollout_id, "model", "tools")
        parents = {"z": None, "a": "z", "late": "never stored"}
        for span_id, parent in parents.items():
            step = span(span_id, rollout_id, ended_at=3.0)
            writes(store).add_span(replace(step, parent_span_id=parent))
        writes(store).add_reward(reward(0.5, rollout_id))

    counts = other.restore(list(store.export()))

    assert _lines(other) == _lines(store)
    assert (counts["spans"], counts["decisions"]) == (6, 4)
    assert other._connection.rows("select parent_span_id from recorded_spans")[0][0] is None
