"""Running processes that ``TAU_LIVE_RL_KILL`` stops, as reported in the store.

From outside nobody sees the variables of a process that runs, so whoever asks why nothing happens
would find a switch that is off.
"""

from tau_live.machine.processes import PROCESSES, is_alive
from tau_live.operators.kill_switch import Killed
from tau_live.store.roles import Leases
from tau_live.switch import KILL

STOPPED = "killed:"
"""Begins the name of the lease that a process holds while the variable stops it."""

RENEW_S = 5.0
TTL_S = 20.0
_NAMED = 3


class StoppedByWord:
    """Says in the store that the variable stops this process.

    Args:
        owner: This process.
    """

    def __init__(self, owner: str) -> None:
        self._name = STOPPED + owner
        self._owner = owner
        self._holder: str | None = None
        self._said_at = 0.0

    def say(self, leases: Leases, killed: Killed | None, *, now: float) -> None:
        """Write it down, or take it back; most often there is nothing to do.

        Raises:
            StoreUnavailableError: It cannot be written; the next call tries again.
        """
        if killed is None:
            if self._holder is not None:
                leases.release(self._name, self._holder)
                self._holder = None
            return
        holder = f"{killed.at} {self._owner}"
        if holder != self._holder or not 0.0 <= now - self._said_at < RENEW_S:
            leases.acquire(self._name, holder, ttl_s=TTL_S, now=now)
            self._holder, self._said_at = holder, now


def killed_inside(leases: Leases, *, now: float) -> Killed | None:
    """Return that the variable stops processes which are attached; ``None`` if it stops none."""
    held = leases.held(STOPPED, now=now).values()
    stopped = [(owner, at) for at, owner in map(_parted, held) if is_alive(owner) is not False]
    if not stopped:
        return None
    attached = leases.held(PROCESSES, now=now).values()
    alive = {owner for owner in attached if is_alive(owner) is not False}
    alive |= {owner for owner, _ in stopped}
    named = ", ".join(sorted(owner for owner, _ in stopped)[:_NAMED])
    more = "" if len(stopped) <= _NAMED else ", ..."
    reason = f"{KILL} is set inside {len(stopped)} of {len(alive)} attached processes: "
    return Killed(f"{reason}{named}{more}", "", min(at for _, at in stopped))


def _parted(holder: str) -> tuple[float, str]:
    at, _, owner = holder.partition(" ")
    try:
        return float(at), owner
    except ValueError:
        return 0.0, owner
