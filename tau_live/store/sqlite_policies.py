"""Versions of policies, what serves, and the updates that made them, in SQLite."""

from sqlite3 import Row

from tau_live import fault
from tau_live.errors import DuplicateError, StoreError, UnknownError
from tau_live.store.connection import Connection
from tau_live.store.json_text import json_of, mapping_of
from tau_live.store.records import InService, PolicyVersion, Update
from tau_live.store.sqlite_numbers import next_number

WATERMARK = "select last_ready from updates where point = ? order by last_ready desc limit 1"
LEARNED = (
    "select last_ready from updates where point = ? and executed order by last_ready desc limit 1"
)
NEWEST_UPDATE = "select coalesce(max(number), 0) from updates where point = ?"

INSERT_UPDATE = """
insert into updates (
    point, executed, skipped_reason, version, parent, first_ready, last_ready, trajectories,
    samples, at, report
)
select :point, :executed, :skipped_reason, :version, :parent, :first_ready, :last_ready,
    :trajectories, :samples, :at, :report
where :last_ready > (select coalesce(max(last_ready), 0) from updates where point = :point)
returning *
"""

INSERT_POLICY = """
insert into policies (
    version, point, parent, algorithm, sha256, file, rollouts, created_at, metadata
)
select :version, :point, :parent, :algorithm, :sha256, :file, :rollouts, :created_at, :metadata
where :version > (select value from sequences where name = 'policy')
"""


class SqlitePolicies:
    """Implements ``Policies``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def next_version(self) -> int:
        """Return the number that the next version will have; none is given twice."""
        return next_number(self._connection, "policy")

    def add_update(self, update: Update, policy: PolicyVersion | None) -> Update:
        """Store an update and, if it made one, its version and put that into service."""
        with self._connection.begin():
            row = self._connection.row(
                INSERT_UPDATE,
                {
                    "point": update.point,
                    "executed": update.executed,
                    "skipped_reason": update.skipped_reason,
                    "version": update.version,
                    "parent": update.parent,
                    "first_ready": update.first_ready,
                    "last_ready": update.last_ready,
                    "trajectories": update.trajectories,
                    "samples": update.samples,
                    "at": update.at,
                    "report": json_of(update.report),
                },
            )
            if row is None:
                raise StoreError(
                    f"the rollouts of decision point '{update.point}' up to {update.last_ready} "
                    f"have already been learned from (up to {self.watermark(update.point)})"
                )
            fault.point("policies.added")
            if policy is not None:
                self._add_version(policy)
        return update_of(row)

    def watermark(self, point: str, *, executed: bool = False) -> int:
        """Return the ``last_ready`` of the newest update of a point; 0 before the first."""
        row = self._connection.row(LEARNED if executed else WATERMARK, (point,))
        return row["last_ready"] if row else 0

    def newest_update(self, point: str) -> int:
        """Return the number of the newest update of a point; 0 before the first."""
        return self._connection.count(NEWEST_UPDATE, (point,))

    def updates(self, *, limit: int | None = None, point: str | None = None) -> list[Update]:
        """Return updates, newest first."""
        rows = self._connection.rows(
            f"""
            select * from updates {"" if point is None else "where point = :point"}
            order by number desc limit :limit
            """,
            {"point": point, "limit": -1 if limit is None else limit},
        )
        return [update_of(row) for row in rows]

    def versions(
        self, point: str | None = None, *, limit: int | None = None
    ) -> list[PolicyVersion]:
        """Return versions by number, of which only the newest ``limit``."""
        rows = self._connection.rows(
            f"""
            select * from policies {"" if point is None else "where point = :point"}
            order by version desc limit :limit
            """,
            {"point": point, "limit": -1 if limit is None else limit},
        )
        return [policy_of(row) for row in reversed(rows)]

    def version(self, version: int) -> PolicyVersion:
        """Return one version. Raises: UnknownError."""
        row = self._connection.row("select * from policies where version = ?", (version,))
        if row is None:
            raise UnknownError("policy", version)
        return policy_of(row)

    def in_service(self) -> dict[str, InService]:
        """Return what serves, by decision point."""
        rows = self._connection.rows("select * from in_service order by point")
        return {row["point"]: in_service_of(row) for row in rows}

    def put_in_service(self, point: str, version: int, *, pinned: bool, at: float) -> InService:
        """Let a version decide; 0 is the untrained policy. Raises: UnknownError."""
        row = self._connection.row(
            """
            insert into in_service (point, version, pinned, changed_at, revision)
            select :point, :version, :pinned, :at, 1
            where :version = 0
            or exists (select 1 from policies where version = :version and point = :point)
            on conflict (point) do update set version = excluded.version,
                pinned = excluded.pinned, changed_at = excluded.changed_at, revision = revision + 1
            returning *
            """,
            {"point": point, "version": version, "pinned": pinned, "at": at},
        )
        if row is None:
            raise UnknownError("policy", version)
        return in_service_of(row)

    def _add_version(self, policy: PolicyVersion) -> None:
        added = self._connection.change(
            INSERT_POLICY,
            {
                "version": policy.version,
                "point": policy.point,
                "parent": policy.parent,
                "algorithm": policy.algorithm,
                "sha256": policy.sha256,
                "file": policy.file,
                "rollouts": policy.rollouts,
                "created_at": policy.created_at,
                "metadata": json_of(policy.metadata),
            },
        )
        if not added:
            raise DuplicateError("policy", policy.version)
        self._connection.change(
            "update sequences set value = ? where name = 'policy'", (policy.version,)
        )
        self._connection.change(
            """
            insert into in_service (point, version, pinned, changed_at, revision)
            values (?, ?, 0, ?, 1)
            on conflict (point) do update set version = excluded.version,
                changed_at = excluded.changed_at, revision = revision + 1
            where not pinned
            """,
            (policy.point, policy.version, policy.created_at),
        )


def update_of(row: Row) -> Update:
    """Return the update that a row of ``updates`` holds."""
    return Update(
        update=row["number"],
        point=row["point"],
        executed=bool(row["executed"]),
        skipped_reason=row["skipped_reason"],
        version=row["version"],
        parent=row["parent"],
        first_ready=row["first_ready"],
        last_ready=row["last_ready"],
        trajectories=row["trajectories"],
        samples=row["samples"],
        at=row["at"],
        report=mapping_of(row["report"]),
    )


def policy_of(row: Row) -> PolicyVersion:
    """Return the version that a row of ``policies`` holds."""
    return PolicyVersion(
        version=row["version"],
        point=row["point"],
        parent=row["parent"],
        algorithm=row["algorithm"],
        sha256=row["sha256"],
        file=row["file"],
        rollouts=row["rollouts"],
        created_at=row["created_at"],
        metadata=mapping_of(row["metadata"]),
    )


def in_service_of(row: Row) -> InService:
    """Return what a row of ``in_service`` holds."""
    return InService(
        point=row["point"],
        version=row["version"],
        pinned=bool(row["pinned"]),
        changed_at=row["changed_at"],
        revision=row["revision"],
    )
