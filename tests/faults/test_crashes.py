"""A crash at any point leaves the state before or after, never between; the next run goes on."""

import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import pytest

from tau_live.core import fault
from tests.faults.server import Ended, Server
from tests.faults.workloads import WORKLOADS

CORES = 2

FAILING = ("make", "collect", "learn", "hold", "promote", "forget")
"""The workloads that a process does again, or goes on with, when a step of them has failed."""

HOLDS = ("collect", "store.prepared")
"""Where the gate holds instead: the store cannot be opened when the process starts."""


class Clean(NamedTuple):
    """A workload that was done to its end.

    Attributes:
        reached: How often it reached each point.
        states: What a crash may leave.
    """

    reached: Counter[str]
    states: list[str]


class Crashes:
    """Servers of children, and what workloads do without a crash.

    Attributes:
        clean: Each workload as it was done to its end.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers = [Server("tests.faults.crashes") for _ in range(CORES)]
        self._free: SimpleQueue[Server] = SimpleQueue()
        for server in self._servers:
            self._free.put(server)
        self._pool = ThreadPoolExecutor(CORES)
        self.clean: dict[str, Clean] = {}

    def prepare(self) -> None:
        """Do every workload once."""
        self.clean = dict(zip(WORKLOADS, self._pool.map(self._done, WORKLOADS), strict=True))

    def at(self, point: str) -> dict[str, object]:
        """Crash at a point wherever a workload reaches it; return what is wrong, by case."""
        cases = [
            (name, nth)
            for name, clean in self.clean.items()
            if point.startswith(WORKLOADS[name].tried)
            for nth in _tried(clean.reached[point], in_threads=WORKLOADS[name].threads)
        ]
        found = self._pool.map(lambda case: self._crashed(case[0], point, case[1]), cases)
        return {f"{name} {nth}": wrong for (name, nth), wrong in zip(cases, found, strict=True)}

    def failing_at(self, point: str) -> dict[str, object]:
        """Let a step fail the last time that a point is reached; return what is wrong, by case."""
        cases = [
            (name, clean.reached[point])
            for name, clean in self.clean.items()
            if name in FAILING and clean.reached[point] and (name, point) != HOLDS
        ]
        found = self._pool.map(lambda case: self._failed(case[0], point, case[1]), cases)
        return {name: wrong for (name, _), wrong in zip(cases, found, strict=True)}

    def stop(self) -> None:
        """End the servers."""
        self._pool.shutdown()
        for server in self._servers:
            server.stop()

    def _done(self, name: str) -> Clean:
        ended = self._run("clean", name=name, folder=str(self._folder / name))
        assert ended.code == ended.signal == 0, name
        told = [line for line in ended.told if isinstance(line, dict)]
        states = {str(line["state"]) for line in told if "state" in line}
        return Clean(Counter(str(line["point"]) for line in told if "point" in line), [*states])

    def _crashed(self, name: str, point: str, nth: int) -> object:
        case = f"{point}-{nth}"
        where = {"name": name, "folder": str(self._folder / name), "case": case}
        ended = self._run("crash", **where, point=point, nth=nth)
        if ended.signal != signal.SIGKILL:
            return f"it did not die there: {ended}"
        ended = self._run("look", **where, states=self.clean[name].states)
        return ended.answer if ended.code == 0 else f"it could not be looked at: {ended}"

    def _failed(self, name: str, point: str, nth: int) -> object:
        where = {"name": name, "folder": str(self._folder / name), "case": f"{point}-{nth}"}
        ended = self._run("fail", **where, point=point, nth=nth)
        return ended.answer if ended.code == 0 else f"it could not go on: {ended}"

    def _run(self, job: str, **given: object) -> Ended:
        server = self._free.get()
        try:
            return server.run(f"tests.faults.crashes:{job}", given)
        finally:
            self._free.put(server)


def _tried(times: int, *, in_threads: bool) -> list[int]:
    """Return which of the times that a point is reached are tried: one in the middle, and the last.

    In threads only the first: how often a point is reached differs from run to run.
    """
    if not times or in_threads:
        return [1] if times else []
    return sorted({1 + times // 3, times})


@pytest.fixture(scope="module")
def crashes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashes]:
    made = Crashes(tmp_path_factory.mktemp("crashes"))
    try:
        made.prepare()
        yield made
    finally:
        made.stop()


@pytest.mark.slow
def test_every_point_is_reached(crashes: Crashes) -> None:
    reached = {point for clean in crashes.clean.values() for point in clean.reached}

    assert sorted(reached) == sorted(fault.POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("point", fault.POINTS)
def test_a_crash_leaves_the_state_before_or_after(crashes: Crashes, point: str) -> None:
    found = crashes.at(point)

    assert found, "no workload reaches it"
    assert {case: wrong for case, wrong in found.items() if wrong} == {}


@pytest.mark.slow
@pytest.mark.parametrize("point", fault.POINTS)
def test_a_step_that_fails_is_done_once_when_it_is_done_again(crashes: Crashes, point: str) -> None:
    found = crashes.failing_at(point)

    assert {case: wrong for case, wrong in found.items() if wrong} == {}
