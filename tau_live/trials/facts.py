"""The facts shown of a trial: who decides how much, and the learner's difference."""

from collections.abc import Mapping
from dataclasses import replace

from tau_live.rewards.settling import reward_range
from tau_live.rl.verdict import Verdict
from tau_live.rollouts import ROLLOUT_ENDS
from tau_live.settings import Settings
from tau_live.store.records import Trial
from tau_live.store.roles import Store
from tau_live.trials.outcomes import NEWEST, may_give_up, patience
from tau_live.trials.rules import outside_of, plain_lift, share_now

COUNTED = 10_000
"""So far is counted what waits to be counted: a look must not take long."""

NO_RANGE = "no claim without a reward range: declare it, or set TAU_LIVE_RL_REWARD_RANGE"
OUT_OF_RANGE = "no claim while rewards are outside their range"
NO_CONTROL = "nothing to compare with: the learner decides every rollout"
NOTHING_DECIDED = "nothing to compare with: the learner decides no rollout"


def trial_at(
    store: Store, point: str, settings: Settings, *, now: float
) -> dict[str, object] | None:
    """Return what is told of the trial of a point; ``None`` before its first rollout."""
    trial = store.trials.trial(point)
    return trial_facts(store, trial, settings, now=now) if trial.revision else None


def trial_facts(store: Store, trial: Trial, settings: Settings, *, now: float) -> dict[str, object]:
    """Return what is told of a trial, as JSON data."""
    tally, trial = trial.tally, _as_assigned(store, trial)
    uncounted = store.trials.uncounted(trial.point, after=trial.watermark, limit=COUNTED)
    return {
        "exposure": share_now(trial, settings),
        "ladder": trial.ladder,
        "champion": trial.champion,
        "control": trial.control,
        "previous": trial.previous,
        "kept": trial.kept,
        "stopped": trial.stopped,
        "since": trial.changed_at or None,
        "test": trial.test,
        "verdict": trial.finding.get("verdict"),
        "why": _why(trial, settings),
        "difference": _difference(trial, settings),
        "cost": _interval(trial.finding.get("cost")),
        "rollouts": {arm: int(tally.get(arm, 0.0)) for arm in ("learner", "control")},
        "uncounted": uncounted,
        "held_up": _held_up(store, trial, settings, now=now) if uncounted else None,
        "missing": {arm: _missing(tally, arm) for arm in ("learner", "control")},
        "agreement": tally["agreed"] / tally["asked"] if tally.get("asked") else None,
    }


def _held_up(
    store: Store, trial: Trial, settings: Settings, *, now: float
) -> dict[str, object] | None:
    """Return the rollout whose reward the comparison waits for, and until when at most."""
    page = store.trials.assigned(trial.point, after=trial.watermark, limit=1)
    if not page:
        return None
    rollout, until = page[0].rollout, page[0].until
    if until is not None and rollout.started_at is not None and may_give_up(settings):
        delays = store.trials.delays(trial.point, limit=NEWEST)
        wait_s = patience(delays, now=now, most_s=settings.reward_deadline_s)
        until = until if wait_s is None else min(until, rollout.started_at + wait_s)
    return {
        "rollout_id": rollout.rollout_id,
        "open": rollout.status not in ROLLOUT_ENDS,
        "until": until,
    }


def _as_assigned(store: Store, trial: Trial) -> Trial:
    """Return a trial with the share that the newest rollout was assigned by, if none was set.

    Then it is a setting of the process that decides, and whoever asks may have another.
    """
    if trial.exposure is not None:
        return trial
    place = store.trials.newest_place(trial.point)
    newest = store.trials.assigned(trial.point, after=place - 1, limit=1)
    return replace(trial, exposure=newest[-1].share) if newest else trial


def _why(trial: Trial, settings: Settings) -> str | None:
    """Return why nothing can be said about the difference; ``None`` where something can."""
    if trial.stopped is not None:
        return f"stopped: {trial.stopped}"
    if not trial.finding and reward_range(settings) is None:
        return NO_RANGE
    if _is_out_of_range(trial):
        seen = int(trial.tally.get("seen", 0.0))
        return f"{OUT_OF_RANGE}: {outside_of(trial):,} of {seen:,} rollouts"
    share = share_now(trial, settings)
    return NO_CONTROL if share >= 1.0 else NOTHING_DECIDED if share <= 0.0 else None


def _difference(trial: Trial, settings: Settings) -> dict[str, object]:
    """Return the difference with its bounds, or the plain difference of means without any.

    While the learner decides every rollout and nothing was proven before, the few that a control
    once decided say nothing: no difference is claimed.
    """
    found = _interval(trial.finding.get("difference"))
    if found is None or _is_out_of_range(trial):
        return {"estimate": plain_lift(trial.tally), "lower": None, "upper": None, "plain": True}
    if not _compares(trial):  # then its middle is a guess, and its bounds are all that is possible
        return {**found, "estimate": None, "plain": False}
    if _why(trial, settings) == NO_CONTROL and trial.finding.get("verdict") == "wait":
        return {"estimate": None, "lower": None, "upper": None, "plain": False}
    return {**found, "plain": False}


def _is_out_of_range(trial: Trial) -> bool:
    return trial.finding.get("verdict") == Verdict.OUT_OF_RANGE


def _compares(trial: Trial) -> bool:
    """Say whether a reward of either arm is known."""
    return 0.0 not in (trial.evidence.get(f"reward_{arm}_count") for arm in ("learner", "control"))


def _interval(found: object) -> dict[str, object] | None:
    return dict(found) if isinstance(found, Mapping) else None


def _missing(tally: Mapping[str, float], arm: str) -> float | None:
    total = tally.get(arm, 0.0)
    return 1.0 - tally.get(f"{arm}_known", 0.0) / total if total else None
