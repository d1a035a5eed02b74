"""``tau-live store``: make, migrate, check and copy a store, wherever it is."""

import time
from contextlib import closing
from pathlib import Path

import click

from tau_live.cli.options import StoreType, epilog, json_option, operator, settings_of
from tau_live.cli.output import number, print_json, printable, progress_bar
from tau_live.core.errors import StoreUnavailableError
from tau_live.core.records import AuditEntry
from tau_live.operate.status import attached_processes
from tau_live.store.copying import copy as copy_store
from tau_live.store.copying import count_rows
from tau_live.store.opening import open_at


@click.group(epilog=epilog("store", "tau-live store check postgresql://tau@db.example/tau"))
def store() -> None:
    """Make, migrate, check and copy a store: a file, or a PostgreSQL database."""


@store.command(
    "copy",
    epilog=epilog(
        "store copy", "tau-live store copy tau-live.sqlite postgresql://tau@db.example/tau"
    ),
)
@click.argument("source", metavar="FROM", type=StoreType())
@click.argument("target", metavar="TO", type=StoreType())
@json_option
def copy(source: Path, target: Path, as_json: bool) -> None:
    """Copy all of the store FROM into TO, which has no rows yet.

    Each is a file or the address of a database. TO holds what FROM held at one moment, and goes on
    from there; what agents store in FROM afterwards is not in it, so stop them first. A copy that
    was interrupted goes on when it is called again; until then nobody can open TO.
    """
    began, settings = time.monotonic(), settings_of(target, changes=True)
    if source.resolve() == target.resolve():
        raise click.UsageError("FROM and TO are one store")
    if not source.exists():
        raise StoreUnavailableError(f"no store at {source}")
    with closing(open_at(source, read_only=True)) as given:
        attached = attached_processes(given)
        if attached:
            names = ", ".join(attached)
            later = "what they store from now on is not in the copy"
            click.echo(f"note: attached to {given.address}: {printable(names)}: {later}", err=True)
        # A chain that is copied is sealed with the key from the next opening on
        key_file = None if given.seals.are_made else settings.audit_key_file
        with (
            closing(open_at(target, copying=True, key_file=key_file)) as made,
            progress_bar(quiet=as_json) as bar,
        ):
            task, done = bar.add_task("rows", total=count_rows(given, made)), dict[str, int]()

            def tell(table: str, rows: int) -> None:
                done[table] = rows
                bar.update(task, description=table, completed=sum(done.values()))

            rows = copy_store(given, made, tell=tell)
        place, into = given.address, made.address
    with closing(open_at(target, key_file=settings.audit_key_file)) as made:
        made.audit.add(
            AuditEntry(
                at=time.time(), who=operator(), action="copy", reason=f"from {place}",
                details={"rows": sum(rows.values())},
            )
        )  # fmt: skip
    took_s = time.monotonic() - began
    if as_json:
        print_json({"from": place, "to": into, "rows": rows, "seconds": took_s})
        return
    total = number(sum(rows.values()))
    click.echo(f"{total} rows of {place} are in {into}, in {took_s:.1f} s")
