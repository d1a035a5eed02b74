"""One process's view of the gate that all processes on a store share.

Failures, successes, holds and resets are recorded in memory, from any thread, and count at once.
``refresh`` alone touches the disk: it belongs to the thread that owns the store, writes the pending
steps, and takes over what other processes wrote.
"""

import threading
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol, TypedDict

import msgspec

from tau_live.core import fault
from tau_live.core.errors import StoreError, TauLiveError
from tau_live.core.gate import Gate, GateEntry, GateRow, HoldReason, Kind, plain


class GateSnapshot(TypedDict):
    """The state of the gate for operators.

    Attributes:
        state: ``pass`` or ``hold``.
        reason: Why it holds.
        detail: The text of the error.
        since: Epoch seconds since which it holds.
        streaks: The failures in a row, by kind.
        limit: How many of them make it hold.
        revision: The number of its changes in the store.
        stored: Whether the store has this state.
        store_error: Why the store cannot be read or written.
    """

    state: str
    reason: str | None
    detail: str | None
    since: float | None
    streaks: dict[str, int]
    limit: int
    revision: int
    stored: bool
    store_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An event of the gate in this process that is not yet written.

    Attributes:
        number: Its number among the steps of this process.
        event: ``failed``, ``succeeded``, ``hold`` or ``reset``.
        at: Epoch seconds, UTC.
        who: The process or the person.
        kind: What failed or succeeded.
        reason: Why the gate holds, or the operator's text.
        detail: The text of the error.
        held: Whether it made the gate hold in this process; then the stored gate must hold too.
        ended: Whether that hold is over already: by a later reset, or because the store works.
    """

    number: int
    event: str
    at: float
    who: str
    kind: Kind | None = None
    reason: str | None = None
    detail: str | None = None
    held: bool = False
    ended: bool = False

    def after(self, gate: Gate) -> Gate:
        """Return the gate after this step."""
        if self.event == "reset":
            return gate.reset(self.at)
        if self.ended:
            return gate
        if self.kind is not None and self.event == "succeeded":
            return gate.after_success(self.kind)
        if self.kind is not None and self.event == "failed":
            gate = gate.after_failure(self.kind, self.detail or "", self.at)
        return gate.hold(self.reason or "", self.at, detail=self.detail) if self.held else gate

    def entry(self, old: Gate, new: Gate) -> GateEntry | None:
        """Return the history entry of this step; ``None`` if it did not change the state."""
        if self.event == "reset":
            event = "reset"
        elif self.ended:
            event = "held_in_memory"
        elif self.held or (old.passes and not new.passes):
            event = "hold"
        else:
            return None
        return GateEntry(
            at=self.at,
            event=event,
            state=new.state.value,
            kind=self.kind.value if self.kind else None,
            reason=self.reason,
            who=self.who,
        )


OWN_KINDS = frozenset({Kind.COLLECTION, Kind.DECISION})
"""The failures that are a process's own in a fleet."""

_TRIES = 8
_HISTORY = 100
_NEWEST = 4


class ProcessReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a process of a fleet reports of itself with its heartbeat.

    Attributes:
        revision: That of the gate by which it acts; ``None`` once it has ended.
        reset: The number of the newest reset that it knows, in the gate's history.
        streaks: Its own consecutive failures, by kind.
        reason: Why it holds by itself; ``None`` if it does not.
        detail: The last error, in words.
        since: Epoch seconds, UTC, by its own clock, since when it does.
        schema: The newest version of the schema that it knows; those that do not say so know the
            first.
    """

    revision: int | None
    reset: int = 0
    streaks: Mapping[Kind, int] = {}
    reason: str | None = None
    detail: str | None = None
    since: float = 0.0
    schema: int = 1


class GateStore(Protocol):
    """The store of the gate; the store's role ``GateState``."""

    def load(self) -> GateRow:
        """Return the gate; it passes if none was ever stored, and holds if its row is gone."""
        ...

    def save(self, row: GateRow, *, entry: GateEntry | None) -> bool:
        """Store the gate if its revision is still ``row.revision - 1``; ``False`` if it is not."""
        ...

    def log(self, *, limit: int | None = None) -> list[GateEntry]:
        """Return the history, newest first."""
        ...


