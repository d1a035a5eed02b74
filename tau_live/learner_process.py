"""The learner in a process of its own: `tau-live learn`."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType

from tau_live.alerts.alarm import Alarm
from tau_live.builtin import load_plugins
from tau_live.collection.collector import Collector
from tau_live.collection.losses import take_in_losses
from tau_live.collection.trouble import Trouble
from tau_live.errors import StoreError
from tau_live.gate import GateKeeper, Kind, MemoryHoldSign
from tau_live.guard import logger, text_of
from tau_live.learning.learner import Learned, Learner, report_of
from tau_live.machine.clock_jumps import Jumps
from tau_live.machine.disk_failures import can_write_in
from tau_live.machine.processes import this_process
from tau_live.machine.tally import Tally
from tau_live.operators.kill_switch import kill_file, now_killed
from tau_live.operators.unaudited import take_in
from tau_live.pauses import Part
from tau_live.plugins import Plugins
from tau_live.rewards.settling import Rewarding
from tau_live.settings import Settings
from tau_live.status import publish, status_file, status_of
from tau_live.store.roles import Store
from tau_live.system_parts import learner_of, open_store
from tau_live.trials.facts import trial_at
from tau_live.trials.promoter import Promoter

POLL_S = 0.5
LOOK_S = 2.0
"""How often is looked for alerts while nothing is learned, as when the gate holds."""


class _Deadlines:
    """Settles rollouts whose wait for a reward is over, as an attached process does.

    Args:
        store: The store, in the thread that it belongs to.
        settings: Defaults, deadlines, and what safety costs.
        plugins: Who infers rewards.

    Attributes:
        more: Whether there were any the last time, so that there may be more.
    """

    def __init__(self, store: Store, settings: Settings, plugins: Plugins) -> None:
        self._store = store
        self._collector = Collector(store, rewarding=Rewarding(settings, plugins), owner=None)
        self._jumps = Jumps()
        self.more = False

    def settle(self) -> None:
        """Settle those that are overdue, as many as fit into one transaction."""
        jump = self._jumps.seen()
        with self._store.begin():
            if jump is not None:
                logger().warning(
                    "clock_was_set", by_s=round(jump.by_s), effect="deadlines are extended"
                )
                self._store.rewards.redate(before=jump.before, after=jump.after)
                self._store.counters.add({"clock_was_set": 1})
            self.more = self._collector.expire(time.time()) > 0


class _Gate:
    """The gate as this process has it, held in memory where there is no room for an update.

    Attributes:
        keeper: The gate.
    """

    def __init__(self, settings: Settings, owner: str) -> None:
        limit = settings.max_failure_streak
        self.keeper = GateKeeper(limit=limit, who=owner)
        room = partial(can_write_in, settings.store.absolute().parent)
        self._trouble = Trouble(self.keeper, limit=limit, has_room=room)
        self._sign = MemoryHoldSign(settings.store)

    def look(self, store: Store) -> None:
        """Write down what was noted, and take over what others wrote."""
        self._trouble.look_beside()
        self.keeper.refresh(store.gate, at=time.time())

    def show(self) -> None:
        """Show others what holds here alone; again after ``_look``, which loses the sign."""
        self._sign.show(self.keeper.held_in_memory)

    def succeeded(self) -> None:
        """Note that an update was kept."""
        self.keeper.succeeded(Kind.UPDATE, at=time.time())
        self._trouble.worked_beside()

    def failed(self, error: Exception) -> None:
        """Count a failure, unless there was no room: that ends by itself."""
        if self._trouble.lacks_room(error):
            self._trouble.failed_beside(error)
            return
        self.keeper.failed(Kind.UPDATE, text_of(error), at=time.time())
        logger().warning("update_failed", error=text_of(error))

    def close(self) -> None:
        """Hold no longer for others to see."""
        self._sign.show(None)


def learn_until(
    stop: threading.Event,
    settings: Settings,
    *,
    once: bool,
    report: Callable[[dict[str, object]], None],
    environ: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Run updates as they become due, until told to stop; return how many were run.

    Failures count in the gate; while it holds nothing is learned, nor while learning is paused.
    Rewards that did not come in time are settled here too: no agent may be attached.

    Args:
        stop: Set to end after the update that is running.
        settings: Where the store is, and how to learn.
        once: Whether to end when nothing is due any more.
        report: Told of each update.
        environ: What the command that alerts are given to inherits.

    Raises:
        StoreError: The store cannot be opened.
    """
    owner = this_process()
    gate = _Gate(settings, owner)
    plugins = load_plugins(settings)
    counts = Tally()
    alarm = Alarm(settings, plugins, environ=environ, owner=owner, count=counts.add)
    switch = kill_file(settings.store, settings.kill_file)
    store = open_store(settings)
    done, looked = 0, float("-inf")
    try:
        learner = learner_of(store, settings, owner=owner)
        learner.sweep()
        promoter = Promoter(store, settings, holder=owner)
        deadlines = _Deadlines(store, settings, plugins)
        while not stop.is_set():
            gate.look(store)
            killed = now_killed(switch) is not None
            may = gate.keeper.passes and not killed
            learned = _next(store, learner, promoter, deadlines, may=may, gate=gate)
            if learned is None:
                if deadlines.more:
                    continue
                if once:
                    break
                if time.monotonic() - looked >= LOOK_S:
                    _look(store, settings, alarm)
                    looked = time.monotonic()
                gate.show()
                stop.wait(POLL_S)
                continue
            done += 1
            gate.succeeded()
            if learned.hold is not None:
                gate.keeper.hold(
                    learned.hold.reason, at=learned.update.at, detail=learned.hold.detail
                )
            found = _found(store, settings, learned, alarm)
            if plugins.listens("update_finished"):
                plugins.update_finished(found)
            report(found)
        gate.look(store)
        _look(store, settings, alarm)
        return done
    finally:
        gate.close()
        alarm.close()
        with suppress(StoreError):
            store.counters.add(counts.counts())
        store.close()


def _look(store: Store, settings: Settings, alarm: Alarm) -> None:
    """Take in what waits, tell what is new; a store that fails is left to what learns from it."""
    with suppress(StoreError):
        take_in(store, settings)
        take_in_losses(store, settings.store)
        alarm.look(store, status_of(store, settings, now=time.time()))


def _found(store: Store, settings: Settings, learned: Learned, alarm: Alarm) -> dict[str, object]:
    """Return the report, published; the update is kept already, so a failure is only told."""
    update = learned.update
    found = {**report_of(update), "trial": trial_at(store, update.point, settings, now=time.time())}
    try:
        status = status_of(store, settings, now=time.time())
        alarm.look(store, status)
        publish(status_file(settings), {**found, **status})
    except (OSError, StoreError) as error:
        logger().warning("status_not_published", error=text_of(error))
    return found


def _next(
    store: Store,
    learner: Learner,
    promoter: Promoter,
    deadlines: _Deadlines,
    *,
    may: bool,
    gate: _Gate,
) -> Learned | None:
    """Settle what is overdue, run one update that is due, and weigh trials, if that may be.

    What fails is counted, unless there is no room for it: that ends by itself.
    """
    learned = None
    deadlines.more = False
    try:
        if may:
            deadlines.settle()
        rests = Part.LEARNING in store.pauses.pauses()
        learned = learner.run_next(now=time.time()) if may and not rests else None
        if may:
            promoter.advance(now=time.time())
    except Exception as error:  # noqa: BLE001  # counted by the gate, which then holds
        gate.failed(error)
    return learned
