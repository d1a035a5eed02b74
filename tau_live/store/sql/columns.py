"""Rows as columns, for statements that insert many of them at once."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import isfinite, isnan

from tau_live.core.errors import StoreError
from tau_live.store.sql.connection import Value

_INTO = re.compile(r"insert into (\w+) \(([\w\s,]+)\) values (\((?:\?, )*\?\))")

_NULL = type(None)
_KINDS: Mapping[str, frozenset[object]] = {
    "INTEGER": frozenset({int, _NULL}),
    "REAL": frozenset({float, _NULL}),
    "TEXT": frozenset({str, _NULL}),
    "BLOB": frozenset({bytearray, _NULL}),
    "": frozenset({int, float, str, bytearray, _NULL}),
}
"""The classes of values in a column, by SQL type; others are converted."""

_CONVERTERS: Sequence[tuple[type, Callable[..., Value]]] = (
    (bytes, bytearray),
    (str, str.__str__),
    (int, int),
    (float, float),
)
"""Converters for subclasses of known classes: enumerations, booleans."""


def as_stored(column: Sequence[Value], kind: str) -> Sequence[Value]:
    """Return values in a plain class, as SQLite stores them in a column of a type."""
    kinds = {*map(type, column)}
    for other in kinds - _KINDS[""]:
        convert = next(
            (convert for known, convert in _CONVERTERS if issubclass(other, known)), None
        )
        if convert is not None:
            column = [convert(value) if type(value) is other else value for value in column]
    if kind == "REAL" and kinds == {float} and isfinite(sum(column)):  # type: ignore[arg-type]
        return [value + 0.0 for value in column]  # type: ignore[operator]  # they are floats
    if kind == "REAL":
        column = [*map(_real, column)]
    if kind and not _KINDS[kind].issuperset(map(type, column)):
        raise StoreError(f"cannot store this in a column of {kind}: {column!r}")
    return column


def _real(value: Value) -> Value:
    """Return a number as SQLite stores it: without NaN or negative zero."""
    if not isinstance(value, int | float):
        return value
    return None if isnan(value) else value + 0.0


@cache
def into(sql: str) -> tuple[str, Sequence[str], str]:
    """Return the table, the columns and the row of an insert statement for one row."""
    match = _INTO.search(sql)
    if match is None:
        raise ValueError(f"expected a statement that inserts one row, got {sql!r}")
    return match[1], [name.strip() for name in match[2].split(",")], match[3]
