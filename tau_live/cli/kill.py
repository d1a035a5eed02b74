"""``tau-live kill``: stop everything at once, whatever state the store is in."""

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
from tau_live.cli.text import moment, shown
from tau_live.errors import SettingsError
from tau_live.operators.kill_switch import SUFFIX, kill_file
from tau_live.operators.kill_switch import kill as switch_off
from tau_live.operators.unaudited import write_down
from tau_live.settings import Settings
from tau_live.settings.places import placed
from tau_live.store.records import AuditEntry


@click.command(epilog=epilog("kill", 'tau-live kill --reason "customers see nonsense"'))
@reason_option
@store_option
@json_option
def kill(path: Path | None, as_json: bool, reason: str) -> None:
    """Stop everything within a second: nothing is recorded, learned or decided until `unkill`.

    It is a file beside the store, so it works while the store is locked, full, damaged or gone;
    `touch` does the same. Open runs end as interrupted. It survives restarts.
    """
    settings, who, at = _placed_settings(path), operator(), time.time()
    file = kill_file(settings.store, settings.kill_file)
    before = switch_off(file, reason, who=who, at=at)
    details = {"file": str(file), "idempotent": before is not None}
    problem = write_down(
        settings, AuditEntry(at=at, who=who, action="kill", reason=reason, details=details)
    )
    if as_json:
        now = {"reason": reason, "who": who, "at": at} if before is None else before._asdict()
        changed = before is None
        print_json({"changed": changed, "file": str(file), "kill_switch": now, "audit": problem})
        return
    if before is None and os.path.exists(settings.store):  # noqa: PTH110  # no access is no error
        click.echo(f"kill switch on (created {shown(file)}); every process stops within a second")
    elif before is None:
        click.echo(
            f"created {shown(file)}, but no store is at {shown(settings.store)}: this stops only "
            "processes that use that very path"
        )
    else:
        since = f"since {moment(before.at)}: {shown(before)}"
        click.echo(f"no change: the kill switch was already on, {since}")
    if problem is not None:
        click.echo(f"note: {shown(problem)}", err=True)


def _placed_settings(path: Path | None) -> Settings:
    """Return the settings, with paths that tell in which folder everything stops.

    Raises:
        SettingsError: One is wrong; says what works all the same.
        AccessError: Whoever calls may not.
    """
    try:
        return placed(settings_of(path, changes=True))
    except SettingsError as error:
        raise SettingsError(
            f"{error} (`touch` on the store's name with {SUFFIX} behind it works all the same)"
        ) from error
