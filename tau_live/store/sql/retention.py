"""Retention and restoring: the one place where rollouts are deleted."""

from abc import ABC, abstractmethod
from base64 import b64decode
from binascii import Error as Base64Error
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from math import inf

from tau_live.core import fault
from tau_live.core.errors import StoreError
from tau_live.core.records import ROLLOUT_ENDS
from tau_live.store.retention import OLDEST, Archive, ExportRow, Kept, Place, Size, Swept
from tau_live.store.sealing import Seals
from tau_live.store.sql.connection import Connection, Row, Value, json_of, next_number
from tau_live.store.sql.export import archive_rows, archived_rewards
from tau_live.store.sql.lifecycle import END, START
from tau_live.store.sql.rows import (
    ATTEMPT,
    DECISION,
    DECISION_COLUMNS,
    DECISION_JSON,
    REWARD_COLUMNS,
    attempt_of,
    decision_of,
    reward_of,
    rollout_of,
    span_of,
)

LOOKED_AT = 256
"""The most rows that are looked at at once where some are to be deleted."""

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
"""Why a rollout is kept; null if it may be deleted."""

OLD_ROLLOUTS = f"""
select seq, at, {KEPT.replace("rollouts.", "old.")} as kept from (
    select seq, ended_at as at, status from rollouts
    where ended_at >= :at and ended_at < :before and (ended_at > :at or seq > :seq)
    order by ended_at, seq limit :look
) as old order by at, seq
"""
"""Of few rollouts, so that a database looks up what each depends on, and not all there is."""

FREE_ROLLOUTS = f"""
select seq, rollout_id from rollouts
where seq in (select value from json_each(:seqs)) and {KEPT} is null order by seq
"""

WITH_IDS = """
select seq, rollout_id, status from rollouts
where rollout_id in (select value from json_each(?)) order by seq
"""

OLD_REWARDS = """
select seq, at, iif(
    exists (select 1 from rollouts where rollouts.rollout_id = rewards.rollout_id), 'known', null
) as kept
from rewards where at >= :at and at < :before and (at > :at or seq > :seq)
order by at, seq limit :look
"""

REWARDED = """
select distinct rollout_id from rewards where seq in (select value from json_each(?))
"""


