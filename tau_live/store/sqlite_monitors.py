"""What monitors remember, in SQLite."""

from collections.abc import Mapping, Sequence
from sqlite3 import Row
from typing import TYPE_CHECKING

from tau_live.store.connection import Connection, Value
from tau_live.store.json_text import json_of, mapping_of
from tau_live.store.records import NO_COSTS, Charged, CostsSeen, Monitor
from tau_live.store.sqlite_rewards import REWARDS_OF
from tau_live.store.sqlite_rows import reward_of, rollout_of

if TYPE_CHECKING:
    from tau_live.rollouts import Reward

SAVE = """
insert into monitors (point, watermark, since, numbers, alarms)
values (:point, :watermark, :since, :numbers, :alarms)
on conflict (point) do update set watermark = excluded.watermark,
    since = excluded.since, numbers = excluded.numbers, alarms = excluded.alarms
where excluded.watermark > watermark
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
"""The first range is for the index; the second is, to the last bit, when a deadline is over."""


class SqliteMonitors:
    """Implements ``Monitors``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def monitors(self) -> dict[str, Monitor]:
        """Return every monitor by its point."""
        rows = self._connection.rows("select * from monitors order by point")
        return {row["point"]: monitor_of(row) for row in rows}

    def monitor(self, point: str) -> Monitor:
        """Return the monitor of a point; one that has seen nothing if none is stored."""
        row = self._connection.row("select * from monitors where point = ?", (point,))
        return Monitor(point=point) if row is None else monitor_of(row)

    def save(self, monitor: Monitor, costs: Mapping[int, float] = NO_COSTS) -> bool:
        """Store a monitor if it has seen more than the stored one; ``False`` if not."""
        with self._connection.begin():
            saved = self._connection.change(SAVE, _values(monitor))
            if saved:
                self._connection.change_many(
                    "update ready_points set cost = ? where point = ? and ready_seq = ?",
                    [(cost, monitor.point, ready_seq) for ready_seq, cost in costs.items()],
                )
        return saved > 0

    def charged(
        self, point: str, seen: CostsSeen, *, at: float, waits: Sequence[float]
    ) -> list[Charged]:
        """Return rollouts whose cost may be another than was counted, by ``ready_seq``."""
        where = {"point": point, **seen._asdict(), "now": at}
        with self._connection.reading():
            found = self._connection.rows(REWARDED_LATE, where)
            for wait_s in waits:
                found += self._connection.rows(WAITED, {**where, "wait_s": wait_s})
            rows = {row["ready_seq"]: row for row in found}
            ids = json_of([row["rollout_id"] for row in rows.values()])
            rewards: dict[str, list[Reward]] = {}
            for row in self._connection.rows(REWARDS_OF, (ids,)):
                rewards.setdefault(row["rollout_id"], []).append(reward_of(row))
        return [
            Charged(rollout_of(row), rewards.get(row["rollout_id"], []), row["cost"])
            for _, row in sorted(rows.items())
        ]


def _values(monitor: Monitor) -> dict[str, Value]:
    return {
        "point": monitor.point,
        "watermark": monitor.watermark,
        "since": monitor.since,
        "numbers": json_of(monitor.numbers),
        "alarms": json_of({"alarms": list(monitor.alarms)}),
    }


def monitor_of(row: Row) -> Monitor:
    """Return the monitor that a row of ``monitors`` holds."""
    alarms = mapping_of(row["alarms"]).get("alarms")
    return Monitor(
        point=row["point"],
        watermark=row["watermark"],
        since=row["since"],
        numbers=mapping_of(row["numbers"]),
        alarms=tuple(alarms) if isinstance(alarms, list) else (),
    )
