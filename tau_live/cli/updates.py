"""``tau-live updates``: what was learned, and what was skipped and why."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
from rich.console import RenderableType

from tau_live.cli import completing
from tau_live.cli.opening import epilog, json_option, opened, store_option
from tau_live.cli.output import (
    facts_of,
    fitting,
    print_all,
    print_json,
    records_of,
    safe,
    styled,
    table_of,
)
from tau_live.cli.text import moment, number
from tau_live.errors import UnknownError
from tau_live.learning.learner import report_of
from tau_live.store.records import Update
from tau_live.store.roles import Store


@click.command(epilog=epilog("updates", "tau-live updates --point model", "tau-live updates 12"))
@click.argument("update", type=click.IntRange(1), required=False, shell_complete=completing.updates)
@click.option("--point", help="Only of this decision point.", shell_complete=completing.points)
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="Show at most this many."
)
@store_option
@json_option
def updates(
    *, path: Path | None, as_json: bool, update: int | None, point: str | None, limit: int
) -> None:
    """List the updates, newest first, or show UPDATE with all its diagnostics."""
    with opened(path) as (store, _):
        if update is not None:
            report = report_of(update_of(store, update))
            found = [report]
        else:
            found = [report_of(row) for row in store.policies.updates(limit=limit, point=point)]
    if as_json:
        print_json(found[0] if update is not None else {"updates": found})
    elif update is not None:
        print_all(facts_of(_facts(found[0])))
    elif found:
        print_all(_table(found))
    else:
        click.echo("no updates yet")


def update_of(store: Store, number_: int) -> Update:
    """Return the update of this number.

    Raises:
        UnknownError: There is none.
    """
    newest = store.policies.updates(limit=1)
    behind = newest[0].update - number_ + 1 if newest else 0
    rows = store.policies.updates(limit=behind) if behind > 0 else []
    for row in rows:
        if row.update == number_:
            return row
    raise UnknownError("update", number_)


def _table(found: Sequence[Mapping[str, object]]) -> RenderableType:
    rows = [_row(report) for report in found]
    few = [[row[place] for place in _FEW] for row in rows]
    columns = [_COLUMNS[place] for place in _FEW]
    return fitting(table_of(_COLUMNS, rows), table_of(columns, few), records_of(columns, few))


_TWICE = frozenset({"early_stop"})
"""What a report says under another name too."""

_COLUMNS = ("update#", "point", "what", "version#", "rollouts#", "decisions#", "loss#", "kl#",
            "when (UTC)")  # fmt: skip
_FEW = (0, 1, 2, 3, 4, 8)
"""The columns that are left where not all have room."""


def _row(report: Mapping[str, object]) -> tuple[object, ...]:
    what = (
        styled("executed")
        if report["executed"]
        else safe(f"skipped: {report['skipped_reason']}", "yellow")
    )
    return (
        report["update"],
        report["point"] or "(none)",
        what,
        report["version"] or "-",
        report["trajectories"],
        report["samples"],
        _number(report["mean_total_loss"]),
        _number(report["observed_approx_kl"]),
        moment(at if isinstance(at := report["at"], float) else None),
    )


def _facts(report: Mapping[str, object]) -> list[tuple[str, object]]:
    return [fact for name, value in report.items() for fact in _fact(name, value)]


def _fact(name: str, value: object, *, deep: str = "") -> Iterator[tuple[str, object]]:
    """Yield what a report says under a name, with what is in an object below it."""
    label = f"{deep}{name.replace('_', ' ')}"
    if name in _TWICE:
        return
    if isinstance(value, dict) and value:
        yield label, ""
        for inner, one in value.items():
            yield from _fact(inner, one, deep=f"{deep}  ")
    else:
        yield label, _said(name, value)


def _said(name: str, value: object) -> str:
    if name == "at" and isinstance(value, float):
        return moment(value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, dict):
        return "none"
    if isinstance(value, list):
        return ", ".join(_listed(one) for one in value) or "none"
    return _number(value)


def _listed(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name.replace('_', ' ')} {_listed(one)}" for name, one in value.items())
    return _number(value)


def _number(value: object) -> str:
    return number(value) if isinstance(value, int | float) else str(value or "-")
