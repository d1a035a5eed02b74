"""Rewards: whenever they come, in whatever order, as often as they like."""

from itertools import permutations

import pytest
from msgspec.structs import replace

from tau_live.core.errors import UnknownError
from tau_live.core.records import Reward, RolloutStatus
from tau_live.learn.learner import known_at
from tau_live.store.roles import Store
from tests.contracts.making import LIVE, begun, decision, ready, reward, rollout
from tests.writes import forget_old, writes


@pytest.mark.parametrize(
    "given",
    [
        reward(),
        reward(None),
        reward(0.0, decision_id="live-1:attempt-1:decision-1"),
        replace(reward(True), label="true", comment="it was \u2603", key="k"),
    ],
    ids=["plain", "comment", "decision", "full"],
)
def test_a_reward_comes_back_as_it_was_given(store: Store, given: Reward) -> None:
    begun(store)

    answer = writes(store).add_reward(given)

    [found] = store.rewards.rewards(LIVE)
    assert answer == "new"
    assert replace(found, seq=0) == given
    assert found.seq > 0


def test_a_reward_may_come_before_its_rollout(store: Store) -> None:
    answer = writes(store).add_reward(reward(0.5))

    begun(store)

    assert answer == "new"
    assert [r.value for r in store.rewards.rewards(LIVE)] == [0.5]


@pytest.mark.parametrize(
    ("first", "second", "answer", "value", "conflicts"),
    [
        pytest.param(reward(1.0), reward(1.0), "same", 1.0, {}, id="the same again"),
        pytest.param(reward(1.0, at=3.0), reward(1.0, at=9.0), "same", 1.0, {}, id="same, later"),
        pytest.param(reward(1.0, at=3.0), reward(0.0, at=9.0), "replaced", 0.0, 1, id="later"),
        pytest.param(reward(1.0, at=3.0), reward(0.0, at=3.0), "replaced", 0.0, 1, id="tie"),
        pytest.param(reward(1.0, at=3.0), reward(0.0, at=2.0), "older", 1.0, 1, id="earlier"),
        pytest.param(reward(None, at=3.0), reward(0.0, at=4.0), "replaced", 0.0, 1, id="unknown"),
        pytest.param(
            reward(0.0, at=3.0), reward(None, at=4.0), "replaced", None, 1, id="taken back"
        ),
    ],
)
def test_one_reward_may_be_given_twice(
    store: Store,
    *,
    first: Reward,
    second: Reward,
    answer: str,
    value: float | None,
    conflicts: int | dict[str, int],
) -> None:
    writes(store).add_reward(first)

    given = writes(store).add_reward(second)

    expected = {"conflicting_rewards": conflicts} if isinstance(conflicts, int) else conflicts
    assert given == answer
    assert [r.value for r in store.rewards.rewards(LIVE)] == [value]
    assert store.counters.counts() == expected


@pytest.mark.parametrize(
    "order", list(permutations([(0.0, 1.0), (1.0, 2.0), (0.0, 3.0), (0.5, 2.5)]))
)
def test_the_latest_value_is_kept_whatever_the_order_of_arrival(
    store: Store, order: tuple[tuple[float, float], ...]
) -> None:
    for value, at in order:
        writes(store).add_reward(reward(value, at=at))

    assert [(r.value, r.at) for r in store.rewards.rewards(LIVE)] == [(0.0, 3.0)]


def test_target_name_source_and_key_tell_rewards_apart(store: Store) -> None:
    different = [
        reward(),
        reward(rollout_id="live-2"),
        reward(decision_id="live-1:attempt-1:decision-1"),
        reward(name="fast"),
        reward(source="judge"),
        reward(key="second"),
    ]

    answers = [writes(store).add_reward(r) for r in different]

    assert answers == ["new"] * 6
    assert len(store.rewards.rewards("live-1")) == 5


def test_rewards_are_in_the_order_of_arrival(store: Store) -> None:
    for name, at in [("z", 9.0), ("a", 1.0), ("m", 5.0)]:
        writes(store).add_reward(reward(name=name, at=at))

    assert [r.name for r in store.rewards.rewards(LIVE)] == ["z", "a", "m"]


