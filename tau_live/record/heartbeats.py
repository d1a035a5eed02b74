"""Heartbeats: by its lease each process shows that it lives, and in a fleet how it is.

A process of a fleet whose own failures hold it holds nobody else. When as many hosts as ``most_of``
says hold for one reason, the cause is hardly theirs, and all hold.
"""

import random
import time
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import msgspec

from tau_live.core.errors import StoreBusyError, StoreError, suppress
from tau_live.core.gate_keeper import GateKeeper, ProcessReport, hold_stored
from tau_live.core.processes import HOUSE, PROCESSES, is_alive, machine_of
from tau_live.store.roles import Leases, Store

HEARTBEAT_S = 5.0
HEARTBEAT_TTL_S = 20.0
ACKNOWLEDGED_S = 3.0
"""So late at most a process acknowledges an order, after a random delay: all have heard it at once.
"""

RESTS = 4.0
"""How many times as long as keeping house takes it is not done again: each of its statements waits
for a server that is slow, or far away."""

SEEN_S = 60.0
"""Hosts whose last heartbeat is older do not count."""

KEPT_S = 86_400.0
"""How long after the last heartbeat of a process its failures are kept for who replaces it."""

FEWEST, SHARE = 2, 0.1
"""So many hosts, and at least this share of those seen, hold all when they hold for one reason."""

NEEDED_S = 3_600.0
"""How long what a process of an earlier version needs is kept after it was last seen."""

SEEN = "seen:"
"""Prefix of the leases that say who was seen last that sends no heartbeat, or no more."""

_RESETS_READ = 100


class Heartbeat(NamedTuple):
    """The last heartbeat of a process of a fleet.

    Attributes:
        process: The process.
        ago_s: How long ago it was, in seconds, by the store's clock.
        report: How it is.
    """

    process: str
    ago_s: float
    report: ProcessReport

    @property
    def host(self) -> str:
        """The machine of the process."""
        return machine_of(self.process)


class Heart:
    """Sends the heartbeats of this process, at once when others should know of something.

    Args:
        owner: This process.
        gate: Its gate, of which it reports in a fleet.
        limit: The failures in a row after which a gate holds.
    """

    def __init__(self, owner: str, gate: GateKeeper, *, limit: int) -> None:
        self._owner = owner
        self._gate = gate
        self._limit = limit
        self._beaten_at = float("-inf")
        self._acknowledge_at: float | None = None
        self._sent: ProcessReport | None = None
        self._has_replaced = False

    def stop(self) -> None:
        """Stop it, so that the next heartbeat is the first."""
        self._beaten_at, self._sent = float("-inf"), None

    def is_due(self, store: Store) -> bool:
        """Return whether the next heartbeat is due."""
        now = time.monotonic()
        if now - self._beaten_at >= HEARTBEAT_S:
            return True
        sent = self._sent
        if not store.is_shared or sent is None:
            return False
        revision, reason = self._gate.news
        if self._acknowledge_at is None and revision != sent.revision:
            delay_s = random.uniform(0.0, ACKNOWLEDGED_S)  # noqa: S311  # no secret
            self._acknowledge_at = now + delay_s
        is_late = self._acknowledge_at is not None and now >= self._acknowledge_at
        return is_late or reason != sent.reason

    def beat(self, store: Store) -> bool:
        """Send a heartbeat; return whether this process keeps house for all that share the store.

        Raises:
            StoreError: It could not be sent.
        """
        if not store.is_shared:
            keeps_house = beat(store, self._owner)
        else:
            if not self._has_replaced:
                replace_dead(store, self._gate, self._owner)
                self._has_replaced = True
            report = self._gate.report()
            keeps_house = beat(store, self._owner, report)
            self._sent, self._acknowledge_at = report, None
            if keeps_house:
                forget_dead(store.leases)
            if keeps_house or report.reason is not None:
                with suppress(StoreError):  # the login of an agent may not: the learner's may
                    hold_all(store, limit=self._limit, who=self._owner)
        self._beaten_at = time.monotonic()
        return keeps_house

    def leave(self, store: Store) -> None:
        """Release the leases of this process; its failures are kept for who replaces it."""
        report = self._gate.report()
        if store.is_ahead():  # the next that is started here may be of the same version
            note_seen(store, machine_of(self._owner), self._owner, report)
        if store.is_shared and (report.streaks or report.reason is not None):
            left = msgspec.structs.replace(report, revision=None)
            store.leases.acquire(
                PROCESSES + self._owner, self._owner, ttl_s=0.0, report=_text_of(left, store)
            )
            store.leases.release(HOUSE, self._owner)
        else:
            leave(store, self._owner)


def beat(store: Store, owner: str, report: ProcessReport | None = None) -> bool:
    """Renew the lease of a process; return whether it keeps house for all that share the store.

    Whoever does seals the ends of all chains of seals, once a minute.
    """
    text = None if report is None else _text_of(report, store)
    keeps_house = store.beat(owner, ttl_s=HEARTBEAT_TTL_S, report=text)
    if keeps_house and store.is_shared:
        store.seals.keep_heads()
    return keeps_house


def leave(store: Store, owner: str) -> None:
    """Release the leases of a process."""
    for name in (PROCESSES + owner, HOUSE):
        store.leases.release(name, owner)


