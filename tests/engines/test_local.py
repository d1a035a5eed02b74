"""Processes of this machine: the results of the caller's thread, whoever dies meanwhile."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from typing import TypeVar

import pytest

from tau_live.core.errors import EngineError
from tau_live.engines.local import AHEAD, LEAST_S, RETRIES, TRIAL_S, Gradual, Processes, Tier
from tau_live.learn.promotion.power import Experiment, power_of
from tau_live.rl.engine import InProcess
from tests.engines.work import (
    Deadly,
    bootstrapped,
    die,
    process_of,
    refuse,
    square,
    wait_for,
)

Shard = TypeVar("Shard")
Result = TypeVar("Result")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("shards", [0, 1, 40])
def test_results_come_in_the_order_of_shards(workers: int, shards: int) -> None:
    results = list(Processes(workers).map(square, range(shards)))

    assert results == [number * number for number in range(shards)]


@pytest.mark.slow
def test_every_worker_takes_part_and_none_remains() -> None:
    taking_part = {*Processes(2).map(process_of, range(200))}

    assert len(taking_part) == 2
    assert os.getpid() not in taking_part
    assert not active_children()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_processes_draws_the_same_bits(workers: int) -> None:
    assert bootstrapped(Processes(workers)).estimates == bootstrapped(InProcess()).estimates


@pytest.mark.slow
def test_a_killed_worker_changes_no_bit(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    found = bootstrapped(Deadly(Processes(2), mark))

    assert mark.exists()
    assert found.estimates == bootstrapped(InProcess()).estimates


@pytest.mark.slow
def test_a_worker_killed_from_outside_is_replaced() -> None:
    results = Processes(2).map(square, range(100))
    first = next(results)

    os.kill(active_children()[0].pid or 0, signal.SIGKILL)

    assert [first, *results] == [number * number for number in range(100)]


@pytest.mark.slow
def test_a_shard_that_kills_every_process_ends_the_work(tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"

    with pytest.raises(EngineError, match=f"shard 1 of 1: its process died {RETRIES + 1} times"):
        list(Processes(2).map(partial(die, attempts), [0]))

    assert attempts.read_text() == "x" * (1 + RETRIES)
    assert not active_children()


@pytest.mark.slow
def test_an_error_of_the_function_is_raised_and_not_tried_again(tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"

    with pytest.raises(EOFError, match="no shard 7"):
        list(Processes(1).map(partial(refuse, attempts), [7]))

    assert attempts.read_text() == "x"
    assert not active_children()


@pytest.mark.slow
def test_who_stops_early_leaves_no_process() -> None:
    results = Processes(2).map(square, range(1_000))
    next(results)
    running = active_children()

    results.close()  # type: ignore[attr-defined]  # it is a generator

    assert len(running) == 2
    assert not active_children()


class Noted(Sequence[int]):
    """Numbers that release the first shard when the last that may be ahead of it is taken."""

    def __init__(self, release: Path, at: int) -> None:
        self._release = release
        self._at = at
        self.largest = -1

    def __len__(self) -> int:
        return 1_000

    def __getitem__(self, at: int) -> int:  # type: ignore[override]  # nobody takes a slice
        self.largest = max(self.largest, at)
        if at == self._at:
            self._release.touch()
        return at


@pytest.mark.slow
def test_a_slow_shard_lets_a_bounded_number_of_results_wait(tmp_path: Path) -> None:
    release = tmp_path / "release"
    shards = Noted(release, at=2 * AHEAD - 1)

    results = Processes(2).map(partial(wait_for, release), shards)
    first = next(results)

    assert (first, shards.largest) == (0, 2 * AHEAD - 1)
    results.close()  # type: ignore[attr-defined]  # it is a generator


@pytest.mark.slow
def test_simulated_tests_are_the_same_wherever_they_run() -> None:
    experiment = Experiment(difference=0.2, mean=0.4)

    assert power_of(experiment, streams=24, engine=Processes(2)) == power_of(experiment, streams=24)


class Clock:
    """Moves by a step whenever a shard is computed."""

    def __init__(self, step_s: float) -> None:
        self.now = 0.0
        self._step_s = step_s

    def compute(self, number: int) -> int:
        self.now += self._step_s
        return number * number

    def __call__(self) -> float:
        return self.now


class Counting:
    """Computes in this process, and counts the shards."""

    def __init__(self) -> None:
        self.shards = 0

    def map(self, function: Callable[[Shard], Result], shards: Sequence[Shard]) -> Iterator[Result]:
        self.shards += len(shards)
        return map(function, shards)


@pytest.mark.parametrize(
    ("step_s", "small", "large"),
    [
        pytest.param(LEAST_S / 100, 0, 0, id="too little work for anything"),
        pytest.param(0.1, 95, 0, id="enough for the first"),
        pytest.param(TRIAL_S, 0, 99, id="enough for the second"),
    ],
)
def test_what_is_left_decides_what_is_started(step_s: float, small: int, large: int) -> None:
    clock, engines = Clock(step_s), (Counting(), Counting())
    tiers = [Tier(LEAST_S, engines[0]), Tier(20.0, engines[1])]

    results = list(Gradual(tiers, clock=clock).map(clock.compute, range(100)))

    assert results == [number * number for number in range(100)]
    assert [engine.shards for engine in engines] == [small, large]