class Retention(ABC):
    """Retention: deletes rollouts and rewards.

    Never an open rollout, one that waits for its reward, one beyond the watermark of one of its
    decision points, or one that a trial has not counted. One without decisions has no watermark to
    wait for.
    """

    def __init__(self, connection: Connection, seals: Seals) -> None:
        self._connection = connection
        self._seals = seals

    def sweep(
        self,
        *,
        before: float,
        limit: int,
        look: int | None = None,
        after: Place = OLDEST,
        archive: Archive | None = None,
    ) -> Swept:
        """Delete up to ``limit`` rollouts of the next ``look``, the oldest ends first.

        Args:
            before: Epoch seconds; only rollouts that ended before.
            limit: The most rollouts to delete.
            look: The most rollouts to look at, including those that are kept; ``None`` is all.
            after: Where an earlier step ended.
            archive: Called first with all their rows; if it raises, nothing is deleted.
        """
        seqs, until, place = self._walk(OLD_ROLLOUTS, before, limit, look=look, after=after)
        if not seqs:
            return Swept(0, None, place)
        archived = None
        if archive is not None:
            archived = archive_rows(self._connection, seqs)
            archive(archived)  # outside the transaction: its disk may be slow, and others write
        with self._connection.begin():
            rows = self._connection.rows(FREE_ROLLOUTS, {"seqs": json_of(seqs)})
            free = [row["seq"] for row in rows]
            if archived is not None and archive_rows(self._connection, free) != archived:
                return Swept(0, None, after)  # they changed meanwhile: try again
            delete_rollouts(self._connection, self._seals, rows)
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
        """Delete rewards that came before a time and whose rollout never did; as ``sweep``."""
        seqs, until, place = self._walk(OLD_REWARDS, before, limit, look=look, after=after)
        if seqs and archive is not None:
            archive(archived_rewards(self._connection, seqs))
        if not seqs:
            return Swept(0, None, place)
        with self._connection.begin(), _prune(self._seals):
            ids = self._connection.rows(REWARDED, (json_of(seqs),))
            gone = self._connection.change(
                """
                delete from rewards where seq in (select value from json_each(?)) and not exists (
                    select 1 from rollouts where rollouts.rollout_id = rewards.rollout_id
                )
                """,
                (json_of(seqs),),
            )
            self._release([row["rollout_id"] for row in ids])
        return Swept(gone, until, place)

    def forget(self, ids: Sequence[str]) -> int:
        """Delete these rollouts whatever depends on them, and rewards under these ids.

        Returns:
            How many rollouts were deleted.

        Raises:
            StoreError: One of them has not ended; then nothing is deleted.
        """
        with self._connection.begin():
            rows = self._connection.rows(WITH_IDS, (json_of(ids),))
            going_on = [row["rollout_id"] for row in rows if row["status"] not in ROLLOUT_ENDS]
            if going_on:
                raise StoreError(f"rollout {going_on[0]} has not ended: cancel it, or wait")
            delete_rollouts(self._connection, self._seals, rows)
            with _prune(self._seals):
                self._connection.change_many(DELETE_REWARDS, [(id_,) for id_ in ids])
            self._release(ids)
        return len(rows)

    def _release(self, ids: Sequence[str]) -> None:  # noqa: B027  # a file locks none
        """Delete the locks of ids without a rollout."""

    def count(self, *, before: float, limit: int) -> int:
        """Return how many rollouts ``sweep`` would delete, counted up to ``limit``."""
        return len(self._walk(OLD_ROLLOUTS, before, limit, look=None, after=OLDEST)[0])

    def obstacles(self, *, before: float, look: int) -> Kept:
        """Return why the oldest ``look`` rollouts that ended before a time are kept."""
        parameters = {"before": before, "look": look, "at": OLDEST.at, "seq": OLDEST.seq}
        reasons = [row["kept"] for row in self._connection.rows(OLD_ROLLOUTS, parameters)]
        return Kept(
            looked_at=len(reasons),
            forgettable=reasons.count(None),
            waiting=reasons.count("waiting"),
            unlearned=reasons.count("unlearned"),
            uncounted=reasons.count("uncounted"),
            open=reasons.count("open"),
        )

    @abstractmethod
    def size(self) -> Size:
        """Return the size of the store; takes the same time whatever it is."""

    def give_back(self, pages: int) -> int:  # noqa: ARG002  # only a file gives them back
        """Return up to ``pages`` free pages to the file system, and say how many are left."""
        return 0

    def empty_log(self) -> bool:
        """Remove deleted rows from the log; ``False`` if it is in use."""
        return True

    def vacuum(self) -> None:  # noqa: B027  # a server does by itself
        """Give all free pages back to the file system."""

    def rewrite(self) -> None:  # noqa: B027
        """Rewrite all that is stored, so that nothing of deleted rows is left."""

    def _walk(
        self, sql: str, before: float, limit: int, *, look: int | None, after: Place
    ) -> tuple[list[int], float | None, Place | None]:
        """Return the next rows that may be deleted, the last one's time, and where to go on."""
        free: list[int] = []
        left, at_once, until, place = inf if look is None else look, max(limit, 1), None, after
        while left:
            at_once = int(min(at_once, left, LOOKED_AT))
            parameters = {"before": before, "look": at_once, "at": place.at, "seq": place.seq}
            rows = self._connection.rows(sql, parameters)
            for row in rows:
                place = Place(row["at"], row["seq"])
                if row["kept"] is None:
                    free.append(row["seq"])
                    until = place.at
                if len(free) == limit:
                    return free, until, place
            if len(rows) < at_once:
                return free, until, None
            left, at_once = left - at_once, 2 * at_once
        return free, until, place


DELETE_REWARDS = "delete from rewards where rollout_id = ?"


def delete_rollouts(connection: Connection, seals: Seals, rows: Sequence[Row]) -> None:
    """Delete rollouts with all their rows, in the order of arrival."""
    ids, seqs = [(row["rollout_id"],) for row in rows], [(row["seq"],) for row in rows]
    with _prune(seals):
        connection.change_many(DELETE_REWARDS, ids)
        fault.point("retention.rewarded")
        connection.change_many("delete from sequences where name = 'spans:' || ?", ids)
        connection.change_many("delete from rollouts where seq = ?", seqs)


@contextmanager
def _prune(seals: Seals) -> Iterator[None]:
    """Prune the chain of seals after a deletion, in the same transaction."""
    sealed = seals.count_made()
    yield
    seals.prune(seals.count_made() - sealed)


JSON, BASE64 = "json:", "base64:"

