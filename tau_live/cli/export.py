"""``tau-live export``: everything that a recording determines, for other tools."""

import gzip
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import BinaryIO

import click
from rich.progress import Progress, TaskID

from tau_live.cli.opening import epilog, json_option, opened, refuse_store, store_option
from tau_live.cli.output import as_json as json_of
from tau_live.cli.output import print_json, progress_bar
from tau_live.errors import TauLiveError
from tau_live.machine.whole_files import opened_output
from tau_live.version import packages_for

Row = Mapping[str, object]
Rows = Iterable[Row]

TOLD_EVERY = 1000
OTHERS = frozenset({".csv", ".tsv", ".parquet", ".xlsx", ".json"})
"""Endings by which other tools would take the lines for something else."""


@click.command(
    epilog=epilog(
        "export",
        "tau-live export -o rollouts.jsonl",
        "tau-live export | jq 'select(.table == \"decisions\")'",
        "tau-live export --format parquet -o export/",
    )
)
@click.option(
    "--format", "format_", type=click.Choice(["jsonl", "parquet"]), default="jsonl",
    show_default=True, help="JSON Lines, or one Parquet file per table (needs pyarrow).",
)  # fmt: skip
@click.option(
    "-o", "--out", "--output", "output", metavar="FILE", type=click.Path(path_type=Path),
    help="A file (compressed if it ends in .gz) or a Parquet folder; default: standard output.",
)  # fmt: skip
@store_option
@json_option
def export(path: Path | None, as_json: bool, format_: str, output: Path | None) -> None:
    """Export the store, one row per line; equal stores give equal bytes.

    --json prints a summary of what was written to --output.
    """
    if output is None and (as_json or format_ == "parquet"):
        raise click.UsageError(f"{'--json' if as_json else '--format parquet'} needs --output")
    if output is not None and format_ == "jsonl" and output.suffix in OTHERS:
        raise click.UsageError(f"{output} would hold JSON Lines: give it a name ending in .jsonl")
    with opened(path) as (store, settings), progress_bar(quiet=output is None) as bar:
        if output is not None:
            refuse_store(output, settings)
        task = bar.add_task("rows", total=None)
        counts: Counter[str] = Counter()
        told = partial(_tell, bar, task, counts)
        # Closed before the store is, or the rows that nobody took complain that it has gone.
        with closing(counted(store.export(), counts, told)) as rows:
            if output is None:
                write_lines(sys.stdout.buffer, rows)
            elif format_ == "jsonl":
                write_file(output, rows)
            else:
                write_tables(output, rows)
    if as_json:
        print_json({"format": format_, "output": str(output), "rows": dict(counts)})
    elif output is not None:
        click.echo(f"{counts.total():,} rows written to {output}", err=True)


def counted(
    rows: Rows, counts: Counter[str], told: Callable[[], None]
) -> Generator[Row, None, None]:
    """Yield the rows, counting them by table; ``told`` is called now and then."""
    for number, row in enumerate(rows):
        counts[str(row["table"])] += 1
        if number % TOLD_EVERY == 0:
            told()
        yield row


def _tell(bar: Progress, task: TaskID, counts: Counter[str]) -> None:
    bar.update(task, completed=counts.total())


def write_lines(file: BinaryIO, rows: Rows) -> None:
    """Write each row as a line of JSON, in ASCII."""
    file.writelines(lines_of(rows))
    file.flush()


def lines_of(rows: Rows) -> Iterator[bytes]:
    """Yield each row as a line of JSON, in ASCII."""
    return (f"{json_of(row)}\n".encode() for row in rows)


def write_file(path: Path, rows: Rows) -> None:
    """Write the lines into a file as a whole, for its owner's eyes alone, or down a pipe.

    Where its name ends in .gz they are packed, equal lines to equal bytes.

    Raises:
        OSError: They could not be written; a file that stood there before still does.
    """
    with opened_output(path) as file:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                packed.writelines(lines_of(rows))
        else:
            write_lines(file, rows)


def write_tables(folder: Path, rows: Rows) -> None:
    """Write each table into a Parquet file of its name.

    Raises:
        TauLiveError: pyarrow is not installed, or it is no folder.
    """
    if folder.exists() and not folder.is_dir():
        raise TauLiveError(f"--format parquet writes a folder, and {folder} is none")
    try:
        from tau_live.cli.arrow import write_parquet  # the one module that needs it
    except ImportError as error:
        raise TauLiveError(
            f"--format parquet needs pyarrow ({error}): pip install {packages_for('arrow')}"
        ) from error
    write_parquet(folder, rows)
