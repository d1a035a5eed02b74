"""What rollouts can be worth, and when that is known."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.rewards.join import State, outcome
from tau_live.rewards.settling import declared_range, reward_range
from tau_live.rollouts import RolloutStatus
from tau_live.settings import DeclaredReward, Settings
from tau_live.store.records import Assigned
from tau_live.trials.outcomes import is_settled
from tests.contracts.making import reward, rollout

WEIGHTS = st.floats(-3.0, 3.0)
RANGES = st.tuples(st.floats(-5.0, 5.0), st.floats(0.1, 5.0)).map(lambda r: (r[0], r[0] + r[1]))


@st.composite
def declared(draw: st.DrawFn) -> tuple[DeclaredReward, ...]:
    """Up to three rewards with ranges, one of which may be primary."""
    number = draw(st.integers(1, 3))
    primary = draw(st.integers(0, number))
    return tuple(
        DeclaredReward(name=f"r{n}", weight=draw(WEIGHTS), range=draw(RANGES), primary=n == primary)
        for n in range(number)
    )


@given(declared(), st.data())
def test_no_total_of_declared_rewards_is_outside_the_range(
    rewards: tuple[DeclaredReward, ...], data: st.DataObject
) -> None:
    come = [one for one in rewards if data.draw(st.booleans(), label=one.name)]
    given_ = [
        reward(data.draw(st.floats(*(one.range or (0.0, 1.0)))), name=one.name) for one in come
    ]

    found = outcome(given_, rewards, ended_at=1.0, now=math.inf, deadline_s=5.0)
    ends = declared_range(rewards)

    if found.state is State.READY and found.total is not None and ends is not None:
        assert ends[0] - 1e-9 <= found.total <= ends[1] + 1e-9


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        pytest.param([], None, id="nothing declared"),
        pytest.param([DeclaredReward(name="a")], None, id="without a range"),
        pytest.param([DeclaredReward(name="a", range=(2.0, 3.0))], (2.0, 3.0), id="the only one"),
        pytest.param(
            [DeclaredReward(name="a", range=(1.0, 3.0), weight=-2.0)], (-6.0, -2.0), id="a price"
        ),
        pytest.param(
            [
                DeclaredReward(name="a", range=(1.0, 2.0), primary=True),
                DeclaredReward(name="b", range=(1.0, 4.0), weight=0.5),
            ],
            (1.0, 4.0),
            id="what need not come may be worth nothing",
        ),
        pytest.param(
            [DeclaredReward(name="a", range=(0.0, 1.0), weight=0.0)], None, id="worth nothing"
        ),
    ],
)
def test_a_range_follows_from_what_is_declared(
    rewards: list[DeclaredReward], expected: tuple[float, float] | None
) -> None:
    assert declared_range(rewards) == expected


def test_a_range_that_is_set_goes_before_what_is_declared() -> None:
    only = (DeclaredReward(name="a", range=(2.0, 3.0)),)

    assert reward_range(Settings(rewards=only)) == (2.0, 3.0)
    assert reward_range(Settings(rewards=only, reward_range=(-1.0, 1.0))) == (-1.0, 1.0)


ENDED = rollout("a", RolloutStatus.SUCCEEDED, started_at=0.0, ended_at=1.0)


@pytest.mark.parametrize(
    ("one", "now", "expected"),
    [
        pytest.param(replace(ENDED, ready_seq=1), 2.0, True, id="ready"),
        pytest.param(ENDED, 2.0, True, id="ended, and nothing is waited for"),
        pytest.param(rollout("a", started_at=0.0), 99.0, False, id="open"),
        pytest.param(rollout("a", started_at=0.0), 101.0, True, id="open for too long"),
        pytest.param(
            replace(ENDED, ready_seq=1, status=RolloutStatus.RUNNING), 2.0, False, id="tried again"
        ),
    ],
)
def test_it_is_known_when_a_rollout_is_settled(one: object, now: float, expected: bool) -> None:
    assigned = Assigned(place=1, rollout=one, arm="learner", share=0.5)  # type: ignore[arg-type]  # a rollout

    assert is_settled(assigned, now=now, wait_s=100.0) is expected


@pytest.mark.parametrize(("now", "expected"), [(20.0, False), (24.0, False), (26.0, True)])
def test_a_reward_is_waited_for_until_its_deadline_and_a_little_longer(
    now: float, expected: bool
) -> None:
    assigned = Assigned(place=1, rollout=ENDED, arm="learner", share=0.5, until=20.0)

    assert is_settled(assigned, now=now, wait_s=100.0) is expected
