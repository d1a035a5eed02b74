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
from tau_live.rl.products import Floats
from tau_live.rl.towers import Shape, viewed


class Rollout(NamedTuple):
    """What an update learns from, ``[N]`` decisions: the same numbers for both sides."""

    observations: FloatArray
    chosen: IntArray
    logprobs: FloatArray
    advantages: FloatArray
    returns: FloatArray


class UpdatePeer:
    """``PPO.train()`` from given parameters, on a given rollout.

    Args:
        shape: Of both networks; CartPole's inputs and outputs.
        rollout: In its rollout buffer.
        minibatch: Decisions of one step.
        epochs: Passes over the rollout.
        entropy: Weight of the entropy.
    """

    def __init__(
        self, shape: Shape, rollout: Rollout, *, minibatch: int, epochs: int, entropy: float
    ) -> None:
        torch.set_num_threads(1)
        self._shape = shape
        self._ppo = PPO(
            "MlpPolicy",
            gymnasium.make("CartPole-v1"),  # for its shapes alone; nobody steps in it
            n_steps=len(rollout.chosen),
            batch_size=minibatch,
            n_epochs=epochs,
            ent_coef=entropy,
            policy_kwargs={"net_arch": [shape.hidden, shape.hidden]},
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

    def load(self, flat: Floats) -> None:
        """Begin with these parameters, ours."""
        with torch.no_grad():
            for own, found in zip(self._parameters(), _as_torch(flat, self._shape), strict=True):
                own.copy_(torch.from_numpy(np.ascontiguousarray(found)))

    def parameters(self) -> list[FloatArray]:
        """Return its parameters, in the order of ``ours``."""
        return [own.detach().numpy().astype(np.float64) for own in self._parameters()]

    def ours(self, flat: Floats) -> list[FloatArray]:
        """Return our parameters as its are shaped and ordered."""
        return [np.asarray(found, dtype=np.float64) for found in _as_torch(flat, self._shape)]

    def train(self) -> float:
        """Return how long an update took, in seconds."""
        began = process_time()
        self._ppo.train()
        return process_time() - began

    def _parameters(self) -> list[torch.nn.Parameter]:
        policy = self._ppo.policy
        nets = (policy.mlp_extractor.policy_net, policy.mlp_extractor.value_net)
        layers = [net[place] for net in nets for place in (0, 2)]
        layers += [policy.action_net, policy.value_net]
        return [part for layer in layers for part in (layer.weight, layer.bias)]


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


def _as_torch(flat: Floats, shape: Shape) -> list[Floats]:
    towers, width = viewed(flat, shape), shape.hidden
    found: list[Floats] = []
    for tower in range(2):
        part = slice(tower * width, (tower + 1) * width)
        found += [towers.first[1:, part].T, towers.first[0, part]]
        found += [towers.second[tower].T, towers.second_bias[part]]
    found += [towers.actor.T, towers.actor_bias]
    return [*found, towers.critic[None, :], towers.critic_bias]
