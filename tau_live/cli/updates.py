"""``tau-live updates``: the updates, and why some were skipped."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import RenderableType

from tau_live.cli import completion
from tau_live.cli.options import epilog, json_option, open_store, store_option
from tau_live.cli.output import (
    facts_of,
    fitting,
    moment,
    number,
    print_all,
    print_json,
    records_of,
    safe,
    status_text,
    table_of,
)
from tau_live.core.errors import UnknownError
from tau_live.core.records import Update
from tau_live.learn.learner import report_of
from tau_live.store.roles import Store


@click.command(epilog=epilog("updates", "tau-live updates --point model", "tau-live updates 12"))
@click.argument("update", type=click.IntRange(1), required=False, shell_complete=completion.updates)
@click.option("--point", help="Only of this decision point.", shell_complete=completion.points)
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="Show at most this many."
)
@store_option
@json_option
def updates(
    *, path: Path | None, as_json: bool, update: int | None, point: str | None, limit: int
) -> None:
    """List the updates, newest first, or show UPDATE with all its diagnostics."""
    with open_store(path) as (store, _):
        rows = (
            store.policies.updates(limit=limit, point=point)
            if update is None
            else [update_of(store, update)]
        )
    if as_json:
        reports = [report_of(row) for row in rows]
        print_json(reports[0] if update is not None else {"updates": reports})
    elif update is not None:
        facts = report_of(rows[0]).items()
        print_all(facts_of(fact for name, value in facts for fact in _fact(name, value)))
    elif rows:
        print_all(_table(rows))
    else:
        click.echo("no updates yet")


def update_of(store: Store, number_: int) -> Update:
    """Return the update of this number.

    Raises:
        UnknownError: There is none.
    """
    newest = store.policies.updates(limit=1)
    behind = newest[0].update - number_ + 1 if newest else 0
    if behind > 0:
        for row in store.policies.updates(limit=behind):
            if row.update == number_:
                return row
    raise UnknownError("update", number_)


def _table(updates_: Sequence[Update]) -> RenderableType:
    rows = [_row(update) for update in updates_]
    narrow = [[row[index] for index in _NARROW] for row in rows]
    columns = [_COLUMNS[index] for index in _NARROW]
    return fitting(table_of(_COLUMNS, rows), table_of(columns, narrow), records_of(columns, narrow))


_COLUMNS = ("update#", "point", "what", "version#", "rollouts#", "decisions#", "loss#", "kl#",
            "when (UTC)")  # fmt: skip
_NARROW = (0, 1, 2, 3, 4, 8)
"""The indexes of the columns that are shown where not all fit."""


def _row(row: Update) -> tuple[object, ...]:
    skipped = safe(f"skipped: {row.skipped_reason}", "yellow")
    return (
        row.update,
        row.point or "(none)",
        status_text("executed") if row.executed else skipped,
        row.version or "-",
        row.trajectories,
        row.samples,
        _number(row.report.get("mean_total_loss")),
        _number(row.report.get("observed_approx_kl")),
        moment(row.at),
    )


def _fact(name: str, value: object, *, deep: str = "") -> Iterator[tuple[str, object]]:
    """Yield the fact under a name of a report, with the items of an object below it."""
    label = f"{deep}{name.replace('_', ' ')}"
    if name == "early_stop":  # which duplicates another key of a report
        return
    if isinstance(value, dict) and value:
        yield label, ""
        for inner, item in value.items():
            yield from _fact(inner, item, deep=f"{deep}  ")
    else:
        yield label, _value_text(name, value)


def _value_text(name: str, value: object) -> str:
    if name == "at" and isinstance(value, float):
        return moment(value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, dict):
        return "none"
    if isinstance(value, list):
        return ", ".join(_item_text(item) for item in value) or "none"
    return _number(value)


def _item_text(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(
            f"{name.replace('_', ' ')} {_item_text(item)}" for name, item in value.items()
        )
    return _number(value)


def _number(value: object) -> str:
    return number(value) if isinstance(value, int | float) else str(value or "-")
