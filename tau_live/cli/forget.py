"""``tau-live forget``: delete all rows of some rollouts, as a person may ask for."""

import time
from contextlib import closing
from pathlib import Path

import click

from tau_live.cli import completion
from tau_live.cli.export import needing_arrow
from tau_live.cli.options import (
    epilog,
    json_option,
    open_store,
    operator,
    reason_option,
    store_option,
)
from tau_live.cli.output import print_json
from tau_live.core.errors import UnknownError
from tau_live.core.records import AuditEntry, RolloutQuery
from tau_live.store.roles import Store


@click.command(
    epilog=epilog(
        "forget",
        'tau-live forget live-3f2a81c04d5e6f70 --reason "request 1207"',
        'tau-live forget --session c-4711 --archive archive/ --reason "request 1208"',
    )
)
@click.argument("rollouts", nargs=-1, metavar="[ROLLOUT]...", shell_complete=completion.rollouts)
@click.option("--session", metavar="ID", help="Also all rollouts of this session.")
@click.option(
    "--archive", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Remove them from this archive of Parquet files, too.",
)  # fmt: skip
@reason_option
@store_option
@json_option
def forget(
    path: Path | None,
    *,
    as_json: bool,
    rollouts: tuple[str, ...],
    session: str | None,
    archive: Path | None,
    reason: str,
) -> None:
    """Delete rollouts that have ended, with all their rows, learned from or not.

    What was learned from them stays learned: no weight is taken back. Recordings and
    archives in single files keep them; of an archive in a folder the files concerned are
    written anew.
    """
    if not rollouts and session is None:
        raise click.UsageError("name rollouts by their whole ids, or give --session ID")
    with open_store(path, write=True) as (store, _):
        ids = dict.fromkeys([*rollouts, *_rollouts_of(store, session)])
        archived = 0
        if archive is not None:
            folder = needing_arrow("archive", "an archive in a folder").ArchiveFolder(archive)
            with closing(folder):
                folder.pack("", lambda _: None)
                ids |= dict.fromkeys(folder.rollouts_of(session) if session else ())
                archived = folder.forget(ids)
        stored = store.retention.forget([*ids])
        if not stored and not archived:
            raise UnknownError("session" if session else "rollout", session or rollouts[0])
        store.retention.vacuum()
        store.audit.add(
            AuditEntry(
                at=time.time(),
                who=operator(),
                action="forget",
                reason=reason,
                details={"rollouts": stored, "archived": archived},
            )
        )
    if as_json:
        print_json({"rollouts": stored, "archived": archived})
        return
    more = f", {archived:,} from the archive" if archive is not None else ""
    click.echo(f"{stored:,} rollouts deleted from the store{more}")


def _rollouts_of(store: Store, session: str | None) -> list[str]:
    """Return the ids of all rollouts of a session."""
    if session is None:
        return []
    page = store.rollouts.query(RolloutQuery(session_id=session, limit=None))
    return [rollout.rollout_id for rollout in page.rollouts]
