"""Pauses in SQLite: one row per paused part."""

from collections.abc import Mapping, Sequence

from tau_live.pauses import Part, Pause
from tau_live.store.connection import Connection

PAUSING: Sequence[str] = (
    """
    create table pauses (
        part text primary key,
        reason text not null,
        who text not null,
        at real not null
    ) strict, without rowid
    """,
)

_KNOWN = frozenset(Part)


class SqlitePauses:
    """Implements ``Pauses``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def pauses(self) -> Mapping[Part, Pause]:
        """Return what rests, by part; what no part of ours is called is passed over."""
        rows = self._connection.rows("select part, reason, who, at from pauses order by part")
        found = [
            Pause(part=Part(row["part"]), reason=row["reason"], who=row["who"], at=row["at"])
            for row in rows
            if row["part"] in _KNOWN
        ]
        return {pause.part: pause for pause in found}

    def begin(self, pause: Pause) -> bool:
        """Let a part rest; ``False`` if it rests already, for the reason that it has."""
        begun = self._connection.change(
            """
            insert into pauses (part, reason, who, at) values (?, ?, ?, ?)
            on conflict (part) do nothing
            """,
            (pause.part.value, pause.reason, pause.who, pause.at),
        )
        return begun > 0

    def end(self, part: Part) -> bool:
        """Let a part go on; ``False`` if it does already."""
        return self._connection.change("delete from pauses where part = ?", (part.value,)) > 0
