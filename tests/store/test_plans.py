"""Every question that a loop asks is answered from an index: no plan shows a scan."""

from collections.abc import Callable

import pytest

from tau_live.core.records import (
    Amendment,
    AttemptStatus,
    CostsSeen,
    Monitor,
    RolloutConfig,
    RolloutQuery,
    RolloutStatus,
    Span,
    Trial,
)
from tau_live.store.records import Condition
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import LIVE, begun, decision, queued, ready, reward, span, update
from tests.store.scans import ALLOWED
from tests.writes import forget_old, writes

LOOPS: dict[str, Callable[[SqliteStore], object]] = {
    "ready_count": lambda s: s.rewards.ready_count("model", after=0),
    "ready_points": lambda s: s.rewards.ready_points(),
    "ready_rollouts": lambda s: s.rewards.ready_rollouts("model", after=0, limit=9),
    "newest ready_rollouts": lambda s: s.rewards.ready_rollouts(
        "model", after=0, limit=9, newest=True, upto=5
    ),
    "passed": lambda s: s.rewards.ready_summary("", after=0, limit=9, newest=True, upto=5),
    "mark_ready": lambda s: writes(s).mark_ready("live-open", total_reward=1.0),
    "mark_ready again": lambda s: writes(s).mark_ready(LIVE, total_reward=2.0),
    "await_reward": lambda s: writes(s).await_reward("live-open", until=9.0),
    "overdue": lambda s: s.rewards.overdue(99.0, limit=9),
    "add_reward": lambda s: writes(s).add_reward(reward()),
    "names": lambda s: writes(s).add_name("live-other", LIVE),
    "names of one": lambda s: writes(s).rollouts_of("live-other"),
    "last_of": lambda s: writes(s).last_of("session"),
    "last_of_host": lambda s: writes(s).last_of("session", "tests"),
    "add_reward again": lambda s: writes(s).add_reward(reward(0.0, rollout_id="live-open")),
    "rewards": lambda s: s.rewards.rewards(LIVE),
    "watermark": lambda s: s.policies.watermark("model"),
    "learned watermark": lambda s: s.policies.watermark("model", executed=True),
    "add_update": lambda s: s.policies.add_update(update(99), None),
    "newest update of a point": lambda s: s.policies.updates(limit=1, point="model"),
    "begin": lambda s: begun(s, "live-new"),
    "set_status": lambda s: writes(s).set_status("live-open", RolloutStatus.FAILED, at=9.0),
    "set_attempt_status": lambda s: writes(s).set_attempt_status(
        "live-open", 1, AttemptStatus.FAILED, at=9.0
    ),
    "amend": lambda s: writes(s).amend_rollout(LIVE, Amendment(metadata={"x": 1})),
    "rollout": lambda s: s.rollouts.rollout(LIVE),
    "attempts": lambda s: s.rollouts.attempts(LIVE),
    "add_span": lambda s: writes(s).add_span(span("new")),
    "add_spans": lambda s: s.rollouts.add_spans([span("newer")], at=9.0),
    "next_span_numbers": lambda s: s.rollouts.next_span_numbers(LIVE, 2),
    "close_spans": lambda s: writes(s).close_spans(LIVE, 1, status="ok", at=9.0),
    "spans": lambda s: s.rollouts.spans(LIVE),
    "find spans": lambda s: s.find(Span, Condition("rollout_id", "is", LIVE)),
    "find spans of some": lambda s: s.find(
        Span, Condition("rollout_id", "in", [LIVE, "live-open"]), limit=9
    ),
    "add_decision": lambda s: writes(s).add_decision(decision(9)),
    "decisions": lambda s: s.decisions.decisions(LIVE),
    "decision": lambda s: s.decisions.decision(decision().decision_id),
    "shadow_points": lambda s: s.decisions.shadow_points(),
    "shadowed": lambda s: s.decisions.shadow_decisions("model", limit=9),
    "open_rollouts": lambda s: s.rollouts.open_rollouts("me"),
    "owners": lambda s: s.rollouts.owners(),
    "enqueue": lambda s: s.queue.enqueue(queued("q-new"), at=1.0),
    "claim": lambda s: s.queue.claim("w-2", at=10.0),
    "heartbeat": lambda s: s.queue.heartbeat("w-1", "q-1", 1, at=10.0),
    "finish": lambda s: s.queue.finish("q-1", 1, AttemptStatus.FAILED, at=10.0),
    "expire": lambda s: s.queue.expire(now=99.0),
    "acquire": lambda s: s.leases.acquire("update", "me", ttl_s=1.0),
    "confirm": lambda s: s.leases.confirm("update", s.leases.acquire("update", "me", ttl_s=1.0)),
    "held": lambda s: s.leases.holders("process:"),
    "count": lambda s: s.counters.add({"x": 1}),
    "trial": lambda s: s.trials.trial("model"),
    "save trial": lambda s: s.trials.save(Trial(point="model", revision=1)),
    "points": lambda s: s.trials.points(),
    "assigned": lambda s: s.trials.assignments("model", after=0, limit=9),
    "newest_place": lambda s: s.trials.newest_place("model"),
    "rewarded": lambda s: s.trials.rewards_after("model", after=0, limit=9),
    "newest_reward": lambda s: s.trials.newest_reward(),
    "charged": lambda s: s.monitors.cost_candidates(
        "model", CostsSeen(9, 0, 1.0), at=9.0, waits=[1.0, 5.0]
    ),
    "save monitor": lambda s: s.monitors.save(Monitor(point="model", watermark=1), {1: 0.5}),
    "collect": lambda s: forget_old(s, before=99.0, limit=9),
}


