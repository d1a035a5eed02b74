"""``tau-live export`` and ``restore``: a store's rows, written to a file and put back."""

import gzip
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.progress import Progress

from tau_live.cli.options import (
    epilog,
    json_option,
    open_store,
    refuse_store,
    settings_of,
    store_option,
)
from tau_live.cli.output import as_json as json_of
from tau_live.cli.output import print_json, progress_bar
from tau_live.core.errors import TauLiveError
from tau_live.core.files import opened_output
from tau_live.core.settings import Settings
from tau_live.core.version import packages_for
from tau_live.record.archive import read_archive
from tau_live.store.opening import open_at
from tau_live.store.retention import ExportRow
from tau_live.store.roles import Store

MISLEADING = frozenset({".csv", ".tsv", ".parquet", ".xlsx", ".json"})
"""Endings by which other tools would take JSON Lines for another format."""


@click.command(
    epilog=epilog(
        "export",
        "tau-live export -o rollouts.jsonl",
        "tau-live export | jq 'select(.table == \"decisions\")'",
        "tau-live export --format parquet -o export/",
        "tau-live export --format trajectories -o learned.jsonl",
    )
)
@click.option(
    "--format", "format_", type=click.Choice(["jsonl", "parquet", "trajectories"]),
    default="jsonl", show_default=True,
    help="JSON Lines, one Parquet file per table (needs pyarrow), or a bundle per learned rollout.",
)  # fmt: skip
@click.option(
    "-o", "--out", "--output", "output", metavar="FILE", type=click.Path(path_type=Path),
    help="A file (compressed if it ends in .gz) or a Parquet folder; default: standard output.",
)  # fmt: skip
@store_option
@json_option
def export(path: Path | None, as_json: bool, format_: str, output: Path | None) -> None:
    """Export the store, one row per line; equal stores give equal bytes.

    With --format trajectories each line is a bundle: the steps of a rollout that was
    learned from, their advantages, and the version that learned from it.

    --json prints a summary of what was written to --output.
    """
    if output is None and (as_json or format_ == "parquet"):
        raise click.UsageError(f"{'--json' if as_json else '--format parquet'} needs --output")
    if output is not None and format_ != "parquet" and output.suffix in MISLEADING:
        raise click.UsageError(f"{output} would hold JSON Lines: give it a name ending in .jsonl")
    with open_store(path) as (store, settings), progress_bar(quiet=output is None) as bar:
        if output is not None:
            refuse_store(output, settings)
        counts: Counter[str] = Counter()
        # Closed before the store is, or a generator that was not exhausted reads a closed store.
        with closing(_count_rows(_rows(store, settings, format_), counts, bar)) as rows:
            _write(rows, output, parquet=format_ == "parquet")
    if as_json:
        print_json({"format": format_, "output": str(output), "rows": dict(counts)})
    elif output is not None:
        click.echo(f"{counts.total():,} rows written to {output}", err=True)


def _rows(store: Store, settings: Settings, format_: str) -> Iterator[ExportRow]:
    """Return the rows of every table, or the bundles as JSON data."""
    if format_ != "trajectories":
        return store.export()
    from tau_live.evidence.bundles import bundles  # numpy, which the other formats do without

    return map(msgspec.to_builtins, bundles(store, settings))


def _count_rows(
    rows: Iterable[ExportRow], counts: Counter[str], bar: Progress
) -> Generator[ExportRow, None, None]:
    """Yield the rows, counting them by table, or as bundles."""
    task = bar.add_task("rows", total=None)
    for number, row in enumerate(rows):
        counts[str(row.get("table", "bundles"))] += 1
        if number % 1000 == 0:
            bar.update(task, completed=counts.total())
        yield row


def _write(rows: Iterable[ExportRow], output: Path | None, *, parquet: bool) -> None:
    """Write rows to standard output, into a folder of Parquet files, or as lines into a file.

    A file is replaced as a whole, readable by its owner alone; a pipe is written to. If its name
    ends in .gz it is compressed, equal lines to equal bytes.

    Raises:
        OSError: They could not be written; an earlier file is unchanged.
    """
    lines = (f"{json_of(row)}\n".encode() for row in rows)
    if output is None:
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()
    elif parquet:
        write_tables(output, rows)
    else:
        with opened_output(output) as file:
            if output.suffix == ".gz":
                with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as compressed:
                    compressed.writelines(lines)
            else:
                file.writelines(lines)


def write_tables(folder: Path, rows: Iterable[ExportRow]) -> None:
    """Write each table into a Parquet file of its name.

    Raises:
        TauLiveError: pyarrow is not installed, or ``folder`` is no folder.
    """
    if folder.exists() and not folder.is_dir():
        raise TauLiveError(f"--format parquet writes a folder, and {folder} is none")
    needing_arrow("arrow", "--format parquet").write_parquet(folder, rows)


def needing_arrow(module: str, what: str) -> Any:  # noqa: ANN401  # a module
    """Return a module of this package that imports pyarrow.

    Raises:
        TauLiveError: It is not installed.
    """
    try:
        return import_module(f"tau_live.cli.{module}")
    except ImportError as error:
        packages = packages_for("arrow")
        raise TauLiveError(f"{what} needs pyarrow ({error}): pip install {packages}") from error


COUNTED = ("rollouts", "attempts", "spans", "decisions", "rewards", "known", "open")


@click.command(
    epilog=epilog(
        "restore",
        "tau-live restore forgotten.jsonl.gz --store again.sqlite",
        "tau-live restore rollouts.jsonl --store again.sqlite",
    )
)
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@store_option
@json_option
def restore(file: Path, path: Path | None, as_json: bool) -> None:
    """Restore FILE: an archive that `tau-live gc` wrote, a file or a folder, or an export.

    Rollouts come back with all their rows, under their old numbers where those are free;
    the spans of runs and decisions come back with these, and are not counted. Rows that
    the store already has are skipped. Restore into a store of its own: in a live store
    retention deletes what has been learned from again.
    """
    with (
        closing(open_at(settings_of(path, changes=True).store)) as store,
        progress_bar(quiet=as_json) as bar,
    ):
        rows = (
            needing_arrow("archive", "an archive in a folder").read_folder(file)
            if file.is_dir()
            else read_archive(file)
        )
        counts = store.restore(bar.track(rows, total=None, description="rows"))
    totals = {name: counts.get(name, 0) for name in COUNTED}
    if as_json:
        print_json(totals)
        return
    parts = [f"{count:,} {name}" for name, count in totals.items() if count and name in COUNTED[:5]]
    click.echo(f"{', '.join(parts) or 'nothing'} restored")
    if totals["known"]:
        click.echo(f"{totals['known']:,} rollouts were already stored", err=True)
    if totals["open"]:
        click.echo(f"{totals['open']:,} rollouts had not ended and were skipped", err=True)
