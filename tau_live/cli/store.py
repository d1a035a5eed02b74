"""``tau-live store``: make, migrate, check and copy a store, wherever it is."""

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import click

from tau_live.cli.doctor import print_checks
from tau_live.cli.doctor_mistakes import FAIL, OK, WARN, Check, mistake
from tau_live.cli.doctor_store import access_checks
from tau_live.cli.options import (
    StoreType,
    epilog,
    json_option,
    operator,
    settings_of,
    store_option,
)
from tau_live.cli.output import (
    number,
    plural,
    print_all,
    print_json,
    printable,
    progress_bar,
    table_of,
)
from tau_live.core.addresses import address_in
from tau_live.core.errors import StoreError, StoreUnavailableError
from tau_live.core.records import AuditEntry
from tau_live.core.settings import Learner, Settings
from tau_live.operate.status import attached_processes
from tau_live.record.heartbeats import check_unneeded
from tau_live.store.copying import copy as copy_store
from tau_live.store.copying import count_rows
from tau_live.store.opening import make_tenant, open_at
from tau_live.store.opening import migrate as migrate_store

address_argument = click.argument("address", metavar="[ADDRESS]", required=False, type=StoreType())


@click.group(epilog=epilog("store", "tau-live store check postgresql://tau@db.example/tau"))
def store() -> None:
    """Make, migrate, check and copy a store: a file, or a PostgreSQL database."""


@store.command(
    "create",
    epilog=epilog("store create", "tau-live store create postgresql://owner@db.example/tau"),
)
@address_argument
@click.option(
    "--roles/--no-roles", default=True, show_default=True,
    help="Make the roles tau_live_host, _learner, _operator and _reader too.",
)  # fmt: skip
@click.option(
    "--tenant", metavar="NAME",
    help="Make the tenant NAME of the database: a schema, with roles of its own.",
)  # fmt: skip
@store_option
@json_option
def create(
    address: Path | None, path: Path | None, *, roles: bool, tenant: str | None, as_json: bool
) -> None:
    """Make the store ADDRESS, and the roles of its database with what each may do.

    Of a database, its owner or a login that may make roles calls this; a store that is there keeps
    its rows, and what its roles may do is made as it should be. Without ADDRESS it is the store
    of the settings.

    Tenants share a database and nothing in it: no login of one can read, change or lock what
    another has.
    """
    settings = settings_of(address or path, changes=True)
    where = settings.store if tenant is None else make_tenant(settings.store, tenant)
    with closing(open_at(where, key_file=settings.audit_key_file)) as made:
        names, shown = made.make_roles() if roles else [], made.address
    if as_json:
        print_json({"store": shown, "roles": names})
    else:
        click.echo(f"{shown} is ready{': ' if names else ''}{', '.join(names)}")


@store.command(
    "migrate",
    epilog=epilog("store migrate", "tau-live store migrate postgresql://owner@db.example/tau"),
)
@address_argument
@click.option(
    "--contract", is_flag=True,
    help="Then take away what only hosts of earlier versions need, and refuse those from then on.",
)  # fmt: skip
@store_option
@json_option
def migrate(address: Path | None, path: Path | None, *, contract: bool, as_json: bool) -> None:
    """Bring the store ADDRESS to the schema of this version.

    A file is brought there by whoever opens it next; a database by its owner with this command
    alone, while hosts go on, before they are upgraded. It waits two seconds for a lock, five
    times; what it has not reached then, it reaches when it is called again.

    A migration of a database only adds. Once all hosts are upgraded, call it with --contract; that
    is refused while a host which knows only an earlier schema was seen in the last hour.
    """
    settings = settings_of(address or path, changes=True)
    if not settings.store.exists():
        raise StoreUnavailableError(f"no store at {settings.store}")
    before, after = migrate_store(settings.store, key_file=settings.audit_key_file)
    contracted: list[int] = []
    if contract:
        with closing(open_at(settings.store, key_file=settings.audit_key_file)) as whole:
            contracted = whole.contract(partial(check_unneeded, whole))
    if as_json:
        print_json(
            {
                "store": str(settings.store), "before": before, "after": after,
                "contracted": contracted,
            }
        )  # fmt: skip
        return
    was = f"; it had {before}" if before != after else ""
    click.echo(f"the store has schema {after}{was}")
    for version in contracted:
        click.echo(f"what only hosts before schema {version} need is gone")


