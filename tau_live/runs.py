"""Runs of the public door as events: made in the host's thread, so kept short.

A decision's options come as the host has them; here they become names with plain features.
"""

import itertools
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from math import isfinite
from threading import Lock
from typing import NamedTuple, TypedDict

from tau_live import events as ev
from tau_live.decider import Decided
from tau_live.plain import Limits, plain
from tau_live.redaction import clean_id
from tau_live.rollouts import Reason, decision_id_of, rollout_id_of

HOST = "tau_live"
KEYS_REMEMBERED = 10_000
OPTIONS_LIMIT = 256
NAME_LIMIT = 200
KEY_LIMIT = 1_000_000
"""A longer key is cut; one that is longer than an id may be is hashed into it."""


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
    """

    __slots__ = (
        "attempt",
        "children",
        "ended",
        "epoch",
        "execution",
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
    ) -> None:
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
        self.ordinals = itertools.count(1)
        self.children = itertools.count(1)


class Offer(NamedTuple):
    """The options of one decision, ready to be encoded.

    Attributes:
        names: ``[A]``, what they are called, each once.
        originals: ``[A]``, as the host handed them over.
        features: ``[A]``, plain data or ``None``.
        default: The index of the host's own choice; ``None`` if it is not among them.
    """

    names: tuple[str, ...]
    originals: tuple[object, ...]
    features: tuple[dict[str, object] | None, ...]
    default: int | None

    def place_of(self, original: object) -> int | None:
        """Return the index of an option as the host handed it over; ``None`` if it is none."""
        return next((n for n, own in enumerate(self.originals) if own is original), None)


class _Stamp(TypedDict):
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
    """

    def __init__(self, *, stream: str | None, limits: Limits) -> None:
        self._stream = stream or f"{os.getpid()}-{time.time_ns():x}-{secrets.token_hex(4)}"
        self._limits = limits
        self._pid = os.getpid()
        self._events = itertools.count(1)
        self._keyless = itertools.count(1)
        self._executions = itertools.count(1)
        self._born = f"{self._pid:x}-{time.time_ns():x}"
        self._attempts: OrderedDict[str, int] = OrderedDict()
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
        handle = RunHandle(
            known,
            self._run_id(known, key, parent),
            session_id=None if session is None else text_of(session),
            parent=parent,
            epoch=epoch,
            recorded=recorded,
        )
        handle.execution = f"{self._born}-{next(self._executions)}"
        handle.attempt = self._attempt_of(handle.run_id)
        return handle

    def _run_id(self, name: str, key: object, parent: RunHandle | None) -> str:
        if key is not None:
            made = run_id_of(name, key)
        elif parent is not None:
            made = f"{parent.run_id}>{name}#{next(parent.children)}"
        else:
            made = f"{name}/{self._stream}#{next(self._keyless)}"
        return clean_id(made)

    def _attempt_of(self, run_id: str) -> int:
        with self._lock:
            number = self._attempts.pop(run_id, 0) + 1
            self._attempts[run_id] = number
            if len(self._attempts) > KEYS_REMEMBERED:
                self._attempts.popitem(last=False)
        return number

    def started(self, handle: RunHandle, metadata: object) -> ev.RunStart:
        """Return the start of a run."""
        parent = handle.parent
        found = plain(metadata, limits=self._limits) if metadata else {}
        return ev.RunStart(
            **self._stamp(),
            host=HOST,
            run_id=handle.run_id,
            execution=handle.execution,
            session_id=handle.session_id,
            parent_run_id=parent.run_id if parent and parent.recorded else None,
            name=handle.name,
            metadata=found if isinstance(found, dict) else {"value": found},
        )

    def ended(self, handle: RunHandle, error: BaseException | None) -> ev.RunEnd:
        """Return the end of a run, with what it raised."""
        status, reason = ending_of(error)
        info = None
        if error is not None:
            info = ev.ErrorInfo(type=type(error).__name__, message=text_of(error), fatal=True)
        return ev.RunEnd(
            **self._stamp(),
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
        point: str,
        offer: Offer,
        context: Mapping[str, object],
        decided: Decided | None,
        applied: int | None,
        why_not: str | None,
        latency_us: float,
    ) -> ev.Decision:
        """Return a decision: the policy's, or the host's own with the reason why not ours."""
        names = offer.names
        served = decided is not None and why_not is None
        propensity = decided.propensity if decided and served else None
        return ev.Decision(
            **self._stamp(),
            host=HOST,
            run_id=handle.run_id,
            execution=handle.execution,
            ordinal=ordinal,
            point=point,
            options=names,
            chosen=names[decided.place] if decided else None,
            applied=None if applied is None else names[applied],
            default=None if offer.default is None else names[offer.default],
            source="policy" if served else "default",
            why_not=why_not,
            propensity=propensity,
            probabilities=decided.probabilities if decided else (),
            value=decided.value if decided else None,
            policy_version=decided.version if decided else 0,
            latency_us=latency_us,
            context=context,
            features={
                name: found for name, found in zip(names, offer.features, strict=True) if found
            },
            encoded=decided.encoded if decided else b"",
        )

    def rewarded(
        self,
        value: object,
        *,
        run_id: str,
        rollout_id: str | None,
        decision_id: str | None,
        name: object,
        source: object,
        key: object,
        comment: object,
        execution: str,
    ) -> ev.Reward | None:
        """Return a reward; ``None`` if the value is no finite number, truth or text."""
        number: float | None = None
        label: str | None = None
        said = comment
        if isinstance(value, bool):
            number, label = float(value), str(value).lower()
        elif isinstance(value, str):
            said = value if comment is None else f"{value}\n{text_of(comment)}"
        else:
            number = finite(value)
            if number is None:
                return None
        return ev.Reward(
            **self._stamp(),
            host=HOST,
            run_id=run_id,
            execution=execution,
            rollout_id=rollout_id,
            decision_id=decision_id,
            name=text_of(name) or "reward",
            value=number,
            label=label,
            comment=None if said is None else ev.Content(text=text_of(said, limit=10_000)),
            source=text_of(source) or "api",
            key=text_of(key),
        )

    def _stamp(self) -> "_Stamp":
        return _Stamp(
            at=time.time(),
            mono_ns=time.monotonic_ns(),
            seq=next(self._events),
            pid=self._pid,
        )

    def offer(self, options: object, default: object) -> Offer | None:
        """Return what may be chosen, as plain data; ``None`` if nothing may.

        Options that are called the same are one; what is beyond ``OPTIONS_LIMIT`` is left out,
        unless it is the default.
        """
        originals, given = _listed(options)
        names: dict[str, int] = {}
        kept: list[object] = []
        features: list[dict[str, object] | None] = []
        for original, own in zip(originals, given, strict=True):
            name = text_of(original)
            if name in names or (len(names) >= OPTIONS_LIMIT and original != default):
                continue
            names[name] = len(names)
            kept.append(original)
            found = plain(own, limits=self._limits) if own else None
            features.append({**found} if isinstance(found, dict) else None)
        if not names:
            return None
        at = None if default is None else names.get(text_of(default))
        return Offer(tuple(names), tuple(kept), tuple(features), at)

    def context(self, context: object) -> dict[str, object]:
        """Return what is known of the situation as plain data."""
        found = plain(context, limits=self._limits) if context else {}
        return {**found} if isinstance(found, dict) else {"value": found}


