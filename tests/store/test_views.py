"""Views read like sentences, are all described, and show no text that redaction might concern."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tau_live.core.records import AuditEntry, RolloutStatus, Trial
from tau_live.store.records import AlertRow
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import attempt, decision, policy, reward, rollout, span, update
from tests.viewed import VIEWED
from tests.writes import writes

SECRET = "what a user said"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore.open(tmp_path / "store.sqlite")
    yield made
    made.close()


def seen(store: SqliteStore, view: str) -> list[dict[str, object]]:
    """Return a view as another tool sees it, which knows nothing of ours."""
    store.close()
    other = sqlite3.connect(f"{store.path.as_uri()}?mode=ro", uri=True)
    other.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in other.execute(f"select * from {view}")]
    finally:
        other.close()


def test_every_view_and_column_is_described_and_no_other(store: SqliteStore) -> None:
    store.close()
    other = sqlite3.connect(store.path)
    views = [name for (name,) in other.execute("select name from sqlite_schema where type='view'")]
    found = {
        view: [column[1] for column in other.execute(f"pragma table_info({view})")]
        for view in views
    }
    other.close()

    assert found == {view: [*columns] for view, (_, columns) in VIEWED.items()}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "version 3 chose small with 25 %"),
        ({"propensity": None}, "version 3 chose small"),
        ({"applied": "large", "propensity": None}, "version 3 chose small, the host did large"),
        (
            {"source": "default", "chosen": None, "applied": "large", "propensity": None,
             "why_not": "deadline"},
            "the host chose large (deadline)",
        ),
        (
            {"source": "default", "chosen": "large", "applied": "small", "propensity": None,
             "why_not": "control"},
            "the host chose small, version 3 would have taken large (control)",
        ),
        ({"policy_version": 0}, "the untrained policy chose small with 25 %"),
        ({"source": "import"}, "somebody else chose small with 25 %"),
        ({"chosen": None, "applied": None, "propensity": None}, "version 3 chose nothing"),
    ],
)  # fmt: skip
def test_a_decision_is_told_in_words(
    store: SqliteStore, changes: dict[str, Any], words: str
) -> None:
    writes(store).begin_rollout(rollout("live-1"))
    writes(store).begin_attempt(attempt("live-1"))
    writes(store).add_decision(replace(decision(1, "live-1"), **changes))

    [found] = seen(store, "decisions_in_words")

    assert found["in_words"] == words
    assert found["options_and_probabilities"] == "small 25 %, large 75 %"
    assert found["decision_id"] == "live-1:attempt-1:decision-1"


def test_options_without_probabilities_are_named_alone(store: SqliteStore) -> None:
    writes(store).begin_rollout(rollout("live-1"))
    writes(store).begin_attempt(attempt("live-1"))
    writes(store).add_decision(replace(decision(1, "live-1"), probabilities=()))

    [found] = seen(store, "decisions_in_words")

    assert found["options_and_probabilities"] == "small, large"


def test_a_rollout_is_told_with_its_reward_and_what_is_learned_from_it(store: SqliteStore) -> None:
    for name in ("ready", "waits", "runs"):
        writes(store).begin_rollout(rollout(name, started_at=0.0))
    for name in ("ready", "waits"):
        writes(store).set_status(name, RolloutStatus.SUCCEEDED, at=2.5)
    writes(store).mark_ready("ready", total_reward=0.5)
    writes(store).await_reward("waits", until=9.0)

    found = {row["rollout_id"]: row for row in seen(store, "rollouts_in_words")}

    assert [*found] == ["runs", "waits", "ready"]
    assert (found["ready"]["reward"], found["ready"]["took_s"]) == (0.5, 2.5)
    assert [found[name]["learning"] for name in ("ready", "waits", "runs")] == [
        "ready to be learned from", "waits for its reward", "goes on",
    ]  # fmt: skip
    assert found["ready"]["started_utc"] == "1970-01-01 00:00:00"


def test_updates_and_versions_are_told_in_words(store: SqliteStore) -> None:
    for number in (1, 2):
        made = replace(update(number), version=number, parent=number - 1)
        store.policies.add_update(made, policy(number, parent=number - 1))
    store.policies.add_update(update(3, executed=False), None)
    store.policies.put_in_service("model", 2, pinned=True, at=1.0)
    store.trials.save(Trial(point="model", champion=1, revision=1))
    store.close()
    again = SqliteStore.open(store.path)

    updates = [row["in_words"] for row in seen(again, "updates_in_words")]
    versions = [row["in_words"] for row in seen(again, "versions_in_words")]

    assert updates == [
        "skipped: one_reward",
        "made version 2 from 1",
        "made version 1 from the untrained policy",
    ]
    assert versions == ["decides, pinned", "does not decide; the champion"]


def test_counts_the_audit_and_alerts_are_told(store: SqliteStore) -> None:
    store.counters.add({"dropped_queue_full": 3, "left_out_no_reward": 2, "nothing": 0})
    store.audit.add(
        AuditEntry(at=1.0, who="me", action="policy_pin", reason="why", details={"point": "model"})
    )
    row = AlertRow(kind="gate-hold", severity="critical", sentence="x", todo="y", at=1.0, owner="o")
    store.alerts.add(row)

    drops, audit, alerts = (
        seen(store, f"{name}_in_words") for name in ("drops", "audit", "alerts")
    )

    assert [(row["what"], row["reason"], row["times"]) for row in drops] == [
        ("dropped before it was stored", "queue full", 3),
        ("stored, not learned from", "no reward", 2),
    ]
    assert [(row["action"], row["point"]) for row in audit] == [("policy pin", "model")]
    assert [row["kind"] for row in alerts] == ["gate-hold"]


def test_no_view_in_words_shows_what_texts_may_be_in(store: SqliteStore) -> None:
    told = {"said": SECRET}
    writes(store).begin_rollout(replace(rollout("live-1"), metadata=told, input=told))
    writes(store).begin_attempt(attempt("live-1"))
    writes(store).add_span(span("one", "live-1", attributes=told))
    writes(store).add_decision(
        replace(decision(1, "live-1"), context=told, features={"small": told})
    )
    writes(store).add_reward(replace(reward(1.0, "live-1"), comment=SECRET, label=SECRET))

    shown = str([seen(store, view) for view in VIEWED if view.endswith("_in_words")])

    assert "live-1" in shown
    assert SECRET not in shown
