"""One process's view of the gate that all processes on a store share.

Failures, successes, holds and resets are noted in memory, from any thread, and count at once.
``refresh`` alone touches the disk: it belongs to the thread that owns the store, writes down what
was noted, and takes over what others wrote.
"""

import threading
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol

from tau_live.core import fault
from tau_live.core.errors import StoreError, TauLiveError
from tau_live.core.gate import Gate, GateEntry, GateRow, HoldReason, Kind, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something that happened here and is not yet written down.

    Attributes:
        number: Counts the steps of this process.
        event: ``failed``, ``succeeded``, ``hold`` or ``reset``.
        at: Epoch seconds, UTC.
        who: The process or the person.
        kind: What failed or succeeded.
        reason: Why the gate holds, or the operator's words.
        detail: The error in words.
        held: Whether the gate as seen here went to hold by it; then it must in the store too.
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
        """Return the line of history for this step; ``None`` when it changed no state."""
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


_TRIES = 8
_HISTORY = 100


class GateStore(Protocol):
    """Where the gate is kept; the store's role ``GateState``."""

    def load(self) -> GateRow:
        """Return the gate; it passes when nothing was ever stored, and holds if that is gone."""
        ...

    def save(self, row: GateRow, *, entry: GateEntry | None) -> bool:
        """Store the gate if its revision is still ``row.revision - 1``; ``False`` if it is not."""
        ...

    def log(self, *, limit: int | None = None) -> list[GateEntry]:
        """Return the history, newest first."""
        ...