@pytest.fixture
def store(store: SqliteStore) -> SqliteStore:
    ready(store, LIVE, "model")
    begun(store, "live-open", owner="me")
    writes(store).add_reward(reward(rollout_id="live-open"))
    for number in (1, 2):
        store.queue.enqueue(
            queued(f"q-{number}", RolloutConfig(timeout_s=5.0, max_attempts=9)), at=1.0
        )
    store.queue.claim("w-1", at=2.0)
    return store


def _plans(store: SqliteStore, act: Callable[[SqliteStore], object]) -> list[tuple[str, str]]:
    raw = store._connection.raw
    statements: list[str] = []
    raw.set_trace_callback(statements.append)
    act(store)
    raw.set_trace_callback(None)
    return [
        (row[3], statement)
        for statement in statements
        if statement.split()[0].lower() in {"select", "insert", "update", "delete", "with"}
        for row in raw.execute(f"explain query plan {statement}")
    ]


@pytest.mark.parametrize("name", LOOPS)
def test_fault_14_no_loop_reads_a_whole_table(store: SqliteStore, name: str) -> None:
    plans = _plans(store, LOOPS[name])

    scans = [plan for plan in plans if "SCAN" in plan[0] and not ALLOWED.search(plan[0])]
    assert scans == []
    assert plans or name in {"add_reward", "acquire", "count"}  # which insert, or find a conflict


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("ready_count", "USING COVERING INDEX ready_points_by_place"),
        ("overdue", "INDEX awaiting_by_time"),
        ("shadow_points", "INDEX decisions_in_shadow"),
        ("shadowed", "INDEX decisions_in_shadow"),
        ("expire", "INDEX attempts_due"),
        ("open_rollouts", "INDEX rollouts_by_owner"),
        ("collect", "INDEX rollouts_by_end"),
        ("newest update of a point", "INDEX updates_by_number"),
        ("charged", "INDEX rollouts_by_end"),
    ],
)
def test_each_question_uses_the_index_that_was_made_for_it(
    store: SqliteStore, name: str, index: str
) -> None:
    plans = _plans(store, LOOPS[name])

    assert any(index in plan for plan, _ in plans)


@pytest.mark.parametrize(
    "name", ["ready_rollouts", "newest ready_rollouts", "passed", "overdue", "shadowed", "claim"]
)
def test_what_comes_in_order_is_not_sorted_first(store: SqliteStore, name: str) -> None:
    [first, *_] = dict.fromkeys(statement for _, statement in _plans(store, LOOPS[name]))

    steps = [plan for plan, statement in _plans(store, LOOPS[name]) if statement == first]

    assert [step for step in steps if "TEMP B-TREE" in step] == []


def test_spans_of_all_rollouts_are_read_in_order_without_sorting_them_all(
    store: SqliteStore,
) -> None:
    plans = _plans(store, lambda s: s.find(Span, limit=1))

    assert [plan for plan, _ in plans if plan.endswith("USE TEMP B-TREE FOR ORDER BY")] == []
    assert any("MERGE (UNION ALL)" in plan for plan, _ in plans)


def test_the_next_page_is_found_without_reading_those_before(store: SqliteStore) -> None:
    plans = _plans(store, lambda s: s.rollouts.query(RolloutQuery(after=1, limit=1)))

    page = [plan for plan, statement in plans if "total" not in statement]
    assert page == ["SEARCH rollouts USING INTEGER PRIMARY KEY (rowid>?)"]