def note_seen(store: Store, name: str, owner: str, report: ProcessReport) -> None:
    """Record under a name that a process was seen which sends no heartbeat, or no more."""
    text = _text_of(report, store)
    store.leases.acquire(SEEN + name, owner, ttl_s=HEARTBEAT_TTL_S, report=text)


def check_unneeded(store: Store, version: int) -> None:
    """Check that nobody was seen lately who needs what versions before one have.

    Raises:
        StoreBusyError: These processes were.
    """
    seen = [
        each
        for prefix in (PROCESSES, SEEN)
        for each in heartbeats(store.leases, within_s=NEEDED_S, prefix=prefix)
        if each.report.schema < version
    ]
    if seen:
        newest = {each.process: each for each in sorted(seen, key=lambda each: -each.ago_s)}
        shown = [
            f"{each.process} (schema {each.report.schema}, {max(0.0, each.ago_s):.0f} s ago)"
            for each in newest.values()
        ]
        raise StoreBusyError(
            f"what only hosts before schema {version} need is kept: such hosts were seen in the "
            f"last hour: {', '.join(shown)}; upgrade them, and call this an hour after the last "
            "of them was seen"
        )


def heartbeats(leases: Leases, *, within_s: float, prefix: str = PROCESSES) -> list[Heartbeat]:
    """Return the last heartbeat of each process of a fleet, of the last so many seconds."""
    return [
        Heartbeat(lease.holder, ago_s, report)
        for lease in leases.all(prefix)
        if (ago_s := HEARTBEAT_TTL_S - lease.left_s) <= within_s
        and (report := _report_in(lease.report)) is not None
    ]


def lately_alive(leases: Leases) -> list[Heartbeat]:
    """Return the last heartbeat of each process that was seen lately and has not ended normally."""
    seen = heartbeats(leases, within_s=SEEN_S)
    return [each for each in seen if each.report.revision is not None]


def holding_alone(store: Store) -> list[Heartbeat]:
    """Return the processes that hold alone now.

    What holds from before the newest reset is named only while its lease lasts, in which a process
    that lives hears of that.
    """
    held = [each for each in lately_alive(store.leases) if each.report.reason is not None]
    reset = newest_reset(store) if held else 0
    return [
        each
        for each in held
        if (each.report.reset == reset or each.ago_s <= HEARTBEAT_TTL_S)
        and not is_dead(each.process)
    ]


def newest_reset(store: Store) -> int:
    """Return the number of the newest reset in the history of the gate; 0 without one."""
    log = store.gate.log(limit=_RESETS_READ)
    return next((line.seq for line in log if line.event == "reset"), 0)


def most_of(hosts: int) -> int:
    """Return how many of so many hosts hold all when they hold for one reason."""
    return max(FEWEST, ceil(SHARE * hosts))


def hold_all(store: Store, *, limit: int, who: str) -> bool:
    """Let the gate of all hold if too many hosts hold for one reason; return whether it began to.

    Those that have not heard of the newest reset yet do not count, nor do processes that ended.

    Raises:
        StoreError: The gate cannot be written.
    """
    seen = lately_alive(store.leases)
    held = [each for each in seen if each.report.reason is not None]
    if len(held) < FEWEST:
        return False
    reset = newest_reset(store)
    of = len({each.host for each in seen})
    errors: dict[str, dict[str, str]] = {}  # by reason and host
    for each in held:
        if each.report.reset == reset:
            hosts = errors.setdefault(str(each.report.reason), {})
            hosts[each.host] = each.report.detail or ""
    for reason, hosts in errors.items():
        if len(hosts) >= most_of(of):
            *_, newest = hosts.values()
            detail = f"{len(hosts)} of {of} hosts hold, one because of: {newest}"
            at = store.now()
            with store.begin():
                return hold_stored(
                    store.gate, limit=limit, reason=reason, detail=detail, who=who, at=at
                )
    return False


def forget_dead(leases: Leases) -> None:
    """Delete the leases of processes that have not been seen for a day."""
    for lease in [*leases.all(PROCESSES), *leases.all(SEEN)]:
        if lease.left_s < -KEPT_S:
            leases.release(lease.name, lease.holder)


def replace_dead(store: Store, gate: GateKeeper, owner: str) -> None:
    """Take over the failures and the hold that dead processes of this machine have left.

    So a host that fails does not begin anew with each restart, and the failures of short processes
    follow each other.
    """
    for each in heartbeats(store.leases, within_s=KEPT_S):
        if each.host == machine_of(owner) and is_dead(each.process):
            gate.take_over_from(each.report)
            store.leases.release(PROCESSES + each.process, each.process)


def is_dead(process: str) -> bool:
    """Return whether a process is known to be dead."""
    return is_alive(process) is False


def unaware(beats: Sequence[Heartbeat], revision: int) -> list[Heartbeat]:
    """Return the heartbeats of processes that do not act by this revision of the gate yet."""
    return [
        each
        for each in beats
        if each.report.revision is not None
        and each.report.revision < revision
        and not is_dead(each.process)
    ]


def _text_of(report: ProcessReport, store: Store) -> str:
    return msgspec.json.encode(msgspec.structs.replace(report, schema=store.schema)).decode()


def _report_in(text: str | None) -> ProcessReport | None:
    """Return a report; ``None`` without one, and for what is none."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=ProcessReport)
    except msgspec.DecodeError:  # an edited row
        return None
