"""Settings become a running system; the only module that knows everyone."""

import atexit
import os
import sys
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path

from tau_live.board import Board
from tau_live.builtin import load_plugins
from tau_live.children import link_children
from tau_live.collector import Collector
from tau_live.decider import Decider
from tau_live.errors import SettingsError
from tau_live.events import Event
from tau_live.forking import Forks
from tau_live.gate import GateKeeper, Kind
from tau_live.guard import Guard, logger, text_of
from tau_live.handles import HOST, RunHandle
from tau_live.hookspecs import Promotion
from tau_live.inbox import Inbox
from tau_live.learner import Learned, Learner, report_of
from tau_live.lineage import ATTACHED, Link, is_unwanted_child, parent_of
from tau_live.monitoring import MissingWatch
from tau_live.pipeline import Pipeline
from tau_live.plain import Limits
from tau_live.plugins import Plugins
from tau_live.policy_files import checkpoint_folder, policy_config
from tau_live.processes import this_process
from tau_live.promoting import Promoter, voided
from tau_live.quality import Hold
from tau_live.recording import Recorder
from tau_live.redaction import Redactor
from tau_live.rewarding import Rewarding
from tau_live.rl.policy import Policy
from tau_live.runs import RunEvents
from tau_live.runtime import Runtime
from tau_live.service import Service
from tau_live.settings import Learner as LearnerMode
from tau_live.settings import Settings
from tau_live.status import publish, status_file, status_of
from tau_live.store.records import RolloutQuery
from tau_live.store.roles import Store
from tau_live.store.sqlite import SqliteStore
from tau_live.token_prices import Pricer
from tau_live.trial_facts import trial_at
from tau_live.updater import Updater
from tau_live.writer import Listeners, Writer

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
) -> Runtime | None:
    """Return the running system; ``None``, with a line in the log, where settings are wrong.

    Args:
        environ: The environment, which children inherit.
        target: What is attached to; see ``tau_live.attach``.
        inside: Returns the innermost ``tau_live.run`` of the calling thread or task.
    """
    try:
        given = target if issubclass(type(target), Settings) else None
        if isinstance(given, Settings):
            settings = given
        else:
            loaded = Settings.from_env(environ, directory=Path.cwd())
            settings = loaded.settings
            for warning in loaded.doubts():
                logger().warning("setting_doubtful", warning=warning)
        if is_unwanted_child(environ):
            return None
        if not settings.children:
            environ[ATTACHED] = this_process()
        runtime = _System(settings, began_in=lambda: parent_of(environ)).started()
    except SettingsError as error:
        logger().warning("settings_refused", error=str(error), effect="tau-live stays off")
        return None
    if target is not None and given is None:
        runtime.add_target(target)
    link_children(lambda: _link_to(inside()), environ, wanted=settings.children)
    return runtime


def _link_to(handle: RunHandle | None) -> Link | None:
    """Return a run as other processes know it; one that is not recorded is none."""
    if handle is None or not handle.recorded:
        return None
    return Link(handle.host, handle.run_id)


def open_store(settings: Settings, *, busy_timeout_s: float = 5.0) -> SqliteStore:
    """Open the store that settings name.

    Raises:
        StoreError: It cannot be opened.
    """
    return SqliteStore.open(
        settings.store, synchronous=settings.durability.value, busy_timeout_s=busy_timeout_s
    )


def pipeline_of(  # noqa: PLR0913  # its parts and whom it tells, all keyword-only
    store: Store,
    settings: Settings,
    *,
    owner: str | None,
    plugins: Plugins,
    recorder: Recorder | None,
    on_poison: Callable[[Event, Exception], None],
    on_unrecorded: Callable[[int, OSError], None] = lambda _number, _error: None,
    pricer: Pricer | None = None,
) -> Pipeline:
    """Return the way of events into a store."""
    return Pipeline(
        store,
        collector=Collector(
            store,
            rewarding=Rewarding(settings, plugins),
            owner=owner,
            redact=plugins.redact,
        ),
        redactor=Redactor(settings.content.value, settings.payload_limit),
        plugins=plugins,
        recorder=recorder,
        on_poison=on_poison,
        on_unrecorded=on_unrecorded,
        pricer=pricer,
    )


def learner_of(store: Store, settings: Settings, *, owner: str) -> Learner:
    """Return a learner whose drift alarms void the test of the point concerned."""

    def void(point: str, at: float) -> None:
        voided(store, point, reason="drift", who=owner, at=at)

    return Learner(store, settings, holder=owner, void=void)


