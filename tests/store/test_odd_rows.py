"""Rows that hold what no version of tau-live writes, as readers and writers meet them."""

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tau_live.core.errors import OddRowError, StoreError
from tau_live.core.reasons import Part, Pause
from tau_live.core.records import (
    AuditEntry,
    Monitor,
    RolloutQuery,
    RolloutStatus,
    Span,
    Trial,
)
from tau_live.store.recent import recent_rows
from tau_live.store.records import AlertRow
from tau_live.store.sql import rows
from tau_live.store.sql.decisions import ODD
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.filled import fill
from tests.contracts.making import (
    LIVE,
    begun,
    claimed,
    decision,
    policy,
    queued,
    ready,
    reward,
    rollout,
    span,
    steps,
    update,
)
from tests.writes import writes

NEVER = math.inf


@pytest.fixture(autouse=True)
def _warned_anew() -> Iterator[None]:
    rows.warn_once.cache_clear()
    yield


def odd(store: SqliteStore, *statements: str) -> None:
    """Edit the file as anybody may."""
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        for statement in statements:
            other.execute(statement)


def named(store: SqliteStore) -> list[tuple[str, str, str]]:
    odd_rows = store.odd_rows(deadline=NEVER, most=9)
    assert odd_rows.complete
    return [(row.table, row.key, row.column) for row in odd_rows.rows]


