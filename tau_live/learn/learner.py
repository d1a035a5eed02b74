"""When an update is due, the lease, the update itself, and its report.

An update takes finished and rewarded rollouts that no update of the decision point has learned
from, counted in the store. Only the holder of the lease updates, and the store accepts an update,
its watermark and its version in one transaction or not at all: over any crash each rollout is
learned from once.

The name of a file is noted before the file is there, and the note goes in the very transaction
that makes the version known. A note that is found while nobody else may learn is of an update that
died, and so is the file that it names.
"""

import math
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import structs

from tau_live.core import fault
from tau_live.core.errors import CheckpointError, LeaseLostError, StoreUnavailableError
from tau_live.core.files import left_behind, sweep
from tau_live.core.guard import logger, text_of
from tau_live.core.processes import is_alive
from tau_live.core.reasons import LEFT_OUT, WhyNot
from tau_live.core.records import LearnableRollout, PolicyVersion, Update
from tau_live.core.sanitize import mapping
from tau_live.core.settings import Settings
from tau_live.decisions import checkpoints
from tau_live.decisions.checkpoints import is_checkpoint
from tau_live.decisions.policy_files import checkpoint_folder, needed_versions, policy_config
from tau_live.learn.monitoring import Hold, Seen, Watched, is_worse, late_costs, watch_update
from tau_live.learn.trajectories import Collected, LeftOut, counts_of, trajectories_of
from tau_live.record.reward_rules import cap_sources
from tau_live.record.rewards import (
    earned_by_decisions,
    earned_early,
    incurred_cost,
    taken_by_safety,
)
from tau_live.rl.batch import Trajectories
from tau_live.rl.bounds import Limits
from tau_live.rl.config import PPOConfig
from tau_live.rl.policy import Policy
from tau_live.rl.ppo import Circumstances, update
from tau_live.rl.ppo import Update as Lesson
from tau_live.rl.state import LearnerState
from tau_live.rl.verdict import Verdict
from tau_live.store.roles import Store

LEASE = "update"


def take_lease(store: Store, holder: str, *, ttl_s: float, now: float) -> bool:
    """Take or renew the lease, also that of a process of this machine that is known to be dead.

    Args:
        store: The store that those who learn share.
        holder: The name of the lease holder.
        ttl_s: How long it holds.
        now: Epoch seconds.
    """
    if store.leases.acquire(LEASE, holder, ttl_s=ttl_s, now=now):
        return True
    other = store.leases.holder(LEASE, now=now)
    if other is None or is_alive(other) is not False:
        return False
    store.leases.release(LEASE, other)
    return store.leases.acquire(LEASE, holder, ttl_s=ttl_s, now=now)


def give_back(store: Store, holder: str) -> None:
    """Let others have the lease; where the store fails it runs out, and its holder may go on."""
    with suppress(StoreUnavailableError):  # what was done under it is done
        store.leases.release(LEASE, holder)


def confirm(store: Store, holder: str) -> None:
    """Make sure, inside the transaction that needs it, that nobody else has had the lease.

    Raises:
        LeaseLostError: Somebody has, and may have done the work in the meantime.
    """
    if store.leases.holder(LEASE, now=0.0) != holder:
        raise LeaseLostError(f"the lease of {holder} expired, and another process has taken it")


class Head(NamedTuple):
    """The state that an update starts from; version 0 is the untrained policy."""

    version: int
    sha256: str
    state: LearnerState


