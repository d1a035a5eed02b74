"""Brings the evidence of every trial up to date, and does what follows from it.

A trial, its watermark and who decides from then on are stored together or not at all, if nobody
else has changed the trial meanwhile: over any crash each rollout is counted once.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tau_live import fault
from tau_live.deciding.arms import LEARNER
from tau_live.guard import logger
from tau_live.learning.lease import give_back, taken
from tau_live.policies.files import checkpoint_folder
from tau_live.rewards.cost import cost_of
from tau_live.rewards.settling import reward_range
from tau_live.rl.verdict import Verdict
from tau_live.settings import Settings
from tau_live.store.records import Assigned, AuditEntry, Trial
from tau_live.store.roles import Store
from tau_live.trials.outcomes import (
    MOST,
    NEWEST,
    Result,
    may_give_up,
    patience,
    result_of,
    settled,
)
from tau_live.trials.rules import (
    EVERY,
    LATELY,
    Move,
    Serving,
    Step,
    begun,
    counted,
    finding_of,
    has_fallen,
    released,
    restarted,
    stepped,
    taken_out,
    tallied,
    told,
)

PAGE = 256
"""How many rollouts are counted in one transaction."""


class _Found(NamedTuple):
    """What one look at a point came to."""

    before: Trial
    trial: Trial
    step: Step | None
    is_all: bool


class _Wait(NamedTuple):
    """How long rewards are waited for, and from when until when that need not be looked up."""

    at: float
    until: float
    patience_s: float | None


class Promoter:
    """Counts what became of assigned rollouts, and climbs, freezes and takes back on evidence.

    Args:
        store: A connection of its own.
        settings: Ranges, deadlines, what has to be shown.
        holder: Names this process in the lease and in the audit.
        clock: Wall clock, epoch seconds; for the lease only.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        holder: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._settings = settings
        self._holder = holder
        self._clock = clock
        self._waits: dict[str, _Wait] = {}

    def advance(self, *, now: float) -> list[Step]:
        """Count every rollout that is settled by now; return what followed from it.

        Nothing happens while another process holds the lease.

        Raises:
            StoreUnavailableError: The store failed; nothing of the last look was kept.
        """
        points = [point for point in self._store.trials.points() if self._has_news(point, now=now)]
        if not points or not self._has_lease():
            return []
        try:
            return [step for point in points for step in self._advance(point, now=now)]
        finally:
            give_back(self._store, self._holder)

    def _has_lease(self) -> bool:
        return taken(self._store, self._holder, ttl_s=self._settings.lease_ttl_s, now=self._clock())

    def _has_news(self, point: str, *, now: float) -> bool:
        trial = self._store.trials.trial(point)
        if self._store.trials.newest_reward() > trial.watched:
            return True
        page = self._store.trials.assigned(point, after=trial.watermark, limit=1)
        return bool(self._settled(point, page, now=now))

    def _settled(self, point: str, page: list[Assigned], *, now: float) -> list[Assigned]:
        """Return the first assignments of a page whose outcome is known, or waited for no more."""
        found = settled(page, self._settings, now=now)
        if len(found) == len(page) or not may_give_up(self._settings):
            return found
        patience_s = self._patience(point, now=now)
        if patience_s is None:
            return found
        return settled(page, self._settings, now=now, patience_s=patience_s)

    def _patience(self, point: str, *, now: float) -> float | None:
        """Return how long rewards are waited for; looked up anew when that may have changed."""
        known = self._waits.get(point)
        if known is not None and known.at <= now < known.until:
            return known.patience_s
        limit, most_s = NEWEST, self._settings.reward_deadline_s
        while True:
            delays = self._store.trials.delays(point, limit=limit)
            patience_s = patience(delays, now=now, most_s=most_s)
            if patience_s is not None or len(delays) < limit or limit >= MOST:
                break
            limit *= 4  # slow rewards show only in rollouts that were followed for long
        reached_s = now - delays[-1][0] if delays else 0.0
        again_s = (reached_s if patience_s is None else patience_s) / 8.0
        self._waits[point] = _Wait(now, now + max(1.0, again_s), patience_s)
        return patience_s

    def _advance(self, point: str, *, now: float) -> list[Step]:
        steps: list[Step] = []
        while True:
            before = self._store.trials.trial(point)
            found = self._looked(before, now=now)
            if found.trial != before:
                if not self._kept(found, now=now):
                    continue  # an operator was quicker
                if found.step is not None:
                    steps.append(found.step)
            if found.is_all or not self._has_lease():
                return steps

    def _looked(self, before: Trial, *, now: float) -> _Found:
        trial, violation = self._watched(before)
        if violation:
            step = taken_out(trial, f"critical violation in rollout {violation}")
            return _Found(before, step.trial, step, is_all=False)
        page = self._store.trials.assigned(trial.point, after=trial.watermark, limit=PAGE)
        ready = self._settled(trial.point, page, now=now)
        if ready:
            trial = begun(trial, ready, self._settings)
        others = [one for one in ready if one.place <= trial.since]
        if others:  # another control decided them
            trial = replace(trial, watermark=others[-1].place)
        after, found = self._counted(trial, ready[len(others) :])
        return _Found(before, after, found, is_all=found is None and len(ready) < PAGE)

    def _watched(self, trial: Trial) -> tuple[Trial, str | None]:
        """Look at rewards that are new; return the rollout of the learner's first violation."""
        newest = self._store.trials.newest_reward()
        declared = self._settings.rewards
        while trial.watched < newest and trial.stopped is None:
            page = self._store.trials.rewarded(trial.point, after=trial.watched, limit=PAGE)
            for seq, rollout_id in page:
                rewards = self._store.rewards.rewards(rollout_id)
                new = [one for one in rewards if one.seq > trial.watched]
                if cost_of(new, declared, hard_gate=self._settings.safety.hard_gate_cost).critical:
                    return replace(trial, watched=max(seq, newest)), rollout_id
            trial = replace(trial, watched=page[-1][0] if len(page) == PAGE else newest)
        return replace(trial, watched=max(trial.watched, newest)), None

    def _counted(self, trial: Trial, ready: Sequence[Assigned]) -> tuple[Trial, Step | None]:
        """Count rollouts one look after the other, up to one from which something follows."""
        rewards = reward_range(self._settings)
        done = 0
        while done < len(ready):
            seen = int(trial.tally.get("seen", 0.0)) % EVERY
            size = min(EVERY - seen, trial.kept or EVERY)
            results = [self._result(one) for one in ready[done : done + size]]
            done += len(results)
            before = trial
            if rewards is None:
                trial = replace(tallied(trial, results), evidence={}, finding={})
            else:
                trial = counted(trial, results, rewards=rewards)
            step = released(before, trial) or self._step(trial)
            if step is not None:
                return step.trial, step
        if done and trial.evidence:
            trial = replace(trial, finding=told(finding_of(trial, self._settings)))
        return trial, None

    def _step(self, trial: Trial) -> Step | None:
        if int(trial.tally.get("seen", 0.0)) % EVERY:
            return None
        finding = finding_of(trial, self._settings)
        if finding is None:
            return None
        serving = self._serving(trial.point)
        if finding.verdict is Verdict.PROMOTE:
            if self._has_fallen(trial):
                newest = self._store.trials.newest_place(trial.point)
                reason = "it now earns less than when it was proven better"
                return Step(Move.RESTARTED, reason, replace(restarted(trial), since=newest))
            serving = serving._replace(version=self._earner(trial, serving))
        return stepped(trial, finding, serving, self._settings)

    def _has_fallen(self, trial: Trial) -> bool:
        """Say whether the learner's newest rewards, counted or not, are below those of its test."""
        rewards = reward_range(self._settings)
        known = trial.evidence.get("reward_learner_count", 0.0)
        if rewards is None or not known:
            return False
        share = trial.evidence["reward_learner_total"] / known
        newest = [
            one.rollout.total_reward
            for one in self._store.rewards.ready_rollouts(
                trial.point, after=0, limit=4 * LATELY, newest=True
            )
            if one.rollout.total_reward is not None
            and any(of.point == trial.point and of.arm == LEARNER for of in one.decisions)
        ]
        mean = rewards[0] + share * (rewards[1] - rewards[0])
        return has_fallen(newest[-LATELY:], mean, rewards=rewards)

    def _earner(self, trial: Trial, serving: Serving) -> int:
        """Return the version that decided the last rollout which counts, or the next that is kept.

        What serves by now has learned from rollouts that nobody has compared yet.
        """
        earner = int(trial.tally.get("version", 0.0))
        folder = checkpoint_folder(self._settings)
        kept = (
            row.version
            for row in self._store.policies.versions(trial.point)
            if earner <= row.version <= serving.version and (folder / row.file).exists()
        )
        return min(kept, default=serving.version)

    def _result(self, one: Assigned) -> Result:
        rewards = self._store.rewards.rewards(one.rollout.rollout_id)
        return result_of(one, rewards, self._settings)

    def _serving(self, point: str) -> Serving:
        found = self._store.policies.in_service().get(point)
        return Serving(0, pinned=False) if found is None else Serving(found.version, found.pinned)

    def _kept(self, found: _Found, *, now: float) -> bool:
        """Store a trial with what followed from it; ``False`` if somebody else changed it."""
        fault.point("promotion.seen")
        step = found.step
        trial = replace(found.trial, revision=found.trial.revision + 1)
        with self._store.begin():
            if step is None:
                return self._store.trials.save(trial)
            trial = replace(trial, changed_at=now, since=since(self._store, found.before, trial))
            if not self._store.trials.save(trial):
                return False
            fault.point("promotion.saved")
            if step.serve is not None:
                self._store.policies.put_in_service(trial.point, step.serve, pinned=False, at=now)
            self._store.audit.add(
                AuditEntry(
                    at=now,
                    who=self._holder,
                    action=step.move.value,
                    reason=step.reason,
                    details={
                        "point": trial.point,
                        "champion": trial.champion,
                        "exposure": trial.exposure,
                        "serve": step.serve,
                        "watermark": trial.watermark,
                    },
                )
            )
        fault.point("promotion.kept")
        logger().warning(
            "trial_stepped", point=trial.point, move=step.move.value, reason=step.reason
        )
        return True


def since(store: Store, before: Trial, after: Trial) -> int:
    """Return from which place on a trial counts: behind what another control has decided."""
    if before.control == after.control:
        return after.since
    return store.trials.newest_place(after.point)


def voided(store: Store, point: str, *, reason: str, who: str, at: float) -> None:
    """Begin the test of a point anew: what was seen of it does not hold any more.

    For whoever finds that the world has changed, such as a monitor of drift. Rollouts that were
    decided before prove nothing, whenever their rewards come. A champion was proven better in a
    world that is gone, and may love the very option that broke: until another is proven, the
    control is the host's own choice. A probation goes on, against that.
    """
    while True:
        with store.begin():
            trial = store.trials.trial(point)
            after = replace(
                restarted(trial),
                champion=None,
                previous=None,
                since=store.trials.newest_place(point),
                revision=trial.revision + 1,
            )
            if store.trials.save(after):
                details = {"point": point, "test": after.test, "champion": trial.champion}
                store.audit.add(
                    AuditEntry(
                        at=at,
                        who=who,
                        action=Move.RESTARTED.value,
                        reason=reason,
                        details=details,
                    )
                )
                return
