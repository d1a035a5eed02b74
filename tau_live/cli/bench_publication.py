"""``tau-live bench publish``, ``archive``, ``gc`` and ``index``: reports are kept, and go."""

import sys
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tau_live.cli.options import (
    epilog,
    json_option,
    root_of,
    root_option,
    settings_of,
    store_option,
)
from tau_live.cli.output import print_json, printable, when
from tau_live.core.errors import TauLiveError

if TYPE_CHECKING:
    from tau_live.evidence.index import Index, Quality
    from tau_live.evidence.publication import Move, Purge
    from tau_live.evidence.validation import Checked

now_option = click.option(
    "--now",
    metavar="TIME",
    type=when,
    help="What is due then, such as 2026-12-22T07:30:00Z.  [default: now]",
)


Callback = TypeVar("Callback", bound=Callable[..., None])


def keeping_options(callback: Callback) -> Callback:
    """Add the options of retention, as ``keeping``; ``None`` if none of them is given."""

    @wraps(callback)
    def with_keeping(
        *, retention: str | None, retain_days: int | None, archive_after_days: int | None,
        **others: object,
    ) -> None:  # fmt: skip
        from tau_live.evidence.reports import Keeping

        given = {
            "policy": retention, "retain_days": retain_days,
            "archive_after_days": archive_after_days,
        }  # fmt: skip
        chosen = {name: value for name, value in given.items() if value is not None}
        keeping = Keeping(**chosen) if chosen else None  # type: ignore[arg-type]  # each of its kind
        callback(keeping=keeping, **others)

    command = click.option(
        "--retention", type=click.Choice(["archive-then-purge", "retain-only"]),
        help="What becomes of the reports.  [default: archive-then-purge]",
    )(with_keeping)  # fmt: skip
    command = click.option(
        "--retain-days", type=int, metavar="DAYS", help="Until they may go.  [default: 365]"
    )(command)
    return click.option("--archive-after-days", type=int, metavar="DAYS", help="[default: 30]")(
        command
    )  # type: ignore[return-value]  # click's commands take keywords alone


def checked_against(folder: Path, path: Path | None, *, changes: bool) -> "Checked":
    """Return what reports are checked against: the project, and its store if there is one.

    Raises:
        TauLiveError: The project is no folder, or a setting is wrong.
    """
    from tau_live.evidence.validation import Checked
    from tau_live.store.sealing import key_in

    root = root_of(folder)
    settings = settings_of(path, changes=changes)
    if not settings.store.exists():
        if path is not None:
            raise TauLiveError(f"there is no store {path}")
        return Checked(root)
    return Checked(root, settings=settings, key=key_in(settings.audit_key_file))


def _line(move: "Move") -> str:
    target = "" if move.to is None else f" -> {move.to}"
    return printable(f"{move.action} {move.path}{target}")


def _print_moves(moves: Sequence["Move"], *, as_json: bool) -> None:
    if as_json:
        print_json({"moves": [move._asdict() for move in moves]})
        return
    for move in moves:
        click.echo(_line(move))
    if not moves:
        click.echo("nothing is due")


@click.command(
    epilog=epilog(
        "bench publish",
        "tau-live bench publish tasks/reports/m24-benchmark-proof-m24-route-7.json",
        "tau-live bench publish --allow-records "
        "tasks/reports/m24-benchmark-baseline-m24-route-7.json",
    )
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--allow-records", is_flag=True, help="Also what the store lacks, checked by records alone."
)
@root_option
@store_option
@json_option
def publish(
    *, files: tuple[Path, ...], allow_records: bool, folder: Path, path: Path | None, as_json: bool
) -> None:
    """Publish reports that are valid; a proof stands for the three reports that it names.

    Nothing is published over another content, and nothing at all unless all FILES are valid.
    """
    from tau_live.evidence.publication import publish as publish_reports

    against = checked_against(folder, path, changes=True)
    moves = publish_reports(against, files, allow_records=allow_records)
    _print_moves(moves, as_json=as_json)


