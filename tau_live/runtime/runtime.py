"""The live system of one process: the calls of host threads, and the threads behind them.

A host's thread makes an event or a decision from memory and returns; it never touches the disk
here. Everything that takes time happens in the writer's thread and in the learner's.
"""

import atexit
import math
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, MutableMapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from tau_live.core import fault
from tau_live.core.addresses import address_in
from tau_live.core.errors import SettingsError, SpoolOfOthersError, StoreUnavailableError
from tau_live.core.events import OWN_HOST, Event, Fields, RunResume, RunStart, Status, is_sound
from tau_live.core.files import sweep
from tau_live.core.gate import Kind
from tau_live.core.gate_keeper import GateKeeper
from tau_live.core.guard import Guard, lines_lost, logger, reason_of
from tau_live.core.guard import text_of as error_text
from tau_live.core.offers import ID_LIMIT, kind_of, seconds, text_of
from tau_live.core.prices import Pricer
from tau_live.core.processes import (
    ATTACHED,
    is_unwanted_child,
    link_children,
    parent_of,
    this_process,
)
from tau_live.core.reasons import STORE_FAILED, Part, Pause
from tau_live.core.records import Claim, Reason, RolloutQuery
from tau_live.core.sanitize import JsonObject, Limits
from tau_live.core.settings import Learner as LearnerMode
from tau_live.core.settings import Settings, here, place_paths, spool_of
from tau_live.core.switch import killed_by
from tau_live.core.sync import Latch, Tally, Throttle
from tau_live.decisions.choice import Decisions
from tau_live.decisions.decider import Decider
from tau_live.decisions.policies import policy_config
from tau_live.decisions.prompts import Prompts
from tau_live.decisions.runs import RunEvents, RunHandle, decided_before, target_of
from tau_live.decisions.service import Service
from tau_live.learn.learner import Learner, UpdateResult, report_of
from tau_live.learn.monitoring import MISSING, Hold, MissingWatch
from tau_live.learn.promotion.promoter import Promoter
from tau_live.learn.promotion.rules import trial_at
from tau_live.learn.updater import Updater
from tau_live.operate.access import store_waiting
from tau_live.operate.alerts import Alerts
from tau_live.operate.status import publish, status_file, status_of
from tau_live.operate.stops import KillWatch, Notices, Stop, kill_file, pauses_by_part
from tau_live.record.inbox import Inbox
from tau_live.record.pipeline import Pipeline
from tau_live.record.recording import Recorder
from tau_live.record.shutdown import leave_losses, take_in_losses
from tau_live.record.writer import Listeners, Writer
from tau_live.rl.policy import Policy
from tau_live.runtime.build import (
    hub_collector,
    learner_of,
    open_prompts,
    open_spool_of,
    open_store,
    pipeline_of,
)
from tau_live.runtime.builtin_plugins import adopt, load_plugins
from tau_live.store.forks import Forks
from tau_live.store.records import Topic
from tau_live.store.roles import Spool, Store

if TYPE_CHECKING:
    from tau_live.record.hub import Hub

START_S = 5.0
"""How long a start waits at most for the store to be open and the policies to be loaded."""

REMEMBERED = 2_000
"""How many of the newest runs have their number of attempts loaded at the start."""

EXIT_S = 5.0
"""How long the end of the interpreter waits at most for queued events to be stored."""

FRESH_S = 1.0
"""The age up to which a status read from the store is reused, unless something was flushed."""

SNAPSHOT_S = 0.5
"""How long a snapshot waits at most for the writer's thread to read the store."""

ASK_S = 1.0
"""How long the opening of a spool waits at most for the database, which knows whose it is."""

ASK_AGAIN_S = 5.0
"""The same where its address says that it is another's."""

SENT_KEPT_S = 600.0
"""How long what was sent is kept in the spool, in seconds."""

_NOTHING: Fields = MappingProxyType({})


