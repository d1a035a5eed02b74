"""A glance says what a report says, and reads no more of a large store than of a small one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tau_live.core.gate import GateEntry
from tau_live.core.reasons import Part, Pause
from tau_live.core.records import AuditEntry, Trial
from tau_live.core.settings import Settings
from tau_live.operate.report.facts import Mark
from tau_live.operate.report.summary import EACH, STRETCHES, Glance, glance_of, points_of
from tau_live.store.sqlite.store import SqliteStore
from tests.bench.grown import grown
from tests.contracts.making import ready


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(tmp_path / "store.sqlite")
    yield opened
    opened.close()


def glance(store: SqliteStore) -> Glance:
    return glance_of(store, Settings(store=store.path), now=1e9, enabled=True)


@pytest.mark.slow
def test_of_a_large_store_no_more_is_read_than_of_a_small_one(tmp_path: Path) -> None:
    store = grown(tmp_path / "store.sqlite", 4_000)

    found = glance(store)

    total = sum(store.rollouts.counts_by_status().values())
    store.close()
    assert total > 4_000
    assert len(found.stretches) == STRETCHES
    assert sum(one.looked_at for one in found.stretches) <= STRETCHES * EACH


def test_what_changed_last_is_the_newest_of_audit_and_gate(store: SqliteStore) -> None:
    def held() -> None:
        row = replace(store.gate.load(), revision=1)
        entry = GateEntry(at=7.0, event="hold", state="hold", kind=None, reason="x", who="ann")
        store.gate.save(row, entry=entry)

    for number in range(100):
        store.audit.add(
            AuditEntry(at=number / 50, who="bob", action="policy_pin", reason="", details={})
        )
    details = {"point": "model"}
    store.audit.add(
        AuditEntry(at=5.0, who="eve", action="policy_reset", reason="worse", details=details)
    )

    rejected = glance(store).latest
    held()
    later = glance(store).latest

    assert isinstance(rejected, Mark)
    assert isinstance(later, Mark)
    assert (rejected.kind, rejected.point, rejected.who) == ("rollback", "model", "eve")
    assert (later.kind, later.point, later.who) == ("hold", None, "ann")


def test_the_busiest_point_is_the_first(store: SqliteStore) -> None:
    ready(store, "live-1", "aside")
    for point, seen in (("aside", 1.0), ("model", 9.0), ("none", 0.0)):
        store.trials.save(Trial(point=point, tally={"learner": seen}, revision=1))

    found = points_of(glance(store).status)

    assert found == ["model", "aside", "none"]


def test_a_pause_is_said_with_the_command_that_ends_it(store: SqliteStore) -> None:
    ready(store, "live-1", "model")
    store.pauses.begin(Pause(part=Part.LEARNING, reason="odd", who="ann", at=1.0))

    summary = glance(store).summary

    assert (summary.on.answer, summary.on.sentence) == ("paused", "Paused: learning: odd (ann).")
    assert "`tau-live resume learning --reason" in summary.next[0]


def test_the_kill_switch_is_said_before_all_else(store: SqliteStore) -> None:
    Path(f"{store.path}.off").touch()

    summary = glance(store).summary

    assert (summary.on.state, summary.on.answer) == ("bad", "killed")
    assert "`tau-live unkill --reason" in summary.next[0]


def test_a_point_that_was_set_back_to_untrained_is_no_version_to_come(store: SqliteStore) -> None:
    ready(store, "live-1", "model")
    store.policies.put_in_service("model", 0, pinned=True, at=1.0)

    learning = glance(store).summary.learning

    assert (learning.state, learning.answer) == ("doubtful", "rolled back")


def test_a_name_in_a_command_is_quoted_for_the_shell(store: SqliteStore) -> None:
    ready(store, "live-1", "model")
    point = "a; rm -rf ~"
    store.trials.save(Trial(point=point, stopped="asked", exposure=0.0, revision=1))

    advice = " ".join(glance(store).summary.next)

    assert "`tau-live policy exposure 'a; rm -rf ~' 5% --reason" in advice
