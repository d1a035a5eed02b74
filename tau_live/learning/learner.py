"""When an update is due, the lease, the update itself, and its report.

An update takes finished and rewarded rollouts that no update of the decision point has learned
from, counted in the store. Only the holder of the lease updates, and the store accepts an update,
its watermark and its version in one transaction or not at all: over any crash each rollout is
learned from once.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

from tau_live import fault
from tau_live.breath import Breathe, at_once
from tau_live.errors import LeaseLostError
from tau_live.guard import logger
from tau_live.handed.reading import mapping
from tau_live.learning import unfinished
from tau_live.learning.heads import Head, Heads
from tau_live.learning.lease import LEASE, confirm, give_back, taken
from tau_live.learning.lessons import VERSIONS_KNOWN, Lessons, by_reason, known_at
from tau_live.learning.monitoring import Seen, Watched, is_worse, watched
from tau_live.learning.quality import Hold
from tau_live.learning.safety_price import late_of
from tau_live.learning.trajectories import Collected, counts_of
from tau_live.policies import checkpoints
from tau_live.policies.files import checkpoint_folder
from tau_live.reasons import LEFT_OUT, WhyNot
from tau_live.rl.policy import Policy
from tau_live.rl.ppo import LearnerState, PPOConfig
from tau_live.rl.ppo import Update as Lesson
from tau_live.rl.verdict import Verdict
from tau_live.settings import Settings
from tau_live.store.records import LearnableRollout, PolicyVersion, Update
from tau_live.store.roles import Store

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
        policy: What it made; ``None`` if it was skipped.
        serves: Whether that decides from now on; not while another version is pinned.
        hold: Why the gate should hold after it, if it should.
    """

    update: Update
    policy: Policy | None
    serves: bool
    hold: Hold | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What an update came to, before it is stored."""

    state: LearnerState | None = None
    skipped_reason: str | None = None
    trajectories: int = 0
    samples: int = 0
    report: Mapping[str, object] = field(default_factory=dict)
    watched: Watched | None = None
    new: Collected | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def hold(self) -> Hold | None:
        return self.watched.hold if self.watched else None

    def leaving(self, rollouts: int) -> "_Outcome":
        """Return the same with so many rollouts of skipped updates that it had no room for."""
        if not rollouts:
            return self
        why = WhyNot.NO_ROOM.value
        left_out = {**mapping(self.report.get("left_out")), why: rollouts}
        return replace(
            self,
            report={**self.report, "left_out": left_out},
            counts={**self.counts, f"{LEFT_OUT}{why}": rollouts},
        )


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
        breathe: Called between the parts of an update.
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
        breathe: Breathe = at_once,
    ) -> None:
        self._store = store
        self._void = void
        self._hold = hold
        self._settings = settings
        self._holder = holder
        self._clock = clock
        self._folder = checkpoint_folder(settings)
        self._ppo = ppo
        self._breathe = breathe
        self._heads = Heads(store, settings, self._folder)

    def due(self, *, upto: int | None = None) -> list[str]:
        """Return the decision points whose update is due; an empty one is for runs without any.

        The point whose last update is the oldest comes first, so that a busy one starves no other.

        Args:
            upto: Counts only what had become ready by then, as ``horizon`` told; ``None`` all.
        """
        policies, rewards = self._store.policies, self._store.rewards
        least = self._settings.update_interval
        found = []
        for point in (*rewards.ready_points(), ""):
            learned = policies.watermark(point)
            if upto is not None and learned >= upto:
                continue
            if rewards.ready_count(point, after=learned, upto=upto, limit=least) >= least:
                found.append(point)
        return sorted(found, key=policies.newest_update)

    def horizon(self) -> int:
        """Return the place of the newest rollout that may be learned from; 0 before the first."""
        rewards = self._store.rewards
        newest = (
            rewards.ready_rollouts(point, after=0, limit=1, newest=True)
            for point in (*rewards.ready_points(), "")
        )
        return max((one.rollout.ready_seq or 0 for page in newest for one in page), default=0)

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
        if not taken(
            self._store, self._holder, ttl_s=self._settings.lease_ttl_s, now=self._clock()
        ):
            return None
        fault.point("update.leased")
        try:
            points = self.due(upto=upto)  # again: another learner may have been at it until now
            if not points:
                return None
            return self._update(points[0], now=now) if points[0] else self._passed(now=now)
        except LeaseLostError as error:
            logger().warning("lease_lost", holder=self._holder, error=str(error))
            return None
        finally:
            give_back(self._store, self._holder)

    def sweep(self) -> list[str]:
        """Delete what updates left behind that died, and return its names.

        Nothing happens while another learner is at work.
        """
        if not unfinished.has_left(self._store, self._folder):
            return []
        ttl_s = self._settings.lease_ttl_s
        if not taken(self._store, self._holder, ttl_s=ttl_s, now=self._clock()):
            return []
        try:
            found = unfinished.swept(self._store, self._folder)
        finally:
            give_back(self._store, self._holder)
        if found:
            logger().warning("unfinished_files_swept", files=found)
        return found

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
        outcome = self._outcome(point, head, fresh, learned=learned, rewarded=rewarded)
        fault.point("update.trained")
        row = Update(
            update=0,
            point=point,
            executed=outcome.state is not None,
            skipped_reason=outcome.skipped_reason,
            version=None,
            parent=head.version,
            first_ready=fresh[0].rollout.ready_seq or 0,
            last_ready=fresh[-1].rollout.ready_seq or 0,
            trajectories=outcome.trajectories,
            samples=outcome.samples,
            at=known_at(fresh) if now is None else now,
            report=outcome.report,
        )
        ids = {one.rollout.rollout_id for one in due}
        outcome = replace(outcome, counts=counts_of(outcome.new, ids))
        if outcome.state is not None and learned < seen:
            waited = self._store.rewards.ready_count(point, after=learned, upto=seen)
            outcome = outcome.leaving(waited - len(left))
            row = replace(row, report=outcome.report)
        if outcome.state is None:
            stored = self._stored(_timed(row, began), None, outcome)
            return Learned(stored, None, False, outcome.hold)
        return self._keep(row, head, outcome, began=began)

    def _passed(self, *, now: float | None) -> Learned:
        """Store that there are rollouts without a decision, of which nothing is learned.

        Hosts that never ask have no others, so these are not read.
        """
        began = time.perf_counter()
        seen = self._store.policies.watermark("")
        limit, rewards = self._settings.max_rollouts_per_update, self._store.rewards
        due = rewards.passed("", after=seen, limit=LARGER * limit)
        left = rewards.passed(
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
        return Learned(self._stored(_timed(row, began), None, _Outcome()), None, False)

    def _stored(self, row: Update, policy: PolicyVersion | None, outcome: _Outcome) -> Update:
        """Store an update, what the monitors saw in it and what follows: all of it or nothing."""
        watched = outcome.watched
        with self._store.begin():
            confirm(self._store, self._holder)
            stored = self._store.policies.add_update(row, policy)
            if policy is not None:
                unfinished.settle(self._store, self._folder / policy.file, self._holder)
            self._store.counters.add(outcome.counts)
            if outcome.hold is not None:
                self._hold(outcome.hold, row.at)
            if watched is not None:
                self._store.monitors.save(watched.monitor, watched.costs)
                if watched.outliers:
                    self._store.counters.add({"reward_outliers": watched.outliers})
                if watched.alarms:
                    self._store.counters.add({"drift_alarms": len(watched.alarms)})
                if any(map(is_worse, watched.alarms)):
                    self._void(row.point, row.at)
        fault.point("update.stored")
        for alarm in watched.alarms if watched else ():
            said = {**alarm._asdict(), "direction": alarm.direction.value}
            logger().warning("option_changed", point=row.point, **said)
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

    def _outcome(
        self,
        point: str,
        head: Head,
        fresh: Sequence[LearnableRollout],
        *,
        learned: int,
        rewarded: int,
    ) -> _Outcome:
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
            breathe=self._breathe,
        )
        late = late_of(self._store, monitor, self._settings, at=at, rewarded=rewarded)
        watch = watched(
            monitor,
            Seen(fresh, older, lessons.collected(fresh), at, late),
            settings=self._settings,
            state=head.state,
            config=self._ppo,
            difference=self._difference(point),
        )
        result, new = lessons.learnt(
            fresh,
            [] if watch.doubted else older,
            new=watch.new,
            price=watch.price,
            changed=watch.doubted,
            limits=watch.limits,
        )
        if result is None or new.trajectories is None:
            report = {"left_out": by_reason(new.left_out), **watch.report}
            why = "no usable decisions"
            return _Outcome(skipped_reason=why, report=report, watched=watch, new=new)
        return self._told(result, new, watch, samples=len(new.trajectories.encoded))

    def _told(self, result: Lesson, new: Collected, watch: Watched, *, samples: int) -> _Outcome:
        """Return what an update came to that had something to learn from."""
        reason = result.skipped_reason or ("diverged, undone" if result.undone else None)
        return _Outcome(
            state=None if reason else result.state,
            skipped_reason=reason,
            trajectories=len(new.rollout_ids),
            samples=samples,
            report={
                **asdict(result.diagnostics),
                "samples_with_window": result.diagnostics.samples,
                "mean_total_loss": result.diagnostics.total_loss,
                "observed_approx_kl": result.diagnostics.kl_k3,
                "early_stop_triggered": result.diagnostics.early_stop,
                "left_out": by_reason(new.left_out),
                "critic_only": by_reason(new.critic_only),
                "checkpoint_diagnostics": self._heads.told(),
                **watch.report,
            },
            watched=watch if reason else watch.learned(),
            new=new,
        )

    def _difference(self, point: str) -> tuple[float, float] | None:
        """Return the bounds of the difference to a champion; ``None`` where there is none."""
        trial = self._store.trials.trial(point)
        difference = trial.finding.get("difference")
        outside = trial.finding.get("verdict") == Verdict.OUT_OF_RANGE
        if trial.control is None or outside or not isinstance(difference, Mapping):
            return None
        return float(difference["lower"]), float(difference["upper"])

    def _keep(self, row: Update, head: Head, outcome: _Outcome, *, began: float) -> Learned:
        state = outcome.state or head.state
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
        unfinished.note(
            self._store,
            checkpoints.file_of(version, sha256),
            self._holder,
            ttl_s=self._settings.lease_ttl_s,
            now=self._clock(),
        )
        path = checkpoints.save(self._folder, checkpoint, breathe=self._breathe)
        fault.point("update.saved")
        stored = self._stored(
            _timed(replace(row, version=version), began),
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
            outcome,
        )
        self._heads.keep(row.point, Head(version, sha256, state))
        self._heads.prune()
        serving = self._store.policies.in_service()[row.point]
        return Learned(stored, state.policy, serving.version == version, outcome.hold)


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


def _timed(row: Update, began: float) -> Update:
    return replace(row, report={**row.report, "duration_s": time.perf_counter() - began})


def _decisions(rollouts: Sequence[LearnableRollout]) -> int:
    return sum(len(one.decisions) for one in rollouts)
