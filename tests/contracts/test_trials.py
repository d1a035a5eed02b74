"""Who was assigned to which arm, and the trials that are made of it."""

from collections.abc import Callable
from threading import Barrier, Thread

import pytest
from msgspec.structs import replace

from tau_live.core.records import RolloutStatus, Trial
from tau_live.store.roles import Store
from tests.contracts.making import attempt, begun, decision, reward, rollout
from tests.writes import forget_old, writes

OpenStore = Callable[[], Store]
TRIAL = Trial(
    point="model",
    ladder=True,
    exposure=0.25,
    champion=3,
    previous=2,
    kept=7,
    stopped="complaints",
    watermark=5,
    since=4,
    watched=6,
    test=2,
    evidence={"reward_total": 0.1 + 0.2, "seen": 3.0},
    tally={"learner": 4.0},
    finding={"verdict": "wait", "difference": {"lower": -1.0}},
    changed_at=9.0,
    revision=1,
)


def decided(store: Store, rollout_id: str, *, share: float | None, arm: str = "learner") -> None:
    """Begin a rollout whose first decision at ``model`` is one of that arm."""
    begun(store, rollout_id)
    writes(store).add_decision(replace(decision(1, rollout_id), arm=arm, share=share))


def test_batches_of_one_transaction_keep_their_order_and_lose_nothing(store: Store) -> None:
    ids = ["live-1", "live-2", "live-3"]
    with store.begin():
        for id_ in ids:
            with store.batch([id_]) as batch:
                batch.begin_rollout(rollout(id_))
                batch.begin_attempt(attempt(id_))
                batch.add_decision(replace(decision(1, id_), arm="learner", share=0.5))
                batch.add_reward(reward(1.0, id_))
                batch.set_status(id_, RolloutStatus.SUCCEEDED, at=5.0)
                batch.mark_ready(id_, total_reward=1.0)
        assigned = store.trials.assignments("model", after=0, limit=9)

    ready = store.rewards.ready_rollouts("model", after=0, limit=9)
    assert [one.rollout.rollout_id for one in assigned] == ids
    assert [one.rollout.rollout_id for one in ready] == ids
    assert [one.rollout.ready_seq for one in ready] == [1, 2, 3]
    assert [one.rollout_id for one in store.rewards.after(0, limit=9)] == ids


def test_there_is_no_trial_at_first(store: Store) -> None:
    assert store.trials.trials() == {}
    assert store.trials.trial("model") == Trial(point="model")
    assert store.trials.points() == []
    assert store.trials.assignments("model", after=0, limit=9) == []
    assert store.trials.newest_reward() == 0


def test_a_trial_comes_back_as_it_was_to_the_last_bit(opened: OpenStore) -> None:
    assert opened().trials.save(TRIAL)

    found = opened().trials.trial("model")

    assert found == TRIAL
    assert opened().trials.trials() == {"model": TRIAL}


def test_a_trial_is_saved_only_over_the_revision_that_it_was_made_from(store: Store) -> None:
    store.trials.save(TRIAL)
    later = replace(TRIAL, watermark=8, revision=2)

    assert not store.trials.save(replace(TRIAL, watermark=7))
    assert not store.trials.save(replace(TRIAL, watermark=7, revision=3))
    assert store.trials.save(later)
    assert store.trials.trial("model") == later


