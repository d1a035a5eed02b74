"""Sends what is left in the spool of this host, without an agent."""

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from tau_live.core.errors import TauLiveError
from tau_live.core.processes import this_process
from tau_live.core.settings import Settings, spool_of
from tau_live.record.collector import Collector
from tau_live.record.rewards import Rewarding
from tau_live.record.shipper import Shipper, note_heard
from tau_live.record.writer import end_orphans
from tau_live.runtime.build import hub_collector, open_spool_of, open_store
from tau_live.runtime.builtin_plugins import load_plugins


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipReport:
    """What was sent, and what was not.

    Attributes:
        shipped: How many rollouts, or rewards for one, the database has now.
        ready: How many of them became ready to be learned from.
        refused: How many the database cannot store.
        unsent: How many are left: those that go on, and what came meanwhile.
    """

    shipped: int = 0
    ready: int = 0
    refused: int = 0
    unsent: int = 0


def ship(
    settings: Settings, *, stop: threading.Event, progress: Callable[[int, int], None]
) -> ShipReport:
    """Send all ended rollouts in the spool to the database, oldest first.

    Runs that were left open by dead processes are ended first. An agent may ship meanwhile:
    whatever arrives twice changes nothing.

    Args:
        settings: The store, and the spool.
        stop: Set to end it; what was sent stays.
        progress: Called with the rollouts done and those there were at the start.

    Raises:
        TauLiveError: These settings have no spool, or a store failed.
    """
    path = spool_of(settings)
    if path is None:
        raise TauLiveError(
            "there is no spool: the store is a file, or the database is on this machine and "
            "TAU_LIVE_RL_SPOOL names none"
        )
    if not path.is_file():
        return ShipReport()
    plugins, owner = load_plugins(settings), this_process()
    with (
        closing(open_store(settings)) as hub,
        closing(open_spool_of(settings, path, hub_id=hub.id())) as spool,
    ):
        local = Collector(spool, rewarding=Rewarding(settings, plugins), owner=None, settles=False)
        end_orphans(spool, local, owner=owner, now=time.time())
        note_heard(spool, hub)
        shipper = Shipper(spool, hub, hub_collector(hub, settings, plugins))
        total, done, ready, refused = spool.state().unsent, 0, 0, 0
        while not stop.is_set() and (copies := shipper.next_copies()) is not None:
            shipped = shipper.ship(copies)
            done += shipped.copies - shipped.refused
            ready += shipped.ready
            refused += shipped.refused
            progress(done + refused, max(total, done + refused))
        return ShipReport(shipped=done, ready=ready, refused=refused, unsent=spool.state().unsent)
