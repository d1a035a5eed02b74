"""``tau-live gc``: delete old rollouts that were learned from."""

import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tau_live.cli.export import needing_arrow
from tau_live.cli.options import (
    epilog,
    json_option,
    open_store,
    operator,
    refuse_store,
    store_option,
)
from tau_live.cli.output import duration, print_json, progress_bar, size
from tau_live.core.addresses import address_in
from tau_live.core.records import AuditEntry
from tau_live.core.settings import Settings
from tau_live.core.switch import SWITCH
from tau_live.record.archive import DAY_S, MB, Archive, excess, limits_of
from tau_live.store import retention as keeping
from tau_live.store.retention import OLDEST, Limits, Place
from tau_live.store.roles import Store

if TYPE_CHECKING:
    from tau_live.cli.archive import ArchiveFolder

STEP = 200


@click.command(
    epilog=epilog(
        "gc",
        "tau-live gc --older-than 30d --dry-run",
        "tau-live gc --older-than 30d --archive forgotten.jsonl.gz",
        "tau-live gc --older-than 30d --archive archive/",
        "tau-live gc --keep 100000 --max-size 500MB",
    )
)
@click.option("--older-than", metavar="AGE", type=duration, help="Age, such as 30d or 12h.")
@click.option("--keep", metavar="N", type=click.IntRange(min=0), help="How many rollouts to keep.")
@click.option(
    "--max-size", metavar="SIZE", type=size, help="Size of the store, such as 500MB or 2GB."
)
@click.option(
    "--archive", metavar="PATH",
    help="Archive the deleted rows first: in this file, compressed if it ends in .gz, or, if it "
    "ends in / or is a folder, in a folder of Parquet files by day (needs pyarrow).",
)  # fmt: skip
@click.option(
    "--rewrite", is_flag=True,
    help="Rewrite the whole file so that no deleted byte remains; writers wait meanwhile.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only count; delete nothing.")
@store_option
@json_option
def gc(  # noqa: PLR0913  # one for each option
    path: Path | None,
    *,
    as_json: bool,
    older_than: float | None,
    keep: int | None,
    max_size: float | None,
    archive: str | None,
    rewrite: bool,
    dry_run: bool,
) -> None:
    """Delete the oldest rollouts with all their rows, and shrink the file.

    Rollouts that are open, wait for a reward or have not been learned from are kept. Without
    limits, TAU_LIVE_RL_RETENTION_DAYS, _ROLLOUTS and _MB apply.
    """
    own, now = Limits(age_s=older_than, rollouts=keep, used_bytes=max_size), time.time()
    with open_store(path, write=True) as (store, settings):
        if max_size is not None and address_in(settings.store) is not None:
            raise click.UsageError(
                "--max-size limits a file: a database keeps the space of deleted rows; "
                "give --older-than AGE or --keep N"
            )
        limits = own or _default_limits(settings)
        if archive is not None:
            refuse_store(Path(archive), settings)
        before_bytes = _bytes_of(store)
        rows, more = 0, False
        if dry_run:
            count, more = forgettable(store, limits, now=now, limit=2000)
        else:
            with closing(_open_archive(archive)) if archive else nullcontext() as into:
                count = _forget_and_record(store, limits, now=now, archive=into, quiet=as_json)
                rows = into.rows if into else 0
            if rewrite:
                store.retention.rewrite()
        left = excess(store.retention, limits, now=now)
        after_bytes = _bytes_of(store)
    if as_json:
        print_json(
            {
                "before": None if limits.age_s is None else now - limits.age_s,
                "rollouts": count,
                "more": more,
                "dry_run": dry_run,
                "bytes_before": before_bytes,
                "bytes_after": after_bytes,
                "archived": rows,
                "over": left.over,
                "kept": left.kept,
            }
        )
        return
    what = f"{'more than ' if more else ''}{count:,} rollouts"
    if dry_run:
        click.echo(f"{what} would be deleted ({limits_text(limits)})")
        return
    sizes = f"{before_bytes / MB:,.1f} MB before, {after_bytes / MB:,.1f} MB now"
    archived = f"; {rows:,} rows archived" if archive else ""
    click.echo(f"{what} deleted ({limits_text(limits)}){archived}; {sizes}")
    if left.over:
        click.echo(f"still {left}", err=True)


