"""Events of runs, made in the host's thread, so this is kept short."""

import itertools
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from operator import is_
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

from msgspec.structs import replace

from tau_live.core import events as ev
from tau_live.core.errors import EventError
from tau_live.core.events import OWN_HOST, ErrorInfo, Event, Status, is_sound
from tau_live.core.offers import (
    COMMENT_LIMIT,
    ID_LIMIT,
    KEY_LIMIT,
    finite,
    key_text,
    kind_of,
    text_of,
)
from tau_live.core.processes import Link, link_run
from tau_live.core.records import (
    QUEUE_HOST,
    Claim,
    Reason,
    decision_id_of,
    rollout_id_of,
)
from tau_live.core.redaction import clean_id, sign_id
from tau_live.core.sanitize import Limits, number_names, plain
from tau_live.record.shutdown import LazyEvent
from tau_live.rl.features import FrozenRow, RowCache, copy_row

if TYPE_CHECKING:
    from tau_live.core.events import PromptArm
    from tau_live.decisions.decider import Arm


POINTS_NOTED = 8
"""Most points of a run whose choices later decisions see."""


class RunHandle:
    """The runtime's record of one run under way.

    Attributes:
        host: The framework that runs it; ``OWN_HOST`` for runs of the public API.
        name: The kind of run.
        run_id: The host's key of it.
        attempt: The number of the attempt, from 1, as far as this process knows.
        execution: Tells this execution from others under the same key.
        run: Host, key and execution, by which the queue knows it.
        session_id: The id that runs of one conversation share; ``None`` without one.
        parent: The run inside which it runs; ``None`` for an outermost one.
        epoch: How often the gate had held when it began; it is recorded while that is unchanged.
        recorded: Whether it is recorded at all.
        ended: Whether it is over.
        decision_count: How many decisions it has made.
        home: The ``RunEvents`` that makes its events; a forked child, or a later ``attach``, has
            another, and a run that was unpickled none.
        arms: The arm at each point, as assigned with the first decision there.
        choices: The option that was last applied at each of its first points.
        prompts: Whether each prompt version on trial is offered, as drawn with the first decision.
    """

    __slots__ = (
        "arms",
        "attempt",
        "children",
        "choices",
        "decision_count",
        "ended",
        "epoch",
        "execution",
        "home",
        "host",
        "name",
        "ordinals",
        "parent",
        "prompts",
        "recorded",
        "rollout_id",
        "run",
        "run_id",
        "session_id",
    )

    def __init__(
        self,
        name: str,
        run_id: str,
        *,
        session_id: str | None,
        parent: "RunHandle | None",
        epoch: int,
        recorded: bool,
        home: object,
        host: str = OWN_HOST,
        execution: str = "",
    ) -> None:
        self.home = home
        self.host = host
        self.arms: dict[str, Arm] = {}
        self.choices: dict[str, str] = {}
        self.prompts: dict[str, PromptArm] = {}
        self.name = name
        self.run_id = run_id
        self.rollout_id = rollout_id_of(host, run_id)
        self.attempt = 1
        self.execution = execution
        self.run = (host, run_id, execution)
        self.session_id = session_id
        self.parent = parent
        self.epoch = epoch
        self.recorded = recorded
        self.ended = False
        self.decision_count = 0
        self.ordinals = itertools.count(1)
        self.children = itertools.count(1)

    def note_choice(self, point: str, option: str | None) -> None:
        """Note the option that was applied at a point, for the decisions that follow."""
        if option is not None and (point in self.choices or len(self.choices) < POINTS_NOTED):
            self.choices[point] = option

    @property
    def link(self) -> Link | None:
        """The run as other processes know it; ``None`` where it is not recorded."""
        return Link(self.host, self.run_id) if self.recorded else None


class PendingDecision:
    """A decision of an adapter, reported once it is known which option its host applied.

    Args:
        handle: Its run.
        put: Takes the event.
        event: The decision, as if its host applied the chosen option.
    """

    def __init__(
        self, handle: RunHandle, put: Callable[[Event], object], event: ev.Decision
    ) -> None:
        self._handle = handle
        self._put = put
        self._event = event
        self._settled = False

    def settle(self, instead: str | None = None) -> None:
        """Report it, once: as applied, or with the reason ``instead`` for which it was not."""
        if self._settled:
            return
        self._settled = True
        event = self._event
        if instead is not None:
            event = replace(
                event, applied=None, why_not=event.why_not or instead, source="default",
                propensity=None,
            )  # fmt: skip
        self._handle.note_choice(event.point, event.applied)
        self._put(event)


class Stamp(TypedDict):
    """The origin of an event: epoch seconds, monotonic clock, sequence number, process id."""

    at: float
    mono_ns: int
    seq: int
    pid: int


