"""The gate, leases, pauses, alerts, counters and the audit in SQLite."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tau_live.core import fault
from tau_live.core.errors import LeaseLostError, OddRowError
from tau_live.core.gate import GateEntry, GateRow, HoldReason, State
from tau_live.core.processes import is_alive
from tau_live.core.reasons import Part, Pause
from tau_live.core.records import AuditEntry
from tau_live.store.records import STALE_S, AlertRow, Lease
from tau_live.store.sql.connection import Connection, Row, Value, json_of, next_number
from tau_live.store.sql.rows import record_of, report, sound, sound_page

CHANGES = "(select count(*) from gate_log)"
"""The least number of changes of a gate whose row is gone."""

LOAD = f"""
select gate.*, iif(gate.id is null, {CHANGES}, 0) as removed,
    iif(typeof(revision) = 'integer', revision, {CHANGES}) as changes,
    iif(gate.id is null, (select max(at) from gate_log), 0.0) as changed_at
from (select 1) as always left join gate on true
"""

EDITED = "the gate's row was edited, not by tau-live: see `tau-live gate log`"
REMOVED = "the gate's row was removed from the store, not by tau-live: see `tau-live verify`"


class Gate:
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


FENCING: Sequence[str] = (
    "alter table leases add column token integer not null default 0",
    "insert into sequences values ('lease', 0)",
)
"""A number for each taking of a lease."""

REPORTING: Sequence[str] = ("alter table leases add column report text",)
"""What the process that holds a lease reports with each renewal."""

IN_FORCE = """
select holder, iif(typeof(token) = 'integer', token, 0) as token,
    expires_at > :now and expires_at <= :now + :ttl_s + :stale_s as in_force
from leases where name = :name
"""

RENEW = """
update leases set expires_at = :now + :ttl_s, report = :report
where name = :name and holder = :holder and token = :token and expires_at > :now
"""

TAKE = """
insert into leases (name, holder, expires_at, token, report)
values (:name, :holder, :now + :ttl_s, :token, :report)
on conflict (name) do update set holder = excluded.holder, expires_at = excluded.expires_at,
    token = excluded.token, report = excluded.report
"""


class Leases:
    """Leases: exclusive rights that expire, by the clock of the store."""

    def __init__(self, connection: Connection, clock: Callable[[], float]) -> None:
        self._connection = connection
        self._clock = clock

    def acquire(self, name: str, holder: str, *, ttl_s: float, report: str | None = None) -> int:
        """Take or renew a lease, also from a process of this machine that is known to be dead.

        Args:
            name: Its name.
            holder: The name of who takes it, as ``this_process`` makes it.
            ttl_s: How long it holds, in seconds.
            report: What the holder has to report, for all to read.

        Returns:
            The fencing token, which grows with each taking and stays when it is renewed; 0 while
            another holds it.
        """
        values: dict[str, Value] = {
            "name": name, "now": self._clock(), "ttl_s": ttl_s, "stale_s": STALE_S,
            "holder": holder, "report": report,
        }  # fmt: skip
        row = self._connection.row(IN_FORCE, values)
        if self._is_taken(row, holder):
            return 0
        if row is not None and row["holder"] == holder and row["in_force"] and row["token"]:
            token = int(row["token"])
            if self._connection.change_soon(RENEW, {**values, "token": token}):
                return token
        with self._connection.begin():
            row = self._connection.row(IN_FORCE, values)
            if self._is_taken(row, holder):
                return 0
            token = int(row["token"]) if row is not None and row["holder"] == holder else 0
            if not token:  # earlier versions had none
                token = next_number(self._connection, "lease")
                self._connection.change(
                    "update sequences set value = ? where name = 'lease'", (token,)
                )
            self._connection.change(TAKE, {**values, "token": token})
        return token

    def _is_taken(self, row: Row | None, holder: str) -> bool:
        """Return whether another process holds a lease, and is not known to be dead."""
        return (
            row is not None
            and row["holder"] != holder
            and bool(row["in_force"])
            and is_alive(str(row["holder"])) is not False
        )

    def confirm(self, name: str, token: int) -> None:
        """Check, inside the transaction that needs a lease, that nobody has taken it since.

        Raises:
            LeaseLostError: Another has, and may have done the work meanwhile.
        """
        row = self._connection.row("select token from leases where name = ?", (name,))
        if row is None or row["token"] != token:
            raise LeaseLostError(f"the lease '{name}' expired, and another process has taken it")

    def release(self, name: str, holder: str) -> None:
        """Release a lease; nothing happens if it is not held."""
        self._connection.change("delete from leases where name = ? and holder = ?", (name, holder))

    def holder(self, name: str) -> str | None:
        """Return the holder of a lease that has not expired."""
        return self.holders(name).get(name)

    def holders(self, prefix: str) -> dict[str, str]:
        """Return the leases in force with this prefix, with their holders."""
        return {lease.name: lease.holder for lease in self.all(prefix) if lease.in_force}

    def all(self, prefix: str) -> list[Lease]:
        """Return the leases with this prefix, those that have expired too."""
        rows = self._connection.rows(
            """
            select name, holder, coalesce(expires_at - :now, 0.0) as left_s, report from leases
            where typeof(holder) = 'text'
            and name >= :prefix and substr(name, 1, length(:prefix)) = :prefix order by name
            """,
            {"prefix": prefix, "now": self._clock()},
        )
        return [Lease(*row) for row in rows]


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


class Pauses:
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


class Alerts:
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


MOST = 2**62
"""A counter beyond it is odd."""

COUNT = f"""
insert into counters (name, value) values (?, ?)
on conflict (name) do update set value =
    iif(typeof(counters.value) = 'integer' and counters.value < {MOST}, counters.value, 0)
    + excluded.value
"""


class Counters:
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


class Audit:
    """The audit."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, entry: AuditEntry) -> None:
        """Add a line."""
        self._connection.change(
            "insert into audit (at, who, action, reason, details) values (?, ?, ?, ?, ?)",
            (entry.at, entry.who, entry.action, entry.reason, json_of(entry.details)),
        )

    def may_add(self) -> bool:
        """Return whether this login may add lines."""
        return self._connection.may_insert("audit")

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
