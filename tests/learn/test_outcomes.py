"""What rollouts can be worth, and when that is known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tau_live.core.records import Assigned, LearnableRollout, RolloutStatus
from tau_live.core.settings import InferReward, Settings
from tau_live.core.settings.tables import DeclaredReward
from tau_live.learn.promotion.outcomes import is_settled, may_give_up, patience
from tau_live.record.rewards import State, declared_range, is_outside, outcome, reward_range
from tau_live.rl.sequential import Difference
from tau_live.rl.verdict import Rule
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
    ("sources", "span", "expected"),
    [
        pytest.param(("api",), None, False, id="all that is declared, at its highest"),
        pytest.param(("api", "user"), None, True, id="twice as much as is declared"),
        pytest.param(("api", "user"), (0.0, 2.4), False, id="within the range that is set"),
    ],
)
def test_a_total_is_outside_the_range_in_force_but_not_by_rounding(
    sources: tuple[str, ...], span: tuple[float, float] | None, expected: bool
) -> None:
    declared = tuple(
        DeclaredReward(name=name, weight=weight, range=(0.0, 1.0))
        for name, weight in (("a", 0.1), ("b", 0.5), ("c", 0.6))
    )
    settings = Settings(rewards=declared, reward_range=span)
    rewards = [
        reward(1.0, name=one.name, source=source, decision_id=decision_id)
        for source in sources
        for one, decision_id in zip(declared, ("a:attempt-1:decision-1", None, None), strict=True)
    ]

    assert is_outside(LearnableRollout(ENDED, [], rewards), settings) is expected


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


def took(rate: float, delays: list[float], *, now: float) -> list[tuple[float, float | None]]:
    """Return when rollouts began that come at a rate, and what is known now of their rewards."""
    began = [at / rate for at in range(len(delays))]
    return [
        (start, delay if start + delay <= now else None)
        for start, delay in zip(began, delays, strict=True)
        if start <= now
    ]


def test_the_wait_follows_the_delays_that_were_seen() -> None:
    rng = np.random.default_rng(1)
    waits = []
    for usual_s in (0.1, 5.0, 300.0):
        delays = usual_s * rng.uniform(0.5, 1.5, 2_000)
        delays[rng.random(2_000) < 0.2] = math.inf
        rows = took(0.2, delays.tolist(), now=10_000.0)
        waits.append(patience(rows, now=10_000.0, most_s=86_400.0))

    assert waits == [1.0, 8.0, 512.0]


def test_rewards_that_cannot_be_there_yet_are_not_taken_for_lost() -> None:
    """Half of the rewards come at once, the others after an hour: nobody knows in the first."""
    delays = [0.1, 3_600.0] * 2_000
    early, late = (
        patience(took(1.0, delays, now=now), now=now, most_s=86_400.0) for now in (900.0, 30_000.0)
    )

    assert late == 4_096.0
    assert early is not None  # what is quick is all that was seen


def test_without_enough_rewards_or_a_wait_below_the_deadline_there_is_none() -> None:
    rows = took(1.0, [0.1] * 99, now=1e6)

    assert patience(rows, now=1e6, most_s=86_400.0) is None
    assert patience([], now=1e6, most_s=86_400.0) is None
    assert patience(took(1.0, [30.0] * 500, now=1e6), now=1e6, most_s=20.0) is None


def test_nothing_is_given_up_that_its_deadline_gives_a_reward() -> None:
    click = DeclaredReward(name="click", default=0.0)
    assert may_give_up(Settings())
    assert not may_give_up(Settings(rewards=(click,)))
    assert not may_give_up(Settings(infer_reward=InferReward.DEADLINE))


def counted(rng: np.random.Generator, number: int) -> tuple[list[float], list[bool]]:
    """Return what is counted of a stream of equal arms, in its order, with looks on the way.

    A fifth of the rewards never comes, and failures take eight times as long as successes.
    """
    began = np.arange(number) / 0.2
    learner = rng.random(number) < 0.5
    rewards = (rng.random(number) < 0.5).astype(float)
    delays = rng.lognormal(math.log(2.0), 1.0, number) * np.where(rewards > 0.0, 1.0, 8.0)
    delays[rng.random(number) < 0.2] = math.inf
    known: list[float] = []
    for now in began[64::64].tolist():
        some = slice(0, int(now * 0.2))
        late = began[some] + delays[some] > now
        rows = [
            (start, None if is_late else delay)
            for start, delay, is_late in zip(
                began[some].tolist(), delays[some].tolist(), late.tolist(), strict=True
            )
        ]
        wait_s = patience(rows, now=now, most_s=86_400.0)
        for at in range(len(known), len(rows)):
            if not late[at]:
                known.append(rewards[at])
            elif wait_s is not None and began[at] + wait_s < now:
                known.append(math.nan)
            else:
                break
    return known, learner[: len(known)].tolist()


@pytest.mark.slow
def test_giving_up_promotes_no_learner_that_is_not_better() -> None:
    streams, number, promoted, reached = 200, 2_000, 0, 0
    for seed in range(streams):
        known, learner = counted(np.random.default_rng([seed, 20]), number)
        bounds = Difference.within(0.0, 1.0).path_bounds(
            np.array(known),
            learner=np.array(learner),
            shares=np.full(len(known), 0.5),
            alpha=Rule().alpha_of(1),
            every=8,
        )
        promoted += bool((bounds.lower[bounds.rollouts >= 100] > 0.0).any())
        reached += len(known)

    assert promoted <= 0.02 * streams  # 2 are expected of 200 at most, if it is so once in 100
    assert reached >= 0.8 * streams * number
