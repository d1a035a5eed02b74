"""When an update is due, the lease, the update itself, and its report.

An update takes finished and rewarded rollouts that no update of the decision point has learned
from, counted in the store. Only the holder of the lease updates, and the store accepts an update,
its watermark and its version in one transaction or not at all: over any crash each rollout is
learned from once.

The name of a checkpoint is noted before it is written, and the note is removed in the transaction
that stores the version. A note that the holder of the lease finds was left by an update that died,
and so was the checkpoint that it names.
"""

import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import NamedTuple

import numpy as np
from msgspec import structs

from tau_live.core import fault
from tau_live.core.errors import (
    CheckpointError,
    DuplicateError,
    LeaseLostError,
    OddRowError,
    StoreUnavailableError,
    UnknownError,
)
from tau_live.core.guard import logger, text_of
from tau_live.core.processes import is_alive
from tau_live.core.reasons import LEFT_OUT, WhyNot
from tau_live.core.records import LearnableRollout, PolicyVersion, Update
from tau_live.core.reward_rules import cap_sources
from tau_live.core.sanitize import JsonObject, mapping
from tau_live.core.settings import Settings
from tau_live.decisions import checkpoints
from tau_live.decisions.policies import needed_versions, policy_config
from tau_live.learn.monitoring import (
    Hold,
    MonitorFindings,
    UpdateRollouts,
    is_worse,
    late_costs,
    watch_update,
)
from tau_live.learn.trajectories import CollectedRollouts, LeftOut, counts_of, trajectories_of
from tau_live.record.rewards import (
    incurred_cost,
    outcome_of,
    taken_by_safety,
)
from tau_live.rl.batch import Trajectories
from tau_live.rl.bounds import Limits
from tau_live.rl.config import PPOConfig
from tau_live.rl.policy import Policy
from tau_live.rl.ppo import Circumstances, update
from tau_live.rl.ppo import Update as PPOUpdate
from tau_live.rl.state import LearnerState
from tau_live.rl.throttle import yield_gil
from tau_live.rl.verdict import Verdict
from tau_live.store.checkpoints import is_checkpoint, name_of, version_of
from tau_live.store.roles import Store

LEASE = "update:"
"""Prefix of the names of the leases of whoever learns at a decision point."""


def release_lease(store: Store, name: str, holder: str) -> None:
    """Release a lease; if the store fails, the lease expires and its holder may go on."""
    with suppress(StoreUnavailableError):  # the work done under it is stored
        store.leases.release(name, holder)


class Head(NamedTuple):
    """The state that an update starts from; version 0 is the untrained policy."""

    version: int
    sha256: str
    state: LearnerState


