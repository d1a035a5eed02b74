"""Recent evidence decides where the world changes, and all evidence everywhere else."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tau_live.rl.config import PPOConfig
from tau_live.rl.policy import PolicyConfig
from tau_live.rl.state import LearnerState, Recency
from tests.rl.digests import digest
from tests.rl.tasks import Tile, lived

SMALL = PolicyConfig(width=64, cross_width=256, ridge_width=64, net_width=0, kernels=16)


class Turning(Tile):
    """One step: from some run on, every option is worth what the next one was."""

    def __init__(self, first: int = 10**9) -> None:
        self.first = first
        self.count = 0

    def context(self, done: Sequence[int], rng: np.random.Generator) -> dict[str, object]:
        self.count += 1
        self.luck = float(rng.random())
        return super().context(done, rng)

    def reward(self, done: Sequence[int], chosen: int) -> tuple[float, bool]:
        turned = self.count > self.first
        right = chosen == (self.wanted + turned) % 3
        return float(self.luck < (0.8 if right else 0.2)), True


class Long(Tile):
    """Many steps, and at the end a reward: the share of them that were right."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.right = 0

    def context(self, done: Sequence[int], rng: np.random.Generator) -> dict[str, object]:
        self.right = self.right if done else 0
        return super().context(done, rng)

    def reward(self, done: Sequence[int], chosen: int) -> tuple[float, bool]:
        self.right += chosen == self.wanted
        is_last = len(done) + 1 == self.steps
        return is_last * self.right / self.steps, is_last


def test_recent_evidence_takes_over_beyond_chance_and_gives_way_once_it_is_no_better() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=400)

    found = [Recency().including(noise - 0.1)]
    for shift in (1.0, 0.0, -1.0):
        found.append(found[-1].including(noise[:60] + shift))

    assert [recency.serves for recency in found] == [False, True, True, False]


def test_gain_is_weighted_toward_the_newest() -> None:
    found = Recency().including(np.array([3.0, -2.0]))

    assert found.gain == pytest.approx(3.0 * 0.995 - 2.0)
    assert found.squares == pytest.approx(9.0 * 0.995 + 4.0)


def test_what_is_preferred_decides_until_it_is_found_to_be_no_better() -> None:
    found = Recency(-4.0, 9.0).prefer()

    assert found.serves
    assert found.including(np.array([0.1])).serves
    assert not found.including(np.array([-1.1])).serves


@pytest.mark.slow
def test_a_world_that_turns_is_followed_sooner_with_recent_evidence() -> None:
    def earned(fading: float) -> float:
        lives = [
            lived(
                Turning(400),
                rollouts=800,
                seed=seed,
                policy_config=SMALL,
                config=PPOConfig(fading=fading),
            )
            for seed in range(10, 13)
        ]
        return float(np.mean([life.rewards[400:] for life in lives]))

    assert earned(PPOConfig().fading) > earned(0.0) + 0.05


@pytest.mark.slow
def test_a_world_that_stands_still_is_left_to_all_evidence() -> None:
    lives = [
        lived(Turning(), rollouts=400, seed=seed, policy_config=SMALL) for seed in range(10, 14)
    ]

    assert [life.state.recency.serves for life in lives] == [False] * 4


def test_rollouts_count_once_and_long_ones_not_at_all() -> None:
    short, long = (
        lived(Long(steps), rollouts=24, seed=3, policy_config=SMALL, window=0).state
        for steps in (4, 5)
    )

    kept = 0.998**8
    assert short.recent_fit.samples == pytest.approx(4 * 8 * (1.0 + kept + kept**2))
    assert short.recency.squares > 0.0
    assert long.recency == Recency()


@pytest.mark.slow
def test_long_rollouts_are_learned_from_without_a_relapse() -> None:
    config = replace(SMALL, kernels=0)
    lives = [lived(Long(40), rollouts=104, seed=seed, policy_config=config) for seed in range(3)]

    by_update = [np.mean(np.reshape(life.rewards, (-1, 8)), axis=1) for life in lives]
    assert np.min(np.array(by_update)[:, 6:]) > 0.5


@pytest.mark.slow
def test_what_was_forgotten_is_still_in_recent_evidence() -> None:
    state = lived(Turning(), rollouts=160, seed=1, policy_config=SMALL).state

    found = state.forget(np.arange(64), penalty=4.0, rng=np.random.default_rng(0))

    assert not found.action_fit.reward.any()
    assert found.serving_fit is found.action_fit
    np.testing.assert_array_equal(found.recent_fit.reward, state.recent_fit.reward)


def test_a_checkpoint_of_before_has_all_evidence_for_recent() -> None:
    state = lived(Turning(), rollouts=32, seed=1, policy_config=SMALL).state
    earlier = {
        name: array
        for name, array in state.arrays().items()
        if name != "recency" and not name.startswith("recent_")
    }

    found = LearnerState.from_arrays(earlier)

    assert found.recency == Recency()
    assert digest(found.recent_fit.arrays("")) == digest(state.action_fit.arrays(""))


@pytest.mark.parametrize("value", [[0.0, -1.0, 0.0], [0.0, 0.0, 0.5], [np.nan, 0.0, 0.0], [0.0]])
def test_a_damaged_comparison_is_refused(value: list[float]) -> None:
    arrays = LearnerState.initial(SMALL).arrays() | {"recency": np.array(value)}

    with pytest.raises(ValueError, match="recency"):
        LearnerState.from_arrays(arrays)
