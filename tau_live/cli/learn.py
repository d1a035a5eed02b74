"""``tau-live learn``: the learner in a process of its own."""

import os
import threading
from pathlib import Path

import click

from tau_live.cli.options import (
    enabled_or_refuse,
    epilog,
    json_option,
    settings_of,
    store_option,
    warn_before,
)
from tau_live.cli.output import print_json, printable
from tau_live.cli.terminal import stopping
from tau_live.core.sanitize import JsonObject


@click.command(
    epilog=epilog(
        "learn",
        "TAU_LIVE_RL=1 tau-live learn",
        "TAU_LIVE_RL=1 tau-live learn --once --json | jq .version",
    )
)
@click.option("--once", is_flag=True, help="Run every update that is due, then exit.")
@store_option
@json_option
def learn(path: Path | None, as_json: bool, once: bool) -> None:
    """Run updates as they become due, until Ctrl-C, with one line of output each.

    Rewards that are overdue are settled as well, with their defaults or as missing.

    Set TAU_LIVE_RL_LEARNER=off in the agent's processes; a lease keeps two learners apart
    in any case.
    """
    from tau_live.runtime.learner_process import learn_until

    enabled_or_refuse("learn")
    stop = threading.Event()

    def print_update(report: JsonObject) -> None:
        if as_json:
            print_json(report)
            return
        outcome = f"made version {report['version']}" if report["executed"] else "skipped"
        why = f": {report['skipped_reason']}" if report["skipped_reason"] else ""
        data = f"{report['trajectories']} rollouts, {report['samples']} decisions"
        click.echo(
            f"update {report['update']} of {report['point']!r}: {outcome}{printable(why)} ({data})"
        )

    settings = settings_of(path, changes=True)
    warn_before(settings)
    with stopping(stop):
        learn_until(stop, settings, once=once, report=print_update, environ=os.environ)
