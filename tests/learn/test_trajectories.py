"""Trajectories: which decisions are learned from, and what each of them earned."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tau_live.core.records import LearnableRollout, Reason, Reward, RolloutStatus
from tau_live.learn.trajectories import CUT_OFF, trajectories_of
from tests.learnables import GOOD, collected, decision, learnable, made, outcome, reward

pytestmark = pytest.mark.slow


def test_decisions_are_steps_with_what_was_known_when_they_were_made() -> None:
    found = made(learnable(GOOD, decision(2, chosen="a", applied="a", default="c", value=None)))

    assert found.chosen.tolist() == [1, 0]
    assert found.default.tolist() == [-1, 2]
    assert found.propensity.tolist() == [0.5, 0.5]
    assert found.value.tolist() == [0.75, 0.0]
    assert found.length.tolist() == [2]
    assert [one.options for one in found.encoded] == [3, 3]


def test_decisions_at_other_points_are_no_steps() -> None:
    found = made(learnable(GOOD, decision(2, "tools"), decision(3)))

    assert found.length.tolist() == [2]


def test_a_run_has_the_choices_of_its_last_attempt_at_every_point() -> None:
    earlier, forced = decision(0, "tools", attempt=0), decision(4, "tools", options=("a",))
    hosts_own = decision(5, "tools", propensity=None)

    found = made(learnable(earlier, GOOD, decision(2, "tools"), decision(3), forced, hosts_own))

    assert found.run_lengths.tolist() == [3]
    assert made(learnable(GOOD)).run_lengths.tolist() == [1]


def test_rollouts_stand_in_their_order_with_their_ids() -> None:
    second = learnable(GOOD, decision(2))
    second = second._replace(rollout=replace(second.rollout, rollout_id="s"))

    found = collected(learnable(GOOD), second)

    assert found.rollout_ids == ["r", "s"]
    assert found.trajectories is not None
    assert found.trajectories.length.tolist() == [1, 2]


def test_the_total_comes_after_the_last_decision() -> None:
    found = made(learnable(GOOD, decision(2), decision(3, "tools")))

    assert found.reward.tolist() == [0.0, 1.0]


def test_what_a_decision_earned_comes_after_it() -> None:
    second = decision(2)

    found = made(learnable(GOOD, second, decision(3), rewards=(reward(0.25, second),)))

    assert found.reward.tolist() == [0.0, 0.25, 1.0]


def test_what_another_point_earned_comes_after_the_last_decision_up_to_then() -> None:
    other = decision(2, "tools")

    found = made(learnable(GOOD, other, decision(3), rewards=(reward(0.25, other),)))

    assert found.reward.tolist() == [0.25, 1.0]


def test_what_was_earned_before_the_first_decision_is_nobodys() -> None:
    other = decision(1, "tools")

    found = made(learnable(other, decision(2), rewards=(reward(0.25, other),)))

    assert found.reward.tolist() == [1.0]


def test_what_a_decision_earned_that_is_no_step_goes_to_the_step_before() -> None:
    broken = decision(2, propensity=None)

    found = made(learnable(GOOD, broken, decision(3), rewards=(reward(0.25, broken),)))

    assert found.reward.tolist() == [0.25, 1.0]


def test_what_an_earlier_attempt_earned_is_not_the_later_ones() -> None:
    later = decision(1, attempt=2)

    found = made(learnable(GOOD, later, rewards=(reward(0.25, GOOD),)))

    assert found.reward.tolist() == [1.0]


def test_what_a_decision_earned_counts_by_its_name() -> None:
    named = (reward(1.0, GOOD, name="speed"), reward(1.0, GOOD, name="other"))

    found = made(
        learnable(GOOD, decision(2), rewards=named), outcome=lambda one: outcome(one, speed=0.5)
    )

    assert found.reward.tolist() == [0.5, 1.0]


def test_the_lag_of_a_replayed_decision_is_counted_by_time() -> None:
    replayed = learnable(decision(1, policy_version=900), owner=None)
    at = replayed.decisions[0].at

    found = made(replayed, versions=[2, 4, 6], version_times=[at - 1.0, at + 1.0, at + 2.0])

    assert found.version_lag.tolist() == [2]


def test_a_comment_earns_nothing() -> None:
    found = made(learnable(GOOD, decision(2), rewards=(reward(None, GOOD),)))

    assert found.reward.tolist() == [0.0, 1.0]


def test_several_points_learn_from_the_same_total() -> None:
    both = learnable(GOOD, decision(2, "tools"))

    found = [
        trajectories_of([both], point, versions=[], discount=1.0, outcome=outcome).trajectories
        for point in ("model", "tools")
    ]

    assert [one.reward.tolist() for one in found if one] == [[1.0], [1.0]]


@pytest.mark.parametrize("reason", Reason)
def test_only_a_run_that_was_cut_off_goes_on(reason: Reason) -> None:
    found = made(
        learnable(GOOD, decision(2, value=0.5), reason=reason, status=RolloutStatus.FAILED)
    )

    cut_off = reason in CUT_OFF
    assert found.discount.tolist() == [0.9, 0.9 if cut_off else 0.0]
    assert found.bootstrap.tolist() == [0.5 if cut_off else 0.0]


@pytest.mark.parametrize(
    ("given", "goes_on"),
    [
        (reward(1.0), False),
        (reward(1.0, source="default"), True),
        (reward(None), True),
        (reward(1.0, GOOD), True),
    ],
)
def test_a_run_that_was_valued_as_a_whole_does_not_go_on(given: Reward, goes_on: bool) -> None:
    cut_off = learnable(
        GOOD, rewards=(given,), reason=Reason.INTERRUPTED, status=RolloutStatus.FAILED
    )

    found = made(cut_off)

    assert bool(found.discount[-1] > 0.0) is goes_on


@pytest.mark.parametrize(("version", "lag"), [(0, 3), (2, 2), (4, 1), (6, 0), (9, 0)])
def test_the_lag_is_how_many_versions_are_newer(version: int, lag: int) -> None:
    found = made(learnable(decision(1, policy_version=version)), versions=[2, 4, 6])

    assert found.version_lag.tolist() == [lag]


@st.composite
def learnables(draw: st.DrawFn) -> LearnableRollout:
    decisions = [
        decision(
            ordinal,
            draw(st.sampled_from(["model", "tools"])),
            propensity=draw(st.sampled_from([0.5, 0.5, None])),
            attempt=draw(st.sampled_from([1, 1, 2])),
        )
        for ordinal in range(1, 1 + draw(st.integers(0, 6)))
    ]
    decisions.sort(key=lambda one: (one.attempt, one.ordinal))
    rewards = tuple(
        reward(draw(st.integers(-8, 8)) / 4, of) for of in decisions if draw(st.booleans())
    )
    return learnable(*decisions, rewards=rewards, total_reward=draw(st.integers(-8, 8)) / 4)


@settings(max_examples=100, deadline=None)
@given(st.lists(learnables(), max_size=3))
def test_the_rewards_of_the_steps_are_the_total_and_what_was_earned_from_the_first_on(
    rollouts: list[LearnableRollout],
) -> None:
    found = collected(*rollouts)

    expected = []
    for one in rollouts:
        last = max((d.attempt for d in one.decisions), default=0)
        attempt = [d for d in one.decisions if d.attempt == last]
        usable = [d.ordinal for d in attempt if d.point == "model" and d.propensity is not None]
        if usable:
            places = {d.decision_id for d in attempt if d.ordinal >= usable[0]}
            earned = sum(r.value or 0.0 for r in one.rewards if r.decision_id in places)
            expected.append((one.rollout.total_reward or 0.0) + earned)
    sums = found.trajectories.rollout_rewards.tolist() if found.trajectories else []
    assert sums == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(learnables(), max_size=3))
def test_every_decision_is_a_step_or_is_left_out(rollouts: list[LearnableRollout]) -> None:
    found = collected(*rollouts)

    steps = 0 if found.trajectories is None else len(found.trajectories.encoded)
    left_out = sum(left.decision_id is not None for left in found.left_out)
    at_point = sum(d.point == "model" for one in rollouts for d in one.decisions)
    whole = sum(left.decision_id is None for left in found.left_out)
    assert steps + left_out == at_point
    assert len(found.rollout_ids) + whole == len(rollouts)


@pytest.mark.parametrize(
    ("before", "expected"),
    [(0, [0.0, 0.75]), (1, [0.25, 0.75]), (2, [0.25, 0.75]), (3, [0.0, 1.0]), (9, [0.0, 1.0])],
)
def test_what_a_run_was_given_early_is_not_due_to_what_it_decided_later(
    before: int, expected: list[float]
) -> None:
    found = made(
        learnable(GOOD, decision(2, "tools"), decision(3)),
        outcome=lambda one: outcome(one, early={before: 0.25}),
    )

    assert found.reward.tolist() == expected


def test_in_a_rollout_that_was_tried_again_nothing_is_early() -> None:
    later = [decision(1, attempt=2), decision(2, attempt=2)]

    found = made(learnable(*later), outcome=lambda one: outcome(one, early={1: 0.25}))

    assert found.reward.tolist() == [0.0, 1.0]


POINTS = ("model", "tools", "prompt")


@st.composite
def several_points(draw: st.DrawFn) -> tuple[LearnableRollout, dict[int, float]]:
    """A rollout whose decisions at three points come in any order, with rewards in between."""
    count = draw(st.integers(1, 8))
    ordinals = draw(st.permutations(range(1, count + 1)))
    decisions = [
        decision(
            ordinal,
            draw(st.sampled_from(POINTS)),
            at=float(draw(st.integers(0, 3))),  # clocks say nothing about the order
            allowed=draw(st.sampled_from([None, None, ("a", "b"), ("b",)])),
            propensity=draw(st.sampled_from([0.5, 0.5, None])),
        )
        for ordinal in ordinals
    ]
    decisions.sort(key=lambda one: one.ordinal)
    rewards = tuple(
        reward(draw(st.integers(-8, 8)) / 4, of) for of in decisions if draw(st.booleans())
    )
    quarters = st.integers(-8, 8).map(lambda number: number / 4)
    early = draw(st.dictionaries(st.integers(0, count + 1), quarters, max_size=3))
    total = draw(quarters) + sum(early.values())
    return learnable(*decisions, rewards=rewards, total_reward=total), early


@settings(max_examples=300, deadline=None)
@given(several_points(), st.sampled_from(POINTS))
def test_each_step_gets_the_return_after_its_own_time(
    given_: tuple[LearnableRollout, dict[int, float]], point: str
) -> None:
    one, early = given_
    found = trajectories_of(
        [one], point, versions=[], discount=1.0, outcome=lambda one: outcome(one, early=early)
    )

    steps = [
        d for d in one.decisions
        if d.point == point and d.propensity is not None and d.allowed != ("b",)
    ]  # fmt: skip
    ordinals = {d.decision_id: d.ordinal for d in one.decisions}
    given_by_decision = [(ordinals[r.decision_id or ""], r.value or 0.0) for r in one.rewards]
    at_the_end = (one.rollout.total_reward or 0.0) - sum(early.values())
    expected = [
        at_the_end
        + sum(value for ordinal, value in given_by_decision if ordinal >= step.ordinal)
        + sum(value for before, value in early.items() if before >= step.ordinal)
        for step in steps
    ]
    if not steps:
        assert found.trajectories is None
        return
    assert found.trajectories is not None
    returns = np.cumsum(found.trajectories.reward[::-1])[::-1]
    assert returns.tolist() == expected


def test_masks_go_to_the_learner_as_they_were() -> None:
    masked = decision(2, allowed=("b", "c"), probabilities=(0.0, 0.5, 0.5))

    found = made(learnable(GOOD, masked)).masks

    assert found[0] is None
    assert found[1] is not None
    assert found[1].tolist() == [False, True, True]


def test_without_a_mask_there_are_none() -> None:
    assert made(learnable(GOOD)).allowed is None