class GateKeeper:
    """The gate as one process sees it; reading ``passes`` takes no lock.

    Several processes share one stored gate, so a streak is theirs together. A success ends a
    streak only in a process that answers for it: one that has failed itself, or has found the
    streak when it started. So processes in health neither hide one that fails nor write; and
    whatever they do, ``limit`` failures in a row in one process always hold.

    While the store fails, everything counts in memory, and is written down when the store is
    back. A hold that only memory knew then ends, without having held anybody else, if the store's
    history has a reset that is later than the hold. A hold because of the store itself could not
    be written, and no restart would know it: ``suspend`` has it in memory alone, until ``resume``.
    The kill switch (``killed``) is in a file of its own, and neither a reset nor a store ends it.

    Attributes:
        passes: Whether this process may act.
        epoch: How often it has gone to hold here: what began in an earlier one is over.
        gate: The gate as seen here.
        store_error: Why the last refresh failed; ``None`` if it did not.
        answers_for: The kinds of failure that a success here ends a streak of.
    """

    def __init__(self, *, limit: int, who: str) -> None:
        """Begin with a gate that passes; call ``refresh`` before acting on it.

        Args:
            limit: How many failures of a kind in a row hold the gate; at least 1.
            who: Names this process in the history.
        """
        self._who = plain(who)
        self._lock = threading.RLock()  # never held while the store is at work
        self._stored = Gate(limit=limit)
        self.gate = self._stored
        self._told = True
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
    def has_unsaved(self) -> bool:
        """Whether something waits to be written down."""
        return bool(self._steps)

    @property
    def is_suspended(self) -> bool:
        """Whether nothing but the failing store holds it."""
        return self._suspended is not None and self.gate.passes and self._killed is None

    @property
    def held_in_memory(self) -> tuple[str | None, float] | None:
        """Why and since when it holds although the store does not say so; ``None`` if it does.

        The kill switch does not count: its file says so itself.
        """
        with self._lock:
            if self._suspended is not None:
                return self._suspended.reason, self._suspended.at
            if self.gate.passes or not self._stored.passes:
                return None
            return self.gate.reason, self.gate.since

    def snapshot(self) -> dict[str, object]:
        """Return what an operator asks first, as plain values."""
        with self._lock:
            gate, unsaved, error = self.gate, self.has_unsaved, self.store_error
            held, killed = self._suspended, self._killed
        revision = gate.revision
        if killed is not None and gate.passes:
            gate = gate.hold(HoldReason.KILLED.value, killed[1], detail=killed[0])
        elif held is not None and gate.passes:
            gate = gate.hold(held.reason or "", held.at, detail=held.detail)
        return {
            "state": gate.state.value,
            "reason": gate.reason,
            "detail": gate.detail,
            "since": gate.since or None,
            "streaks": {kind.value: gate.streak(kind) for kind in Kind},
            "limit": gate.limit,
            "revision": revision,
            "stored": not unsaved and error is None and held is None,
            "store_error": error,
        }

    def record_failure(self, kind: Kind, error_text: str, *, at: float) -> None:
        """Count a failure; any thread may, and nothing but memory is touched."""
        with self._lock:
            if not self.passes:
                return
            self._own.setdefault(kind, []).append(at)
            self.answers_for.add(kind)
            gate = self.gate.after_failure(kind, error_text, at)
            self._note(
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
        """Count a success; costs nothing where there is no streak to end."""
        if kind not in self.answers_for:
            return
        with self._lock:
            if not self.gate.passes:
                return
            self.answers_for.discard(kind)
            self._own.pop(kind, None)
            self._steps = [step for step in self._steps if step.held or step.kind is not kind]
            step = Step(
                number=next(self._numbers), event="succeeded", at=at, who=self._who, kind=kind
            )
            self._note(step, self.gate.after_success(kind))

    def hold(self, reason: str, *, at: float, detail: str | None = None, who: str = "") -> None:
        """Hold for a reason of the caller's; a gate that holds already keeps its own."""
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
            self._note(step, gate)

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
                self._show(self.gate)

    def resume(self) -> None:
        """End a hold because of the store; the history will tell of it."""
        with self._lock:
            if self._suspended is not None:
                self._steps.append(self._suspended)
                self._suspended = None
                self._show(self.gate)

    def set_kill(self, detail: str | None, *, at: float) -> None:
        """Hold in memory because of the kill switch, or no longer, where there is no ``detail``."""
        with self._lock:
            self._killed = None if detail is None else (plain(detail), at)
            self._show(self.gate)

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
            self.answers_for.clear()
            self._steps = [step for step in self._steps if step.held or step.event == "reset"]
            step = Step(
                number=next(self._numbers),
                event="reset",
                at=at,
                who=plain(who),
                reason=plain(reason),
            )
            self._note(step, self.gate.reset(at))

    def refresh(self, store: GateStore, *, at: float) -> bool:  # noqa: ARG002
        """Write down what was noted here and take over what others wrote.

        Only the thread that owns the store may call it. A store that fails is no error here:
        ``store_error`` says so, and it is tried again next time.

        Returns:
            Whether the state, as seen here, is another than after the last call.
        """
        try:
            self._synchronise(store)
        except StoreError as error:
            self.store_error = plain(str(error))
        else:
            self.store_error = None
        changed = self.passes is not self._told
        self._told = self.passes
        return changed

    def _synchronise(self, store: GateStore) -> None:
        for _ in range(_TRIES):
            # The row first: a reset between the two reads is then seen, or makes the save fail.
            stored = Gate.from_row(store.load(), limit=self._stored.limit)
            known = self._stored
            if not self._loaded or (stored.revision, stored.state) != (known.revision, known.state):
                self._learn(stored, store.log(limit=_HISTORY))
            if self._write(store):
                return

    def _learn(self, stored: Gate, log: Sequence[GateEntry]) -> None:
        """Take over what others wrote, and what their last reset means for what was noted here."""
        reset = next((line for line in log if line.event == "reset"), None)
        with self._lock:
            # What was noted behind a reset that is known stays, wherever clocks were set since.
            is_new = reset is not None and reset.seq != self._reset_seq
            reset_at = reset.at if reset is not None and is_new else float("-inf")
            if stored.passes and not self._stored.passes:
                self._own.clear()  # whatever the clocks say, somebody has reset the gate
            self._own = {
                kind: kept
                for kind, times in self._own.items()
                if (kept := [at for at in times if at > reset_at])
            }
            if reset is not None and reset.seq != self._reset_seq:
                self.answers_for = set(self._own)
                self._reset_seq = reset.seq
            if not self._loaded:
                self.answers_for |= stored.streaks.keys()
                self._loaded = True
            # What was written although writing it seemed to fail.
            written = {(line.at, line.who, line.kind, line.reason) for line in log}
            self._steps = [
                replace(step, ended=step.ended or (step.event != "reset" and step.at <= reset_at))
                for step in self._steps
                if step.held or step.event == "reset" or step.at > reset_at
                if (step.at, step.who, step.kind, step.reason) not in written
            ]
            self._stored = stored
            self._show(self._replay())

    def _write(self, store: GateStore) -> bool:
        """Write every step down; ``False`` when another process was quicker."""
        with self._lock:
            steps, old = list(self._steps), self._stored
            gate = self._with_own(old, steps, {step.kind for step in steps})
        if steps:
            fault.point("gate.noted")
        for place, step in enumerate(steps, start=1):
            new = step.after(gate)
            entry = step.entry(gate, new)
            gate = new
            if entry is not None or (place == len(steps) and gate != old):
                gate = replace(gate, revision=old.revision + 1)
                if not store.save(gate.to_row(), entry=entry):
                    return False
                old = gate
                fault.point("gate.written")
                self._mark_saved(steps[:place], old)
        self._mark_saved(steps, old)
        return True

    def _mark_saved(self, steps: Sequence[Step], stored: Gate) -> None:
        with self._lock:
            written = {step.number for step in steps}
            self._steps = [step for step in self._steps if step.number not in written]
            self._stored = stored
            self._show(self._replay())

    def _note(self, step: Step, gate: Gate) -> None:
        self._steps.append(step)
        self._show(gate)

    def _show(self, gate: Gate) -> None:
        self.gate = gate
        passes = gate.passes and self._suspended is None and self._killed is None
        if self.passes and not passes:
            self.epoch += 1
        self.passes = passes

    def _replay(self) -> Gate:
        """Return the stored gate after everything that was noted since.

        A failure that makes it hold, because of what others have stored, is noted as one that
        does: the hold is seen from now on, and only a reset may end it.
        """
        gate = self._with_own(self._stored, self._steps, set(Kind))
        for place, step in enumerate(self._steps):
            after = step.after(gate)
            if gate.passes and not after.passes:
                self._steps[place] = replace(step, held=True)
            gate = after
        return gate

    def _with_own(self, gate: Gate, steps: Sequence[Step], kinds: Set[Kind | None]) -> Gate:
        """Return the gate with at least the streaks that this process has had before ``steps``."""
        if not gate.passes:
            return gate
        streaks = dict(gate.streaks)
        for kind, times in self._own.items():
            noted = sum(step.event == "failed" and step.kind is kind for step in steps)
            before = len(times) - noted
            if kind in kinds and before > gate.streak(kind):
                streaks[kind] = before
        return replace(gate, streaks=streaks)


def hold_stored(  # what a hold is, all keyword-only
    store: GateStore, *, limit: int, reason: str, detail: str, who: str, at: float
) -> bool:
    """Let the stored gate hold, in the caller's transaction; ``False`` if it holds already.

    A keeper that records the same hold, with the same time, finds it written.
    """
    gate = Gate.from_row(store.load(), limit=limit)
    if not gate.passes:
        return False
    held = replace(gate.hold(plain(reason), at, detail=detail), revision=gate.revision + 1)
    entry = GateEntry(
        at=at, event="hold", state=held.state.value, kind=None, reason=plain(reason), who=plain(who)
    )
    return store.save(held.to_row(), entry=entry)