def run_id_of(name: object, key: object) -> str:
    """Return the host's key of a run that was given one, from which its rollout's id is made."""
    return clean_id(f"{text_of(name)}/{text_of(key, limit=KEY_LIMIT)}")


def decision_id(handle: RunHandle, ordinal: int) -> str:
    """Return the id of a run's decision."""
    return decision_id_of(handle.rollout_id, handle.attempt, ordinal)


def ending_of(error: BaseException | None) -> tuple[ev.Status, Reason]:
    """Return how a run ended that raised ``error``, or nothing."""
    if error is None:
        return ev.Status.OK, Reason.COMPLETED
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"CancelledError", "GeneratorExit", "KeyboardInterrupt", "SystemExit"}:
        return ev.Status.CANCELLED, Reason.CANCELLED
    if "TimeoutError" in names:
        return ev.Status.ERROR, Reason.TIMEOUT
    return ev.Status.ERROR, Reason.ERROR


def text_of(value: object, *, limit: int = NAME_LIMIT) -> str:
    """Return a bounded text for anything, whatever it does when it is printed."""
    try:
        text = value if type(value) is str else str(value)
        return text[:limit].encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001  # a host's object may raise anything when it is printed
        return f"unprintable {type(value).__name__}"


def finite(value: object) -> float | None:
    """Return a number as a finite float; ``None`` for everything else."""
    try:
        number = float(value)  # type: ignore[arg-type]  # anything may come
    except Exception:  # noqa: BLE001  # a host's object may raise anything when it is converted
        return None
    return number if isfinite(number) else None


def _listed(options: object) -> tuple[list[object], list[object]]:
    if isinstance(options, Mapping):
        pairs = list(itertools.islice(options.items(), 100 * OPTIONS_LIMIT))
        return [name for name, _ in pairs], [features for _, features in pairs]
    if isinstance(options, str) or not isinstance(options, Iterable):
        return [options], [None]
    names = list(itertools.islice(options, 100 * OPTIONS_LIMIT))
    return names, [None] * len(names)