class Heads:
    """Knows the head of each point, and keeps it in memory between updates.

    Args:
        store: Says which version serves.
        settings: The shape of an untrained policy, and how many checkpoints are kept.
        folder: Where the checkpoints are.
    """

    def __init__(self, store: Store, settings: Settings, folder: Path) -> None:
        self._store = store
        self._settings = settings
        self._folder = folder
        self._kept: dict[str, Head] = {}
        self._diagnostics: list[str] = []

    def head(self, point: str) -> Head:
        """Return what to start from: what serves, or the newest version while that is pinned.

        A damaged checkpoint is left alone and its parent taken instead, with a diagnostic.
        """
        version = self._version(point)
        while version:
            held = self._kept.get(point)
            if held is not None and held.version == version:
                return held
            row = self._store.policies.version(version)
            try:
                checkpoint = checkpoints.load(self._folder / row.file, sha256=row.sha256)
                state = LearnerState.from_arrays(checkpoint.arrays)
            except (CheckpointError, ValueError) as error:
                self._diagnostics.append(f"checkpoint load failed: {error}")
                version = row.parent
                continue
            self._kept[point] = Head(version, row.sha256, state)
            return self._kept[point]
        return Head(0, "", LearnerState.initial(policy_config(self._settings)))

    def keep(self, point: str, head: Head) -> None:
        """Remember what an update has made, so that it need not be loaded."""
        self._kept[point] = head

    def prune(self) -> None:
        """Delete the checkpoints that nobody needs; what cannot be done now is left to the next.

        In a transaction, or an operator might go back to one that is just being deleted. An update
        that is stored has not failed because somebody else kept the store locked after it.
        """
        try:
            with self._store.begin():
                kept = {head.version for head in self._kept.values()}
                checkpoints.prune(
                    self._folder,
                    keep=self._settings.keep_checkpoints,
                    needed=frozenset(kept | needed_versions(self._store)),
                )
        except StoreUnavailableError as error:
            logger().warning("checkpoints_not_pruned", error=text_of(error))
        fault.point("update.pruned")

    def take_diagnostics(self) -> list[str]:
        """Return what was wrong with checkpoints since the last call."""
        diagnostics, self._diagnostics = self._diagnostics, []
        return diagnostics

    def _version(self, point: str) -> int:
        serving = self._store.policies.in_service().get(point)
        if serving is None or not serving.pinned:
            return serving.version if serving else 0
        versions = self._store.policies.versions(point)
        return max((row.version for row in versions), default=0)


NOTE = "checkpoint:"
"""Begins the name of the lease that notes a file."""


def note(store: Store, file: str, holder: str, *, ttl_s: float, now: float) -> None:
    """Note that a checkpoint of this name is about to be made.

    Only for the holder of the lease. The same rollouts and settings make the same name again, so
    a note of whoever died at it is taken over.
    """
    name = NOTE + file
    with store.begin():
        other = store.leases.holder(name, now=0.0)
        if other is not None:
            store.leases.release(name, other)
        store.leases.acquire(name, holder, ttl_s=ttl_s, now=now)
    fault.point("update.meant")


def settle(store: Store, path: Path, holder: str) -> None:
    """Take the note back, inside the transaction that makes the version known.

    Raises:
        LeaseLostError: Another learner has swept the file away, or has noted it for itself.
    """
    name = NOTE + path.name
    if store.leases.holder(name, now=0.0) != holder or not path.exists():
        raise LeaseLostError(f"the checkpoint {path.name} was deleted before it was recorded")
    store.leases.release(name, holder)


def notes(store: Store) -> dict[str, str]:
    """Return every note with its holder, whether its time has run out or not."""
    return store.leases.ending(NOTE, after=-math.inf, until=math.inf)


VERSIONS_KNOWN = 1_000
"""The newest of a point; no decision counts as older by more versions."""

_NONE = Limits()
_ERRORS = (ValueError, ArithmeticError, np.linalg.LinAlgError)


