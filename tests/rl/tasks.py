"""Small tasks with a known answer, and a loop that plays and learns them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tau_live.rl.batch import Trajectories
from tau_live.rl.config import PPOConfig
from tau_live.rl.features import Encoded, encode
from tau_live.rl.policy import PolicyConfig, sample
from tau_live.rl.ppo import Circumstances, Update, update
from tau_live.rl.state import LearnerState


class Step(NamedTuple):
    """One decision as it was made."""

    encoded: Encoded
    chosen: int
    propensity: float
    value: float
    reward: float
    cost: float = float("nan")


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


class Product:
    """One step: which option earns 1 hangs on the sign of the product of two numbers."""

    options: tuple[str, ...] = ("same", "other")

    def context(self, done: Sequence[int], rng: np.random.Generator) -> dict[str, object]:
        x, y = rng.normal(size=2).tolist()
        self.best = int(x * y < 0.0)
        return {"x": x, "y": y}

    def reward(self, done: Sequence[int], chosen: int) -> tuple[float, bool]:
        return float(chosen == self.best), True


class Rings(Product):
    """One step: each option is the best on a ring of its own."""

    options = ("inner", "middle", "outer")

    def context(self, done: Sequence[int], rng: np.random.Generator) -> dict[str, object]:
        self.best = int(rng.integers(3))
        radius = 1.0 + self.best + 0.1 * float(rng.normal())
        turn = float(rng.uniform(0.0, 2.0 * np.pi))
        return {"x": radius * np.cos(turn), "y": radius * np.sin(turn)}


class Slopes(Product):
    """One step: an option earns the sum of four numbers, each times a weight of the option's."""

    options = ("first", "second", "third")

    def __init__(self) -> None:
        self.weights = np.random.default_rng(5).normal(size=(4, 3))

    def context(self, done: Sequence[int], rng: np.random.Generator) -> dict[str, object]:
        numbers = rng.normal(size=4)
        self.worth = numbers @ self.weights
        self.best = int(self.worth.argmax())
        self.luck = float(rng.normal())
        return {f"x{place}": float(number) for place, number in enumerate(numbers)}

    def reward(self, done: Sequence[int], chosen: int) -> tuple[float, bool]:
        return float(self.worth[chosen]) + self.luck, True


class Worth:
    """Ten steps: each earns what a bent function of its context says, whatever is chosen."""

    options = ("left", "right")

    def context(self, done: Sequence[int], rng: np.random.Generator) -> dict[str, object]:
        x, y = rng.normal(size=2).tolist()
        self.worth = float(np.sign(x * y))
        return {"x": x, "y": y}

    def reward(self, done: Sequence[int], chosen: int) -> tuple[float, bool]:
        return self.worth, len(done) == 9


class Chances:
    """One step without a context: every option earns 1 as often as its chance says.

    The first options' earliest tries may all fail, and each option may cost something.
    """

    options = ("good", "bad")

    def __init__(
        self,
        chances: tuple[float, float],
        *,
        unlucky: int = 0,
        costs: tuple[float | None, float | None] = (None, None),
    ) -> None:
        self.chances = chances
        self.unlucky = unlucky
        self.costs = costs

    def context(self, done: Sequence[int], rng: np.random.Generator) -> dict[str, object]:
        self.luck = float(rng.random())
        return {}

    def reward(self, done: Sequence[int], chosen: int) -> tuple[float, bool]:
        if chosen == 0 and self.unlucky:
            self.unlucky -= 1
            return 0.0, True
        return float(self.luck < self.chances[chosen]), True


Task = Tile | TwoSteps | Product | Worth | Chances


def cost_of(task: Task, chosen: int) -> float:
    """Return what an option costs, NaN where nobody knows."""
    cost = task.costs[chosen] if isinstance(task, Chances) else None
    return float("nan") if cost is None else cost


def played(task: Task, state: LearnerState, rng: np.random.Generator) -> list[Step]:
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
        value, cost = state.policy.judge(encoded).value, cost_of(task, chosen)
        steps.append(Step(encoded, chosen, propensity, value, reward, cost))
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
        cost=np.array([step.cost for step in steps]),
    )


class Life(NamedTuple):
    """What a learner went through; of a rollout's choices the first."""

    state: LearnerState
    rewards: list[float]
    choices: list[int]
    updates: list[Update]


def lived(
    task: Task,
    *,
    rollouts: int,
    seed: int,
    config: PPOConfig | None = None,
    policy_config: PolicyConfig | None = None,
    multiplier: float = 0.0,
    every: int = 8,
    window: int = 256,
) -> Life:
    """Return what comes of playing and learning, an update for every so many rollouts."""
    rng = np.random.default_rng(seed)
    state = LearnerState.initial(policy_config or PolicyConfig())
    history: list[list[Step]] = []
    made_by: list[int] = []
    updates: list[Update] = []
    for _ in range(rollouts // every):
        for _ in range(every):
            history.append(played(task, state, rng))
            made_by.append(state.counts.updates)
        first = max(0, len(history) - every - window)
        lags = [state.counts.updates - version for version in made_by]
        older = history[first:-every]
        updates.append(
            update(
                state,
                gathered(history[-every:], lags=lags[-every:]),
                window=gathered(older, lags=lags[first:-every]) if older else None,
                config=config or PPOConfig(),
                now=Circumstances(multiplier),
                rng=rng,
            )
        )
        state = updates[-1].state
    rewards = [sum(step.reward for step in steps) for steps in history]
    return Life(state, rewards, [steps[0].chosen for steps in history], updates)
