"""The output of commands: JSON for programs, tables and trees for people."""

import json
import logging
import math
import os
import re
import shlex
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Literal

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tau_live.core.guard import Log, without_secrets

if TYPE_CHECKING:
    from tau_live.learn.promotion.rules import PromptStatus

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
SIZES = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}


def printable(text: object) -> str:
    """Return a text on one line, with everything that could steer a terminal made visible."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


STORE = "tau_live.store"
"""The key of the value of ``--store`` in the context of a command that was given it."""

SUGGESTED = re.compile(r"`(?:[A-Z_]+=\S+ )?tau-live ([^`]+)`|^tau-live (.+)$")
"""Matches a command in a sentence, in backticks, and one that is the whole text."""


def suggest(text: str) -> str:
    """Return a text whose suggested commands name the store, if the user named one.

    Without ``--store`` they would be about another store.
    """
    ctx = click.get_current_context(silent=True)
    store = None if ctx is None else ctx.meta.get(STORE)
    if ctx is None or store is None:
        return text
    root, option = ctx.find_root(), f" --store {shlex.quote(str(store))}"

    def with_store(match: re.Match[str]) -> str:
        words = (match[1] or match[2]).split()
        if {"--store", "--help"} & {*words} or not _takes_store(root, words):
            return match[0]
        return f"{match[0][:-1]}{option}`" if match[1] else f"{match[0]}{option}"

    return SUGGESTED.sub(with_store, text)


def _takes_store(ctx: click.Context, words: Sequence[str]) -> bool:
    """Return whether the command that the words call has the option ``--store``."""
    command = ctx.command
    for word in words:
        inner = command.get_command(ctx, word) if isinstance(command, click.Group) else None
        if inner is None:
            break
        command = inner
    return any("--store" in parameter.opts for parameter in command.params)


def clip(text: str, most: int) -> str:
    """Return a text cut to ``most`` characters; an ellipsis marks the cut."""
    return text if len(text) <= most else f"{text[: max(0, most - 1)].rstrip()}…"


def seconds(duration: float | None) -> str:
    """Return a duration as text, in a suitable unit."""
    if duration is None or not math.isfinite(duration):
        return "-"
    if abs(duration) < 0.9995:
        return f"{duration * 1000:.0f} ms"
    if abs(duration) < 120:
        return f"{duration:.1f} s"
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if abs(duration) >= 2 * unit or unit == 60:
            return f"{duration / unit:.1f} {name}"
    raise AssertionError("unreachable")


def moment(at: float | None) -> str:
    """Return a time in UTC, to the second."""
    if at is None:
        return "-"
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return str(at)


def ago(at: float | None, *, now: float) -> str:
    """Return a time and how long it has been since."""
    return "-" if at is None else f"{moment(at)} ({since(at, now=now)})"


def since(at: float | None, *, now: float) -> str:
    """Return the time since as text; for a time ahead of this clock, by how much it is."""
    if at is None:
        return "-"
    # clocks of several machines may differ by less, and nobody need know
    if at - now >= 2.0:
        return f"{seconds(at - now)} ahead of this clock"
    return f"{seconds(max(0.0, now - at))} ago"


def number(value: float | None) -> str:
    """Return a number in its shortest form."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value + 0.0:.4g}"  # -0.0 is 0


