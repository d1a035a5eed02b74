"""What commands print: JSON for programs, tables and trees for people."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Literal

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tau_live.cli.text import shown

PIPED_WIDTH = 1000
NARROW = 64
"""In fewer columns what is said stands below its name."""

STYLES = {
    "pass": "green", "ok": "green", "succeeded": "green", "new": "green", "executed": "green",
    "hold": "bold red", "fail": "bold red", "failed": "red", "error": "red",
    "critical": "bold red", "warning": "yellow", "info": "green",
    "warn": "yellow", "cancelled": "yellow", "timeout": "red", "unresponsive": "red",
    "running": "cyan", "preparing": "cyan", "queuing": "blue", "requeuing": "blue",
}  # fmt: skip

NEAREST = str.maketrans("█░·│├└─…", "#:.||+-~")
"""What is drawn where the output knows no signs beyond ASCII."""


def as_json(value: object) -> str:
    """Return a value as one line of JSON in ASCII; numbers that are not finite become null."""
    try:
        return json.dumps(value, allow_nan=False, default=msgspec.to_builtins)
    except ValueError:
        return json.dumps(json.loads(msgspec.json.encode(value)))


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    click.echo(as_json(value))


def print_all(*parts: RenderableType) -> None:
    """Print for people: with colours on a terminal, and whole where the output is piped."""
    print_on(console_of(sys.stdout.isatty()), *parts)


def print_on(console: Console, *parts: RenderableType) -> None:
    """Print for people, in the signs that the output knows."""
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    lines = (line.rstrip() for line in capture.get().splitlines())
    told = _known("".join(f"{line}\n" for line in lines), sys.stdout.encoding)
    click.echo(told, nl=False, color=console.is_terminal)


def console_of(terminal: bool) -> Console:
    """Return the console of this call; a pipe is wide, so that nothing is cut.

    Where ``NO_COLOR`` is set nothing is bold either: no control characters at all.
    """
    fixed = os.environ.get("COLUMNS", "").isdigit()
    width = None if terminal or fixed else PIPED_WIDTH
    colors: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(highlight=False, markup=False, emoji=False, width=width, color_system=colors)


def _known(text: str, encoding: str | None) -> str:
    """Return a text in the signs that an encoding has, the nearest for what it lacks."""
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(NEAREST).encode("ascii", "backslashreplace").decode()
    return text


def stdout_width() -> int:
    """Return how many characters a line of the output may have."""
    return console_of(sys.stdout.isatty()).width


def fitting(widest: RenderableType, *narrower: RenderableType) -> RenderableType:
    """Return the first that has room without breaking anything, else the last."""
    console = console_of(sys.stdout.isatty())
    unbounded = console.options.update(width=10 * PIPED_WIDTH)
    forms = (widest, *narrower)
    fit = (one for one in forms if console.measure(one, options=unbounded).maximum <= console.width)
    return next(fit, forms[-1])


def styled(word: object) -> Text:
    """Return a status as a word in its colour."""
    text = shown(word)
    return Text(text, style=STYLES.get(text, ""))


def safe(text: object, style: str = "") -> Text:
    """Return a text that cannot steer the terminal."""
    return Text(shown(text), style=style)


def joined(*parts: Text) -> Text:
    """Return texts one behind the other, each in its own style alone."""
    return Text().join(parts)


def table_of(columns: Sequence[str], rows: Sequence[Sequence[object]], *, first: int = 13) -> Table:
    """Return a table; a column whose name ends in ``#`` is set to the right, without it.

    Nothing is cut. What finds no room is broken, in the first column behind ``first`` characters
    at least.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    longest = max((len(_cell(row[0])) for row in rows), default=0)
    for index, column in enumerate(columns):
        table.add_column(
            column.rstrip("#"),
            justify="right" if column.endswith("#") else "left",
            overflow="fold",
            min_width=min(first, longest) if index == 0 else None,
        )
    for row in rows:
        table.add_row(*(_cell(cell) for cell in row))
    return table


def _cell(value: object) -> Text:
    return value if isinstance(value, Text) else safe(value)


def facts_of(rows: Iterable[tuple[str, object]]) -> RenderableType:
    """Return names and what is to be said of each: beside it, or below where that has no room."""
    width = stdout_width()
    if width < NARROW:
        return Group(*(_below(name, _cell(value), width) for name, value in rows))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(safe(name), _cell(value))
    return table


def records_of(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> RenderableType:
    """Return what a table says one below the other, for where its columns have no room."""
    names = [column.rstrip("#") for column in columns]
    records = (facts_of(zip(names, row, strict=True)) for row in rows)
    return Group(*[part for record in records for part in ("", record)][1:])


def _below(name: str, value: Text, width: int) -> RenderableType:
    label, indent = safe(name, "bold"), 2 + len(name) - len(name.lstrip())
    if label.cell_len + 2 + value.cell_len <= width:
        return joined(label, safe("  "), value)
    value.overflow = "fold"
    return Group(label, Padding(value, (0, 0, 0, indent)))


def print_report(report: object) -> None:
    """Print what a long piece of work came to, one fact a line."""
    plain = msgspec.to_builtins(report)
    facts = plain.items() if isinstance(plain, dict) else [("done", plain)]
    print_all(
        facts_of(
            (
                str(name).replace("_", " "),
                (as_json(value) if value else "none") if isinstance(value, dict | list) else value,
            )
            for name, value in facts
        )
    )


def progress_bar(*, quiet: bool = False) -> Progress:
    """Return a progress bar on standard error, which only a terminal shows that may be steered."""
    console = Console(stderr=True, highlight=False)
    quiet = quiet or not sys.stderr.isatty() or bool(os.environ.get("NO_COLOR"))
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=quiet,
    )
