"""Versions of policies, which of them serve, and the updates that made them, in SQLite."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from tau_live.core import fault
from tau_live.core.errors import DuplicateError, OddRowError, StoreError, UnknownError
from tau_live.core.records import (
    NO_COSTS,
    Charged,
    CostsSeen,
    InService,
    Monitor,
    PolicyVersion,
    Update,
)
from tau_live.store.sql.connection import Connection, Row, json_of, mapping_of, next_number
from tau_live.store.sql.rewards import GIVEN, REWARDS_OF
from tau_live.store.sql.rows import (
    columns_of,
    odd_row,
    record_of,
    report,
    reward_of,
    rollout_of,
    sound,
    sound_page,
)

if TYPE_CHECKING:
    from tau_live.core.records import Reward

WATERMARK = f"""
select last_ready from updates where point = ? and last_ready <= {GIVEN}
order by last_ready desc limit 1
"""
LEARNED = f"""
select last_ready from updates where point = ? and executed and last_ready <= {GIVEN}
order by last_ready desc limit 1
"""
MOST = 2**60
"""A number beyond it is odd."""

NEXT_REVISION = f"iif(in_service.revision between 0 and {MOST}, in_service.revision, 0) + 1"
HIGHEST = f"select coalesce(max(version), 0) from policies where version < {MOST}"
NEWEST_UPDATE = "select coalesce(max(number), 0) from updates where point = ?"

INSERT_UPDATE = f"""
insert into updates (
    point, executed, skipped_reason, version, parent, first_ready, last_ready, trajectories,
    samples, at, report
)
select :point, :executed, :skipped_reason, :version, :parent, :first_ready, :last_ready,
    :trajectories, :samples, :at, :report
where :last_ready > (
    select coalesce(max(last_ready), 0) from updates where point = :point and last_ready <= {GIVEN}
)
returning *
"""

INSERT_POLICY = """
insert into policies (
    version, point, parent, algorithm, sha256, file, rollouts, created_at, metadata
)
select :version, :point, :parent, :algorithm, :sha256, :file, :rollouts, :created_at, :metadata
where :version > (select value from sequences where name = 'policy')
"""


class Policies:
    """Versions of policies, which of them serve, and the updates that made them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def next_version(self) -> int:
        """Return the number of the next version; no number is used twice."""
        highest = self._connection.count(HIGHEST)
        return max(next_number(self._connection, "policy"), highest + 1)

    def add_update(self, update: Update, policy: PolicyVersion | None) -> Update:
        """Store an update and, if it made one, its version, and put that into service.

        One transaction: the update, the watermark, the version, and the pointer to it unless
        the point is pinned. The store assigns ``update.update``. A watermark that is not beyond
        the last one of the point is refused.

        Raises:
            StoreError: Another learner has already learned from these rollouts.
        """
        with self._connection.begin():
            row = self._connection.row(INSERT_UPDATE, columns_of(update))
            if row is None:
                raise StoreError(
                    f"the rollouts of decision point '{update.point}' up to {update.last_ready} "
                    f"have already been learned from (up to {self.watermark(update.point)})"
                )
            fault.point("policies.added")
            if policy is not None:
                self._add_version(policy)
        return record_of(Update, row, update=row["number"])

    def watermark(self, point: str, *, executed: bool = False) -> int:
        """Return the ``last_ready`` of the newest update of a point; 0 before the first.

        With ``executed``, of the newest that learned something: a skipped update moves the
        schedule on, but its rollouts are still to be learned from.
        """
        row = self._connection.row(LEARNED if executed else WATERMARK, (point,))
        return row["last_ready"] if row else 0

    def newest_update(self, point: str) -> int:
        """Return the number of the newest update of a point; 0 before the first."""
        return self._connection.count(NEWEST_UPDATE, (point,))

    def updates(self, *, limit: int | None = None, point: str | None = None) -> list[Update]:
        """Return updates, newest first."""
        where = "" if point is None else "where point = :point"
        return sound_page(
            self._connection,
            f"select * from updates {where} order by number desc",
            {"point": point},
            lambda row: record_of(Update, row, update=row["number"]),
            limit=limit,
        )

    def versions(
        self, point: str | None = None, *, limit: int | None = None
    ) -> list[PolicyVersion]:
        """Return the newest ``limit`` versions, by number."""
        where = "" if point is None else "where point = :point"
        newest = sound_page(
            self._connection,
            f"select * from policies {where} order by version desc",
            {"point": point},
            partial(record_of, PolicyVersion),
            limit=limit,
        )
        return newest[::-1]

    def version(self, version: int) -> PolicyVersion:
        """Return one version. Raises: UnknownError, OddRowError."""
        row = self._connection.row("select * from policies where version = ?", (version,))
        if row is None:
            raise UnknownError("policy", version)
        return record_of(PolicyVersion, row)

    def before(self, point: str, version: int) -> int:
        """Return the parent of a version; where its row is missing or odd, the one before it.

        0 is the untrained policy.
        """
        with suppress(UnknownError, OddRowError):
            parent = self.version(version).parent
            if parent < version:
                return parent
        return max(
            (row.version for row in self.versions(point) if row.version < version), default=0
        )

    def in_service(self) -> dict[str, InService]:
        """Return the versions in service, by decision point.

        Where the row is odd, its version counts if it can be read, or else the newest one; pinned,
        because an operator may have chosen it.
        """
        rows = self._connection.rows("select * from in_service order by point")
        return {serving.point: serving for serving in map(self._in_service_of, rows)}

    def _in_service_of(self, row: Row) -> InService:
        try:
            return record_of(InService, row)
        except OddRowError as error:
            report(error)
        version, point = row["version"], str(row["point"])
        if not isinstance(version, int) or version < 0:
            version = max((known.version for known in self.versions(point)), default=0)
        return InService(point=point, version=version, pinned=True, changed_at=0.0, revision=0)

    def put_in_service(self, point: str, version: int, *, pinned: bool, at: float) -> InService:
        """Let a version decide; 0 is the untrained policy. Raises: UnknownError."""
        row = self._connection.row(
            f"""
            insert into in_service (point, version, pinned, changed_at, revision)
            select :point, :version, :pinned, :at, 1
            where :version = 0
            or exists (select 1 from policies where version = :version and point = :point)
            on conflict (point) do update set version = excluded.version,
                pinned = excluded.pinned, changed_at = excluded.changed_at,
                revision = {NEXT_REVISION}
            returning *
            """,
            {"point": point, "version": version, "pinned": pinned, "at": at},
        )
        if row is None:
            raise UnknownError("policy", version)
        return record_of(InService, row)

    def _add_version(self, policy: PolicyVersion) -> None:
        if not self._connection.change(INSERT_POLICY, columns_of(policy)):
            raise DuplicateError("policy", policy.version)
        self._connection.change(
            "update sequences set value = ? where name = 'policy'", (policy.version,)
        )
        self._connection.change(
            f"""
            insert into in_service (point, version, pinned, changed_at, revision)
            values (?, ?, false, ?, 1)
            on conflict (point) do update set version = excluded.version,
                changed_at = excluded.changed_at,
                revision = {NEXT_REVISION}
            where not in_service.pinned
            """,
            (policy.point, policy.version, policy.created_at),
        )


