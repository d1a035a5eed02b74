"""What may be forgotten, in SQLite."""

from tau_live import fault
from tau_live.store.connection import Connection
from tau_live.store.sqlite_seals import SqliteSeals

FREE_PAGES_PER_STEP = 256
SEALS_FOR_EACH = 4
"""So many seals of the beginning are looked at for each row that goes."""

FORGETTABLE = """
select seq, rollout_id from rollouts
where ended_at < :before and status in ('succeeded', 'failed', 'cancelled')
and not exists (select 1 from awaiting where awaiting.rollout_seq = rollouts.seq)
and not exists (
    select 1 from ready_points
    where ready_points.rollout_seq = rollouts.seq and point <> ''
    and ready_points.ready_seq > (
        select coalesce(max(last_ready), 0) from updates where updates.point = ready_points.point
    )
)
and not exists (
    select 1 from arms where arms.rollout_seq = rollouts.seq
    and arms.place > (
        select coalesce(max(watermark), 0) from trials where trials.point = arms.point
    )
)
order by ended_at limit :limit
"""


class SqliteRetention:
    """Implements ``Retention``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def collect(self, *, before: float, limit: int) -> int:
        """Delete up to ``limit`` rollouts that ended before a time, with all that is theirs.

        A rollout without decisions has nothing that could be learned and does not wait for a
        watermark. The watermark is the schedule's: what a skipped update has looked at may go,
        or an agent whose reward never differs would fill the disk. Rewards for rollouts that
        never came go with those of their age.
        """
        seals = SqliteSeals(self._connection)
        with self._connection.begin():
            sealed = seals.head().place
            rows = self._connection.rows(FORGETTABLE, {"before": before, "limit": limit})
            seqs = [(row["seq"],) for row in rows]
            ids = [(row["rollout_id"],) for row in rows]
            self._connection.change_many("delete from rewards where rollout_id = ?", ids)
            fault.point("retention.rewarded")
            self._connection.change_many("delete from rollouts where seq = ?", seqs)
            self._connection.change(
                """
                delete from rewards where seq in (
                    select seq from rewards where at < :before and not exists (
                        select 1 from rollouts where rollouts.rollout_id = rewards.rollout_id
                    ) order by at limit :limit
                )
                """,
                {"before": before, "limit": limit},
            )
            seals.prune(SEALS_FOR_EACH * (seals.head().place - sealed))
        return len(rows)

    def count(self, *, before: float, limit: int) -> int:
        """Return how many rollouts ``collect`` would delete, counted up to ``limit``."""
        return len(self._connection.rows(FORGETTABLE, {"before": before, "limit": limit}))

    def vacuum(self) -> None:
        """Give free pages back to the file system, in steps, each a short transaction."""
        free = self._connection.count("pragma freelist_count")
        while free:
            self._connection.rows(f"pragma incremental_vacuum({FREE_PAGES_PER_STEP})")
            fault.point("retention.vacuumed")
            before, free = free, self._connection.count("pragma freelist_count")
            if free >= before:  # a copy that was made without incremental vacuum
                break
        self._connection.rows("pragma wal_checkpoint(truncate)")
