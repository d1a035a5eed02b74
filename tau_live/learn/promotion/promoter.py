"""Updates the evidence of every trial, and takes the steps that follow from it.

A trial, its watermark and who decides from then on are stored together or not at all, and only if
nobody else has changed the trial meanwhile: over any crash each rollout is counted once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from tau_live.core import fault
from tau_live.core.guard import logger
from tau_live.core.prompts import prompt_of_trial
from tau_live.core.records import Assigned, AuditEntry, Trial
from tau_live.core.reward_rules import cost_of
from tau_live.core.settings import Settings
from tau_live.decisions.decider import LEARNER
from tau_live.learn.learner import LEASE, release_lease
from tau_live.learn.promotion.outcomes import (
    MOST,
    NEWEST,
    may_give_up,
    patience,
    result_of,
    settled_prefix,
)
from tau_live.learn.promotion.prompts import Settlement
from tau_live.learn.promotion.rules import (
    EVERY,
    RECENT,
    Move,
    Serving,
    Step,
    count_results,
    end_probation,
    finding_fields,
    finding_of,
    has_fallen,
    next_step,
    prompt_step,
    restart_test,
    start_trial,
    stop_learner,
    stored_evidence,
    tally_results,
    withdraw_prompt,
)
from tau_live.record.rewards import reward_range
from tau_live.rl.verdict import Verdict
from tau_live.store.roles import Store

SETTLEMENT = "settlement"
"""The name of the lease of whoever settles the states of prompts."""

PAGE = 256
"""How many rollouts are counted in one transaction."""


class Promoter:
    """Counts results of assigned rollouts, and climbs, promotes and rolls back on evidence.

    Args:
        store: A store that no other thread uses.
        settings: Ranges, deadlines, margins.
        holder: Names this process in the lease and in the audit.
    """

    def __init__(self, store: Store, settings: Settings, *, holder: str) -> None:
        self._store = store
        self._settings = settings
        self._holder = holder
        self._settlement = Settlement(store, settings, who=holder)
        self._waits: dict[str, tuple[float, float, float | None]] = {}

    def advance(self, *, now: float) -> list[Step]:
        """Count every rollout that is settled by now; return the steps that followed.

        Nothing happens at a point while another process holds its lease.

        Args:
            now: Epoch seconds.

        Raises:
            StoreUnavailableError: The store failed; nothing of the last page was kept.
        """
        points = [point for point in self._store.trials.points() if self._has_news(point, now=now)]
        steps = []
        for point in points:
            with self._lease(LEASE + point) as has_lease:
                steps += self._advance(point, now=now) if has_lease else []
        if self._settlement.is_due():
            with self._lease(SETTLEMENT) as has_lease:
                if has_lease:
                    self._settlement.settle(now=now)
        return steps

    @contextmanager
    def _lease(self, name: str) -> Iterator[bool]:
        """Hold a lease meanwhile, unless another process does."""
        has_lease = self._has_lease(name)
        try:
            yield has_lease
        finally:
            if has_lease:
                release_lease(self._store, name, self._holder)

    def _has_lease(self, name: str) -> bool:
        ttl_s = self._settings.lease_ttl_s
        return self._store.leases.acquire(name, self._holder, ttl_s=ttl_s) > 0

    def _has_news(self, point: str, *, now: float) -> bool:
        trial = self._store.trials.trial(point)
        if self._store.trials.newest_reward() > trial.watched:
            return True
        page = self._store.trials.assignments(point, after=trial.watermark, limit=1)
        return bool(self._settled_prefix(point, page, now=now))

    def _settled_prefix(self, point: str, page: list[Assigned], *, now: float) -> list[Assigned]:
        """Return the first assignments of a page whose outcome is known or given up."""
        ready = settled_prefix(page, self._settings, now=now)
        if len(ready) == len(page) or not may_give_up(self._settings):
            return ready
        patience_s = self._patience(point, now=now)
        if patience_s is None:
            return ready
        return settled_prefix(page, self._settings, now=now, patience_s=patience_s)

    def _patience(self, point: str, *, now: float) -> float | None:
        """Return how long to wait for rewards, in seconds; recomputed when it may have changed."""
        since, until, known = self._waits.get(point, (now, now, None))
        if since <= now < until:
            return known
        limit, most_s = NEWEST, self._settings.reward_deadline_s
        while True:
            delays = self._store.trials.delays(point, limit=limit)
            patience_s = patience(delays, now=now, most_s=most_s)
            if patience_s is not None or len(delays) < limit or limit >= MOST:
                break
            limit *= 4  # slow rewards show only in rollouts that were followed for long
        reached_s = now - delays[-1][0] if delays else 0.0
        again_s = (reached_s if patience_s is None else patience_s) / 8.0
        self._waits[point] = (now, now + max(1.0, again_s), patience_s)
        return patience_s

    def _advance(self, point: str, *, now: float) -> list[Step]:
        steps: list[Step] = []
        while True:
            before = self._store.trials.trial(point)
            trial, step, is_last = self._next_page(before, now=now)
            if trial != before:
                if not self._save(before, trial, step, now=now):
                    continue  # an operator changed it meanwhile
                if step is not None:
                    steps.append(step)
            if is_last or not self._has_lease(LEASE + point):
                return steps

    def _next_page(self, before: Trial, *, now: float) -> tuple[Trial, Step | None, bool]:
        """Return the trial after one page, the step that follows, and whether it was the last."""
        trial, violation = self._watch_rewards(before)
        if violation and prompt_of_trial(trial.point) is not None:
            step = withdraw_prompt(trial, f"critical violation in rollout {violation}")
            return step.trial, step, False
        if violation:
            step = stop_learner(trial, f"critical violation in rollout {violation}")
            return step.trial, step, False
        page = self._store.trials.assignments(trial.point, after=trial.watermark, limit=PAGE)
        ready = self._settled_prefix(trial.point, page, now=now)
        if ready:
            trial = start_trial(trial, ready, self._settings)
        others = [assignment for assignment in ready if assignment.place <= trial.since]
        if others:  # another control decided them
            trial = replace(trial, watermark=others[-1].place)
        after, next_ = self._count(trial, ready[len(others) :])
        return after, next_, next_ is None and len(ready) < PAGE

    def _watch_rewards(self, trial: Trial) -> tuple[Trial, str | None]:
        """Check new rewards; return the id of the first rollout with a critical violation."""
        newest = self._store.trials.newest_reward()
        declared = self._settings.rewards
        while trial.watched < newest and trial.stopped is None:
            page = self._store.trials.rewards_after(trial.point, after=trial.watched, limit=PAGE)
            for seq, rollout_id in page:
                rewards = self._store.rewards.rewards(rollout_id)
                new = [reward for reward in rewards if reward.seq > trial.watched]
                if not self._uses(trial, rollout_id):
                    continue
                if cost_of(new, declared, hard_gate=self._settings.safety.hard_gate_cost).critical:
                    return replace(trial, watched=max(seq, newest)), rollout_id
            trial = replace(trial, watched=page[-1][0] if len(page) == PAGE else newest)
        return replace(trial, watched=max(trial.watched, newest)), None

    def _uses(self, trial: Trial, rollout_id: str) -> bool:
        """Whether what is on trial was used in a rollout: a prompt on offer may not be."""
        version = prompt_of_trial(trial.point)
        decisions = [] if version is None else self._store.decisions.decisions(rollout_id)
        return version is None or any(decision.applied == version for decision in decisions)

    def _count(self, trial: Trial, ready: Sequence[Assigned]) -> tuple[Trial, Step | None]:
        """Count rollouts, ``EVERY`` at a time, up to those from which a step follows."""
        rewards = reward_range(self._settings)
        done = 0
        while done < len(ready):
            seen = int(trial.tally.get("seen", 0.0)) % EVERY
            size = min(EVERY - seen, trial.kept or EVERY)
            results = [
                result_of(
                    assignment,
                    self._store.rewards.rewards(assignment.rollout.rollout_id),
                    self._settings,
                )
                for assignment in ready[done : done + size]
            ]
            done += len(results)
            before = trial
            if rewards is None:
                trial = replace(tally_results(trial, results), evidence={}, finding={})
            else:
                trial = count_results(trial, results, rewards=rewards)
            step = end_probation(before, trial) or self._step(trial)
            if step is not None:
                return step.trial, step
        if done and trial.evidence:
            trial = replace(trial, finding=finding_fields(finding_of(trial, self._settings)))
        return trial, None

    def _step(self, trial: Trial) -> Step | None:
        if int(trial.tally.get("seen", 0.0)) % EVERY:
            return None
        finding = finding_of(trial, self._settings)
        if finding is None:
            return None
        if prompt_of_trial(trial.point) is not None:
            return prompt_step(trial, finding)
        service = self._store.policies.in_service().get(trial.point)
        serving = Serving(service.version, service.pinned) if service else Serving(0, pinned=False)
        if finding.verdict is Verdict.PROMOTE:
            if self._has_fallen(trial):
                newest = self._store.trials.newest_place(trial.point)
                reason = "it now earns less than when it was proven better"
                return Step(Move.RESTARTED, reason, replace(restart_test(trial), since=newest))
            serving = serving._replace(version=self._earner(trial, serving))
        return next_step(trial, finding, serving, self._settings)

    def _has_fallen(self, trial: Trial) -> bool:
        """Whether the learner's newest rewards, counted or not, are below those of its test."""
        rewards, evidence = reward_range(self._settings), stored_evidence(trial)
        if rewards is None or evidence is None or not evidence.reward.learner_count:
            return False
        share = evidence.reward.learner_total / evidence.reward.learner_count
        newest = [
            ready.rollout.total_reward
            for ready in self._store.rewards.ready_rollouts(
                trial.point, after=0, limit=4 * RECENT, newest=True
            )
            if ready.rollout.total_reward is not None
            and any(
                decision.point == trial.point and decision.arm == LEARNER
                for decision in ready.decisions
            )
        ]
        mean = rewards[0] + share * (rewards[1] - rewards[0])
        return has_fallen(newest[-RECENT:], mean, rewards=rewards)

    def _earner(self, trial: Trial, serving: Serving) -> int:
        """Return the version that decided the last counted rollout, or the next one still kept.

        The version in service has learned from rollouts that were not compared yet.
        """
        earner = int(trial.tally.get("version", 0.0))
        names = self._store.checkpoints.names()
        kept = (
            row.version
            for row in self._store.policies.versions(trial.point)
            if earner <= row.version <= serving.version and row.file in names
        )
        return min(kept, default=serving.version)

    def _save(self, before: Trial, trial: Trial, step: Step | None, *, now: float) -> bool:
        """Store a trial and its step; ``False`` if somebody else has changed the trial."""
        fault.point("promotion.seen")
        trial = replace(trial, revision=trial.revision + 1)
        with self._store.begin():
            if step is None:
                return self._store.trials.save(trial)
            trial = replace(trial, changed_at=now, since=since(self._store, before, trial))
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
    """Return the position after which a trial counts: that of the last with another control."""
    if before.control == after.control:
        return after.since
    return store.trials.newest_place(after.point)


def void_test(store: Store, point: str, *, reason: str, who: str, at: float) -> None:
    """Void the evidence of a point, and begin its test anew.

    For when the world has changed, as drift shows. Rollouts decided before prove nothing, whenever
    their rewards come. The champion was proven better in the world before, and may favour the very
    option that broke: until another is proven, the control is the host's own choice. A probation
    goes on, against that.

    Args:
        store: The store.
        point: The decision point.
        reason: Why, in words, for the audit.
        who: Who voids it, for the audit.
        at: Epoch seconds.
    """
    while True:
        with store.begin():
            trial = store.trials.trial(point)
            after = replace(
                restart_test(trial),
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
