"""Runs of the public door as events: made in the host's thread, so kept short."""

import itertools
import os
import secrets
import time
from collections import OrderedDict
from operator import is_
from threading import Lock
from typing import TypedDict

from tau_live import events as ev
from tau_live.arms import Arm
from tau_live.decider import Decided
from tau_live.handed import (
    COMMENT_LIMIT,
    KEY_LIMIT,
    Listed,
    finite,
    key_text,
    kind_of,
    text_of,
)
from tau_live.lineage import Link, linked
from tau_live.masks import Mask
from tau_live.number_rows import number_names
from tau_live.offers import Offer, offer_of
from tau_live.plain import Limits, plain
from tau_live.redaction import clean_id
from tau_live.rl.remembered import Kept, Remembered, kept
from tau_live.rollouts import Reason, decision_id_of, rollout_id_of

HOST = "tau_live"
KEYS_REMEMBERED = 10_000
_ALL = Mask()


class RunHandle:
    """What the runtime knows of one run that is going on.

    Attributes:
        name: What kind of run it is.
        run_id: The host's key of it.
        rollout_id: The rollout's id.
        attempt: The try, as far as this process knows.
        execution: Tells this execution from others under the same key.
        session_id: What runs of one conversation share.
        parent: The run inside which it runs.
        epoch: How often the gate had held when it began; it is recorded while that is so.
        recorded: Whether it is recorded at all.
        ended: Whether it is over.
        decided: How many decisions it has made.
        home: What makes its events; a forked child, or a later ``attach``, has another.
        arms: Who decides it at each point, as it was assigned with the first decision there.
    """

    __slots__ = (
        "arms",
        "attempt",
        "children",
        "decided",
        "ended",
        "epoch",
        "execution",
        "home",
        "name",
        "ordinals",
        "parent",
        "recorded",
        "rollout_id",
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
        home: "RunEvents",
    ) -> None:
        self.home = home
        self.arms: dict[str, Arm] = {}
        self.name = name
        self.run_id = run_id
        self.rollout_id = rollout_id_of(HOST, run_id)
        self.attempt = 1
        self.execution = ""
        self.session_id = session_id
        self.parent = parent
        self.epoch = epoch
        self.recorded = recorded
        self.ended = False
        self.decided = 0
        self.ordinals = itertools.count(1)
        self.children = itertools.count(1)


class Stamp(TypedDict):
    """When an event happened, and which of this process's events it is."""

    at: float
    mono_ns: int
    seq: int
    pid: int


