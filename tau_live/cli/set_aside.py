"""``tau-live set-aside``: keep a store that cannot be used, and begin another."""

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
from tau_live.errors import StoreUnavailableError
from tau_live.gate import GateKeeper, HoldReason
from tau_live.policies.files import checkpoint_folder
from tau_live.settings import Settings
from tau_live.store import aside
from tau_live.store.records import AuditEntry
from tau_live.store.sqlite import SqliteStore

PATIENCE_S = 5.0


@click.command(
    "set-aside",
    epilog=epilog("set-aside", 'tau-live set-aside --reason "damaged by the power cut"'),
)
@reason_option
@store_option
@json_option
def set_aside(path: Path | None, as_json: bool, reason: str) -> None:
    """Rename the store's files and policies, and begin an empty store whose gate holds.

    For a store that is damaged: nothing is deleted, and what can be read of it can still be
    read. Running processes go over to the new store within seconds; nothing is recorded, learned
    or decided there until `tau-live gate reset`.
    """
    settings = settings_of(path, changes=True)
    kept = begun_anew(settings, who=operator(), reason=reason, at=time.time())
    if as_json:
        print_json({"store": str(settings.store), "kept": [str(file) for file in kept]})
        return
    for file in kept:
        click.echo(f"kept as {shown(str(file))}")
    click.echo('an empty store is there, and its gate holds: tau-live gate reset --reason "..."')


def begun_anew(settings: Settings, *, who: str, reason: str, at: float) -> list[Path]:
    """Set a store and its policies aside, and begin another; return the names of what is kept.

    Raises:
        StoreUnavailableError: There is none, or it cannot be renamed.
    """
    path = settings.store.absolute()
    try:
        with aside.alone_in(path.parent, timeout_s=PATIENCE_S):
            kept = aside.set_aside(path, folder=checkpoint_folder(settings), quiet=True)
    except OSError as error:
        raise StoreUnavailableError(f"store '{path}' cannot be set aside: {error}") from error
    if not kept:
        raise StoreUnavailableError(f"no store at {path}: there is nothing to set aside")
    store = SqliteStore.open(path)
    try:
        keeper = GateKeeper(limit=settings.max_failure_streak, who=who)
        keeper.refresh(store.gate, at=at)
        keeper.hold(HoldReason.STORE_REPLACED, at=at, detail=f"set aside: {reason}", who=who)
        keeper.refresh(store.gate, at=at)
        store.audit.add(
            AuditEntry(
                at=at,
                who=who,
                action="set_aside",
                reason=reason,
                details={"kept": [file.name for file in kept]},
            )
        )
    finally:
        store.close()
    return kept
