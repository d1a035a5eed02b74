"""Which setting of rewards is named, and which range is proposed."""

import pytest

from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredReward
from tau_live.operate.records import RewardSpan, RewardsSeen
from tau_live.operate.report.summary import deadlines, range_advice, span_around


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ((0.2, 0.8), (0.0, 1.0)),
        ((-0.6, 0.9), (-1.0, 1.0)),
        ((1.0, 5.0), (1.0, 5.0)),
        ((0.3, 4.2), (0.0, 5.0)),
        ((120.0, 980.0), (100.0, 1_000.0)),
        ((-0.02, 3.0), (-1.0, 3.0)),
        ((7.0, 7.0), (0.0, 7.0)),
        ((-1.7e308, 1.7e308), (-1.7e308, 1.7e308)),
    ],
)
def test_the_range_proposed_is_round_and_holds_what_was_seen(
    seen: tuple[float, float], expected: tuple[float, float]
) -> None:
    assert span_around(*seen) == expected


def test_the_range_is_proposed_where_it_is_declared() -> None:
    names = {"stars": RewardSpan(lowest=1.0, highest=5.0)}
    seen = RewardsSeen(lowest=-1.0, highest=0.5, names=names)
    stars, late = DeclaredReward(name="stars"), DeclaredReward(name="late")

    undeclared = range_advice(seen, Settings())
    declared = range_advice(seen, Settings(rewards=(stars, late)))
    set_ = range_advice(seen, Settings(rewards=(stars, late), reward_range=(0.0, 1.0)))

    assert undeclared == set_ == "`export TAU_LIVE_RL_REWARD_RANGE=-1,1`"
    assert declared == (
        "`range = [1, 5]` for `stars`, `range = [low, high]` for `late`, in [tool.tau-live.rewards]"
    )


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ((), "`TAU_LIVE_RL_REWARD_DEADLINE_S`"),
        ((DeclaredReward(name="a", deadline_s=5.0),), "`deadline-s` of reward `a`"),
        (
            (DeclaredReward(name="a", primary=True), DeclaredReward(name="b", deadline_s=5.0)),
            "`TAU_LIVE_RL_REWARD_DEADLINE_S`",
        ),
        (
            (DeclaredReward(name="a", deadline_s=5.0), DeclaredReward(name="b")),
            "`deadline-s` of reward `a` and `TAU_LIVE_RL_REWARD_DEADLINE_S`",
        ),
    ],
)
def test_the_deadline_that_applies_is_named(
    rewards: tuple[DeclaredReward, ...], expected: str
) -> None:
    assert deadlines(Settings(rewards=rewards)) == expected
