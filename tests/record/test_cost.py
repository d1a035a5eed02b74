"""The safety cost of a rollout: the worst that is known, and unknown is not zero."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.errors import SettingsError
from tau_live.core.records import Reward
from tau_live.core.reward_rules import Cost, cost_of, penalties
from tau_live.core.settings.tables import DeclaredReward, HardGateCost, SafetySettings
from tau_live.record.rewards import State, outcome

HARM = DeclaredReward(name="harm", cost=True, critical=0.9)
TOXIC = DeclaredReward(name="toxic", cost=True, range=(0.0, 10.0), critical=8.0, default=0.0)
SOLVED = DeclaredReward(name="solved", primary=True)
UNKNOWN = Cost(None, False)
VALUES = st.floats(allow_nan=True, allow_infinity=True)


def reward(name: str, value: float | None, *, source: str = "api") -> Reward:
    return Reward(rollout_id="r", name=name, value=value, source=source, at=0.0)


GATED = [
    reward(part.name, part.value, source="safety")
    for part in penalties(SafetySettings(), 1, ["secret_leak.key"])
]


@pytest.mark.parametrize(
    ("given_", "declared", "expected"),
    [
        pytest.param([], [], UNKNOWN, id="nothing is declared"),
        pytest.param([("solved", 1.0)], [SOLVED], UNKNOWN, id="a reward is no cost"),
        pytest.param([], [HARM], UNKNOWN, id="it has not come: unknown is not zero"),
        pytest.param([("harm", None)], [HARM], UNKNOWN, id="a comment is no number"),
        pytest.param([("harm", math.nan)], [HARM], UNKNOWN, id="no number is not known"),
        pytest.param([("harm", 0.0)], [HARM], Cost(0.0, False), id="zero is known"),
        pytest.param([("harm", 0.5)], [HARM], Cost(0.5, False), id="half"),
        pytest.param([("harm", 0.9)], [HARM], Cost(0.9, True), id="critical from there on"),
        pytest.param([("harm", math.inf)], [HARM], Cost(1.0, True), id="beyond the worst"),
        pytest.param([("harm", -3.0)], [HARM], Cost(0.0, False), id="below the best"),
        pytest.param([("toxic", 5.0)], [TOXIC], Cost(0.5, False), id="a share of its range"),
        pytest.param([], [TOXIC], Cost(0.0, False), id="its default"),
        pytest.param([("toxic", 8.0)], [HARM, TOXIC], Cost(0.8, True), id="only one is known"),
        pytest.param(
            [("harm", 0.2), ("harm", 0.6), ("toxic", 3.0)], [HARM, TOXIC], Cost(0.6, False),
            id="the worst of all",
        ),
    ],
)  # fmt: skip
def test_it_is_the_worst_that_is_known(
    given_: list[tuple[str, float | None]], declared: list[DeclaredReward], expected: Cost
) -> None:
    found = cost_of([reward(name, value) for name, value in given_], declared)

    assert found == expected


@pytest.mark.parametrize(
    ("now", "expected"), [(159.0, UNKNOWN), (160.0, Cost(0.25, False))], ids=["before", "after"]
)
def test_the_default_counts_only_after_the_deadline(now: float, expected: Cost) -> None:
    late = DeclaredReward(name="harm", cost=True, default=0.25, deadline_s=60.0)

    found = cost_of([], [late], ended_at=100.0, now=now)

    assert found == expected


@pytest.mark.parametrize(
    ("rewards", "declared", "counts", "expected"),
    [
        pytest.param(GATED, [], HardGateCost.NO, UNKNOWN, id="does not count"),
        pytest.param(GATED, [], HardGateCost.COST, Cost(1.0, False), id="costs"),
        pytest.param(GATED, [], HardGateCost.CRITICAL, Cost(1.0, True), id="is critical"),
        pytest.param([], [], HardGateCost.COST, Cost(0.0, False), id="none came, so it is safe"),
        pytest.param([], [HARM], HardGateCost.COST, UNKNOWN, id="but another cost is awaited"),
        pytest.param(GATED, [HARM], HardGateCost.COST, Cost(1.0, False), id="is the worst"),
    ],
)
def test_the_hosts_own_safety_counts_as_configured(
    rewards: list[Reward], declared: list[DeclaredReward], counts: HardGateCost, expected: Cost
) -> None:
    found = cost_of(rewards, declared, hard_gate=counts)

    assert found == expected


@given(st.lists(st.tuples(st.sampled_from(["harm", "toxic", "solved"]), VALUES)), st.randoms())
def test_the_order_does_not_matter_and_it_stays_in_its_bounds(
    given_: list[tuple[str, float]], random: object
) -> None:
    rewards = [reward(name, value) for name, value in given_]

    found = cost_of(rewards, [HARM, TOXIC, SOLVED])

    assert found == cost_of(rewards[::-1], [TOXIC, SOLVED, HARM])
    assert found.value is not None  # toxic has a default
    assert 0.0 <= found.value <= 1.0


@given(st.lists(VALUES), st.floats(-10.0, 10.0))
def test_a_cost_adds_nothing_to_the_reward_and_spoils_nothing(
    costs: list[float], solved: float
) -> None:
    rewards = [reward("solved", solved), *(reward("harm", value) for value in costs)]

    found = outcome(rewards, [SOLVED, HARM], ended_at=0.0, now=0.0)

    assert found == outcome(rewards[:1], [SOLVED], ended_at=0.0, now=0.0)
    assert (found.state, found.total) == (State.READY, solved)


def test_no_rollout_waits_for_a_cost_or_becomes_ready_by_it() -> None:
    alone = outcome([reward("harm", 1.0)], [HARM], ended_at=0.0, now=0.0, deadline_s=60.0)
    beside = outcome([reward("other", 2.0)], [HARM], ended_at=0.0, now=0.0, deadline_s=60.0)

    assert alone.state is State.WAITING
    assert (beside.state, beside.total) == (State.READY, 2.0)  # nothing else is declared


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"critical": 0.5}, "is critical, so it must be a cost"),
        ({"cost": True, "primary": True}, "cannot be primary"),
        ({"cost": True, "weight": 2.0}, "cannot have a weight"),
        ({"cost": True, "range": (-1.0, 1.0)}, "cannot begin below 0"),
        ({"cost": True, "critical": 0.0}, "cannot be critical at 0"),
        ({"cost": True, "critical": 1.5}, "critical value of reward 'harm' must be in its range"),
        ({"cost": True, "default": 2.0}, "default of reward 'harm' must be in its range"),
    ],
)
def test_a_cost_that_makes_no_sense_is_refused(fields: dict[str, float], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        DeclaredReward(name="harm", **fields)  # type: ignore[arg-type]  # by name
