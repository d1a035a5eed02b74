"""``tau-live ship``: send what is left in the spool of this host."""

import threading
from pathlib import Path

import click

from tau_live.cli.options import epilog, json_option, settings_of, store_option
from tau_live.cli.output import facts_of, number, print_all, print_json, progress_bar
from tau_live.cli.terminal import stopping


@click.command(epilog=epilog("ship", "tau-live ship --json"))
@store_option
@json_option
def ship(path: Path | None, *, as_json: bool) -> None:
    """Send what this host has recorded and its database does not have.

    Agents do so by themselves; this is for what is left when none runs. It may be stopped and
    repeated at any time.
    """
    from tau_live.runtime.shipping import ship as ship_spool

    stop = threading.Event()
    with stopping(stop), progress_bar(quiet=as_json) as bar:
        task = bar.add_task("rollouts", total=None)
        report = ship_spool(
            settings_of(path, changes=True),
            stop=stop,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        print_json(report)
        return
    print_all(
        facts_of(
            [
                ("sent", number(report.shipped)),
                ("ready to be learned from", f"{number(report.ready)} of these"),
                ("refused by the database", number(report.refused)),
                ("left in the spool", number(report.unsent)),
            ]
        )
    )