class Heads:
    """The head of each point, cached between updates.

    Args:
        store: Holds which version serves.
        settings: The shape of an untrained policy, and how many checkpoints are kept.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._kept: dict[str, Head] = {}
        self._diagnostics: list[str] = []

    def head(self, point: str) -> Head:
        """Return the version in service, or the newest version while that is pinned.

        A damaged checkpoint is left alone and its parent taken instead, with a diagnostic.
        """
        version = self._version(point)
        while version:
            kept = self._kept.get(point)
            if kept is not None and kept.version == version:
                return kept
            try:
                row = self._store.policies.version(version)
                checkpoint = checkpoints.load(self._store.checkpoints, row.file, sha256=row.sha256)
                state = LearnerState.from_arrays(checkpoint.arrays)
            except (CheckpointError, UnknownError, OddRowError, ValueError) as error:
                self._diagnostics.append(f"checkpoint load failed: {error}")
                version = self._store.policies.before(point, version)
                continue
            self._kept[point] = Head(version, row.sha256, state)
            return self._kept[point]
        return Head(0, "", LearnerState.initial(policy_config(self._settings)))

    def keep(self, point: str, head: Head) -> None:
        """Cache the head that an update has made, so that it need not be loaded."""
        self._kept[point] = head

    def prune(self) -> None:
        """Delete the checkpoints that nobody needs; if the store fails, the next update does it.

        In a transaction, or an operator might go back to one that is being deleted. A failure here
        does not fail the update, which is stored.
        """
        try:
            with self._store.begin():
                kept = {head.version for head in self._kept.values()}
                noted = noted_checkpoints(self._store)  # others are writing them
                kept |= {version_of(name) for name in noted}
                checkpoints.prune(
                    self._store.checkpoints,
                    keep=self._settings.keep_checkpoints,
                    needed=frozenset(kept | needed_versions(self._store)),
                    half_written=not noted,
                )
        except (CheckpointError, StoreUnavailableError) as error:
            logger().warning("checkpoints_not_pruned", error=text_of(error))
        fault.point("update.pruned")

    def take_diagnostics(self) -> list[str]:
        """Return the problems with checkpoints since the last call."""
        diagnostics, self._diagnostics = self._diagnostics, []
        return diagnostics

    def _version(self, point: str) -> int:
        serving = self._store.policies.in_service().get(point)
        if serving is None or not serving.pinned:
            return serving.version if serving else 0
        versions = self._store.policies.versions(point)
        return max((row.version for row in versions), default=0)


NOTE = "checkpoint:"
"""Prefix of the names of leases that note a checkpoint."""


def noted_checkpoints(store: Store) -> list[str]:
    """Return the checkpoints that have a note."""
    names = (note.name.removeprefix(NOTE) for note in store.leases.all(NOTE))
    return [name for name in names if is_checkpoint(name)]


def add_note(store: Store, checkpoint: str, holder: str, *, ttl_s: float) -> None:
    """Note that a checkpoint of this name is about to be made.

    Only for the holder of the lease. The same rollouts and settings make the same name again, so
    the note of a process that died making it is taken over.
    """
    name = NOTE + checkpoint
    with store.begin():
        for other in store.leases.all(name):
            store.leases.release(name, other.holder)
        store.leases.acquire(name, holder, ttl_s=ttl_s)
    fault.point("update.meant")


def remove_note(store: Store, checkpoint: str, holder: str) -> None:
    """Remove the note, inside the transaction that stores the version.

    Raises:
        LeaseLostError: Another learner has swept the checkpoint away, or has noted it for itself.
    """
    name = NOTE + checkpoint
    is_noted = holder in {note.holder for note in store.leases.all(name)}
    if not is_noted or checkpoint not in store.checkpoints.names():
        raise LeaseLostError(f"the checkpoint {checkpoint} was deleted before it was recorded")
    store.leases.release(name, holder)


VERSIONS_KNOWN = 1_000
"""Newest versions of a point that are read; no decision counts as older by more versions."""

_NONE = Limits()
_ERRORS = (ValueError, ArithmeticError, np.linalg.LinAlgError)


class PointLearner:
    """Updates of one decision point, from one state.

    Args:
        settings: Seed, and the weights of rewards.
        config: How PPO learns.
        point: The decision point.
        versions: The newest versions of the point, in ascending order.
        state: The learner's state before the update.
        at: Epoch seconds as of which the defaults of missing costs count.
    """

    def __init__(
        self,
        settings: Settings,
        config: PPOConfig,
        *,
        point: str,
        versions: Sequence[PolicyVersion],
        state: LearnerState,
        at: float,
    ) -> None:
        self._settings = settings
        self._config = config
        self._point = point
        self._versions = [version.version for version in versions]
        self._version_times = [version.created_at for version in versions]
        self._state = state
        self._at = at

    def learn(  # noqa: PLR0913  # keyword-only but for two
        self,
        fresh: Sequence[LearnableRollout],
        older: Sequence[LearnableRollout],
        *,
        new: CollectedRollouts,
        price: float = 0.0,
        changed: Collection[str] = (),
        improved: bool = False,
        limits: Limits = _NONE,
    ) -> tuple[PPOUpdate | None, CollectedRollouts]:
        """Return the update from new rollouts, and once more from older ones.

        A rollout on which an update fails is left out, whatever is wrong with it, so that the
        others can be learned from.

        Args:
            fresh: Rollouts never learned from.
            older: Rollouts learned from before.
            new: The usable part of ``fresh``, with rewards within the limits.
            price: Price of one unit of safety cost, in units of reward.
            changed: Options that became worse.
            improved: Whether an option became better.
            limits: The lowest and the highest that a reward counts as.

        Returns:
            The update, ``None`` where there was nothing usable; and the new rollouts that it used,
            with those left out.

        Raises:
            ValueError: The update fails on all of them together, but on none alone.
        """
        if new.trajectories is None:
            return None, new
        try:
            window = self.collect(older, limits)
            return self._update(
                new, window.trajectories, price=price, changed=changed, improved=improved
            ), new
        except _ERRORS as error:
            logger().warning("update_broke", point=self._point, error=str(error))
        usable = [example for example in fresh if self._is_usable(example, limits)]
        unusable = [
            LeftOut(example.rollout.rollout_id, None, WhyNot.BREAKS_UPDATE)
            for example in fresh
            if example not in usable
        ]
        new = self.collect(usable, limits)
        new = new._replace(left_out=[*new.left_out, *unusable])
        if new.trajectories is None:
            return None, new
        window = self.collect(
            [example for example in older if self._is_usable(example, limits)], limits
        )
        return self._update(
            new, window.trajectories, price=price, changed=changed, improved=improved
        ), new

    def _is_usable(self, rollout: LearnableRollout, limits: Limits) -> bool:
        """Whether an update on this rollout alone succeeds."""
        try:
            alone = self.collect([rollout], limits)
            if alone.trajectories is not None:
                self._update(alone, None)
        except _ERRORS:
            return False
        return True

    def _update(
        self,
        new: CollectedRollouts,
        window: Trajectories | None,
        *,
        price: float = 0.0,
        changed: Collection[str] = (),
        improved: bool = False,
    ) -> PPOUpdate:
        if new.trajectories is None:
            raise ValueError("nothing to learn from")
        rng = np.random.default_rng(
            [self._settings.seed, zlib.crc32(self._point.encode()), self._state.counts.updates]
        )
        with np.errstate(all="ignore"):  # checked below
            result = update(
                self._state,
                new.trajectories,
                window=window,
                config=self._config,
                now=Circumstances(
                    price,
                    np.array([decision.applied in changed for decision in new.decisions]),
                    improved,
                ),
                rng=rng,
            )
        bad = [
            name for name, array in result.state.arrays().items() if not np.isfinite(array).all()
        ]
        if bad:
            raise ValueError(f"not finite after the update: {', '.join(bad)}")
        return result

    def collect(
        self, rollouts: Sequence[LearnableRollout], limits: Limits = _NONE
    ) -> CollectedRollouts:
        """Return the usable part of some rollouts, with rewards within limits."""
        kept, over = cap_sources(rollouts, self._settings)
        collection = trajectories_of(
            kept,
            self._point,
            versions=self._versions,
            version_times=self._version_times,
            width=self._state.policy.config.width,
            discount=1.0,  # the update discounts by itself
            lag_bound=self._config.lag_bound,
            learn_from_host=self._settings.learn_from_host,
            outcome=lambda known: outcome_of(known.rewards, known.rollout, self._settings),
            cost=lambda rollout: incurred_cost(rollout, self._settings, now=self._at),
            taken=lambda rollout: taken_by_safety(rollout, self._settings),
        )
        over_cap = (
            LeftOut(rollout.rollout.rollout_id, None, WhyNot.SOURCE_OVER_CAP) for rollout in over
        )
        collection = collection._replace(left_out=[*collection.left_out, *over_cap])
        return collection.within(limits)[0]


def known_at(rollouts: Sequence[LearnableRollout]) -> float:
    """Return when the last of these rollouts ended or was rewarded, in epoch seconds."""
    ended = (rollout.rollout.ended_at or 0.0 for rollout in rollouts)
    rewarded = (reward.at for rollout in rollouts for reward in rollout.rewards)
    return max((*ended, *rewarded), default=0.0)


def by_reason(left_out: Sequence[LeftOut]) -> dict[str, int]:
    """Return how many were left out for each reason."""
    return dict(sorted(Counter(entry.reason for entry in left_out).items()))


ALGORITHM = "ppo"

CATCH_UP_FACTOR = 4
"""How much larger than usual an update may be while the learner is behind.

