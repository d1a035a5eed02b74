"""Work for engines, in a module that their workers can import."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from tau_live.rl.engine import Engine
from tau_live.rl.evaluation.report import Evaluation, EvaluationConfig, evaluate
from tests.rl.logs import drawn, lenient

Shard = TypeVar("Shard")
Result = TypeVar("Result")


def square(number: int) -> int:
    return number * number


def process_of(number: int) -> int:
    """Return the process that computes a shard, if it does so alone."""
    return os.getpid()


def refuse(attempts: Path, number: int) -> int:
    """Note the attempt, and raise an error that a dead worker might be taken for."""
    with attempts.open("a") as file:
        file.write("x")
    raise EOFError(f"no shard {number}")


def die(attempts: Path, number: int) -> int:
    """Note the attempt, and kill the process."""
    with attempts.open("a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()
    return number


def die_once(mark: Path, function: Callable[[Shard], Result], shard: Shard) -> Result:
    """Kill the process by the first call of all, and compute by every other."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return function(shard)
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()
    raise AssertionError


class Deadly:
    """Kills the first worker of an engine."""

    def __init__(self, engine: Engine, mark: Path) -> None:
        self._engine = engine
        self._mark = mark

    def map(self, function: Callable[[Shard], Result], shards: Sequence[Shard]) -> Iterator[Result]:
        return self._engine.map(partial(die_once, self._mark, function), shards)


def bootstrapped(engine: Engine) -> Evaluation:
    """Return an evaluation whose intervals an engine has drawn."""
    config = lenient(cap=9.0, replicates=95)
    config = EvaluationConfig(
        reward_range=config.reward_range, weight_cap=9.0, replicates=95, support=config.support,
        engine=engine,
    )  # fmt: skip
    return evaluate(drawn(3, 400, longest=3).log(), config, rng=np.random.default_rng(5))


def wait_for(release: Path, number: int) -> int:
    """Return the number; the first waits until it is released."""
    while number == 0 and not release.exists():
        threading.Event().wait(0.001)
    return number