@click.command(epilog=epilog("bench archive", "tau-live bench archive --now 2026-12-22T07:30:00Z"))
@now_option
@root_option
@store_option
@json_option
def archive(*, now: float | None, folder: Path, path: Path | None, as_json: bool) -> None:
    """Move published reports that are due to the archive; `retain-only` ones stay."""
    from tau_live.evidence.publication import archive as archive_reports

    against = checked_against(folder, path, changes=True)
    _print_moves(archive_reports(against, now=time.time() if now is None else now), as_json=as_json)


@click.command(
    "gc",
    epilog=epilog("bench gc", "tau-live bench gc --dry-run", "tau-live bench gc --purge-retained"),
)
@now_option
@click.option("--dry-run", is_flag=True, help="Only print what would go; delete nothing.")
@click.option("--purge-retained", is_flag=True, help="Also `retain-only` reports that are due.")
@root_option
@store_option
@json_option
def gc_reports(  # its options
    *, now: float | None, dry_run: bool, purge_retained: bool, folder: Path, path: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Delete archived reports that are due, with the files of runs of which none is left.

    A run is kept as a whole while a gate bundle or the audit log names it, or what it has measured
    is in use.
    """
    from tau_live.evidence.publication import purge

    against = checked_against(folder, path, changes=not dry_run)
    at = time.time() if now is None else now
    purged = purge(against, now=at, dry_run=dry_run, purge_retained=purge_retained)
    if as_json:
        moves = [move._asdict() for move in purged.moves]
        kept = [kept._asdict() for kept in purged.kept]
        print_json({"moves": moves, "kept": kept, "dry_run": dry_run})
        return
    _print_purge(purged, dry_run=dry_run)


def _print_purge(purged: "Purge", *, dry_run: bool) -> None:
    for move in purged.moves:
        click.echo(f"{'would be ' if dry_run else ''}{_line(move)}")
    for kept in purged.kept:
        click.echo(printable(f"kept {kept.path}: {kept.reason}"))
    if not purged.moves and not purged.kept:
        click.echo("nothing is due")


@click.command(
    epilog=epilog(
        "bench index",
        "tau-live bench index",
        "tau-live bench index --rebuild",
        "tau-live bench index --quality --max-invalid-ratio 0",
    )
)
@click.option("--rebuild", is_flag=True, help="Check every report again, and write the index.")
@click.option("--quality", is_flag=True, help="Print whether enough is valid; exit 1 if not.")
@click.option("--min-valid", metavar="N", default=1, show_default=True, type=click.IntRange(0))
@click.option(
    "--max-invalid-ratio", metavar="R", default=0.2, show_default=True,
    type=click.FloatRange(0.0, 1.0),
)  # fmt: skip
@root_option
@store_option
@json_option
def index(  # noqa: PLR0913  # its options
    *, rebuild: bool, quality: bool, min_valid: int, max_invalid_ratio: float, folder: Path,
    path: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Print what is published, archived, purged and invalid; without --rebuild nothing is written.

    A report keeps the level that it was checked at until --rebuild checks it again.
    """
    from tau_live.evidence.artifacts import plain
    from tau_live.evidence.index import index_of, known_levels, quality_of
    from tau_live.evidence.publication import rebuild as rebuild_index

    against = checked_against(folder, path, changes=rebuild)
    root = against.root
    result = rebuild_index(against) if rebuild else index_of(against, known_levels(root))
    judged = quality_of(result, min_valid=min_valid, max_invalid_ratio=max_invalid_ratio)
    if as_json:
        print_json(plain(judged if quality else result))
    elif quality:
        _print_quality(judged)
    else:
        _print_index(result)
    sys.exit(1 if quality and not judged.pass_ else 0)


def _print_index(result: "Index") -> None:
    for entry in result.entries:
        click.echo(printable(f"{entry.state} {entry.place}, checked against {entry.level}"))
    for invalid in result.invalid:
        click.echo(printable(f"invalid {invalid.path}: {invalid.reason}"))
    if not result.entries and not result.invalid:
        click.echo("nothing is published")


def _print_quality(judged: "Quality") -> None:
    counts = f"{judged.valid} of {judged.scanned} valid, {judged.invalid_ratio:.0%} invalid"
    click.echo("; ".join((counts, *judged.reason_codes)))
