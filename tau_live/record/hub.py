"""The database of a process that writes into a spool: what it shares with others, and shipping.

A thread of its own asks the hub for the gate, versions, pauses and trials, and sends it what the
spool holds. Whatever the hub does, events are stored in the spool meanwhile, and the host waits for
nothing.
"""

import random
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tau_live.core.errors import (
    SpoolOfOthersError,
    StoreBusyError,
    StoreError,
    StoreUnavailableError,
    suppress,
)
from tau_live.core.gate_keeper import GateKeeper
from tau_live.core.guard import logger, text_of
from tau_live.core.sync import Latch, Throttle
from tau_live.record.collector import Collector
from tau_live.record.heartbeats import RESTS, Heart
from tau_live.record.shipper import BATCH, Shipper, note_heard
from tau_live.rl.throttle import giving_way
from tau_live.store.records import Topic
from tau_live.store.roles import Spool, Store

TICK_S = 0.2
SILENT_S = 5.0
"""A hub that has not answered for so long counts as away, although no call has failed."""

RETRY_S = 0.5

SHIPPING = "ship"
"""The lease, in the spool, of the one process of a host that ships."""

SHIPPING_TTL_S = 10.0

DELAYED_S = 30.0
"""The longest random delay until a hub is tried again, and until what was spooled meanwhile is
sent: a thousand hosts that return at once would be in each other's way."""

DELAYS_IN_PERMIT = 30.0
"""How often that delay is contained in the permit at least."""

SOONEST = 0.25
"""The least share of the time until a hub is tried again that is waited; the rest is random."""

