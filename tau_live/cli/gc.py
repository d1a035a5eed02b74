"""``tau-live gc``: forget old rollouts that were learned from."""

import time
from collections.abc import Callable
from pathlib import Path

import click

from tau_live.cli.opening import epilog, json_option, opened, operator, store_option
from tau_live.cli.output import print_json, progress_bar
from tau_live.cli.text import duration, moment
from tau_live.settings import Settings
from tau_live.store.records import AuditEntry
from tau_live.store.roles import Store

STEP = 200
DRY_RUN_LIMIT = 2000
DAY_S = 86_400.0


@click.command(
    epilog=epilog("gc", "tau-live gc --older-than 30d --dry-run", "tau-live gc --older-than 30d")
)
@click.option(
    "--older-than", metavar="AGE", type=duration,
    help="Like 30d or 12h.  [default: TAU_LIVE_RL_RETENTION_DAYS]",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only count, without deleting anything.")
@store_option
@json_option
def gc(path: Path | None, as_json: bool, older_than: float | None, dry_run: bool) -> None:
    """Forget rollouts that ended long ago, with all that is theirs, and shrink the file.

    Never one that is open, waits for its reward, or has not been learned from.
    """
    with opened(path, write=True) as (store, settings):
        age = _age(settings, older_than)
        before = time.time() - age
        size = settings.store.stat().st_size
        if dry_run:
            found, more = forgettable(store, before=before, limit=DRY_RUN_LIMIT)
        else:
            found, more = _collected(store, before=before, age=age, quiet=as_json), False
        after = settings.store.stat().st_size
    if as_json:
        print_json(
            {
                "before": before,
                "rollouts": found,
                "more": more,
                "dry_run": dry_run,
                "bytes_before": size,
                "bytes_after": after,
            }
        )
        return
    what = f"{'more than ' if more else ''}{found:,} rollouts that ended before {moment(before)}"
    if dry_run:
        click.echo(f"{what} would be forgotten")
    else:
        click.echo(f"{what} forgotten; {size / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB now")


def forgettable(store: Store, *, before: float, limit: int) -> tuple[int, bool]:
    """Return how many rollouts would go, counted up to ``limit``, and whether there are more."""
    found = store.retention.count(before=before, limit=limit + 1)
    return min(found, limit), found > limit


def collected(store: Store, *, before: float, told: Callable[[int], None]) -> int:
    """Forget rollouts step by step, so that other processes can write in between.

    Args:
        store: The store.
        before: Epoch seconds: only what ended before.
        told: Called with how many have gone so far.

    Returns:
        How many have gone.
    """
    gone = 0
    while True:
        step = store.retention.collect(before=before, limit=STEP)
        gone += step
        told(gone)
        if step < STEP:
            return gone


def _collected(store: Store, *, before: float, age: float, quiet: bool) -> int:
    with progress_bar(quiet=quiet) as bar:
        task = bar.add_task("rollouts forgotten", total=None)
        gone = collected(store, before=before, told=lambda count: bar.update(task, completed=count))
        bar.update(task, description="giving space back")
        store.retention.vacuum()
    if gone:
        entry = AuditEntry(
            at=time.time(),
            who=operator(),
            action="gc",
            reason=f"older than {age / DAY_S:g} days",
            details={"rollouts": gone, "before": before},
        )
        store.audit.add(entry)
    return gone


def _age(settings: Settings, older_than: float | None) -> float:
    if older_than is not None:
        return older_than
    if settings.retention_days is None:
        raise click.UsageError("say --older-than AGE, or set TAU_LIVE_RL_RETENTION_DAYS")
    return settings.retention_days * DAY_S