def error_of(error: BaseException, *, fatal: bool = False) -> ErrorInfo:
    """Return an exception as data, even if it fails to be printed."""
    return ErrorInfo(type=kind_of(error), message=text_of(error), fatal=fatal)


def ending_of(error: BaseException | None) -> tuple[Status, Reason]:
    """Return how a run ended that raised ``error``; ``None`` if it raised nothing."""
    if error is None:
        return Status.OK, Reason.COMPLETED
    names = {kind.__name__ for kind in type.mro(type(error))}
    if names & {"CancelledError", "GeneratorExit", "KeyboardInterrupt", "SystemExit"}:
        return Status.CANCELLED, Reason.CANCELLED
    if "TimeoutError" in names:
        return Status.ERROR, Reason.TIMEOUT
    return Status.ERROR, Reason.ERROR


class Target(NamedTuple):
    """The target of a reward: a rollout, a host's run, or the last run of a session.

    Attributes:
        rollout_id: The rollout's id, if given.
        host: The host whose run or session it is; empty if not given.
        run_id: The host's id of the run, or another id that it gave to it.
        session_id: The session whose last run is the target.
    """

    rollout_id: str | None = None
    host: str = ""
    run_id: str = ""
    session_id: str | None = None

    @property
    def known_id(self) -> str | None:
        """The id of the rollout; ``None`` if only the store can tell."""
        return rollout_id_of(self.host, self.run_id) if self.run_id else self.rollout_id


def target_of(
    *, run: object, decision: object, host: object, session: object, inside: RunHandle | None
) -> Target | None:
    """Return the target of a reward; a decision's id begins with its rollout's.

    Returns:
        ``None`` without a target, with two (a run and a session), or if the run is not recorded.
    """
    decision_id = "" if decision is None else text_of(decision, limit=ID_LIMIT)
    if ":attempt-" in decision_id:
        return Target(decision_id.rpartition(":attempt-")[0])
    if decision is not None and run is None:
        return None
    host_name = "" if host is None else text_of(host)
    if session is not None:
        return Target(host=host_name, session_id=text_of(session)) if run is None else None
    if run is not None:
        run_id = text_of(run, limit=ID_LIMIT if not host_name else KEY_LIMIT)
        enclosing = inside if inside is not None and inside.rollout_id == run_id else None
        if not run_id or (not host_name and enclosing is not None and not enclosing.recorded):
            return None  # the target is the enclosing run, which is not recorded
        return Target(host=host_name, run_id=clean_id(run_id)) if host_name else Target(run_id)
    return Target(inside.rollout_id) if inside and inside.recorded and not host_name else None


def decided_before(target: Target, inside: RunHandle | None, *, home: object) -> int | None:
    """Return how many decisions the target has made; ``None`` unless it is under way here."""
    known, run = target.known_id, inside
    while run is not None and run.rollout_id != known:
        run = run.parent
    return run.decision_count if run is not None and run.home is home and not run.ended else None


KEYS_REMEMBERED = 10_000
BeganIn = Callable[[], Link | None]
E = TypeVar("E", bound=ev.Event)
_NOTHING: ev.Fields = MappingProxyType({})


