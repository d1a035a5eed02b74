"""The learner in a process of its own: `tau-live learn`."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType

import msgspec

from tau_live.core.clock import Jumps
from tau_live.core.errors import StoreError, StoreUnavailableError
from tau_live.core.files import can_write_in
from tau_live.core.gate import Kind
from tau_live.core.gate_keeper import GateKeeper
from tau_live.core.guard import logger, text_of
from tau_live.core.memory_holds import MemoryHoldSign
from tau_live.core.plugins import Plugins
from tau_live.core.processes import this_process
from tau_live.core.reasons import Part
from tau_live.core.settings import Settings
from tau_live.core.sync import Tally
from tau_live.learn.learner import UpdateResult, report_of
from tau_live.learn.promotion.promoter import Promoter
from tau_live.learn.promotion.rules import trial_at
from tau_live.operate.access import store_waiting
from tau_live.operate.alerts import Alerts
from tau_live.operate.status import publish, status_file, status_of
from tau_live.operate.stops import kill_file, now_killed
from tau_live.record.collector import Collector
from tau_live.record.heartbeats import HEARTBEAT_S, hold_all, note_seen
from tau_live.record.rewards import Rewarding
from tau_live.record.shutdown import take_in_losses
from tau_live.record.trouble import Trouble
from tau_live.runtime.build import learner_of, open_store
from tau_live.runtime.builtin_plugins import load_plugins
from tau_live.store.roles import Store

POLL_S = 0.5
ALERTS_S = 2.0
"""Seconds between two checks for alerts while nothing is learned, as when the gate holds."""


class _Learning:
    """The learner of this process, and its view of the gate.

    Args:
        store: The store, in its own thread.
        settings: Rewards, safety, and how to learn.
        owner: The name of this process.
        plugins: The plugins that infer rewards.

    Attributes:
        gate: The gate as this process sees it.
        sign: Shows other processes a hold in memory, for lack of room.
        is_overdue: Whether rollouts were overdue the last time, so that there may be more.
    """

    def __init__(self, store: Store, settings: Settings, owner: str, plugins: Plugins) -> None:
        self._limit = limit = settings.max_failure_streak
        self._owner = owner
        self._counted_at = float("-inf")
        self._store = store
        self._learner = learner_of(store, settings, owner=owner)
        self._learner.sweep()
        self._promoter = Promoter(store, settings, holder=owner)
        self._collector = Collector(store, rewarding=Rewarding(settings, plugins), owner=None)
        self._jumps = Jumps()
        self.gate = GateKeeper(limit=limit, who=owner)
        self._trouble = Trouble(
            self.gate,
            limit=limit,
            has_room=partial(can_write_in, settings.store.absolute().parent),
        )
        self.sign = MemoryHoldSign(settings.store)
        self.is_overdue = False

    def refresh_gate(self) -> None:
        """Write pending steps of the gate, and take over what other processes wrote.

        Also let it hold if too many hosts of a fleet do, which the logins of agents may not, and
        let others see that this process is there.
        """
        self._trouble.check_learner_room()
        self.gate.refresh(self._store.gate)
        if self._store.is_shared and time.monotonic() - self._counted_at >= HEARTBEAT_S:
            self._counted_at = time.monotonic()
            with suppress(StoreError):
                note_seen(self._store, self._owner, self._owner, self.gate.report())
                hold_all(self._store, limit=self._limit, who=self._owner)

    def run_next(self) -> UpdateResult | None:
        """Settle what is overdue, run one update that is due, and weigh trials.

        Failures are counted by the gate, except for lack of room, which ends by itself.
        """
        learned = None
        try:
            self._settle()
            if Part.LEARNING not in self._store.pauses.pauses():
                learned = self._learner.run_next(now=time.time())
            self._promoter.advance(now=time.time())
        except Exception as error:  # noqa: BLE001  # counted by the gate, which then holds
            if self._trouble.lacks_room(error):
                self._trouble.record_learner_failure(error)
            elif isinstance(error, StoreUnavailableError) and (
                error.todo or self._store.is_shared  # for all alike
            ):
                self._trouble.log(error)
            else:
                self.gate.record_failure(Kind.UPDATE, text_of(error), at=time.time())
                logger().warning("update_failed", error=text_of(error))
        if learned is not None:
            self.gate.record_success(Kind.UPDATE, at=time.time())
            self._trouble.record_learner_success()
            if learned.hold is not None:
                self.gate.hold(
                    learned.hold.reason, at=learned.update.at, detail=learned.hold.detail
                )
        return learned

    def _settle(self) -> None:
        """Settle a transaction's worth of rollouts whose wait for a reward is over."""
        jump = self._jumps.take_jump()
        with self._store.begin():
            if jump is not None:
                logger().warning(
                    "clock_was_set", by_s=round(jump.by_s), effect="deadlines are extended"
                )
                self._store.rewards.redate(before=jump.before, after=jump.after)
                self._store.counters.add({"clock_was_set": 1})
            self.is_overdue = self._collector.expire(time.time()) > 0


