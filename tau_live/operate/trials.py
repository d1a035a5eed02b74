"""The orders of operators about who decides: exposure, promote, reset, rollback, pin, undo, stop.

Each is one transaction with its audit row; an order without effect is written down as well.
Running processes see it within a second.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from tau_live.core import fault
from tau_live.core.errors import PolicyError
from tau_live.core.records import AuditEntry, Trial
from tau_live.core.sanitize import integer, mapping
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import Point
from tau_live.decisions.policy_files import check_policy, checkpoint_folder
from tau_live.learn.promotion.promoter import since
from tau_live.learn.promotion.rules import (
    RUNGS,
    Move,
    Serving,
    make_champion,
    restart_test,
    return_champion,
    share_now,
    top_of,
)
from tau_live.store.roles import Store

TAKEN_OUT = frozenset({"policy_rollback", "policy_reset", Move.RETURNED.value})
PUT_BACK = frozenset({"policy_use", "policy_undo"})

_SERVED = ("version", "pinned")
_UNDONE = ("exposure", "champion", "previous", "kept", "stopped")
_EVIDENCE = ("test", "evidence", "tally", "finding")


class Order(NamedTuple):
    """An order of an operator: the action, the point and the reason.

    Attributes:
        action: The name in the audit.
        point: The decision point.
        reason: Why.
        who: Who says so.
        at: Epoch seconds, UTC.
    """

    action: str
    point: str
    reason: str
    who: str
    at: float


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """How a decision point stands after an operator changed it.

    Attributes:
        point: The decision point.
        action: What was done.
        version: What the learner decides with; 0 is the untrained policy.
        was: What it decided with before.
        pinned: Whether updates leave it alone.
        exposure: The share of rollouts that the learner decides.
        champion: The version last proven better; ``None`` is the host's own choice.
        previous: The champion before.
        stopped: Why the learner decides nothing; ``None`` while it may.
        revision: Grows with every change of the point.
        idempotent: Whether it was so already.
        reason: Why.
        who: Who did it.
        at: Epoch seconds, UTC.
    """

    point: str
    action: str
    version: int
    was: int
    pinned: bool
    exposure: float
    champion: int | None
    previous: int | None
    stopped: str | None
    revision: int
    idempotent: bool
    reason: str
    who: str
    at: float


class _Wanted(NamedTuple):
    """How a point should stand; ``None`` leaves the trial or what serves as it is."""

    trial: Trial | None = None
    serve: Serving | None = None


_Change = Callable[[Trial, Serving], _Wanted]


def expose(store: Store, settings: Settings, order: Order, *, share: float) -> Changed:
    """Let the learner decide a share of the rollouts; one that was stopped starts again.

    What is known of the learner stays, unless it had been stopped: then its test begins anew.
    A decision point of hosts can be exposed before its first run.

    Raises:
        PolicyError: The point is unknown, and no decision point of hosts.
    """

    def change(trial: Trial, _serving: Serving) -> _Wanted:
        again = restart_test(trial) if trial.stopped is not None else trial
        return _Wanted(replace(again, stopped=None, exposure=share))

    return _apply(store, settings, order, change, ahead=True)


def stop(store: Store, settings: Settings, order: Order) -> Changed:
    """Let the learner decide nothing, until it is exposed again; one that was stopped stays so.

    Raises:
        PolicyError: The point is unknown.
    """

    def change(trial: Trial, _serving: Serving) -> _Wanted:
        if trial.stopped is not None:
            return _Wanted()
        return _Wanted(replace(trial, stopped=f"{order.reason} ({order.who})"))

    return _apply(store, settings, order, change)


def freeze_champion(store: Store, settings: Settings, order: Order) -> Changed:
    """Let what the learner decides with be the champion; the one before keeps a share for a while.

    Raises:
        PolicyError: The point is unknown or untrained.
        CheckpointError: The version's file is missing or damaged.
    """

    def change(trial: Trial, serving: Serving) -> _Wanted:
        after = _champion(trial, serving, order, store=store, settings=settings)
        return _Wanted(replace(after, exposure=trial.exposure))

    return _apply(store, settings, order, change)


def promote(store: Store, settings: Settings, order: Order) -> Changed:
    """Let what the learner decides with be the champion, and decide all that it may.

    Raises:
        PolicyError: The point is unknown or untrained, or its learner is stopped.
        CheckpointError: The version's file is missing or damaged.
    """

    def change(trial: Trial, serving: Serving) -> _Wanted:
        if trial.stopped is not None:
            raise PolicyError(
                f"the learner of {trial.point!r} is stopped: {trial.stopped}; "
                f"{_command('exposure', trial.point, '5%')} starts it again, "
                "then promote it"
            )
        after = _champion(trial, serving, order, store=store, settings=settings)
        top = None if trial.exposure is None else top_of(settings)
        return _Wanted(replace(after, exposure=top))

    return _apply(store, settings, order, change)


def reset(store: Store, settings: Settings, order: Order) -> Changed:
    """Let the learner go on from the control, and begin its test anew on the lowest rung.

    The control is the champion, the one before where a champion is on its probation, or the host's
    own choice: then the learner is the untrained policy again.

    Raises:
        PolicyError: The point is unknown, or it runs nothing that could be reset.
        UnknownError: The champion has been forgotten.
        CheckpointError: Its file is missing or damaged.
    """

    def change(trial: Trial, serving: Serving) -> _Wanted:
        if trial.kept:
            step = return_champion(trial, serving._replace(pinned=False), order.reason)
            after, version = step.trial, trial.previous or 0
        else:
            after, version = restart_test(trial), trial.champion or 0
            if serving.version == version:
                return _nothing_to_reject(store, trial, serving)
        if version:
            check_policy(checkpoint_folder(settings), store.policies.version(version))
        rung = RUNGS[0] if after.exposure is None else min(after.exposure, RUNGS[0])
        return _Wanted(replace(after, exposure=rung), Serving(version, pinned=False))

    return _apply(store, settings, order, change)


def _champion(
    trial: Trial, serving: Serving, order: Order, *, store: Store, settings: Settings
) -> Trial:
    """Return a trial of which the version that serves is the champion."""
    if not serving.version:
        verb = order.action.removeprefix("policy_")
        raise PolicyError(
            f"point {trial.point!r} runs the untrained policy: nothing to {verb}; "
            f"`tau-live policy list --point {shlex.quote(trial.point)}` lists the versions"
        )
    if serving.version == trial.champion:
        return trial
    check_policy(checkpoint_folder(settings), store.policies.version(serving.version))
    return make_champion(trial, serving.version, settings, order.reason).trial


def _nothing_to_reject(store: Store, trial: Trial, serving: Serving) -> _Wanted:
    """Return that nothing is to be done where a later version is out of service already."""
    newest = store.policies.versions(trial.point, limit=1)
    if newest and newest[-1].version > serving.version:
        return _Wanted()
    if not serving.version:
        raise _untrained_error(trial.point, "reset")
    raise PolicyError(
        f"version {serving.version} is the champion of {trial.point!r}: "
        f"{_command('rollback', trial.point)} rolls back to the previous one, "
        f"{_command('stop', trial.point)} lets the host decide"
    )


def _untrained_error(point: str, undo: str) -> PolicyError:
    return PolicyError(
        f"point {point!r} runs the untrained policy: nothing to {undo}; "
        f"{_command('stop', point)} lets the host decide, "
        f"{_command('undo', point)} reverts the last command"
    )


def _command(verb: str, point: str, *more: str) -> str:
    """Return a command as it is to be typed."""
    return f"`{shlex.join(['tau-live', 'policy', verb, point, *more])} --reason ...`"


def roll_back(store: Store, settings: Settings, order: Order, *, pin: bool) -> Changed:
    """Go back: to the champion before while it is kept, to the champion, or to the parent.

    The champion itself is left alone where an operator has put an older version into service.

    Raises:
        PolicyError: The point is unknown, or there is nothing to go back to.
        UnknownError: The version to go back to has been forgotten.
        CheckpointError: Its file is missing or damaged.
    """

    def change(trial: Trial, serving: Serving) -> _Wanted:
        version: int | None
        if serving.version < (trial.champion or 0):
            version, after = _before_older(store, trial, serving), trial
        elif trial.kept:
            step = return_champion(trial, serving._replace(pinned=False), order.reason)
            version, after = step.serve, step.trial
        elif trial.champion and trial.champion < serving.version:
            version, after = trial.champion, trial
        elif trial.previous and trial.champion == serving.version:
            version = trial.previous
            after = replace(restart_test(trial), champion=version, previous=None)
        else:
            if not serving.version:
                raise _untrained_error(trial.point, "go back to")
            version, after = store.policies.version(serving.version).parent, trial
        if version:
            check_policy(checkpoint_folder(settings), store.policies.version(version))
        serve = serving.version if version is None else version
        return _Wanted(None if after == trial else after, Serving(serve, pin))

    return _apply(store, settings, order, change)


def _before_older(store: Store, trial: Trial, serving: Serving) -> int | None:
    """Return where to go from a version older than the champion, which an operator chose.

    That is not about the champion, which stays one. Behind the untrained policy there is nothing,
    unless `policy use` put it into service: then the champion is what was before.
    """
    if serving.version:
        return store.policies.version(serving.version).parent
    last = next(_orders(store, trial.point), None)
    if last is None or last.action != "policy_use":
        raise _untrained_error(trial.point, "go back to")
    return trial.champion


def pin(store: Store, settings: Settings, order: Order) -> Changed:
    """Keep what the learner decides with; updates go on learning and leave it in service.

    Raises:
        PolicyError: The point is unknown.
    """

    def change(_trial: Trial, serving: Serving) -> _Wanted:
        return _Wanted(None, serving._replace(pinned=True))

    return _apply(store, settings, order, change)


def unpin(store: Store, settings: Settings, order: Order) -> Changed:
    """Let the newest version decide, which has learned on meanwhile, and every one after it.

    A version that was taken out of service stays out: the newest of the others decides.

    Raises:
        PolicyError: The point is unknown.
        CheckpointError: The newest version's file is missing or damaged.
    """

    def change(trial: Trial, serving: Serving) -> _Wanted:
        if not serving.pinned:
            return _Wanted()
        out = _taken_out(store, trial.point) - {serving.version}
        fit = [row for row in store.policies.versions(trial.point) if row.version not in out]
        if fit:
            check_policy(checkpoint_folder(settings), fit[-1])
        return _Wanted(None, Serving(fit[-1].version if fit else 0, pinned=False))

    return _apply(store, settings, order, change)


def undo(store: Store, settings: Settings, order: Order) -> Changed:
    """Restore what the last order changed at a point, exactly as it was; again, it is redone.

    What updates and evidence did since stays, as far as the order did not change the same.

    Raises:
        PolicyError: The point is unknown, no order is recorded there, or evidence has moved the
            champion since.
        UnknownError: The version that served has been forgotten.
        CheckpointError: Its file is missing or damaged.
    """

    def change(trial: Trial, _serving: Serving) -> _Wanted:
        last = _last_order(store, order.point)
        before, after = mapping(last.details["before"]), mapping(last.details["after"])
        if trial.champion != after["champion"]:
            raise PolicyError(
                f"the champion of {order.point!r} has changed since {last.action}: "
                f"{_command('rollback', order.point)} rolls back from the current state"
            )
        names = [name for name in _UNDONE if before[name] != after[name]]
        if trial.test == after["test"] != before["test"]:
            names += _EVIDENCE
        restored = _with(trial, {name: before[name] for name in names})
        serve = None
        if [before[name] for name in _SERVED] != [after[name] for name in _SERVED]:
            serve = Serving(integer(before["version"]), bool(before["pinned"]))
            if serve.version:
                check_policy(checkpoint_folder(settings), store.policies.version(serve.version))
        return _Wanted(restored, serve)

    return _apply(store, settings, order, change)


def _with(trial: Trial, fields: Mapping[str, object]) -> Trial:
    try:
        return msgspec.convert({**asdict(trial), **fields}, Trial)
    except msgspec.ValidationError as error:
        raise PolicyError(
            f"the audit entry of that command is damaged (see `tau-live verify`): {error}"
        ) from error


def _last_order(store: Store, point: str) -> AuditEntry:
    """Return the newest order at a point that changed anything."""
    last = next(_orders(store, point), None)
    if last is None or "before" not in last.details:  # or one of an older tau-live
        raise PolicyError(
            f"no command is recorded at point {point!r} that could be undone; "
            f"`tau-live policy list --point {shlex.quote(point)}` lists the versions"
        )
    return last


def _orders(store: Store, point: str) -> Iterator[AuditEntry]:
    """Yield the orders at a point that changed anything, newest first."""
    for entry in store.audit.entries():
        # begins the action of every order in the audit
        is_here = entry.details.get("point") == point and entry.action.startswith("policy_")
        if is_here and not entry.details.get("idempotent"):
            yield entry


def _taken_out(store: Store, point: str) -> set[int]:
    """Return the versions of a point that were taken out of service and not put back since."""
    out: set[int] = set()
    versions = store.policies.versions(point)
    for entry in reversed(store.audit.entries()):
        if entry.details.get("point") != point:
            continue
        serves = entry.details.get("version", entry.details.get("serve"))
        if entry.action in TAKEN_OUT and isinstance(serves, int):
            out |= {
                row.version
                for row in versions
                if row.version > serves and row.created_at <= entry.at
            }
        elif entry.action in PUT_BACK and isinstance(serves, int):
            out.discard(serves)
    return out


def state_of(trial: Trial, serving: Serving) -> dict[str, object]:
    """Return the state of a point that an order may change, as recorded for `policy undo`."""
    state = asdict(trial)
    names = (*_UNDONE, *_EVIDENCE)
    return {**serving._asdict(), **{name: state[name] for name in names}}


def _apply(
    store: Store, settings: Settings, order: Order, change: _Change, *, ahead: bool = False
) -> Changed:
    """Change a point and record who and why, in one transaction that locks at once.

    With ``ahead`` the point may be one of a host's that no run has reached yet.
    """
    point = order.point
    with store.begin():
        if not (ahead and point in list(Point)):
            _check_known(store, point, others=list(Point) if ahead else ())
        trial = store.trials.trial(point)
        service = store.policies.in_service().get(point)
        serving = Serving(service.version, service.pinned) if service else Serving(0, pinned=False)
        share_was, before = share_now(trial, settings), state_of(trial, serving)
        wanted = change(trial, serving)
        revision = service.revision if service else 0
        serves = wanted.serve if wanted.serve is not None and wanted.serve != serving else None
        tried = wanted.trial if wanted.trial is not None and wanted.trial != trial else None
        if serves is not None:
            row = store.policies.put_in_service(
                point, serves.version, pinned=serves.pinned, at=order.at
            )
            revision = row.revision
        fault.point("order.served")
        if tried is not None:
            trial = replace(
                tried,
                since=since(store, trial, tried),
                changed_at=order.at,
                revision=trial.revision + 1,
            )
            store.trials.save(trial)
        fault.point("order.saved")
        now = serves or serving
        idempotent = serves is None and tried is None
        details = {
            "point": point,
            "version": now.version,
            "was": serving.version,
            "pinned": now.pinned,
            "exposure": trial.exposure,
            "champion": trial.champion,
            "idempotent": idempotent,
            "share": share_now(trial, settings),
            "share_was": share_was,
            "before": before,
            "after": state_of(trial, now),
        }
        store.audit.add(
            AuditEntry(
                at=order.at,
                who=order.who,
                action=order.action,
                reason=order.reason,
                details=details,
            )
        )
    return Changed(
        point=point,
        action=order.action,
        version=now.version,
        was=serving.version,
        pinned=now.pinned,
        exposure=share_now(trial, settings),
        champion=trial.champion,
        previous=trial.previous,
        stopped=trial.stopped,
        revision=revision + trial.revision,
        idempotent=idempotent,
        reason=order.reason,
        who=order.who,
        at=order.at,
    )


def _check_known(store: Store, point: str, *, others: Sequence[str] = ()) -> None:
    known = {
        *(row.point for row in store.policies.versions()),
        *store.policies.in_service(),
        *store.trials.trials(),
        *store.trials.points(),
        *others,
    }
    if point not in known:
        listed = ", ".join(f"'{name}'" for name in sorted(known)) or "none yet"
        raise PolicyError(f"no policy decides at point {point!r}; known points: {listed}")
