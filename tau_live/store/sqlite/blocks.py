"""Inserts many rows by few statements, and seals them at once."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain, compress
from itertools import count as counted_from

from tau_live.core.errors import StoreError
from tau_live.rl.throttle import yield_between, yield_gil
from tau_live.store.sealing import SEALED, Sealer, digests_of
from tau_live.store.sql.columns import as_stored, into
from tau_live.store.sql.connection import Connection, Value
from tau_live.store.sqlite.sealing import AT_ONCE, LAST

Columns = Mapping[str, Sequence[Value]]
"""The values of several rows, by column."""

ROWS = 256
"""How many rows are sealed without a pause."""


SIZES = (32, 8, 1)
"""How many rows one statement inserts; SQLite caches the statements, some 10 kB for each row."""

FEW = 8
"""Fewer rows are inserted, and sealed, one by one."""

MANY = 256
"""From so many rows on, a value that all rows share is bound once, by a statement of its own."""

NULL, COMMON, OWN = "null", "common", "own"

INSERT_SEAL = "insert into seals (kind, row, seal, key_id) values (?, ?, ?, ?)"


class Inserting(Connection):
    """A connection that inserts many rows by few statements, and seals them at once.

    Attributes:
        sealer: Seals its writes; ``None`` if they are not sealed.
        sealed: The sealed columns of each table, and the SQL type of each.
    """

    sealer: Sealer | None
    sealed: Mapping[str, Mapping[str, str]]

    @property
    @abstractmethod
    def last_row(self) -> int:
        """The number of the row that was inserted last."""

    @property
    @abstractmethod
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def insert(self, sql: str, rows: Iterable[Sequence[Value]]) -> int:
        """Insert rows, given the statement that inserts one; return how many rows changed."""
        kept = rows if isinstance(rows, list) else [*yield_between(rows)]
        if len(kept) < FEW:
            return sum([self.change(sql, row) for row in kept])
        return self._insert_columns(sql, self._columns(sql, kept), len(kept))

    def insert_new(self, sql: str, rows: Iterable[Sequence[Value]]) -> range:
        """Insert rows that must be new; return their numbers, in their order.

        Many rows of a sealed table are sealed at once.

        Raises:
            StoreError: One of them exists, or has a value that is not of its column's type.
        """
        kept = rows if isinstance(rows, list) else [*yield_between(rows)]
        table, _, _ = into(sql)
        if len(kept) < FEW or table not in self.sealed:
            changed = self.insert(sql, kept)
            numbers = self._last(len(kept))
        else:
            columns = self._columns(sql, kept)
            with self.sealed_at_once():
                changed = self._insert_columns(sql, columns, len(kept))
            numbers = self._last(len(kept))
            self.insert(INSERT_SEAL, self.seals_of(table, columns, numbers))
        if changed < len(kept):
            raise StoreError(f"cannot store this: {table} has a row of it already")
        return numbers

    def _insert_columns(self, sql: str, columns: Columns, count: int) -> int:
        """Insert rows, given their columns; values that all of them share are bound once or never.

        Binding a null takes 0.4 us, and any other value 0.2; in rows that begin and end in one
        batch every third value is null, and in many runs of one log half of the others are equal.
        """
        forms = {name: _form_of(column, count) for name, column in columns.items()}
        common = [column[0] for name, column in columns.items() if forms[name] == COMMON]
        own = [column for name, column in columns.items() if forms[name] == OWN]
        at = changed = 0
        for size in SIZES:
            while count - at >= size:
                some = zip(*(column[at : at + size] for column in own), strict=True)
                statement = _of_rows(sql, size, tuple(forms.values()))
                changed += self.change(statement, [*common, *chain.from_iterable(some)])
                yield_gil()
                at += size
        return changed

    def _columns(self, sql: str, rows: Sequence[Sequence[Value]]) -> Columns:
        table, names, _ = into(sql)
        kinds = self.sealed.get(table, {})
        return {
            name: as_stored(column, kinds.get(name, ""))
            for name, column in zip(names, zip(*rows, strict=True), strict=True)
        }

    def _last(self, count: int) -> range:
        return range(self.last_row - count + 1, self.last_row + 1)

    @contextmanager
    def sealed_at_once(self) -> Iterator[None]:
        """Let no trigger seal inserts meanwhile: the caller does."""
        self.change(f"insert into {AT_ONCE} values (1)")
        try:
            yield
        finally:
            if self.in_transaction:  # else it was rolled back, and this row with it
                self.change(f"delete from {AT_ONCE}")

    def seals_of(
        self, table: str, columns: Columns, numbers: Sequence[int]
    ) -> Iterator[Sequence[Value]]:
        """Yield the rows of ``seals`` for consecutive rows that were inserted.

        Args:
            table: The table of the rows.
            columns: Their values as stored.
            numbers: Their numbers.
        """
        sealed, sealer = SEALED[table], self.sealer
        if sealer is None:
            return
        stored = {sealed.number: numbers, **columns}
        own = {name: stored[name] for name in self.sealed[table]}
        if sealed.known:
            known = [
                any(value is not None for value in row)
                for row in zip(*(own[name] for name in sealed.known), strict=True)
            ]
            numbers = [*compress(numbers, known)]
            own = {name: [*compress(column, known)] for name, column in own.items()}
        last = self.row(LAST)
        link: bytes | None = None if last is None else last[0]
        for at in range(0, len(numbers), ROWS):
            some = {name: column[at : at + ROWS] for name, column in own.items()}
            for number, digest in zip(numbers[at : at + ROWS], digests_of(some), strict=True):
                seal = sealer.seal(link, table, number, digest)
                link = seal[len(digest) :]
                yield table, number, seal, sealer.key_id
            yield_gil()


def _form_of(column: Sequence[Value], count: int) -> str:
    """Return the form of a column in a statement: null, common, or each row's own value."""
    alike = column.count(column[0]) == count
    if not alike:
        return OWN
    return NULL if column[0] is None else COMMON if count >= MANY else OWN


@cache
def _of_rows(sql: str, size: int, forms: Sequence[str]) -> str:
    """Return an insert statement for several rows, given the one for a single row."""
    numbers = iter(range(1, 1 + forms.count(COMMON)))
    common = {place: next(numbers) for place, form in enumerate(forms) if form == COMMON}
    following = counted_from(1 + len(common))
    rows = []
    for _ in range(size):
        values = (
            "null" if form == NULL else f"?{common.get(place) or next(following)}"
            for place, form in enumerate(forms)
        )
        rows.append(f"({', '.join(values)})")
    return sql.replace(into(sql)[2], ", ".join(rows))
