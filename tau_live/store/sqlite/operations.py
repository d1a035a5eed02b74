"""The gate, leases, pauses, alerts, counters and the audit in SQLite."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from sqlite3 import Row

from tau_live.core import fault
from tau_live.core.errors import OddRowError
from tau_live.core.gate import GateEntry, GateRow, HoldReason, State
from tau_live.core.reasons import Part, Pause
from tau_live.core.records import AuditEntry
from tau_live.store.records import AlertRow
from tau_live.store.sqlite.connection import Connection, json_of
from tau_live.store.sqlite.rows import record_of, report, sound, sound_page

CHANGES = "(select count(*) from gate_log)"
"""The least number of changes of a gate whose row is gone."""

LOAD = f"""
select gate.*, iif(gate.id is null, {CHANGES}, 0) as removed,
    iif(typeof(revision) = 'integer', revision, {CHANGES}) as changes,
    iif(gate.id is null, (select max(at) from gate_log), 0.0) as changed_at
from (select 1) left join gate on true
"""

EDITED = "the gate's row was edited, not by tau-live: see `tau-live gate log`"
REMOVED = "the gate's row was removed from the store, not by tau-live: see `tau-live verify`"


class SqliteGate:
    """The gate and its history."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def load(self) -> GateRow:
        """Return the gate: a pass if none was ever stored, a hold if its row is gone or odd."""
        row = self._connection.rows(LOAD)[0]
        if row["id"] is not None:
            try:
                return record_of(GateRow, row)
            except OddRowError:
                return GateRow(
                    state=State.HOLD.value,
                    reason=HoldReason.GATE_REMOVED.value,
                    detail=EDITED,
                    since=row["since"] if isinstance(row["since"], float) else 0.0,
                    streaks={},
                    revision=row["changes"],
                )
        removed = row["removed"] > 0
        return GateRow(
            state=State.HOLD.value if removed else State.PASS.value,
            reason=HoldReason.GATE_REMOVED.value if removed else None,
            detail=REMOVED if removed else None,
            since=row["changed_at"] or 0.0,
            streaks={},
            revision=row["removed"],
        )

    def save(self, row: GateRow, *, entry: GateEntry | None) -> bool:
        """Store the gate if its revision is still ``row.revision - 1``; ``False`` if it is not."""
        with self._connection.begin():
            saved = self._connection.change(
                f"""
                insert into gate (id, state, reason, detail, since, streaks, revision)
                select 1, :state, :reason, :detail, :since, :streaks, :revision
                where :revision - 1 = coalesce((
                    select iif(typeof(revision) = 'integer', revision, {CHANGES}) from gate
                ), {CHANGES})
                on conflict (id) do update set state = excluded.state, reason = excluded.reason,
                    detail = excluded.detail, since = excluded.since, streaks = excluded.streaks,
                    revision = excluded.revision
                """,
                {
                    "state": row.state,
                    "reason": row.reason,
                    "detail": row.detail,
                    "since": row.since,
                    "streaks": json_of(row.streaks),
                    "revision": row.revision,
                },
            )
            fault.point("gate.saved")
            if saved and entry is not None:
                self._connection.change(
                    """
                    insert into gate_log (at, event, state, kind, reason, who)
                    values (?, ?, ?, ?, ?, ?)
                    """,
                    (entry.at, entry.event, entry.state, entry.kind, entry.reason, entry.who),
                )
        return saved > 0

    def log(self, *, limit: int | None = None) -> list[GateEntry]:
        """Return the history, newest first."""
        newest = "select * from gate_log order by seq desc"
        return sound_page(self._connection, newest, {}, partial(record_of, GateEntry), limit=limit)


STALE_S = 86_400.0
"""A lease that lasts longer than this was taken before a clock was put back, and is void."""


