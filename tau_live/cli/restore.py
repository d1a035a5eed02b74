"""``tau-live restore``: put back what was archived or exported."""

from collections.abc import Iterator
from pathlib import Path

import click

from tau_live.cli.opening import epilog, json_option, settings_of, store_option
from tau_live.cli.output import print_json, progress_bar
from tau_live.collection.archive import read_archive
from tau_live.store.sqlite import SqliteStore

COUNTED = ("rollouts", "attempts", "spans", "decisions", "rewards", "known", "open")


@click.command(
    epilog=epilog(
        "restore",
        "tau-live restore forgotten.jsonl.gz --store again.sqlite",
        "tau-live restore rollouts.jsonl --store again.sqlite",
    )
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@store_option
@json_option
def restore(file: Path, path: Path | None, as_json: bool) -> None:
    """Restore FILE: an archive that `tau-live gc` wrote, or an export.

    Rollouts come back with all their rows, under their old numbers where those are free.
    Rows that the store already has are skipped. Restore into a store of its own: in a live store
    retention deletes what has been learned from again.
    """
    store = SqliteStore.open(settings_of(path, changes=True).store)
    try:
        with progress_bar(quiet=as_json) as bar:
            task = bar.add_task("rows", total=None)

            def rows() -> Iterator[dict[str, object]]:
                for number, row in enumerate(read_archive(file), start=1):
                    bar.update(task, completed=number)
                    yield row

            counts = store.restore(rows())
    finally:
        store.close()
    found = {name: counts.get(name, 0) for name in COUNTED}
    if as_json:
        print_json(found)
        return
    parts = [f"{count:,} {name}" for name, count in found.items() if count and name in COUNTED[:5]]
    click.echo(f"{', '.join(parts) or 'nothing'} restored")
    if found["known"]:
        click.echo(f"{found['known']:,} rollouts were already stored", err=True)
    if found["open"]:
        click.echo(f"{found['open']:,} rollouts had not ended and were skipped", err=True)
