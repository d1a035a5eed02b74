"""What tau-live does itself contradicts no seal: late decisions, retries, retention, restores."""

import sqlite3
from collections.abc import MutableMapping
from contextlib import closing
from pathlib import Path

import pytest

from tau_live.core.errors import StoreDamagedError
from tau_live.core.records import Amendment, AttemptStatus, RolloutConfig, RolloutStatus
from tau_live.store.sealing import SEALED, Finding
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import LIVE, attempt, begun, decision, queued, reward, update
from tests.writes import forget_old, writes


def _findings(store: SqliteStore) -> list[Finding]:
    return [*store.seals.changed_rows(SEALED), *store.seals.contradictions()]


def _ended(store: SqliteStore, rollout_id: str, status: RolloutStatus, *, at: float = 3.0) -> None:
    begun(store, rollout_id)
    writes(store).add_decision(decision(1, rollout_id))
    writes(store).add_reward(reward(1.0, rollout_id))
    writes(store).set_status(rollout_id, status, at=at)
    writes(store).mark_ready(rollout_id, total_reward=1.0)


def test_a_decision_that_comes_late_is_sound(store: SqliteStore) -> None:
    begun(store)
    writes(store).set_status(LIVE, RolloutStatus.SUCCEEDED, at=3.0)
    writes(store).mark_ready(LIVE, total_reward=1.0)
    before = _findings(store)
    writes(store).add_decision(decision(1, point="tools"))

    assert (before, _findings(store)) == ([], [])


def test_a_rollout_that_is_tried_again_is_sound(store: SqliteStore) -> None:
    _ended(store, LIVE, RolloutStatus.FAILED)
    with store.begin():
        writes(store).set_status(LIVE, RolloutStatus.REQUEUING, at=4.0)
        writes(store).set_status(LIVE, RolloutStatus.RUNNING, at=4.0)
        writes(store).begin_attempt(attempt(LIVE, 2))

    assert _findings(store) == []


def test_a_queued_rollout_that_is_queued_again_is_sound(store: SqliteStore) -> None:
    config = RolloutConfig(max_attempts=2, retry_on=(AttemptStatus.FAILED,))
    store.queue.enqueue(queued("job", config), at=1.0)
    store.queue.claim("worker", at=2.0)
    store.queue.finish("job", 1, AttemptStatus.FAILED, at=3.0)
    writes(store).mark_ready("job", total_reward=0.0)
    waiting = _findings(store)
    store.queue.claim("worker", at=4.0)

    assert (waiting, _findings(store)) == ([], [])


def test_what_retention_left_and_an_archive_brought_back_is_sound(
    store: SqliteStore, tmp_path: Path
) -> None:
    for number in range(6):
        status = (RolloutStatus.SUCCEEDED, RolloutStatus.FAILED)[number % 2]
        _ended(store, f"live-{number}", status, at=float(number))
    rows = list(store.export())
    store.policies.add_update(update(4), None)
    gone = forget_old(store, before=3.5, limit=100)
    left = _findings(store)
    again = SqliteStore.open(tmp_path / "again.sqlite")

    again.restore(rows)
    store.restore(rows)

    assert gone == 4
    assert (left, _findings(store), _findings(again)) == ([], [], [])
    again.close()


def test_numbers_of_which_no_rollout_is_left_are_sound(store: SqliteStore, tmp_path: Path) -> None:
    for number in range(40):
        _ended(store, f"live-{number}", RolloutStatus.SUCCEEDED, at=float(number))
    rows = [row for row in store.export() if row.get("rollout_id") == "live-39"]
    again = SqliteStore.open(tmp_path / "again.sqlite")
    again.restore(rows)

    for one in (store, again):
        one.policies.add_update(update(40), None)
        forget_old(one, before=99.0, limit=100)
        with closing(sqlite3.connect(one.path)) as db, db:
            db.execute("delete from updates")  # which know the last number as well

    for one in (store, again):
        assert one.retention.size().rollouts == 0
        assert [found.code for found in _findings(one)] == ["removed"]
    again.close()


@pytest.mark.parametrize("value", [2**63 - 1, None])
def test_a_numbering_at_its_end_or_removed_is_trouble_and_refuses_no_run(
    store: SqliteStore, value: int | None
) -> None:
    begun(store)
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("update sequences set value = ?", (value,)) if value else db.execute(
            "delete from sequences"
        )

    for give in (
        lambda: writes(store).mark_ready(LIVE, total_reward=1.0),
        store.policies.next_version,
    ):
        with pytest.raises(StoreDamagedError, match=r"its numbering '\w+' was edited or removed"):
            give()


@pytest.fixture
def sealed_as_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store whose rollouts an earlier version sealed, without status and metadata."""
    known = SEALED["rollouts"]
    assert isinstance(SEALED, MutableMapping)
    with monkeypatch.context() as earlier:
        earlier.setitem(SEALED, "rollouts", known._replace(columns=known.earlier))
        store = SqliteStore.open(path)
        _ended(store, LIVE, RolloutStatus.FAILED)
        store.close()
    return path


def _edited(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("update rollouts set status = 'succeeded'")


def test_what_an_earlier_version_sealed_is_sound(sealed_as_before: Path) -> None:
    store = SqliteStore.open(sealed_as_before)
    before = _findings(store)
    _edited(sealed_as_before)

    assert (before, _findings(store)) == ([], [])
    store.close()


def test_what_it_sealed_is_sealed_whole_once_it_changes(sealed_as_before: Path) -> None:
    store = SqliteStore.open(sealed_as_before)
    writes(store).amend_rollout(LIVE, Amendment(metadata={"dropped_events": 2}))
    before = _findings(store)
    _edited(sealed_as_before)

    [found] = _findings(store)

    assert before == []
    assert (found.code, found.what) == ("edited", f"rollout {LIVE}")
    store.close()