def test_a_reward_that_was_corrected_has_arrived_anew_and_the_same_again_has_not(
    store: Store,
) -> None:
    for name, at in [("z", 9.0), ("a", 1.0), ("m", 5.0)]:
        writes(store).add_reward(reward(name=name, at=at))
    newest = store.trials.newest_reward()

    writes(store).add_reward(reward(name="a", at=11.0))
    writes(store).add_reward(reward(0.0, name="z", at=8.0))
    same = store.trials.newest_reward()
    writes(store).add_reward(reward(0.0, name="z", at=10.0))

    assert [r.name for r in store.rewards.rewards(LIVE)] == ["a", "m", "z"]
    assert same == newest < store.trials.newest_reward()


def test_what_is_ready_has_its_place_once_and_the_newest_total(store: Store) -> None:
    begun(store)

    first = writes(store).mark_ready(LIVE, total_reward=1.0)
    again = writes(store).mark_ready(LIVE, total_reward=0.5)

    found = store.rollouts.rollout(LIVE)
    assert (first, again) == (True, False)
    assert (found.ready_seq, found.total_reward) == (1, 0.5)


def test_places_are_given_in_order_without_gaps(store: Store) -> None:
    for number in (3, 1, 2):
        begun(store, f"live-{number}")
        writes(store).mark_ready(f"live-{number}", total_reward=1.0)
        writes(store).mark_ready(f"live-{number}", total_reward=2.0)

    places = {n: store.rollouts.rollout(f"live-{n}").ready_seq for n in (3, 1, 2)}

    assert places == {3: 1, 1: 2, 2: 3}


def test_a_place_is_never_given_again_even_when_its_rollout_is_forgotten(store: Store) -> None:
    ready(store, "live-1")
    forget_old(store, before=100.0, limit=10)
    ready(store, "live-2")

    assert store.rollouts.find_rollout("live-1") is None
    assert store.rollouts.rollout("live-2").ready_seq == 2
    assert store.rewards.became_ready() == 2


def test_only_what_is_stored_can_be_ready_or_wait(store: Store) -> None:
    with pytest.raises(UnknownError, match="rollout 'live-1' not found"):
        writes(store).mark_ready(LIVE, total_reward=1.0)
    with pytest.raises(UnknownError, match="rollout 'live-1' not found"):
        writes(store).await_reward(LIVE, until=9.0)


def test_those_whose_wait_is_over_are_told_once_and_oldest_first(store: Store) -> None:
    for number, until in [(1, 30.0), (2, 10.0), (3, 20.0), (4, 99.0)]:
        begun(store, f"live-{number}")
        writes(store).await_reward(f"live-{number}", until=until)

    before = store.rewards.waiting()
    told = [store.rewards.overdue(30.0, limit=2), store.rewards.overdue(30.0, limit=2)]

    assert before == 4
    assert told == [["live-2", "live-3"], ["live-1"]]
    assert store.rewards.overdue(30.0, limit=2) == []
    assert store.rewards.waiting() == 1


def test_a_wait_can_be_prolonged(store: Store) -> None:
    begun(store)
    writes(store).await_reward(LIVE, until=10.0)

    writes(store).await_reward(LIVE, until=20.0)

    assert store.rewards.overdue(15.0, limit=9) == []
    assert store.rewards.waiting() == 1


def test_what_is_ready_waits_no_longer(store: Store) -> None:
    begun(store)
    writes(store).await_reward(LIVE, until=10.0)

    writes(store).mark_ready(LIVE, total_reward=1.0)
    writes(store).await_reward(LIVE, until=10.0)

    assert store.rewards.waiting() == 0


def test_points_are_counted_behind_a_watermark(store: Store) -> None:
    ready(store, "live-1", "model", "tools", "model")
    ready(store, "live-2", "tools")
    ready(store, "live-3")
    ready(store, "live-4", "model")
    begun(store, "live-5")
    writes(store).add_decision(decision(1, "live-5"))

    counts = {
        (point, after): store.rewards.ready_count(point, after=after)
        for point in ("model", "tools", "", "other")
        for after in (0, 1, 3, 4)
    }

    assert store.rewards.ready_points() == ["model", "tools"]
    assert {at: n for at, n in counts.items() if n} == {
        ("model", 0): 2,
        ("model", 1): 1,
        ("model", 3): 1,
        ("tools", 0): 2,
        ("tools", 1): 1,
        ("", 0): 1,
        ("", 1): 1,
    }


