"""A connection to a PostgreSQL database: nested transactions, and readable errors."""

import os
import re
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cache
from math import isnan
from pathlib import Path
from threading import RLock
from typing import Any

import psycopg
from psycopg import ClientCursor, ServerCursor, conninfo

from tau_live.core.addresses import LOCAL, split_own, split_tenant, with_tenant
from tau_live.core.errors import (
    StoreBusyError,
    StoreError,
    StoreUnavailableError,
    suppress,
)
from tau_live.rl.throttle import yield_between, yield_gil
from tau_live.store.postgres.dialect import BOOLEANS, MEMBERS, render
from tau_live.store.postgres.listener import Listener
from tau_live.store.postgres.rights import lacking
from tau_live.store.postgres.schema import (
    NUMBERED,
    Numbered,
    arrays_of,
    change_of,
    kinds_of,
    numbering,
)
from tau_live.store.postgres.sealing import (
    INSERT_SEAL,
    NEXT_PLACE,
    STORE_ID,
    Chain,
    Columns,
    Form,
    entries_of,
    form_of,
    shape_of,
)
from tau_live.store.sealing import Sealer
from tau_live.store.sql.columns import as_stored, into
from tau_live.store.sql.connection import Connection, Parameters, Row, Value

CUT_OFF: Mapping[str, str] = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
"""How soon a connection to another machine ends whose network was cut; seconds, the last in ms."""

IDLE_S = 3
"""How long a transaction may wait for its client: one that was frozen would keep all others out."""

SESSION: Mapping[str, str] = {
    "idle_in_transaction_session_timeout": f"{IDLE_S}s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "extra_float_digits": "1",
    "array_nulls": "on",
}
"""The settings of a session, whatever a database or a login has for others.

The server ends the session of a machine that is frozen or cut off, and returns what was stored.
"""

BUSY = ("40001", "40P01", "55P03", "57014")
"""Errors of a transaction that was in another's way, or waited for too long for it."""

STALE = "cached plan must not change result type"
"""What a migration beside it does to a transaction; the next one is planned anew."""

AWAY = "start the server, or let it be reached from here; it resumes by itself"
TODO: Mapping[str, str] = {
    "25006": "name the primary server, or let the database be written; it resumes by itself",
    "28000": "let this user in, with the password that is expected; it resumes by itself",
    "28P01": "let this user in, with the password that is expected; it resumes by itself",
    "3D000": "create the database, or name another; it resumes by itself",
    "3F000": "name a tenant that this login may use; it resumes by itself",
    "42P01": "make its tables with `tau-live store create`; it resumes by itself",
    "42501": "grant this user what it lacks; it resumes by itself",
    "53100": "free disk space on the server; it resumes by itself",
    "53200": "give the server more memory; it resumes by itself",
    "53300": "raise max_connections of the server: an agent has two, and a third if it learns; it "
    "resumes by itself",
}
"""What an operator should do, by the error."""

REFUSALS: Mapping[str, str] = {
    "too many clients": TODO["53300"],
    "remaining connection slots": TODO["53300"],
    "too many connections": TODO["53300"],
    "no password supplied": "put the password into ~/.pgpass or a service file, as for psql; it "
    "resumes by itself",
    "authentication failed": TODO["28P01"],
    "not permitted to log in": TODO["28000"],
    "no pg_hba.conf entry": "let this user in from here, in pg_hba.conf of the server; it resumes "
    "by itself",
    "certificate verify failed": "name the file of the authority that signed the server's "
    "certificate with sslrootcert=FILE in the address, or renew a certificate that has expired",
    "does not match host name": "let the address have the name that is in the server's "
    "certificate, or get one for this name",
    "root certificate file": "name a file of authorities that can be read with sslrootcert=FILE in "
    "the address",
    "does not support SSL": "turn ssl on in the server, or name another sslmode in the address",
    "unsupported startup parameter": "leave the tenant out of the address, and let the login have "
    "it: `alter role LOGIN set search_path = TENANT`; PgBouncer before 1.20 refuses it",
    'database "': TODO["3D000"],
}
"""What to do about a refused connection, which comes without a code, by a part of its message."""

CORRECT = (
    "correct the address: its parameters are those of PostgreSQL, tenant=NAME and direct=HOST:PORT"
)

UNKNOWN_PARAMETER = re.compile(r'invalid URI query parameter: "(\w+)"')

DATA = ("21", "22", "23")
"""The classes of errors that a value causes."""

CLOCK_S = 30.0
"""For how long the server's time is reckoned by the monotonic clock."""

ROWS = 256
"""How many rows one statement inserts, or one step of a stream fetches."""

NUMBERS: Mapping[str, str] = {
    "rollouts": "seq", "decisions": "seq", "rewards": "seq", "recorded_spans": "seq",
    "arms": "place",
}  # fmt: skip
"""The column that numbers the rows of a table."""

