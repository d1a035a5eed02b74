"""What another process does at the worst moment changes nothing that is acknowledged."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tau_live.core.errors import StoreUnavailableError
from tau_live.core.gate_keeper import GateKeeper, hold_stored
from tau_live.core.settings import Settings
from tau_live.decisions.policies import check_policy
from tau_live.learn import learner as unfinished
from tau_live.learn.learner import Learner
from tau_live.operate.trials import Order, roll_back
from tau_live.store.checkpoints import name_of
from tau_live.store.files import policies_of
from tau_live.store.sqlite.store import SqliteStore
from tests.faults import arming
from tests.faults.whole import orphans, problems
from tests.live.test_poison import add, worth

SLOW, OTHER = "elsewhere:1:2", "elsewhere:2:2"
"""Processes of another machine: nobody here knows whether they live."""


@pytest.fixture
def settings(path: Path) -> Settings:
    return Settings(store=path, keep_checkpoints=2)


@contextmanager
def learner(settings: Settings, holder: str, *, at: float = 0.0) -> Iterator[Learner]:
    """Open a learner of its own, whose clock stands still."""
    with closing(SqliteStore.open(settings.store, busy_timeout_s=0.05)) as store:
        store.clock = lambda: at
        yield Learner(store, settings, holder=holder)


def due(store: SqliteStore, *, first: int = 0, point: str = "model") -> None:
    """Make an update due."""
    for number in range(first, first + 8):
        add(store, number, total=worth(number), point=point)


def learn_later(settings: Settings) -> None:
    """Let another learner do the update, when the lease of the first has run out."""
    with learner(settings, OTHER, at=1e6) as other:
        assert other.run_next(now=2.0) is not None


def learn_later_and_differently(settings: Settings) -> None:
    """Let it do so with another seed, so that it makes another policy."""
    learn_later(replace(settings, seed=7))


def sweep_later(settings: Settings) -> None:
    """Let another process start then, which deletes what was left behind."""
    with learner(settings, OTHER, at=1e6) as other:
        assert len(other.sweep()) == 1


@pytest.mark.parametrize(
    ("point", "meanwhile", "updates"),
    [
        pytest.param("update.meant", learn_later, 1, id="learned before the file was there"),
        pytest.param("update.saved", learn_later, 1, id="learned the same"),
        pytest.param("update.saved", learn_later_and_differently, 1, id="learned another policy"),
        pytest.param("update.saved", sweep_later, 0, id="swept"),
    ],
)
def test_a_learner_that_was_stopped_for_longer_than_its_lease_changes_nothing(
    settings: Settings,
    store: SqliteStore,
    point: str,
    meanwhile: Callable[[Settings], None],
    updates: int,
) -> None:
    due(store)

    with learner(settings, SLOW) as slow:
        with arming.arm(point, lambda: meanwhile(settings)):
            found = slow.run_next(now=1.0)
        known = [row.sha256 for row in store.policies.versions()]
        slow.sweep()

    assert found is None
    assert len(known) == updates
    assert problems(settings) == []
    assert orphans(settings) == []


def test_two_learners_make_versions_of_two_points_at_once(
    settings: Settings, store: SqliteStore
) -> None:
    due(store)
    due(store, first=8, point="tools")

    half_written = policies_of(settings.store) / ".000000001-0123456789abcdef.npz.99999999-1.part"

    def learn_too() -> None:
        half_written.touch()  # as if by a process of another container
        with learner(settings, OTHER) as other:
            found = other.run_next(now=2.0)
            assert found is not None
            assert (found.update.point, found.update.version) == ("tools", 1)
            assert other.run_next(now=2.0) is None  # the other point is in hand
            assert other.sweep() == []
        assert half_written.exists()

    with learner(settings, SLOW) as slow, arming.arm("update.saved", learn_too):
        found = slow.run_next(now=1.0)

    assert found is not None
    assert (found.update.point, found.update.version) == ("model", 2)
    assert {row.point: row.version for row in store.policies.versions()} == {"tools": 1, "model": 2}
    assert store.leases.all("") == []
    assert problems(settings) == []
    assert orphans(settings) == []


def test_what_was_swept_away_is_learned_the_next_time(
    settings: Settings, store: SqliteStore
) -> None:
    due(store)

    with learner(settings, SLOW) as slow:
        with arming.arm("update.saved", lambda: sweep_later(settings)):
            assert slow.run_next(now=1.0) is None
        found = slow.run_next(now=2.0)

    assert found is not None
    assert found.update.version == 1
    assert problems(settings) == []


def test_whoever_makes_the_same_again_takes_over_the_note_of_who_died_at_it(
    settings: Settings, store: SqliteStore
) -> None:
    class DiedError(BaseException):
        pass

    def die() -> None:
        raise DiedError

    due(store)
    with learner(settings, "dead") as dead, arming.arm("update.saved", die):
        with pytest.raises(DiedError):
            dead.run_next(now=1.0)
    left = [path.name for path in policies_of(settings.store).iterdir()]

    with learner(settings, "next") as following:
        found = following.run_next(now=1.0)

    assert found is not None
    assert [store.policies.version(1).file] == left
    assert not store.leases.all(unfinished.NOTE)
    assert problems(settings) == []


@pytest.mark.slow
def test_nobody_goes_back_to_a_version_whose_file_is_being_deleted(
    settings: Settings, store: SqliteStore
) -> None:
    with learner(replace(settings, keep_checkpoints=9), "test") as learning:
        for number in range(3):
            due(store, first=8 * number)
            learning.run_next(now=float(number))
    refused: list[Exception] = []

    def go_back() -> None:
        order = Order("policy_rollback", "model", "because", "anna", 5.0)
        with closing(SqliteStore.open(settings.store, busy_timeout_s=0.05)) as mine:
            try:
                roll_back(mine, settings, order, pin=True)
            except StoreUnavailableError as error:
                refused.append(error)

    due(store, first=24)
    with learner(settings, "test") as learning, arming.arm("policies.deleted", go_back):
        learning.run_next(now=9.0)

    assert len(refused) == 1
    assert problems(settings) == []


def test_an_update_has_not_failed_because_the_store_was_locked_when_it_was_stored(
    settings: Settings, store: SqliteStore
) -> None:
    due(store)

    with learner(settings, "test") as learning, closing(SqliteStore.open(settings.store)) as other:
        lock = other.begin()
        with arming.arm("update.stored", lock.__enter__):
            found = learning.run_next(now=1.0)
        lock.__exit__(None, None, None)

    assert found is not None
    assert found.serves
    assert problems(settings) == []


def test_an_update_has_not_failed_because_no_checkpoint_could_be_pruned(
    settings: Settings, store: SqliteStore
) -> None:
    folder = policies_of(settings.store)
    aside = folder.with_name("aside")
    due(store)

    def replace_by_a_loop() -> None:
        folder.rename(aside)
        folder.symlink_to(folder)

    with learner(settings, "test") as learning, arming.arm("update.stored", replace_by_a_loop):
        found = learning.run_next(now=1.0)
    folder.unlink()
    aside.rename(folder)

    assert found is not None
    assert found.serves
    assert problems(settings) == []


def test_files_that_no_note_names_are_left_alone(settings: Settings, store: SqliteStore) -> None:
    due(store)
    with learner(settings, "test") as learning:
        learning.run_next(now=1.0)
        folder = policies_of(settings.store)
        kept = name_of(9, "ab" * 32)
        (folder / kept).touch()
        unfinished.add_note(store, "../store.sqlite", "dead:0:0", ttl_s=1.0)
        unfinished.add_note(store, store.policies.version(1).file, "dead:0:0", ttl_s=1.0)

        swept = learning.sweep()

    assert swept == []
    assert (folder / kept).exists()
    assert settings.store.exists()
    assert not store.leases.all(unfinished.NOTE)
    check_policy(store.checkpoints, store.policies.version(1))


def test_a_hold_is_stored_with_its_update_and_written_down_once(
    settings: Settings, store: SqliteStore
) -> None:
    keeper = GateKeeper(limit=3, who="me")
    keeper.refresh(store.gate)

    with store.begin():
        stored = hold_stored(store.gate, limit=3, reason="x", detail="y", who="me", at=5.0)
        again = hold_stored(store.gate, limit=3, reason="x", detail="y", who="me", at=6.0)
    keeper.hold("x", at=5.0, detail="y")
    keeper.refresh(store.gate)

    assert (stored, again) == (True, False)
    assert [entry.event for entry in store.gate.log()] == ["hold"]
    assert not keeper.has_unsaved
    assert not keeper.passes
