"""``tau-live alerts``: the latest alerts, and a test alert."""

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.padding import Padding
from rich.text import Text

from tau_live.cli.options import (
    epilog,
    json_option,
    open_store,
    run_default,
    settings_of,
    store_option,
)
from tau_live.cli.output import (
    moment,
    print_all,
    print_json,
    printable,
    safe,
    status_text,
    suggest,
    table_of,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tau_live.core.settings import Settings
    from tau_live.store.records import AlertRow
    from tau_live.store.roles import Store

INDENT = (0, 0, 0, 2)


@click.group(
    invoke_without_command=True,
    epilog=epilog("alerts list", "tau-live alerts || tau-live alerts test"),
)
@store_option
@json_option
@click.pass_context
def alerts(ctx: click.Context, path: Path | None, as_json: bool) -> None:
    """List alerts (as `alerts list`), or send a test alert."""
    run_default(ctx, list_, path, as_json=as_json)


@alerts.command("list", epilog=epilog("alerts list", "tau-live alerts list --limit 5"))
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=20,
    show_default=True,
    help="Show at most this many.",
)
@store_option
@json_option
def list_(path: Path | None, as_json: bool, limit: int = 20) -> None:
    """List the alerts that were raised, newest first; those whose condition is over say so."""
    with open_store(path) as (store, settings):
        listed = list_alerts(store, settings, limit=limit)
    if as_json:
        plain = [{**asdict(row), "over": is_over} for row, is_over in listed]
        print_json({"alerts": plain, "command": bool(settings.alert_command)})
        return
    parts = [part for row, is_over in listed for part in _render(row, is_over=is_over)]
    print_all(*(parts or [safe("no alert yet")]))


def list_alerts(
    store: "Store", settings: "Settings", *, limit: int
) -> "list[tuple[AlertRow, bool]]":
    """Return the latest alerts, newest first, each with whether its condition is over."""
    from tau_live.operate.alerts import over

    latest = store.alerts.latest(limit=limit)
    ended = over(latest, store, settings, now=time.time())
    rows = sorted(latest, key=lambda row: (row.at, row.seq), reverse=True)
    return [(row, row.seq in ended) for row in rows]


def _render(row: "AlertRow", *, is_over: bool) -> "list[RenderableType]":
    """Return an alert for people: its kind, what happened, and the command to run next."""
    head = Text.assemble(
        safe(moment(row.at)),
        "  ",
        safe("over", "dim") if is_over else status_text(row.severity),
        "  ",
        safe(row.kind, "bold"),
    )
    happened = Padding(safe(row.sentence), INDENT)
    return [head, happened] if is_over else [
        head, happened, Padding(safe(f"-> {suggest(row.todo)}"), INDENT),
    ]  # fmt: skip


@alerts.command(
    "test",
    epilog=epilog(
        "alerts test",
        "tau-live alerts test",
        "TAU_LIVE_RL_ALERT_COMMAND='curl -fsS -d @- https://ntfy.example/me' tau-live alerts test",
    ),
)
@store_option
@json_option
def test(path: Path | None, as_json: bool) -> None:
    """Send a test alert to every plugin, command and service, and report the result.

    The output of commands goes to standard error. Exit code 1 if anything failed.
    """
    from tau_live.operate.alert_plugins import calls_of, run_command
    from tau_live.operate.alerts import trial_alert
    from tau_live.runtime.builtin_plugins import load_plugins

    settings = settings_of(path)
    alert = trial_alert(settings, at=time.time())
    plugins = load_plugins(settings)
    plugins.tell("alert_raised", alert)
    results = [
        {"plugin": report.name, "problem": report.problem}
        for report in plugins.report()
        if "alert_raised" in report.hooks
    ]
    calls = calls_of(settings)
    for name, call in calls.items():
        if name not in settings.plugins_off:
            problem = run_command(
                call(alert), alert, os.environ,
                timeout_s=settings.alert_timeout_s, out=2,  # standard error
            )  # fmt: skip
            results.append({"plugin": name, "problem": problem})
    failed = any(result["problem"] for result in results)
    if as_json:
        print_json({"alert": alert, "deliveries": results, "command": bool(settings.alert_command)})
    else:
        rows = [
            (result["plugin"], printable(result["problem"] or "delivered")) for result in results
        ]
        print_all(table_of(("plugin", "result"), rows))
        if not calls:
            click.echo(
                "no delivery is set: set TAU_LIVE_RL_ALERT_COMMAND or TAU_LIVE_RL_ALERT_URLS",
                err=True,
            )
    click.get_current_context().exit(int(failed))
