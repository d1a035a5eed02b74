"""Tables of Parquet and Arrow, written and read; the only module that needs pyarrow."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import chain, groupby, islice
from math import isnan
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tau_live.cli.output import as_json
from tau_live.core.errors import TauLiveError
from tau_live.core.files import make_folders, opened_output
from tau_live.runtime.importing.log import Format
from tau_live.store.retention import ExportRow, Rows

ROWS_AT_ONCE = 10_000

NUMBERS: Mapping[str, frozenset[str]] = {
    "float64": frozenset(
        {
            "at", "ended_at", "last_heartbeat_at", "latency_us", "propensity", "run_reward",
            "share", "started_at", "timeout_s", "total_reward", "unresponsive_s", "value",
        }
    ),
    "int64": frozenset(
        {
            "attempt", "attempt_count", "decisions_before", "first_ready", "last_ready",
            "max_attempts", "number", "ordinal", "parent", "policy_version", "ready_seq",
            "rollouts", "samples", "seq", "trajectories", "update", "version",
        }
    ),
    "bool": frozenset({"executed"}),
}  # fmt: skip
"""The columns that are not text; open-ended ones are JSON in text."""


def write_parquet(folder: Path, rows: Iterable[ExportRow]) -> None:
    """Write each table of an export into ``{table}.parquet``, some rows at a time.

    A column has the same type in every store: it does not depend on its values.

    Raises:
        OSError: A file could not be written; each file is complete or absent.
    """
    make_folders(folder)
    for table, group in groupby(rows, key=lambda row: str(row["table"])):
        with opened_output(folder / f"{table}.parquet") as file:
            _write_table(file, group)


def _write_table(file: object, rows: Iterator[ExportRow]) -> None:
    batch = list(islice(rows, ROWS_AT_ONCE))
    schema = pa.schema([(name, type_of(name)) for name in batch[0] if name != "table"])
    with pq.ParquetWriter(file, schema) as writer:
        while batch:
            writer.write_table(pa.table([_column(batch, name) for name in schema.names], schema))
            batch = list(islice(rows, ROWS_AT_ONCE))


def write_rows(path: Path, rows: Rows) -> None:
    """Write the rows of an archive's table into a file, all of their values.

    Columns that hold anything but text are JSON, and say so.

    Raises:
        OSError: It could not be written; an earlier file is unchanged.
    """
    columns = {}
    fields = []
    for name in dict.fromkeys(chain.from_iterable(rows)):
        if name == "table":
            continue
        values, type_ = [row.get(name) for row in rows], type_of(name)
        is_json = type_ == pa.string() and not {*map(type, values)} <= _TEXT
        if is_json:
            values = [None if one is None else msgspec.json.encode(one).decode() for one in values]
        columns[name] = values
        fields.append(pa.field(name, type_, metadata=JSON if is_json else None))
    table = pa.table(columns, pa.schema(fields))
    with opened_output(path) as file:
        pq.write_table(table, file, compression="zstd", row_group_size=ROWS_AT_ONCE)


def read_rows(path: Path, table: str) -> Rows:
    """Return the rows of a file that ``write_rows`` wrote.

    Raises:
        TauLiveError: It cannot be read.
    """
    try:
        read = pq.read_table(path, partitioning=None)
    except pa.ArrowException as error:
        raise _unreadable(path, error) from error
    columns = {}
    for field in read.schema:
        values = read.column(field.name).to_pylist()
        if (field.metadata or {}).get(b"json"):
            values = [None if one is None else msgspec.json.decode(one) for one in values]
        columns[field.name] = values
    names = ["table", *columns]
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(names, (table, *row), strict=True)) for row in rows]


def type_of(name: str) -> pa.DataType:
    """Return the type of a column that is no list; open-ended ones are text."""
    kind = next((kind for kind, names in NUMBERS.items() if name in names), "string")
    return pa.type_for_alias(kind)


def _column(rows: Rows, name: str) -> list[object]:
    values = [row[name] for row in rows]
    if any(name in names for names in NUMBERS.values()):
        return values
    return [
        value if value is None or isinstance(value, str) else as_json(value) for value in values
    ]


def read_table(path: Path, format_: Format) -> tuple[int, Iterator[Mapping[str, object]]]:
    """Return the rows of a file of Parquet or Arrow (IPC, as a file or a stream).

    Times become epoch seconds, decimals numbers, and NaN ``None``.

    Raises:
        TauLiveError: It cannot be read.
        OSError: Likewise.
    """
    try:
        if format_ is Format.PARQUET:
            file = pq.ParquetFile(path)
            return file.metadata.num_rows, _rows_of(path, file.iter_batches(ROWS_AT_ONCE))
        try:
            batches = pa.ipc.open_file(path)
        except pa.ArrowInvalid:
            return 0, _rows_of(path, pa.ipc.open_stream(path))
        numbers = range(batches.num_record_batches)
        return 0, _rows_of(path, (batches.get_batch(number) for number in numbers))
    except pa.ArrowException as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> TauLiveError:
    return TauLiveError(f"cannot read table '{path}': {' '.join(str(error).split())}")


def _rows_of(path: Path, batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, object]]:
    try:
        for batch in batches:
            names = batch.schema.names
            columns = [*map(_values, batch.columns)]
            for row in zip(*columns, strict=True):
                yield dict(zip(names, row, strict=True))
    except pa.ArrowException as error:
        raise _unreadable(path, error) from error


def _values(column: pa.Array) -> list[object]:
    """Return the values of a column as JSON would have them."""
    if pa.types.is_timestamp(column.type):  # nanoseconds are more than Python's times hold
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    values: list[object] = column.to_pylist()
    return values if {*map(type, values)} <= _JSON_TYPES else [*map(_plain, values)]


def _plain(value: object) -> object:
    convert = _CONVERTERS.get(type(value))
    return convert(value) if convert else value


def _seconds(value: datetime) -> float:
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()


JSON = {b"json": b"1"}
"""The metadata of a column that holds JSON."""

_TEXT = frozenset({str, type(None)})
_JSON_TYPES = frozenset({str, int, bool, type(None)})
_CONVERTERS: Mapping[type, Callable[..., object]] = {
    float: lambda value: None if isnan(value) else value,
    datetime: _seconds,
    date: lambda value: _seconds(datetime.combine(value, time())),
    Decimal: float,
    bytes: lambda value: value.decode(errors="replace"),
    list: lambda value: [*map(_plain, value)],
    dict: lambda value: {name: _plain(item) for name, item in value.items()},
}