class Runtime:
    """The running system while tau-live is attached; ``start`` makes it, ``api`` holds it.

    The parts of the store's state that callers need without waiting are kept in memory; the threads
    of the writer, the learner and the kill switch update them, and replacing a value is atomic.

    Args:
        settings: How it behaves.
        environ: The environment, read again by the kill switch, and at the start of a run.
        forks: Tracks the stores that are opened.
        folder: Relative paths refer to it; ``None`` is the current one.

    Attributes:
        settings: How it behaves, with paths as they were given.
        plugins: The plugins of this process.
        hosts: The state of each host's adapter.
        decide: ``Decisions.decide``.
        fill_prompts: ``Prompts.fill``.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        forks: Forks,
        *,
        folder: Path | None = None,
    ) -> None:
        self.settings = settings
        self._placed = settings = place_paths(settings, folder)
        self._owner, self._pid, self._forks = this_process(), os.getpid(), forks
        self._counts = Tally()
        self._lines_lost_before = lines_lost()

        self.hosts: dict[str, str] = {OWN_HOST: "attached"}
        self._stored: Mapping[str, object] = {}
        self._is_stale, self._read_at = True, float("-inf")
        self._last_report: JsonObject | None = None
        self._store_read = Latch()  # set once the store was read, or has failed
        self._pauses: Mapping[Part, Pause] = {}
        self._killed: Stop | None = None

        self._gate = GateKeeper(
            limit=settings.max_failure_streak,
            who=self._owner,
            in_fleet=address_in(settings.store) is not None,
        )
        self._guard = Guard(self._host_failed)
        self.plugins = load_plugins(settings)
        self._alerts = Alerts(
            settings, self.plugins, environ=environ, owner=self._owner, count=self._counts.add
        )
        self._missing = MissingWatch(settings.missing_reward_limit)
        self._notices = Notices(self._owner)
        self._kill = KillWatch(
            kill_file(settings.store, settings.kill_file),
            stop_reason=partial(killed_by, environ),
            changed=self._on_kill_switch,
        )
        self._decider = Decider(Policy.initial(policy_config(settings)), seed=settings.seed)
        self._service = Service(
            self._decider,
            promoted=partial(self.plugins.tell, "policy_promoted"),
        )
        self._prompts = Prompts(settings, open_=self._open_prompts, count=self._counts.add)
        self.fill_prompts = self._prompts.fill
        self._updater = Updater(
            make=self._open_learner,
            may_run=lambda: self._gate.passes,
            is_paused=lambda: Part.LEARNING in self._pauses,
            on_update=self._on_update,
            on_failure=self._update_failed,
            weigh=self._advance_trials,
            on_idle=self._service.take_over,
            automatic=settings.learner is LearnerMode.THREAD,
            runs_updates=settings.learner is not LearnerMode.OFF,
        )
        self._spool = spool_of(settings)
        self._hub = None if self._spool is None else self._make_hub(self._spool)
        if self._hub is not None:
            self._decider.permitted_until = float("-inf")  # until the hub is heard
        self._spool_full = False
        self._failures_in_a_row = 0  # of the thread that learns to reach a database
        self._recorder: Recorder | None = None
        self._pricer = Pricer(settings.prices, known=settings.known_prices)
        self._writer = Writer(
            self._open_store,
            gate=self._gate,
            owner=self._owner,
            settings=settings,
            spools=self._hub is not None,
            listeners=Listeners(
                ready=self._updater.wake,
                changed=self._store_changed if self._hub is None else self._spool_opened,
                look=self._look if self._hub is None else self._keep_spool,
                poll=self._prompts.poll,
                failed=self._collection_failed,
                failing=self._store_read.set,
                gate_changed=self._gate_changed,
                counts=self.counts,
                mark=lambda reached: self._inbox.mark(reached),  # noqa: PLW0108  # made next
            ),
        )
        self._inbox = Inbox(
            write=self._writer.write,
            tick=self._writer.tick,
            end=self._close_parts,
            failed=self._collection_failed,
            takes=lambda: not self._writer.kept_back,
            pause=Throttle(hurried=self._is_behind),
            limit=settings.queue_limit,
        )
        self._events = RunEvents(
            stream=settings.stream,
            limits=Limits(chars=settings.payload_limit),
            began_in=partial(parent_of, environ),
        )
        self.decide = Decisions(
            settings,
            gate=self._gate,
            guard=self._guard,
            decider=self._decider,
            plugins=self.plugins,
            inbox=self._inbox,
            events=self._events,
            count=self._counts.add,
            begin_run=self.begin_run,
            end_run=self.end_run,
        ).decide

    def _make_hub(self, spool: Path) -> "Hub":
        from tau_live.record.hub import Hub, HubListeners  # few need it: 2 ms

        settings = self._placed
        return Hub(
            open_hub=self._connect,
            open_spool=lambda hub_id: self._forks.open(
                partial(open_spool_of, settings, spool, hub_id=hub_id)
            ),
            collector_of=lambda hub: hub_collector(hub, settings, self.plugins),
            gate=self._gate,
            owner=self._owner,
            permit_s=settings.permit_s,
            limit=settings.max_failure_streak,
            listeners=HubListeners(
                ready=self._updater.wake,
                changed=self._store_changed,
                look=self._look,
                poll=self._prompts.poll,
                heard=self._decider.permit,
                failing=self._store_read.set,
                failed=partial(self._guard.record_failure, Kind.COLLECTION),
            ),
        )

    def begin_run(  # noqa: PLR0913  # the fields of its start
        self,
        name: object,
        *,
        key: object,
        session: object,
        metadata: object,
        parent: RunHandle | None,
        host: str = OWN_HOST,
        fields: Fields = _NOTHING,
        resumed: Fields | None = None,
        claim: Claim | None = None,
    ) -> RunHandle:
        """Return a run that begins now; it is recorded while the gate passes.

        Args:
            name: The kind of run.
            key: Its key; for another host's run, that host's own id.
            session: The id that the runs of one conversation share.
            metadata: Plain data to be stored with it.
            parent: Its parent run.
            host: The framework that runs it.
            fields: Fields of ``events.RunStart`` from its adapter.
            resumed: Fields of ``events.RunResume``, if it resumes a waiting run of that key, as
                another attempt at it.
            claim: The claim of the queued rollout that it works on.
        """
        is_taken = self._gate.passes and Part.COLLECTION not in self._pauses
        is_recorded = is_taken and not self._spool_full
        handle = self._events.handle(
            name, key=key, session=session, parent=parent, host=host,
            epoch=self._gate.epoch, recorded=is_recorded, claim=claim,
        )  # fmt: skip
        try:
            with self._guard.catching(Kind.COLLECTION):
                if is_recorded:
                    if resumed is not None:  # first, or the start would begin an attempt of its own
                        stamp = self._events.stamp()
                        self._inbox.put(self._events.step(handle, RunResume, resumed, **stamp))
                    self._inbox.put(self._events.run_start(handle, metadata, fields))
                elif is_taken:
                    self.count("runs_not_recorded_while_spool_full")
                else:
                    why = "paused" if self._gate.passes else "held"
                    self._count_not_taken(f"runs_not_recorded_while_{why}")
            return handle
        except BaseException as error:  # an interruption: the caller gets no handle to end it
            self.end_run(handle, error)
            raise

    def end_run(
        self,
        handle: RunHandle,
        error: BaseException | None,
        fields: Fields = _NOTHING,
    ) -> None:
        """End a run, with its error; a run inherited by a forked child belongs to the parent."""
        if handle.ended or handle.home is not self._events:
            return
        handle.ended = True
        end: Event | None = None
        try:
            with self._guard.catching(Kind.COLLECTION):
                if self._is_recorded(handle):
                    end = self._events.run_end(handle, error, fields)
                    self._inbox.put(end)
        except BaseException:  # an interruption; repeating the same end adds nothing
            if self._is_recorded(handle):
                self._inbox.put(end or self._events.run_end(handle, error, fields))
            raise

    def abandon_run(self, handle: RunHandle) -> None:
        """End a run that its caller can no longer end."""
        self.end_run(handle, None, {"status": Status.ERROR, "reason": Reason.ABANDONED})

    def tell(self, handle: RunHandle, kind: type[Event], fields: Fields) -> None:
        """Take an event inside a run, maybe after its end, given its fields."""
        if handle.home is self._events and self._is_recorded(handle):
            try:
                self._inbox.put(self._events.lazy_step(handle, kind, fields))
            except Exception as error:  # noqa: BLE001  # `catching` costs as much again
                self._guard.record_failure(Kind.COLLECTION, error)
        else:
            self._count_not_taken("events_not_taken_while_held")

    def report_failure(self, kind: str, error: Exception, *, unread: bool = False) -> None:
        """Log a failure of an adapter; count it in the gate unless reading its host failed."""
        self._guard.note_cause("reading", error) if unread else self._guard.record_failure(
            kind, error
        )

    def emit(self, event: Event) -> bool:
        """Take an adapter's event; ``False`` while the gate holds or if it was dropped."""
        if not self._gate.passes:
            self._count_not_taken("events_not_taken_while_held")
        elif not self._guard.call(Kind.COLLECTION, is_sound, event, fallback=False):
            self.count("events_malformed")
        elif Part.COLLECTION in self._pauses and isinstance(event, RunStart):
            self._inbox.leave_out(event)
        elif self._spool_full and isinstance(event, RunStart):
            self._inbox.leave_out(event, why="spool_full")
        else:
            return self._inbox.put(self._events.with_link(event))
        return False

    def reward(  # noqa: PLR0913  # as ``api.reward``, all keyword-only
        self,
        value: object,
        *,
        run: object,
        host: object,
        session: object,
        inside: "RunHandle | None",
        around: "RunHandle | None",
        decision: object,
        name: object,
        source: object,
        key: object,
        comment: object,
    ) -> bool:
        """Take a reward for a run or a decision; see ``tau_live.reward``."""
        with self._guard.catching(Kind.COLLECTION):
            if not self._gate.passes:
                self._count_not_taken("rewards_not_taken_while_held")
                return False
            target = target_of(run=run, decision=decision, host=host, session=session,
                               inside=inside)  # fmt: skip
            if target is None:
                return self._refuse_reward("rewards_without_target", name)
            if not self.settings.self_rewards and self._events.is_inside(target, around):
                return self._refuse_reward("rewards_refused_from_inside", name)
            event = self._events.reward(
                value, target=target, name=name, source=source, key=key, comment=comment,
                decision_id=None if decision is None else text_of(decision, limit=ID_LIMIT),
                decisions_before=decided_before(target, inside, home=self._events),
            )  # fmt: skip
            if event is None:
                is_number = issubclass(type(value), int | float)
                got = text_of(value, limit=40) if is_number else kind_of(value)
                return self._refuse_reward("rewards_refused", name, got=got)
            return self._inbox.put(event)
        return False

    def flush(self, timeout_s: object) -> bool:
        """Wait until all queued events are stored and every due update is in service.

        ``False`` also while the gate holds: runs are not recorded then. While the database is away
        it is enough that events are in the spool.
        """
        until = time.monotonic() + (left := seconds(timeout_s))
        try:
            while self._inbox.flush(left, hopeless=self._writer.gives_up):
                left = max(0.0, until - time.monotonic())
                if not self._writer.kept_back:  # else its events have to be stored as well
                    sent = True if self._hub is None else self._hub.flush(left)
                    if not sent:
                        return sent is None and self._gate.passes  # what is here is safe
                    left = max(0.0, until - time.monotonic())
                    return self._updater.run_due(left) and self._gate.passes
            return False
        finally:
            self._is_stale = True

    def snapshot(self) -> dict[str, object]:
        """Return the gate and the status of the store for operators.

        The writer's thread reads the store, unless it has done so since the last ``flush`` and
        within a second; if that takes more than half a second, the last status is returned.
        """
        is_old = self._is_stale or time.monotonic() - self._read_at >= FRESH_S
        if is_old and self._hub is not None:
            self._hub.read(self._refresh, SNAPSHOT_S)
        elif is_old and not self._inbox.closed:
            self._inbox.mark(partial(self._writer.read, self._refresh))
            self._inbox.flush(SNAPSHOT_S, hopeless=self._writer.gives_up)
        return self.to_dict()

    def to_dict(self) -> dict[str, object]:
        """Return the gate and the last status of the store, from memory."""
        return {
            **self._stored,
            "hosts": dict(self.hosts),
            "paused": msgspec.to_builtins(pauses_by_part(self._pauses)),
            "kill_switch": msgspec.to_builtins(self._killed),
            "enabled": True,
            "store": str(self.settings.store),
            "gate": self._gate.snapshot(),
            "last_report": self._last_report or self._stored.get("last_report"),
            "policies_in_service": self._decider.versions(),
            "queue_depth": self._inbox.depth,
            "backlog": self._writer.backlog,
            "store_trouble": self._writer.trouble.to_dict(),
            "drops": self._inbox.drops,
            "refused": self._counts.counts(),
            "plugins": [asdict(report) for report in self.plugins.report()],
            "learner": self.settings.learner.value,
        }

    def add_target(self, target: object) -> None:
        """Add a host's pluggy manager; settings that come too late are ignored."""
        if issubclass(type(target), Settings):  # a hostile ``__class__`` is not read
            if target != self.settings:
                self.count("settings_ignored_because_already_attached")
            return
        try:
            adopt(self.plugins, target)
        except Exception as error:  # noqa: BLE001  # a host's object may raise anything
            if not self._counts.counts().get("targets_refused"):
                logger().warning("target_refused", error=error_text(error))
            self.count("targets_refused")

    def count(self, name: str, number: int = 1) -> None:
        """Count something that was dropped or refused."""
        self._counts.add(name, number)

    def counts(self) -> dict[str, int]:
        """Return the counters of drops and refusals, by name."""
        dropped = {f"dropped_{reason}": n for reason, n in self._inbox.drops.items()}
        lines = lines_lost() - self._lines_lost_before
        lost_lines = {"log_lines_lost": lines} if lines else {}
        return dropped | lost_lines | self._counts.counts()

    def _is_recorded(self, handle: RunHandle) -> bool:
        return handle.recorded and self._gate.passes and handle.epoch == self._gate.epoch

    def _refuse_reward(self, counter: str, name: object, **facts: str) -> bool:
        """Count a reward that makes no sense; the first of each kind is logged."""
        if not self._counts.counts().get(counter):
            logger().warning("reward_refused", name=text_of(name), counter=counter, **facts)
        self.count(counter)
        return False

    def _count_not_taken(self, name: str) -> None:
        """Count an event, a run or a reward that is not taken; as lost if the store is why."""
        self.count(name)
        if self._gate.is_suspended:
            self.count(STORE_FAILED)

    def start(self, target: object) -> None:
        """Start the threads; wait until the policies are loaded, or the store has failed."""
        try:
            self._kill.start()
            self._inbox.start()
            if self._hub is not None:
                self._hub.start()
            self._updater.start()
            if self._killed is None:
                self._store_read.wait(START_S)
            # A forked worker ends without ``atexit``.
            workers = sys.modules.get("multiprocessing.util")
            if workers is not None and sys.modules["multiprocessing"].parent_process() is not None:
                workers.Finalize(None, self._at_exit, exitpriority=0)
            atexit.register(self._at_exit)
            if target is not None:
                self.add_target(target)
        except BaseException:  # an interruption, or a thread that cannot be started
            self._kill.stop()
            self.stop(EXIT_S)
            raise

    def _at_exit(self) -> None:
        """Store waiting events when the process ends."""
        if os.getpid() == self._pid:  # a forked child inherits this, but none of the threads
            self.close(EXIT_S, at_exit=True)

    def close(self, timeout_s: object, *, at_exit: bool = False) -> bool:
        """Store waiting events, end open runs, and stop; ``False`` if it took too long.

        At the exit of the process an update that takes too long is aborted.
        """
        left = seconds(timeout_s)
        try:
            return self._close(left, at_exit=at_exit)
        except BaseException:  # an interruption: go on without waiting
            self.stop(left)
            raise

    def stop(self, timeout_s: object) -> None:
        """Begin to ``close``, without waiting for it."""
        self._updater.stop()
        self._writer.hurry()
        self._inbox.stop(seconds(timeout_s))

    def _close(self, left: float, *, at_exit: bool) -> bool:
        until = (began := time.monotonic()) + left
        is_first = not self._inbox.closed
        self.stop(left)
        stored = self._inbox.close(left)
        lost = self._inbox.drops.get("unwritten", 0) + self._inbox.depth + self._writer.backlog
        if lost and is_first:
            waited_s = round(time.monotonic() - began, 3)
            logger().warning("events_unwritten", events=lost, waited_s=waited_s)
        if self._hub is not None:
            self._hub.close(max(0.0, until - time.monotonic()))
        ended = self._updater.close(max(0.0, until - time.monotonic()), break_off=at_exit)
        return ended and stored and not lost

    def _open_store(self) -> tuple[Store, Pipeline]:
        """Open the store for the writer; in its thread, like all up to ``_gate_changed``."""
        settings = self._placed
        path = self._spool
        if path is None or self._hub is None:
            store: Store = self._connect()
        else:
            store = self._open_spool(path, self._hub)
        sweep(settings.store.absolute().parent)
        if self._recorder is None and settings.record is not None:
            try:
                self._recorder = Recorder(settings.record)
            except OSError as error:
                self._count_unrecorded(0, error)
        pipeline = pipeline_of(
            store,
            settings,
            owner=self._owner,
            plugins=self.plugins,
            recorder=self._recorder,
            on_poison=self._refuse_event,
            on_unrecorded=self._count_unrecorded,
            pricer=self._pricer,
            on_left_out=partial(self.count, "fields_left_out"),
            spools=path is not None,
        )
        return store, pipeline

    def _connect(self) -> Store:
        """Open the store, a file or a database."""
        connects = address_in(self._placed.store) is not None
        return self._forks.open(partial(open_store, self._placed), connects=connects)

    def _open_spool(self, path: Path, hub: "Hub") -> Spool:
        """Open the spool; look again at one that seems to be another's."""
        open_ = partial(open_spool_of, self._placed, path)
        try:
            return self._forks.open(partial(open_, hub_id=hub.known_id(ASK_S)))
        except SpoolOfOthersError:  # the address is another, and the database may be slow
            return self._forks.open(partial(open_, hub_id=hub.known_id(ASK_AGAIN_S)))

    def _open_prompts(self) -> Store:
        """Open the store that prompts are published in; in the writer's thread."""
        path = self._placed.prompts_store or self._placed.store
        connects = address_in(path) is not None
        return self._forks.open(partial(open_prompts, self._placed), connects=connects)

    def _store_changed(self, store: Store, topics: Collection[Topic]) -> None:
        """Take over policies in service, pauses and status."""
        if Topic.PAUSES in topics:
            pauses = store.pauses.pauses()
            if pauses != self._pauses:
                logger().warning("pauses_changed", paused=sorted(pauses))
            self._pauses = pauses
            self._decider.paused = Part.DECIDING in pauses
        if Topic.POLICIES in topics or Topic.TRIALS in topics:
            self._service.take_over(store)
        if Topic.PROMPTS in topics or Topic.TRIALS in topics:
            self._prompts.refresh(store)
        if self._store_read.is_set:
            return
        self._remember_attempts(store)
        self._look(store, True)
        self._refresh(store)
        self._store_read.set()

    def _remember_attempts(self, store: Store) -> None:
        """Remember the newest runs' attempts, so that a retry gets decision ids of its own."""
        newest = RolloutQuery(descending=True, limit=REMEMBERED)  # an index leads there
        for rollout in store.rollouts.query(newest).rollouts:
            if rollout.host == OWN_HOST:
                self._events.remember_attempts(rollout.run_id, rollout.attempt_count)

    def _spool_opened(self, store: Store, _topics: Collection[Topic]) -> None:
        self._remember_attempts(store)

    def _keep_spool(self, store: Store, _: bool) -> None:
        """Forget what was sent long ago, or all that was sent if the spool is full."""
        if not isinstance(store, Spool):
            return
        limit = self._placed.spool_max_mb * 1e6
        store.forget_sent(before=time.time() - SENT_KEPT_S)
        while (used := store.retention.size().used_bytes) >= limit:
            if not store.forget_sent(before=math.inf):
                break
        was_full, self._spool_full = self._spool_full, used >= limit
        if self._spool_full and not was_full:
            logger().warning(
                "spool_full", mb=self._placed.spool_max_mb, effect="new runs are not recorded"
            )

    def _look(self, store: Store, keeps_house: bool) -> None:
        """Say in the store what stops us, and check what operators and the gate should know."""
        store_waiting(store, self._placed)
        take_in_losses(store, self._placed.store)
        self._notices.publish(
            store.leases, self._kill.by_variable, self.plugins.report(), now=time.time()
        )
        facts = self._alerts.check(store, for_all=keeps_house)
        if facts is not None:
            hold = self._missing.check(
                facts.became_ready,
                facts.counters.get(MISSING, 0),
                waiting=facts.waiting_for_reward,
                holds=facts.gate.holds,
            )
            self._hold(hold, at=time.time())

    def _refresh(self, store: Store) -> None:
        """Refresh the status of the store in memory."""
        self._stored = msgspec.to_builtins(status_of(store, self._placed, now=time.time()))
        self._is_stale, self._read_at = False, time.monotonic()

    def _close_parts(self) -> None:
        self._kill.stop()
        if self._hub is not None:
            self._hub.stop(EXIT_S)
        self._writer.close()
        self._prompts.close()
        leave_losses(self._placed.store, self._writer.lost_count())
        self._alerts.close()

    def _refuse_event(self, event: Event, error: Exception) -> None:
        name = f"events_refused_{event.event}"
        if not self.counts().get(name):  # once, or a flood of them would fill the log
            logger().warning("event_refused", kind=event.event, error=error_text(error))
        self.count(name)

    def _count_unrecorded(self, events: int, error: OSError) -> None:
        if not self.counts().get("events_not_recorded"):
            logger().warning("recording_failed", error=error_text(error))
        self.count("events_not_recorded", events)

    def _collection_failed(self, error: Exception) -> None:
        self._guard.record_failure(Kind.COLLECTION, error)
        self._store_read.set()

    def _is_behind(self) -> bool:
        """Return whether the writer must not pause: too much waits, or the process ends."""
        return self._inbox.closed or self._inbox.depth > self._placed.queue_limit // 4

    def _gate_changed(self) -> None:
        snapshot = self._gate.snapshot()
        logger().warning("gate_changed", **snapshot)
        self.plugins.tell("gate_changed", snapshot)
        self._alerts.gate_changed(snapshot)

    def _open_learner(self) -> tuple[Store, Learner]:
        """Open the store for the learner; in its thread, like the methods that follow."""
        store = self._connect()
        return store, learner_of(store, self._placed, owner=self._owner)

    def _on_update(self, store: Store, learned: UpdateResult) -> None:
        """Put an update's version into service and publish its report; in the learner's thread."""
        update = learned.update
        report = {
            **report_of(update),
            "trial": trial_at(store, update.point, self._placed, now=time.time()),
        }
        self._last_report = report
        if learned.policy is not None and update.version is not None:
            self._service.keep_newest(update.version, learned.policy)
        self._service.take_over(store)
        fault.point("update.serves")
        self._gate.record_success(Kind.UPDATE, at=time.time())
        self._writer.trouble.record_learner_success()
        self._hold(learned.hold, at=update.at)
        try:
            self._refresh(store)
            publish(status_file(self._placed), {**report, **self.to_dict()})
        except OSError as error:
            self.count("status_not_published")
            logger().warning("status_not_published", error=error_text(error))
        fault.point("update.published")
        self.plugins.tell("update_finished", report)

    def _advance_trials(self, store: Store) -> None:
        """Count the outcomes of assigned rollouts, and take over a changed trial."""
        self._failures_in_a_row = 0
        promoter = Promoter(store, self._placed, holder=self._owner)
        if promoter.advance(now=time.time()):
            self._service.take_over(store)

    def _update_failed(self, error: Exception) -> None:
        """Count the failure of an update, unless the store fails for all threads alike."""
        trouble = self._writer.trouble
        if self._hub is not None and isinstance(error, StoreUnavailableError):
            return  # the hub says when it is away
        if trouble.lacks_room(error):
            trouble.record_learner_failure(error)
        elif isinstance(error, StoreUnavailableError) and not trouble.is_only_here(error):
            trouble.log(error)
        elif isinstance(error, StoreUnavailableError) and address_in(self._placed.store):
            # The server may have no connection for this thread; one that it ended is made anew.
            self._failures_in_a_row += 1
            if self._failures_in_a_row >= self._placed.max_failure_streak:
                trouble.log(error)
        else:
            self._guard.record_failure(Kind.UPDATE, error)

    def _hold(self, hold: Hold | None, *, at: float) -> None:
        if hold is not None:
            self._gate.hold(hold.reason, at=at, detail=hold.detail)

    def _on_kill_switch(self, killed: Stop | None) -> None:
        """Stop everything, or go on, whatever the store does; called by the switch's thread."""
        self._killed = killed
        self._gate.set_kill(
            None if killed is None else str(killed), at=killed.at if killed else 0.0
        )
        if killed is None:
            logger().warning("kill_switch_off")
        else:
            logger().warning("kill_switch_on", reason=killed.reason, who=killed.who or None)

    def _host_failed(self, kind: str, error: Exception) -> None:
        self._gate.record_failure(Kind(kind), reason_of(error), at=time.time())