def test_an_odd_row_is_logged_once_with_its_table_key_and_column(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.audit.add(AuditEntry(at=1.0, who="anna", action="pause", reason="test"))
    odd(store, "update audit set at = 9e999")

    assert store.audit.entries() == store.audit.since(0, limit=9) == []
    [line] = caplog.messages
    assert "odd_row_skipped" in line
    assert all(part in line for part in ("audit", "key='1'", "column='at'", "tau-live doctor"))


def test_a_record_asked_for_by_its_key_is_refused_with_what_is_wrong(store: SqliteStore) -> None:
    begun(store)
    odd(store, "update rollouts set max_attempts = 0")

    with pytest.raises(OddRowError, match=r"max_attempts of rollouts 'live-1'") as raised:
        store.rollouts.rollout(LIVE)
    assert isinstance(raised.value, StoreError)
    assert (raised.value.table, raised.value.key, raised.value.column) == (
        "rollouts", LIVE, "max_attempts",
    )  # fmt: skip


def test_the_others_are_listed_and_a_limit_counts_sound_rows_alone(store: SqliteStore) -> None:
    for version in (1, 2, 3):
        store.policies.add_update(update(version), policy(version, parent=version - 1))
    alert = AlertRow(kind="test", severity="info", sentence="s", todo="t", at=1.0, owner="me")
    for _ in range(2):
        store.alerts.add(alert)
    odd(
        store,
        "update policies set metadata = '[]' where version = 3",
        "update updates set samples = -1 where number = 3",
        "update alerts set facts = '{' where seq = 2",
    )

    assert [row.version for row in store.policies.versions(limit=2)] == [1, 2]
    assert [row.update for row in store.policies.updates(limit=1)] == [2]
    assert [row.seq for row in store.alerts.latest(limit=1)] == [1]
    assert named(store) == [
        ("alerts", "2", "facts"), ("policies", "3", "metadata"), ("updates", "3", "samples"),
    ]  # fmt: skip


def test_an_odd_trial_is_stopped_and_no_evidence_until_it_is_written_anew(
    store: SqliteStore,
) -> None:
    begun(store)
    writes(store).add_decision(replace(decision(1), arm="learner", share=0.5))
    store.trials.save(Trial(point="model", exposure=0.5, revision=1, evidence={"test": 1.0}))
    odd(store, "update trials set exposure = -1.0, revision = -7")

    trial = store.trials.trial("model")
    again = store.trials.save(replace(trial, stopped=None, revision=trial.revision + 1))

    assert store.trials.newest_place("model") == 1
    assert trial == Trial(point="model", stopped=ODD, watermark=1, since=1)
    assert again
    assert store.trials.trials()["model"].stopped is None


def test_an_odd_pause_goes_on(store: SqliteStore) -> None:
    store.pauses.begin(Pause(part=Part.DECIDING, reason="test", who="anna", at=1.0))
    odd(store, "update pauses set at = -9e999")

    assert [*store.pauses.pauses()] == [Part.DECIDING]
    assert store.pauses.end(Part.DECIDING)


def test_an_odd_monitor_is_an_empty_one_and_is_written_over(store: SqliteStore) -> None:
    ready(store, "a", "model")
    store.monitors.save(Monitor(point="model", watermark=1))
    odd(store, f"update monitors set watermark = {2**62}, numbers = '{{\"limits\": [1]}}'")

    assert store.monitors.monitors() == {}
    assert store.monitors.monitor("model") == Monitor(point="model")
    assert store.monitors.save(Monitor(point="model", watermark=1))


def test_a_watermark_beyond_every_rollout_ends_no_learning(store: SqliteStore) -> None:
    for name in ("a", "b"):
        ready(store, name, "model")
    store.policies.add_update(update(1), policy(1))
    odd(store, f"update updates set last_ready = {2**62}")

    assert store.policies.watermark("model") == 0
    assert store.policies.add_update(update(2), policy(2, parent=1)).update == 2


@pytest.mark.parametrize(
    "edit",
    ["version = -1", "pinned = 7", "changed_at = 9e999", "revision = -1"],
)
def test_of_an_odd_version_in_service_what_can_be_read_counts(
    store: SqliteStore, edit: str
) -> None:
    for version in (1, 2):
        store.policies.add_update(update(version), policy(version, parent=version - 1))
    odd(store, f"update in_service set {edit}")

    serving = store.policies.in_service()["model"]
    moved = store.policies.put_in_service("model", 1, pinned=False, at=1.0)

    assert (serving.version, serving.pinned) == (2, True)
    assert store.policies.in_service()["model"] == moved


@pytest.mark.parametrize("edit", ["parent = 3", "parent = -1", "metadata = '{'"])
def test_the_version_before_an_odd_one_is_the_newest_sound_one(
    store: SqliteStore, edit: str
) -> None:
    for version in (1, 2, 3):
        store.policies.add_update(update(version), policy(version, parent=version - 1))
    odd(store, f"update policies set {edit} where version = 3")

    assert store.policies.before("model", 3) == 2
    assert store.policies.before("model", 2**62) >= 2
    assert ("policies", "3") in [(table, key) for table, key, _ in named(store)]


def test_a_version_that_was_renumbered_is_not_numbered_again(store: SqliteStore) -> None:
    store.policies.add_update(update(1), policy(1))
    odd(store, "update policies set version = 2")

    assert store.policies.next_version() == 3


def test_a_pin_that_cannot_be_read_is_a_pin(store: SqliteStore) -> None:
    store.policies.add_update(update(1), policy(1))
    odd(store, "update in_service set pinned = 7")

    store.policies.add_update(update(2), policy(2, parent=1))

    assert store.policies.in_service()["model"].version == 1


def test_an_odd_rollout_in_the_queue_holds_nobody_up(store: SqliteStore) -> None:
    for name in ("odd", "unknown", "next"):
        store.queue.enqueue(queued(name), at=1.0)
    odd(
        store,
        "update rollouts set retry_on = '7' where rollout_id = 'odd'",
        "update rollouts set status = 'nonsense' where rollout_id = 'unknown'",
    )

    claim = claimed(store)

    assert claim.rollout.rollout_id == "next"
    assert store.queue.claim("w-2", at=2.0) is None
    assert store.queue.length() == 2


@pytest.mark.parametrize(
    "edit",
    [
        "update rollouts set metadata = '[1]' where rollout_id = 'b'",
        "update rollouts set ready_seq = null where rollout_id = 'b'",
        "update decisions set options = 'null' where rollout_seq = 2",
        "update rewards set at = 9e999 where rollout_id = 'b'",
    ],
)
def test_a_ready_rollout_with_an_odd_row_teaches_nothing_and_is_passed(
    store: SqliteStore, edit: str
) -> None:
    for name in ("a", "b", "c"):
        writes(store).add_reward(reward(1.0, name))
        ready(store, name, "model")
    odd(store, edit)

    a, b, c = store.rewards.ready_rollouts("model", after=0, limit=9)

    assert [len(one.decisions) for one in (a, b, c)] == [1, 0, 1]
    assert (b.rollout.rollout_id, b.rollout.ready_seq) == ("b", 2)
    assert (b.rollout.total_reward, b.rewards) == (None, [])
    assert store.rewards.ready_count("model", after=0) == 3


def test_a_place_that_was_never_given_is_not_due(store: SqliteStore) -> None:
    for name in ("a", "b"):
        ready(store, name, "model")
    odd(store, f"update ready_points set ready_seq = {2**62} where ready_seq = 2")

    assert store.rewards.ready_count("model", after=0) == 1
    assert store.rewards.ready_count("model", after=1) == 0
    assert [
        one.rollout.rollout_id for one in store.rewards.ready_rollouts("model", after=0, limit=9)
    ] == ["a"]


def test_an_assignment_with_an_odd_rollout_does_not_hide_the_next(store: SqliteStore) -> None:
    for name in ("a", "b"):
        begun(store, name)
        writes(store).add_decision(replace(decision(1, name), arm="learner", share=0.5))
    odd(store, "update rollouts set started_at = 9e999 where rollout_id = 'a'")

    [assigned] = store.trials.assignments("model", after=0, limit=1)

    assert assigned.rollout.rollout_id == "b"


def test_in_a_batch_an_odd_rollout_is_refused_and_the_others_are_not(store: SqliteStore) -> None:
    for name in ("a", "b"):
        begun(store, name)
    odd(store, "update attempts set status = 'nonsense' where rollout_seq = 1")

    with store.begin(), store.batch(["a", "b"]) as batch:
        readable = batch.readable(["a", "b"])
        with pytest.raises(OddRowError, match="attempts"):
            batch.find_rollout("a")
        batch.set_status("b", RolloutStatus.SUCCEEDED, at=5.0)

    assert readable == ["b"]
    assert store.rollouts.rollout("b").status is RolloutStatus.SUCCEEDED


def test_odd_spans_and_rewards_of_a_run_are_left_out(store: SqliteStore) -> None:
    begun(store)
    for name in ("s-1", "s-2"):
        writes(store).add_span(span(name))
    for name in ("solved", "liked"):
        writes(store).add_reward(reward(1.0, name=name))
    odd(
        store,
        "update recorded_spans set attributes = '{' where span_id = 's-1'",
        "update rewards set decisions_before = -1 where name = 'liked'",
    )

    with store.begin(), store.batch([LIVE]) as batch:
        seen = [one.span_id for one in batch.spans(LIVE)], [one.name for one in batch.rewards(LIVE)]

    assert seen == (["s-2"], ["solved"])
    assert [one.span_id for one in steps(store)] == ["s-2"]
    assert [one.name for one in store.rewards.rewards(LIVE)] == ["solved"]


@pytest.mark.parametrize(
    ("edit", "left"),
    [
        ("update attempts set started_at = 9e999", ["decision", "tool"]),
        ("update attempts set status = 'nonsense', error_message = char(0, 34)", None),
        ("update decisions set at = 9e999", ["run", "tool"]),
        ("update decisions set propensity = 9e999", None),
        ("update decisions set options = '{', latency_us = -9e999", ["run", "tool"]),
        ("update recorded_spans set attributes = '{'", ["run", "decision"]),
    ],
)
def test_an_odd_attempt_or_decision_hides_no_other_span(
    store: SqliteStore, edit: str, left: list[str] | None
) -> None:
    begun(store)
    writes(store).add_span(span())
    writes(store).add_decision(decision())
    odd(store, edit)

    kinds = left or ["run", "decision", "tool"]
    assert [one.kind for one in store.rollouts.spans(LIVE)] == kinds
    assert [one.kind for one in store.find(Span).records] == kinds
    assert len([row for row in store.export() if row["table"] == "spans"]) == 3


def test_recent_rows_leave_out_odd_ones(store: SqliteStore) -> None:
    ready(store, "a", "model", "tools")
    for name in ("solved", "liked"):
        writes(store).add_reward(reward(1.0, "a", name=name))
    odd(
        store,
        "update decisions set at = 9e999 where point = 'tools'",
        "update rewards set at = -9e999 where name = 'liked'",
    )

    recent = recent_rows(store.path, limit=9)

    assert ([row.point for row in recent.decisions], len(recent.rewards)) == (["model"], 1)


def test_totals_counts_and_surveys_leave_out_what_is_no_number(store: SqliteStore) -> None:
    for name in ("a", "b"):
        ready(store, name, "model")
    store.counters.add({"dropped_queue": 1})
    odd(
        store,
        "update rollouts set total_reward = 9e999, metadata = '{' where rollout_id = 'a'",
        "update status_counts set total = -5 where status = 'succeeded'",
        f"update counters set value = {2**63 - 1}",
        "delete from sequences where name = 'ready'",
    )
    store.counters.add({"dropped_queue": 2})

    totals = store.rewards.newest_totals(None, of=9, without="safety")
    page = store.rollouts.query(RolloutQuery())

    assert (totals.of, totals.lowest, totals.highest) == (1, 1.0, 1.0)
    assert store.rewards.mean_reward(of=9, newest=True) == 1.0
    assert store.rollouts.counts_by_status()[RolloutStatus.SUCCEEDED] == 0
    assert store.counters.counts()["dropped_queue"] == 2
    assert store.rewards.became_ready() == 0
    assert [row.seq for row in store.surveys.rollouts([1, 2])] == [1, 2]
    assert [one.rollout_id for one in page.rollouts] == ["b"]


def test_an_export_keeps_what_is_no_json_and_no_infinite_number(
    store: SqliteStore,
) -> None:
    writes(store).begin_rollout(rollout())
    odd(store, "update rollouts set metadata = '{', started_at = 9e999")

    [row] = [row for row in store.export() if row["table"] == "rollouts"]

    assert (row["metadata"], row["started_at"]) == ("{", None)


def test_a_search_counts_what_it_does_not_list_and_gives_up_in_time(store: SqliteStore) -> None:
    for n in range(4):
        begun(store, f"live-{n}")
    odd(store, "update rollouts set attempt_count = -1", "delete from rollouts where seq = 4")

    found = store.odd_rows(deadline=NEVER, most=2)
    hurried = store.odd_rows(deadline=time.monotonic() - 1.0, most=2)

    assert [(row.table, row.key, row.column) for row in found.rows] == [
        ("rollouts", "live-2", "attempt_count"),
        ("rollouts", "live-1", "attempt_count"),
        ("attempts", "?", ""),
    ]
    assert found.counts == {"rollouts": 3, "attempts": 1}
    assert found.complete
    assert not hurried.complete


def test_whatever_a_store_writes_is_sound(path: Path) -> None:
    fill(path.with_name("filled.sqlite"))
    with closing(SqliteStore.open(path.with_name("filled.sqlite"), read_only=True)) as filled:
        assert named(filled) == []


def test_a_lease_of_before_tokens_gets_one_when_it_is_renewed(store: SqliteStore) -> None:
    store.leases.acquire("update", "elsewhere:1:2", ttl_s=60.0)
    store._connection.change("update leases set token = 0")

    assert store.leases.acquire("update", "elsewhere:1:2", ttl_s=60.0)