Most of what an update costs is the same for 8 new rollouts and for 256, so larger ones catch up:
0.7 ms of processor time for a rollout instead of 1.8 (one decision, two options).
"""

MOST_DECISIONS = 2_048
"""Decisions of new rollouts from which on an update grows no further."""
_DEFAULT_CONFIG = PPOConfig()


class UpdateResult(NamedTuple):
    """An update and the policy that it made, if any.

    Attributes:
        update: The stored update.
        policy: The new version; ``None`` if the update was skipped or undone.
        serves: Whether the new version is in service; not while another one is pinned.
        hold: Why the gate should hold after it; ``None`` if it should not.
    """

    update: Update
    policy: Policy | None
    serves: bool
    hold: Hold | None = None


class Learner:
    """Runs the updates that are due, one after the other, in the thread that calls it.

    Args:
        store: A store that no other thread uses.
        settings: Interval, limits, window, seed.
        holder: Names this learner in the lease.
        void: Called with a point where an option became worse, and the time, inside the transaction
            that stores so: it voids the evidence of a running test.
        hold: Called with the reason for which the gate should hold, and the time, inside the same
            transaction.
        ppo: How an update learns.
    """

    def __init__(  # keyword-only but for two
        self,
        store: Store,
        settings: Settings,
        *,
        holder: str,
        void: Callable[[str, float], None] = lambda _point, _at: None,
        hold: Callable[[Hold, float], object] = lambda _hold, _at: None,
        ppo: PPOConfig = _DEFAULT_CONFIG,
    ) -> None:
        self._store = store
        self._void = void
        self._hold = hold
        self._settings = settings
        self._holder = holder
        self._token = 0
        self._ppo = ppo
        self._heads = Heads(store, settings)

    def due(self, *, upto: int | None = None) -> list[str]:
        """Return the decision points whose update is due; an empty name is for runs without any.

        The point whose last update is the oldest comes first, so that a busy one starves no other.

        Args:
            upto: Counts only rollouts up to this ``ready_seq``, from ``horizon``; ``None`` all.
        """
        policies, rewards = self._store.policies, self._store.rewards
        least = self._settings.update_interval
        points = []
        for point in (*rewards.ready_points(), ""):
            watermark = policies.watermark(point)
            if upto is not None and watermark >= upto:
                continue
            if rewards.ready_count(point, after=watermark, upto=upto, limit=least) >= least:
                points.append(point)
        return sorted(points, key=policies.newest_update)

    def horizon(self) -> int:
        """Return the ``ready_seq`` of the newest ready rollout; 0 before the first."""
        return self._store.rewards.became_ready()

    def run_next(self, *, now: float | None, upto: int | None = None) -> UpdateResult | None:
        """Run one update that is due; ``None`` if none is that no other learner has in hand.

        Args:
            now: Epoch seconds, UTC, to be stored; ``None`` takes the time at which the last of its
                rollouts was known, so that a replay stores the same whenever it runs.
            upto: As in ``due``.

        Raises:
            TauLiveError: The update failed; nothing of it was kept.
        """
        for point in self.due(upto=upto):
            if not self._has_lease(point):
                continue
            fault.point("update.leased")
            try:
                if point not in self.due(upto=upto):  # another learner has run it meanwhile
                    continue
                return self._update(point, now=now) if point else self._skip_runs(now=now)
            except LeaseLostError as error:
                logger().warning("lease_lost", holder=self._holder, error=str(error))
                return None
            finally:
                release_lease(self._store, LEASE + point, self._holder)
        return None

    def sweep(self) -> list[str]:
        """Delete the checkpoints of updates that died, and return the names of what is gone.

        What another learner is making stays: its note is in force.
        """
        store = self._store
        gone: list[str] = []
        for note in store.leases.all(NOTE):
            is_others = note.in_force and note.holder != self._holder
            if is_others and is_alive(note.holder) is not False:
                continue
            name = note.name.removeprefix(NOTE)
            with store.begin():  # or it might become known before it is deleted
                known = name in {row.file for row in store.policies.versions()}
                there = not known and name in store.checkpoints.names()
                gone += [name] if there and store.checkpoints.delete(name) else []
                store.leases.release(note.name, note.holder)
            fault.point("learner.swept")
        with store.begin():  # or another container might begin to write one
            if not store.leases.all(NOTE):
                gone += store.checkpoints.sweep()
        if gone:
            logger().warning("unfinished_files_swept", files=gone)
        return gone

    def _has_lease(self, point: str) -> bool:
        self._token = self._store.leases.acquire(
            LEASE + point, self._holder, ttl_s=self._settings.lease_ttl_s
        )
        return self._token > 0

    def _update(self, point: str, *, now: float | None) -> UpdateResult:
        began = time.perf_counter()
        seen_upto = self._store.policies.watermark(point)
        learned_upto = self._store.policies.watermark(point, executed=True)
        newest_reward = self._store.trials.newest_reward()
        left, due = self._left_and_due(point, learned_upto=learned_upto, seen_upto=seen_upto)
        fresh = [*left, *due]
        head = self._heads.head(point)
        fault.point("update.read")
        result, new, findings = self._learn(
            point, head, fresh, learned_upto=learned_upto, newest_reward=newest_reward
        )
        fault.point("update.trained")
        reason = "no usable decisions"
        if result is not None:
            reason = result.skipped_reason or ("diverged, undone" if result.undone else "")
        report = self._report(result, new, findings)
        counts = counts_of(new, {example.rollout.rollout_id for example in due})
        if not reason and learned_upto < seen_upto:  # skipped updates may have left too many
            waiting = self._store.rewards.ready_count(point, after=learned_upto, upto=seen_upto)
            if waiting > len(left):
                why, rollouts = WhyNot.NO_ROOM.value, waiting - len(left)
                report["left_out"] = {**mapping(report["left_out"]), why: rollouts}
                counts[f"{LEFT_OUT}{why}"] = rollouts
        row = Update(
            update=0,
            point=point,
            executed=not reason,
            skipped_reason=reason or None,
            version=None,
            parent=head.version,
            first_ready=fresh[0].rollout.ready_seq or 0,
            last_ready=fresh[-1].rollout.ready_seq or 0,
            trajectories=len(new.rollout_ids),
            samples=len(new.decisions),
            at=known_at(fresh) if now is None else now,
            report=report,
        )
        if reason or result is None:
            stored = self._store_update(_with_duration(row, began), None, findings, counts)
            return UpdateResult(stored, None, False, findings.hold)
        findings = findings.with_changes_cleared()
        return self._keep(row, head, result.state, findings, counts=counts, began=began)

    def _skip_runs(self, *, now: float | None) -> UpdateResult:
        """Store a skipped update for rollouts without a decision; nothing is learned from them.

        Hosts that never ask for a decision have no others, so the rollouts are not read.
        """
        began = time.perf_counter()
        watermark = self._store.policies.watermark("")
        limit, rewards = self._settings.max_rollouts_per_update, self._store.rewards
        due = rewards.ready_summary("", after=watermark, limit=CATCH_UP_FACTOR * limit)
        left = rewards.ready_summary(
            "", after=0, upto=watermark, limit=max(limit - due.rollouts, 0), newest=True
        )
        row = Update(
            update=0,
            point="",
            executed=False,
            skipped_reason="no decisions",
            version=None,
            parent=0,
            first_ready=left.first or due.first,
            last_ready=due.last,
            trajectories=0,
            samples=0,
            at=max(left.known_at, due.known_at) if now is None else now,
            report={},
        )
        return UpdateResult(
            self._store_update(_with_duration(row, began), None, None, {}), None, False
        )

    def _store_update(
        self,
        row: Update,
        policy: PolicyVersion | None,
        findings: MonitorFindings | None,
        counts: Mapping[str, int],
    ) -> Update:
        """Store an update with its monitor, counters and consequences in one transaction."""
        with self._store.begin():
            self._store.leases.confirm(LEASE + row.point, self._token)
            stored = self._store.policies.add_update(row, policy)
            if policy is not None:
                remove_note(self._store, policy.file, self._holder)
            self._store.counters.add(counts)
            if findings is not None:
                if findings.hold is not None:
                    self._hold(findings.hold, row.at)
                self._store.monitors.save(findings.monitor, findings.costs)
                if findings.outliers:
                    self._store.counters.add({"reward_outliers": findings.outliers})
                if findings.alarms:
                    self._store.counters.add({"drift_alarms": len(findings.alarms)})
                if any(map(is_worse, findings.alarms)):
                    self._void(row.point, row.at)
        fault.point("update.stored")
        for alarm in findings.alarms if findings else ():
            fields = {**alarm._asdict(), "direction": alarm.direction.value}
            logger().warning("option_changed", point=row.point, **fields)
        return stored

    def _left_and_due(
        self, point: str, *, learned_upto: int, seen_upto: int
    ) -> tuple[list[LearnableRollout], list[LearnableRollout]]:
        """Return the rollouts left over from skipped updates, and the next that are due.

        Both in order; of the former the newest, as far as there is room. How many are due at once
        follows from the store alone, so that a replay makes the same updates.
        """
        limit = self._settings.max_rollouts_per_update
        rewards = self._store.rewards
        due = rewards.ready_rollouts(point, after=seen_upto, limit=limit)
        page = due
        while (
            len(page) == limit
            and len(due) < CATCH_UP_FACTOR * limit
            and _decisions(due) < MOST_DECISIONS
        ):
            page = rewards.ready_rollouts(point, after=due[-1].rollout.ready_seq or 0, limit=limit)
            due = [*due, *page]
        room = limit - len(due)
        if room <= 0 or learned_upto >= seen_upto:
            return [], due
        left = rewards.ready_rollouts(
            point, after=learned_upto, upto=seen_upto, limit=room, newest=True
        )
        return left, due

    def _learn(
        self,
        point: str,
        head: Head,
        fresh: Sequence[LearnableRollout],
        *,
        learned_upto: int,
        newest_reward: int,
    ) -> tuple[PPOUpdate | None, CollectedRollouts, MonitorFindings]:
        """Return the update, the rollouts that it used, and the findings of the monitors.

        The update is ``None`` where nothing was usable.
        """
        monitor = self._store.monitors.monitor(point)
        more = max(len(fresh) - self._settings.max_rollouts_per_update, 0)
        older = self._store.rewards.ready_rollouts(
            point,
            after=monitor.since,
            upto=learned_upto,
            limit=max(self._settings.window - more, 0),  # a larger update replays fewer
            newest=True,
        )
        at = known_at(fresh)
        point_learner = PointLearner(
            self._settings,
            self._ppo,
            point=point,
            versions=self._store.policies.versions(point, limit=VERSIONS_KNOWN),
            state=head.state,
            at=at,
        )
        late = late_costs(self._store, monitor, self._settings, at=at)
        findings = watch_update(
            monitor,
            UpdateRollouts(fresh, older, point_learner.collect(fresh), at, late, newest_reward),
            settings=self._settings,
            state=head.state,
            config=self._ppo,
            difference=self._difference(point),
        )
        result, new = point_learner.learn(
            fresh,
            [] if findings.doubted else older,
            new=findings.new,
            price=findings.price,
            changed=findings.doubted,
            improved=findings.improved,
            limits=findings.limits,
        )
        return result, new, findings

    def _report(
        self, result: PPOUpdate | None, new: CollectedRollouts, findings: MonitorFindings
    ) -> dict[str, object]:
        left_out = {"left_out": by_reason(new.left_out)}
        if result is None:
            return {**left_out, **findings.report}
        diagnostics = result.diagnostics
        return {
            **asdict(diagnostics),
            "samples_with_window": diagnostics.samples,
            "mean_total_loss": diagnostics.total_loss,
            "observed_approx_kl": diagnostics.kl_k3,
            "early_stop_triggered": diagnostics.early_stop,
            **left_out,
            "critic_only": by_reason(new.critic_only),
            "checkpoint_diagnostics": self._heads.take_diagnostics(),
            **findings.report,
        }

    def _difference(self, point: str) -> tuple[float, float] | None:
        """Return the bounds of the difference to a champion; ``None`` where there is none."""
        trial = self._store.trials.trial(point)
        difference = trial.finding.get("difference")
        outside = trial.finding.get("verdict") == Verdict.OUT_OF_RANGE
        if trial.control is None or outside or difference is None:
            return None
        lower, upper = difference.get("lower"), difference.get("upper")
        return None if lower is None or upper is None else (lower, upper)

    def _keep(
        self,
        row: Update,
        head: Head,
        state: LearnerState,
        findings: MonitorFindings,
        *,
        counts: Mapping[str, int],
        began: float,
    ) -> UpdateResult:
        version = self._store.policies.next_version()
        metadata = {"seed": self._settings.seed}
        checkpoint = checkpoints.Checkpoint(
            version=version,
            point=row.point,
            parent=head.version,
            parent_sha256=head.sha256,
            arrays=state.arrays(),
            metadata={"algorithm": ALGORITHM, **metadata},
        )
        yield_gil()
        sha256 = checkpoint.sha256
        yield_gil()
        token = self._token
        if not self._has_lease(row.point) or self._token != token:
            raise LeaseLostError(f"update of '{row.point}' took longer than its lease")
        add_note(
            self._store,
            name_of(version, sha256),
            self._holder,
            ttl_s=self._settings.lease_ttl_s,
        )
        name = checkpoints.save(self._store.checkpoints, checkpoint)
        fault.point("update.saved")
        policy = PolicyVersion(
            version=version,
            point=row.point,
            parent=head.version,
            algorithm=ALGORITHM,
            sha256=sha256,
            file=name,
            rollouts=state.policy.rollouts,
            created_at=row.at,
            metadata=metadata,
        )
        made = _with_duration(structs.replace(row, version=version), began)
        try:
            stored = self._store_update(made, policy, findings, counts)
        except DuplicateError:  # a learner of another point has stored a version of this number
            self._store.checkpoints.delete(name)
            self._store.leases.release(NOTE + name, self._holder)
            return self._keep(row, head, state, findings, counts=counts, began=began)
        self._heads.keep(row.point, Head(version, sha256, state))
        self._heads.prune()
        serving = self._store.policies.in_service()[row.point]
        return UpdateResult(stored, state.policy, serving.version == version, findings.hold)


def report_of(row: Update) -> JsonObject:
    """Return an update as one flat report, its fixed fields first."""
    known = {
        "executed": row.executed,
        "trajectories": row.trajectories,
        "samples": row.samples,
        "mean_total_loss": row.report.get("mean_total_loss"),
        "observed_approx_kl": row.report.get("observed_approx_kl"),
        "early_stop_triggered": row.report.get("early_stop_triggered", False),
        "skipped_reason": row.skipped_reason,
        "update": row.update,
        "point": row.point,
        "version": row.version,
        "parent": row.parent,
        "first_ready": row.first_ready,
        "last_ready": row.last_ready,
        "at": row.at,
    }
    return {**known, **{name: value for name, value in row.report.items() if name not in known}}


def _with_duration(row: Update, began: float) -> Update:
    return structs.replace(row, report={**row.report, "duration_s": time.perf_counter() - began})


def _decisions(rollouts: Sequence[LearnableRollout]) -> int:
    return sum(len(rollout.decisions) for rollout in rollouts)
