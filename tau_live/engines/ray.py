"""Ray, which computes on several machines as on one; the only module that needs it."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read by its import: nothing leaves

import ray

from tau_live.core.errors import EngineError
from tau_live.engines.local import AHEAD, RETRIES

Shard = TypeVar("Shard")
Result = TypeVar("Result")


class Ray:
    """Computes shards in the workers of Ray.

    It is started by the first work, and ends with ``close``. Where a worker dies, Ray itself says
    so on standard output.

    Args:
        workers: How many shards are computed at once; ``None`` leaves that to Ray.
        address: Of a cluster that runs already; ``None`` starts one on this machine.
        tell: Called before it is started.

    Attributes:
        is_started: Whether it was.
    """

    def __init__(
        self,
        workers: int | None,
        *,
        address: str | None = None,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        self._workers = workers
        self._address = address
        self._tell = tell
        self.is_started = False

    def map(self, function: Callable[[Shard], Result], shards: Sequence[Shard]) -> Iterator[Result]:
        """Return the results in the order of the shards.

        Raises:
            EngineError: There is no such cluster, or the worker of a shard died, as did those of
                ``RETRIES`` other attempts.
            Exception: The function's own, which is not tried again.
        """
        self._start()
        compute = ray.remote(max_retries=RETRIES)(_compute)
        common = ray.put(function)  # once for each machine
        count = self._workers or int(ray.cluster_resources()["CPU"])
        todo, first = deque(range(len(shards))), 0
        running: dict[ray.ObjectRef[Result], int] = {}
        results: dict[int, Result] = {}
        while first < len(shards):
            while todo and len(running) < count and todo[0] < first + AHEAD * count:
                number = todo.popleft()
                running[compute.remote(common, shards[number])] = number
            for reference in ray.wait(list(running))[0]:
                number = running.pop(reference)
                try:
                    results[number] = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None
                except ray.exceptions.RayError as error:
                    raise EngineError(
                        f"shard {number + 1} of {len(shards)}: Ray lost it "
                        f"{RETRIES + 1} times: {type(error).__name__}"
                    ) from error
            while first in results:
                yield results.pop(first)
                first += 1

    def close(self) -> None:
        """End Ray, if this has started it; a cluster that ran before goes on."""
        if self.is_started:
            ray.shutdown()

    def _start(self) -> None:
        """Start Ray, unless it runs in this process.

        Raises:
            EngineError: There is no cluster at the address.
        """
        if ray.is_initialized():
            return
        self._tell()
        own = {"num_cpus": self._workers, "include_dashboard": False}
        try:
            ray.init(
                address=self._address or "local", log_to_driver=False, logging_level="ERROR",
                **({} if self._address else own),
            )  # fmt: skip
            self.is_started = True
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise EngineError(f"Ray cannot be started: {' '.join(str(error).split())}") from error


def _compute(function: Callable[[Shard], Result], shard: Shard) -> Result:
    return function(shard)
