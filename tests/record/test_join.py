"""What a rollout is worth, at every time and for every set of rewards that came."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.reasons import WhyNot
from tau_live.core.records import Reward
from tau_live.core.reward_rules import penalties
from tau_live.core.settings.tables import DeclaredReward, SafetySettings
from tau_live.record.rewards import Outcome, State, outcome

END = 100.0
SOLVED = DeclaredReward(name="solved", primary=True, deadline_s=60.0)


def reward(
    name: str, value: float | None, *, decision: str | None = None, source: str = "api"
) -> Reward:
    return Reward(
        rollout_id="r", decision_id=decision, name=name, value=value, source=source, at=0.0
    )


def ready(total: float, *names: str, **decisions: float) -> Outcome:
    return Outcome(state=State.READY, total=total, decisions=decisions, names=names)


def waiting(until: float | None, *names: str) -> Outcome:
    return Outcome(state=State.WAITING, until=until, names=names)


def left_out(reason: WhyNot, *names: str) -> Outcome:
    return Outcome(state=State.LEFT_OUT, reason=reason, names=names)


def cheap(**fields: float | None) -> DeclaredReward:
    return DeclaredReward(name="cheap", weight=0.5, **fields)  # type: ignore[arg-type]  # by name


CASES = [
    pytest.param([], [], 0, waiting(None), id="undeclared, none came, no deadline"),
    pytest.param([("a", 1)], [], 0, ready(1.0), id="undeclared, one came"),
    pytest.param([("a", 1), ("b", -3)], [], 0, ready(-2.0), id="undeclared, all are added"),
    pytest.param([("a", None)], [], 0, waiting(None), id="a comment has no value"),
    pytest.param([], [SOLVED], 0, waiting(160.0, "solved"), id="the primary is awaited"),
    pytest.param([], [SOLVED], 60, left_out(WhyNot.REWARD_MISSING, "solved"), id="it never came"),
    pytest.param([("solved", 1)], [SOLVED], 99, ready(1.0), id="it came late"),
    pytest.param([("solved", 0)], [SOLVED], 0, ready(0.0), id="zero is a value"),
    pytest.param(
        [("other", 5)], [SOLVED], 0, waiting(160.0, "solved"), id="another does not count"
    ),
    pytest.param(
        [("other", 5), ("solved", 1)], [SOLVED], 0, ready(1.0), id="the undeclared is not added"
    ),
    pytest.param(
        [],
        [DeclaredReward(name="solved", primary=True, deadline_s=60.0, default=-1.0)],
        60,
        ready(-1.0, "solved"),
        id="the default of the primary",
    ),
    pytest.param(
        [],
        [DeclaredReward(name="solved", primary=True, deadline_s=60.0, default=-1.0)],
        59,
        waiting(160.0, "solved"),
        id="not before its deadline",
    ),
    pytest.param(
        [("solved", 1), ("cheap", 4)], [SOLVED, cheap()], 0, ready(3.0), id="weights are applied"
    ),
    pytest.param([("solved", 1)], [SOLVED, cheap()], 0, ready(1.0), id="the other may be missing"),
    pytest.param(
        [("solved", 1)],
        [SOLVED, cheap(default=-2.0)],
        0,
        ready(0.0, "cheap"),
        id="the other's default",
    ),
    pytest.param(
        [("cheap", 4)], [SOLVED, cheap()], 0, waiting(160.0, "solved"), id="only the other came"
    ),
    pytest.param([], [cheap(deadline_s=5.0)], 0, waiting(105.0, "cheap"), id="no primary, none"),
    pytest.param(
        [], [cheap(deadline_s=5.0)], 5, left_out(WhyNot.REWARD_MISSING, "cheap"), id="nor later"
    ),
    pytest.param(
        [],
        [cheap(deadline_s=5.0, default=2.0), DeclaredReward(name="b", deadline_s=9.0)],
        8,
        waiting(109.0, "b", "cheap"),
        id="no primary: the last deadline",
    ),
    pytest.param(
        [],
        [cheap(deadline_s=5.0, default=2.0), DeclaredReward(name="b", deadline_s=9.0)],
        9,
        ready(1.0, "cheap"),
        id="no primary: then the defaults there are",
    ),
    pytest.param(
        [("b", 1)],
        [cheap(deadline_s=5.0, default=2.0), DeclaredReward(name="b", deadline_s=9.0)],
        0,
        ready(2.0, "cheap"),
        id="no primary: one is enough",
    ),
    pytest.param(
        [("solved", 2)],
        [DeclaredReward(name="solved", range=(0.0, 1.0))],
        0,
        left_out(WhyNot.REWARD_OUT_OF_RANGE, "solved"),
        id="out of range",
    ),
    pytest.param(
        [("solved", math.nan)], [SOLVED], 0, left_out(WhyNot.REWARD_NOT_FINITE, "solved"), id="NaN"
    ),
    pytest.param(
        [("a", 1e308), ("a", 1e308)], [], 0, left_out(WhyNot.REWARD_NOT_FINITE, "a"), id="too much"
    ),
    pytest.param(
        [("a", 1.1e50), ("a", -1.1e50)],
        [],
        0,
        left_out(WhyNot.REWARD_NOT_FINITE, "a"),
        id="more than can be learned from",
    ),
    pytest.param(
        [("a", 0.6e50), ("a", 0.6e50)],
        [],
        0,
        left_out(WhyNot.REWARD_NOT_FINITE, "a"),
        id="more together than can be learned from",
    ),
    pytest.param(
        [("other", math.inf), ("solved", 1)], [SOLVED], 0, ready(1.0), id="what is not counted"
    ),
]


@pytest.mark.parametrize(("given_", "declared", "after_s", "expected"), CASES)
def test_what_a_rollout_is_worth(
    given_: list[tuple[str, float | None]],
    declared: list[DeclaredReward],
    after_s: float,
    expected: Outcome,
) -> None:
    rewards = [reward(name, value) for name, value in given_]

    found = outcome(rewards, declared, ended_at=END, now=END + after_s)

    assert found == expected


def test_two_primaries_are_both_awaited_and_the_next_deadline_told() -> None:
    declared = [
        DeclaredReward(name="a", primary=True, deadline_s=5.0, default=0.5),
        DeclaredReward(name="b", primary=True, deadline_s=9.0),
    ]

    found = [outcome([], declared, ended_at=END, now=END + after) for after in (0, 5, 9)]

    assert found == [
        waiting(105.0, "a", "b"),
        waiting(109.0, "b"),
        left_out(WhyNot.REWARD_MISSING, "b"),
    ]


def test_nothing_is_ready_before_the_end() -> None:
    found = outcome([reward("solved", 1.0)], [SOLVED], ended_at=None, now=END)

    assert found == waiting(None)


def test_the_common_deadline_holds_where_none_is_declared() -> None:
    found = [
        outcome([], declared, ended_at=END, now=END + after, deadline_s=10.0)
        for declared in ([], [DeclaredReward(name="a", primary=True)])
        for after in (0, 10)
    ]

    assert found == [
        waiting(110.0),
        left_out(WhyNot.REWARD_MISSING),
        waiting(110.0, "a"),
        left_out(WhyNot.REWARD_MISSING, "a"),
    ]


def test_rewards_of_decisions_are_kept_apart_and_weighted() -> None:
    rewards = [
        reward("solved", 1.0),
        reward("cheap", 2.0, decision="d1"),
        reward("cheap", 4.0, decision="d2"),
        reward("cheap", 6.0, decision="d2"),
    ]

    found = outcome(rewards, [SOLVED, cheap()], ended_at=END, now=END)

    assert found == ready(1.0, d1=1.0, d2=5.0)
    assert found.worth == 7.0


def test_a_sum_over_run_and_decisions_that_is_no_number_is_left_out() -> None:
    rewards = [reward("a", 1e308), reward("b", 1e308, decision="d1")]

    found = outcome(rewards, [], ended_at=END, now=END)

    assert found == left_out(WhyNot.REWARD_NOT_FINITE, "a", "b")


def test_a_rollout_whose_decisions_alone_were_valued_is_ready() -> None:
    found = outcome([reward("click", 1.0, decision="d1")], [], ended_at=END, now=END)

    assert found == ready(0.0, d1=1.0)


def test_an_inferred_reward_counts_only_when_there_is_no_other() -> None:
    inferred = reward("inferred", 0.75, source="inferred")
    comment = reward("note", None)

    alone = outcome([inferred, comment], [], ended_at=END, now=END)
    beside = outcome([inferred, reward("thumbs", -1.0)], [], ended_at=END, now=END)
    declared = outcome([inferred], [SOLVED], ended_at=END, now=END)

    assert (alone, beside) == (ready(0.75), ready(-1.0))
    assert declared == waiting(160.0, "solved")


def safety(blocked: int, *codes: str) -> list[Reward]:
    parts = penalties(SafetySettings(), blocked, codes)
    return [reward(name, value, source="safety") for name, value in parts]


def test_a_safety_penalty_always_counts_and_makes_nothing_ready() -> None:
    penalty = safety(0, "own.rule")

    with_ = outcome([reward("solved", 1.0), *penalty], [SOLVED], ended_at=END, now=END)
    alone = outcome(penalty, [SOLVED], ended_at=END, now=END)

    assert with_ == ready(0.75)
    assert alone == waiting(160.0, "solved")


NUMBERS = st.floats(-1e3, 1e3)
REWARDS = st.builds(
    reward,
    st.sampled_from(["solved", "cheap", "other"]),
    st.none() | NUMBERS,
    decision=st.sampled_from([None, None, "d1", "d2"]),
    source=st.sampled_from(["api", "user", "inferred"]),
)
DECLARED = st.lists(
    st.builds(
        DeclaredReward,
        name=st.sampled_from(["solved", "cheap"]),
        weight=st.floats(-9, 9),
        primary=st.booleans(),
        deadline_s=st.none() | st.floats(0.5, 50),
        default=st.none() | NUMBERS,
    ),
    max_size=2,
    unique_by=lambda one: one.name,
)


@pytest.mark.slow
@given(st.lists(REWARDS, max_size=6), DECLARED, st.floats(0, 60))
def test_fault_12_no_reward_lifts_a_hard_gated_rollout(
    rewards: list[Reward], declared: list[DeclaredReward], after_s: float
) -> None:
    gated = [*safety(1, "secret_leak.jwt_token"), *rewards]

    found = outcome(gated, declared, ended_at=END, now=END + after_s, ceiling=-0.5)

    assert found.total is None or found.total <= -0.5
    assert all(value <= -0.5 for value in found.decisions.values())


@pytest.mark.slow
@given(st.lists(REWARDS, max_size=6), DECLARED, st.floats(0, 60), st.randoms())
def test_the_order_of_arrival_does_not_matter(
    rewards: list[Reward], declared: list[DeclaredReward], after_s: float, random: object
) -> None:
    found = outcome(rewards, declared, ended_at=END, now=END + after_s)

    again = outcome(rewards[::-1], declared[::-1], ended_at=END, now=END + after_s)

    assert again == found


@given(st.lists(REWARDS, max_size=6), DECLARED, st.floats(0, 60))
def test_who_waits_is_told_when_to_look_again_and_then_does_not_wait_for_the_same(
    rewards: list[Reward], declared: list[DeclaredReward], after_s: float
) -> None:
    now = END + after_s
    found = outcome(rewards, declared, ended_at=END, now=now)
    if found.state is not State.WAITING or found.until is None:
        return

    later = outcome(rewards, declared, ended_at=END, now=found.until)

    assert found.until > now
    assert later.state is not State.WAITING or set(later.names) < set(found.names)


@given(st.lists(REWARDS, max_size=6), DECLARED, st.floats(0, 60))
def test_an_outcome_is_of_one_kind(
    rewards: list[Reward], declared: list[DeclaredReward], after_s: float
) -> None:
    found = outcome(rewards, declared, ended_at=END, now=END + after_s)

    assert (found.total is not None) == (found.state is State.READY)
    assert (found.reason is not None) == (found.state is State.LEFT_OUT)
    assert found.until is None or found.state is State.WAITING