class GateKeeper:
    """The gate as one process sees it; reading ``passes`` takes no lock.

    Several processes share one stored gate, and its streaks. A success ends a streak only in a
    process that answers for it: one that has failed itself, or has found the streak when it
    started. So healthy processes neither write nor hide one that fails; and whatever they do,
    ``limit`` consecutive failures in one process always hold.

    While the store fails, everything counts in memory, and is written when the store is back. A
    hold known in memory alone then ends, without having held other processes, if the store's
    history has a reset that is later than the hold. A hold because of the store itself could not
    be written, and a restart would not know it: ``suspend`` keeps it in memory until ``resume``.
    The kill switch (``set_kill``) has a file of its own, and neither a reset nor a store ends it.

    In a fleet, failures to collect and to decide are the process's own: they are counted in memory,
    hold this process alone, and cost the database nothing; ``report`` says so to others, for the
    next heartbeat. A reset, by whoever, ends them. Failing updates hold all, as with a file.

    Attributes:
        passes: Whether this process may act.
        epoch: The number of holds in this process; what began in an earlier epoch is over.
        gate: The gate as this process sees it.
        store_error: Why the last refresh failed; ``None`` if it did not.
        answers_for: The kinds of failure whose streak a success in this process ends.
    """

    def __init__(self, *, limit: int, who: str, in_fleet: bool = False) -> None:
        """Begin with a gate that passes; call ``refresh`` before acting on it.

        Args:
            limit: Consecutive failures of a kind after which the gate holds; at least 1.
            who: Names this process in the history.
            in_fleet: Whether failures of this process are to hold it alone.
        """
        self._alone = OWN_KINDS if in_fleet else frozenset()
        self._own_gate = Gate(limit=limit)
        self._who = plain(who)
        self._lock = threading.RLock()  # never held during store access
        self._stored = Gate(limit=limit)
        self.gate = self._stored
        self._passed_last = True
        self._steps: list[Step] = []
        self._numbers = count(1)
        self._own: dict[Kind, list[float]] = {}
        self.answers_for: set[Kind] = set()
        self._loaded = False
        self._reset_seq = 0
        self.store_error: str | None = None
        self._suspended: Step | None = None
        self._killed: tuple[str, float] | None = None
        self.passes = True
        self.epoch = 0

    @property
    def holds_alone(self) -> bool:
        """Whether it holds because of its own failures, which hold no other process."""
        return not self._own_gate.passes

    @property
    def news(self) -> tuple[int, str | None]:
        """What of its report others should know soon: its revision, and why it holds; no lock."""
        return self._stored.revision, self._own_gate.reason

    def report(self) -> ProcessReport:
        """Return what others should know of this process; for any thread."""
        with self._lock:
            own = self._own_gate
            return ProcessReport(
                revision=self._stored.revision,
                reset=self._reset_seq,
                streaks=dict(own.streaks),
                reason=own.reason,
                detail=own.detail,
                since=own.since,
            )

    def take_over_from(self, dead: ProcessReport) -> None:
        """Go on with the failures in a row, and the hold, of a process that this one replaces.

        Those from before the newest reset are over.
        """
        with self._lock:
            if dead.reset != self._reset_seq:
                return
            own = self._own_gate
            streaks = {
                kind: max(own.streak(kind), dead.streaks.get(kind, 0))
                for kind in own.streaks.keys() | dead.streaks.keys()
            }
            own = replace(own, streaks=streaks, detail=own.detail or dead.detail)
            if dead.reason is not None:
                own = own.hold(dead.reason, dead.since, detail=dead.detail)
            self.answers_for |= streaks.keys()
            self._set_own_gate(own)

    @property
    def has_unsaved(self) -> bool:
        """Whether steps wait to be written."""
        return bool(self._steps)

    @property
    def is_suspended(self) -> bool:
        """Whether the failing store alone holds it."""
        return self._suspended is not None and self.gate.passes and self._killed is None

    @property
    def held_in_memory(self) -> tuple[str | None, float] | None:
        """Reason and time of a hold that is not stored; ``None`` without one.

        The kill switch does not count: it has a file of its own.
        """
        with self._lock:
            if self._suspended is not None:
                return self._suspended.reason, self._suspended.at
            if self.gate.passes or not self._stored.passes:
                return None
            return self.gate.reason, self.gate.since

    def snapshot(self) -> GateSnapshot:
        """Return the state of the gate for operators, as plain values."""
        with self._lock:
            gate, unsaved, error = self.gate, self.has_unsaved, self.store_error
            held, killed, own = self._suspended, self._killed, self._own_gate
        revision = gate.revision
        streaks = {**gate.streaks, **own.streaks}
        if gate.passes:
            gate = replace(gate, detail=gate.detail or own.detail) if own.passes else own
        if killed is not None and gate.passes:
            gate = gate.hold(HoldReason.KILLED.value, killed[1], detail=killed[0])
        elif held is not None and gate.passes:
            gate = gate.hold(held.reason or "", held.at, detail=held.detail)
        return {
            "state": gate.state.value,
            "reason": gate.reason,
            "detail": gate.detail,
            "since": gate.since or None,
            "streaks": {kind.value: streaks.get(kind, 0) for kind in Kind},
            "limit": gate.limit,
            "revision": revision,
            "stored": not unsaved and error is None and held is None,
            "store_error": error,
        }

    def record_failure(self, kind: Kind, error_text: str, *, at: float) -> None:
        """Count a failure, in memory alone; any thread may call it."""
        with self._lock:
            if not self.passes:
                return
            self.answers_for.add(kind)
            if kind in self._alone:
                self._set_own_gate(self._own_gate.after_failure(kind, error_text, at))
                return
            self._own.setdefault(kind, []).append(at)
            gate = self.gate.after_failure(kind, error_text, at)
            self._add_step(
                Step(
                    number=next(self._numbers),
                    event="failed",
                    at=at,
                    who=self._who,
                    kind=kind,
                    reason=f"{kind}_failures",
                    detail=gate.detail,
                    held=not gate.passes,
                ),
                gate,
            )

    def record_success(self, kind: Kind, *, at: float) -> None:
        """Count a success; costs nothing without a streak to end."""
        if kind not in self.answers_for:
            return
        with self._lock:
            if not (self.gate.passes and self._own_gate.passes):
                return
            self.answers_for.discard(kind)
            if kind in self._alone:
                self._set_own_gate(self._own_gate.after_success(kind))
                return
            self._own.pop(kind, None)
            self._steps = [step for step in self._steps if step.held or step.kind is not kind]
            step = Step(
                number=next(self._numbers), event="succeeded", at=at, who=self._who, kind=kind
            )
            self._add_step(step, self.gate.after_success(kind))

    def hold(self, reason: str, *, at: float, detail: str | None = None, who: str = "") -> None:
        """Hold for the caller's reason; a gate that holds already keeps its own."""
        with self._lock:
            if not self.gate.passes:
                return
            gate = self.gate.hold(plain(reason), at, detail=detail)
            step = Step(
                number=next(self._numbers),
                event="hold",
                at=at,
                who=plain(who) or self._who,
                reason=gate.reason,
                detail=gate.detail,
                held=True,
            )
            self._add_step(step, gate)

    def suspend(self, detail: str, *, at: float) -> None:
        """Hold in memory, because of the store itself, until ``resume`` or a reset."""
        with self._lock:
            if self._suspended is None:
                self._suspended = Step(
                    number=next(self._numbers),
                    event="hold",
                    at=at,
                    who=self._who,
                    reason=HoldReason.STORE_UNAVAILABLE.value,
                    detail=plain(detail),
                    held=True,
                    ended=True,
                )
                self._set_gate(self.gate)

    def resume(self) -> None:
        """End a hold because of the store, and record it in the history."""
        with self._lock:
            if self._suspended is not None:
                self._steps.append(self._suspended)
                self._suspended = None
                self._set_gate(self.gate)

    def set_kill(self, detail: str | None, *, at: float) -> None:
        """Hold in memory because of the kill switch; ``None`` as ``detail`` ends that."""
        with self._lock:
            self._killed = None if detail is None else (plain(detail), at)
            self._set_gate(self.gate)

    def reset(self, reason: str, *, who: str, at: float) -> None:
        """Let the gate pass again, with every streak over.

        Raises:
            TauLiveError: There is no reason, or nobody to give it.
        """
        if not reason.strip() or not who.strip():
            raise TauLiveError(f"a reset needs a reason and a name, got {reason!r} and {who!r}")
        self.resume()
        with self._lock:
            self._own.clear()
            self._own_gate = self._own_gate.reset(at)
            self.answers_for.clear()
            self._steps = [step for step in self._steps if step.held or step.event == "reset"]
            step = Step(
                number=next(self._numbers),
                event="reset",
                at=at,
                who=plain(who),
                reason=plain(reason),
            )
            self._add_step(step, self.gate.reset(at))

    def refresh(self, store: GateStore) -> bool:
        """Write the pending steps and take over what other processes wrote.

        Only the thread that owns the store may call it. A failing store raises nothing here: it
        sets ``store_error``, and the next call tries again.

        Returns:
            Whether the state, as this process sees it, has changed since the last call.
        """
        try:
            self._synchronise(store)
        except StoreError as error:
            self.store_error = plain(str(error))
        else:
            self.store_error = None
        changed = self.passes is not self._passed_last
        self._passed_last = self.passes
        return changed

    def _synchronise(self, store: GateStore) -> None:
        for _ in range(_TRIES):
            # The row first: a reset between the two reads is then seen, or makes the save fail.
            stored = Gate.from_row(store.load(), limit=self._stored.limit)
            known = self._stored
            if not self._loaded or (stored.revision, stored.state) != (known.revision, known.state):
                self._take_over(stored, self._history(store))
            if self._write(store):
                return

    def _history(self, store: GateStore) -> Sequence[GateEntry]:
        """Return the newest lines: down to the last reset, or more if steps may be among them."""
        newest = () if self._steps else store.log(limit=_NEWEST)  # a thousand processes read it
        has_reset = any(line.event == "reset" for line in newest)
        return newest if has_reset else store.log(limit=_HISTORY)

    def _take_over(self, stored: Gate, log: Sequence[GateEntry]) -> None:
        """Take over what other processes wrote, and apply their last reset to pending steps."""
        reset = next((line for line in log if line.event == "reset"), None)
        with self._lock:
            # Steps recorded after a known reset stay, however clocks were set since.
            is_new = reset is not None and reset.seq != self._reset_seq
            reset_at = reset.at if reset is not None and is_new else float("-inf")
            was_reset = stored.passes and not self._stored.passes
            if was_reset:
                self._own.clear()  # whatever the clocks say, the gate was reset
            if was_reset or (is_new and self._loaded):
                self._set_own_gate(self._own_gate.reset(reset.at if reset else 0.0))
            self._own = {
                kind: kept
                for kind, times in self._own.items()
                if (kept := [at for at in times if at > reset_at])
            }
            if reset is not None and reset.seq != self._reset_seq:
                self.answers_for = {*self._own, *self._own_gate.streaks}
                self._reset_seq = reset.seq
            if not self._loaded:
                self.answers_for |= stored.streaks.keys()
                self._loaded = True
            # Steps that were written although writing them seemed to fail.
            written = {(line.at, line.who, line.kind, line.reason) for line in log}
            self._steps = [
                replace(step, ended=step.ended or (step.event != "reset" and step.at <= reset_at))
                for step in self._steps
                if step.held or step.event == "reset" or step.at > reset_at
                if (step.at, step.who, step.kind, step.reason) not in written
            ]
            self._stored = stored
            self._set_gate(self._replay())

    def _write(self, store: GateStore) -> bool:
        """Write every pending step; ``False`` if another process was quicker."""
        with self._lock:
            steps, old = list(self._steps), self._stored
            gate = self._with_own(old, steps, {step.kind for step in steps})
        if steps:
            fault.point("gate.noted")
        for number, step in enumerate(steps, start=1):
            new = step.after(gate)
            entry = step.entry(gate, new)
            gate = new
            if entry is not None or (number == len(steps) and gate != old):
                gate = replace(gate, revision=old.revision + 1)
                if not store.save(gate.to_row(), entry=entry):
                    return False
                old = gate
                fault.point("gate.written")
                self._mark_saved(steps[:number], old)
        self._mark_saved(steps, old)
        return True

    def _mark_saved(self, steps: Sequence[Step], stored: Gate) -> None:
        with self._lock:
            written = {step.number for step in steps}
            self._steps = [step for step in self._steps if step.number not in written]
            self._stored = stored
            self._set_gate(self._replay())

    def _add_step(self, step: Step, gate: Gate) -> None:
        self._steps.append(step)
        self._set_gate(gate)

    def _set_own_gate(self, own: Gate) -> None:
        self._own_gate = own
        self._set_gate(self.gate)

    def _set_gate(self, gate: Gate) -> None:
        self.gate = gate
        passes = gate.passes and self._own_gate.passes
        passes = passes and self._suspended is None and self._killed is None
        if self.passes and not passes:
            self.epoch += 1
        self.passes = passes

    def _replay(self) -> Gate:
        """Return the stored gate after all pending steps.

        A failure that makes it hold only together with what others have stored is marked as
        ``held``: the hold lasts from now on, and only a reset may end it.
        """
        gate = self._with_own(self._stored, self._steps, set(Kind))
        for index, step in enumerate(self._steps):
            after = step.after(gate)
            if gate.passes and not after.passes:
                self._steps[index] = replace(step, held=True)
            gate = after
        return gate

    def _with_own(self, gate: Gate, steps: Sequence[Step], kinds: Set[Kind | None]) -> Gate:
        """Return the gate with at least this process's own streaks before ``steps``."""
        if not gate.passes:
            return gate
        streaks = dict(gate.streaks)
        for kind, times in self._own.items():
            pending = sum(step.event == "failed" and step.kind is kind for step in steps)
            before = len(times) - pending
            if kind in kinds and before > gate.streak(kind):
                streaks[kind] = before
        return replace(gate, streaks=streaks)


def hold_stored(  # the fields of a hold, all keyword-only
    store: GateStore, *, limit: int, reason: str, detail: str, who: str, at: float
) -> bool:
    """Make the stored gate hold, in the caller's transaction; ``False`` if it holds already.

    A keeper that records the same hold, with the same time, does not write it again.
    """
    gate = Gate.from_row(store.load(), limit=limit)
    if not gate.passes:
        return False
    held = replace(gate.hold(plain(reason), at, detail=detail), revision=gate.revision + 1)
    entry = GateEntry(
        at=at, event="hold", state=held.state.value, kind=None, reason=plain(reason), who=plain(who)
    )
    return store.save(held.to_row(), entry=entry)