def plural(count: int, noun: str) -> str:
    """Return a number of things."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percent(share: float) -> str:
    """Return a share as a percentage, precise enough that a small one is not 0."""
    return f"{100.0 * share:.3g}%"


def duration(text: str) -> float:
    """Return the seconds that ``30d``, ``12h`` or ``90s`` means, for click.

    Raises:
        click.BadParameter: It is not a length of time.
    """
    return _measure(text, UNITS, "a length of time like 30d, 12h, 15m or 90s")


def size(text: str) -> float:
    """Return the bytes that ``500MB``, ``2GB`` or ``800 kB`` means, for click.

    Raises:
        click.BadParameter: It is not a size.
    """
    return _measure(text, SIZES, "a size like 500MB or 2GB")


def _measure(text: str, units: Mapping[str, float], what: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)", text.strip().lower())
    if match is None or match[2] not in units:
        raise click.BadParameter(f"{text!r} is not {what}")
    return float(match[1]) * units[match[2]]


def when(text: str) -> float:
    """Return epoch seconds for ``2026-01-31T12:00`` (UTC), or ``2h`` for two hours ago, for click.

    Raises:
        click.BadParameter: It is neither.
    """
    with suppress(click.BadParameter):
        return time.time() - duration(text)
    try:
        at = datetime.fromisoformat(text.strip())
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        message = f"{text!r} is neither a time like 2026-01-31T12:00 nor one like 2h"
        raise click.BadParameter(message) from None


PIPED_WIDTH = 1000
NARROW = 64
"""In fewer columns a value is printed below its name."""

STYLES = {
    "pass": "green", "ok": "green", "succeeded": "green", "new": "green", "executed": "green",
    "hold": "bold red", "fail": "bold red", "failed": "red", "error": "red",
    "critical": "bold red", "warning": "yellow", "info": "green",
    "warn": "yellow", "cancelled": "yellow", "timeout": "red", "unresponsive": "red",
    "running": "cyan", "preparing": "cyan", "queuing": "blue", "requeuing": "blue",
}  # fmt: skip

NEAREST = str.maketrans("█░·│├└─…", "#:.||+-~")
"""Substitutes for an output that is limited to ASCII."""


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
    """Print for people: with colours on a terminal, and uncut where the output is piped."""
    print_on(console_of(sys.stdout.isatty()), *parts)


def print_on(console: Console, *parts: RenderableType) -> None:
    """Print for people, in the characters that the output supports."""
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    lines = (line.rstrip() for line in capture.get().splitlines())
    text = _encodable("".join(f"{line}\n" for line in lines), sys.stdout.encoding)
    click.echo(text, nl=False, color=console.is_terminal)


def console_of(terminal: bool) -> Console:
    """Return the console of this call; a pipe is wide, so that nothing is cut.

    Where ``NO_COLOR`` is set nothing is bold either: no control characters at all.
    """
    fixed = os.environ.get("COLUMNS", "").isdigit()
    width = None if terminal or fixed else PIPED_WIDTH
    colors: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(highlight=False, markup=False, emoji=False, width=width, color_system=colors)


def _encodable(text: str, encoding: str | None) -> str:
    """Return a text in the characters of an encoding, with the nearest for those that it lacks."""
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(NEAREST).encode("ascii", "backslashreplace").decode()
    return text


def stdout_width() -> int:
    """Return the width of the output, in characters."""
    return console_of(sys.stdout.isatty()).width


def fitting(widest: RenderableType, *narrower: RenderableType) -> RenderableType:
    """Return the first form that fits without wrapping, else the last."""
    console = console_of(sys.stdout.isatty())
    unbounded = console.options.update(width=10 * PIPED_WIDTH)
    forms = (widest, *narrower)
    fit = (
        form for form in forms if console.measure(form, options=unbounded).maximum <= console.width
    )
    return next(fit, forms[-1])


def status_text(word: object) -> Text:
    """Return a status as a word in its colour."""
    text = printable(word)
    return Text(text, style=STYLES.get(text, ""))


def safe(text: object, style: str = "") -> Text:
    """Return a text that cannot steer the terminal."""
    return Text(printable(text), style=style)


def join_texts(*parts: Text) -> Text:
    """Return texts one after the other, each in its own style alone."""
    return Text().join(parts)


def table_of(columns: Sequence[str], rows: Sequence[Sequence[object]], *, first: int = 13) -> Table:
    """Return a table; a column whose name ends in ``#`` is set to the right, without it.

    Nothing is cut. Cells that do not fit are wrapped, in the first column after at least ``first``
    characters.
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
    """Return names with their values: beside them, or below where they do not fit.

    A fact whose value is ``None`` is left out.
    """
    width, rows = stdout_width(), [row for row in rows if row[1] is not None]
    if width < NARROW:
        return Group(*(_below(name, _cell(value), width) for name, value in rows))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(safe(name), _cell(value))
    return table


