"""What the roles need of a connection to a database: statements, and nested transactions.

Statements are written once, in the SQL of SQLite; another engine renders them in its own.
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from tau_live.core import fault
from tau_live.core.errors import StoreDamagedError, StoreError

mapping_of = msgspec.json.Decoder(dict[str, object]).decode
"""Returns the object that JSON text holds."""


def json_of(value: object) -> str:
    """Return open-ended data as JSON text.

    Raises:
        StoreError: It has no JSON form.
    """
    try:
        return _ENCODER.encode(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"cannot store this as JSON: {error}") from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


def merge_json(under: str, over: str) -> str:
    """Return two JSON objects merged; where both have a key, the second one's value counts."""
    return json_of(mapping_of(under) | mapping_of(over))


Value = str | int | float | bytes | bytearray | None
Parameters = Sequence[Value] | Mapping[str, Value]


class Row(Protocol):
    """A row, whose columns are found by name or place."""

    def __getitem__(self, key: Any, /) -> Any: ...  # noqa: ANN401  # of whatever type
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def keys(self) -> list[str]: ...  # noqa: D102


class Members(NamedTuple):
    """How an engine finds and compares members of JSON data, as SQL.

    Attributes:
        data: The data of a column, null if it is damaged.
        member: The value of a member of it, whose name is bound.
        object: The same, if it is an object.
        tests: The tests of a value.
        bound: Returns what is bound for a value that it is compared with.
    """

    data: str
    member: str
    object: str
    tests: Mapping[str, str]
    bound: Callable[[Value], Value]


class Connection(AbstractContextManager[None]):
    """A connection to a store, used by one thread at a time; entered, a transaction.

    Attributes:
        path: The file of the store, or the folder for what belongs to it on this machine.
        address: Names the store in messages.
        read_only: Whether nothing can be written.
        members: How members of JSON data are found.
    """

    path: Path
    address: str
    read_only: bool
    members: Members

    @abstractmethod
    def rows(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Run a statement and return all of its rows."""

    @abstractmethod
    def stream(self, sql: str, parameters: Parameters = ()) -> Generator[Row, None, None]:
        """Run a statement and yield its rows as they are read."""

    @abstractmethod
    def column_blocks(self, sql: str, *, size: int) -> Iterator[Mapping[str, Sequence[Any]]]:
        """Run a statement and yield its columns by name, ``size`` rows at a time, at least once."""

    def may_insert(self, table: str) -> bool:  # noqa: ARG002  # whoever may write a file may
        """Return whether this login may add rows to a table."""
        return True

    def row(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """Run a statement and return its first row, if it has one."""
        rows = self.rows(sql, parameters)
        return rows[0] if rows else None

    def count(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement and return the integer in its first row."""
        return int(self.rows(sql, parameters)[0][0])

    @abstractmethod
    def change(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement that writes and return how many rows it changed."""

    def change_soon(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement as ``change`` does; what it wrote may be lost if the machine dies."""
        return self.change(sql, parameters)

    @abstractmethod
    def change_many(self, sql: str, rows: Sequence[Parameters]) -> int:
        """Run a statement that writes for each of ``rows``; return how many rows changed.

        No two of them concern the same row of the table: they may run all at once.
        """

    @abstractmethod
    def insert(self, sql: str, rows: Iterable[Sequence[Value]]) -> int:
        """Insert rows, given the statement that inserts one; return how many rows changed."""

    @abstractmethod
    def insert_new(self, sql: str, rows: Iterable[Sequence[Value]]) -> Sequence[int]:
        """Insert rows that must be new; return their numbers, in their order.

        Raises:
            StoreError: One of them exists, or has a value that is not of its column's type.
        """

    def begin(self) -> AbstractContextManager[None]:
        """Open a transaction; inside another, a savepoint."""
        return self  # a generator would add a tenth to a small transaction

    def at_begin(self) -> None:
        """Mark that a transaction begins, for a fault that is wanted there."""
        fault.point("store.begin")

    def at_commit(self) -> None:
        """Mark that it is about to be committed."""
        fault.point("store.commit")

    def after_commit(self) -> None:
        """Mark that it was."""
        fault.point("store.committed")

    @abstractmethod
    def reading(self) -> AbstractContextManager[None]:
        """Let all reads inside come from one state of the store."""

    def hold(self, ids: Iterable[str]) -> None:
        """Let nobody else change rollouts with these ids, stored or not, in this transaction.

        A transaction that begins with this may run beside others that do.
        """

    def take_turn(self) -> None:
        """Let what is numbered from now on be committed in the order of its numbers."""

    def keep_numbers(self, tables: Iterable[str]) -> None:
        """Number the next rows of some tables after those that were inserted with a number."""

    def now(self) -> float:
        """Return the time by the clock of the store, in epoch seconds, UTC."""
        return time.time()

    @abstractmethod
    def numbers(self) -> dict[str, int]:
        """Return the last number given in each table whose numbers are never used twice."""

    @abstractmethod
    def number_after(self, numbers: Mapping[str, int]) -> None:
        """Number the next rows of tables after these numbers, and after the rows that are there."""

    @abstractmethod
    def version(self) -> int:
        """Return the version of the schema; less than 0 in a copy that is not whole yet."""

    @abstractmethod
    def set_version(self, version: int) -> None:
        """Set the version of the schema."""

    @abstractmethod
    def has_changed(self) -> bool:
        """Return whether another may have changed a topic since the last call (cheap)."""

    @abstractmethod
    def stamp(self) -> object:
        """Return a value that changes with every write, here or elsewhere (cheap)."""

    @abstractmethod
    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Interrupt what is read inside after so many seconds.

        Raises:
            StoreBusyError: It took longer.
        """

    @abstractmethod
    def another(self) -> "Connection":
        """Open another connection to the store, which writes nothing."""

    @abstractmethod
    def hold_still(self, timeout_s: float) -> bool:
        """Let no statement start until ``go_on``; ``False`` if one runs for too long.

        Also ``False`` in a transaction of the calling thread: a plugin may fork inside one.
        """

    @abstractmethod
    def go_on(self) -> None:
        """End a ``hold_still`` of the same thread."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""

    @abstractmethod
    def close_inherited(self) -> None:
        """Close the connection of a parent in a forked child, without ending the parent's."""

    @abstractmethod
    def abandon(self) -> None:
        """Never close the connection: that would roll back a transaction of the parent."""


OLDER = "store '{}' has schema {}, this tau-live needs {}: run `tau-live store migrate`"
UNFINISHED = "store '{}' is a copy that is not whole yet: run the same `tau-live store copy` again"

NEXT = """
select value + 1 as next from sequences where name = ? and typeof(value) = 'integer'
"""


def next_number(connection: Connection, name: str) -> int:
    """Return the next number of a numbering, within a transaction that then stores it.

    Raises:
        StoreDamagedError: The numbering was removed, or set to its maximum.
    """
    rows = connection.rows(NEXT, (name,))
    if not rows or not isinstance(rows[0]["next"], int):  # beyond the maximum it is a float
        raise StoreDamagedError(
            f"store '{connection.address}' cannot be used: its numbering '{name}' was edited or "
            "removed: see `tau-live verify`"
        )
    return rows[0]["next"]