HOLD = """
insert into ids (rollout_id) select unnest(%b::text[]) on conflict (rollout_id)
do update set rollout_id = excluded.rollout_id where false
"""
"""Locks the row of each id, which is made where there is none; no row is written anew."""

HOLD_AND_PLACE = f"""
with held as ({HOLD} returning 1)
{NEXT_PLACE} from (select count(*) from held) as locked
"""
"""The same, and takes a place when all are locked."""

SEQUENCES = """
select numbered.name, numbered.key, numbered.sequence,
    pg_sequence_last_value(numbered.sequence::regclass) as last
from (
    select relname::text as name, attname::text as key,
        pg_get_serial_sequence(quote_ident(relname), attname) as sequence
    from pg_attribute join pg_class on pg_class.oid = attrelid
    where relnamespace = (select relnamespace from pg_class where oid = 'rollouts'::regclass)
    and attidentity <> ''
) as numbered
"""
"""The tables that the server numbers, with the sequence of each and its last number."""

ALONE, BESIDE, READING = "alone", "beside", "reading"
LOCKS = {
    ALONE: "begin; lock table turns in share row exclusive mode",
    BESIDE: "begin; lock table turns in row exclusive mode",
    READING: "begin isolation level repeatable read read only; "
    "set local idle_in_transaction_session_timeout = 0",  # it keeps nobody from anything
}
"""How a transaction begins, by its mode.

What is locked is a table, which takes a right to it: an advisory lock is anybody's who may connect
to the database, so other tenants could keep it.
"""

SOON = {"synchronous_commit": "off"}
"""The settings of a statement that does not wait for the disk."""

READ_ONLY = {"transaction_read_only": "on", "default_transaction_read_only": "on"}

TAKE_TURN = "lock table turns in share update exclusive mode"
"""Waits for whoever else numbers rows, beside batches that do not yet."""


class _Row(tuple[Any, ...]):
    """A row, as ``sqlite3.Row`` is one."""

    __slots__ = ()
    columns: Sequence[str] = ()
    places: Mapping[str, int] = {}

    def __getitem__(self, key: Any, /) -> Any:  # noqa: ANN401  # of whatever type
        """Return a column by its place or name; of two with one name the first."""
        return tuple.__getitem__(self, self.places[key] if isinstance(key, str) else key)

    def keys(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.columns)