def listing_of(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> RenderableType:
    """Return a table in which only the last column is wrapped; records where it does not fit."""
    table = table_of(columns, rows)
    for column in table.columns[:-1]:
        column.no_wrap = True
    console = console_of(sys.stdout.isatty())
    unbounded = console.options.update(width=10 * PIPED_WIDTH)
    fits = console.measure(table, options=unbounded).minimum <= console.width
    shown = [[None if cell == "" else cell for cell in row] for row in rows]
    return table if fits else records_of(columns, shown)


def line_of(mark: str, text: str, style: str = "") -> RenderableType:
    """Return a line after a mark; where it wraps, it keeps its indent."""
    body = text.lstrip(" ")
    lead = safe(mark + " " * (len(text) - len(body)), style)
    content = safe(body.rstrip(), style)
    if lead.cell_len + content.cell_len <= stdout_width():
        return join_texts(lead, content)
    line = Table.grid()
    line.add_column(no_wrap=True)
    line.add_column(overflow="fold")
    line.add_row(lead, content)
    return line


def records_of(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> RenderableType:
    """Return the rows of a table as records, for where its columns do not fit."""
    names = [column.rstrip("#") for column in columns]
    records = (facts_of(zip(names, row, strict=True)) for row in rows)
    return Group(*[part for record in records for part in ("", record)][1:])


def _below(name: str, value: Text, width: int) -> RenderableType:
    label, indent = safe(name, "bold"), 2 + len(name) - len(name.lstrip())
    if label.cell_len + 2 + value.cell_len <= width:
        return join_texts(label, safe("  "), value)
    value.overflow = "fold"
    return Group(label, Padding(value, (0, 0, 0, indent)))


def print_report(report: object) -> None:
    """Print the report of a long piece of work, one fact a line."""
    plain = msgspec.to_builtins(report)
    facts = plain.items() if isinstance(plain, dict) else [("done", plain)]
    print_all(
        facts_of(
            (
                str(name).replace("_", " "),
                (as_json(value) if value else "none")
                if isinstance(value, dict | list)
                else str(value),
            )
            for name, value in facts
        )
    )


def prompt_text(prompt: "PromptStatus") -> str:
    """Return the status of a prompt on trial in words: its share, its lift and of how many."""
    state = "" if prompt.state == "trial" else f"{prompt.state}, "
    share = percent(prompt.exposure).replace("%", " %")
    lift = "no lift known" if prompt.lift is None else f"{prompt.lift:+.2f}"
    if prompt.lower is not None and prompt.upper is not None:
        lift += f" [{prompt.lower:+.2f}, {prompt.upper:+.2f}]"
    counted = f"{number(prompt.offered + prompt.withheld)} rollouts"
    why = f"; {prompt.why}" if prompt.why else ""
    return f"{state}{share}, {lift}, {counted} ({number(prompt.offered)} offered){why}"


def progress_bar(*, quiet: bool = False) -> Progress:
    """Return a progress bar on standard error, shown only on a terminal that may be controlled."""
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


def configure(*, verbose: bool) -> None:
    """Let log lines go to standard error: warnings, or with ``verbose`` everything.

    structlog is imported for the first line: with it come asyncio, attrs and pygments.
    """
    Log.prepare = partial(_configure, verbose=verbose)


def _configure(*, verbose: bool) -> None:
    import structlog

    if structlog.is_configured():  # by the host
        return
    colors = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,  # the renderer's own would show local variables
            without_secrets,
            structlog.dev.ConsoleRenderer(colors=colors),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.DEBUG if verbose else logging.WARNING
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
