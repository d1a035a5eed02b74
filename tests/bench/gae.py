"""Generalized advantage estimation against a buffer's loop over steps, and a compiled loop.

Ours is what every update calls: V-trace, here of decisions that today's policy would make alike,
for which it is GAE. Each side has the same numbers in its own form before the clock starts; ours
checks every one of them first, and both must come to the same advantages.
"""

from collections.abc import Callable
from time import process_time
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import BoolArray, FloatArray, IntArray, offsets
from tau_live.rl.gae import Steps, batched_vtrace
from tests.bench.timing import Goal, Measured, Timed, command, installed, interleaved

GAMMA, LAMBDA = 0.99, 0.95
BUFFER = (2_048, 8)
LONG = 1_000_000
ROLLOUTS = 100_000
LOOPED = 1_000
"""So many rollouts are given to the buffer one by one; its time is scaled up to ``ROLLOUTS``."""


class Given(NamedTuple):
    """``R`` rollouts laid end to end, ``N`` steps in all.

    Attributes:
        rewards: ``[N]``.
        values: ``[N]``.
        ended: ``[N]``, whether a step finished its episode.
        bootstraps: ``[R]``.
        lengths: ``[R]``.
    """

    rewards: FloatArray
    values: FloatArray
    ended: BoolArray
    bootstraps: FloatArray
    lengths: IntArray

    def advantages(self) -> FloatArray:
        """Return ``[N]`` what ours computes."""
        return batched_vtrace(self.steps, self.traces, lambda_=LAMBDA).advantages

    @property
    def steps(self) -> Steps:
        """The same as the learner has it: a discount of 0 where an episode is finished."""
        discounts = np.where(self.ended, 0.0, GAMMA)
        return Steps(self.rewards, discounts, self.values, self.bootstraps, self.lengths)

    @property
    def traces(self) -> FloatArray:
        """``[N]``, 1 as no decision is corrected."""
        return np.ones(len(self.rewards))

    def timed(self, *, repeats: int = 1) -> Timed:
        """Return what computes the advantages and says how long it took once, in seconds."""
        steps, traces = self.steps, self.traces

        def ours() -> float:
            began = process_time()
            for _ in range(repeats):
                batched_vtrace(steps, traces, lambda_=LAMBDA)
            return (process_time() - began) / repeats

        return ours


def measure(rounds: int) -> list[Measured]:
    """Return what a buffer, a long stream, and many ragged rollouts take."""
    parts: tuple[Callable[[int], Measured], ...] = (buffer, stream, ragged)
    return [part(rounds) for part in parts]


def given(rng: np.random.Generator, lengths: IntArray, *, ends: float) -> Given:
    """Return rollouts of these lengths; ``ends`` of their steps finish an episode."""
    size = int(lengths.sum())
    return Given(
        rng.normal(size=size),
        rng.normal(size=size),
        rng.random(size) < ends,
        rng.normal(size=len(lengths)),
        lengths,
    )


def buffer(rounds: int) -> Measured:
    """Measure 2048 steps of 8 environments."""
    steps, environments = BUFFER
    numbers = given(np.random.default_rng(0), np.full(environments, steps), ends=0.01)
    theirs = None
    if installed("stable_baselines3"):
        from tests.bench.peer_sb3_update import BufferPeer

        peer = BufferPeer(
            numbers.rewards.reshape(environments, steps).T,
            numbers.values.reshape(environments, steps).T,
            numbers.ended.reshape(environments, steps).T,
            numbers.bootstraps,
            gamma=GAMMA,
            lambda_=LAMBDA,
        )
        theirs = peer.compute
        theirs()
        check(numbers.advantages().reshape(environments, steps).T, peer.advantages)
    return interleaved(
        f"{steps} steps of {environments} environments",
        numbers.timed(repeats=20),
        theirs,
        peer="Stable-Baselines3 RolloutBuffer",
        rounds=rounds,
        goal=Goal(30.0, faster=True),
    )


def stream(rounds: int, *, steps: int = LONG) -> Measured:
    """Measure one long stream of episodes."""
    numbers = given(np.random.default_rng(0), np.array([steps]), ends=0.005)
    theirs = None
    if installed("tianshou"):
        from tests.bench.peer_tianshou import StreamPeer

        following = np.append(numbers.values[1:], numbers.bootstraps)
        peer = StreamPeer(
            numbers.rewards,
            numbers.values,
            np.where(numbers.ended, 0.0, following),
            numbers.ended,
            gamma=GAMMA,
            lambda_=LAMBDA,
        )
        theirs = peer.compute
        theirs()
        check(numbers.advantages(), peer.advantages)
    return interleaved(
        f"one stream of {steps:,} steps",
        numbers.timed(),
        theirs,
        peer="tianshou's compiled loop",
        rounds=rounds,
        goal=Goal(1.6, faster=False),
    )


def ragged(rounds: int, *, rollouts: int = ROLLOUTS, looped: int = LOOPED) -> Measured:
    """Measure many rollouts of 1 to 32 steps."""
    rng = np.random.default_rng(0)
    numbers = given(rng, rng.integers(1, 33, size=rollouts), ends=0.0)
    theirs = None
    if installed("stable_baselines3"):
        theirs = _looped(numbers, looped)
    return interleaved(
        f"{rollouts:,} rollouts of 1 to 32 steps",
        numbers.timed(),
        theirs,
        peer=f"a Stable-Baselines3 buffer for each ({looped:,}, scaled)",
        rounds=rounds,
        goal=Goal(500.0, faster=True),
    )


def _looped(numbers: Given, looped: int) -> Timed:
    from tests.bench.peer_sb3_update import BufferPeer

    starts = offsets(numbers.lengths)
    ours = numbers.advantages()
    peers = []
    for rollout in range(looped):
        steps = slice(starts[rollout], starts[rollout + 1])
        peer = BufferPeer(
            numbers.rewards[steps, None],
            numbers.values[steps, None],
            numbers.ended[steps, None],
            numbers.bootstraps[rollout : rollout + 1],
            gamma=GAMMA,
            lambda_=LAMBDA,
        )
        peer.compute()
        check(ours[steps], peer.advantages[:, 0])
        peers.append(peer)
    scale = len(numbers.lengths) / looped
    return lambda: scale * sum(peer.compute() for peer in peers)


def check(ours: FloatArray, theirs: FloatArray) -> None:
    """Refuse to time two that do not agree; buffers are of float32.

    Raises:
        AssertionError: They differ by more than rounding.
    """
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


main = command("gae", "Generalized advantage estimation", measure)

if __name__ == "__main__":
    main()
