"""Runs of the public door as events: made in the host's thread, so kept short."""

import itertools
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from operator import is_
from threading import RLock
from types import MappingProxyType
from typing import Any, TypeVar

from tau_live import events as ev
from tau_live.collection.leaving import Later
from tau_live.deciding.arms import Arm
from tau_live.deciding.decider import Decided
from tau_live.envelope import OWN_HOST, is_sound
from tau_live.errors import EventError
from tau_live.handed.masks import Mask
from tau_live.handed.number_rows import number_names
from tau_live.handed.offers import Offer, offer_of
from tau_live.handed.plain import Limits, plain
from tau_live.handed.values import (
    COMMENT_LIMIT,
    KEY_LIMIT,
    Listed,
    finite,
    key_text,
    text_of,
)
from tau_live.machine.lineage import Link, linked
from tau_live.machine.quick import Making, made
from tau_live.privacy.redaction import clean_id, signed
from tau_live.rl.remembered import Kept, Remembered, kept
from tau_live.rollouts import decision_id_of, rollout_id_of
from tau_live.runs.handles import RunHandle
from tau_live.runs.raised import ending_of, error_of
from tau_live.runs.reward_targets import Target
from tau_live.runs.stamps import Stamp, stamped

KEYS_REMEMBERED = 10_000
BeganIn = Callable[[], Link | None]
E = TypeVar("E", bound=ev.Event)
_ALL = Mask()
_NOTHING: Mapping[str, object] = MappingProxyType({})