class RunEvents:
    """Makes the events of runs: numbers them, stamps them, and gives runs their keys.

    Args:
        stream: Name from which the ids of runs without a key are made; ``None`` makes one that no
            other process has.
        limits: Bounds of the data taken from the host.
        began_in: Returns the run of another process inside which this one was started, ``None`` if
            there is none; a pool's worker has another with each task.
    """

    def __init__(
        self, *, stream: str | None, limits: Limits, began_in: BeganIn = lambda: None
    ) -> None:
        self._began_in = began_in
        self._stream = stream or f"{os.getpid()}-{time.time_ns():x}-{secrets.token_hex(4)}"
        self._limits = limits
        self._pid = os.getpid()
        self._events = itertools.count(1)
        self._keyless = itertools.count(1)
        self._executions = itertools.count(1)
        self._process_key = f"{self._pid:x}-{time.time_ns():x}"
        self._attempts: OrderedDict[str, int] = OrderedDict()
        self._decision_executions: OrderedDict[str, str] = OrderedDict()
        self._plain: RowCache[FrozenRow] = RowCache()
        self._step = self.step
        self._lock = RLock()  # a signal handler or a finaliser may re-enter in the same thread

    def handle(
        self,
        name: object,
        *,
        key: object,
        session: object,
        parent: RunHandle | None,
        epoch: int,
        recorded: bool,
        host: str = OWN_HOST,
        claim: Claim | None = None,
    ) -> RunHandle:
        """Return a new run with its ids; another host's key of it is kept as it is."""
        if type(claim) is Claim:
            rollout, attempt = claim.rollout, claim.attempt
            handle = RunHandle(
                text_of(name) or rollout.name, rollout.rollout_id, host=QUEUE_HOST,
                parent=parent, epoch=epoch,
                session_id=rollout.session_id if session is None else text_of(session),
                recorded=recorded, home=self, execution=attempt.execution,
            )  # fmt: skip
            handle.attempt = attempt.number
            return handle
        name = text_of(name)
        key = None if key is None else key_text(key)
        is_foreign = key is not None and host != OWN_HOST
        handle = RunHandle(
            name,
            clean_id(key) if key is not None and is_foreign else self._run_id(name, key, parent),
            host=host,
            session_id=None if session is None else text_of(session),
            parent=parent,
            epoch=epoch,
            recorded=recorded,
            home=self,
            execution=f"{self._process_key}-{next(self._executions)}",
        )
        if key is not None or parent is not None:  # without either no other run has its id
            handle.attempt = self._attempt_of(handle.run_id)
        return handle

    def _run_id(self, name: str, key: str | None, parent: RunHandle | None) -> str:
        name = clean_id(name)  # or a secret would merge with the text after it
        if key is not None:
            run_id = run_id_of(name, key)
        elif parent is not None and parent.home is self:
            run_id = f"{parent.run_id}>{name}#{next(parent.children)}"
        elif parent is not None:  # another process may number its children too
            run_id = f"{parent.run_id}>{name}/{self._stream}#{next(self._keyless)}"
        else:
            run_id = f"{name}/{self._stream}#{next(self._keyless)}"
        return clean_id(run_id)

    def remember_attempts(self, run_id: str, attempts: int) -> None:
        """Take over the number of attempts at a run before this process."""
        with self._lock:
            self._attempts.setdefault(run_id, attempts)

    def _attempt_of(self, run_id: str) -> int:
        with self._lock:
            number = self._attempts.pop(run_id, 0) + 1
            self._attempts[run_id] = number
            if len(self._attempts) > KEYS_REMEMBERED:
                self._attempts.popitem(last=False)
        return number

    def decision_id(self, handle: RunHandle, ordinal: int) -> str:
        """Return the id of a run's decision, and remember the execution that it is of.

        Another process may have made the attempt that this one counts as the first: only the store
        can tell, and finds the decision by its execution.
        """
        decision_id = decision_id_of(handle.rollout_id, handle.attempt, ordinal)
        with self._lock:
            self._decision_executions[decision_id] = handle.execution
            if len(self._decision_executions) > KEYS_REMEMBERED:
                self._decision_executions.popitem(last=False)
        return decision_id

    def run_start(
        self, handle: RunHandle, metadata: object, fields: ev.Fields = _NOTHING
    ) -> ev.RunStart:
        """Return the start of a run, with further fields from its adapter."""
        parent_run_id, parent_host = self._enclosing_run(handle)
        is_empty = metadata is None or (type(metadata) is dict and not metadata)
        values = {} if is_empty else plain(metadata, limits=self._limits)
        parts: dict[str, Any] = {
            **self.stamp(),
            "host": handle.host,
            "run_id": handle.run_id,
            "execution": handle.execution,
            "session_id": handle.session_id,
            "parent_run_id": parent_run_id,
            "parent_host": parent_host,
            "name": handle.name,
            "metadata": values if isinstance(values, dict) else {"value": values},
            **fields,
        }
        return ev.RunStart(**parts)

    def _enclosing_run(self, handle: RunHandle) -> tuple[str | None, str | None]:
        """Return the id of the enclosing run, and its host where that is another."""
        parent = handle.parent
        if parent is not None and parent.recorded:
            run_id, host = parent.run_id, parent.host
        else:
            link = self._began_in()
            if link is None or link == (handle.host, handle.run_id):  # another attempt at that run
                return None, None
            host, run_id = link
        return run_id, None if host == handle.host else host

    def with_link(self, event: E) -> E:
        """Return an event; a start without a parent gets the run that this process began in."""
        is_outermost = isinstance(event, ev.RunStart) and event.parent_run_id is None
        return link_run(event, self._began_in()) if is_outermost else event

    def run_end(
        self,
        handle: RunHandle,
        error: BaseException | None,
        fields: ev.Fields = _NOTHING,
    ) -> ev.RunEnd:
        """Return the end of a run, with its error and further fields from its adapter."""
        status, reason = ending_of(error)
        parts: dict[str, Any] = {
            **self.stamp(),
            "host": handle.host,
            "run_id": handle.run_id,
            "execution": handle.execution,
            "status": status,
            "reason": reason,
            "error": None if error is None else error_of(error, fatal=True),
            **fields,
        }
        return ev.RunEnd(**parts)

    def lazy_step(self, handle: RunHandle, kind: type[ev.Event], fields: ev.Fields) -> LazyEvent:
        """Return a ``step`` that the writer's thread will make."""
        return (
            self._step, handle.run, handle, kind, {**fields},
            time.time(), time.monotonic_ns(), next(self._events), self._pid,
        )  # fmt: skip

    def step(  # noqa: PLR0917  # ``lazy_step`` holds the arguments in one tuple
        self,
        handle: RunHandle,
        kind: type[ev.Event],
        fields: ev.Fields,
        at: float,
        mono_ns: int,
        seq: int,
        pid: int,
    ) -> ev.Event:
        """Return the event of a step inside a run; ``fields`` may hold another time.

        Raises:
            EventError: The fields make no valid event.
        """
        parts: Mapping[str, Any] = {
            "at": at,
            "mono_ns": mono_ns,
            "seq": seq,
            "pid": pid,
            **fields,  # the host may report it later
        }
        event = kind(
            host=handle.host, run_id=handle.run_id, execution=handle.execution,
            session_id=handle.session_id, **parts,
        )  # fmt: skip
        if not is_sound(event):
            raise EventError("an adapter sent an invalid event")
        return event

    def reward(
        self,
        value: object,
        *,
        target: Target,
        decision_id: str | None,
        name: object,
        source: object,
        key: object,
        comment: object,
        decisions_before: int | None = None,
    ) -> ev.Reward | None:
        """Return a reward; ``None`` if the value is no finite number, boolean or text."""
        number: float | None = None
        label: str | None = None
        text = None if comment is None else text_of(comment, limit=COMMENT_LIMIT)
        if value is True or value is False:
            number, label = float(value), str(value).lower()
        elif issubclass(type(value), str):
            first = text_of(value, limit=COMMENT_LIMIT)
            text = first if text is None else f"{first}\n{text}"
        else:
            number = finite(value)
            if number is None:
                return None
        return ev.Reward(
            **self.stamp(),
            host=target.host or ("" if target.session_id else OWN_HOST),
            run_id=target.run_id,
            session_id=target.session_id,
            execution=self._decision_executions.get(decision_id or "", ""),
            rollout_id=target.rollout_id,
            decision_id=decision_id,
            name=text_of(name) or "reward",
            value=number,
            label=label,
            comment=None if text is None else ev.Content(text=text),
            source=text_of(source) or "api",
            key=text_of(key),
            decisions_before=decisions_before,
        )

    def is_inside(self, target: Target, around: RunHandle | None) -> bool:
        """Whether a target is a run that encloses the caller, or the session of one."""
        link = self._began_in()
        rollouts = {rollout_id_of(*link)} if link else set()
        sessions = set()
        while around is not None:
            rollouts.add(around.rollout_id)
            sessions.add(around.session_id)
            around = around.parent
        if target.session_id is not None:
            return target.session_id in sessions
        return target.known_id in rollouts

    def stamp(self) -> Stamp:
        """Return the stamp of an event made now."""
        return {
            "at": time.time(),
            "mono_ns": time.monotonic_ns(),
            "seq": next(self._events),
            "pid": self._pid,
        }

    def features(self, name: str, own: object) -> FrozenRow | None:
        """Return an option's features as plain data, from the cache if they have not changed."""
        if type(own) is not dict or len(own) > self._limits.items:
            values = plain(own, limits=self._limits)
            return copy_row(values) if isinstance(values, dict) else None
        copied: dict[str, object] = own.copy()  # nobody else writes to it
        known = self._plain.get(name, copied)
        if known is not None:
            return known
        row = self._row(copied)
        if row is not None and self._plain.wants(name):
            same = len(row) == len(copied) and all(map(is_, row, copied))
            if same and all(map(is_, row.values(), copied.values())):
                self._plain.remember(name, row, row)
        return row

    def _row(self, copied: dict[str, object]) -> FrozenRow | None:
        names = number_names(copied, limits=self._limits)
        if names:
            return copy_row(copied, names=names)
        values = plain(copied, limits=self._limits)
        return copy_row(values) if isinstance(values, dict) else None

    def context(self, context: object) -> FrozenRow:
        """Return the context of a decision as plain data."""
        if type(context) is dict and len(context) <= self._limits.items:
            values = self._row(context.copy())
            if values is not None:
                return values
        read = {} if context is None else plain(context, limits=self._limits)
        return copy_row(read if isinstance(read, dict) else {"value": read})


def run_id_of(name: object, key: object) -> str:
    """Return the run id of a run with a key, from which its rollout's id is made."""
    # escaped, so that name and key stay apart
    kind = clean_id(text_of(name)).replace("%", "%25").replace("/", "%2F")
    return clean_id(f"{kind}/{sign_id(text_of(key, limit=KEY_LIMIT))}")
