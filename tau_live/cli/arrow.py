"""The store's tables as Parquet files; the only module that needs pyarrow."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tau_live.cli.output import as_json
from tau_live.machine.private_files import make_folders, opened_new

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
            "rollouts", "samples", "trajectories", "update", "version",
        }
    ),
    "bool": frozenset({"executed"}),
}  # fmt: skip
"""The columns that are not text; what is open-ended is JSON in text."""


def write_parquet(folder: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write each table of an export into ``{table}.parquet``, some rows at a time.

    A column has the same type in every store: it does not depend on what happens to be in it.

    Raises:
        OSError: A file could not be written; each file is whole or not there.
    """
    make_folders(folder)
    for table, of_table in groupby(rows, key=lambda row: str(row["table"])):
        path = folder / f"{table}.parquet"
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with os.fdopen(opened_new(beside), "wb") as file:
                _write_table(file, of_table)
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def _write_table(file: object, rows: Iterator[Mapping[str, object]]) -> None:
    batch = list(islice(rows, ROWS_AT_ONCE))
    schema = pa.schema([(name, _type_of(name)) for name in batch[0] if name != "table"])
    with pq.ParquetWriter(file, schema) as writer:
        while batch:
            writer.write_table(pa.table([_column(batch, name) for name in schema.names], schema))
            batch = list(islice(rows, ROWS_AT_ONCE))


def _type_of(name: str) -> object:
    kind = next((kind for kind, names in NUMBERS.items() if name in names), "string")
    return pa.type_for_alias(kind)


def _column(rows: Sequence[Mapping[str, object]], name: str) -> list[object]:
    values = [row[name] for row in rows]
    if any(name in names for names in NUMBERS.values()):
        return values
    return [
        value if value is None or isinstance(value, str) else as_json(value) for value in values
    ]