class RunEvents:
    """Makes the events of runs: counts them, stamps them, and gives runs their keys.

    Args:
        stream: Names the stream from which the ids of runs without a key are made; ``None`` makes
            one that no other process has.
        limits: Bounds of what is taken over from the host.
        began_in: Returns the run of another process inside which this one was started, if it was;
            a pool's worker has another with each task.
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
        self._born = f"{self._pid:x}-{time.time_ns():x}"
        self._attempts: OrderedDict[str, int] = OrderedDict()
        self._given: OrderedDict[str, str] = OrderedDict()
        self._plain: Remembered[Kept] = Remembered()
        self._step = self.step
        self._making: Making[ev.Event] = Making()
        self._lock = RLock()  # a signal or a finaliser may come back into the same thread

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
    ) -> RunHandle:
        """Return a new run with its ids; another host's key of it is kept as it is."""
        known = text_of(name)
        key = None if key is None else key_text(key)
        theirs = key is not None and host != OWN_HOST
        handle = RunHandle(
            known,
            clean_id(key) if key is not None and theirs else self._run_id(known, key, parent),
            host=host,
            session_id=None if session is None else text_of(session),
            parent=parent,
            epoch=epoch,
            recorded=recorded,
            home=self,
            execution=f"{self._born}-{next(self._executions)}",
        )
        if key is not None or parent is not None:  # without either no other run has its id
            handle.attempt = self._attempt_of(handle.run_id)
        return handle

    def _run_id(self, name: str, key: str | None, parent: RunHandle | None) -> str:
        name = clean_id(name)  # or a secret would run into what follows
        if key is not None:
            run_id = run_id_of(name, key)
        elif parent is not None and parent.home is self:
            run_id = f"{parent.run_id}>{name}#{next(parent.children)}"
        elif parent is not None:  # another process may count its children too
            run_id = f"{parent.run_id}>{name}/{self._stream}#{next(self._keyless)}"
        else:
            run_id = f"{name}/{self._stream}#{next(self._keyless)}"
        return clean_id(run_id)

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

    def started(
        self, handle: RunHandle, metadata: object, told: Mapping[str, object] = _NOTHING
    ) -> ev.RunStart:
        """Return the start of a run, with what its host told of it besides."""
        around, around_host = self._around(handle)
        is_empty = metadata is None or (type(metadata) is dict and not metadata)
        found = {} if is_empty else plain(metadata, limits=self._limits)
        parts: dict[str, object] = {
            **stamped(self.stamp()),
            "host": handle.host,
            "run_id": handle.run_id,
            "execution": handle.execution,
            "session_id": handle.session_id,
            "parent_run_id": around,
            "parent_host": around_host,
            "name": handle.name,
            "metadata": found if isinstance(found, dict) else {"value": found},
            **told,
        }
        return made(ev.RunStart, **parts)

    def _around(self, handle: RunHandle) -> tuple[str | None, str | None]:
        """Return the id of the run inside which one begins, and its host where it is another."""
        parent = handle.parent
        if parent is not None and parent.recorded:
            run_id, host = parent.run_id, parent.host
        else:
            link = self._began_in()
            if link is None or link == (handle.host, handle.run_id):  # another try at that run
                return None, None
            host, run_id = link
        return run_id, None if host == handle.host else host

    def linked(self, event: E) -> E:
        """Return an event; the start of a run without a parent as inside the run we began in."""
        inside = isinstance(event, ev.RunStart) and event.parent_run_id is None
        return linked(event, self._began_in()) if inside else event

    def ended(
        self,
        handle: RunHandle,
        error: BaseException | None,
        told: Mapping[str, object] = _NOTHING,
    ) -> ev.RunEnd:
        """Return the end of a run, with what it raised and what its host told of it besides."""
        status, reason = ending_of(error)
        parts: dict[str, object] = {
            **stamped(self.stamp()),
            "host": handle.host,
            "run_id": handle.run_id,
            "execution": handle.execution,
            "status": status,
            "reason": reason,
            "error": None if error is None else error_of(error, fatal=True),
            **told,
        }
        return made(ev.RunEnd, **parts)

    def later(self, handle: RunHandle, kind: type[ev.Event], told: Mapping[str, object]) -> Later:
        """Return a ``step`` that is to be made by the thread that writes."""
        return (
            self._step, handle.run, handle, kind, {**told},
            time.time(), time.monotonic_ns(), next(self._events), self._pid,
        )  # fmt: skip

    def step(  # noqa: PLR0917  # the parts of its stamp wait in one tuple with the others
        self,
        handle: RunHandle,
        kind: type[ev.Event],
        told: Mapping[str, object],
        at: float,
        mono_ns: int,
        seq: int,
        pid: int,
    ) -> ev.Event:
        """Return what happened inside a run then, or when its host says; raises if it is none."""
        when = stamped((at, mono_ns, seq, pid))
        parts: Mapping[str, Any] = {**when, **told}  # it may have been some time ago
        event = self._making[kind](
            host=handle.host, run_id=handle.run_id, execution=handle.execution,
            session_id=handle.session_id, **parts,
        )  # fmt: skip
        if not is_sound(event):
            raise EventError("an adapter sent an invalid event")
        return event

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
            **stamped(stamp),
            host=handle.host,
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
        target: Target,
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
            **stamped(self.stamp()),
            host=target.host or ("" if target.session_id else OWN_HOST),
            run_id=target.run_id,
            session_id=target.session_id,
            execution=self.execution_of(decision_id) if decision_id else "",
            rollout_id=target.rollout_id,
            decision_id=decision_id,
            name=text_of(name) or "reward",
            value=number,
            label=label,
            comment=None if said is None else ev.Content(text=said),
            source=text_of(source) or "api",
            key=text_of(key),
            decisions_before=decisions_before,
        )

    def is_inside(self, target: Target, around: RunHandle | None) -> bool:
        """Say whether a reward is for a run inside which it is given, or for its session."""
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
        """Return the stamp of an event that happens now."""
        return time.time(), time.monotonic_ns(), next(self._events), self._pid

    def offer(self, listed: Listed, default: object, *, mask: Mask = _ALL) -> Offer | None:
        """Return what may be chosen, as plain data; ``None`` if nothing may."""
        return offer_of(listed, default, mask=mask, read=self._features)

    def _features(self, name: str, own: object) -> Kept | None:
        """Return an option's features as plain data, without reading those that stayed."""
        if type(own) is not dict or len(own) > self._limits.items:
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
        if type(context) is dict and len(context) <= self._limits.items:
            found = self._row(context.copy())
            if found is not None:
                return found
        read = {} if context is None else plain(context, limits=self._limits)
        return kept(read if isinstance(read, dict) else {"value": read})


def run_id_of(name: object, key: object) -> str:
    """Return the host's key of a run that was given one, from which its rollout's id is made."""
    kind = clean_id(text_of(name)).replace("%", "%25").replace("/", "%2F")  # or names ran into keys
    return clean_id(f"{kind}/{signed(text_of(key, limit=KEY_LIMIT))}")


def decision_id(handle: RunHandle, ordinal: int) -> str:
    """Return the id of a run's decision."""
    return decision_id_of(handle.rollout_id, handle.attempt, ordinal)
