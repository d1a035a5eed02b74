"""The live system of one process: what host threads call, and the two threads behind it.

A host's thread makes an event or a decision from memory and returns; nothing here touches the disk
in it. Everything that takes time happens in the writer's thread and in the learner's.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType

from tau_live.board import Board
from tau_live.builtin import adopt
from tau_live.choices import Choice
from tau_live.collection.inbox import Inbox
from tau_live.collection.writer import Writer
from tau_live.deciding.decider import Decider
from tau_live.envelope import OWN_HOST, is_sound
from tau_live.events import Event, RunResume, Status
from tau_live.gate import GateKeeper, Kind
from tau_live.guard import Guard, lines_lost, logger
from tau_live.guard import text_of as error_text
from tau_live.handed.values import ID_LIMIT, seconds, text_of
from tau_live.learning.updater import Updater
from tau_live.machine.tally import Tally
from tau_live.plugins import Plugins
from tau_live.reasons import STORE_FAILED
from tau_live.rollouts import Reason
from tau_live.runs.chooser import Chooser
from tau_live.runs.decisions import Asked, Decisions
from tau_live.runs.handles import RunHandle, Unsettled
from tau_live.runs.reward_targets import decided_before, target_of
from tau_live.runs.run_events import RunEvents
from tau_live.settings import Settings

_NOTHING: Mapping[str, object] = MappingProxyType({})


class Runtime:
    """What runs while tau-live is attached; made by ``system.start``, reached by the door.

    Args:
        settings: How it behaves.
        guard: The border that every call of a host passes.
        gate: Whether anything may be done.
        plugins: Who else is asked and told.
        decider: What decides.
        inbox: Where events go.
        writer: What stores them.
        updater: What learns.
        board: What is known in memory.
        events: What makes events of runs.
    """

    def __init__(  # noqa: PLR0913  # everything it is made of, in one place
        self,
        settings: Settings,
        *,
        guard: Guard,
        gate: GateKeeper,
        plugins: Plugins,
        decider: Decider,
        inbox: Inbox,
        writer: Writer,
        updater: Updater,
        board: Board,
        events: RunEvents,
    ) -> None:
        self.settings = settings
        self._guard = guard
        self._gate = gate
        self.plugins = plugins
        self._decider = decider
        self._inbox = inbox
        self._writer = writer
        self._updater = updater
        self._board = board
        self.hosts = board.hosts  # what the adapter of each is doing
        self._events = events
        self._counts = Tally()
        self._lines_lost_before = lines_lost()
        self._decisions = Decisions(
            settings.decide_deadline_ms,
            gate=gate,
            guard=guard,
            chooser=Chooser(decider, plugins, guard, control_share=settings.control_share),
            inbox=inbox,
            events=events,
            count=self._counts.add,
        )

    def begin_run(  # noqa: PLR0913  # everything that is known at its start
        self,
        name: object,
        *,
        key: object,
        session: object,
        metadata: object,
        parent: RunHandle | None,
        host: str = OWN_HOST,
        told: Mapping[str, object] = _NOTHING,
        resumed: Mapping[str, object] | None = None,
    ) -> RunHandle:
        """Return a run that begins now; it is recorded while the gate passes.

        Args:
            name: What kind of run it is.
            key: Names it; where it is another host's, that host's own id of it.
            session: What runs of one conversation share.
            metadata: Plain data to be kept with it.
            parent: The run inside which it runs.
            host: The framework that runs it.
            told: Fields of ``events.RunStart`` that its adapter knows.
            resumed: Fields of ``events.RunResume``, where it goes on with a run of that key that
                waited, as another attempt at it.
        """
        handle = self._events.handle(
            name, key=key, session=session, parent=parent, host=host,
            epoch=self._gate.epoch, recorded=self._board.may_begin(self._gate),
        )  # fmt: skip
        try:
            with self._guard.catching(Kind.COLLECTION):
                if handle.recorded:
                    if resumed is not None:  # first, or the start would begin an attempt of its own
                        stamp = self._events.stamp()
                        self._inbox.put(self._events.step(handle, RunResume, resumed, *stamp))
                    self._inbox.put(self._events.started(handle, metadata, told))
                else:
                    self._keep_out(self._board.why_left_out(self._gate))
            return handle
        except BaseException as error:  # an interruption: nobody gets the handle to end it
            self.end_run(handle, error)
            raise

    def end_run(
        self,
        handle: RunHandle,
        error: BaseException | None,
        told: Mapping[str, object] = _NOTHING,
    ) -> None:
        """End a run, with what it raised; one that a forked child inherited is its parent's."""
        if handle.ended or handle.home is not self._events:
            return
        handle.ended = True
        end: Event | None = None
        try:
            with self._guard.catching(Kind.COLLECTION):
                if self._is_recorded(handle):
                    end = self._events.ended(handle, error, told)
                    self._inbox.put(end)
        except BaseException:  # an interruption; the very same end again is nothing new
            if self._is_recorded(handle):
                self._inbox.put(end or self._events.ended(handle, error, told))
            raise

    def abandon_run(self, handle: RunHandle) -> None:
        """End a run that nobody can end any more."""
        self.end_run(handle, None, {"status": Status.ERROR, "reason": Reason.ABANDONED})

    def tell(self, handle: RunHandle, kind: type[Event], told: Mapping[str, object]) -> None:
        """Take what happened inside a run, maybe after its end; ``told`` are the event's fields."""
        if handle.home is self._events and self._is_recorded(handle):
            try:
                self._inbox.put_later(self._events.later(handle, kind, told))
            except Exception as error:  # noqa: BLE001  # `catching` costs as much again
                self._guard.failed(Kind.COLLECTION, error)
        else:
            self._keep_out("events_not_taken_while_held")

    def failed(self, kind: Kind, error: Exception, *, unread: bool = False) -> None:
        """Log what failed in an adapter; count it in the gate, unless its host was ``unread``."""
        self._guard.noted("reading", error) if unread else self._guard.failed(kind, error)

    def failed_to_begin(self, error: Exception) -> None:
        """Count that a run could not even get its ids."""
        self._guard.failed(Kind.COLLECTION, error)

    def emit(self, event: Event) -> bool:
        """Take an adapter's event; ``False`` while the gate holds or if it was dropped."""
        if not self._gate.passes:
            self._keep_out("events_not_taken_while_held")
        elif not self._guard.call(Kind.COLLECTION, is_sound, event, fallback=False):
            self.count("events_malformed")
        elif self._board.is_too_late(event):
            self._inbox.leave_out(event)
        else:
            return self._inbox.put(self._events.linked(event))
        return False

    def decide(  # noqa: PLR0913  # as the door's, all keyword-only but two
        self,
        handle: RunHandle,
        point: object,
        *,
        options: object,
        context: object,
        default: object,
        allowed: object = None,
        exploit_only: object = None,
        start: float | None = None,
        unsettled: list[Unsettled] | None = None,
    ) -> Choice:
        """Choose one of the options, or return the host's own choice whenever in doubt.

        ``start`` is for adapters that act on a host's own decision points: the share of runs that
        the learner decides at first, 0 in shadow, and from which it climbs on evidence. Given
        ``unsettled``, a decision is appended to it, to be settled when it is known what was
        applied.
        """
        asked = Asked(point, options, context, default, allowed, exploit_only, start)
        if handle.home is not self._events:
            return self._decide_apart(handle, asked)
        recorded = self._is_recorded(handle)
        return self._decisions.choice(handle, asked, recorded=recorded, unsettled=unsettled)

    def _decide_apart(self, inside: RunHandle, asked: Asked) -> Choice:
        """Decide in a run of its own, inside one that another process (or runtime) began."""
        own = self.begin_run(
            asked.point, key=None, session=inside.session_id, metadata=None, parent=inside
        )
        try:
            return self._decisions.choice(own, asked, recorded=self._is_recorded(own))
        finally:
            self.end_run(own, None)

    def reward(  # noqa: PLR0913  # as the door's, all keyword-only
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
                self._keep_out("rewards_not_taken_while_held")
                return False
            target = target_of(run=run, decision=decision, host=host, session=session,
                               inside=inside)  # fmt: skip
            if target is None:
                self.count("rewards_without_target")
                return False
            if not self.settings.self_rewards and self._events.is_inside(target, around):
                self.count("rewards_refused_from_inside")
                return False
            event = self._events.rewarded(
                value, target=target, name=name, source=source, key=key, comment=comment,
                decision_id=None if decision is None else text_of(decision, limit=ID_LIMIT),
                decisions_before=decided_before(target, inside, home=self._events),
            )  # fmt: skip
            if event is None:
                self.count("rewards_refused")
                return False
            return self._inbox.put(event)
        return False

    def flush(self, timeout_s: object) -> bool:
        """Wait until all that was queued is stored and every due update is in service.

        ``False`` also while the gate holds: runs are not recorded then.
        """
        until = time.monotonic() + (left := seconds(timeout_s))
        while self._inbox.flush(left, hopeless=self._writer.gives_up):
            left = max(0.0, until - time.monotonic())
            if not self._writer.kept_back:  # or another try has to store that too
                return self._updater.run_due(left) and self._gate.passes
        return False

    def snapshot(self) -> dict[str, object]:
        """Return the gate and everything an operator asks first, from memory."""
        return {
            **self._board.told(),
            "enabled": True,
            "store": str(self.settings.store),
            "gate": self._gate.snapshot(),
            "last_report": self._board.last_report or self._board.stored.get("last_report"),
            "policies_in_service": self._decider.versions(),
            "queue_depth": self._inbox.depth,
            "backlog": self._writer.backlog,
            "store_trouble": self._writer.trouble.told(),
            "drops": self._inbox.dropped,
            "refused": self._counts.counts(),
            "plugins": [asdict(report) for report in self.plugins.report()],
            "learner": self.settings.learner.value,
        }

    def add_target(self, target: object) -> None:
        """Let a host's pluggy manager take part; settings that come too late are ignored."""
        if issubclass(type(target), Settings):  # a hostile ``__class__`` is not asked
            if target != self.settings:
                self.count("settings_ignored_because_already_attached")
            return
        try:
            adopt(self.plugins, target)
        except Exception as error:  # noqa: BLE001  # a host's object; it is told, and goes on
            if not self._counts.counts().get("targets_refused"):
                logger().warning("target_refused", error=error_text(error))
            self.count("targets_refused")

    def close(self, timeout_s: object, *, at_exit: bool = False) -> bool:
        """Store what waits, end what is open, and stop; ``False`` if it took too long.

        At the exit of the process an update that takes too long is broken off, and undone.
        """
        left = seconds(timeout_s)
        try:
            return self._close(left, at_exit=at_exit)
        except BaseException:  # an interruption: all is stored and ended, but not waited for
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
        lost = self._inbox.dropped.get("unwritten", 0) + self._inbox.depth + self._writer.backlog
        if lost and is_first:
            waited_s = round(time.monotonic() - began, 3)
            logger().warning("events_unwritten", events=lost, waited_s=waited_s)
        ended = self._updater.close(max(0.0, until - time.monotonic()), break_off=at_exit)
        return ended and stored and not lost

    def _is_recorded(self, handle: RunHandle) -> bool:
        return handle.recorded and self._gate.passes and handle.epoch == self._gate.epoch

    def _keep_out(self, name: str) -> None:
        """Count what is not taken; what only a failing store keeps out is lost."""
        self.count(name)
        if self._gate.is_suspended:
            self.count(STORE_FAILED)

    def count(self, name: str, number: int = 1) -> None:
        """Count something that was dropped or refused."""
        self._counts.add(name, number)

    def counts(self) -> dict[str, int]:
        """Return how often something was dropped or refused, by reason."""
        dropped = {f"dropped_{reason}": n for reason, n in self._inbox.dropped.items()}
        lines = lines_lost() - self._lines_lost_before
        unlogged = {"log_lines_lost": lines} if lines else {}
        return dropped | unlogged | self._counts.counts()
