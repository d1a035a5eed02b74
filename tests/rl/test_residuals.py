"""Drift in a learner's own residuals: silent while it learns, soon heard when the world changes."""

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

import numpy as np
import pytest

from tau_live.rl.batch import Trajectories
from tau_live.rl.config import PPOConfig
from tau_live.rl.drift import Alarm, Direction, Drift, DriftRule, forward_residuals
from tau_live.rl.policy import PolicyConfig
from tau_live.rl.ppo import update
from tau_live.rl.state import LearnerState
from tests.rl.tasks import Step, Tile, TwoSteps, gathered, played

RULE = DriftRule()
CONFIG = PPOConfig()


class Kinds(Tile):
    """One step: each option succeeds at a rate that the kind of question determines."""

    def __init__(self, seed: int, *, change_after: float = np.inf) -> None:
        self.rates = np.random.default_rng([seed, 99]).random((5, 3))
        self.change_after = change_after
        self.count = 0

    def context(self, done: Sequence[int], rng: np.random.Generator) -> dict[str, object]:
        self.count += 1
        self.kind = int(rng.integers(5))
        self.drawn = float(rng.random())
        return {"kind": f"k{self.kind}"}

    def reward(self, done: Sequence[int], chosen: int) -> tuple[float, bool]:
        if self.count > self.change_after:
            chosen = (chosen + 1) % len(self.options)
        return float(self.drawn < self.rates[self.kind, chosen]), True


class Heard(NamedTuple):
    """An alarm, and after how many rollouts it was raised."""

    rollouts: int
    alarm: Alarm


def watched(
    task: Kinds | TwoSteps, *, rollouts: int, seed: int, config: PPOConfig = CONFIG
) -> list[Heard]:
    """Return the alarms of a learner that begins with nothing; an update for every 8 rollouts."""
    rng = np.random.default_rng(seed)
    state = LearnerState.initial(PolicyConfig())
    history: list[list[Step]] = []
    drift, heard = Drift.none(), []
    for _ in range(rollouts // 8):
        history += [played(task, state, rng) for _ in range(8)]
        fresh = gathered(history[-8:])
        found = forward_residuals(state, fresh, config=config)
        names = [task.options[chosen] for chosen in fresh.chosen]
        pairs = zip(names, found.tolist(), strict=True)
        known = [(name, one) for name, one in pairs if isfinite(one)]
        drift, alarms = drift.including(known, RULE)
        heard += [Heard(len(history), alarm) for alarm in alarms]
        window = gathered(history[-264:-8]) if len(history) > 8 else None
        state = update(state, fresh, window=window, config=config, rng=rng).state
    return heard


def test_nothing_is_expected_before_anything_is_known() -> None:
    state = LearnerState.initial(PolicyConfig())
    fresh = gathered([played(Tile(), state, np.random.default_rng(0))])

    assert np.isnan(forward_residuals(state, fresh, config=CONFIG)).all()


def test_what_was_not_chosen_by_us_says_nothing() -> None:
    state, fresh = taught()
    fresh.propensity[0] = np.nan

    found = forward_residuals(state, fresh, config=CONFIG)

    assert np.isnan(found).tolist() == [True] + [False] * (len(found) - 1)


def test_it_is_what_came_less_what_the_option_earned_before() -> None:
    """A context without features, and options far apart: the regression is their mean, shrunk."""
    state, fresh = taught()

    found = forward_residuals(state, fresh, config=CONFIG)

    expected = fresh.reward - found
    assert np.abs(expected[fresh.reward == 1.0] - 1.0).mean() < 0.35
    assert np.abs(expected[fresh.reward == 0.0]).mean() < 0.35


def taught() -> tuple[LearnerState, Trajectories]:
    task, rng = Tile(), np.random.default_rng(1)
    state = LearnerState.initial(PolicyConfig())
    lessons = gathered([played(task, state, rng) for _ in range(200)])
    taught_state = update(state, lessons, config=CONFIG, rng=rng).state
    return taught_state, gathered([played(task, state, rng) for _ in range(40)])


@pytest.mark.slow
def test_a_learner_that_gets_better_raises_no_alarm() -> None:
    """Without a change: 3,200 decisions; the second task is learned to perfection in 100."""
    heard = [
        alarm
        for seed in range(2)
        for alarm in (
            *watched(Kinds(seed), rollouts=800, seed=seed),
            *watched(TwoSteps(), rollouts=400, seed=seed),
        )
    ]

    assert not heard


@pytest.mark.slow
def test_permuted_rewards_are_found_within_a_hundred_decisions_of_an_option() -> None:
    """By charts alone: recent evidence would leave an option before its chart is sure.

    Not in the second world, whose old choices fall least, from 0.67 to 0.42 a run.
    """
    alone = PPOConfig(fading=0.0)
    heard = [
        watched(Kinds(seed, change_after=400), rollouts=640, seed=seed, config=alone)
        for seed in range(4)
    ]

    firsts = [alarms[0] for alarms in heard if alarms]
    assert len(firsts) >= 3
    assert {first.alarm.direction for first in firsts} == {Direction.WORSE}
    assert all(first.alarm.since <= 100 and 400 < first.rollouts <= 600 for first in firsts)