@store.command(
    "check",
    epilog=epilog("store check", "tau-live store check postgresql://agents@db.example/tau"),
)
@address_argument
@store_option
@json_option
@click.pass_context
def check(ctx: click.Context, address: Path | None, path: Path | None, *, as_json: bool) -> None:
    """Check whether the store ADDRESS can be reached, and used with this login.

    Exit code 1 means that something does not work; warnings do not count. `tau-live doctor` also
    looks at what the store holds.
    """
    settings = settings_of(address or path)
    results = [*access_checks(settings.store, settings), *_learning(settings)]
    states = {result.state for result in results}
    worst = next(state for state in (FAIL, WARN, OK) if state in states)
    if as_json:
        found = [result._asdict() for result in results]
        print_json({"worst": worst, "checks": found})
    else:
        print_checks(results)
    ctx.exit(1 if worst == FAIL else 0)


def _learning(settings: Settings) -> Iterator[Check]:
    """Yield what an agent with these settings and this login would say that it may not."""
    if settings.learner is Learner.OFF or not settings.store.exists():
        return
    from tau_live.learn.updater import MAY_NOT_LEARN  # which loads numpy

    with suppress(StoreError), closing(open_at(settings.store, read_only=True)) as given:
        if not given.may_learn():
            found = "this login may not learn: an agent leaves it to others, and records"
            doubt = mistake("server-doubtful", found, advice=MAY_NOT_LEARN)
            yield doubt._replace(check="learning")


@store.command("cost", epilog=epilog("store cost", "tau-live store cost --json"))
@address_argument
@store_option
@json_option
def cost(address: Path | None, path: Path | None, *, as_json: bool) -> None:
    """Show what a rollout costs in the store ADDRESS: bytes and rows, by table.

    They are those of the rollouts that it holds, so that nobody has to believe a figure of others.
    What a store cannot tell is null: its log and the processor time of its server are also those of
    others.
    """
    settings = settings_of(address or path)
    if not settings.store.exists():
        raise StoreUnavailableError(f"no store at {settings.store}")
    with closing(open_at(settings.store, read_only=True)) as given:
        sizes, rollouts = given.sizes(), given.retention.size().rollouts
        rows = {table: given.connection.count(f"select count(*) from {table}") for table in sizes}
    known = [size for size in sizes.values() if size is not None]
    total = sum(known) if known else None
    if as_json:
        print_json(
            {
                "rollouts": rollouts,
                "rows_per_rollout": _per(sum(rows.values()), rollouts),
                "bytes_per_rollout": _per(total, rollouts),
                "log_bytes_per_rollout": None,
                "processor_s_per_rollout": None,
                "tables": {
                    table: {
                        "rows": rows[table],
                        "bytes": sizes[table],
                        "bytes_per_rollout": _per(sizes[table], rollouts),
                    }
                    for table in sizes
                },
            }
        )
        return
    by_size = sorted(sizes, key=lambda table: -(sizes[table] or 0))
    shown = [(table, rows[table], sizes[table]) for table in by_size if rows[table]]
    cells = [
        (table, number(count), number(bytes_), _whole(_per(bytes_, rollouts)))
        for table, count, bytes_ in [*shown, ("all", sum(rows.values()), total)]
    ]
    click.echo(f"of {plural(rollouts, 'rollout')}:")
    print_all(table_of(("table", "rows#", "bytes#", "bytes a rollout#"), cells))


def _per(count: float | None, rollouts: int) -> float | None:
    return count / rollouts if count is not None and rollouts else None


def _whole(count: float | None) -> str:
    return number(None if count is None else round(count))


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
        is_copied = given.seals.are_copied and address_in(settings.store) is None
        key_file = None if is_copied else settings.audit_key_file
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
