"""``tau-live status``: what an operator checks first, on one screen."""

import os
import sys
import time
from pathlib import Path

import click

from tau_live.cli.details import details
from tau_live.cli.doctor_checks.stores import why_unwritable
from tau_live.cli.opening import epilog, is_enabled, json_option, opened, store_option
from tau_live.cli.output import console_of, facts_of, print_json, print_on, safe
from tau_live.cli.screen import screen_of
from tau_live.errors import StoreBusyError
from tau_live.reporting.glance import glance_of
from tau_live.status import status_of

LOCKED_S = 0.1
"""How long a locked store is waited for; others write to it, then."""

PROMPT = 1
"""Lines of a terminal that the shell takes."""


@click.command(
    epilog=epilog(
        "status",
        "tau-live status",
        "tau-live status --all",
        "tau-live status --json | jq .gate.state",
    )
)
@click.option("--all", "everything", is_flag=True, help="Show every figure, one per line.")
@store_option
@json_option
def status(path: Path | None, as_json: bool, everything: bool) -> None:
    """Show on one screen whether it is on, healthy and learning, and what to do next.

    `tau-live top` keeps it on screen. A running process also publishes it as status.json
    beside the store.
    """
    now = time.time()
    with opened(path) as (store, settings):
        fails = _failing(settings.store)
        if as_json:
            told = status_of(store, settings, now=now, enabled=is_enabled(), store_fails=fails)
            print_json(told)
            return
        glance = glance_of(store, settings, now=now, enabled=is_enabled(), store_fails=fails)
    console = console_of(sys.stdout.isatty())
    if everything:
        advice = (safe(f"- {one}") for one in glance.summary.next)
        print_on(console, facts_of(details(glance.status, now=now)), "", *advice)
        return
    height = console.height - PROMPT if sys.stdout.isatty() else None
    print_on(console, screen_of(glance, console, height=height))


def _failing(file: Path) -> str | None:
    """Return why a store fails that this user may write; who may not learns nothing of it."""
    if not (os.access(file, os.W_OK) and os.access(file.absolute().parent, os.W_OK)):
        return None
    error = why_unwritable(file, wait_s=LOCKED_S)
    return None if error is None or isinstance(error, StoreBusyError) else str(error)
