"""Computing in shards, wherever an engine lets them be computed."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

Shard = TypeVar("Shard")
Result = TypeVar("Result")


class Engine(Protocol):
    """Computes a function of many shards.

    Shards are made by the work, never by the number of workers, and whatever is drawn in a shard
    is drawn from a generator of its own. So every engine gives the same results, bit for bit.
    """

    def map(self, function: Callable[[Shard], Result], shards: Sequence[Shard]) -> Iterator[Result]:
        """Return the results in the order of the shards.

        Args:
            function: Of a module, or a ``partial`` of one: other processes import it. It may be
                called again for the same shard, and must then give the same.
            shards: What it takes.
        """


class InProcess:
    """Computes one shard after the other in the caller's thread."""

    def map(self, function: Callable[[Shard], Result], shards: Sequence[Shard]) -> Iterator[Result]:
        """Return the results in the order of the shards."""
        return map(function, shards)