class RunEvents:
    """Makes the events of runs: counts them, stamps them, and gives runs their keys.

    Args:
        stream: Names the stream from which the ids of runs without a key are made; ``None`` makes
            one that no other process has.
        limits: Bounds of what is taken over from the host.
        began_in: The run of another process inside which this one was started, if it was.
    """

    def __init__(self, *, stream: str | None, limits: Limits, began_in: Link | None = None) -> None:
        self.began_in = began_in
        self._stream = stream or f"{os.getpid()}-{time.time_ns():x}-{secrets.token_hex(4)}"
        self._limits = limits
        self._pid = os.getpid()
        self._events = itertools.count(1)
        self._keyless = itertools.count(1)
        self._executions = itertools.count(1)
        self._born = f"{self._pid:x}-{time.time_ns():x}"
        self._attempts: OrderedDict[str, int] = OrderedDict()
        self._given: OrderedDict[str, str] = OrderedDict()
        self._plain: Remembered[Kept] = Remembered()
        self._lock = Lock()

    def handle(
        self,
        name: object,
        *,
        key: object,
        session: object,
        parent: RunHandle | None,
        epoch: int,
        recorded: bool,
    ) -> RunHandle:
        """Return a new run with its ids."""
        known = text_of(name)
        key = None if key is None else key_text(key)
        handle = RunHandle(
            known,
            self._run_id(known, key, parent),
            session_id=None if session is None else text_of(session),
            parent=parent,
            epoch=epoch,
            recorded=recorded,
            home=self,
        )
        handle.execution = f"{self._born}-{next(self._executions)}"
        if key is not None or parent is not None:  # without either no other run has its id
            handle.attempt = self._attempt_of(handle.run_id)
        return handle

    def _run_id(self, name: str, key: str | None, parent: RunHandle | None) -> str:
        if key is not None:
            made = run_id_of(name, key)
        elif parent is not None and parent.home is self:
            made = f"{parent.run_id}>{name}#{next(parent.children)}"
        elif parent is not None:  # another process may count its children too
            made = f"{parent.run_id}>{name}/{self._stream}#{next(self._keyless)}"
        else:
            made = f"{name}/{self._stream}#{next(self._keyless)}"
        return clean_id(made)

    def tried(self, run_id: str, attempts: int) -> None:
        """Know that a run was tried so often before this process."""
        with self._lock:
            self._attempts.setdefault(run_id, attempts)

    def _attempt_of(self, run_id: str) -> int:
        with self._lock:
            number = self._attempts.pop(run_id, 0) + 1
            self._attempts[run_id] = number
            if len(self._attempts) > KEYS_REMEMBERED:
                self._attempts.popitem(last=False)
        return number

    def give(self, handle: RunHandle, decision: str) -> None:
        """Remember which execution a decision's id was given out in.

        Another process may have had the attempt that this one takes for its first: the store
        alone can tell, and finds the decision by its execution.
        """
        with self._lock:
            self._given[decision] = handle.execution
            if len(self._given) > KEYS_REMEMBERED:
                self._given.popitem(last=False)

    def execution_of(self, decision: str) -> str:
        """Return the execution that a decision's id was given out in; empty if not here."""
        return self._given.get(decision, "")

    def started(self, handle: RunHandle, metadata: object) -> ev.RunStart:
        """Return the start of a run."""
        parent = handle.parent
        found = {} if metadata is None else plain(metadata, limits=self._limits)
        start = ev.RunStart(
            **self.stamp(),
            host=HOST,
            run_id=handle.run_id,
            execution=handle.execution,
            session_id=handle.session_id,
            parent_run_id=parent.run_id if parent and parent.recorded else None,
            name=handle.name,
            metadata=found if isinstance(found, dict) else {"value": found},
        )
        return start if parent else linked(start, self.began_in)

    def ended(self, handle: RunHandle, error: BaseException | None) -> ev.RunEnd:
        """Return the end of a run, with what it raised."""
        status, reason = ending_of(error)
        info = None
        if error is not None:
            info = ev.ErrorInfo(type=kind_of(error), message=text_of(error), fatal=True)
        return ev.RunEnd(
            **self.stamp(),
            host=HOST,
            run_id=handle.run_id,
            execution=handle.execution,
            status=status,
            reason=reason,
            error=info,
        )

    def decided(
        self,
        handle: RunHandle,
        ordinal: int,
        *,
        stamp: Stamp,
        point: str,
        offer: Offer,
        context: Kept,
        decided: Decided | None,
        applied: int | None,
        why_not: str | None,
        latency_us: float,
        arm: Arm,
    ) -> ev.Decision:
        """Return a decision: the policy's, or the host's own with the reason why not ours.

        Nothing that it is made of can change, so it may be made later, by another thread.
        """
        names = offer.names
        served = decided is not None and why_not is None
        propensity = decided.propensity if decided and served else None
        return ev.Decision(
            **stamp,
            host=HOST,
            run_id=handle.run_id,
            execution=handle.execution,
            ordinal=ordinal,
            point=point,
            options=names,
            allowed=offer.allowed_names(),
            exploit_only=offer.exploit_only_names(),
            chosen=names[decided.place] if decided else None,
            applied=None if applied is None else names[applied],
            default=None if offer.default is None else names[offer.default],
            source="policy" if served else "default",
            why_not=why_not,
            propensity=propensity,
            probabilities=decided.probabilities if decided else (),
            value=decided.value if decided else None,
            policy_version=decided.version if decided else 0,
            arm=arm.name,
            share=arm.share,
            latency_us=latency_us,
            context=context.copy(),
            features={
                name: found.copy()  # others may get to see the event
                for name, found in zip(names, offer.features, strict=True)
                if found
            },
            encoded=decided.encoded if decided else b"",
        )

    def rewarded(
        self,
        value: object,
        *,
        rollout_id: str,
        decision_id: str | None,
        name: object,
        source: object,
        key: object,
        comment: object,
        decisions_before: int | None = None,
    ) -> ev.Reward | None:
        """Return a reward; ``None`` if the value is no finite number, truth or text."""
        number: float | None = None
        label: str | None = None
        said = None if comment is None else text_of(comment, limit=COMMENT_LIMIT)
        if value is True or value is False:
            number, label = float(value), str(value).lower()
        elif issubclass(type(value), str):
            own = text_of(value, limit=COMMENT_LIMIT)
            said = own if said is None else f"{own}\n{said}"
        else:
            number = finite(value)
            if number is None:
                return None
        return ev.Reward(
            **self.stamp(),
            host=HOST,
            run_id="",
            execution=self.execution_of(decision_id) if decision_id else "",
            rollout_id=rollout_id,
            decision_id=decision_id,
            name=text_of(name) or "reward",
            value=number,
            label=label,
            comment=None if said is None else ev.Content(text=said),
            source=text_of(source) or "api",
            key=text_of(key),
            decisions_before=decisions_before,
        )

    def stamp(self) -> Stamp:
        """Return the stamp of an event that happens now."""
        return Stamp(
            at=time.time(),
            mono_ns=time.monotonic_ns(),
            seq=next(self._events),
            pid=self._pid,
        )

    def offer(self, listed: Listed, default: object, *, mask: Mask = _ALL) -> Offer | None:
        """Return what may be chosen, as plain data; ``None`` if nothing may."""
        return offer_of(listed, default, mask=mask, read=self._features)

    def _features(self, name: str, own: object) -> Kept | None:
        """Return an option's features as plain data, without reading those that stayed."""
        if type(own) is not dict:
            found = plain(own, limits=self._limits)
            return kept(found) if isinstance(found, dict) else None
        copied: dict[str, object] = own.copy()  # which nobody else writes to
        known = self._plain.made_of(name, copied)
        if known is not None:
            return known
        row = self._row(copied)
        if row is not None and self._plain.wants(name):
            same = len(row) == len(copied) and all(map(is_, row, copied))
            if same and all(map(is_, row.values(), copied.values())):
                self._plain.remember(name, row, row)
        return row

    def _row(self, copied: dict[str, object]) -> Kept | None:
        names = number_names(copied, limits=self._limits)
        if names:
            return kept(copied, names=names)
        found = plain(copied, limits=self._limits)
        return kept(found) if isinstance(found, dict) else None

    def context(self, context: object) -> Kept:
        """Return what is known of the situation as plain data."""
        if type(context) is dict:
            found = self._row(context.copy())
            if found is not None:
                return found
        read = {} if context is None else plain(context, limits=self._limits)
        return kept(read if isinstance(read, dict) else {"value": read})


def run_id_of(name: object, key: object) -> str:
    """Return the host's key of a run that was given one, from which its rollout's id is made."""
    kind = text_of(name).replace("%", "%25").replace("/", "%2F")  # or names could run into keys
    return clean_id(f"{kind}/{text_of(key, limit=KEY_LIMIT)}")


def decision_id(handle: RunHandle, ordinal: int) -> str:
    """Return the id of a run's decision."""
    return decision_id_of(handle.rollout_id, handle.attempt, ordinal)


def ending_of(error: BaseException | None) -> tuple[ev.Status, Reason]:
    """Return how a run ended that raised ``error``, or nothing."""
    if error is None:
        return ev.Status.OK, Reason.COMPLETED
    names = {kind.__name__ for kind in type.mro(type(error))}
    if names & {"CancelledError", "GeneratorExit", "KeyboardInterrupt", "SystemExit"}:
        return ev.Status.CANCELLED, Reason.CANCELLED
    if "TimeoutError" in names:
        return ev.Status.ERROR, Reason.TIMEOUT
    return ev.Status.ERROR, Reason.ERROR