INTO: Mapping[str, Mapping[str, str]] = {
    "rollouts": {
        **{
            name: name
            for name in (
                "rollout_id", "host", "run_id", "session_id", "parent_id", "name", "status",
                "mode", "reason", "error_type", "max_attempts", "timeout_s", "unresponsive_s",
                "attempt_count", "started_at", "ended_at", "total_reward", "run_reward",
            )
        },
        "input": JSON + "input", "retry_on": JSON + "retry_on", "metadata": JSON + "metadata",
    },
    "attempts": {
        name: name
        for name in (
            "number", "status", "execution", "started_at", "last_heartbeat_at", "ended_at",
            "error_message",
        )
    },
    "spans": {
        **{
            name: name
            for name in (
                "attempt", "span_id", "parent_span_id", "kind", "name", "status", "started_at",
                "ended_at",
            )
        },
        "attributes": JSON + "attributes",
    },
    "decisions": {
        **{
            column: JSON + name if name in DECISION_JSON else name
            for name, column in DECISION_COLUMNS.items()
        },
        "encoded": BASE64 + "encoded",
    },
    "rewards": {name: name for name in REWARD_COLUMNS},
}  # fmt: skip
"""The columns of each table, and the fields of an exported row that they come from."""

NUMBERED = frozenset({"rollouts", "spans", "decisions", "rewards"})
"""Tables whose rows get their old number back if it is free."""


def restore_rows(connection: Connection, seals: Seals, rows: Iterable[ExportRow]) -> Counter[str]:
    """Restore rollouts with all their rows; rollouts that are stored already are left alone.

    Each rollout has to come before its own rows. Of rollouts that an archive holds twice, because
    its writer was killed, the last copy counts. Rows of other tables, and rollouts that had not
    ended, are skipped.

    Returns:
        How many rows were restored, by table; and how many rollouts were ``known`` or ``open``.

    Raises:
        StoreError: A row cannot be stored; its block is not stored either.
    """
    restoring = _Restoring(connection, seals)
    for _, block in groupby(rows, key=restoring.block_of):
        with connection.begin():
            restoring.take(block)
    return restoring.counts


