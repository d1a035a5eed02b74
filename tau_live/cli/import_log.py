"""``tau-live import-log``: turns earlier logs into rollouts to learn from."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tau_live.cli.options import epilog, json_option, settings_of, store_option
from tau_live.cli.output import print_json, print_report, progress_bar
from tau_live.core.errors import LogLineError, TauLiveError
from tau_live.runtime.importing.rows import FIELDS, Place, Row, parse_map, time_of

if TYPE_CHECKING:
    from tau_live.runtime.importing.log import Format, Imported
    from tau_live.runtime.importing.rows import BadRow


BAD_SHOWN = 10
"""The most bad lines that are printed for people."""

FIELDS_HELP = "\b\nFields of --map:\n" + "".join(
    f"  {name:<14}{meaning}\n" for name, meaning in FIELDS.items()
) + "\n"  # fmt: skip


def _callback_of(parse: Callable[[str], object]) -> Callable[..., object]:
    """Return a callback for click that parses a value; a ``ValueError`` is a usage error."""

    def read(_ctx: click.Context, _parameter: click.Parameter, value: str) -> object:
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return read


@click.command(
    "import-log",
    epilog=FIELDS_HELP
    + epilog(
        "import-log",
        "tau-live import-log log.csv --point model --options small,large",
        "tau-live import-log log.jsonl --point ad --map option=action,reward=-cost",
        "tau-live import-log traces.jsonl --format otel",
        "tau-live import-log log.parquet --point model --map at=time",
    ),
)
@click.argument("source", metavar="FILE|-")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["jsonl", "csv", "otel", "parquet", "arrow"]),
    help="The file's format.  [default: detected]",
)
@click.option("--point", metavar="NAME", help="The decision point for rows that name none.")
@click.option(
    "--map",
    "places",
    default="",
    callback=_callback_of(parse_map),
    metavar="FIELD=COLUMN,...",
    help="Columns of fields that have another name in the file.",
)
@click.option(
    "--options",
    default="",
    metavar="NAMES|all",
    help="The options for rows that list none: names, or every option that the file applied.",
)
@click.option(
    "--reward-name", default="reward", show_default=True, metavar="NAME", help="Name of the reward."
)
@click.option(
    "--at",
    callback=_callback_of(time_of),
    metavar="TIME",
    help="Time for rows that have none.  [default: when the file was last written]",
)
@click.option(
    "--stream",
    metavar="NAME",
    help="Name of the log, from which ids are derived.  [default: the file's name and first line]",
)
@click.option("--strict", is_flag=True, help="Stop at the first bad line.")
@store_option
@json_option
def import_log(  # noqa: PLR0913  # one for each option
    source: str,
    *,
    format_: str | None,
    point: str | None,
    places: dict[str, Place],
    options: str,
    reward_name: str,
    at: float | None,
    stream: str | None,
    strict: bool,
    path: Path | None,
    as_json: bool,
) -> None:
    """Import earlier decisions of any system, so that learning starts from them.

    FILE is JSON Lines, a table with a header, a Parquet or Arrow table (needs pyarrow),
    or the JSON lines of OpenTelemetry's collector. Each row is one decision. Rows with a propensity
    train the policy; the others are only recorded. Nothing is learned yet: `tau-live learn --once`
    does that. Rows that are already stored are skipped.
    """
    from tau_live.runtime.importing.log import Format, LogSource
    from tau_live.runtime.importing.log import import_log as imported

    log = LogSource(
        path=source,
        format=None if format_ is None else Format(format_),
        places=places,
        point=point,
        options=tuple(filter(None, (name.strip() for name in options.split(",")))),
        stream=stream,
        reward=reward_name,
        at=at,
        strict=strict,
    )
    with progress_bar(quiet=as_json) as bar:
        task = bar.add_task("importing", total=None)
        report = imported(
            log,
            settings_of(path, changes=True),
            progress=lambda done, total: bar.update(task, completed=done, total=total or None),
            open_table=_open_table,
        )
    print_json(report) if as_json else _print(report)
    if report.nothing():
        raise TauLiveError(f"no line of '{source}' could be read; {_bad_row_text(report.bad[0])}")


def _open_table(path: Path, format_: "Format") -> tuple[int, Iterator[Row]]:
    try:
        from tau_live.cli.arrow import read_table  # the one module that needs it
    except ImportError as error:
        raise TauLiveError(
            f"'{path}' is a table of {format_.value}, which needs pyarrow ({error}): "
            "pip install pyarrow"
        ) from error
    return read_table(path, format_)


def _print(report: "Imported") -> None:
    """Print the report, then the first bad lines."""
    facts = asdict(report)
    print_report({name: value for name, value in facts.items() if name != "bad"})
    for row in report.bad[:BAD_SHOWN]:
        click.echo(f"bad: {_bad_row_text(row)}", err=True)
    if len(report.bad) > BAD_SHOWN:
        click.echo(f"bad: {report.bad_lines - BAD_SHOWN} more; --json has the first", err=True)
    if report.decisions and report.without_choice == report.decisions:
        click.echo(
            "no decision had a choice, so there is nothing to learn: give the options with "
            "--options, or name their column with --map options=COLUMN",
            err=True,
        )


def _bad_row_text(row: "BadRow") -> str:
    return str(LogLineError(row.line, row.column, row.reason))
