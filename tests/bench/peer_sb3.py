"""Stable-Baselines3's PPO as a peer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

TUNED: dict[str, Any] = {
    "n_steps": 32,
    "batch_size": 256,
    "gae_lambda": 0.8,
    "gamma": 0.98,
    "n_epochs": 20,
    "ent_coef": 0.0,
    "learning_rate": lambda left: 0.001 * left,
    "clip_range": lambda left: 0.2 * left,
}
"""What rl-baselines3-zoo found best for CartPole-v1, with 8 environments and 100,000 steps."""

TUNED_STEPS = 100_000
Act = Callable[[list[float]], int]


def learned(
    seed: int, *, tuned: bool, steps: int, rollout_done: Callable[[int, Act], bool]
) -> None:
    """Learn CartPole-v1 until ``rollout_done`` says that it is enough.

    Args:
        seed: Of everything.
        tuned: With the settings of the zoo, else with the defaults and one environment.
        steps: Most steps.
        rollout_done: Told the length of each rollout, with what acts by now; stops if false.
    """
    torch.set_num_threads(1)
    env = make_vec_env("CartPole-v1", n_envs=8 if tuned else 1, seed=seed)
    model = PPO("MlpPolicy", env, seed=seed, device="cpu", **(TUNED if tuned else {}))

    def act(seen: list[float]) -> int:
        return int(model.predict(np.array(seen, dtype=np.float32), deterministic=True)[0])

    class Told(BaseCallback):  # type: ignore[misc]  # it has no stubs
        def _on_step(self) -> bool:
            ended = [int(i["episode"]["l"]) for i in self.locals["infos"] if "episode" in i]
            return all(rollout_done(length, act) for length in ended)

    model.learn(TUNED_STEPS if tuned and steps < TUNED_STEPS else steps, callback=Told())
    env.close()
