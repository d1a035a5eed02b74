"""Who plays: tau-live through its public door, and peers that learn from one step at a time."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

import tau_live
from tau_live.core.settings import Learner as Where
from tau_live.core.settings import Settings
from tau_live.runtime.api import Run, RunContext
from tau_live.store.sqlite.store import SqliteStore
from tests.bench.vectors import FloatArray

Features = Mapping[str, object]
Options = Mapping[str, Features | None]
PATIENCE_S = 600.0


class Player(Protocol):
    """Something that decides in runs, and is told afterwards what they were worth."""

    def begin(self) -> None:
        """Begin a run; there is one at a time."""

    def decide(
        self, point: str, options: Options, context: Features, *, default: str | None = None
    ) -> str:
        """Choose within the run; peers know of no default."""

    def earn(self, value: float) -> None:
        """Value the last decision by itself, at once."""

    def end(self, *, cut_off: bool = False) -> str:
        """End the run and return its id."""

    def reward(self, run: str, value: float | None) -> None:
        """Value a run that has ended, whenever that is known; ``None`` is in its decisions."""

    def best(self, point: str, options: Options, context: Features) -> str:
        """Return what it takes for best by now, without exploring and without learning."""


class TauLive:
    """Plays through the public door with default settings, in a store of its own.

    Updates are made inside ``flush()``, as soon as one is due; with the settings of production a
    thread makes them, at times that differ from machine to machine.
    """

    def __init__(self, folder: Path, *, seed: int, window: int | None = None) -> None:
        os.environ["TAU_LIVE_RL"] = "1"
        tau_live.detach()
        self.settings = Settings(
            store=folder / "store.sqlite",
            seed=seed,
            stream="bench",
            learner=Where.FLUSH,
            decide_deadline_ms=60_000.0,
        )
        if window is not None:
            self.settings = replace(self.settings, window=window)
        tau_live.attach(self.settings)
        self._context: RunContext | None = None
        self._run: Run | None = None
        self._decision: str = ""
        self._since = 0

    def begin(self) -> None:
        self._context = tau_live.run("task")
        self._run = self._context.__enter__()

    def decide(
        self, point: str, options: Options, context: Features, *, default: str | None = None
    ) -> str:
        choice = self._running().decide(point, options, context=context, default=default)
        if choice.source != "policy":
            raise RuntimeError(f"tau-live did not decide: {tau_live.snapshot()['gate']}")
        self._decision = choice.id
        return str(choice.option)

    def earn(self, value: float) -> None:
        if not tau_live.reward(value, decision=self._decision, name="step", key=self._decision):
            raise RuntimeError("tau-live refused a reward")

    def end(self, *, cut_off: bool = False) -> str:
        run, context = self._running(), self._context
        error = TimeoutError("cut off") if cut_off else None
        if context is not None:
            context.__exit__(type(error) if error else None, error, None)
        self._run = self._context = None
        return run.id

    def reward(self, run: str, value: float | None) -> None:
        if value is not None and not tau_live.reward(value, run=run):
            raise RuntimeError("tau-live refused a reward")
        self._since += 1
        if self._since >= self.settings.update_interval:
            self._since = 0
            self.settle()

    def settle(self) -> None:
        """Store what is known and make the update that is due."""
        if not tau_live.flush(PATIENCE_S):
            raise RuntimeError(f"tau-live did not settle: {tau_live.snapshot()['gate']}")

    def best(self, point: str, options: Options, context: Features) -> str:
        probabilities = self.probabilities(point, options, context)
        return list(options)[int(probabilities.argmax())]

    def probabilities(self, point: str, options: Options, context: Features) -> FloatArray:
        """Return how likely each option would be chosen now, exploration included."""
        runtime = tau_live.attach()
        if runtime is None:
            raise RuntimeError("tau-live is off")
        decided = runtime._decider.choose(
            "best", point=point, options=list(options.items()), context=context, default=None
        )
        return np.array(decided.probabilities)

    def versions(self) -> int:
        """Return how many versions of policies were made."""
        store = SqliteStore.open(self.settings.store)
        try:
            return store.policies.next_version() - 1
        finally:
            store.close()

    def _running(self) -> Run:
        if self._run is None:
            raise RuntimeError("no run has begun")
        return self._run


@contextmanager
def ours(seed: int, *, window: int | None = None) -> Iterator[TauLive]:
    """Attach tau-live in a temporary folder, and detach it afterwards.

    Args:
        seed: Of every draw.
        window: Earlier rollouts that an update replays; ``None`` for the default.
    """
    with tempfile.TemporaryDirectory(prefix="tau-live-bench-") as folder:
        try:
            yield TauLive(Path(folder), seed=seed, window=window)
        finally:
            tau_live.detach()


class Learner(Protocol):
    """A peer: learns from one step at a time, at one decision point."""

    def choose(self, options: Options, context: Features) -> tuple[int, float]:
        """Return which option, and with what probability it was chosen."""

    def learn(self, step: "Step", value: float) -> None:
        """Learn what a step was worth."""

    def best(self, options: Options, context: Features) -> int:
        """Return which option it takes for best."""


class Step(NamedTuple):
    """A decision as a peer made it."""

    options: Options
    context: Features
    chosen: int
    propensity: float


class EachStep:
    """A peer in a task of several steps: each is given what the run was worth from there on.

    Args:
        make: Makes a learner for a decision point.
    """

    def __init__(self, make: Callable[[str], Learner]) -> None:
        self._make = make
        self._learners: dict[str, Learner] = {}
        self._runs: dict[str, list[tuple[str, Step]]] = {}
        self._earned: dict[str, list[float]] = {}
        self._count = 0

    def begin(self) -> None:
        self._count += 1
        self._runs[str(self._count)] = []
        self._earned[str(self._count)] = []

    def decide(
        self, point: str, options: Options, context: Features, *, default: str | None = None
    ) -> str:
        learner = self._learner(point)
        chosen, propensity = learner.choose(options, context)
        self._runs[str(self._count)].append((point, Step(options, context, chosen, propensity)))
        self._earned[str(self._count)].append(0.0)
        return list(options)[chosen]

    def earn(self, value: float) -> None:
        self._earned[str(self._count)][-1] += value

    def end(self, *, cut_off: bool = False) -> str:
        return str(self._count)

    def reward(self, run: str, value: float | None) -> None:
        steps, earned = self._runs.pop(run), self._earned.pop(run)
        following = value or 0.0
        returns = []
        for own in reversed(earned):
            following += own
            returns.append(following)
        for (point, step), worth in zip(steps, reversed(returns), strict=True):
            if len(step.options) > 1:
                self._learner(point).learn(step, worth)

    def best(self, point: str, options: Options, context: Features) -> str:
        return list(options)[self._learner(point).best(options, context)]

    def _learner(self, point: str) -> Learner:
        if point not in self._learners:
            self._learners[point] = self._make(point)
        return self._learners[point]


def named(options: Sequence[str]) -> Options:
    """Return options without features."""
    return dict.fromkeys(options)