def start(
    environ: MutableMapping[str, str],
    target: object,
    *,
    inside: Callable[[], RunHandle | None] = lambda: None,
    forks: Forks | None = None,
    folder: Path | None = None,
) -> Runtime | None:
    """Return the running system; ``None``, with a log line, if settings are wrong.

    Args:
        environ: The environment, which children inherit.
        target: A host's pluggy manager, settings, or ``None``; see ``tau_live.attach``.
        inside: Returns the innermost ``tau_live.run`` of the calling thread or task.
        forks: Tracks the stores that are opened.
        folder: Relative paths refer to it; ``None`` is the current one.
    """
    try:
        has_settings = issubclass(type(target), Settings)
        if has_settings and isinstance(target, Settings):
            settings = target
        else:
            loaded = Settings.from_env(environ, directory=folder or here())
            settings = loaded.settings
            for warning in loaded.doubts():
                logger().warning("setting_doubtful", warning=warning)
        if is_unwanted_child(environ):
            return None
        if not settings.children:
            environ[ATTACHED] = this_process()
        runtime = Runtime(settings, environ, forks or Forks(), folder=folder)
        runtime.start(None if has_settings else target)
    except SettingsError as error:
        logger().warning("settings_refused", error=str(error), effect="tau-live stays off")
        return None
    try:
        if settings.children:
            link_children(lambda: None if (run := inside()) is None else run.link, environ)
    except BaseException:  # an interruption
        runtime.stop(EXIT_S)
        raise
    return runtime
