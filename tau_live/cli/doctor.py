"""``tau-live doctor``: is everything as it should be, and if not, what to do."""

import os
import time
from pathlib import Path

import click

from tau_live.cli.doctor_checks.check import FAIL, OK, WARN
from tau_live.cli.doctor_checks.checks import checks
from tau_live.cli.opening import epilog, json_option, store_option
from tau_live.cli.output import print_all, print_json, safe, styled, table_of


@click.command(epilog=epilog("doctor", "tau-live doctor", "tau-live doctor --json | jq .worst"))
@store_option
@json_option
@click.pass_context
def doctor(ctx: click.Context, path: Path | None, as_json: bool) -> None:
    """Check this installation, its settings and its store, and suggest fixes.

    Exit code 1 means that something does not work; warnings do not count. The word in
    parentheses names the mistake, as the documentation lists it.
    """
    found = list(checks(os.environ, path, now=time.time()))
    states = {check.state for check in found}
    worst = next(state for state in (FAIL, WARN, OK) if state in states)
    if as_json:
        print_json({"worst": worst, "checks": [check._asdict() for check in found]})
    else:
        rows: list[tuple[object, ...]] = []
        for check in found:
            rows.append((styled(check.state), check.check, safe(check.found)))
            if check.advice:
                code = f" ({check.mistake})" if check.mistake else ""
                rows.append(("", "", safe(f"-> {check.advice}{code}", "dim")))
        print_all(table_of(("", "", ""), rows))
    ctx.exit(1 if worst == FAIL else 0)
