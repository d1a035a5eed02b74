"""Pruner step by step while a host runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tau_live.core.records import Amendment, RolloutStatus
from tau_live.core.settings import Settings
from tau_live.record.archive import (
    IDLE_STEP_MAX,
    LOOKS_PER_DELETION,
    PACE_S,
    REST_S,
    STEP_MAX,
    STEP_MIN,
    Pruner,
    excess,
    limits_of,
)
from tau_live.store.retention import Limits
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import begun, ready, reward
from tests.writes import writes

NOW = 1000.0


class Watch:
    """A clock that goes only when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(tmp_path / "store.sqlite")
    yield opened
    opened.close()


def fill(store: SqliteStore, count: int, *, at: float = 1.0, unlearned: int = 0) -> None:
    with store.begin():
        for n in range(unlearned):
            ready(store, f"unlearned-{n}", "model")
        for n in range(count):
            begun(store, f"live-{n}")
            writes(store).amend_rollout(f"live-{n}", Amendment(metadata={"text": "x" * 2000}))
            writes(store).set_status(f"live-{n}", RolloutStatus.FAILED, at=at + n)


def walked(forgetting: Pruner, store: SqliteStore, watch: Watch, *, seconds: float = 60.0) -> None:
    until = watch.now + seconds
    while watch.now < until:
        forgetting.step(store.retention, now=NOW)
        watch.now += PACE_S


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        pytest.param(Limits(age_s=NOW - 51.0), 50, id="age"),
        pytest.param(Limits(rollouts=30), 30, id="number"),
        pytest.param(Limits(rollouts=0), 0, id="none"),
        pytest.param(Limits(rollouts=30, age_s=NOW - 51.0), 30, id="the narrower counts"),
        pytest.param(Limits(), 100, id="no limit"),
    ],
)
def test_it_goes_as_far_as_the_limits(store: SqliteStore, limits: Limits, kept: int) -> None:
    fill(store, 100)
    watch = Watch()
    forgetting = Pruner(limits, monotonic=watch, processor=watch)

    walked(forgetting, store, watch)

    assert store.retention.size().rollouts == kept
    assert forgetting.forgotten == 100 - kept


@pytest.mark.slow
def test_it_goes_as_far_as_the_size(store: SqliteStore) -> None:
    fill(store, 600)
    before = store.retention.size().used_bytes
    watch = Watch()

    walked(Pruner(Limits(used_bytes=before / 2), monotonic=watch), store, watch)

    size = store.retention.size()
    assert before / 2 * 0.8 < size.used_bytes <= before / 2
    assert size.free_bytes <= max(1_000_000, (size.used_bytes + size.free_bytes) / 8)


def test_what_nobody_learned_from_is_passed_over_and_kept(store: SqliteStore) -> None:
    fill(store, 20, at=10.0, unlearned=STEP_MIN * LOOKS_PER_DELETION + 9)
    watch = Watch()

    walked(Pruner(Limits(rollouts=5), monotonic=watch), store, watch)

    found = excess(store.retention, Limits(rollouts=5), now=NOW)
    assert store.retention.size().rollouts == STEP_MIN * LOOKS_PER_DELETION + 9
    assert found.over == ["rollouts"]
    assert str(found) == "beyond rollouts: of the 41 oldest 41 not learned from yet"


def test_who_writes_much_forgets_as_much_at_once(store: SqliteStore) -> None:
    fill(store, 100)
    watch = Watch()
    each = iter(n * 0.001 for n in range(100_000))  # of the processor, each time it is looked at
    forgetting = Pruner(Limits(rollouts=0), monotonic=watch, processor=lambda: next(each))

    forgetting.steps(store.retention, now=NOW, written_s=0.0)
    once = forgetting.forgotten
    watch.now += 1.0
    forgetting.steps(store.retention, now=NOW, written_s=10.0)

    assert (once, forgetting.forgotten) == (STEP_MIN, 100)


