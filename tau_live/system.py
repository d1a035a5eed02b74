"""Settings become a running system; the only module that knows everyone."""

import atexit
import os
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial

from tau_live import fault
from tau_live.alerts.alarm import Alarm
from tau_live.board import Board
from tau_live.breath import Breath
from tau_live.builtin import load_plugins
from tau_live.collection.inbox import Inbox
from tau_live.collection.losses import leave_losses, take_in_losses
from tau_live.collection.pipeline import Pipeline
from tau_live.collection.recording import Recorder
from tau_live.collection.token_prices import Pricer
from tau_live.collection.writer import Listeners, Writer
from tau_live.deciding.decider import Decider
from tau_live.deciding.service import Service
from tau_live.envelope import OWN_HOST
from tau_live.errors import SettingsError, StoreUnavailableError
from tau_live.events import Event
from tau_live.gate import GateKeeper, Kind
from tau_live.guard import Guard, logger, reason_of, text_of
from tau_live.handed.plain import Limits
from tau_live.hookspecs import Promotion
from tau_live.learning.learner import Learned, Learner, report_of
from tau_live.learning.monitoring import MissingWatch
from tau_live.learning.quality import Hold
from tau_live.learning.updater import Updater
from tau_live.machine.children import link_children
from tau_live.machine.lineage import ATTACHED, Link, is_unwanted_child, parent_of
from tau_live.machine.processes import this_process
from tau_live.machine.whole_files import sweep
from tau_live.operators.disabled_plugins import DisabledPlugins
from tau_live.operators.kill_switch import Killed, KillWatch, kill_file
from tau_live.operators.killed_processes import StoppedByWord
from tau_live.operators.unaudited import take_in
from tau_live.pauses import Part
from tau_live.policies.files import checkpoint_folder, policy_config
from tau_live.rl.policy import Policy
from tau_live.runs.handles import RunHandle
from tau_live.runs.run_events import RunEvents
from tau_live.runtime import Runtime
from tau_live.settings import Learner as LearnerMode
from tau_live.settings import Settings
from tau_live.settings.places import here, placed
from tau_live.status import publish, status_file, status_of
from tau_live.store.forking import Forks
from tau_live.store.records import RolloutQuery
from tau_live.store.roles import Store
from tau_live.switch import killed_by
from tau_live.system_parts import learner_of, open_store, pipeline_of
from tau_live.trials.facts import trial_at
from tau_live.trials.promoter import Promoter

START_S = 5.0
"""How long ``start`` waits at most for the store to be open and the policies to be loaded."""

REMEMBERED = 2_000
"""Of so many of the newest runs it is known at the start how often they were tried."""

EXIT_S = 5.0
"""How long the end of the interpreter waits at most for what is queued to be stored."""


def start(
    environ: MutableMapping[str, str],
    target: object,
    *,
    inside: Callable[[], RunHandle | None] = lambda: None,
    forks: Forks | None = None,
) -> Runtime | None:
    """Return the running system; ``None``, with a line in the log, where settings are wrong.

    Args:
        environ: The environment, which children inherit.
        target: What is attached to; see ``tau_live.attach``.
        inside: Returns the innermost ``tau_live.run`` of the calling thread or task.
        forks: Told of the stores that are opened.
    """
    try:
        given = target if issubclass(type(target), Settings) else None
        if isinstance(given, Settings):
            settings = given
        else:
            loaded = Settings.from_env(environ, directory=here())
            settings = loaded.settings
            for warning in loaded.doubts():
                logger().warning("setting_doubtful", warning=warning)
        if is_unwanted_child(environ):
            return None
        if not settings.children:
            environ[ATTACHED] = this_process()
        runtime = _System(
            settings,
            forks or Forks(),
            environ=environ,
            began_in=lambda: parent_of(environ),
            killed_by_word=lambda: killed_by(environ),
        ).started(None if given else target)
    except SettingsError as error:
        logger().warning("settings_refused", error=str(error), effect="tau-live stays off")
        return None
    try:
        link_children(lambda: _link_to(inside()), environ, wanted=settings.children)
    except BaseException:  # an interruption
        runtime.stop(EXIT_S)
        raise
    return runtime


def _link_to(handle: RunHandle | None) -> Link | None:
    """Return a run as other processes know it; one that is not recorded is none."""
    if handle is None or not handle.recorded:
        return None
    return Link(handle.host, handle.run_id)


