"""The collector: rewards before, during and after a run, and waiting for them."""

import pytest

from tau_live.core import events as ev
from tau_live.core.records import Reward, Rollout, RolloutQuery
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredReward
from tau_live.record import collector as collecting
from tau_live.record.rewards import Rewarding
from tau_live.runtime.builtin_plugins import load_plugins
from tau_live.store.roles import Batch, Store
from tests.collecting import R, decision, end, start
from tests.streams import ByReward, collected, collector_of, event


@pytest.mark.parametrize("at", [0.0, 5.0, 99.0])
def test_a_reward_is_joined_before_during_and_after_the_run(store: Store, at: float) -> None:
    given = event(ev.Reward, at=at, value=0.5)
    stream: list[ev.Event] = sorted([start(), end(), given], key=lambda one: one.at)

    collected(store, stream)

    rollout = store.rollouts.rollout(R)
    assert (rollout.total_reward, rollout.ready_seq) == (0.5, 1)


def test_a_reward_by_the_rollouts_id_needs_no_run(store: Store) -> None:
    given = ev.Reward(host="cli", run_id="", at=2.0, rollout_id=R, value=1.0)

    collected(store, [given, start(), end()])

    assert store.rollouts.rollout(R).total_reward == 1.0
    assert store.rollouts.query(RolloutQuery()).total == 1


def test_a_later_reward_changes_the_total(store: Store) -> None:
    first = event(ev.Reward, at=2.0, value=0.5)
    second = event(ev.Reward, at=99.0, value=1.0)

    collected(store, [start(), first, end(), second])

    assert store.rollouts.rollout(R).total_reward == 1.0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_that_is_no_number_is_refused_and_counted(store: Store, value: float) -> None:
    collected(store, [start(), event(ev.Reward, at=2.0, value=value), end()])

    assert store.rewards.rewards(R) == []
    assert store.counters.counts() == {"refused_rewards": 1}


def test_a_decision_with_numbers_that_are_none_can_be_read_again(store: Store) -> None:
    nan = float("nan")
    broken = decision(
        2, propensity=nan, value=nan, probabilities=(nan, 1.0), latency_us=float("inf")
    )

    collected(store, [start(), broken])

    found = store.decisions.decisions(R)[0]
    assert (found.propensity, found.value, found.probabilities) == (None, None, ())


def test_a_batch_says_what_finished_and_what_became_ready(store: Store) -> None:
    collector = collector_of(store)
    given = event(ev.Reward, at=2.0, value=0.5)

    with store.begin():
        first = collector.apply([start(), end()])
        second = collector.apply([given])
        third = collector.apply([given, end()])

    assert [tuple(first), tuple(second), tuple(third)] == [(1, 0, 0), (0, 1, 0), (0, 0, 0)]


class Waiting(ByReward):
    """Lets rollouts without a reward wait until 20, and then takes 0 for it."""

    def refuses(self, reward: Reward) -> bool:
        return False

    def rejects(self, rollout: Rollout, *, batch: Batch) -> bool:
        return False

    def settle(self, rollout: Rollout, *, batch: Batch, now: float) -> bool:
        if now >= 20.0:
            return batch.mark_ready(rollout.rollout_id, total_reward=0.0)
        batch.await_reward(rollout.rollout_id, until=20.0)
        return False


def test_a_wait_that_is_over_is_settled(store: Store) -> None:
    collector = collecting.Collector(store, rewarding=Waiting(), owner=None)
    with store.begin():
        collector.apply([start(), end()])

    with store.begin():
        counts = [collector.expire(19.0), collector.expire(20.0), collector.expire(21.0)]

    assert counts == [0, 1, 0]
    assert store.rollouts.rollout(R).total_reward == 0.0


def test_an_odd_run_keeps_no_other_from_being_settled(store: Store) -> None:
    collector = collecting.Collector(store, rewarding=Waiting(), owner=None)
    with store.begin():
        collector.apply([start(), end()])
        collector.apply([start(run="other"), end(run="other")])
    store._connection.change("update rollouts set reason = 'nonsense' where seq = 1")

    expired = collector.expire(20.0)

    [other] = store.rollouts.query(RolloutQuery()).rollouts
    assert (expired, other.run_id, other.total_reward) == (2, "other", 0.0)


def test_a_run_that_is_tried_again_meanwhile_is_not_settled(store: Store) -> None:
    collector = collecting.Collector(store, rewarding=Waiting(), owner=None)
    with store.begin():
        collector.apply([start(), end(3, ev.Status.ERROR), start(4)])

    with store.begin():
        collector.expire(20.0)

    assert store.rollouts.rollout(R).ready_seq is None


DECLARED = Settings(rewards=(DeclaredReward(name="solved", range=(0.0, 1.0)),))


def test_a_name_that_is_not_declared_is_logged_once_with_the_nearest_and_counted(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    rewarding = Rewarding(DECLARED, load_plugins(DECLARED))
    given = [event(ev.Reward, at=2.0 + at, value=1.0, name="sovled", key=f"{at}") for at in (1, 2)]
    remark = event(ev.Reward, at=5.0, value=None, name="remark", comment=ev.Content(text="slow"))

    with store.begin():
        collecting.Collector(store, rewarding=rewarding, owner=None).apply(
            [start(), *given, given[1], remark, end()]
        )

    lines = [line.getMessage() for line in caplog.records]
    assert lines == ["event='reward_not_declared' name='sovled' value=1.0 nearest='solved'"]
    assert store.counters.counts() == {"duplicate_rewards": 1, "rewards_not_declared": 2}
    assert len(store.rewards.rewards(R)) == 3


def test_a_source_that_is_not_allowed_is_logged_once_with_the_nearest(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(reward_sources=("reviewer", "user:*"))
    rewarding = Rewarding(settings, load_plugins(settings))
    given = [event(ev.Reward, at=at, value=1.0, source="reveiwer") for at in (2.0, 3.0)]

    with store.begin():
        collecting.Collector(store, rewarding=rewarding, owner=None).apply([start(), *given])

    (line,) = [line.getMessage() for line in caplog.records]
    assert line == (
        "event='reward_source_refused' name='reward' source='reveiwer' nearest='reviewer'"
    )
    assert store.counters.counts() == {"rewards_refused_source": 2}


def test_a_value_outside_its_range_is_logged_once_and_counted(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    rewarding = Rewarding(DECLARED, load_plugins(DECLARED))
    given = [
        event(ev.Reward, at=2.0, value=value, name="solved", key=f"{value}")
        for value in (7.0, 8.0, 1.0)
    ]

    with store.begin():
        collecting.Collector(store, rewarding=rewarding, owner=None).apply([start(), *given])

    lines = [line.getMessage() for line in caplog.records]
    assert lines == ["event='reward_out_of_range' name='solved' value=7.0 range=[0.0, 1.0]"]
    assert store.counters.counts() == {"rewards_out_of_range": 2}


def test_rewards_before_their_run_are_kept_counted_and_logged_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = ev.Reward(host="cli", run_id="", at=2.0, rollout_id="live-typo", value=1.0)

    collected(store, [start(), event(ev.Reward, at=2.0, value=1.0), end(), wrong, wrong])

    (line,) = caplog.records
    assert line.getMessage() == (
        "event='reward_before_its_run' rollout_id='live-typo' name='reward' "
        "effect='it is kept until that run arrives; check the id if none will'"
    )
    assert store.counters.counts()["rewards_before_their_run"] == 2
    assert [one.value for one in store.rewards.rewards("live-typo")] == [1.0]