class SqliteLeases:
    """Leases: exclusive rights that expire."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def acquire(self, name: str, holder: str, *, ttl_s: float, now: float) -> bool:
        """Take or renew a lease in one statement; ``False`` while another holds it."""
        acquired = self._connection.change(
            """
            insert into leases (name, holder, expires_at) values (:name, :holder, :expires_at)
            on conflict (name) do update set holder = excluded.holder,
                expires_at = excluded.expires_at
            where leases.holder = excluded.holder or leases.expires_at <= :now
                or leases.expires_at > :stale
            """,
            {
                "name": name,
                "holder": holder,
                "expires_at": now + ttl_s,
                "now": now,
                "stale": now + ttl_s + STALE_S,
            },
        )
        return acquired > 0

    def release(self, name: str, holder: str) -> None:
        """Release a lease; nothing happens if it is not held."""
        self._connection.change("delete from leases where name = ? and holder = ?", (name, holder))

    def holder(self, name: str, *, now: float) -> str | None:
        """Return the holder of a lease that has not expired."""
        row = self._connection.row(
            "select holder from leases where name = ? and expires_at > ?", (name, now)
        )
        return None if row is None else str(row["holder"])

    def until(self, name: str) -> float | None:
        """Return when a lease expires or has expired; ``None`` if it was never taken."""
        row = self._connection.row("select expires_at from leases where name = ?", (name,))
        return None if row is None else float(row["expires_at"])

    def holders(self, prefix: str, *, now: float) -> dict[str, str]:
        """Return the leases in force with this prefix, with their holders."""
        return self.ending(prefix, after=now, until=now + STALE_S)

    def ending(self, prefix: str, *, after: float, until: float) -> dict[str, str]:
        """Return the leases with this prefix that expire in an interval, with their holders.

        Args:
            prefix: The prefix of their names.
            after: Epoch seconds, UTC; leases that expire then or before are skipped.
            until: Epoch seconds, UTC; leases that expire later are skipped.
        """
        rows = self._connection.rows(
            """
            select name, holder from leases
            where typeof(holder) = 'text'
            and name >= :prefix and substr(name, 1, length(:prefix)) = :prefix
            and expires_at > :after and expires_at <= :until order by name
            """,
            {"prefix": prefix, "after": after, "until": until},
        )
        return {row["name"]: row["holder"] for row in rows}


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
    """The parts that an operator has paused."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def pauses(self) -> Mapping[Part, Pause]:
        """Return the pauses, by part; unknown parts are skipped, and an odd row is a pause."""
        rows = self._connection.rows("select part, reason, who, at from pauses order by part")
        pauses = [_pause_of(row) for row in rows if row["part"] in _KNOWN]
        return {pause.part: pause for pause in pauses}

    def begin(self, pause: Pause) -> bool:
        """Pause a part; ``False`` if it is paused already, which keeps its reason."""
        added = self._connection.change(
            """
            insert into pauses (part, reason, who, at) values (?, ?, ?, ?)
            on conflict (part) do nothing
            """,
            (pause.part.value, pause.reason, pause.who, pause.at),
        )
        return added > 0

    def end(self, part: Part) -> bool:
        """Resume a part; ``False`` if it is not paused."""
        return self._connection.change("delete from pauses where part = ?", (part.value,)) > 0


def _pause_of(row: Row) -> Pause:
    try:
        return record_of(Pause, row)
    except OddRowError as error:
        report(error)
        return Pause(part=Part(row["part"]), reason=error.problem, who="unknown", at=0.0)


KEPT = 1_000
"""How many alerts are kept."""

ALERTING: Sequence[str] = (
    """
    create table alerts (
        seq integer primary key autoincrement,
        kind text not null,
        severity text not null,
        subject text not null,
        sentence text not null,
        todo text not null,
        facts text not null,
        at real not null,
        suppressed integer not null,
        owner text not null
    ) strict
    """,
    """
    create table alert_marks (
        kind text not null,
        subject text not null,
        mark text not null,
        told integer not null,
        primary key (kind, subject)
    ) strict, without rowid
    """,
    """
    create table alert_limits (
        kind text primary key,
        told_at real,
        suppressed integer not null
    ) strict, without rowid
    """,
)
"""The tables of alerts in the first schema."""

TRANSITIONS: Sequence[str] = (
    "drop view alerts_in_words",
    "drop table alert_limits",
    "delete from alert_marks where not told",  # they are raised now
    "alter table alert_marks drop column told",
    """
    create view alerts_in_words as
    select
        seq,
        datetime(at, 'unixepoch') as at_utc,
        severity, kind, subject, sentence,
        todo as look_at
    from alerts order by seq desc
    """,
)
"""Since the third schema an alert is raised when a condition begins, and none is held back.

The column ``alerts.suppressed`` stays, and is 0 in every row since: seals cover it.
"""


