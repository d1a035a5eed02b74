"""A learner that is killed between updates, skipped and undone ones included, loses nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tau_live.core.records import Update
from tau_live.core.settings import Settings
from tau_live.decisions import checkpoints
from tau_live.learn.learner import Learner
from tau_live.rl.config import PPOConfig
from tau_live.rl.state import LearnerState
from tau_live.store.sqlite.store import SqliteStore
from tests.live.running import exported, opened
from tests.live.test_poison import GOOD, add, worth
from tests.rl.digests import digest_of
from tests.rl.rows import crossed

pytestmark = pytest.mark.slow

UNDOES = PPOConfig(least_decisions=0.0, max_kl=-1.0)
"""Takes back every update in which PPO took a step."""


def learner_of(store: SqliteStore, number: int) -> Learner:
    """Return a learner that undoes what it learned from rollouts 32 to 47."""
    ppo = UNDOES if 32 <= number < 48 else PPOConfig()
    return Learner(store, Settings(store=store.path), holder="test", ppo=ppo)


def lived(path: Path, learner: Callable[[SqliteStore, int], Learner]) -> list[Update]:
    """Add 80 rollouts, of which the first 16 earn the same; return all updates in their order."""
    for number in range(80):
        with opened(path) as store:
            add(store, number, total=1.0 if number < 16 else worth(number))
            learner(store, number).run_next(now=float(number))
    with opened(path) as store:
        return store.policies.updates(point="model")[::-1]


def uninterrupted(path: Path) -> list[Update]:
    """Return the same of learners that keep what they have in memory."""
    with opened(path) as store:
        kept = {False: learner_of(store, 0), True: learner_of(store, 32)}
        return lived(path, lambda _, number: kept[32 <= number < 48])


def newest(path: Path) -> LearnerState:
    """Return the state of the newest version."""
    with opened(path) as store:
        row = store.policies.versions("model")[-1]
        checkpoint = checkpoints.load(store.checkpoints, row.file, sha256=row.sha256)
    return LearnerState.from_arrays(checkpoint.arrays)


def test_resumed_after_every_update_equals_uninterrupted_though_some_were_skipped_or_undone(
    tmp_path: Path,
) -> None:
    one, two = tmp_path / "one" / "s.sqlite", tmp_path / "two" / "s.sqlite"

    whole, resumed = uninterrupted(one), lived(two, learner_of)

    reasons = [row.skipped_reason for row in whole]
    assert reasons[:2] == ["fewer than two distinct rewards"] * 2
    assert reasons[4:6] == ["diverged, undone"] * 2
    assert [row.executed for row in resumed].count(True) == 6
    assert exported(one) == exported(two)
    assert digest_of(newest(one)) == digest_of(newest(two))


def test_what_a_skipped_or_undone_update_looked_at_is_counted_once_by_the_next(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.sqlite"

    rows = lived(path, learner_of)

    state = newest(path)
    assert [row.trajectories for row in rows] == [8, 16, 24, 8, 8, 16, 24, 8, 8, 8]
    assert (state.counts.rollouts, state.counts.decisions) == (80, 80)
    assert state.action_fit.samples == state.value_fit.samples == 80


def caught_up(path: Path, *, resumed: bool) -> list[Update]:
    """Learn from 300 rollouts that wait already, by one learner or by a new one each time."""
    with opened(path) as store, store.begin():
        for number in range(300):
            add(store, number, total=worth(number))
    with opened(path) as store:
        kept = learner_of(store, 0)
        while (learner_of(store, 0) if resumed else kept).run_next(now=1.0):
            pass
        return store.policies.updates(point="model")[::-1]


def test_resumed_after_every_update_equals_uninterrupted_where_the_learner_was_behind(
    tmp_path: Path,
) -> None:
    one, two = tmp_path / "one" / "s.sqlite", tmp_path / "two" / "s.sqlite"

    whole, resumed = caught_up(one, resumed=False), caught_up(two, resumed=True)

    assert [(row.first_ready, row.last_ready) for row in whole] == [(1, 256), (257, 300)]
    assert len(resumed) == len(whole)
    assert exported(one) == exported(two)
    assert digest_of(newest(one)) == digest_of(newest(two))


def doubt_of(path: Path, option: int) -> float:
    """Return how unsure the newest version is of an option."""
    policy = newest(path).policy
    pairs = crossed(GOOD, None, policy.scale, cross_width=policy.config.cross_width)
    return float(policy.base.estimates(pairs).doubts[option])


def changed(store: SqliteStore, path: Path, *, before: float, after: float) -> Update:
    """Return the update that finds an option changed, which is undone.

    Args:
        store: The store.
        path: Its path.
        before: What the option is worth at first.
        after: What it is worth from some time on.
    """
    number = 0
    while not store.monitors.monitor("model").alarms:
        value, ppo = (before, PPOConfig()) if number < 160 else (after, UNDOES)
        add(store, number, total=0.1 * (number % 3) + number % 2 * value)
        Learner(store, Settings(store=path), holder="test", ppo=ppo).run_next(now=1.0)
        number += 1
    undone = store.policies.updates(point="model")[0]
    for more in range(number, number + 8):
        add(store, more, total=0.1 * (more % 3) + more % 2 * after)
    return undone


def test_an_option_that_became_worse_in_an_update_that_was_undone_is_doubted_by_the_next(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.sqlite"
    with opened(path) as store:
        undone = changed(store, path, before=2.0, after=0.0)
        waiting, before = store.monitors.monitor("model"), doubt_of(path, 1)

        learned = Learner(store, Settings(store=path), holder="test").run_next(now=2.0)

        assert undone.skipped_reason == "diverged, undone"
        assert learned is not None
        assert learned.update.executed
        assert doubt_of(path, 1) > 2.0 * before
        assert waiting.numbers["doubted"] == ["large"]
        assert store.monitors.monitor("model").numbers["doubted"] == []


def test_an_option_that_became_better_in_an_update_that_was_undone_lets_recent_evidence_decide(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.sqlite"
    with opened(path) as store:
        undone = changed(store, path, before=0.0, after=2.0)
        waiting, before = store.monitors.monitor("model"), newest(path).recency

        learned = Learner(store, Settings(store=path), holder="test").run_next(now=2.0)

        assert undone.skipped_reason == "diverged, undone"
        assert [alarm["direction"] for alarm in waiting.alarms] == ["better"]
        assert learned is not None
        assert learned.update.executed
        assert (before.serves, newest(path).recency.serves) == (False, True)
        assert waiting.numbers["improved"]
        assert not store.monitors.monitor("model").numbers["improved"]
