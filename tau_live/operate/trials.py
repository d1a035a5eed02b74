"""The orders of operators about who decides: exposure, promote, reset, rollback, pin, undo, stop.

Each is one transaction with its audit row; an order without effect is recorded as well. Running
processes see it within a second.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from tau_live.core import fault
from tau_live.core.errors import PolicyError
from tau_live.core.records import AuditEntry, Trial
from tau_live.core.sanitize import JsonObject, integer, mapping
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import Point
from tau_live.decisions.policies import check_policy
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

DEMOTIONS = frozenset({"policy_rollback", "policy_reset", Move.RETURNED.value})
RESTORATIONS = frozenset({"policy_use", "policy_undo"})

_SERVING_FIELDS = ("version", "pinned")
_TRIAL_FIELDS = ("exposure", "champion", "previous", "kept", "stopped")
_EVIDENCE_FIELDS = ("test", "evidence", "tally", "finding")


class Order(NamedTuple):
    """An order of an operator: the action, the point and the reason.

    Attributes:
        action: The name in the audit.
        point: The decision point.
        reason: Why, in words.
        who: Who ordered it.
        at: Epoch seconds, UTC.
    """

    action: str
    point: str
    reason: str
    who: str
    at: float

    def entry(self, details: JsonObject) -> AuditEntry:
        """Return the line of the audit that records it."""
        return AuditEntry(
            at=self.at, who=self.who, action=self.action, reason=self.reason, details=details
        )


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a decision point after an order.

    Attributes:
        point: The decision point.
        action: The name of the order in the audit.
        version: The learner's version in service; 0 is the untrained policy.
        was: The version before.
        pinned: Whether updates leave the version in service.
        exposure: The share of rollouts that the learner decides.
        champion: The version last proven better; ``None`` is the host's own choice.
        previous: The champion before.
        stopped: Why the learner decides nothing; ``None`` while it may.
        revision: Grows with every change of the point.
        idempotent: Whether the order had no effect.
        reason: Why, in words.
        who: Who ordered it.
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


class _NewState(NamedTuple):
    """The state that an order asks for; ``None`` leaves the trial or the version as it is."""

    trial: Trial | None = None
    serve: Serving | None = None


_Change = Callable[[Trial, Serving], _NewState]


def expose(store: Store, settings: Settings, order: Order, *, share: float) -> Changed:
    """Let the learner decide a share of the rollouts; a stopped one starts again.

    The evidence about the learner stays, unless it had been stopped: then its test begins anew.
    A decision point of hosts can be exposed before its first run.

    Raises:
        PolicyError: The point is unknown, and no decision point of hosts.
    """

    def change(trial: Trial, _serving: Serving) -> _NewState:
        after = restart_test(trial) if trial.stopped is not None else trial
        return _NewState(replace(after, stopped=None, exposure=share))

    return _apply(store, settings, order, change, ahead=True)


def stop(store: Store, settings: Settings, order: Order) -> Changed:
    """Let the learner decide nothing until it is exposed again; a stopped one keeps its reason.

    Raises:
        PolicyError: The point is unknown.
    """

    def change(trial: Trial, _serving: Serving) -> _NewState:
        if trial.stopped is not None:
            return _NewState()
        return _NewState(replace(trial, stopped=f"{order.reason} ({order.who})"))

    return _apply(store, settings, order, change)


def freeze_champion(store: Store, settings: Settings, order: Order) -> Changed:
    """Make the learner's version the champion; the previous one keeps a share for a probation.

    Raises:
        PolicyError: The point is unknown or untrained.
        CheckpointError: The version's file is missing or damaged.
    """

    def change(trial: Trial, serving: Serving) -> _NewState:
        after = _champion(trial, serving, order, store=store, settings=settings)
        return _NewState(replace(after, exposure=trial.exposure))

    return _apply(store, settings, order, change)


def promote(store: Store, settings: Settings, order: Order) -> Changed:
    """Make the learner's version the champion, and raise the learner to its largest share.

    Raises:
        PolicyError: The point is unknown or untrained, or its learner is stopped.
        CheckpointError: The version's file is missing or damaged.
    """

    def change(trial: Trial, serving: Serving) -> _NewState:
        if trial.stopped is not None:
            raise PolicyError(
                f"the learner of {trial.point!r} is stopped: {trial.stopped}; "
                f"{_command('exposure', trial.point, '5%')} starts it again, "
                "then promote it"
            )
        after = _champion(trial, serving, order, store=store, settings=settings)
        top = None if trial.exposure is None else top_of(settings)
        return _NewState(replace(after, exposure=top))

    return _apply(store, settings, order, change)


def reset(store: Store, settings: Settings, order: Order) -> Changed:
    """Reset the learner to the control, and begin its test anew on the lowest rung.

    The control is the champion, the previous one during a probation, or the host's own choice: then
    the learner is the untrained policy again.

    Raises:
        PolicyError: The point is unknown, or it runs no version that could be reset.
        UnknownError: The champion was deleted from the store.
        CheckpointError: Its file is missing or damaged.
    """

    def change(trial: Trial, serving: Serving) -> _NewState:
        if trial.kept:
            step = return_champion(trial, serving._replace(pinned=False), order.reason)
            after, version = step.trial, trial.previous or 0
        else:
            after, version = restart_test(trial), trial.champion or 0
            if serving.version == version:
                return _nothing_to_reject(store, trial, serving)
        if version:
            check_policy(store.checkpoints, store.policies.version(version))
        rung = RUNGS[0] if after.exposure is None else min(after.exposure, RUNGS[0])
        return _NewState(replace(after, exposure=rung), Serving(version, pinned=False))

    return _apply(store, settings, order, change)


def _champion(
    trial: Trial, serving: Serving, order: Order, *, store: Store, settings: Settings
) -> Trial:
    """Return the trial with the version in service as its champion."""
    if not serving.version:
        verb = order.action.removeprefix("policy_")
        raise PolicyError(
            f"point {trial.point!r} runs the untrained policy: nothing to {verb}; "
            f"`tau-live policy list --point {shlex.quote(trial.point)}` lists the versions"
        )
    if serving.version == trial.champion:
        return trial
    check_policy(store.checkpoints, store.policies.version(serving.version))
    return make_champion(trial, serving.version, settings, order.reason).trial


def _nothing_to_reject(store: Store, trial: Trial, serving: Serving) -> _NewState:
    """Return no change where a later version is out of service already; else raise why."""
    newest = store.policies.versions(trial.point, limit=1)
    if newest and newest[-1].version > serving.version:
        return _NewState()
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
    """Return a command as an operator types it."""
    return f"`{shlex.join(['tau-live', 'policy', verb, point, *more])} --reason ...`"


def roll_back(store: Store, settings: Settings, order: Order, *, pin: bool) -> Changed:
    """Roll back: to the previous champion during a probation, to the champion, or to the parent.

    The champion itself stays where an operator has put an older version into service.

    Raises:
        PolicyError: The point is unknown, or there is nothing to go back to.
        UnknownError: The version to go back to was deleted from the store.
        CheckpointError: Its file is missing or damaged.
    """

    def change(trial: Trial, serving: Serving) -> _NewState:
        version: int | None
        if serving.version < (trial.champion or 0):
            version, after = _version_before(store, trial, serving), trial
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
            version, after = store.policies.before(trial.point, serving.version), trial
        if version:
            check_policy(store.checkpoints, store.policies.version(version))
        serve = serving.version if version is None else version
        return _NewState(None if after == trial else after, Serving(serve, pin))

    return _apply(store, settings, order, change)


def _version_before(store: Store, trial: Trial, serving: Serving) -> int | None:
    """Return the version before one that an operator chose and that is older than the champion.

    The champion stays. Before the untrained policy there is none, unless `policy use` put it into
    service: then the champion served before.
    """
    if serving.version:
        return store.policies.before(trial.point, serving.version)
    last = next(_orders(store, trial.point), None)
    if last is None or last.action != "policy_use":
        raise _untrained_error(trial.point, "go back to")
    return trial.champion


def pin(store: Store, settings: Settings, order: Order) -> Changed:
    """Pin the learner's version: updates continue, and leave it in service.

    Raises:
        PolicyError: The point is unknown.
    """

    def change(_trial: Trial, serving: Serving) -> _NewState:
        return _NewState(None, serving._replace(pinned=True))

    return _apply(store, settings, order, change)


def unpin(store: Store, settings: Settings, order: Order) -> Changed:
    """Put the newest version into service, and every later one.

    Versions that were demoted stay out of service: the newest of the others decides.

    Raises:
        PolicyError: The point is unknown.
        CheckpointError: The newest version's file is missing or damaged.
    """

    def change(trial: Trial, serving: Serving) -> _NewState:
        if not serving.pinned:
            return _NewState()
        demoted = _demoted_versions(store, trial.point) - {serving.version}
        rows = [row for row in store.policies.versions(trial.point) if row.version not in demoted]
        if rows:
            check_policy(store.checkpoints, rows[-1])
        return _NewState(None, Serving(rows[-1].version if rows else 0, pinned=False))

    return _apply(store, settings, order, change)


def undo(store: Store, settings: Settings, order: Order) -> Changed:
    """Revert the last order at a point exactly; a second undo redoes it.

    Later changes by updates and evidence stay, as far as the order did not change the same.

    Raises:
        PolicyError: The point is unknown, no order is recorded there, or evidence has changed the
            champion since.
        UnknownError: The version that served was deleted from the store.
        CheckpointError: Its file is missing or damaged.
    """

    def change(trial: Trial, _serving: Serving) -> _NewState:
        last = _last_order(store, order.point)
        before, after = mapping(last.details["before"]), mapping(last.details["after"])
        if trial.champion != after["champion"]:
            raise PolicyError(
                f"the champion of {order.point!r} has changed since {last.action}: "
                f"{_command('rollback', order.point)} rolls back from the current state"
            )
        names = [name for name in _TRIAL_FIELDS if before[name] != after[name]]
        if trial.test == after["test"] != before["test"]:
            names += _EVIDENCE_FIELDS
        restored = _with_fields(trial, {name: before[name] for name in names})
        serve = None
        if [before[name] for name in _SERVING_FIELDS] != [after[name] for name in _SERVING_FIELDS]:
            serve = Serving(integer(before["version"]), bool(before["pinned"]))
            if serve.version:
                check_policy(store.checkpoints, store.policies.version(serve.version))
        return _NewState(restored, serve)

    return _apply(store, settings, order, change)


def _with_fields(trial: Trial, fields: JsonObject) -> Trial:
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
        is_order = entry.details.get("point") == point and entry.action.startswith("policy_")
        if is_order and not entry.details.get("idempotent"):
            yield entry


def _demoted_versions(store: Store, point: str) -> set[int]:
    """Return the versions of a point that were demoted and not restored since."""
    demoted: set[int] = set()
    versions = store.policies.versions(point)
    for entry in reversed(store.audit.entries()):
        if entry.details.get("point") != point:
            continue
        version = entry.details.get("version", entry.details.get("serve"))
        if entry.action in DEMOTIONS and isinstance(version, int):
            demoted |= {
                row.version
                for row in versions
                if row.version > version and row.created_at <= entry.at
            }
        elif entry.action in RESTORATIONS and isinstance(version, int):
            demoted.discard(version)
    return demoted


def state_of(trial: Trial, serving: Serving) -> JsonObject:
    """Return the state of a point that an order may change, as recorded for `policy undo`."""
    state = asdict(trial)
    names = (*_TRIAL_FIELDS, *_EVIDENCE_FIELDS)
    return {**serving._asdict(), **{name: state[name] for name in names}}


def _apply(
    store: Store, settings: Settings, order: Order, change: _Change, *, ahead: bool = False
) -> Changed:
    """Change a point and record who and why, in one transaction that locks at once.

    With ``ahead`` the point may be a host's that no run has reached yet.
    """
    point = order.point
    with store.begin():
        if not (ahead and point in list(Point)):
            _check_known(store, point, others=list(Point) if ahead else ())
        trial = store.trials.trial(point)
        service = store.policies.in_service().get(point)
        serving = Serving(service.version, service.pinned) if service else Serving(0, pinned=False)
        share_before, before = share_now(trial, settings), state_of(trial, serving)
        new_state = change(trial, serving)
        revision = service.revision if service else 0
        new_serving = (
            new_state.serve if new_state.serve is not None and new_state.serve != serving else None
        )
        new_trial = (
            new_state.trial if new_state.trial is not None and new_state.trial != trial else None
        )
        if new_serving is not None:
            row = store.policies.put_in_service(
                point, new_serving.version, pinned=new_serving.pinned, at=order.at
            )
            revision = row.revision
        fault.point("order.served")
        if new_trial is not None:
            trial = replace(
                new_trial,
                since=since(store, trial, new_trial),
                changed_at=order.at,
                revision=trial.revision + 1,
            )
            store.trials.save(trial)
        fault.point("order.saved")
        now = new_serving or serving
        idempotent = new_serving is None and new_trial is None
        details = {
            "point": point,
            "version": now.version,
            "was": serving.version,
            "pinned": now.pinned,
            "exposure": trial.exposure,
            "champion": trial.champion,
            "idempotent": idempotent,
            "share": share_now(trial, settings),
            "share_was": share_before,
            "before": before,
            "after": state_of(trial, now),
        }
        store.audit.add(order.entry(details))
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
