"""What operators do about who decides: exposure, freeze, rollback, pin, unpin, stop.

Each is one transaction with its audit row; running processes hear of it within a second.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from tau_live import fault
from tau_live.errors import TauLiveError
from tau_live.policy_files import check_policy, checkpoint_folder
from tau_live.promoting import since
from tau_live.promotion import Serving, frozen, restarted, returned, share_now
from tau_live.settings import Settings
from tau_live.store.records import AuditEntry, Trial
from tau_live.store.roles import Store


class PolicyError(TauLiveError):
    """A policy cannot be put into service where it was asked for."""


class Order(NamedTuple):
    """What an operator wants, where and why.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
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
    reason: str
    who: str
    at: float


class _Wanted(NamedTuple):
    """How a point should stand; ``None`` leaves the trial or what serves as it is."""

    trial: Trial | None = None
    serve: Serving | None = None


_Change = Callable[[Trial, Serving], _Wanted]


def exposed(store: Store, settings: Settings, order: Order, *, share: float) -> Changed:
    """Let the learner decide a share of the rollouts; one that was stopped starts again.

    What is known of the learner stays, unless it had been stopped: then its test begins anew.

    Raises:
        PolicyError: The point is unknown.
    """

    def change(trial: Trial, _serving: Serving) -> _Wanted:
        again = restarted(trial) if trial.stopped is not None else trial
        return _Wanted(replace(again, stopped=None, exposure=share))

    return _ordered(store, settings, order, change)


def stopped(store: Store, settings: Settings, order: Order) -> Changed:
    """Let the learner decide nothing, until it is exposed again.

    Raises:
        PolicyError: The point is unknown, or the learner is stopped already.
    """

    def change(trial: Trial, _serving: Serving) -> _Wanted:
        if trial.stopped is not None:
            raise PolicyError(
                f"the learner of {trial.point!r} is stopped already: {trial.stopped}; "
                "`tau-live policy exposure` starts it again"
            )
        return _Wanted(replace(trial, stopped=f"{order.reason} ({order.who})"))

    return _ordered(store, settings, order, change)


def champion_frozen(store: Store, settings: Settings, order: Order) -> Changed:
    """Let what the learner decides with be the champion; the one before keeps a share for a while.

    Raises:
        PolicyError: The point is unknown, untrained, or that is the champion already.
        CheckpointError: The version's file is missing or damaged.
    """

    def change(trial: Trial, serving: Serving) -> _Wanted:
        if not serving.version:
            raise PolicyError(f"point {trial.point!r} runs the untrained policy: nothing to freeze")
        if serving.version == trial.champion:
            raise PolicyError(
                f"version {serving.version} is the champion of {trial.point!r} already"
            )
        check_policy(checkpoint_folder(settings), store.policies.version(serving.version))
        after = frozen(trial, serving.version, settings, order.reason).trial
        return _Wanted(replace(after, exposure=trial.exposure))

    return _ordered(store, settings, order, change)


def rolled_back(store: Store, settings: Settings, order: Order, *, pin: bool) -> Changed:
    """Go back: to the champion before while it is kept, to the champion, or to the parent.

    Raises:
        PolicyError: The point is unknown, or there is nothing to go back to.
        UnknownError: The version to go back to has been forgotten.
        CheckpointError: Its file is missing or damaged.
    """

    def change(trial: Trial, serving: Serving) -> _Wanted:
        if trial.kept:
            step = returned(trial, serving._replace(pinned=False), order.reason)
            version, after = step.serve, step.trial
        elif trial.champion and trial.champion < serving.version:
            version, after = trial.champion, trial
        elif trial.previous and trial.champion == serving.version:
            version = trial.previous
            after = replace(restarted(trial), champion=version, previous=None)
        else:
            if not serving.version:
                raise PolicyError(
                    f"point {trial.point!r} runs the untrained policy: nothing to go back to"
                )
            version, after = store.policies.version(serving.version).parent, trial
        if version:
            check_policy(checkpoint_folder(settings), store.policies.version(version))
        serve = serving.version if version is None else version
        return _Wanted(None if after == trial else after, Serving(serve, pin))

    return _ordered(store, settings, order, change)


def pinned(store: Store, settings: Settings, order: Order) -> Changed:
    """Keep what the learner decides with; updates go on learning and leave it in service.

    Raises:
        PolicyError: The point is unknown, or it is pinned already.
    """

    def change(trial: Trial, serving: Serving) -> _Wanted:
        if serving.pinned:
            raise PolicyError(f"version {serving.version} of {trial.point!r} is pinned already")
        return _Wanted(None, serving._replace(pinned=True))

    return _ordered(store, settings, order, change)


def unpinned(store: Store, settings: Settings, order: Order) -> Changed:
    """Let the newest version decide, which has learned on meanwhile, and every one after it.

    Raises:
        PolicyError: The point is unknown, or nothing is pinned.
        CheckpointError: The newest version's file is missing or damaged.
    """

    def change(trial: Trial, serving: Serving) -> _Wanted:
        if not serving.pinned:
            raise PolicyError(f"no version of {trial.point!r} is pinned")
        versions = store.policies.versions(trial.point, limit=1)
        if versions:
            check_policy(checkpoint_folder(settings), versions[-1])
        return _Wanted(None, Serving(versions[-1].version if versions else 0, pinned=False))

    return _ordered(store, settings, order, change)


def _ordered(store: Store, settings: Settings, order: Order, change: _Change) -> Changed:
    """Change a point, and write down who and why, in one transaction that locks at once."""
    point = order.point
    with store.begin():
        _check_known(store, point)
        trial = store.trials.trial(point)
        found = store.policies.in_service().get(point)
        serving = Serving(found.version, found.pinned) if found else Serving(0, pinned=False)
        wanted = change(trial, serving)
        revision = found.revision if found else 0
        if wanted.serve is not None and wanted.serve != serving:
            row = store.policies.put_in_service(
                point, wanted.serve.version, pinned=wanted.serve.pinned, at=order.at
            )
            revision = row.revision
        fault.point("order.served")
        if wanted.trial is not None:
            trial = replace(
                wanted.trial,
                since=since(store, trial, wanted.trial),
                changed_at=order.at,
                revision=trial.revision + 1,
            )
            store.trials.save(trial)
        fault.point("order.saved")
        now = wanted.serve or serving
        store.audit.add(_entry(order, trial, now, was=serving))
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
        reason=order.reason,
        who=order.who,
        at=order.at,
    )


def _entry(order: Order, trial: Trial, now: Serving, *, was: Serving) -> AuditEntry:
    details = {
        "point": order.point,
        "version": now.version,
        "was": was.version,
        "pinned": now.pinned,
        "exposure": trial.exposure,
        "champion": trial.champion,
    }
    return AuditEntry(
        at=order.at, who=order.who, action=order.action, reason=order.reason, details=details
    )


def _check_known(store: Store, point: str) -> None:
    known = {
        *(row.point for row in store.policies.versions()),
        *store.policies.in_service(),
        *store.trials.trials(),
        *store.trials.points(),
    }
    if point not in known:
        listed = ", ".join(repr(name) for name in sorted(known)) or "none yet"
        raise PolicyError(f"no policy decides at point {point!r}; known points: {listed}")