def _bytes_of(store: Store) -> int:
    size = store.retention.size()
    return size.used_bytes + size.free_bytes


def _open_archive(archive: str) -> "Archive | ArchiveFolder":
    """Return an archive, opened to append to it."""
    path = Path(archive)
    if not archive.endswith("/") and not path.is_dir():
        return Archive(path)
    folder: ArchiveFolder = needing_arrow("archive", "an archive in a folder").ArchiveFolder(path)
    return folder


def forgettable(store: Store, limits: Limits, *, now: float, limit: int) -> tuple[int, bool]:
    """Return how many rollouts would go, counted up to ``limit``, and whether there are more.

    By size that is an estimate, from the mean size of a rollout.
    """
    count, current = 0, store.retention.size()
    if limits.age_s is not None:
        count = store.retention.count(before=now - limits.age_s, limit=limit + 1)
    over = min(limits.over(current), limit + 1)
    if over > count:
        count = store.retention.count(before=keeping.EVER, limit=over)
    return min(count, limit), count > limit


def forget_rollouts(
    store: Store,
    limits: Limits,
    *,
    now: float,
    report_progress: Callable[[int], None],
    archive: keeping.Archive | None = None,
) -> int:
    """Forget rollouts step by step, so that other processes can write in between.

    Args:
        store: The store.
        limits: The limits to shrink the store to.
        now: Epoch seconds, UTC.
        report_progress: Called with the number of rollouts deleted so far.
        archive: Receives the rows before they are deleted.

    Returns:
        The number of rollouts deleted.
    """
    retention = store.retention
    aged = OLDEST.at if limits.age_s is None else now - limits.age_s
    gone, until = 0, aged
    place: Place | None = OLDEST
    while place is not None:
        current = retention.size()
        sweep = retention.sweep(
            before=limits.ended_before(current, now=now),
            limit=min(STEP, limits.over(current) or STEP),
            after=place,
            archive=archive,
        )
        gone, place = gone + sweep.gone, sweep.place
        until = max(until, aged if sweep.until is None else sweep.until)
        report_progress(gone)
    place = OLDEST
    while place is not None:
        place = retention.sweep_rewards(
            before=until, limit=STEP, after=place, archive=archive
        ).place
    return gone


def limits_text(limits: Limits) -> str:
    """Return limits as text, as recorded in the audit log."""
    parts = {
        "older than {:g} days": None if limits.age_s is None else limits.age_s / DAY_S,
        "more than {:,} rollouts": limits.rollouts,
        "more than {:g} MB": None if limits.used_bytes is None else limits.used_bytes / MB,
    }
    return ", ".join(text.format(value) for text, value in parts.items() if value is not None)


def _forget_and_record(
    store: Store,
    limits: Limits,
    *,
    now: float,
    archive: "Archive | ArchiveFolder | None",
    quiet: bool,
) -> int:
    with progress_bar(quiet=quiet) as bar:
        task = bar.add_task("rollouts deleted", total=None)
        gone = forget_rollouts(
            store,
            limits,
            now=now,
            report_progress=lambda count: bar.update(task, completed=count),
            archive=archive.append if archive else None,
        )
        bar.update(task, description="freeing space")
        store.retention.vacuum()
        if archive is not None and not isinstance(archive, Archive):
            bar.update(task, description="rollouts packed", completed=0)
            head = store.seals.head()
            archive.pack(
                str(head) if head.place else "", lambda count: bar.update(task, completed=count)
            )
    if gone:
        details: dict[str, float | str] = {"rollouts": gone}
        if limits.age_s is not None:
            details["before"] = now - limits.age_s
        if archive:
            details["archive"] = str(archive.path)
        store.audit.add(
            AuditEntry(
                at=time.time(),
                who=operator(),
                action="gc",
                reason=limits_text(limits),
                details=details,
            )
        )
    return gone


def _default_limits(settings: Settings) -> Limits:
    limits = limits_of(settings)
    if not limits:
        names = f"{SWITCH}_RETENTION_DAYS, {SWITCH}_RETENTION_ROLLOUTS or {SWITCH}_RETENTION_MB"
        raise click.UsageError(
            f"give --older-than AGE, --keep N or --max-size SIZE, or set {names}"
        )
    return limits
