"""Which decisions may be learned from; the others are left out by name."""

import math
from typing import Any

import numpy as np
import pytest

from tau_live.core.reasons import WhyNot
from tau_live.core.records import RolloutStatus
from tau_live.learn.trajectories import LeftOut, counts_of
from tau_live.rl.features import WIDTH, encode, pack
from tests.learnables import GOOD, OPTIONS, PACKED, collected, decision, learnable, made, reward

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
        ("reward_not_finite", {"total_reward": -1.1e50}),
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


def test_huge_rewards_that_cancel_out_are_left_out() -> None:
    second = decision(2)
    huge = (reward(1e200, GOOD), reward(-1e200, second))

    found = collected(learnable(GOOD, second, rewards=huge, total_reward=0.0))

    assert found.left_out == [("r", None, "reward_not_finite")]


def test_nothing_makes_no_trajectories() -> None:
    assert collected()[:4] == (None, [], [], [])


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