class _System:
    """Everything that a runtime is made of, and what happens between its parts."""

    def __init__(self, settings: Settings, *, began_in: Callable[[], Link | None]) -> None:
        self._settings = settings
        self._owner = this_process()
        self._pid = os.getpid()
        self._board = Board()
        self._forks = Forks()
        self._missing = MissingWatch(settings.missing_reward_limit)
        self._gate = GateKeeper(limit=settings.max_failure_streak, who=self._owner)
        self._guard = Guard(self._host_failed)
        self._plugins = load_plugins(settings)
        self._decider = Decider(Policy.untrained(policy_config(settings)), seed=settings.seed)
        self._service = Service(self._decider, checkpoint_folder(settings), promoted=self._promoted)
        self._recorder: Recorder | None = None
        self._pricer = Pricer(settings.prices, known=settings.known_prices)
        self._writer = Writer(
            self._opened,
            gate=self._gate,
            owner=self._owner,
            settings=settings,
            listeners=Listeners(
                ready=self._wake,
                changed=self._store_changed,
                look=self._look,
                failed=self._collection_failed,
                gate_changed=self._gate_changed,
                counts=self._count_drops,
                mark=self._mark,
            ),
        )
        self._inbox = Inbox(
            write=self._writer.write,
            tick=self._writer.tick,
            end=self._writer.close,
            failed=self._collection_failed,
            limit=settings.queue_limit,
        )
        self._updater = Updater(
            make=self._learner,
            may=lambda: self._gate.passes,
            learned=self._learned,
            failed=self._update_failed,
            weigh=self._weigh,
            idle=self._caught_up,
            by_itself=settings.learner is LearnerMode.THREAD,
            learns=settings.learner is not LearnerMode.OFF,
        )
        self._events = RunEvents(
            stream=settings.stream,
            limits=Limits(chars=settings.payload_limit),
            began_in=began_in,
        )
        self._runtime = Runtime(
            settings,
            guard=self._guard,
            gate=self._gate,
            plugins=self._plugins,
            decider=self._decider,
            inbox=self._inbox,
            writer=self._writer,
            updater=self._updater,
            board=self._board,
            forks=self._forks,
            events=self._events,
        )

    def started(self) -> Runtime:
        """Start both threads; wait until what serves is loaded, or the store turned out bad."""
        self._inbox.start()
        self._updater.start()
        self._board.started.wait(START_S)
        self._stop_at_exit()
        return self._runtime

    def _stop_at_exit(self) -> None:
        """Store what waits when the process ends; a forked worker ends without ``atexit``."""
        workers = sys.modules.get("multiprocessing.util")
        if workers is not None and sys.modules["multiprocessing"].parent_process() is not None:
            workers.Finalize(None, self._at_exit, exitpriority=0)
        atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:  # a forked child inherits this, but none of the threads
            self._runtime.close(EXIT_S)

    def _opened(self) -> tuple[Store, Pipeline]:
        store = self._forks.add("writer", open_store(self._settings))
        pipeline = pipeline_of(
            store,
            self._settings,
            owner=self._owner,
            plugins=self._plugins,
            recorder=self._recording(),
            on_poison=self._poisoned,
            on_unrecorded=self._unrecorded,
            pricer=self._pricer,
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
        store = self._forks.add("learner", open_store(self._settings))
        return store, learner_of(store, self._settings, owner=self._owner)

    def _store_changed(self, store: Store) -> None:
        """Take over what serves and what is known; called by the writer's thread."""
        self._service.take_over(store)
        if not self._board.started.is_set():
            self._remember(store)
            self._look(store)
            self._board.started.set()

    def _remember(self, store: Store) -> None:
        """Learn how often the newest runs were tried, so that a retry's decisions are its own."""
        newest = RolloutQuery(
            descending=True, limit=REMEMBERED
        )  # of all hosts: an index leads there
        for rollout in store.rollouts.query(newest).rollouts:
            if rollout.host == HOST:
                self._events.tried(rollout.run_id, rollout.attempt_count)

    def _look(self, store: Store) -> None:
        """Refresh what is known of the store in memory."""
        self._board.stored = status_of(store, self._settings, now=time.time())
        self._hold(self._missing.looked(self._board.stored))

    def _hold(self, hold: Hold | None) -> None:
        if hold is not None:
            self._gate.hold(hold.reason, at=time.time(), detail=hold.detail)

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
        report = {**report_of(update), "trial": trial_at(store, update.point, self._settings)}
        self._board.last_report = report
        if learned.policy is not None and update.version is not None:
            self._service.made(update.version, learned.policy)
        self._service.take_over(store)
        self._gate.succeeded(Kind.UPDATE, at=time.time())
        self._hold(learned.hold)
        try:
            publish(status_file(self._settings), {**report, **self._runtime.snapshot()})
        except OSError as error:
            self._runtime.count("status_not_published")
            logger().warning("status_not_published", error=text_of(error))
        if self._plugins.listens("update_finished"):
            self._plugins.update_finished(report)

    def _host_failed(self, kind: str, error: Exception) -> None:
        self._gate.failed(Kind(kind), text_of(error), at=time.time())

    def _collection_failed(self, error: Exception) -> None:
        self._guard.failed(Kind.COLLECTION, error)
        self._board.started.set()

    def _update_failed(self, error: Exception) -> None:
        self._guard.failed(Kind.UPDATE, error)

    def _poisoned(self, event: Event, error: Exception) -> None:
        self._runtime.count(f"events_refused_{event.event}")
        logger().warning("event_refused", kind=event.event, error=text_of(error))

    def _unrecorded(self, events: int, error: OSError) -> None:
        if not self._runtime.counts().get("events_not_recorded"):
            logger().warning("recording_failed", error=text_of(error))
        self._runtime.count("events_not_recorded", events)

    def _mark(self, reached: Callable[[], None]) -> None:
        self._inbox.mark(reached)

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