class _Flush:
    """Statements that are sent without waiting for the answer of each."""

    def __init__(self) -> None:
        self._pipeline: AbstractContextManager[object] | None = None

    @property
    def is_open(self) -> bool:
        """Whether statements are sent so now."""
        return self._pipeline is not None

    def begin(self, raw: "psycopg.Connection[_Row]") -> None:
        """Send the statements of a connection so from now on."""
        self._pipeline = raw.pipeline()
        self._pipeline.__enter__()

    def end(self) -> None:
        """Wait for the answers, if statements are sent so. Raises: psycopg.Error."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.__exit__(None, None, None)


@cache
def _kind_of(columns: Sequence[str]) -> type[_Row]:
    places = {name: place for place, name in reversed([*enumerate(columns)])}
    return type("Row", (_Row,), {"__slots__": (), "columns": columns, "places": places})


def _rows_of(cursor: "psycopg.Cursor[Any]") -> type[_Row]:
    return _kind_of(tuple(column.name for column in cursor.description or ()))


class PostgresConnection(Connection):
    """A connection to a store's database, used by one thread at a time; entered, a transaction.

    A transaction that begins with a batch runs beside others of its kind, and locks the rollouts
    that it is about; any other runs alone. Which of the two it is, its first statement decides.

    Args:
        address: A connection string, which may name a tenant (``tenant=NAME``), and where the
            server itself is (``direct=HOST:PORT``) if it leads to a pooler.
        file: The file that stands for it on this machine.
        busy_timeout_s: Seconds to wait for other processes' transactions.
        read_only: Whether nothing can be written.

    Raises:
        StoreUnavailableError: The database cannot be reached, or this login may not use the tenant.
    """

    members = MEMBERS

    def __init__(
        self, address: str, *, file: Path, busy_timeout_s: float, read_only: bool = False
    ) -> None:
        self.address = readable(address)
        self.path = file
        self.read_only = read_only
        self._given = address
        self._conninfo = with_mode(address)
        self._busy_timeout_s = busy_timeout_s
        self._savepoints: list[str | None] = []  # the outermost transaction is ``None``
        self._is_closed = False
        self._last: Sequence[object] | None = None  # what is numbered at the commit
        self._flush = _Flush()
        self._chain: Chain | None = None
        self._marks: list[int] = []  # what the chain was to seal when each transaction began
        self._place: int | None = None  # of the transaction's seal
        self._mode = ""  # of the transaction; empty until its first statement
        self._working = RLock()  # held while a statement or a transaction runs
        self._listener = Listener(with_mode(address, is_direct=True))
        self._settings = {
            "lock_timeout": f"{max(1, round(1e3 * busy_timeout_s))}",
            "client_min_messages": "warning",
            **SESSION,
            "enable_seqscan": "off",  # a plan made while a table was empty is kept
            "jit": "off",  # which compiles each plan that scans all the same: 10 ms
            **(READ_ONLY if read_only else {}),
        }
        self._is_pooled = False  # whether the next transaction may be of another session
        self._measured_at = float("-inf")  # when the server's clock was, by the monotonic one
        self._ahead_s = 0.0  # the server's clock before the monotonic one
        self._raw = self._connect()
        self.now()  # outside of any transaction

    def _connect(self) -> "psycopg.Connection[_Row]":
        try:
            raw: psycopg.Connection[_Row] = psycopg.connect(
                self._conninfo,
                autocommit=True,
                cursor_factory=ClientCursor,
                row_factory=_rows_of,
                application_name="tau-live",
                client_encoding="UTF8",
            )
            _check_encoding(raw)
            own = f"pg_backend_pid() = {raw.info.backend_pid}"
            settings = _set(self._settings, is_local=False)
            self._is_pooled = not [*raw.execute(f"{settings} where {own}")]
            if self._is_pooled:
                raw.prepare_threshold = None
            self._check_tenant(raw)
        except psycopg.Error as error:
            raise self._error_of(error) from error
        return raw

    def _check_tenant(self, raw: "psycopg.Connection[_Row]") -> None:
        """Refuse a schema other than the tenant's: whatever lies in between may drop options."""
        tenant = split_tenant(self._given)[1]
        if tenant and [*raw.execute("select current_schema()")] != [(tenant,)]:
            raw.close()
            raise StoreUnavailableError(
                f"store '{self.address}' cannot be used: there is no tenant {tenant}, or this "
                "login may not use it: its owner calls `tau-live store create --tenant` and grants",
                todo=f"make it with `tau-live store create --store ADDRESS --tenant {tenant}`, and "
                "grant this login a role of it; through PgBouncer before 1.20, give the login that "
                f"tenant: `alter role LOGIN set search_path = {tenant}`",
            )

    @property
    def raw(self) -> "psycopg.Connection[_Row]":
        """The ``psycopg`` connection; made anew if it was lost, but not within a transaction."""
        if self._is_closed:
            raise StoreUnavailableError(f"store '{self.address}' cannot be used: it is closed")
        if self._raw.closed and not self._savepoints:
            self._raw = self._connect()
            if self._chain is not None:  # of another server, perhaps, without the newest seal
                self._chain.restart()
        return self._raw

    @property
    def chain(self) -> Chain:
        """The chain of seals of what is written here; reading has none."""
        assert self._chain is not None  # noqa: S101  # whoever writes seals
        return self._chain

    def seal_with(self, sealer: Sealer) -> None:
        """Seal all writes from now on."""
        self._chain = Chain(sealer, self.count(STORE_ID))

    def seal(self, table: str, names: Sequence[str], rows: Sequence[Sequence[Value]]) -> None:
        """Seal rows that the server is about to write, given some of their columns."""
        if rows and self._chain is not None:
            columns = stored_columns(table, names, rows)
            self._seal(table, dict(zip(names, columns, strict=True)))

    def _seal(self, table: str, columns: Columns, form: Form | None = None) -> None:
        are_gone, may_end = (form.are_gone, form.may_end) if form else (False, False)
        self.chain.add(entries_of(table, columns, are_gone=are_gone, may_end=may_end))

    def _form_of(self, sql: str) -> Form | None:
        """Return the form of a statement that is to be sealed; ``None`` if nothing is."""
        return None if self._chain is None else form_of(sql)

    def _seal_returned(self, form: Form, cursor: "psycopg.Cursor[_Row]") -> None:
        """Seal the rows that a statement returns."""
        rows = cursor.fetchall()
        if rows:
            kind = type(rows[0])
            self._seal(
                form.table,
                {name: [row[at] for row in rows] for name, at in kind.places.items()},
                form,
            )
            cursor.scroll(0, mode="absolute")

    def _run(
        self, sql: str, parameters: Parameters = (), *, mode: str = ALONE
    ) -> "psycopg.Cursor[_Row]":
        self._end_flush()
        text = render(sql)
        form = self._form_of(text)
        try:
            self._open(mode)
            if self._is_pooled and not self._savepoints:
                return self._run_set(self._settings, sql, parameters)
            cursor = self.raw.execute(form.sql if form else text, _values_of(parameters))
            if form:
                self._seal_returned(form, cursor)
        except (psycopg.Error, ValueError, OverflowError) as error:
            raise self._error_of(error, text) from error
        return cursor

    def _run_set(
        self, settings: Mapping[str, str], sql: str, parameters: Parameters
    ) -> "psycopg.Cursor[_Row]":
        """Run a statement with settings of its own, as a transaction. Raises: psycopg.Error."""
        with ClientCursor(self.raw) as client:
            statement = client.mogrify(render(sql), _values_of(parameters))
        cursor = self.raw.execute(f"{_set(settings, is_local=True)}; {statement}")
        cursor.nextset()
        return cursor

    def _open(self, mode: str) -> None:
        """Begin the transaction, if this is its first statement."""
        if self._savepoints and not self._mode:
            self._mode = mode  # also if the lock is refused: then it is rolled back
            begin, _, lock = LOCKS[mode].partition("; ")
            settings = _set(self._settings, is_local=True) if self._is_pooled else ""
            has_place = mode == ALONE and self._chain is not None
            place = NEXT_PLACE if has_place else ""
            cursor = self.raw.execute("; ".join(filter(None, (begin, settings, lock, place))))
            if has_place:
                while cursor.nextset():
                    pass
                self._place = cursor.fetchall()[0][0]

    def rows(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Run a statement and return all of its rows."""
        if not self._savepoints and self._form_of(render(sql)):
            with self:
                return self.rows(sql, parameters)
        with self._working:
            rows: list[Row] = [*self._run(sql, parameters)]
        yield_gil()
        return rows

    def stream(self, sql: str, parameters: Parameters = ()) -> Generator[Row, None, None]:
        """Run a statement and yield its rows, within ``reading`` as they are read."""
        if self._mode != READING:
            yield from self.rows(sql, parameters)
            return
        try:
            with closing(self._cursor(sql, parameters)) as cursor:
                yield from cursor
        except psycopg.Error as error:
            raise self._error_of(error) from error

    def column_blocks(self, sql: str, *, size: int) -> Iterator[Mapping[str, Sequence[Any]]]:
        """Run a statement and yield its columns by name, ``size`` rows at a time, at least once."""
        with closing(self._cursor(sql, ())) as cursor:
            names = [column.name for column in cursor.description or ()]
            is_first = True
            while (block := cursor.fetchmany(size)) or is_first:
                columns = list(zip(*block, strict=True)) or [()] * len(names)
                yield dict(zip(names, columns, strict=True))
                is_first = False

    def _cursor(self, sql: str, parameters: Parameters) -> "ServerCursor[_Row]":
        """Open a cursor of the server, within ``reading``."""
        try:
            with ClientCursor(self.raw) as client:
                text = client.mogrify(render(sql), _values_of(parameters))
            cursor: ServerCursor[_Row] = ServerCursor(self.raw, "tau_live")
            cursor.itersize = ROWS
            cursor.execute(text.replace("%", "%%") if "%" in text else text)
        except psycopg.Error as error:
            raise self._error_of(error, sql) from error
        return cursor

    def may_insert(self, table: str) -> bool:
        """Return whether this login may add rows to a table."""
        rows = self.rows_bound("select has_table_privilege(%b, 'insert')", (table,))
        return bool(rows[0][0])

    def change(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement that writes and return how many rows it changed."""
        with self._working:
            if self._savepoints:
                return self._run(sql, parameters).rowcount
        with self:  # alone, like every transaction: conditions hold until it is committed
            return self._run(sql, parameters).rowcount

    def change_soon(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement that writes, beside all others and without waiting for the disk."""
        with self._working:
            if self._savepoints:
                return self.change(sql, parameters)
            settings = {**self._settings, **SOON} if self._is_pooled else SOON
            try:
                return self._run_set(settings, sql, parameters).rowcount
            except (psycopg.Error, ValueError, OverflowError) as error:
                raise self._error_of(error, sql) from error

    def change_many(self, sql: str, rows: Sequence[Parameters]) -> int:
        """Run a statement that writes for each of ``rows``; return how many rows changed."""
        change = change_of(sql)
        if change is None:
            with self:
                return sum([self.change(sql, row) for row in rows])
        if not self._savepoints:
            with self:
                return self.change_many(sql, rows)
        with self._working:
            self._end_flush()
            kept = [[*row] for row in rows]
            form = self._form_of(change.sql)
            count = 0
            for some in _in_blocks(kept):
                values = stored_columns(change.table, change.columns, some)
                cursor = self._bind(form.sql if form else change.sql, values)
                count += cursor.rowcount
                if form:
                    self._seal_returned(form, cursor)
            return count

    def insert(self, sql: str, rows: Iterable[Sequence[Value]]) -> int:
        """Insert rows, given the statement that inserts one; return how many rows changed."""
        table, names, _ = into(sql)
        shape = shape_of(table)
        if self._chain is None or shape is None:
            with self._working:
                return sum([cursor.rowcount for cursor, _ in self._insert(sql, rows)])
        if not self._savepoints:
            with self:
                return self.insert(sql, rows)
        are_new = "on conflict" not in sql and {*shape.all} <= {*names}
        form = None if are_new else form_of(sql)
        count = 0
        with self._working:
            for cursor, columns in self._insert(form.sql if form else sql, rows):
                count += cursor.rowcount
                if form:
                    self._seal_returned(form, cursor)
                else:
                    self._seal(table, dict(zip(names, columns, strict=True)))
        return count

    def insert_new(self, sql: str, rows: Iterable[Sequence[Value]]) -> list[int]:
        """Insert rows that must be new; return their numbers, in their order.

        Raises:
            StoreError: One of them exists, or has a value that is not of its column's type.
        """
        table, names, _ = into(sql)
        kept = rows if isinstance(rows, list) else [*yield_between(rows)]
        is_sealed = self._chain is not None and shape_of(table) is not None
        numbers: list[int] = []
        with self._working:
            for cursor, columns in self._insert(f"{sql} returning {NUMBERS[table]}", kept):
                own = [row[0] for row in cursor]
                numbers += own
                if len(own) < len(columns[0]):
                    raise StoreError(f"cannot store this: {table} has a row of it already")
                if is_sealed:
                    stored = dict(zip(names, columns, strict=True))
                    self._seal(table, {**stored, NUMBERS[table]: own})
        return numbers

    def _insert(
        self, sql: str, rows: Iterable[Sequence[Value]]
    ) -> "Iterator[tuple[psycopg.Cursor[_Row], Sequence[Sequence[object]]]]":
        """Insert blocks of rows as arrays, one for each column; yield these, too."""
        kept = rows if isinstance(rows, list) else [*yield_between(rows)]
        for some in _in_blocks(kept):
            columns = columns_of(sql, some)
            yield self._bind(arrays_of(sql), columns), columns
            yield_gil()

    def _bind(self, sql: str, values: Sequence[object]) -> "psycopg.Cursor[_Row]":
        """Run a statement of PostgreSQL's whose values are bound in binary; it is prepared."""
        try:
            self._open(ALONE)
            return psycopg.Cursor(self.raw).execute(sql, values)
        except (psycopg.Error, ValueError, OverflowError) as error:
            raise self._error_of(error, sql) from error

    def run_bound(self, sql: str, values: Sequence[object]) -> int:
        """Run a statement as ``rows_bound`` does; return how many rows it changed."""
        with self._working:
            self._end_flush()
            return self._bind(sql, values).rowcount

    def rows_bound(self, sql: str, values: Sequence[object]) -> list[Row]:
        """Run a statement of PostgreSQL's, with values bound in binary; return its rows."""
        with self._working:
            self._end_flush()
            rows: list[Row] = [*self._bind(sql, values)]
        yield_gil()
        return rows

    def _end_flush(self) -> None:
        """Number what is to be numbered, and wait for the answers."""
        last, self._last = self._last, None
        try:
            if last is not None:
                psycopg.Cursor(self.raw).execute(numbering(), last)
            self._flush.end()
        except (psycopg.Error, ValueError, OverflowError) as error:
            raise self._error_of(error) from error

    @property
    def is_beside(self) -> bool:
        """Whether the transaction runs beside others."""
        return self._mode == BESIDE

    def number(self, rows: Numbered) -> int:
        """Number the rows of a batch, in its turn; return the first ``ready_seq``."""
        first = self.rows_bound(numbering(), self._arrays_of(rows))[0][0]
        return 0 if first is None else int(first)

    def number_at_commit(self, rows: Numbered) -> None:
        """Number the rows of a batch in the same flush as the commit."""
        self._last = self._arrays_of(rows)

    def _arrays_of(self, rows: Numbered) -> Sequence[object]:
        """Return the arrays of what is to be numbered, and seal what is new of it."""
        arrays: list[object] = []
        for sql, some in zip(NUMBERED, rows, strict=True):
            columns = columns_of(sql, some)
            arrays += columns
            table, names, _ = into(sql)
            if some and self._chain is not None and table in {"arms", "rewards"}:
                self._seal(table, dict(zip(names, columns, strict=True)))
        return arrays

    def begin_flush(self) -> None:
        """Send what is inserted from now on without waiting for answers, until the commit.

        Whatever is read or changed meanwhile is sent and waited for at once.
        """
        if not self._flush.is_open:
            self._flush.begin(self.raw)

    def _commit(self) -> None:
        last, self._last = self._last, None
        chain = self._chain if self._chain and self._chain.is_due else None
        if last is None and not self._flush.is_open and chain is None:
            self._run("commit")
            return
        try:
            if chain and self._place is None:  # now everything that it seals is locked
                self._place = self.raw.execute(NEXT_PLACE).fetchall()[0][0]
            self.begin_flush()
            if chain and self._place is not None:
                psycopg.Cursor(self.raw).execute(INSERT_SEAL, chain.next_seal(self._place))
            if last is not None:
                psycopg.Cursor(self.raw).execute(numbering(), last)
            psycopg.Cursor(self.raw).execute("commit")
            self._flush.end()
        except (psycopg.Error, ValueError, OverflowError) as error:
            if chain:
                chain.restart()
            raise self._error_of(error) from error
        if chain:
            chain.go_on()

    def hold(self, ids: Iterable[str]) -> None:
        """Let nobody else change rollouts with these ids, stored or not, in this transaction.

        A transaction that begins with this may run beside others that do.
        """
        wanted = sorted({*ids})
        with self._working:
            self._end_flush()
            try:
                self._open(BESIDE)
                if self._mode == BESIDE and wanted:
                    self._hold(wanted)
            except psycopg.Error as error:
                raise self._error_of(error) from error

    def _hold(self, wanted: Sequence[str]) -> None:
        if self._chain is None:
            psycopg.Cursor(self.raw).execute(HOLD, (wanted,))
            return
        cursor = psycopg.Cursor(self.raw).execute(HOLD_AND_PLACE, (wanted,))
        self._place = cursor.fetchall()[0][0]

    def take_turn(self) -> None:
        """Let what is numbered from now on be committed in the order of its numbers."""
        if self._mode == BESIDE:
            self._run(TAKE_TURN)

    def reserve(self, table: str, count: int) -> list[int]:
        """Return numbers for rows that are still to be inserted."""
        sequence = f"pg_get_serial_sequence('{table}', '{NUMBERS[table]}')"
        rows = self.rows_bound(f"select nextval({sequence}) from generate_series(1, %s)", (count,))
        return [row[0] for row in rows]

    def keep_numbers(self, tables: Iterable[str]) -> None:
        """Number the next rows of some tables after those that were inserted with a number."""
        for table in tables:
            column = NUMBERS[table]
            sequence = f"pg_get_serial_sequence('{table}', '{column}')"
            self._run(
                f"select setval({sequence}, greatest(nextval({sequence}), max({column}))) "
                f"from {table} having max({column}) is not null"
            )

    def numbers(self) -> dict[str, int]:
        """Return the last number given in each table whose numbers are never used twice."""
        return {row["name"]: row["last"] for row in self.rows(SEQUENCES) if row["last"] is not None}

    def number_after(self, numbers: Mapping[str, int]) -> None:
        """Number the next rows of tables after these numbers, and after the rows that are there."""
        for row in self.rows(SEQUENCES):
            table, column = row["name"], row["key"]
            self._run(
                f"select setval('{row['sequence']}', greatest({numbers.get(table, 0)}, "
                f"{row['last'] or 0}, (select max({column}) from {table}), 1), "
                f"{numbers.get(table, 0)} > 0 or {row['last'] or 0} > 0 "
                f"or exists (select 1 from {table}))"
            )

    def make_schema(self, name: str) -> None:
        """Make a schema, unless it is there."""
        self._run(f"create schema if not exists {name}")

    def version(self) -> int:
        """Return the version of the schema; less than 0 in a copy that is not whole yet."""
        return self.count("select version from schema_version")

    def set_version(self, version: int) -> None:
        """Set the version of the schema."""
        self.change("update schema_version set version = ?", (version,))

    def __enter__(self) -> None:
        self._working.acquire()
        try:
            if self._savepoints:
                savepoint = f"tau_live_{len(self._savepoints)}"
                self._run(f"savepoint {savepoint}")
                self._savepoints.append(savepoint)
                self._marks.append(self._chain.mark() if self._chain else 0)
            else:
                self._mode = ""
                self.at_begin()
                self._savepoints.append(None)
                self._marks.append(0)
        except BaseException:
            self._working.release()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        savepoint = self._savepoints[-1]
        undo = kind is not None
        try:
            if not undo:
                if savepoint is None:
                    self.at_commit()
                if savepoint is not None:
                    self._run(f"release {savepoint}")
                elif self._mode:
                    self._commit()
        except BaseException:
            undo = True
            raise
        finally:
            try:
                self._leave(savepoint, undo=undo)
            finally:
                self._working.release()
        if savepoint is None and not undo:
            self.after_commit()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let all reads inside come from one state of the store."""
        if self._savepoints:
            yield
            return
        with self._working:
            self._savepoints.append(None)
            self._marks.append(0)
            try:
                self._run("select 1", mode=READING)
                yield
            finally:
                self._leave(None, undo=True)

    def _leave(self, savepoint: str | None, *, undo: bool) -> None:
        self._last = None
        with suppress(psycopg.Error):
            self._flush.end()
        if undo and self._mode and not self._raw.closed:
            with suppress(psycopg.Error):
                if savepoint is None:
                    self._raw.execute("rollback")
                else:
                    self._raw.execute(f"rollback to {savepoint}; release {savepoint}")
        self._savepoints.pop()
        mark = self._marks.pop()
        if undo and self._chain is not None:
            self._chain.forget(mark)
        if savepoint is None:
            self._mode, self._place = "", None

    def now(self) -> float:
        """Return the server's time, in epoch seconds, measured anew every half minute."""
        with self._working:
            began = time.monotonic()
            if began - self._measured_at > CLOCK_S and not self._savepoints:
                [(now,)] = self._run("select extract(epoch from clock_timestamp())::float8")
                self.set_clock(now, began)
            return time.monotonic() + self._ahead_s

    def set_clock(self, now: float, began: float) -> None:
        """Go by the server's clock, that was read between a moment of the monotonic one and now."""
        self._measured_at = time.monotonic()
        self._ahead_s = now - (began + self._measured_at) / 2.0

    def has_changed(self) -> bool:
        """Return whether another may have changed a topic since the last call.

        From the first call on, a connection of its own hears what is announced of topics.
        """
        with self._working:
            return self._listener.is_due()

    def note_read(self) -> None:
        """Note that topics were read, so that they need not be for a while if none is announced."""
        self._listener.note_read()

    def stamp(self) -> object:
        """Return a value that changes with every write, here or elsewhere (cheap)."""
        return self.rows("select pg_current_snapshot()::text")[0][0]

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Interrupt what is read inside after so many seconds.

        Raises:
            StoreBusyError: It took longer.
        """
        timeout_ms = f"{max(1, round(1e3 * seconds))}"
        self._change_settings({"statement_timeout": timeout_ms})
        try:
            yield
        except StoreBusyError as error:
            raise StoreBusyError(f"reading took longer than {seconds:g} s") from error
        finally:
            with suppress(psycopg.Error):
                self._change_settings({"statement_timeout": "0"})

    def _change_settings(self, settings: Mapping[str, str]) -> None:
        self._settings.update(settings)
        if not self._is_pooled:
            self.raw.execute(_set(settings, is_local=False))

    def another(self) -> "PostgresConnection":
        """Open another connection to the database, which writes nothing."""
        return PostgresConnection(
            self._given, file=self.path, busy_timeout_s=self._busy_timeout_s, read_only=True
        )

    def hold_still(self, timeout_s: float) -> bool:
        """Let no statement start until ``go_on``; ``False`` if one runs for too long.

        Also ``False`` in a transaction of the calling thread: a plugin may fork inside one.
        """
        if not self._working.acquire(timeout=timeout_s):
            return False
        if self._savepoints:
            self._working.release()
            return False
        return True

    def go_on(self) -> None:
        """End a ``hold_still`` of the same thread."""
        self._working.release()

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self._is_closed = True
        self._listener.close()
        with suppress(psycopg.Error):
            self._raw.close()

    def close_inherited(self) -> None:
        """Close the connection of a parent in a forked child, without ending the parent's.

        Closing it as usual would send a farewell, and the server end the session of both.
        """
        for raw in self._own():
            with suppress(psycopg.Error, OSError):
                os.close(raw.fileno())
        self.abandon()

    def abandon(self) -> None:
        """Never close the connection, not even at the end of the process."""
        with suppress(ImportError, AttributeError):  # other interpreters have no reference counts
            import ctypes

            for raw in self._own():
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(raw))
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(raw.pgconn))

    def _own(self) -> "list[psycopg.Connection[Any]]":
        """Return the connections to the server."""
        return [raw for raw in (self._raw, self._listener.raw) if raw is not None]

    def _error_of(self, error: Exception, sql: str = "") -> StoreError:
        return store_error(error, self.address, sql=sql)


def _check_encoding(raw: "psycopg.Connection[_Row]") -> None:
    """Refuse a database that cannot hold every text."""
    encoding = raw.info.parameter_status("server_encoding")
    if encoding not in {None, "UTF8"}:
        raw.close()
        raise StoreUnavailableError(
            f"the database has the encoding {encoding}, not UTF8",
            todo="make one with `create database NAME encoding 'UTF8' template template0`",
        )


def _set(settings: Mapping[str, str], *, is_local: bool) -> str:
    """Return the statement that makes settings, for a session or a transaction."""
    own = (f"set_config('{name}', '{value}', {is_local})" for name, value in settings.items())
    return f"select {', '.join(own)}"


def columns_of(sql: str, rows: Sequence[Sequence[Value]]) -> list[Sequence[object]]:
    """Return the columns of the rows that a statement inserts, as they are stored."""
    table, names, _ = into(sql)
    return stored_columns(table, names, rows)


def stored_columns(
    table: str, names: Sequence[str], rows: Sequence[Sequence[Value]]
) -> list[Sequence[object]]:
    """Return values for columns of a table as they are stored, given in rows."""
    kinds = kinds_of(table)
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return [
        truths(column) if (table, name) in BOOLEANS else [*as_stored(column, kinds[name])]
        for name, column in zip(names, columns, strict=True)
    ]


def _in_blocks(rows: Sequence[Sequence[Value]]) -> Iterator[Sequence[Sequence[Value]]]:
    return (rows[at : at + ROWS] for at in range(0, len(rows), ROWS))


def truths(column: Sequence[Value]) -> list[bool | None]:
    """Return numbers as truths."""
    return [None if value is None else bool(value) for value in column]


def _values_of(parameters: Parameters) -> dict[str, Value] | list[Value]:
    """Return parameters as psycopg takes them."""
    if isinstance(parameters, Mapping):
        return {name: _plain(value) for name, value in parameters.items()}
    return [_plain(value) for value in parameters]


def _plain(value: Value) -> Value:
    """Return a value as SQLite stores it: without NaN; a truth as what its column holds."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return None if isnan(value) else value
    return bytes(value) if isinstance(value, bytearray) else value


def store_error(error: Exception, address: str, *, sql: str = "") -> StoreError:
    """Return our error for an error of PostgreSQL or of its client, naming the database.

    Where the login lacks a right, it says which role has it, as far as the statement shows.
    """
    if isinstance(error, OverflowError):
        return StoreError(f"store '{address}' holds no number of more than 64 bits")
    code = getattr(error, "sqlstate", None) or ""
    text = " ".join(str(error).strip().splitlines()[:1])
    if code in BUSY or STALE in text:
        return StoreBusyError(f"store '{address}' cannot be used: {text}")
    if code[:2] in DATA or isinstance(error, ValueError | psycopg.DataError):
        return StoreError(f"store '{address}' cannot store this: {text}")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        text = lacking(text, sql, split_tenant(address)[1] or "public")
    is_lost = isinstance(error, psycopg.OperationalError) and code[:2] in {"", "08", "57"}
    todo = TODO.get(code, AWAY if is_lost else "")
    if not code:
        todo = next((own for part, own in REFUSALS.items() if part in text), todo)
    return StoreUnavailableError(f"store '{address}' cannot be used: {text}", todo=todo)


def with_mode(address: str, *, is_direct: bool = False) -> str:
    """Return a connection string of PostgreSQL that checks who the server is, unless it is here.

    Another machine has to prove its name by a certificate (``sslmode=verify-full``), and is given
    up when its network was cut; an address that names another mode or other times keeps them. Its
    tenant becomes the schema of the session.

    Args:
        address: A connection string.
        is_direct: Whether it is to lead to the server itself, where it names that.

    Raises:
        StoreUnavailableError: It is no connection string.
    """
    try:
        address, tenant = split_tenant(address)
        address, direct = split_own(address, "direct")
        parts = conninfo.conninfo_to_dict(address)
        if direct and is_direct:
            host, _, port = direct.rpartition(":")
            if host:
                address = conninfo.make_conninfo(address, host=host, hostaddr="")
            address = conninfo.make_conninfo(address, port=port)
            parts = conninfo.conninfo_to_dict(address)
    except (psycopg.Error, ValueError) as error:
        raise _address_error(error) from error
    if tenant:
        options = f"{parts.get('options') or ''} -csearch_path={tenant}".strip()
        address = conninfo.make_conninfo(address, options=options)
    hosts = str(parts.get("host") or parts.get("hostaddr") or "").split(",")
    if all(host.startswith("/") or host in LOCAL for host in hosts):
        return address
    added = {name: value for name, value in CUT_OFF.items() if name not in parts}
    if "sslmode" not in parts:
        added["sslmode"] = "verify-full"
        if "sslrootcert" not in parts:
            added["sslrootcert"] = "system"
    return conninfo.make_conninfo(address, **added)


def _address_error(error: Exception) -> StoreUnavailableError:
    """Return our error for an address that is no connection string, without its secrets."""
    unknown = UNKNOWN_PARAMETER.search(str(error))
    what = f"it has no parameter {unknown[1]!r}" if unknown else ""
    if isinstance(error, ValueError):  # of ours, which names a tenant, or where the server is
        what = str(error)
    why = f": {what}" if what else ""
    return StoreUnavailableError(f"the address of the store is malformed{why}", todo=CORRECT)


def readable(address: str) -> str:
    """Return a connection string as an address without its password and other secrets."""
    try:
        address, tenant = split_tenant(split_own(address, "direct")[0])
        parts = conninfo.conninfo_to_dict(address)
    except (psycopg.Error, ValueError):
        return "postgresql:"
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    port = f":{parts['port']}" if "port" in parts else ""
    shown = f"postgresql://{host}{port}/{parts.get('dbname', '')}"
    return with_tenant(shown, tenant) if tenant else shown
