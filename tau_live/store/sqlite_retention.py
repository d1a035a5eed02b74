"""What may be forgotten, in SQLite; the one place where rollouts are deleted."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from sqlite3 import Row

from tau_live import fault
from tau_live.store.connection import Connection
from tau_live.store.json_text import json_of
from tau_live.store.keeping import OLDEST, Archive, Kept, Place, Size, Swept
from tau_live.store.sqlite_export import archived, archived_rewards
from tau_live.store.sqlite_seals import SqliteSeals

FREE_PAGES_PER_STEP = 256
SEALS_FOR_EACH = 4
"""So many seals of the beginning are looked at for each row that goes."""

KEPT = """
case
    when status not in ('succeeded', 'failed', 'cancelled') then 'open'
    when exists (select 1 from awaiting where awaiting.rollout_seq = rollouts.seq) then 'waiting'
    when exists (
        select 1 from ready_points
        where ready_points.rollout_seq = rollouts.seq and point <> ''
        and ready_points.ready_seq > (
            select coalesce(max(last_ready), 0) from updates
            where updates.point = ready_points.point
        )
    ) then 'unlearned'
    when exists (
        select 1 from arms where arms.rollout_seq = rollouts.seq
        and arms.place > (
            select coalesce(max(watermark), 0) from trials where trials.point = arms.point
        )
    ) then 'uncounted'
