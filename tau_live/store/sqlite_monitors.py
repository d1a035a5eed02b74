"""What monitors remember, in SQLite."""

from sqlite3 import Row

from tau_live.store.connection import Connection, json_of, mapping_of
from tau_live.store.records import Monitor


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

    def save(self, monitor: Monitor) -> bool:
        """Store a monitor if it has seen more than the stored one; ``False`` if not."""
        return bool(
            self._connection.change(
                """
                insert into monitors (point, watermark, since, numbers, alarms)
                values (:point, :watermark, :since, :numbers, :alarms)
                on conflict (point) do update set watermark = excluded.watermark,
                    since = excluded.since, numbers = excluded.numbers, alarms = excluded.alarms
                where excluded.watermark > watermark
                """,
                {
                    "point": monitor.point,
                    "watermark": monitor.watermark,
                    "since": monitor.since,
                    "numbers": json_of(monitor.numbers),
                    "alarms": json_of({"alarms": list(monitor.alarms)}),
                },
            )
        )


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
