"""Stable-Baselines3's PPO as a peer in tasks of several steps."""

import queue
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3 import PPO

from tests.bench.players import Features, Options
from tests.bench.vectors import Vectors

Float32Array = npt.NDArray[np.float32]


class Seen(NamedTuple):
    """What follows an action."""

    observation: Float32Array
    reward: float
    ended: bool


class Over(Exception):  # noqa: N818  # a signal, not an error
    """The task has no more runs."""


class Steps(gymnasium.Env):  # type: ignore[misc]  # it has no stubs
    """The decisions of a task as an environment, which learns in a thread while runs are played.

    An observation is which point decides, and its context. An action beyond a point's options
    counts from the first again.

    Args:
        points: The number of options of each point.
        vectors: Makes vectors of each point's contexts.
        seed: Of everything.
        steps: Decisions between two updates of PPO; its other settings are its defaults.
    """

    def __init__(
        self,
        points: Mapping[str, int],
        vectors: Mapping[str, Vectors],
        *,
        seed: int,
        steps: int,
    ) -> None:
        torch.set_num_threads(1)
        self._places = {point: place for place, point in enumerate(points)}
        self._vectors = vectors
        self._size = len(points) + max(known.width for known in vectors.values())
        self.observation_space = gymnasium.spaces.Box(-10.0, 10.0, (self._size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(max(points.values()))
        self._seen: queue.SimpleQueue[Seen | None] = queue.SimpleQueue()
        self._actions: queue.SimpleQueue[int | Exception] = queue.SimpleQueue()
        self._model = PPO("MlpPolicy", self, n_steps=steps, seed=seed, device="cpu")
        self._learner = threading.Thread(target=self._learn, daemon=True)
        self._learner.start()

    def begin(self) -> None: ...

    def decide(
        self, point: str, options: Options, context: Features, *, default: str | None = None
    ) -> str:
        vector = self._vectors[point].of(context)
        observation = np.zeros(self._size, dtype=np.float32)
        observation[self._places[point]] = 1.0
        observation[len(self._places) :][: len(vector)] = vector
        self._seen.put(Seen(observation, 0.0, ended=False))
        action = self._actions.get()
        if isinstance(action, Exception):
            raise action
        return list(options)[action % len(options)]

    def earn(self, value: float) -> None:
        raise NotImplementedError

    def end(self, *, cut_off: bool = False) -> str:
        return ""

    def reward(self, run: str, value: float | None) -> None:
        self._seen.put(Seen(np.zeros(self._size, dtype=np.float32), value or 0.0, ended=True))

    def best(self, point: str, options: Options, context: Features) -> str:
        return self.decide(point, options, context)

    def stop(self) -> None:
        """Stop learning: there are no more runs."""
        self._seen.put(None)
        self._learner.join()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32Array, dict[str, Any]]:
        super().reset(seed=seed)
        return self._next().observation, {}

    def step(self, action: np.int64) -> tuple[Float32Array, float, bool, bool, dict[str, Any]]:
        self._actions.put(int(action))
        found = self._next()
        return found.observation, found.reward, found.ended, False, {}

    def _next(self) -> Seen:
        found = self._seen.get()
        if found is None:
            raise Over
        return found

    def _learn(self) -> None:
        try:
            self._model.learn(1_000_000_000)
        except Over:
            pass
        except Exception as error:  # the task waits for an action
            self._actions.put(error)