def test_there_are_no_points_in_an_empty_store(store: Store) -> None:
    assert store.rewards.ready_points() == []
    assert store.rewards.ready_count("model", after=0) == 0
    assert store.rewards.ready_rollouts("model", after=0, limit=9) == []


def test_fault_14_a_page_of_ready_rollouts_is_read_with_all_that_is_theirs(store: Store) -> None:
    ready(store, "live-1", "model", "tools", total_reward=0.25)
    writes(store).add_reward(reward(0.25, "live-1"))
    writes(store).add_reward(reward(0.5, "live-1", name="fast"))
    writes(store).add_reward(reward(9.0, "live-other"))
    ready(store, "live-2", "tools")
    ready(store, "live-3", "model")

    found = store.rewards.ready_rollouts("model", after=0, limit=9)

    assert [learnable.rollout for learnable in found] == [
        store.rollouts.rollout("live-1"),
        store.rollouts.rollout("live-3"),
    ]
    assert [learnable.decisions for learnable in found] == [
        [
            replace(decision, context={}, features={})  # which are encoded
            for decision in store.decisions.decisions(rollout_id)
        ]
        for rollout_id in ("live-1", "live-3")
    ]
    assert [learnable.rewards for learnable in found] == [store.rewards.rewards("live-1"), []]


@pytest.mark.parametrize(
    ("after", "limit", "newest", "upto", "expected"),
    [
        (0, 9, False, None, [1, 2, 3, 4, 5]),
        (2, 9, False, None, [3, 4, 5]),
        (0, 2, False, None, [1, 2]),
        (0, 2, True, None, [4, 5]),
        (1, 9, False, 4, [2, 3, 4]),
        (0, 2, True, 4, [3, 4]),
        (5, 9, False, None, []),
        (0, 0, False, None, []),
    ],
)
def test_ready_rollouts_come_by_their_places(
    store: Store, *, after: int, limit: int, newest: bool, upto: int | None, expected: list[int]
) -> None:
    for number in (5, 4, 3, 2, 1):
        ready(store, f"live-{number}", "model")

    found = store.rewards.ready_rollouts(
        "model", after=after, limit=limit, newest=newest, upto=upto
    )

    assert [learnable.rollout.ready_seq for learnable in found] == expected


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize(
    ("after", "limit", "upto"),
    [(0, 9, None), (2, 9, None), (0, 2, None), (1, 2, 4), (5, 9, None), (0, 0, None)],
)
def test_what_is_passed_over_is_told_as_if_it_were_read(
    store: Store, *, after: int, limit: int, newest: bool, upto: int | None
) -> None:
    for number, at in enumerate((5.0, 9.0, 1.0, 7.0, 3.0), start=1):
        ready(store, f"live-{number}", at=at)
    writes(store).add_reward(reward(1.0, "live-5", at=8.0))
    writes(store).add_reward(reward(1.0, "live-4", at=2.0))

    found = store.rewards.ready_summary("", after=after, limit=limit, newest=newest, upto=upto)

    read = store.rewards.ready_rollouts("", after=after, limit=limit, newest=newest, upto=upto)
    places = [one.rollout.ready_seq for one in read] or [0]
    assert found == (len(read), places[0], places[-1], known_at(read))


def test_rollouts_without_decisions_are_asked_for_without_a_point(store: Store) -> None:
    ready(store, "live-1", "model")
    ready(store, "live-2")

    found = store.rewards.ready_rollouts("", after=0, limit=9)

    assert [learnable.rollout.rollout_id for learnable in found] == ["live-2"]


def test_a_failed_rollout_may_be_learned_from_too(store: Store) -> None:
    writes(store).begin_rollout(rollout())
    writes(store).set_status(LIVE, RolloutStatus.FAILED, at=5.0)

    assert writes(store).mark_ready(LIVE, total_reward=-1.0)


def test_the_mean_reward_is_of_the_first_or_last_that_became_ready(store: Store) -> None:
    assert store.rewards.mean_reward(of=2, newest=True) is None
    for number, total in enumerate([1.0, 2.0, 4.0]):
        writes(store).begin_rollout(rollout(f"live-{number}", RolloutStatus.RUNNING))
        writes(store).mark_ready(f"live-{number}", total_reward=total)

    assert store.rewards.mean_reward(of=2, newest=False) == 1.5
    assert store.rewards.mean_reward(of=2, newest=True) == 3.0