class _Restoring:
    """Restores blocks, and remembers which rollouts it has restored itself."""

    def __init__(self, connection: Connection, seals: Seals) -> None:
        self._connection = connection
        self._seals = seals
        self._own: set[str] = set()
        self._seqs: dict[str, int] = {}
        self._block = 0
        self._last = ""
        self.counts: Counter[str] = Counter()

    def block_of(self, row: ExportRow) -> int:
        """Return the number of a row's block: rollouts with all their rows, one transaction."""
        table = str(row.get("table"))
        self._block += table == "rollouts" != self._last
        self._last = table
        return self._block

    def take(self, block: Iterator[ExportRow]) -> None:
        """Restore one block."""
        self._seqs = {}
        ready: dict[str, object] = {}
        for row in block:
            table, rollout_id = str(row.get("table")), str(row.get("rollout_id"))
            if table == "rollouts":
                if self._begin(rollout_id, row):
                    ready[rollout_id] = row.get("ready_seq")
            elif table == "rewards":
                self._reward(rollout_id, row)
            elif table == "spans" and rollout_id in self._seqs:
                self._span(rollout_id, row)
            elif table in {"attempts", "decisions"} and rollout_id in self._seqs:
                self._insert(table, row, {"rollout_seq": self._seqs[rollout_id]})
        self._place_all(ready)

    def _place_all(self, ready: Mapping[str, object]) -> None:
        """Give each rollout of a block its ``ready_seq``, and seal a gap in the numbering."""
        expected = next_number(self._connection, "ready") + len(ready)
        for rollout_id, place in ready.items():
            if isinstance(place, int):
                self._place(self._seqs[rollout_id], place)
            self._check(rollout_id)
        following = next_number(self._connection, "ready")
        if following > expected:
            self._seals.keep_restored(following - 1)
        self._connection.keep_numbers(("rollouts", "recorded_spans", "decisions", "rewards"))

    def _begin(self, rollout_id: str, row: ExportRow) -> bool:
        if row.get("status") not in ROLLOUT_ENDS:
            self.counts["open"] += 1
            return False
        find = "select seq, rollout_id from rollouts where rollout_id = ?"
        rollouts = self._connection.rows(find, (rollout_id,))
        if rollouts and rollout_id not in self._own:
            self.counts["known"] += 1
            return False
        if rollouts:
            delete_rollouts(self._connection, self._seals, rollouts)
            self.counts["rollouts"] -= 1
        self._insert("rollouts", row, {})
        self._own.add(rollout_id)
        self._seqs[rollout_id] = int(self._connection.rows(find, (rollout_id,))[0]["seq"])
        return True

    def _span(self, rollout_id: str, row: ExportRow) -> None:
        """Store a recorded span; those of runs and of decisions come from their own rows."""
        run = f"{rollout_id}:attempt-{row.get('attempt')}"
        kind, span_id = row.get("kind"), str(row.get("span_id"))
        if (kind == "run" and span_id == run) or (
            kind == "decision" and span_id.startswith(f"{run}:decision-")
        ):
            return
        if row.get("parent_span_id") == run:
            row = {**row, "parent_span_id": None}
        reported = START if row.get("ended_at") is None else START | END
        keys = {"rollout_seq": self._seqs[rollout_id], "reported": reported}
        self._insert("spans", row, keys)

    def _reward(self, rollout_id: str, row: ExportRow) -> None:
        """Store a reward of a rollout of this block, or of one that never came."""
        if rollout_id not in self._seqs and self._connection.rows(
            "select 1 from rollouts where rollout_id = ?", (rollout_id,)
        ):
            return
        self._insert("rewards", {**row, "decision_id": row.get("decision_id") or ""}, {})

    def _insert(self, table: str, row: ExportRow, keys: Mapping[str, Value]) -> None:
        values = {**keys, **{name: _value(row, field) for name, field in INTO[table].items()}}
        number = row.get("seq")
        into = "recorded_spans" if table == "spans" else table
        if table in NUMBERED and isinstance(number, int) and not self._is_taken(into, number):
            values["seq"] = number
        names = ", ".join(values)
        marks = ", ".join(f":{name}" for name in values)
        self.counts[table] += self._connection.change(
            f"insert or ignore into {into} ({names}) values ({marks})", values
        )

    def _is_taken(self, table: str, number: int) -> bool:
        return bool(self._connection.rows(f"select 1 from {table} where seq = ?", (number,)))

    def _place(self, rollout_seq: int, ready_seq: int) -> None:
        """Give a rollout its old ``ready_seq``; the next free one if that is taken."""
        taken = self._connection.rows("select 1 from rollouts where ready_seq = ?", (ready_seq,))
        if taken or ready_seq < 1:
            ready_seq = next_number(self._connection, "ready")
        known: Mapping[str, Value] = {"seq": rollout_seq, "ready_seq": ready_seq}
        for statement in (
            "update rollouts set ready_seq = :ready_seq where seq = :seq",
            "update sequences set value = max(value, :ready_seq) where name = 'ready'",
            """
            insert into ready_points (rollout_seq, point, ready_seq)
            select distinct :seq, point, :ready_seq from decisions where rollout_seq = :seq
            """,
            """
            insert into ready_points (rollout_seq, point, ready_seq)
            select :seq, '', :ready_seq
            where not exists (select 1 from decisions where rollout_seq = :seq)
            """,
        ):
            self._connection.change(statement, known)

    def _check(self, rollout_id: str) -> None:
        """Read back what was stored, so that no unreadable row remains."""
        read = self._connection.rows
        seq = (self._seqs[rollout_id],)
        rollout_of(read("select * from rollouts where seq = ?", seq)[0])
        for row in read(f"select {ATTEMPT} from attempts where rollout_seq = ?", seq):
            attempt_of(row, rollout_id)
        for row in read("select * from recorded_spans where rollout_seq = ?", seq):
            span_of(row, rollout_id)
        for row in read(f"select {DECISION} from decisions where rollout_seq = ?", seq):
            decision_of(row, rollout_id)
        for row in read("select * from rewards where rollout_id = ?", (rollout_id,)):
            reward_of(row)


def _value(row: ExportRow, field: str) -> Value:
    if field.startswith(JSON):
        value = row.get(field.removeprefix(JSON))
        return None if value is None else json_of(value)
    value = row.get(field.removeprefix(BASE64))
    if value is not None and not isinstance(value, str | int | float):
        raise StoreError(f"cannot restore {field.removeprefix(BASE64)!r} of {row.get('table')}")
    if not field.startswith(BASE64):
        return value
    try:
        return b64decode(str(value), validate=True)
    except (Base64Error, ValueError) as error:
        raise StoreError(f"cannot restore {field!r}: {error}") from error