class _System:
    """Everything that a runtime is made of, and what happens between its parts."""

    def __init__(
        self,
        settings: Settings,
        forks: Forks,
        *,
        environ: Mapping[str, str],
        began_in: Callable[[], Link | None],
        killed_by_word: Callable[[], str | None],
    ) -> None:
        given, settings = settings, placed(settings)
        self._settings = settings
        self._owner = this_process()
        self._pid = os.getpid()
        self._board = Board()
        self._forks = forks
        self._missing = MissingWatch(settings.missing_reward_limit)
        self._gate = GateKeeper(limit=settings.max_failure_streak, who=self._owner)
        self._guard = Guard(self._host_failed)
        self._plugins = load_plugins(settings)
        self._alarm = Alarm(
            settings, self._plugins, environ=environ, owner=self._owner,
            count=lambda name: self._runtime.count(name),  # noqa: PLW0108  # which is made later
        )  # fmt: skip
        self._decider = Decider(Policy.untrained(policy_config(settings)), seed=settings.seed)
        self._service = Service(self._decider, checkpoint_folder(settings), promoted=self._promoted)
        self._recorder: Recorder | None = None
        self._kill = KillWatch(
            kill_file(settings.store, settings.kill_file), said=killed_by_word, changed=self._killed
        )
        self._stopped = StoppedByWord(self._owner)
        self._disabled = DisabledPlugins(self._owner)
        self._breath = Breath(hurried=self._is_behind)  # of the thread that writes
        self._pricer = Pricer(settings.prices, known=settings.known_prices)
        self._writer = self._made_writer()
        self._inbox = self._made_inbox()
        self._updater = self._made_updater()
        self._events = RunEvents(
            stream=settings.stream,
            limits=Limits(chars=settings.payload_limit),
            began_in=began_in,
        )
        self._runtime = Runtime(
            given,
            guard=self._guard,
            gate=self._gate,
            plugins=self._plugins,
            decider=self._decider,
            inbox=self._inbox,
            writer=self._writer,
            updater=self._updater,
            board=self._board,
            events=self._events,
        )

    def _made_writer(self) -> Writer:
        """Return what stores events, and whom it tells."""
        return Writer(
            self._opened,
            gate=self._gate,
            owner=self._owner,
            settings=self._settings,
            listeners=Listeners(
                ready=self._wake,
                changed=self._store_changed,
                look=self._look,
                failed=self._collection_failed,
                failing=self._board.started.set,
                gate_changed=self._gate_changed,
                counts=self._count_drops,
                mark=self._mark,
            ),
        )

    def _made_inbox(self) -> Inbox:
        """Return the queue between the host's threads and the one that writes."""
        return Inbox(
            write=self._writer.write,
            tick=self._writer.tick,
            end=self._ended,
            failed=self._collection_failed,
            takes=lambda: not self._writer.kept_back,
            limit=self._settings.queue_limit,
            breathe=self._breath,
        )

    def _made_updater(self) -> Updater:
        """Return what learns, and whom it tells."""
        return Updater(
            make=self._learner,
            may=lambda: self._gate.passes,
            rests=lambda: self._board.rests(Part.LEARNING),
            learned=self._learned,
            failed=self._update_failed,
            weigh=self._weigh,
            idle=self._caught_up,
            by_itself=self._settings.learner is LearnerMode.THREAD,
            learns=self._settings.learner is not LearnerMode.OFF,
        )

    def started(self, target: object) -> Runtime:
        """Start the threads; wait until what serves is loaded, or the store turned out bad."""
        try:
            self._kill.start()
            self._inbox.start()
            self._updater.start()
            if self._board.killed is None:
                self._board.started.wait(START_S)
            self._stop_at_exit()
            if target is not None:
                self._runtime.add_target(target)
            return self._runtime
        except BaseException:  # an interruption, or a thread that cannot be started
            self._kill.stop()
            self._runtime.stop(EXIT_S)
            raise

    def _stop_at_exit(self) -> None:
        """Store what waits when the process ends; a forked worker ends without ``atexit``."""
        workers = sys.modules.get("multiprocessing.util")
        if workers is not None and sys.modules["multiprocessing"].parent_process() is not None:
            workers.Finalize(None, self._at_exit, exitpriority=0)
        atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:  # a forked child inherits this, but none of the threads
            self._runtime.close(EXIT_S, at_exit=True)

    def _opened(self) -> tuple[Store, Pipeline]:
        store = self._forks.opened(partial(open_store, self._settings, breathe=self._breath))
        sweep(self._settings.store.absolute().parent)
        pipeline = pipeline_of(
            store,
            self._settings,
            owner=self._owner,
            plugins=self._plugins,
            recorder=self._recording(),
            on_poison=self._poisoned,
            on_unrecorded=self._unrecorded,
            pricer=self._pricer,
            breathe=self._breath,
            on_left_out=partial(self._runtime.count, "fields_left_out"),
        )
        return store, pipeline

    def _recording(self) -> Recorder | None:
        if self._recorder is None and self._settings.record is not None:
            try:
                self._recorder = Recorder(self._settings.record)
            except OSError as error:
                self._unrecorded(0, error)
        return self._recorder

    def _learner(self) -> tuple[Store, Learner]:
        breath = Breath()
        store = self._forks.opened(partial(open_store, self._settings, breathe=breath))
        return store, learner_of(store, self._settings, owner=self._owner, breathe=breath)

    def _ended(self) -> None:
        self._kill.stop()
        self._writer.close()
        leave_losses(self._settings.store, self._writer.lost())
        self._alarm.close()

    def _killed(self, found: Killed | None) -> None:
        """Stop everything, or go on, whatever the store does; called by the switch's thread."""
        self._board.killed = found
        self._gate.killed(None if found is None else str(found), at=found.at if found else 0.0)
        if found is None:
            logger().warning("kill_switch_off")
        else:
            logger().warning("kill_switch_on", reason=found.reason, who=found.who or None)

    def _store_changed(self, store: Store) -> None:
        """Take over what serves, what rests and what is known; called by the writer's thread."""
        pauses = store.pauses.pauses()
        if pauses != self._board.pauses:
            logger().warning("pauses_changed", paused=sorted(pauses))
        self._board.pauses = pauses
        self._decider.paused = self._board.rests(Part.DECIDING)
        self._service.take_over(store)
        if not self._board.started.is_set:
            self._remember(store)
            self._look(store)
            self._board.started.set()

    def _remember(self, store: Store) -> None:
        """Learn how often the newest runs were tried, so that a retry's decisions are its own."""
        newest = RolloutQuery(descending=True, limit=REMEMBERED)  # an index leads there
        for rollout in store.rollouts.query(newest).rollouts:
            if rollout.host == OWN_HOST:
                self._events.tried(rollout.run_id, rollout.attempt_count)

    def _look(self, store: Store) -> None:
        """Refresh what is known of the store in memory, and say there what stops us."""
        take_in(store, self._settings)
        take_in_losses(store, self._settings.store)
        self._stopped.say(store.leases, self._kill.by_word, now=time.time())
        self._disabled.say(store.leases, self._plugins.report(), now=time.time())
        self._board.stored = status_of(store, self._settings, now=time.time())
        self._hold(self._missing.looked(self._board.stored), at=time.time())
        self._alarm.look(store, self._board.stored)

    def _hold(self, hold: Hold | None, *, at: float) -> None:
        if hold is not None:
            self._gate.hold(hold.reason, at=at, detail=hold.detail)

    def _caught_up(self, store: Store) -> None:
        """Let what other processes have learned serve here too, and refresh what is known."""
        self._service.take_over(store)
        self._look(store)

    def _weigh(self, store: Store) -> None:
        """Count what became of assigned rollouts, and let what follows take effect here."""
        promoter = Promoter(store, self._settings, holder=self._owner)
        if promoter.advance(now=time.time()):
            self._service.take_over(store)
            self._look(store)

    def _learned(self, store: Store, learned: Learned) -> None:
        """Put an update's version into service and publish its report; in the learner's thread."""
        update = learned.update
        report = {
            **report_of(update),
            "trial": trial_at(store, update.point, self._settings, now=time.time()),
        }
        self._board.last_report = report
        if learned.policy is not None and update.version is not None:
            self._service.made(update.version, learned.policy)
        self._service.take_over(store)
        fault.point("update.serves")
        self._gate.succeeded(Kind.UPDATE, at=time.time())
        self._writer.trouble.worked_beside()
        self._hold(learned.hold, at=update.at)
        try:
            publish(status_file(self._settings), {**report, **self._runtime.snapshot()})
        except OSError as error:
            self._runtime.count("status_not_published")
            logger().warning("status_not_published", error=text_of(error))
        fault.point("update.published")
        if self._plugins.listens("update_finished"):
            self._plugins.update_finished(report)

    def _host_failed(self, kind: str, error: Exception) -> None:
        self._gate.failed(Kind(kind), reason_of(error), at=time.time())

    def _collection_failed(self, error: Exception) -> None:
        self._guard.failed(Kind.COLLECTION, error)
        self._board.started.set()

    def _update_failed(self, error: Exception) -> None:
        """Count what an update fails of, unless it is the store that fails, for all alike."""
        trouble = self._writer.trouble
        if trouble.lacks_room(error):
            trouble.failed_beside(error)
        elif isinstance(error, StoreUnavailableError) and not trouble.is_only_here(error):
            trouble.say(error)
        else:
            self._guard.failed(Kind.UPDATE, error)

    def _poisoned(self, event: Event, error: Exception) -> None:
        name = f"events_refused_{event.event}"
        if not self._runtime.counts().get(name):  # once, or a flood of them would fill the log
            logger().warning("event_refused", kind=event.event, error=text_of(error))
        self._runtime.count(name)

    def _unrecorded(self, events: int, error: OSError) -> None:
        if not self._runtime.counts().get("events_not_recorded"):
            logger().warning("recording_failed", error=text_of(error))
        self._runtime.count("events_not_recorded", events)

    def _mark(self, reached: Callable[[], None]) -> None:
        self._inbox.mark(reached)

    def _is_behind(self) -> bool:
        """Say whether the writer must not pause: so much waits, or the process ends."""
        return self._inbox.closed or self._inbox.depth > self._settings.queue_limit // 4

    def _wake(self) -> None:
        self._updater.wake()

    def _count_drops(self) -> dict[str, int]:
        return self._runtime.counts()

    def _promoted(self, promotion: Promotion) -> None:
        if self._plugins.listens("policy_promoted"):
            self._plugins.policy_promoted(promotion)

    def _gate_changed(self) -> None:
        snapshot = self._gate.snapshot()
        logger().warning("gate_changed", **snapshot)
        if self._plugins.listens("gate_changed"):
            self._plugins.gate_changed(snapshot)
        self._alarm.gate_changed(snapshot)
