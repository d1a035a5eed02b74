"""Processes of this machine, and the engine that starts none for little work."""

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Generic, NamedTuple, TypeVar

from tau_live.core.errors import EngineError
from tau_live.rl.engine import Engine

Shard = TypeVar("Shard")
Result = TypeVar("Result")

RETRIES = 3
"""How often a shard is computed again whose process died."""

AHEAD = 4
"""Results for each process that may wait for an earlier one; it bounds what they take."""

LEAST_S = 2.0
"""Seconds of work for which processes are started: starting two takes about half a second."""

TRIAL_S = 0.5
"""Seconds of work before what is left is estimated; the first shard often takes longer."""


class Tier(NamedTuple):
    """An engine, and the seconds of work in one process that it is worth to be started for."""

    least_s: float
    engine: Engine


class Gradual:
    """Begins in the caller's thread, and goes on by the engine that what is left is worth.

    Args:
        tiers: From little work to much.
        clock: Returns seconds.
    """

    def __init__(
        self, tiers: Sequence[Tier], *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._tiers = tiers
        self._clock = clock

    def map(self, function: Callable[[Shard], Result], shards: Sequence[Shard]) -> Iterator[Result]:
        """Return the results in the order of the shards; raise whatever function or engine do."""
        spent_s = 0.0
        for count, shard in enumerate(shards, start=1):
            began = self._clock()
            result = function(shard)
            spent_s += self._clock() - began
            yield result
            left_s = spent_s / count * (len(shards) - count)
            fitting = [tier.engine for tier in self._tiers if left_s >= tier.least_s]
            if fitting and spent_s >= TRIAL_S:
                yield from fitting[-1].map(function, shards[count:])
                return


class Processes:
    """Computes shards in processes that end with the work.

    A process that dies is replaced, and its shard computed again. They are our own, not an
    executor's: that one cannot kill its processes when it is interrupted, nor say whose died.

    Args:
        workers: How many, at least 1.
    """

    def __init__(self, workers: int) -> None:
        self._count = workers

    def map(self, function: Callable[[Shard], Result], shards: Sequence[Shard]) -> Iterator[Result]:
        """Return the results in the order of the shards.

        Raises:
            EngineError: The process of a shard died, as did those of ``RETRIES`` other attempts.
            Exception: The function's own, which is not tried again.
        """
        results: dict[int, Result] = {}
        todo, deaths, first = deque(range(len(shards))), [0] * len(shards), 0
        with _workers(function, min(self._count, len(shards))) as workers:
            while first < len(shards):
                for worker in workers:
                    if worker.number is None and todo and todo[0] < first + AHEAD * self._count:
                        number = todo.popleft()
                        worker.begin(number, shards[number])
                for worker, number in _ready(workers):
                    try:
                        results[number] = worker.result()
                    except _DeadError as error:
                        deaths[number] += 1
                        if deaths[number] > RETRIES:
                            raise EngineError(
                                f"shard {number + 1} of {len(shards)}: its process died "
                                f"{deaths[number]} times; is there enough memory?"
                            ) from error
                        todo.appendleft(number)
                        worker.start()
                while first in results:
                    yield results.pop(first)
                    first += 1


class _DeadError(Exception):
    """A process died before it had answered."""


class _Worker(Generic[Shard, Result]):
    """A process that computes shards, one after the other.

    Args:
        pickled: The function. A process gets it with its first shard, when all have started:
            it may be large, and is read only once a process has imported what it needs.

    Attributes:
        number: The number of its shard; ``None`` while it has none.
        connection: To its process.
    """

    number: int | None
    connection: Connection

    def __init__(self, pickled: memoryview) -> None:
        self._pickled = pickled
        self.start()

    def start(self) -> None:
        """Start a process."""
        context = get_context("spawn")  # a fork would copy locks that other threads hold
        self.connection, remote = context.Pipe()
        self._process = context.Process(target=_work, args=(remote,), daemon=True)
        self._process.start()
        remote.close()
        self.number, self._is_new = None, True

    def begin(self, number: int, shard: Shard) -> None:
        """Let the process compute a shard."""
        self.number = number
        with suppress(ConnectionError):  # it died; so says the answer
            if self._is_new:
                self.connection.send_bytes(self._pickled)
                self._is_new = False
            self.connection.send(shard)

    def result(self) -> Result:
        """Return what came of the shard.

        Raises:
            _DeadError: The process died.
            Exception: Whatever the function raised.
        """
        value: Result
        error: Exception | None
        try:
            value, error = self.connection.recv()
        except (EOFError, ConnectionError):
            self.end()
            raise _DeadError from None
        self.number = None
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self.connection.close()


@contextmanager
def _workers(
    function: Callable[[Shard], Result], count: int
) -> Iterator[list[_Worker[Shard, Result]]]:
    """Start workers, and end them when the context ends."""
    pickled = ForkingPickler.dumps(function)
    workers: list[_Worker[Shard, Result]] = []
    try:
        workers += (_Worker(pickled) for _ in range(count))
        yield workers
    finally:
        for worker in workers:
            worker.end()


def _ready(
    workers: Sequence[_Worker[Shard, Result]],
) -> Iterator[tuple[_Worker[Shard, Result], int]]:
    """Wait until some workers have answered or died, and yield them with their shards."""
    busy = {worker.connection: worker for worker in workers if worker.number is not None}
    for connection in wait(list(busy)):
        for worker in workers:
            if worker.connection is connection and worker.number is not None:
                yield worker, worker.number


def _work(connection: Connection) -> None:
    """Compute shards until whoever started this process has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it ends it
    with suppress(EOFError, ConnectionError):
        function = connection.recv()
        while True:
            shard = connection.recv()
            answer: tuple[object, Exception | None]
            try:
                answer = function(shard), None
            except Exception as error:  # noqa: BLE001  # raised again where the result is wanted
                answer = None, error
            connection.send(answer)