def test_of_the_newest_settled_rollouts_is_told_how_many_have_no_reward(store: Store) -> None:
    for number in range(8):
        ready(store, f"live-{number}")
    for number in range(8, 12):
        begun(store, f"live-{number}")
        writes(store).leave_out(f"live-{number}", "reward_missing")

    assert store.rewards.newest_missing(of=6) == (4, 6)
    begun(store, "live-12")  # one that waits, and one behind it that was quick
    writes(store).await_reward("live-12", until=99.0)
    ready(store, "live-13")
    assert store.rewards.newest_missing(of=5) == (4, 5)


def test_the_newest_totals_are_told_with_how_many_are_outside_a_range(store: Store) -> None:
    assert store.rewards.newest_totals((0.0, 1.0), of=3, without="safety") == (0, 0, None, None)
    for number, total in enumerate([-9.0, 0.5, 1.5, -1.0, -4.0]):
        writes(store).begin_rollout(rollout(f"live-{number}", RolloutStatus.RUNNING))
        writes(store).mark_ready(f"live-{number}", total_reward=total)
    writes(store).add_reward(reward(-4.0, "live-4", source="safety"))

    assert store.rewards.newest_totals((0.0, 1.0), of=4, without="safety") == (3, 2, -1.0, 1.5)
    assert store.rewards.newest_totals(None, of=4, without="safety") == (3, 0, -1.0, 1.5)


def test_the_newest_rewards_are_told_by_name(store: Store) -> None:
    begun(store)
    writes(store).add_reward(reward(9.0, LIVE, name="stars"))
    for number, value in enumerate([2.0, 5.0, None]):
        writes(store).add_reward(reward(value, LIVE, name="stars", key=str(number)))
    writes(store).add_reward(reward(0.0, LIVE, name="solved"))
    writes(store).add_reward(reward(-1.0, LIVE, name="safety.penalty_total", source="safety"))

    found = store.rewards.newest_by_name(of=5, without="safety")

    assert found == {"solved": (0.0, 0.0), "stars": (2.0, 5.0)}


def test_a_rollout_is_left_out_for_one_reason_at_a_time(store: Store) -> None:
    begun(store)

    counted = []
    for reason in ("reward_missing", "reward_missing", "reward_not_finite", None, None):
        writes(store).leave_out(LIVE, reason)
        counted.append({name: n for name, n in store.counters.counts().items() if n})

    missing, infinite = {"left_out_reward_missing": 1}, {"left_out_reward_not_finite": 1}
    assert counted == [missing, missing, infinite, {}, {}]


def _ended(store: Store, rollout_id: str, *, at: float) -> None:
    begun(store, rollout_id)
    writes(store).set_status(rollout_id, RolloutStatus.SUCCEEDED, at=at)


def test_a_clock_put_forward_makes_no_wait_end_at_once(store: Store) -> None:
    for name, until in (("over", 90.0), ("soon", 200.0), ("late", 5_000.0)):
        _ended(store, name, at=80.0)
        writes(store).await_reward(name, until=until)

    moved = [store.rewards.redate(before=100.0, after=1_100.0) for _ in range(2)]

    assert moved == [1, 0]  # the second process to notice finds nothing to do
    assert store.rewards.overdue(1_100.0, limit=9) == ["over"]
    assert store.rewards.overdue(1_199.0, limit=9) == []
    assert store.rewards.overdue(1_200.0, limit=9) == ["soon"]
    assert store.rollouts.rollout("soon").ended_at == 1_080.0


def test_a_clock_put_back_lets_every_wait_end(store: Store) -> None:
    for name, at in (("old", 80.0), ("new", 1_000_080.0)):
        _ended(store, name, at=at)
        writes(store).await_reward(name, until=at + 50.0)

    moved = [store.rewards.redate(before=1_000_100.0, after=100.0) for _ in range(2)]

    assert moved == [1, 0]
    assert store.rollouts.rollout("new").ended_at == 100.0
    assert store.rewards.overdue(149.0, limit=9) == ["old"]
    assert store.rewards.overdue(150.0, limit=9) == ["new"]