@pytest.mark.slow
def test_looking_at_much_and_forgetting_nothing_makes_no_step_long(store: SqliteStore) -> None:
    fill(store, 20, at=10.0, unlearned=IDLE_STEP_MAX * LOOKS_PER_DELETION * 9)
    watch = Watch()
    forgetting = Pruner(Limits(rollouts=5), monotonic=watch, processor=watch)
    most = 0

    for _ in range(60):
        before = forgetting.forgotten
        forgetting.step(store.retention, now=NOW)
        most = max(most, forgetting.forgotten - before)
        watch.now += REST_S

    assert 0 < most <= IDLE_STEP_MAX


def test_a_step_that_takes_long_is_followed_by_a_smaller_one(store: SqliteStore) -> None:
    fill(store, 2 * STEP_MAX)
    slow, watch = iter(n * 0.1 for n in range(100_000)), Watch()
    forgetting = Pruner(Limits(rollouts=0), processor=lambda: next(slow), monotonic=watch)

    gone = []
    for _ in range(12):
        was = forgetting.forgotten
        watch.now += 60.0
        forgetting.step(store.retention, now=NOW)
        gone.append(forgetting.forgotten - was)

    assert set(gone) == {STEP_MIN}


def test_a_step_that_takes_no_time_is_followed_by_a_larger_one(store: SqliteStore) -> None:
    fill(store, 3 * STEP_MIN)
    watch = Watch()
    forgetting = Pruner(Limits(rollouts=0), monotonic=watch, processor=watch)

    forgetting.step(store.retention, now=NOW)
    first = forgetting.forgotten
    watch.now += PACE_S
    forgetting.step(store.retention, now=NOW)

    assert (first, forgetting.forgotten) == (STEP_MIN, 3 * STEP_MIN)


def test_between_steps_it_rests(store: SqliteStore) -> None:
    fill(store, 100)
    watch = Watch()
    forgetting = Pruner(Limits(rollouts=0), monotonic=watch, processor=watch)

    done = [forgetting.step(store.retention, now=NOW) for _ in range(5)]
    watch.now += PACE_S
    again = forgetting.step(store.retention, now=NOW)

    assert (done, again) == ([True, False, False, False, False], True)


def test_where_there_is_nothing_to_do_it_rests_longer(store: SqliteStore) -> None:
    watch = Watch()
    forgetting = Pruner(Limits(rollouts=5), monotonic=watch)
    forgetting.step(store.retention, now=NOW)
    fill(store, 10)

    watch.now += REST_S / 2
    early = forgetting.step(store.retention, now=NOW)
    watch.now += REST_S
    late = [forgetting.step(store.retention, now=NOW)]
    watch.now += REST_S
    late.append(forgetting.step(store.retention, now=NOW))

    assert early is False
    assert any(late)


def test_rewards_of_what_never_came_go_with_those_of_their_age(store: SqliteStore) -> None:
    with store.begin():
        for n in range(50):
            writes(store).add_reward(reward(1.0, f"never-{n}", at=float(n)))
    watch = Watch()

    walked(Pruner(Limits(age_s=NOW - 40.0), monotonic=watch), store, watch)

    assert [n for n in range(50) if store.rewards.rewards(f"never-{n}")] == list(range(40, 50))


def test_the_settings_are_the_limits(tmp_path: Path) -> None:
    settings = Settings(retention_days=2.0, retention_rollouts=7, retention_mb=0.5)

    limits = limits_of(settings)

    assert limits == Limits(age_s=172_800.0, rollouts=7, used_bytes=500_000.0)
    assert not limits_of(Settings())


def test_the_log_is_emptied_when_nothing_is_left_to_forget(
    store: SqliteStore, tmp_path: Path
) -> None:
    log = tmp_path / "store.sqlite-wal"
    fill(store, 50)
    watch = Watch()
    forgetting = Pruner(Limits(rollouts=9), monotonic=watch)

    walked(forgetting, store, watch, seconds=10.0)
    first = log.stat().st_size
    begun(store, "live-more")
    writes(store).set_status("live-more", RolloutStatus.FAILED, at=500.0)
    walked(forgetting, store, watch, seconds=10.0)
    soon = log.stat().st_size
    walked(forgetting, store, watch, seconds=40.0)

    assert (first, log.stat().st_size) == (0, 0)
    assert soon > 0