class Lessons:
    """Updates of one decision point, from one state.

    Args:
        settings: Seed, and what rewards are worth.
        config: How PPO learns.
        point: The decision point.
        versions: The newest versions of the point, in ascending order.
        state: The learner's state before the update.
        at: Epoch seconds, until when costs could come; their defaults count by then.
    """

    def __init__(  # its parts, all keyword-only but two
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
        self._born = [version.created_at for version in versions]
        self._state = state
        self._at = at

    def learnt(
        self,
        fresh: Sequence[LearnableRollout],
        older: Sequence[LearnableRollout],
        *,
        new: Collected,
        price: float = 0.0,
        changed: Collection[str] = (),
        limits: Limits = _NONE,
    ) -> tuple[Lesson | None, Collected]:
        """Return what learning from new rollouts, and from older ones once more, comes to.

        A rollout on which an update fails is left out, whatever is wrong with it: one must not
        keep the others from being learned from.

        Args:
            fresh: Rollouts never learned from.
            older: Rollouts learned from before.
            new: What of ``fresh`` can be learned from, with rewards within the limits.
            price: Price of one unit of safety cost, in units of reward.
            changed: Options that are no longer what they were.
            limits: The lowest and the highest that a reward counts as.

        Returns:
            The update, ``None`` where there was nothing usable; and the new rollouts that it used,
            with those left out.

        Raises:
            ValueError: Only all of them together make it fail.
        """
        if new.trajectories is None:
            return None, new
        try:
            older_ones = self.collect(older, limits).trajectories
            return self._update(new, older_ones, price=price, changed=changed), new
        except _ERRORS as error:
            logger().warning("update_broke", point=self._point, error=str(error))
        sound = [example for example in fresh if self._is_sound(example, limits)]
        bad = [
            LeftOut(example.rollout.rollout_id, None, WhyNot.BREAKS_UPDATE)
            for example in fresh
            if example not in sound
        ]
        new = self.collect(sound, limits)
        new = new._replace(left_out=[*new.left_out, *bad])
        if new.trajectories is None:
            return None, new
        window = self.collect(
            [example for example in older if self._is_sound(example, limits)], limits
        )
        return self._update(new, window.trajectories, price=price, changed=changed), new

    def _is_sound(self, rollout: LearnableRollout, limits: Limits) -> bool:
        """Say whether an update on this rollout alone goes well."""
        try:
            alone = self.collect([rollout], limits)
            if alone.trajectories is not None:
                self._update(alone, None)
        except _ERRORS:
            return False
        return True

    def _update(
        self,
        new: Collected,
        window: Trajectories | None,
        *,
        price: float = 0.0,
        changed: Collection[str] = (),
    ) -> Lesson:
        if new.trajectories is None:
            raise ValueError("nothing to learn from")
        rng = np.random.default_rng(
            [self._settings.seed, zlib.crc32(self._point.encode()), self._state.counts.updates]
        )
        with np.errstate(all="ignore"):  # what is not finite is found below
            result = update(
                self._state,
                new.trajectories,
                window=window,
                config=self._config,
                now=Circumstances(
                    price, np.array([decision.applied in changed for decision in new.decisions])
                ),
                rng=rng,
            )
        bad = [
            name for name, array in result.state.arrays().items() if not np.isfinite(array).all()
        ]
        if bad:
            raise ValueError(f"not finite after the update: {', '.join(bad)}")
        return result

    def collect(self, rollouts: Sequence[LearnableRollout], limits: Limits = _NONE) -> Collected:
        """Return what of some rollouts can be learned from together, with rewards within limits."""
        kept, over = cap_sources(rollouts, self._settings)
        collection = trajectories_of(
            kept,
            self._point,
            versions=self._versions,
            born=self._born,
            width=self._state.policy.config.width,
            discount=self._config.gamma,
            lag_bound=self._config.lag_bound,
            learn_from_host=self._settings.learn_from_host,
            earned=lambda rollout: earned_by_decisions(rollout, self._settings),
            early=lambda rollout: earned_early(rollout, self._settings),
            cost=lambda rollout: incurred_cost(rollout, self._settings, now=self._at),
            taken=lambda rollout: taken_by_safety(rollout, self._settings),
        )
        too_many = (
            LeftOut(rollout.rollout.rollout_id, None, WhyNot.SOURCE_OVER_CAP) for rollout in over
        )
        collection = collection._replace(left_out=[*collection.left_out, *too_many])
        return collection.within(limits)[0]


def known_at(rollouts: Sequence[LearnableRollout]) -> float:
    """Return when the last of these rollouts had ended and been rewarded, in epoch seconds."""
    ended = (rollout.rollout.ended_at or 0.0 for rollout in rollouts)
    rewarded = (reward.at for rollout in rollouts for reward in rollout.rewards)
    return max((*ended, *rewarded), default=0.0)


def by_reason(left_out: Sequence[LeftOut]) -> dict[str, int]:
    """Return how many were left out for each reason."""
    return dict(sorted(Counter(entry.reason for entry in left_out).items()))


ALGORITHM = "ppo"

LARGER = 4
"""So many times the usual number of new rollouts an update takes while the learner is behind.

Most of what an update costs is the same for 8 new rollouts and for 256, so larger ones catch up:
0.7 ms of processor time for a rollout instead of 1.8 (one decision, two options).
"""

MOST_DECISIONS = 2_048
"""An update whose new rollouts have so many decisions grows no further."""
_AS_MEASURED = PPOConfig()


class Learned(NamedTuple):
    """An update and, if it made one, the policy that it made.

    Attributes:
        update: As it is stored.
        policy: The new version; ``None`` if it was skipped.
        serves: Whether that decides from now on; not while another version is pinned.
        hold: Why the gate should hold after it, if it should.
    """

    update: Update
    policy: Policy | None
    serves: bool
    hold: Hold | None = None


class Learner:
    """Runs the updates that are due, one after the other, in the thread that calls it.

    Args:
        store: A connection of its own.
        settings: Interval, limits, window, seed.
        holder: Names this learner in the lease.
        clock: Wall clock, epoch seconds; for the lease only.
        void: Told of a point where an option is no longer what it was, inside the transaction that
            stores so: what a running test has shown is no evidence any more.
        hold: Told why the gate should hold, and since when, inside the same transaction.
        ppo: How an update learns.
    """

    def __init__(  # noqa: PLR0913  # its parts and whom it tells, all keyword-only but two
        self,
        store: Store,
        settings: Settings,
        *,
        holder: str,
        clock: Callable[[], float] = time.time,
        void: Callable[[str, float], None] = lambda _point, _at: None,
        hold: Callable[[Hold, float], object] = lambda _hold, _at: None,
        ppo: PPOConfig = _AS_MEASURED,
    ) -> None:
        self._store = store
        self._void = void
        self._hold = hold
        self._settings = settings
        self._holder = holder
        self._clock = clock
        self._folder = checkpoint_folder(settings)
        self._ppo = ppo
        self._heads = Heads(store, settings, self._folder)

    def due(self, *, upto: int | None = None) -> list[str]:
        """Return the decision points whose update is due; an empty one is for runs without any.

        The point whose last update is the oldest comes first, so that a busy one starves no other.

        Args:
            upto: Counts only what had become ready by then, as of ``horizon``; ``None`` all.
        """
        policies, rewards = self._store.policies, self._store.rewards
        least = self._settings.update_interval
        points = []
        for point in (*rewards.ready_points(), ""):
            learned = policies.watermark(point)
            if upto is not None and learned >= upto:
                continue
            if rewards.ready_count(point, after=learned, upto=upto, limit=least) >= least:
                points.append(point)
        return sorted(points, key=policies.newest_update)

    def horizon(self) -> int:
        """Return the place of the newest rollout that may be learned from; 0 before the first."""
        return self._store.rewards.became_ready()

    def run_next(self, *, now: float | None, upto: int | None = None) -> Learned | None:
        """Run one update that is due; ``None`` when there is none or another learner is at it.

        Args:
            now: Epoch seconds, UTC, for what is stored; ``None`` takes the time at which the last
                of its rollouts was known, so that a replay stores the same whenever it runs.
            upto: As in ``due``.

        Raises:
            TauLiveError: The update failed; nothing of it was kept.
        """
        if not self.due(upto=upto):
            return None
        if not take_lease(
            self._store, self._holder, ttl_s=self._settings.lease_ttl_s, now=self._clock()
        ):
            return None
        fault.point("update.leased")
        try:
            points = self.due(upto=upto)  # again: another learner may have been at it until now
            if not points:
                return None
            return self._update(points[0], now=now) if points[0] else self._skip_runs(now=now)
        except LeaseLostError as error:
            logger().warning("lease_lost", holder=self._holder, error=str(error))
            return None
        finally:
            give_back(self._store, self._holder)

    def sweep(self) -> list[str]:
        """Delete what updates left behind that died, and return its names.

        Nothing happens while another learner is at work: it may be making a checkpoint.
        """
        store = self._store
        if not notes(store) and not left_behind(self._folder):
            return []
        ttl_s = self._settings.lease_ttl_s
        if not take_lease(store, self._holder, ttl_s=ttl_s, now=self._clock()):
            return []
        try:
            files = sweep(self._folder)
            for name, holder in notes(store).items():
                file = name.removeprefix(NOTE)
                with store.begin():  # or it might become known between the look and the deletion
                    known = file in {row.file for row in store.policies.versions()}
                    if not known and is_checkpoint(file) and (self._folder / file).exists():
                        (self._folder / file).unlink()
                        files.append(file)
                    store.leases.release(name, holder)
                fault.point("learner.swept")
        finally:
            give_back(store, self._holder)
        if files:
            logger().warning("unfinished_files_swept", files=files)
        return files

    def _has_lease(self) -> bool:
        return self._store.leases.acquire(
            LEASE, self._holder, ttl_s=self._settings.lease_ttl_s, now=self._clock()
        )

    def _update(self, point: str, *, now: float | None) -> Learned:
        began = time.perf_counter()
        seen = self._store.policies.watermark(point)
        learned = self._store.policies.watermark(point, executed=True)
        rewarded = self._store.trials.newest_reward()
        left, due = self._left_and_due(point, learned=learned, seen=seen)
        fresh = [*left, *due]
        head = self._heads.head(point)
        fault.point("update.read")
        result, new, watched = self._learn(point, head, fresh, learned=learned, rewarded=rewarded)
        fault.point("update.trained")
        reason = "no usable decisions"
        if result is not None:
            reason = result.skipped_reason or ("diverged, undone" if result.undone else "")
        report = self._report(result, new, watched)
        counts = counts_of(new, {example.rollout.rollout_id for example in due})
        if not reason and learned < seen:  # of skipped updates, it may not have had room for all
            waited = self._store.rewards.ready_count(point, after=learned, upto=seen)
            if waited > len(left):
                why, rollouts = WhyNot.NO_ROOM.value, waited - len(left)
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
            stored = self._store_update(_with_duration(row, began), None, watched, counts)
            return Learned(stored, None, False, watched.hold)
        watched = watched.without_doubt()
        return self._keep(row, head, result.state, watched, counts=counts, began=began)

    def _skip_runs(self, *, now: float | None) -> Learned:
        """Store that there are rollouts without a decision, of which nothing is learned.

        Hosts that never ask have no others, so these are not read.
        """
        began = time.perf_counter()
        seen = self._store.policies.watermark("")
        limit, rewards = self._settings.max_rollouts_per_update, self._store.rewards
        due = rewards.ready_summary("", after=seen, limit=LARGER * limit)
        left = rewards.ready_summary(
            "", after=0, upto=seen, limit=max(limit - due.rollouts, 0), newest=True
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
        return Learned(self._store_update(_with_duration(row, began), None, None, {}), None, False)

    def _store_update(
        self,
        row: Update,
        policy: PolicyVersion | None,
        watched: Watched | None,
        counts: Mapping[str, int],
    ) -> Update:
        """Store an update, what the monitors saw in it and what follows: all of it or nothing."""
        with self._store.begin():
            confirm(self._store, self._holder)
            stored = self._store.policies.add_update(row, policy)
            if policy is not None:
                settle(self._store, self._folder / policy.file, self._holder)
            self._store.counters.add(counts)
            if watched is not None:
                if watched.hold is not None:
                    self._hold(watched.hold, row.at)
                self._store.monitors.save(watched.monitor, watched.costs)
                if watched.outliers:
                    self._store.counters.add({"reward_outliers": watched.outliers})
                if watched.alarms:
                    self._store.counters.add({"drift_alarms": len(watched.alarms)})
                if any(map(is_worse, watched.alarms)):
                    self._void(row.point, row.at)
        fault.point("update.stored")
        for alarm in watched.alarms if watched else ():
            fields = {**alarm._asdict(), "direction": alarm.direction.value}
            logger().warning("option_changed", point=row.point, **fields)
        return stored

    def _left_and_due(
        self, point: str, *, learned: int, seen: int
    ) -> tuple[list[LearnableRollout], list[LearnableRollout]]:
        """Return what skipped updates could not learn from, and the next that are due.

        Each in its order; of the former the newest, as far as there is room. How many are due
        at once follows from the store alone, so that a replay makes the same updates again.
        """
        limit = self._settings.max_rollouts_per_update
        rewards = self._store.rewards
        due = rewards.ready_rollouts(point, after=seen, limit=limit)
        page = due
        while len(page) == limit and len(due) < LARGER * limit and _decisions(due) < MOST_DECISIONS:
            page = rewards.ready_rollouts(point, after=due[-1].rollout.ready_seq or 0, limit=limit)
            due = [*due, *page]
        room = limit - len(due)
        if room <= 0 or learned >= seen:
            return [], due
        return rewards.ready_rollouts(point, after=learned, upto=seen, limit=room, newest=True), due

    def _learn(
        self,
        point: str,
        head: Head,
        fresh: Sequence[LearnableRollout],
        *,
        learned: int,
        rewarded: int,
    ) -> tuple[Lesson | None, Collected, Watched]:
        """Return the update, ``None`` without anything usable; what it used, and what was seen."""
        monitor = self._store.monitors.monitor(point)
        more = max(len(fresh) - self._settings.max_rollouts_per_update, 0)
        older = self._store.rewards.ready_rollouts(
            point,
            after=monitor.since,
            upto=learned,
            limit=max(self._settings.window - more, 0),  # a larger update replays as many fewer
            newest=True,
        )
        at = known_at(fresh)
        lessons = Lessons(
            self._settings,
            self._ppo,
            point=point,
            versions=self._store.policies.versions(point, limit=VERSIONS_KNOWN),
            state=head.state,
            at=at,
        )
        charged = late_costs(self._store, monitor, self._settings, at=at)
        watched = watch_update(
            monitor,
            Seen(fresh, older, lessons.collect(fresh), at, charged, rewarded),
            settings=self._settings,
            state=head.state,
            config=self._ppo,
            difference=self._difference(point),
        )
        result, new = lessons.learnt(
            fresh,
            [] if watched.doubted else older,
            new=watched.new,
            price=watched.price,
            changed=watched.doubted,
            limits=watched.limits,
        )
        return result, new, watched

    def _report(self, result: Lesson | None, new: Collected, watched: Watched) -> dict[str, object]:
        left_out = {"left_out": by_reason(new.left_out)}
        if result is None:
            return {**left_out, **watched.report}
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
            **watched.report,
        }

    def _difference(self, point: str) -> tuple[float, float] | None:
        """Return the bounds of the difference to a champion; ``None`` where there is none."""
        trial = self._store.trials.trial(point)
        difference = trial.finding.get("difference")
        outside = trial.finding.get("verdict") == Verdict.OUT_OF_RANGE
        if trial.control is None or outside or not isinstance(difference, Mapping):
            return None
        return float(difference["lower"]), float(difference["upper"])

    def _keep(
        self,
        row: Update,
        head: Head,
        state: LearnerState,
        watched: Watched,
        *,
        counts: Mapping[str, int],
        began: float,
    ) -> Learned:
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
        sha256 = checkpoint.sha256
        if not self._has_lease():  # it took too long: another may be writing this very version
            raise LeaseLostError(f"update of '{row.point}' took longer than its lease")
        note(
            self._store,
            checkpoints.file_of(version, sha256),
            self._holder,
            ttl_s=self._settings.lease_ttl_s,
            now=self._clock(),
        )
        path = checkpoints.save(self._folder, checkpoint)
        fault.point("update.saved")
        stored = self._store_update(
            _with_duration(structs.replace(row, version=version), began),
            PolicyVersion(
                version=version,
                point=row.point,
                parent=head.version,
                algorithm=ALGORITHM,
                sha256=sha256,
                file=path.name,
                rollouts=state.policy.rollouts,
                created_at=row.at,
                metadata=metadata,
            ),
            watched,
            counts,
        )
        self._heads.keep(row.point, Head(version, sha256, state))
        self._heads.prune()
        serving = self._store.policies.in_service()[row.point]
        return Learned(stored, state.policy, serving.version == version, watched.hold)


def report_of(row: Update) -> dict[str, object]:
    """Return an update as one flat report, the reference's fields first."""
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