SAVE = f"""
insert into monitors (point, watermark, since, numbers, alarms)
values (:point, :watermark, :since, :numbers, :alarms)
on conflict (point) do update set watermark = excluded.watermark,
    since = excluded.since, numbers = excluded.numbers, alarms = excluded.alarms
where excluded.watermark > monitors.watermark
or monitors.watermark > {GIVEN}
"""

REWARDED_LATE = """
select rollouts.*, cost from rewards
cross join rollouts using (rollout_id)
cross join ready_points on ready_points.rollout_seq = rollouts.seq and ready_points.point = :point
where rewards.seq > :rewarded and ready_points.ready_seq <= :ready
"""

WAITED = """
select rollouts.*, cost from rollouts
cross join ready_points on ready_points.rollout_seq = rollouts.seq and ready_points.point = :point
where rollouts.ended_at >= :at - :wait_s - 1.0 and rollouts.ended_at <= :now - :wait_s + 1.0
and rollouts.ended_at + :wait_s > :at and rollouts.ended_at + :wait_s <= :now
and ready_points.ready_seq <= :ready
"""
"""The first range is for the index; the second is exactly when a deadline is over."""


class Monitors:
    """The memory of each decision point's monitors between two updates."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def monitors(self) -> dict[str, Monitor]:
        """Return every monitor by its point."""
        rows = self._connection.rows("select * from monitors order by point")
        return {monitor.point: monitor for monitor in sound(rows, monitor_of)}

    def monitor(self, point: str) -> Monitor:
        """Return the monitor of a point; an empty one if none is stored, or its row is odd."""
        rows = self._connection.rows("select * from monitors where point = ?", (point,))
        return next(iter(sound(rows, monitor_of)), Monitor(point=point))

    def save(self, monitor: Monitor, costs: Mapping[int, float] = NO_COSTS) -> bool:
        """Store a monitor if it has seen more than the stored one; ``False`` if not.

        Call it in the transaction of the update whose rollouts it has seen.

        Args:
            monitor: The monitor.
            costs: The costs of rollouts as the multiplier counted them, by ``ready_seq``.
        """
        with self._connection.begin():
            saved = self._connection.change(
                SAVE, columns_of(monitor) | {"alarms": json_of({"alarms": monitor.alarms})}
            )
            if saved:
                self._connection.change_many(
                    "update ready_points set cost = ? where point = ? and ready_seq = ?",
                    [(cost, monitor.point, ready_seq) for ready_seq, cost in costs.items()],
                )
        return saved > 0

    def cost_candidates(
        self, point: str, seen: CostsSeen, *, at: float, waits: Sequence[float]
    ) -> list[Charged]:
        """Return rollouts whose cost may differ from the one counted, by ``ready_seq``.

        Those that got a reward since, and those whose wait for a reward has ended since.

        Args:
            point: The decision point.
            seen: How far costs were counted before.
            at: Epoch seconds, UTC; only waits that have ended by then.
            waits: Seconds that rewards are waited for after the end of a rollout.
        """
        where = {"point": point, **seen._asdict(), "now": at}
        with self._connection.reading():
            late = self._connection.rows(REWARDED_LATE, where)
            for wait_s in waits:
                late += self._connection.rows(WAITED, {**where, "wait_s": wait_s})
            rows = {row["ready_seq"]: row for row in late}
            ids = json_of([row["rollout_id"] for row in rows.values()])
            rewards: dict[str, list[Reward]] = {}
            for reward in sound(self._connection.rows(REWARDS_OF, (ids,)), reward_of):
                rewards.setdefault(reward.rollout_id, []).append(reward)
        return sound(
            (row for _, row in sorted(rows.items())),
            lambda row: Charged(rollout_of(row), rewards.get(row["rollout_id"], []), row["cost"]),
        )


def monitor_of(row: Row) -> Monitor:
    """Return the monitor in a row of ``monitors``. Raises: OddRowError."""
    try:
        alarms = mapping_of(row["alarms"])["alarms"]
    except (ValueError, TypeError, KeyError) as error:
        raise odd_row("monitors", row["point"], error, column="alarms") from error
    return record_of(Monitor, row, alarms=alarms)