OLD_SHARE = 0.25
"""The share of time in which what was spooled while the hub was away is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubListeners:
    """Callbacks of a hub, called in its thread.

    Attributes:
        ready: Rollouts became ready to be learned from.
        changed: Another process has changed topics, or the hub was just reached.
        look: It is time to refresh the state kept in memory; also for all, if this process keeps
            house for them.
        poll: Called several times a second, so it must be cheap.
        heard: The hub was heard; policies may decide until a time of the monotonic clock.
        failing: The hub cannot be reached.
        failed: Something else went wrong.
    """

    ready: Callable[[], None]
    changed: Callable[[Store, Collection[Topic]], None]
    look: Callable[[Store, bool], None]
    poll: Callable[[Store], None]
    heard: Callable[[float], None]
    failing: Callable[[], None]
    failed: Callable[[Exception], None]


class Hub:
    """Keeps a process in touch with the hub, in a thread of its own.

    Args:
        open_hub: Opens the hub; in the thread, like all that follows.
        open_spool: Opens the spool, given the id of the hub.
        collector_of: Returns what stores and settles rollouts in the hub.
        gate: The gate of the process, synchronised with the hub here.
        owner: The process.
        permit_s: Seconds after the hub was last heard in which policies may decide.
        limit: The failures in a row after which a gate holds.
        listeners: Its callbacks.

    Attributes:
        away_since: Epoch seconds since when the hub cannot be reached; ``None`` while it can.
    """

    def __init__(  # noqa: PLR0913  # its parts and callbacks, all keyword-only
        self,
        *,
        open_hub: Callable[[], Store],
        open_spool: Callable[[str], Spool],
        collector_of: Callable[[Store], Collector],
        gate: GateKeeper,
        owner: str,
        permit_s: float,
        limit: int,
        listeners: HubListeners,
    ) -> None:
        self._heart = Heart(owner, gate, limit=limit)
        self._open_hub = open_hub
        self._open_spool = open_spool
        self._collector_of = collector_of
        self._gate = gate
        self._owner = owner
        self._permit_s = permit_s
        self._longest_delay_s = min(DELAYED_S, permit_s / DELAYS_IN_PERMIT)
        self._listeners = listeners
        self._hub: Store | None = None
        self._spool: Spool | None = None
        self._collector: Collector | None = None
        self._stale = frozenset(Topic)
        self._ship_at = self._retry_at = self._keep_house_at = float("-inf")
        self._refusal: SpoolOfOthersError | None = None
        self._refused_until = float("-inf")
        self._shipped: object = None  # the stamp of the spool when nothing was left in it
        self._failures = 0
        self._ship_failed = self._is_old = self._keeps_house = self._has_beaten = False
        self._requests: list[tuple[Callable[[Store], None] | None, Latch]] = []
        self._wake, self._over, self._was_tried = Latch(), Latch(), Latch()
        self._id = ""
        self._until = float("inf")
        self._closing: bool = False
        self._heard_at = time.monotonic()
        self.away_since: float | None = None
        self._thread = threading.Thread(target=self._loop, name="tau-live-hub", daemon=True)

    @property
    def is_away(self) -> bool:
        """Whether the hub cannot be reached, or has long been silent."""
        is_silent = time.monotonic() - self._heard_at > SILENT_S
        return self.away_since is not None or is_silent

    def known_id(self, timeout_s: float) -> str:
        """Return the id of the hub; empty until it was reached, which the first call waits for."""
        self._was_tried.wait(timeout_s)
        return self._id

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def flush(self, timeout_s: float) -> bool | None:
        """Send every rollout that has ended; ``None`` if the hub is away, else whether it did."""
        return self._request(None, timeout_s)

    def read(self, reader: Callable[[Store], None], timeout_s: float) -> bool:
        """Call a reader of the hub in the thread; ``False`` if that is not done in time."""
        return bool(self._request(reader, timeout_s))

    def stop(self, timeout_s: float) -> None:
        """Begin to ``close``, without waiting for it."""
        self._until = time.monotonic() + timeout_s
        self._closing = True
        self._wake.set()

    def close(self, timeout_s: float) -> bool:
        """Send what is left if there is time, then stop; ``False`` if it takes longer."""
        self.stop(timeout_s)
        if self._thread.ident is None or threading.current_thread() is self._thread:
            return True
        return self._over.wait(timeout_s)

    def _request(self, reader: Callable[[Store], None] | None, timeout_s: float) -> bool | None:
        is_away = self.is_away
        if self._thread.ident is None or self._over.is_set:
            return None if is_away else False
        done = Latch()
        request = reader, done
        until = time.monotonic() + timeout_s
        self._requests.append(request)
        self._wake.set()
        while not done.wait(min(TICK_S, max(0.0, until - time.monotonic()))):
            is_away = self.is_away
            if time.monotonic() >= until or is_away or self._ship_failed:
                break
        with suppress(ValueError):  # or it would hurry a host that returns, for nobody
            self._requests.remove(request)
        return True if done.is_set else None if is_away else False

    def _loop(self) -> None:
        try:
            with giving_way(Throttle()):
                while not self._closing:
                    self._wake.wait(TICK_S)
                    self._wake = Latch()
                    self._contain(self._turn)
                if self.away_since is None:
                    self._contain(self._turn)
                    self._contain(self._release)
            for store in (self._hub, self._spool):
                if store is not None:
                    store.close()
        finally:
            self._over.set()

    def _contain(self, step: Callable[[], None]) -> None:
        """Do a step; no error ends this thread."""
        try:
            step()
        except Exception as error:  # noqa: BLE001  # nothing may end this thread
            self._listeners.failed(error)

    def _turn(self) -> None:
        """Look what others have changed, and send what is there."""
        if time.monotonic() < self._retry_at and not self._closing:
            return
        try:
            hub = self._reach()
            self._look(hub)
        except StoreError as error:
            self._lose(error)
            return
        self._find_again()
        requests = self._requests[:]
        try:
            try:
                self._work(hub, hurried=self._closing or bool(requests))
                self._answer(hub, requests)
            finally:  # also where the spool is refused
                self._keep_house(hub)
        except StoreError as error:  # the next look will tell whether the hub is away
            self._note_failure(error)

    def _reach(self) -> Store:
        """Return the hub, opened if it is not."""
        if self._hub is None:
            self._hub = self._open_hub()
            self._id = self._hub.id()
            self._was_tried.set()
            self._close_spool()  # whose it is, is to be seen again
            self._collector = self._collector_of(self._hub)
            self._stale = frozenset(Topic)
            self._heart.stop()
            self._gate.refresh(self._hub.gate)
            self._hub.changes()
        return self._hub

    def _look(self, hub: Store) -> None:
        """Take over changes by other processes, and write changes of the gate made here."""
        if self._heart.is_due(hub):
            self._keeps_house = self._heart.beat(hub)
            self._has_beaten = True
        self._stale |= hub.changes()
        unsaved = self._gate.has_unsaved or self._gate.store_error is not None
        if unsaved or Topic.GATE in self._stale:
            self._gate.refresh(hub.gate)
        if self._gate.store_error is not None:
            raise StoreUnavailableError(self._gate.store_error)
        if self._stale:
            self._listeners.changed(hub, self._stale)
            self._stale = frozenset()
        self._listeners.poll(hub)
        self._heard_at = time.monotonic()
        self._listeners.heard(self._heard_at + self._permit_s)

    def _lose(self, error: StoreError) -> None:
        """Note that the hub cannot be reached; logged once."""
        hub, self._hub = self._hub, None
        if hub is not None:
            hub.close()
        self._was_tried.set()
        wait_s = min(RETRY_S * 2.0 ** min(self._failures, 10), self._longest_delay_s)
        self._failures += 1
        self._retry_at = time.monotonic() + wait_s * random.uniform(SOONEST, 1.0)  # noqa: S311
        if self.away_since is None:
            self.away_since = time.time()
            logger().warning(
                "hub_away",
                error=text_of(error),
                effect=f"everything is kept in the spool; policies decide for {self._permit_s:g} s",
                todo="start or reach the database; the rest happens by itself",
            )
        self._listeners.failing()

    def _find_again(self) -> None:
        """Note that the hub is heard again; what was spooled meanwhile comes after a delay."""
        self._failures = 0
        since, self.away_since = self.away_since, None
        if since is None:
            return
        delay_s = random.uniform(0.0, self._longest_delay_s)  # noqa: S311
        self._ship_at = time.monotonic() + delay_s
        self._is_old = True
        logger().warning("hub_back", after_s=round(max(0.0, time.time() - since), 1))

    def _work(self, hub: Store, *, hurried: bool) -> None:
        """Send what is in the spool."""
        looks = hurried or self._has_beaten
        if looks and self._spool is not None and not self._spool.is_there():
            self._close_spool()
            return
        if self._spool is None or self._has_beaten:
            self._spool = self._spool or self._open_own_spool()
            note_heard(self._spool, hub)
        if hurried or (time.monotonic() >= self._ship_at and self._spool.stamp() != self._shipped):
            self._ship(hub, self._spool, hurried=hurried)
        if self._ship_failed:
            self._ship_failed = False
            logger().warning("shipping_works_again")

    def _keep_house(self, hub: Store) -> None:
        """Keep house in the hub, after a heartbeat, and in a fifth of the time at most."""
        has_beaten, self._has_beaten = self._has_beaten, False
        began = time.monotonic()
        if not has_beaten or began < self._keep_house_at:
            return
        if self._keeps_house:
            self._expire(hub)
        self._listeners.look(hub, self._keeps_house)
        self._keep_house_at = time.monotonic() + RESTS * (time.monotonic() - began)

    def _open_own_spool(self) -> Spool:
        """Open the spool; one of another store is looked at again only after a while."""
        now = time.monotonic()
        if self._refusal is not None and now < self._refused_until:
            raise self._refusal
        try:
            self._refusal = None
            return self._open_spool(self._id)
        except SpoolOfOthersError as error:
            self._refusal, self._refused_until = error, now + self._longest_delay_s
            raise

    def _close_spool(self) -> None:
        spool, self._spool, self._shipped = self._spool, None, None
        if spool is not None:
            spool.close()

    def _expire(self, hub: Store) -> None:
        """Settle the rollouts of all hosts whose wait is over, by the hub's clock."""
        now = hub.now()
        if self._gate.passes and self._collector is not None:
            with hub.begin():
                hub.queue.expire(now=now)
                ended = self._collector.expire(now)
            if ended:
                self._listeners.ready()

    def _ship(self, hub: Store, spool: Spool, *, hurried: bool) -> None:
        """Send batches until none is left, or it is time to look again."""
        began, stamp = time.monotonic(), spool.stamp()
        shipper = Shipper(spool, hub, self._collector or self._collector_of(hub))
        while (copies := shipper.next_copies()) is not None:
            if not spool.leases.acquire(SHIPPING, self._owner, ttl_s=SHIPPING_TTL_S):
                return
            start = time.monotonic()
            if shipper.ship(copies).ready:
                self._listeners.ready()
            self._is_old = self._is_old and len(copies) == BATCH
            now = self._heard_at = time.monotonic()
            if self._closing:
                if now > self._until:
                    return
            elif self._is_old and not hurried:
                self._ship_at = now + (now - start) * (1.0 / OLD_SHARE - 1.0)
                return
            elif now - began > TICK_S:
                self._wake.set()
                return
            stamp = spool.stamp()
        self._shipped = stamp

    def _answer(
        self, hub: Store, requests: Collection[tuple[Callable[[Store], None] | None, Latch]]
    ) -> None:
        """Answer requests that were there before everything was sent."""
        for request in requests:
            reader, done = request
            if reader is not None:
                reader(hub)
            elif self._spool is None or self._spool.copies(limit=1):
                self._wake.set()  # another process ships
                continue
            done.set()

    def _note_failure(self, error: StoreError) -> None:
        if isinstance(error, StoreBusyError) or self._ship_failed:
            return
        self._ship_failed = True
        logger().warning(
            "shipping_fails", error=text_of(error), effect="everything is kept in the spool"
        )

    def _release(self) -> None:
        """Give back the leases of this process."""
        try:
            if self._spool is not None:
                self._spool.leases.release(SHIPPING, self._owner)
            if self._hub is not None:
                self._heart.leave(self._hub)
        except StoreError as error:  # they end by themselves
            self._note_failure(error)
