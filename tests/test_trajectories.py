"""Trajectories: which decisions are learned from, and what each of them earned."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.reasons import WhyNot
from tau_live.rl.batch import Trajectories
from tau_live.rl.features import WIDTH, encode, pack
from tau_live.rollouts import Decision, Reason, Reward, Rollout, RolloutStatus
from tau_live.store.records import LearnableRollout
from tau_live.trajectories import CUT_OFF, Collected, LeftOut, counts_of, trajectories_of

OPTIONS = ("a", "b", "c")
PACKED = pack(encode({"x": 1.0}, [(name, None) for name in OPTIONS], width=WIDTH))
GOOD = Decision(
    rollout_id="r",
    attempt=1,
    ordinal=1,
    point="model",
    options=OPTIONS,
    chosen="b",
    applied="b",
    propensity=0.5,
    probabilities=(0.25, 0.5, 0.25),
    value=0.75,
    policy_version=3,
    at=1.0,
    encoded=PACKED,
)


def decision(ordinal: int, point: str = "model", **fields: Any) -> Decision:
    return replace(GOOD, ordinal=ordinal, point=point, **fields)


def reward(value: float | None, of: Decision | None = None, **fields: Any) -> Reward:
    return Reward(
        rollout_id="r", decision_id=of.decision_id if of else None, value=value, at=2.0, **fields
    )


def learnable(
    *decisions: Decision, rewards: tuple[Reward, ...] = (), **fields: Any
) -> LearnableRollout:
    known: dict[str, Any] = {
        "status": RolloutStatus.SUCCEEDED,
        "reason": Reason.COMPLETED,
        "total_reward": 1.0,
    }
    return LearnableRollout(
        Rollout(rollout_id="r", **(known | fields)), list(decisions), list(rewards)
    )


def earned(one: LearnableRollout, **weights: float) -> dict[str, float]:
    given: dict[str, float] = {}
    for own in one.rewards:
        if own.decision_id and own.value is not None:
            value = weights.get(own.name, 0.0 if weights else 1.0) * own.value
            given[own.decision_id] = given.get(own.decision_id, 0.0) + value
    return given


def collected(*rollouts: LearnableRollout, **options: Any) -> Collected:
    known: dict[str, Any] = {"versions": [1, 2, 3], "discount": 0.9, "earned": earned}
    return trajectories_of(rollouts, "model", **(known | options))


def made(*rollouts: LearnableRollout, **options: Any) -> Trajectories:
    found = collected(*rollouts, **options).trajectories
    assert found is not None
    return found


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


def test_rollouts_stand_in_their_order_with_their_ids() -> None:
    second = learnable(GOOD, decision(2))
    second = second._replace(rollout=replace(second.rollout, rollout_id="s"))

    found = collected(learnable(GOOD), second)

    assert found.rollout_ids == ["r", "s"]
    assert found.trajectories is not None
    assert found.trajectories.length.tolist() == [1, 2]


WHY_NOT = [
    ("applied_unknown", {"applied": None}),
    ("applied_unknown", {"applied": "z"}),
    ("applied_differs", {"applied": "a"}),
    ("applied_differs", {"chosen": None}),
    ("options_repeated", {"options": ("a", "b", "b")}),
    ("no_propensity", {"propensity": None}),
    ("zero_propensity", {"propensity": 0.0}),
    ("zero_propensity", {"propensity": -0.0}),
    ("mask_missing", {"options": ()}),
    ("mask_missing", {"probabilities": (0.5, 0.5, 0.0)}),
    ("mask_damaged", {"allowed": ("b", "z")}),
    ("applied_masked", {"allowed": ("a", "c")}),
    ("one_option", {"allowed": ("b",), "probabilities": (0.0, 1.0, 0.0)}),
    ("propensity_out_of_range", {"propensity": -0.5}),
    ("propensity_out_of_range", {"propensity": 1.5}),
    ("propensity_out_of_range", {"propensity": math.nan}),
    ("propensity_out_of_range", {"propensity": 5e-324}),
    ("value_not_finite", {"value": math.inf}),
    ("value_not_finite", {"value": math.nan}),
    ("no_features", {"encoded": b""}),
    ("features_damaged", {"encoded": PACKED[:-1]}),
    ("features_damaged", {"encoded": b"\x00" * 40}),
    ("features_damaged", {"encoded": pack(encode({}, [("a", None), ("b", None)]))}),
    (
        "features_of_another_width",
        {"encoded": pack(encode({}, [(name, None) for name in OPTIONS], width=WIDTH // 2))},
    ),
]


@pytest.mark.parametrize(("reason", "fields"), WHY_NOT)
def test_a_decision_that_may_not_be_learned_from_is_left_out_with_the_reason(
    reason: str, fields: dict[str, Any]
) -> None:
    broken = decision(2, **fields)

    found = collected(learnable(GOOD, broken))

    assert found.left_out == [("r", broken.decision_id, reason)]
    assert found.trajectories is not None
    assert found.trajectories.length.tolist() == [1]


def test_a_certain_choice_may_be_rounded_up() -> None:
    found = made(learnable(decision(1, propensity=1.0 + 2**-52)))

    assert found.length.tolist() == [1]


def test_a_decision_of_an_earlier_attempt_is_left_out() -> None:
    later = decision(1, attempt=2)

    found = collected(learnable(GOOD, later))

    assert found.left_out == [("r", GOOD.decision_id, "earlier_attempt")]


def test_the_last_attempt_is_the_last_with_a_decision_at_any_point() -> None:
    found = collected(learnable(GOOD, decision(1, "tools", attempt=2)))

    assert [left.reason for left in found.left_out] == ["earlier_attempt", "no_usable_decisions"]


@pytest.mark.parametrize(
    ("reason", "fields"),
    [
        ("no_reward", {"total_reward": None}),
        ("reward_not_finite", {"total_reward": math.nan}),
        ("reward_not_finite", {"total_reward": math.inf}),
        ("tried_again", {"status": RolloutStatus.RUNNING, "reason": None}),
        ("events_dropped", {"metadata": {"dropped_events": 3}}),
    ],
)
def test_a_rollout_that_may_not_be_learned_from_is_left_out_with_the_reason(
    reason: str, fields: dict[str, Any]
) -> None:
    found = collected(learnable(GOOD, **fields))

    assert found[:4] == (None, [], [LeftOut("r", None, WhyNot(reason))], [])


def test_a_rollout_without_a_decision_is_left_out() -> None:
    assert collected(learnable()).left_out == [("r", None, "no_usable_decisions")]


def test_rewards_beyond_all_numbers_are_left_out() -> None:
    most = reward(1.7e308, GOOD)

    found = collected(learnable(GOOD, rewards=(most,), total_reward=1.7e308))

    assert found.left_out == [("r", None, "reward_not_finite")]


def test_nothing_makes_no_trajectories() -> None:
    assert collected()[:4] == (None, [], [], [])


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
        learnable(GOOD, decision(2), rewards=named), earned=lambda one: earned(one, speed=0.5)
    )

    assert found.reward.tolist() == [0.5, 1.0]


def test_the_lag_of_a_replayed_decision_is_counted_by_time() -> None:
    replayed = learnable(decision(1, policy_version=900), owner=None)
    at = replayed.decisions[0].at

    found = made(replayed, versions=[2, 4, 6], born=[at - 1.0, at + 1.0, at + 2.0])

    assert found.version_lag.tolist() == [2]


def test_a_comment_earns_nothing() -> None:
    found = made(learnable(GOOD, decision(2), rewards=(reward(None, GOOD),)))

    assert found.reward.tolist() == [0.0, 1.0]


def test_several_points_learn_from_the_same_total() -> None:
    both = learnable(GOOD, decision(2, "tools"))

    found = [
        trajectories_of([both], point, versions=[], discount=1.0, earned=earned).trajectories
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
    found = made(learnable(GOOD, decision(2, "tools"), decision(3)), early=lambda _: {before: 0.25})

    assert found.reward.tolist() == expected


def test_in_a_rollout_that_was_tried_again_nothing_is_early() -> None:
    later = [decision(1, attempt=2), decision(2, attempt=2)]

    found = made(learnable(*later), early=lambda _: {1: 0.25})

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
        [one], point, versions=[], discount=1.0, earned=earned, early=lambda _: early
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


@pytest.mark.parametrize(
    ("reason", "fields"),
    [
        (WhyNot.APPLIED_DIFFERS, {"applied": "a"}),
        (WhyNot.APPLIED_DIFFERS, {"chosen": None, "propensity": None}),
        (WhyNot.NO_PROPENSITY, {"propensity": None}),
    ],
)
def test_a_hosts_own_choice_teaches_the_critic_only_where_that_is_wanted(
    reason: WhyNot, fields: dict[str, Any]
) -> None:
    own = decision(2, **fields)

    off, on = (collected(learnable(GOOD, own), learn_from_host=wanted) for wanted in (False, True))

    left = LeftOut("r", own.decision_id, reason)
    assert (off.left_out, off.critic_only) == ([left], [])
    assert (on.left_out, on.critic_only) == ([], [left])
    assert on.trajectories is not None
    assert np.isnan(on.trajectories.propensity).tolist() == [False, True]


@pytest.mark.parametrize("fields", [{"propensity": 0.0}, {"encoded": b""}, {"allowed": ("a", "c")}])
def test_what_is_wrong_otherwise_is_left_out_all_the_same(fields: dict[str, Any]) -> None:
    broken = decision(2, **{"chosen": None, **fields})

    found = collected(learnable(GOOD, broken), learn_from_host=True)

    assert len(found.left_out) == 1
    assert found.critic_only == []


def test_what_is_too_old_is_counted_and_stays_a_step() -> None:
    old = decision(1, policy_version=0)

    found = collected(learnable(old, decision(2, policy_version=3)), lag_bound=2)

    assert found.critic_only == [LeftOut("r", old.decision_id, WhyNot.TOO_OLD)]
    assert found.left_out == []
    assert found.trajectories is not None
    assert found.trajectories.version_lag.tolist() == [3, 0]


def test_counts_are_by_reason_and_only_of_the_rollouts_that_are_asked_for() -> None:
    found = collected(
        learnable(decision(1, policy_version=0), decision(2, propensity=None)), lag_bound=2
    )

    assert counts_of(found, {"r"}) == {"left_out_no_propensity": 1, "critic_only_too_old": 1}
    assert counts_of(found, set()) == {}
    assert counts_of(None, {"r"}) == {}
