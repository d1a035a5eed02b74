"""``tau-live alerts``: the last ones, and a trial one."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.padding import Padding
from rich.text import Text

from tau_live.cli.opening import (
    default_command,
    epilog,
    json_option,
    opened,
    settings_of,
    store_option,
)
from tau_live.cli.output import print_all, print_json, safe, styled, table_of
from tau_live.cli.text import moment, shown

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tau_live.store.alert_log import AlertRow

STDERR = 2
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
    if default_command(ctx, path, as_json=as_json):
        ctx.invoke(list_, path=path, as_json=as_json)


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
    """List the alerts that were raised, newest first, and how many were suppressed since."""
    with opened(path) as (store, settings):
        told = store.alerts.latest(limit=limit)
        suppressed = dict(store.alerts.suppressed())
    if as_json:
        print_json(
            {
                "alerts": told,
                "suppressed": suppressed,
                "interval_s": settings.alert_interval_s,
                "command": bool(settings.alert_command),
            }
        )
        return
    parts = [part for row in told for part in _told(row)] or [safe("no alert yet")]
    parts += [
        safe(f"{count} more of {kind} suppressed since the last one", "dim")
        for kind, count in sorted(suppressed.items())
    ]
    print_all(*parts)


def _told(row: "AlertRow") -> "list[RenderableType]":
    """Return an alert for people: what it is, what happened, and where to look next."""
    before = f"  (after {row.suppressed} suppressed)" if row.suppressed else ""
    head = Text.assemble(
        safe(moment(row.at)), "  ", styled(row.severity), "  ", safe(row.kind, "bold"), safe(before)
    )
    return [head, Padding(safe(row.sentence), INDENT), Padding(safe(f"-> {row.todo}"), INDENT)]


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
    """Send a test alert to every plugin and to the configured command, and report the result.

    The command's own output goes to standard error. Exit code 1 if anything failed.
    """
    from tau_live.alerts.alerting import trial_alert
    from tau_live.alerts.plugins import COMMAND, run
    from tau_live.builtin import load_plugins

    settings = settings_of(path)
    alert = trial_alert(settings, at=time.time())
    plugins = load_plugins(settings)
    plugins.alert_raised(alert)
    told = [
        {"plugin": one.name, "problem": one.problem}
        for one in plugins.report()
        if "alert_raised" in one.hooks
    ]
    if settings.alert_command and COMMAND not in settings.plugins_off:
        ran = run(
            settings.alert_command, alert, os.environ,
            timeout_s=settings.alert_timeout_s, out=STDERR,
        )  # fmt: skip
        told.append({"plugin": COMMAND, "problem": ran.problem})
    failed = any(one["problem"] for one in told)
    if as_json:
        print_json({"alert": alert, "told": told, "command": bool(settings.alert_command)})
    else:
        rows = [(one["plugin"], shown(one["problem"] or "delivered")) for one in told]
        print_all(table_of(("plugin", "result"), rows))
        if not settings.alert_command:
            click.echo("no command is set: set TAU_LIVE_RL_ALERT_COMMAND", err=True)
    click.get_current_context().exit(int(failed))
