"""CartPole-v1: two options, four numbers, 1 for every step; an update after every 8 rollouts.

Counted in rollouts until the mean of the last 100 reaches 475, exploration included; and until 20
others, played without exploring, do. A rollout that reaches 500 steps was cut off, which is no
failure.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tests.bench.harness import OURS, Bench, Contestant, Figures, Goal, main
from tests.bench.players import Features, Player, named, ours

LIMIT = 500
SOLVED = 475.0
EVALUATED = 20
EVERY = 8
MOST = 600
NAMES = ("position", "velocity", "angle", "spin")
OPTIONS = named(["left", "right"])
Act = Callable[[list[float]], int]
Seen = npt.NDArray[np.float32]


class Env(Protocol):
    """What is used of an environment of gymnasium."""

    def reset(self, *, seed: int) -> tuple[Seen, dict[str, object]]:
        """Begin a rollout."""

    def step(self, action: int) -> tuple[Seen, float, bool, bool, dict[str, object]]:
        """Act; say what is seen, what it earned, whether it failed, whether it was cut off."""


class Watch:
    """Counts rollouts until the task is solved.

    Args:
        seed: Of the rollouts that it evaluates.
        most: Rollouts after which it gives up.
    """

    def __init__(self, seed: int, *, most: int) -> None:
        self._seed = seed
        self._most = most
        self.lengths: list[int] = []
        self.solved_at: int | None = None
        self.steady_at: int | None = None

    def goes_on(self, length: int, act: Act) -> bool:
        """Take the length of another rollout; say whether to go on."""
        self.lengths.append(length)
        done = len(self.lengths)
        last = self.lengths[-100:]
        if self.steady_at is None and len(last) == 100 and sum(last) >= 100 * SOLVED:
            self.steady_at = done
        if self.solved_at is None and done % EVERY == 0 and self._is_solved(act):
            self.solved_at = done
        return self.steady_at is None and done < self._most

    def figures(self) -> Figures:
        """Return what was counted; what was not solved counts as the most there could be."""
        return {
            "rollouts": float(self.steady_at or self._most),
            "solved": float(self.steady_at is not None),
            "evaluated": float(self.solved_at or self._most),
            "steps": float(sum(self.lengths)),
        }

    def _is_solved(self, act: Act) -> bool:
        """Play until the mean is known to be high enough, or too low."""
        import gymnasium

        env = gymnasium.make("CartPole-v1")
        spare = EVALUATED * (LIMIT - SOLVED)
        for number in range(EVALUATED):
            seen, _ = env.reset(seed=1_000_000 + 1_000 * self._seed + number)
            for step in count(1):
                seen, _, failed, cut_off, _ = env.step(act(seen.tolist()))
                if failed or cut_off:
                    spare -= LIMIT - step
                    break
            if spare < 0:
                return False
        return True


def known(seen: list[float]) -> Features:
    """Return what the policy is told."""
    return dict(zip(NAMES, seen, strict=True))


def play_ours(seed: int, *, most: int = MOST) -> Figures:
    """Play tau-live with default settings."""
    import gymnasium

    env = gymnasium.make("CartPole-v1")
    watch = Watch(seed, most=most)
    with ours(seed) as player:

        def act(seen: list[float]) -> int:
            return int(player.best("push", OPTIONS, known(seen)) == "right")

        for number in count():
            length = lived(player, env, seed=1_000 * seed + number)
            if not watch.goes_on(length, act):
                break
    return watch.figures()


def lived(player: Player, env: Env, *, seed: int) -> int:
    """Return how long one rollout lasted."""
    seen, _ = env.reset(seed=seed)
    player.begin()
    for step in count(1):
        option = player.decide("push", OPTIONS, known(seen.tolist()))
        seen, reward, failed, cut_off, _ = env.step(int(option == "right"))
        player.earn(float(reward))
        if failed or cut_off:
            player.reward(player.end(cut_off=bool(cut_off) and not failed), None)
            return step
    raise AssertionError


def play_sb3(seed: int, *, tuned: bool, most: int = MOST) -> Figures:
    """Play Stable-Baselines3's PPO."""
    from tests.bench.peer_sb3 import learned

    watch = Watch(seed, most=most)
    learned(seed, tuned=tuned, steps=LIMIT * most, rollout_done=watch.goes_on)
    return watch.figures()


BENCH = Bench(
    name="cartpole",
    needs=("gymnasium",),
    goals=(Goal("rollouts", 300, at_least=False), Goal("solved", 1.0)),
    contestants=(
        Contestant(OURS, play_ours),
        Contestant("SB3 PPO, tuned (zoo)", partial(play_sb3, tuned=True), ("stable_baselines3",)),
        Contestant("SB3 PPO, default", partial(play_sb3, tuned=False), ("stable_baselines3",)),
    ),
    note=(
        f"Rollouts until the last 100 of them have a mean of {SOLVED:g}, and ('evaluated') until "
        f"{EVALUATED} others without exploring do; who needs more than {MOST} counts as {MOST}."
    ),
)

if __name__ == "__main__":
    main(BENCH)
