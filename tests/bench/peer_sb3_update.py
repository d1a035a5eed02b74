"""Stable-Baselines3 as a peer: its PPO update and its rollout buffer, on our numbers."""

from time import process_time
from typing import NamedTuple

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.logger import Logger

from tau_live.rl.arrays import BoolArray, FloatArray, IntArray


class Rollout(NamedTuple):
    """What an update learns from, ``[N]`` decisions: the same numbers for both sides."""

    observations: FloatArray
    chosen: IntArray
    logprobs: FloatArray
    advantages: FloatArray
    returns: FloatArray


class UpdatePeer:
    """``PPO.train()`` on a given rollout.

    Args:
        rollout: In its rollout buffer; CartPole's four numbers and two options.
        width: Of the two layers of both networks.
        minibatch: Decisions of one step.
        epochs: Passes over the rollout.
    """

    def __init__(self, rollout: Rollout, *, width: int, minibatch: int, epochs: int) -> None:
        torch.set_num_threads(1)
        self._ppo = PPO(
            "MlpPolicy",
            gymnasium.make("CartPole-v1"),  # for its shapes alone; nobody steps in it
            n_steps=len(rollout.chosen),
            batch_size=minibatch,
            n_epochs=epochs,
            ent_coef=0.01,
            policy_kwargs={"net_arch": [width, width]},
            device="cpu",
            verbose=0,
        )
        self._ppo.set_logger(Logger(folder=None, output_formats=[]))
        buffer = self._ppo.rollout_buffer
        buffer.observations[:, 0] = rollout.observations
        buffer.actions[:, 0, 0] = rollout.chosen
        buffer.log_probs[:, 0] = rollout.logprobs
        buffer.advantages[:, 0] = rollout.advantages
        buffer.returns[:, 0] = rollout.returns
        buffer.values[:, 0] = rollout.returns - rollout.advantages
        buffer.full = True

    def train(self) -> float:
        """Return how long an update took, in seconds."""
        began = process_time()
        self._ppo.train()
        return process_time() - began


class BufferPeer:
    """``RolloutBuffer.compute_returns_and_advantage`` on ``E`` environments of ``T`` steps.

    Args:
        rewards: ``[T, E]``.
        values: ``[T, E]``.
        ended: ``[T, E]``, whether a step was the last of its rollout.
        last_values: ``[E]``.
        gamma: Discount.
        lambda_: Of GAE.
    """

    def __init__(
        self,
        rewards: FloatArray,
        values: FloatArray,
        ended: BoolArray,
        last_values: FloatArray,
        *,
        gamma: float,
        lambda_: float,
    ) -> None:
        torch.set_num_threads(1)
        steps, environments = rewards.shape
        self._buffer = RolloutBuffer(
            steps,
            gymnasium.spaces.Box(-1.0, 1.0, (1,)),
            gymnasium.spaces.Discrete(2),
            device="cpu",
            gae_lambda=lambda_,
            gamma=gamma,
            n_envs=environments,
        )
        self._buffer.rewards[:] = rewards
        self._buffer.values[:] = values
        self._buffer.episode_starts[1:] = ended[:-1]
        self._last_values = torch.from_numpy(last_values)
        self._dones = ended[-1]

    def compute(self) -> float:
        """Return how long it took, in seconds."""
        began = process_time()
        self._buffer.compute_returns_and_advantage(self._last_values, self._dones)
        return process_time() - began

    @property
    def advantages(self) -> FloatArray:
        """``[T, E]``, what it computed."""
        return np.asarray(self._buffer.advantages, dtype=np.float64)
