"""Rows of an export or an archive put back into a store."""

from base64 import b64decode
from binascii import Error as Base64Error
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from tau_live.errors import StoreError
from tau_live.rollouts import ROLLOUT_ENDS
from tau_live.store.connection import Connection, Value
from tau_live.store.json_text import json_of
from tau_live.store.sqlite_numbers import next_number
from tau_live.store.sqlite_retention import forget
from tau_live.store.sqlite_rollouts import END, START
from tau_live.store.sqlite_rows import (
    DECISION,
    attempt_of,
    decision_of,
    reward_of,
    rollout_of,
    span_of,
)
from tau_live.store.sqlite_seals import SqliteSeals

Row = Mapping[str, object]

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
            name: name
            for name in (
                "attempt", "ordinal", "point", "chosen", "applied", "source", "why_not",
                "propensity", "value", "policy_version", "arm", "share", "latency_us", "at",
            )
        },
        "default_option": "default", "encoded": BASE64 + "encoded",
        **{
            name: JSON + name
            for name in (
                "options", "allowed", "exploit_only", "probabilities", "context", "features",
            )
        },
    },
    "rewards": {
        name: name
        for name in (
            "rollout_id", "decision_id", "name", "value", "label", "comment", "source", "key",
            "at", "decisions_before",
        )
    },
}  # fmt: skip
"""The columns of each table, and where their values stand in a row of an export."""

NUMBERED = frozenset({"rollouts", "spans", "decisions", "rewards"})
"""They get their own number back where nobody has it now."""


def restored(connection: Connection, rows: Iterable[Row]) -> Counter[str]:
    """Put rollouts back with all that is theirs; what the store has already is left alone.

    Each rollout has to come before what is its own. What an archive holds twice, because the one
    who wrote it was killed, counts as it was written last. Rows of other tables, and rollouts
    that had not ended, are passed over.

    Returns:
        How many rows were put back, by table; and how many rollouts were ``known`` or ``open``.

    Raises:
        StoreError: A row cannot be stored; what came with it was not either.
    """
    restoring = _Restoring(connection)
    for _, block in groupby(rows, key=_Blocks()):
        with connection.begin():
            restoring.take(block)
    return restoring.counts


class _Blocks:
    """Numbers blocks of rollouts, each with all that is theirs, so that one is a transaction."""

    def __init__(self) -> None:
        self._number = 0
        self._last = ""

    def __call__(self, row: Row) -> int:
        table = str(row.get("table"))
        self._number += table == "rollouts" != self._last
        self._last = table
        return self._number


class _Restoring:
    """Puts blocks back; remembers which rollouts it has put back itself."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._own: set[str] = set()
        self._seqs: dict[str, int] = {}
        self.counts: Counter[str] = Counter()

    def take(self, block: Iterator[Row]) -> None:
        """Put one block back."""
        self._seqs = {}
        ready: dict[str, object] = {}
        for row in block:
            table, rollout_id = str(row.get("table")), str(row.get("rollout_id"))
            if table == "rollouts":
                if self._begin(rollout_id, row):
                    ready[rollout_id] = row.get("ready_seq")
            elif table == "rewards":
                self._reward(rollout_id, row)
            elif table in INTO and rollout_id in self._seqs:
                self._insert(table, row, self._more(table, rollout_id, row))
        self._place_all(ready)

    def _place_all(self, ready: Mapping[str, object]) -> None:
        """Give each rollout of a block its place, and seal how far the numbering has leapt."""
        expected = next_number(self._connection, "ready") + len(ready)
        for rollout_id, place in ready.items():
            if isinstance(place, int):
                self._place(self._seqs[rollout_id], place)
            self._check(rollout_id)
        following = next_number(self._connection, "ready")
        if following > expected:
            SqliteSeals(self._connection).keep_restored(following - 1)

    def _begin(self, rollout_id: str, row: Row) -> bool:
        if row.get("status") not in ROLLOUT_ENDS:
            self.counts["open"] += 1
            return False
        find = "select seq, rollout_id from rollouts where rollout_id = ?"
        found = self._connection.rows(find, (rollout_id,))
        if found and rollout_id not in self._own:
            self.counts["known"] += 1
            return False
        if found:
            forget(self._connection, found)
            self.counts["rollouts"] -= 1
        self._insert("rollouts", row, {})
        self._own.add(rollout_id)
        self._seqs[rollout_id] = int(self._connection.rows(find, (rollout_id,))[0]["seq"])
        return True

    def _more(self, table: str, rollout_id: str, row: Row) -> Mapping[str, Value]:
        owner: dict[str, Value] = {"rollout_seq": self._seqs[rollout_id]}
        if table != "spans":
            return owner
        return {**owner, "told": START if row.get("ended_at") is None else START | END}

    def _reward(self, rollout_id: str, row: Row) -> None:
        """Store a reward of a rollout of this block, or of one that never came."""
        if rollout_id not in self._seqs and self._connection.rows(
            "select 1 from rollouts where rollout_id = ?", (rollout_id,)
        ):
            return
        self._insert("rewards", {**row, "decision_id": row.get("decision_id") or ""}, {})

    def _insert(self, table: str, row: Row, more: Mapping[str, Value]) -> None:
        values = {**more, **{name: _value(row, place) for name, place in INTO[table].items()}}
        number = row.get("seq")
        if table in NUMBERED and isinstance(number, int) and not self._is_taken(table, number):
            values["seq"] = number
        names = ", ".join(values)
        marks = ", ".join(f":{name}" for name in values)
        self.counts[table] += self._connection.change(
            f"insert or ignore into {table} ({names}) values ({marks})", values
        )

    def _is_taken(self, table: str, number: int) -> bool:
        return bool(self._connection.rows(f"select 1 from {table} where seq = ?", (number,)))

    def _place(self, rollout_seq: int, ready_seq: int) -> None:
        """Give a rollout its place among those to learn from; the next one where it is taken."""
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
        """Read back what was stored: nobody later should meet what cannot be read."""
        read = self._connection.rows
        seq = (self._seqs[rollout_id],)
        rollout_of(read("select * from rollouts where seq = ?", seq)[0])
        for row in read("select * from attempts where rollout_seq = ?", seq):
            attempt_of(row, rollout_id)
        for row in read("select * from spans where rollout_seq = ?", seq):
            span_of(row, rollout_id)
        for row in read(f"select {DECISION} from decisions where rollout_seq = ?", seq):
            decision_of(row, rollout_id)
        for row in read("select * from rewards where rollout_id = ?", (rollout_id,)):
            reward_of(row)


def _value(row: Row, place: str) -> Value:
    if place.startswith(JSON):
        value = row.get(place.removeprefix(JSON))
        return None if value is None else json_of(value)
    value = row.get(place.removeprefix(BASE64))
    if value is not None and not isinstance(value, str | int | float):
        raise StoreError(f"cannot restore {place.removeprefix(BASE64)!r} of {row.get('table')}")
    if not place.startswith(BASE64):
        return value
    try:
        return b64decode(str(value), validate=True)
    except (Base64Error, ValueError) as error:
        raise StoreError(f"cannot restore {place!r}: {error}") from error