def learn_until(
    stop: threading.Event,
    settings: Settings,
    *,
    once: bool,
    report: Callable[[dict[str, object]], None],
    environ: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Run updates as they become due, until ``stop`` is set; return how many were run.

    Failures count in the gate; nothing is learned while it holds or while learning is paused.
    Overdue rewards are settled here too, as no agent may be attached.

    Args:
        stop: Set to end after the running update.
        settings: The store, and how to learn.
        once: Whether to end when no update is due any more.
        report: Called with each update's report.
        environ: The environment of the alert command.

    Raises:
        StoreError: The store cannot be opened.
    """
    owner = this_process()
    plugins = load_plugins(settings)
    counts = Tally()
    alerts = Alerts(settings, plugins, environ=environ, owner=owner, count=counts.add)
    switch = kill_file(settings.store, settings.kill_file)
    store = open_store(settings)
    done, checked_at = 0, float("-inf")
    learning: _Learning | None = None
    try:
        learning = _Learning(store, settings, owner, plugins)
        while not stop.is_set():
            learning.refresh_gate()
            may_learn = now_killed(switch) is None and learning.gate.passes
            learning.is_overdue = False
            learned = learning.run_next() if may_learn else None
            if learned is not None:
                done += 1
                published = _publish_report(store, settings, learned, alerts)
                plugins.tell("update_finished", published)
                report(published)
            elif not learning.is_overdue:
                if once:
                    break
                if time.monotonic() - checked_at >= ALERTS_S:
                    _check_alerts(store, settings, alerts)
                    checked_at = time.monotonic()
                learning.sign.show(learning.gate.held_in_memory)  # last: a check drops its lock
                stop.wait(POLL_S)
        learning.refresh_gate()
        _check_alerts(store, settings, alerts)
        return done
    finally:
        if learning is not None:
            learning.sign.show(None)
        alerts.close()
        with suppress(StoreError):
            store.counters.add(counts.counts())
        store.close()


def _check_alerts(store: Store, settings: Settings, alerts: Alerts) -> None:
    """Store pending audit lines and losses, and raise alerts; store failures are ignored here."""
    with suppress(StoreError):
        store_waiting(store, settings)
        take_in_losses(store, settings.store)
        alerts.check(store)


def _publish_report(
    store: Store, settings: Settings, learned: UpdateResult, alerts: Alerts
) -> dict[str, object]:
    """Publish the report and return it; the update is stored, so a failure is only logged."""
    update = learned.update
    report = {
        **report_of(update),
        "trial": trial_at(store, update.point, settings, now=time.time()),
    }
    try:
        status = status_of(store, settings, now=time.time())
        alerts.check(store)
        publish(status_file(settings), {**report, **msgspec.to_builtins(status)})
    except (OSError, StoreError) as error:
        logger().warning("status_not_published", error=text_of(error))
    return report