end
"""
"""What keeps a rollout; null where nothing does."""

OLD_ROLLOUTS = f"""
select seq, ended_at as at, {KEPT} as kept from rollouts
where ended_at >= :at and ended_at < :before and (ended_at > :at or seq > :seq)
order by ended_at, seq limit :look
"""

FREE_ROLLOUTS = f"""
select seq, rollout_id from rollouts
where seq in (select value from json_each(:seqs)) and {KEPT} is null order by seq
"""

OLD_REWARDS = """
select seq, at, iif(
    exists (select 1 from rollouts where rollouts.rollout_id = rewards.rollout_id), 'known', null
) as kept
from rewards where at >= :at and at < :before and (at > :at or seq > :seq)
order by at, seq limit :look
"""


class SqliteRetention:
    """Implements ``Retention``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def collect(self, *, before: float, limit: int) -> int:
        """Forget up to ``limit`` rollouts that ended before a time, and rewards of that age."""
        gone = self.sweep(before=before, limit=limit).gone
        self.sweep_rewards(before=before, limit=limit)
        return gone

    def sweep(
        self,
        *,
        before: float,
        limit: int,
        look: int | None = None,
        after: Place = OLDEST,
        archive: Archive | None = None,
    ) -> Swept:
        """Forget up to ``limit`` rollouts of the next ``look``, the oldest ends first.

        A rollout without decisions has nothing that could be learned and does not wait for a
        watermark. The watermark is the schedule's: what a skipped update has looked at may go,
        or an agent whose reward never differs would fill the disk.
        """
        seqs, until, place = self._walked(OLD_ROLLOUTS, before, limit, look=look, after=after)
        if not seqs:
            return Swept(0, None, place)
        safe = None
        if archive is not None:
            safe = archived(self._connection, seqs)
            archive(safe)  # outside the transaction: its disk may be slow, and others write
        with self._connection.begin():
            rows = self._connection.rows(FREE_ROLLOUTS, {"seqs": json_of(seqs)})
            free = [row["seq"] for row in rows]
            if safe is not None and archived(self._connection, free) != safe:
                return Swept(0, None, after)  # something changed meanwhile: once more
            forget(self._connection, rows)
        return Swept(len(rows), until, place)

    def sweep_rewards(
        self,
        *,
        before: float,
        limit: int,
        look: int | None = None,
        after: Place = OLDEST,
        archive: Archive | None = None,
    ) -> Swept:
        """Forget up to ``limit`` of the next ``look`` rewards whose rollout never came."""
        seqs, until, place = self._walked(OLD_REWARDS, before, limit, look=look, after=after)
        if seqs and archive is not None:
            archive(archived_rewards(self._connection, seqs))
        if not seqs:
            return Swept(0, None, place)
        with self._connection.begin(), _pruned(self._connection):
            gone = self._connection.change(
                """
                delete from rewards where seq in (select value from json_each(?)) and not exists (
                    select 1 from rollouts where rollouts.rollout_id = rewards.rollout_id
                )
                """,
                (json_of(seqs),),
            )
        return Swept(gone, until, place)

    def count(self, *, before: float, limit: int) -> int:
        """Return how many rollouts ``collect`` would forget, counted up to ``limit``."""
        return len(self._walked(OLD_ROLLOUTS, before, limit, look=None, after=OLDEST)[0])

    def kept(self, *, before: float, look: int) -> Kept:
        """Return what keeps the oldest ``look`` rollouts that ended before a time."""
        asked = {"before": before, "look": look, "at": OLDEST.at, "seq": OLDEST.seq}
        found = [row["kept"] for row in self._connection.rows(OLD_ROLLOUTS, asked)]
        return Kept(
            looked_at=len(found),
            forgettable=found.count(None),
            waiting=found.count("waiting"),
            unlearned=found.count("unlearned"),
            uncounted=found.count("uncounted"),
            open=found.count("open"),
        )

    def size(self) -> Size:
        """Return how large the store is."""
        count = self._connection.count
        page, free = count("pragma page_size"), count("pragma freelist_count")
        return Size(
            rollouts=count("select coalesce(sum(total), 0) from status_counts"),
            used_bytes=(count("pragma page_count") - free) * page,
            free_bytes=free * page,
        )

    def give_back(self, pages: int) -> int:
        """Give up to ``pages`` free pages back to the file system; return how many are left."""
        self._connection.rows(f"pragma incremental_vacuum({pages})")
        return self._connection.count("pragma freelist_count")

    def empty_log(self) -> bool:
        """Bring the write-ahead log into the file and cut it off, where nobody needs it now.

        Until then it may hold what was forgotten. Nobody waits for it, and it waits for nobody.
        """
        patience_ms = self._connection.count("pragma busy_timeout")
        self._connection.rows("pragma wal_checkpoint(passive)")
        self._connection.rows("pragma busy_timeout = 0")
        try:
            return not self._connection.rows("pragma wal_checkpoint(truncate)")[0][0]
        finally:
            self._connection.rows(f"pragma busy_timeout = {patience_ms}")

    def vacuum(self) -> None:
        """Give free pages back to the file system, in steps, each a short transaction."""
        free = self._connection.count("pragma freelist_count")
        while free:
            before, free = free, self.give_back(FREE_PAGES_PER_STEP)
            fault.point("retention.vacuumed")
            if free >= before:  # a copy that was made without incremental vacuum
                break
        self._connection.rows("pragma wal_checkpoint(truncate)")

    def rewrite(self) -> None:
        """Write the whole file anew, while everybody else waits, and empty the log.

        Where SQLite has split a page, the halves may lie twice in it, and of what is deleted
        afterwards only one is overwritten (``rebuildPage`` in its btree.c, up to 3.45 at least).
        """
        self._connection.rows("vacuum")
        self._connection.rows("pragma wal_checkpoint(truncate)")

    def _walked(
        self, sql: str, before: float, limit: int, *, look: int | None, after: Place
    ) -> tuple[list[int], float | None, Place | None]:
        """Return the next that nothing keeps, the last one's time, and where to go on."""
        asked = {
            "before": before,
            "look": -1 if look is None else look,
            "at": after.at,
            "seq": after.seq,
        }
        free: list[int] = []
        looked, until, place = 0, None, after
        with closing(self._connection.stream(sql, asked)) as rows:
            for row in rows:
                looked, place = looked + 1, Place(row["at"], row["seq"])
                if row["kept"] is None:
                    free.append(row["seq"])
                    until = place.at
                if len(free) == limit:
                    return free, until, place
        return free, until, place if looked == look else None


def forget(connection: Connection, rows: Sequence[Row]) -> None:
    """Delete rollouts with all that is theirs, in the order in which they came."""
    ids, seqs = [(row["rollout_id"],) for row in rows], [(row["seq"],) for row in rows]
    with _pruned(connection):
        connection.change_many("delete from rewards where rollout_id = ?", ids)
        fault.point("retention.rewarded")
        connection.change_many("delete from rollouts where seq = ?", seqs)


@contextmanager
def _pruned(connection: Connection) -> Iterator[None]:
    """Shorten the chain of seals by some of what is no longer there, in the same transaction."""
    seals = SqliteSeals(connection)
    sealed = seals.head().place
    yield
    seals.prune(SEALS_FOR_EACH * (seals.head().place - sealed))
