"""The lease that lets one process learn at a time."""

from contextlib import suppress

from tau_live.errors import LeaseLostError, StoreUnavailableError
from tau_live.machine.processes import is_alive
from tau_live.store.roles import Store

LEASE = "update"


def taken(store: Store, holder: str, *, ttl_s: float, now: float) -> bool:
    """Take or renew the lease, also that of a process of this machine that is known to be dead.

    Args:
        store: The store that those who learn share.
        holder: Who asks.
        ttl_s: How long it holds.
        now: Epoch seconds.
    """
    if store.leases.acquire(LEASE, holder, ttl_s=ttl_s, now=now):
        return True
    other = store.leases.holder(LEASE, now=now)
    if other is None or is_alive(other) is not False:
        return False
    store.leases.release(LEASE, other)
    return store.leases.acquire(LEASE, holder, ttl_s=ttl_s, now=now)


def give_back(store: Store, holder: str) -> None:
    """Let others have the lease; where the store fails it runs out, and its holder may go on."""
    with suppress(StoreUnavailableError):  # what was done under it is done
        store.leases.release(LEASE, holder)


def confirm(store: Store, holder: str) -> None:
    """Make sure, inside the transaction that needs it, that nobody else has had the lease.

    Raises:
        LeaseLostError: Somebody has, and may have done the work in the meantime.
    """
    if store.leases.holder(LEASE, now=0.0) != holder:
        raise LeaseLostError(f"the lease of {holder} expired, and another process has taken it")
