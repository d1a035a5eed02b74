"""Sends rollouts from a spool to the hub; killed at any moment, each arrives once.

A batch is committed in the hub, then marked in the spool. What dies in between sends it again, and
the hub finds it stored.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from tau_live.core import fault
from tau_live.core.errors import StoreUnavailableError
from tau_live.core.guard import logger, text_of
from tau_live.record.collector import Applied, Collector
from tau_live.store.records import RolloutCopy
from tau_live.store.roles import Spool, Store

BATCH = 128
"""How many rollouts are sent in one transaction."""

REFUSED = "dropped_refused_by_hub"
"""Counts rollouts that the hub cannot store."""


def note_heard(spool: Spool, hub: Store) -> None:
    """Record in the spool that the hub is heard; after a failover, send again what is here."""
    if spool.note_heard(time.time(), history=hub.history()):
        logger().warning(
            "hub_failed_over", effect="what this host still has is sent again", path=str(spool.path)
        )


class Shipped(NamedTuple):
    """What one batch brought to the hub.

    Attributes:
        copies: How many rollouts, or rewards for one, it held.
        ready: How many rollouts became ready to be learned from.
        refused: How many the hub cannot store.
    """

    copies: int
    ready: int
    refused: int = 0


class Shipper:
    """Sends what a spool holds, oldest first.

    Args:
        spool: The spool.
        hub: The hub.
        collector: Stores and settles rollouts in the hub.
    """

    def __init__(self, spool: Spool, hub: Store, collector: Collector) -> None:
        self._spool = spool
        self._hub = hub
        self._collector = collector

    def next_copies(self) -> list[RolloutCopy] | None:
        """Return what is to be sent next, empty where only counters are; ``None`` if nothing."""
        copies = self._spool.copies(limit=BATCH)
        return copies if copies or any(self._spool.counters.counts().values()) else None

    def ship(self, copies: Sequence[RolloutCopy]) -> Shipped:
        """Send copies from the spool, and its counters, and mark them as sent.

        Raises:
            StoreUnavailableError: The hub or the spool failed; all of it may be sent again.
        """
        fault.point("ship.read")
        counts = {name: n for name, n in self._spool.counters.counts().items() if n}
        now, refused = self._hub.now(), 0
        try:
            applied = self._store(copies, now=now, counts=counts)
        except StoreUnavailableError:
            raise
        except Exception:  # noqa: BLE001  # one bad rollout must not take the others with it
            applied, refused = self._store_singly(copies, now=now)
            counts = {}
        fault.point("ship.stored")
        with self._spool.begin():
            self._spool.mark_sent(copies, now=time.time())
            self._spool.counters.add({name: -n for name, n in counts.items()})
        return Shipped(len(copies), applied.ready, refused)

    def _store(
        self, copies: Sequence[RolloutCopy], *, now: float, counts: dict[str, int]
    ) -> Applied:
        try:
            with self._hub.begin():
                applied = Applied(0, 0)
                if copies:
                    ahead_s = now - time.time()
                    applied = self._collector.take_in(copies, now=now, ahead_s=ahead_s)
                if counts:
                    self._hub.counters.add(counts)
        except BaseException:
            self._collector.forget()
            raise
        return applied

    def _store_singly(self, copies: Sequence[RolloutCopy], *, now: float) -> tuple[Applied, int]:
        ready = finished = refused = 0
        for copy in copies:
            try:
                applied = self._store([copy], now=now, counts={})
            except StoreUnavailableError:
                raise
            except Exception as error:  # noqa: BLE001  # left out, counted, and reported
                refused += 1
                logger().warning(
                    "rollout_refused", rollout_id=copy.rollout_id, error=text_of(error)
                )
            else:
                finished += applied.finished
                ready += applied.ready
        if refused:
            self._hub.counters.add({REFUSED: refused})
        return Applied(finished, ready), refused
