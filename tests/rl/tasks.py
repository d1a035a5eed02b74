"""Small tasks with a known answer, and a loop that plays and learns them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tau_live.rl.features import Encoded, encode
from tau_live.rl.policy import PolicyConfig, sample
from tau_live.rl.ppo import LearnerState, PPOConfig, Trajectories, Update, update


class Step(NamedTuple):
    """One decision as it was made."""

    encoded: Encoded
    chosen: int
    propensity: float
    value: float
    reward: float


class Tile:
    """One step: the option that is as the context says earns 1."""

    options = ("red", "green", "blue")

    def context(self, done: Sequence[int], rng: np.random.Generator) -> dict[str, object]:
        self.wanted = int(rng.integers(3))
        return {"wanted": self.options[self.wanted], "noise": float(rng.normal())}

    def reward(self, done: Sequence[int], chosen: int) -> tuple[float, bool]:
        return float(chosen == self.wanted), True


class TwoSteps:
    """Two steps: only ``left`` and then ``right`` earns 1, and that at the end alone."""

    options = ("left", "right")

    def context(self, done: Sequence[int], rng: np.random.Generator) -> dict[str, object]:
        return {"step": "second" if done else "first", "turned": "left" if 0 in done else "no"}

    def reward(self, done: Sequence[int], chosen: int) -> tuple[float, bool]:
        if not done:
            return 0.0, False
        return float(done[0] == 0 and chosen == 1), True


class Scaled(TwoSteps):
    """Two steps in another unit of reward."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def reward(self, done: Sequence[int], chosen: int) -> tuple[float, bool]:
        reward, finished = super().reward(done, chosen)
        return self.factor * reward, finished


def played(task: Tile | TwoSteps, state: LearnerState, rng: np.random.Generator) -> list[Step]:
    """Return one rollout of the newest version."""
    steps: list[Step] = []
    finished = False
    while not finished:
        done = [step.chosen for step in steps]
        encoded = encode(
            task.context(done, rng),
            [(name, None) for name in task.options],
            width=state.policy.config.width,
        )
        probabilities = state.policy.probabilities(encoded)
        chosen = sample(probabilities, rng)
        reward, finished = task.reward(done, chosen)
        propensity = float(probabilities[chosen])
        steps.append(Step(encoded, chosen, propensity, state.policy.value(encoded), reward))
    return steps


def gathered(
    rollouts: Sequence[Sequence[Step]], *, lags: Sequence[int] | None = None
) -> Trajectories:
    """Return finished rollouts as arrays."""
    steps = [step for rollout in rollouts for step in rollout]
    lengths = np.array([len(rollout) for rollout in rollouts], dtype=np.int64)
    discounts = np.ones(len(steps))
    discounts[np.cumsum(lengths) - 1] = 0.0
    lag = np.zeros(len(rollouts), dtype=np.int64) if lags is None else np.array(lags)
    return Trajectories(
        encoded=[step.encoded for step in steps],
        chosen=np.array([step.chosen for step in steps], dtype=np.int64),
        default=np.full(len(steps), -1),
        propensity=np.array([step.propensity for step in steps]),
        value=np.array([step.value for step in steps]),
        reward=np.array([step.reward for step in steps]),
        discount=discounts,
        bootstrap=np.zeros(len(lengths)),
        length=lengths,
        version_lag=np.repeat(lag, lengths),
    )


class Life(NamedTuple):
    """What a learner went through."""

    state: LearnerState
    rewards: list[float]
    updates: list[Update]


def lived(
    task: Tile | TwoSteps,
    *,
    rollouts: int,
    seed: int,
    config: PPOConfig | None = None,
    policy_config: PolicyConfig | None = None,
) -> Life:
    """Return what comes of playing and learning, an update for every 8 rollouts, window 256."""
    rng = np.random.default_rng(seed)
    state = LearnerState.untrained(policy_config or PolicyConfig())
    history: list[list[Step]] = []
    made_by: list[int] = []
    updates: list[Update] = []
    for _ in range(rollouts // 8):
        for _ in range(8):
            history.append(played(task, state, rng))
            made_by.append(state.counts.updates)
        first = max(0, len(history) - 264)
        lags = [state.counts.updates - version for version in made_by]
        window = gathered(history[first:-8], lags=lags[first:-8]) if len(history) > 8 else None
        updates.append(
            update(
                state,
                gathered(history[-8:], lags=lags[-8:]),
                window=window,
                config=config or PPOConfig(),
                rng=rng,
            )
        )
        state = updates[-1].state
    return Life(state, [sum(step.reward for step in steps) for steps in history], updates)
