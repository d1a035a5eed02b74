"""What an attached adapter adds to runs of its host in which nothing waits.

Both sides run the same agent in the same process, in turn; on ours the adapter is attached, and the
writer and the learner work beside the host. The wall clock is what a host feels, as its threads
wait for ours, and on a busy machine it measures the neighbours too; the processor's time of all
threads does not. A host that waits for a model, as all do in earnest, feels less.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.bench.timing import Goal, Measured, Timed, command, installed, interleaved

RUNS = 500


class Host(NamedTuple):
    """A host and its trivial agent.

    Attributes:
        name: The host's.
        module: What has to be installed.
        made: Returns what does so many runs.
        goal: Of the wall time with us, as a share of that without.
    """

    name: str
    module: str
    made: Callable[[], Callable[[int], None]]
    goal: float


def of_pydantic_ai() -> Callable[[int], None]:
    """Return runs of an agent whose model answers at once."""
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    agent = Agent(TestModel(), name="trivial")

    async def play(runs: int) -> None:
        for _ in range(runs):
            await agent.run("hello")

    return lambda runs: asyncio.run(play(runs))


def of_langchain() -> Callable[[int], None]:
    """Return runs of a chain of a prompt, a model that answers at once, and a parser."""
    from langchain_core.language_models import FakeListChatModel
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompts import ChatPromptTemplate

    prompt = ChatPromptTemplate.from_messages([("user", "{question}")])
    chain = prompt | FakeListChatModel(responses=["hello"]) | StrOutputParser()

    def play(runs: int) -> None:
        for _ in range(runs):
            chain.invoke({"question": "hello"})

    return play


HOSTS = (
    Host("pydantic-ai", "pydantic_ai", of_pydantic_ai, 1.25),
    Host("langchain", "langchain_core", of_langchain, 2.0),
)


def measure(rounds: int, *, runs: int = RUNS) -> list[Measured]:
    """Measure every host that is installed."""
    os.environ["TAU_LIVE_RL"] = "1"
    found: list[Measured] = []
    for host in HOSTS:
        if installed(host.module):
            found += _measured(host, rounds, runs)
    return found


def _measured(host: Host, rounds: int, runs: int) -> list[Measured]:
    import tau_live
    from tau_live.boot.hosts import load_adapter
    from tau_live.core.entry_points import host_of, read_entry_points
    from tau_live.core.settings import Settings

    points = {host_of(point)[0]: point for point in read_entry_points().adapters}
    play, adapter = host.made(), load_adapter(points[host.name], off=())
    with tempfile.TemporaryDirectory() as name:
        runtime = tau_live.attach(Settings(store=Path(name) / "store.sqlite"))
        if runtime is None:
            raise RuntimeError("tau-live does not run here")
        play(20)

        def attached(clock: Callable[[], float]) -> float:
            detach = adapter.attach(lambda: runtime)
            try:
                return took(clock)
            finally:
                detach()
                tau_live.flush(60.0)

        def took(clock: Callable[[], float]) -> float:
            began = clock()
            play(runs)
            return clock() - began

        try:
            return [
                _of(host, "wall", time.perf_counter, (attached, took), rounds, runs),
                _of(host, "processor", time.process_time, (attached, took), rounds, runs),
            ]
        finally:
            tau_live.detach()


def _of(
    host: Host,
    kind: str,
    clock: Callable[[], float],
    sides: tuple[Callable[[Callable[[], float]], float], Callable[[Callable[[], float]], float]],
    rounds: int,
    runs: int,
) -> Measured:
    ours, theirs = (_each(partial(side, clock), runs) for side in sides)
    goal = Goal(host.goal, faster=False)
    work = f"a run of {host.name}, {kind} time"
    return interleaved(work, ours, theirs, peer="not attached", rounds=rounds, goal=goal)


def _each(side: Timed, runs: int) -> Timed:
    return lambda: side() / runs


main = command("overhead", "What an attached adapter adds to a trivial run", measure)

if __name__ == "__main__":
    main()