class SqliteAlerts:
    """Alerts, and the marks that keep processes sharing the store from raising one twice."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def notes(self) -> Mapping[tuple[str, str], str]:
        """Return the last mark of each condition, by kind and subject."""
        rows = self._connection.rows(
            "select kind, subject, mark from alert_marks where typeof(mark) = 'text'"
        )
        return {(row["kind"], row["subject"]): row["mark"] for row in rows}

    def note(self, kind: str, subject: str, mark: str) -> None:
        """Set the mark of a condition, in the transaction that read the last one."""
        self._connection.change(
            """
            insert into alert_marks (kind, subject, mark) values (?, ?, ?)
            on conflict (kind, subject) do update set mark = excluded.mark
            """,
            (kind, subject, mark),
        )

    def add(self, row: AlertRow) -> AlertRow:
        """Store an alert that is raised now; the oldest beyond 1,000 are deleted."""
        with self._connection.begin():
            self._connection.change(
                """
                insert into alerts
                (kind, severity, subject, sentence, todo, facts, at, suppressed, owner)
                values (?, ?, ?, ?, ?, ?, ?, 0, ?)
                """,
                (
                    row.kind, row.severity, row.subject, row.sentence, row.todo,
                    json_of(row.facts), row.at, row.owner,
                ),
            )  # fmt: skip
            seq = self._connection.count("select max(seq) from alerts")
            self._connection.change("delete from alerts where seq <= ?", (seq - KEPT,))
            return replace(row, seq=seq)

    def last_raised(self) -> Mapping[str, float]:
        """Return the time of the newest alert of each kind, in epoch seconds."""
        rows = self._connection.rows(
            "select kind, max(at) as at from alerts where typeof(at) = 'real' group by kind"
        )
        return {row["kind"]: row["at"] for row in rows}

    def latest(self, *, limit: int) -> list[AlertRow]:
        """Return the alerts that were raised, newest first."""
        newest = """
        select kind, severity, subject, sentence, todo, facts, at, owner, seq from alerts
        order by seq desc
        """
        return sound_page(self._connection, newest, {}, partial(record_of, AlertRow), limit=limit)


COUNT = """
insert into counters (name, value) values (?, ?)
on conflict (name) do update set value =
    iif(typeof(value) = 'integer' and value < 1 << 62, value, 0) + excluded.value
"""


class SqliteCounters:
    """Counters."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, counts: Mapping[str, int]) -> None:
        """Add to counters."""
        with self._connection.begin():
            self._connection.change_many(COUNT, [*counts.items()])

    def counts(self) -> dict[str, int]:
        """Return every counter."""
        rows = self._connection.rows(
            "select name, value from counters where typeof(value) = 'integer' order by name"
        )
        return {row["name"]: row["value"] for row in rows}


class SqliteAudit:
    """The audit."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, entry: AuditEntry) -> None:
        """Add a line."""
        self._connection.change(
            "insert into audit (at, who, action, reason, details) values (?, ?, ?, ?, ?)",
            (entry.at, entry.who, entry.action, entry.reason, json_of(entry.details)),
        )

    def entries(self, *, limit: int | None = None) -> list[AuditEntry]:
        """Return the lines, newest first."""
        newest = "select * from audit order by seq desc"
        return sound_page(self._connection, newest, {}, _audit_entry, limit=limit)

    def count(self) -> int:
        """Return how many lines there are."""
        return self._connection.count("select count(*) from audit")

    def since(self, seq: int, *, limit: int) -> list[AuditEntry]:
        """Return the lines after one, oldest first."""
        rows = self._connection.rows(
            "select * from audit where seq > ? order by seq limit ?", (seq, limit)
        )
        return sound(rows, _audit_entry)


def _audit_entry(row: Row) -> AuditEntry:
    """Return a line; one with damaged details has none, and ``verify`` reports it."""
    try:
        return record_of(AuditEntry, row)
    except OddRowError as error:
        report(error)
        return record_of(AuditEntry, {**dict(row), "details": "{}"})
