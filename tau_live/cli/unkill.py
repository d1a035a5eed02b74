"""``tau-live unkill``: take the kill switch away."""

import os
import time
from pathlib import Path

import click

from tau_live.cli.opening import (
    epilog,
    json_option,
    operator,
    reason_option,
    settings_of,
    store_option,
)
from tau_live.cli.output import print_json
from tau_live.cli.text import shown
from tau_live.errors import TauLiveError
from tau_live.operators.kill_switch import kill_file
from tau_live.operators.kill_switch import unkill as switch_on
from tau_live.operators.unaudited import write_down
from tau_live.store.records import AuditEntry
from tau_live.switch import killed_by


@click.command(epilog=epilog("unkill", 'tau-live unkill --reason "prompt is fixed"'))
@reason_option
@store_option
@json_option
def unkill(path: Path | None, as_json: bool, reason: str) -> None:
    """Turn the kill switch off; every running process resumes within a second."""
    settings, who, at = settings_of(path, changes=True), operator(), time.time()
    file = kill_file(settings.store, settings.kill_file)
    try:
        before = switch_on(file)
    except OSError as error:
        why = error.strerror or str(error)
        by_hand = "`rmdir`" if file.is_dir() else "`rm`, as its owner"
        raise TauLiveError(
            f"the kill switch stays on: {file} cannot be removed: {why}; remove it with {by_hand}"
        ) from error
    details = {"file": str(file), "idempotent": before is None}
    problem = write_down(
        settings, AuditEntry(at=at, who=who, action="unkill", reason=reason, details=details)
    )
    if as_json:
        was = None if before is None else before._asdict()
        print_json({"changed": was is not None, "file": str(file), "was": was, "audit": problem})
        return
    if before is None:
        click.echo(f"no change: the kill switch was off ({shown(file)} does not exist)")
    else:
        click.echo(f"everything resumes within a second (it was stopped: {shown(before)})")
    for note in filter(None, (problem, killed_by(os.environ))):
        click.echo(f"note: {shown(note)}", err=True)