def test_of_many_who_save_a_trial_at_once_one_does(opened: OpenStore) -> None:
    opened()
    start = Barrier(6)
    saved: list[bool] = []

    def save() -> None:
        trials = opened().trials
        start.wait(timeout=10)
        saved.append(trials.save(TRIAL))

    threads = [Thread(target=save) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(saved) == [False] * 5 + [True]


def test_rollouts_are_told_in_the_order_of_their_first_decisions(store: Store) -> None:
    for name in ("b", "a", "c"):
        begun(store, name)
    for name, arm, share in (("c", "learner", 0.5), ("a", "control", 0.5), ("b", "learner", 1.0)):
        writes(store).add_decision(replace(decision(1, name), arm=arm, share=share))

    found = store.trials.assignments("model", after=0, limit=9)

    assert [(one.rollout.rollout_id, one.arm, one.share) for one in found] == [
        ("c", "learner", 0.5),
        ("a", "control", 0.5),
        ("b", "learner", 1.0),
    ]
    assert store.trials.assignments("model", after=found[0].place, limit=1) == found[1:2]
    assert store.trials.points() == ["model"]
    assert store.trials.newest_place("model") == found[-1].place
    assert store.trials.delays("model", limit=9) == [(1.0, None)] * len(found)
    assert store.trials.newest_place("tools") == 0


def test_a_rollout_is_assigned_once_at_each_point(store: Store) -> None:
    decided(store, "a", share=0.5)
    writes(store).add_decision(replace(decision(2, "a"), arm="control", share=0.1))
    writes(store).add_decision(replace(decision(3, "a", point="tools"), share=0.2))

    found = store.trials.assignments("model", after=0, limit=9)

    assert [(one.arm, one.share) for one in found] == [("learner", 0.5)]
    assert store.trials.points() == ["model", "tools"]


@pytest.mark.parametrize(
    ("arm", "share"),
    [("learner", None), ("learner", 0.0), ("control", 1.0), ("other", 0.5), ("learner", 1.5)],
)
def test_what_nobody_could_have_assigned_is_no_assignment(
    store: Store, arm: str, share: float | None
) -> None:
    decided(store, "a", share=share, arm=arm)

    assert store.trials.points() == []
    assert store.decisions.decisions("a")[0].share == share


@pytest.mark.parametrize(
    ("arm", "chosen", "applied", "agreed"),
    [
        ("control", "small", "small", True),
        ("control", "small", "large", False),
        ("control", None, "large", None),
        ("learner", "small", "small", None),
    ],
)
def test_it_is_noted_whether_the_learner_agrees_with_the_host(
    store: Store, arm: str, chosen: str | None, applied: str, agreed: bool | None
) -> None:
    begun(store, "a")
    row = replace(decision(1, "a"), arm=arm, share=0.5, chosen=chosen, applied=applied)

    writes(store).add_decision(row)

    assert [one.agreed for one in store.trials.assignments("model", after=0, limit=9)] == [agreed]


def test_an_assignment_tells_until_when_a_reward_is_waited_for(store: Store) -> None:
    decided(store, "a", share=0.5)
    writes(store).set_status("a", RolloutStatus.SUCCEEDED, at=5.0)

    writes(store).await_reward("a", until=77.0)

    assert [one.until for one in store.trials.assignments("model", after=0, limit=9)] == [77.0]


def test_rewards_of_the_learners_rollouts_are_told_in_their_order(store: Store) -> None:
    for name, arm in (("a", "learner"), ("b", "control"), ("c", "learner")):
        decided(store, name, share=0.5, arm=arm)
    for name in ("c", "b", "a"):
        writes(store).add_reward(reward(1.0, name))

    found = store.trials.rewards_after("model", after=0, limit=9)

    assert [rollout_id for _, rollout_id in found] == ["c", "a"]
    assert store.trials.rewards_after("model", after=found[0][0], limit=9) == found[1:]
    assert store.trials.newest_reward() == found[-1][0]


def test_the_place_of_a_reward_that_was_forgotten_is_not_given_again(store: Store) -> None:
    writes(store).begin_rollout(rollout("a", RolloutStatus.SUCCEEDED, started_at=1.0, ended_at=2.0))
    writes(store).add_reward(reward(1.0, "a"))
    before = store.trials.newest_reward()
    forget_old(store, before=99.0, limit=9)

    writes(store).add_reward(reward(1.0, "b"))

    assert store.trials.newest_reward() > before


def test_what_a_trial_has_not_counted_is_not_forgotten(store: Store) -> None:
    decided(store, "a", share=0.5)
    writes(store).set_status("a", RolloutStatus.SUCCEEDED, at=5.0)
    place = store.trials.assignments("model", after=0, limit=1)[0].place

    kept = forget_old(store, before=99.0, limit=9)
    store.trials.save(Trial(point="model", watermark=place, revision=1))

    assert kept == 0
    assert forget_old(store, before=99.0, limit=9) == 1
    assert store.trials.points() == []
