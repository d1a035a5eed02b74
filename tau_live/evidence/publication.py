"""Publication: reports are published, archived and purged, and none is lost or there twice.

A report is copied, flushed and renamed into its new place, then the index is written, then the old
file is deleted. A purge is noted first, so that whatever is left of it is deleted by the next
command. Each command begins with what an interrupted one has left.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from tau_live.core import fault
from tau_live.core.files import make_folders, sweep
from tau_live.evidence.artifacts import (
    REPORTS,
    ArtifactError,
    Fault,
    Names,
    Root,
    content_of,
    hold,
    parse,
    seconds_of,
)
from tau_live.evidence.claims import claims_of
from tau_live.evidence.index import (
    INDEX,
    PURGED,
    Entry,
    Gone,
    Index,
    Level,
    Purged,
    Report,
    index_of,
    known_levels,
    level_of,
    purged_reports,
    read_report,
    reports_of_shelf,
)
from tau_live.evidence.records import ROLES
from tau_live.evidence.reports import KINDS, PUBLISHED, SAFETY, SHELF
from tau_live.evidence.validation import Checked, kind_of

COMPARED = tuple(kind for kind in KINDS if kind != SAFETY)
"""The reports of a run that are published."""


class Move(NamedTuple):
    """A file that was moved or deleted.

    Attributes:
        action: What was done.
        path: Where it lay, from the root.
        to: Where it lies; ``None`` if it was deleted.
    """

    action: Literal["published", "unchanged", "archived", "purged"]
    path: str
    to: str | None


class Kept(NamedTuple):
    """A file that is due, and is kept all the same.

    Attributes:
        path: The file, from the root.
        reason: Why it is kept.
    """

    path: str
    reason: str


class Purge(NamedTuple):
    """The files that a purge deleted, or would delete.

    Attributes:
        moves: The files that were purged.
        kept: Those that are due and are kept all the same.
    """

    moves: list[Move]
    kept: list[Kept]


Levels = dict[str, Level]


# Commands


def publish(against: Checked, paths: Sequence[Path], *, allow_records: bool = False) -> list[Move]:
    """Publish reports, each at the path that it names; the working files stay.

    A proof stands for the three reports that it names. It stays where it is: its path is in
    nothing that is published, and all that it names has to lie beside it.

    Args:
        against: What they are checked against.
        paths: Reports or proofs.
        allow_records: Whether one may be published that the store lacks the rollouts of.

    Raises:
        ArtifactError: One is not valid, or another was published under its path; none of them is
            published then.
        TauLiveError: A file cannot be written.
    """
    root = against.root
    with _lock(root):
        levels = known_levels(root)
        moves = _complete(against, levels)
        reports = [
            report
            for path in paths
            for report in _valid_reports(
                root.relative(path), against, levels, allow_records=allow_records
            )
        ]
        for report in reports:
            _published_at(root, report)
        for report in reports:
            place, to = _published_at(root, report), report.head.publication.report_path
            if place is not None:
                moves.append(Move("unchanged", report.path, place))
                continue
            root.write_bytes(to, report.content)
            fault.point("publication.published")
            _write_index(against, levels)
            moves.append(Move("published", report.path, to))
    return moves


def archive(against: Checked, *, now: float) -> list[Move]:
    """Move the published reports that are due to the archive; ``retain-only`` ones stay.

    Args:
        against: What reports are checked against.
        now: Epoch seconds.

    Raises:
        ArtifactError: Another file lies where one is to be archived.
        TauLiveError: A file cannot be written.
    """
    root = against.root
    with _lock(root):
        levels = known_levels(root)
        moves = _complete(against, levels)
        for entry in index_of(against, levels).entries:
            if entry.state != "active" or not _is_past(entry.archive_due, now):
                continue
            if root.place(entry.archive_path).exists():
                raise _other_content(entry.archive_path, entry.path)
            root.write_bytes(entry.archive_path, root.read(entry.path))
            fault.point("publication.archived")
            moves += _complete(against, levels)
    return moves


def purge(
    against: Checked, *, now: float, dry_run: bool = False, purge_retained: bool = False
) -> Purge:
    """Delete the archived reports that are due, with the files of runs of which none is left.

    A run that a gate bundle or the audit log names, or whose subject is in use, is kept as a whole:
    its reports, its proof, its records and its inputs.

    Args:
        against: What reports are checked against; without a store nobody can tell which policies
            and prompts are in use, so all of their runs are kept.
        now: Epoch seconds.
        dry_run: Whether to delete nothing.
        purge_retained: Whether ``retain-only`` reports that are due go as well.

    Raises:
        ArtifactError: A gate bundle or the file of what was purged is damaged.
        TauLiveError: A file cannot be written.
    """
    root = against.root
    if dry_run:
        going, kept = _due(against, known_levels(root), now=now, purge_retained=purge_retained)
        left = _left_behind(against, [*purged_reports(root), *going])
        return Purge([Move("purged", path, None) for path in left.paths], [*kept, *left.kept])
    with _lock(root):
        levels = known_levels(root)
        moves = _complete(against, levels)
        going, kept = _due(against, levels, now=now, purge_retained=purge_retained)
        purged = sorted([*purged_reports(root), *going], key=lambda gone: gone.entry.key)
        if going:
            root.write_bytes(PURGED, content_of(Purged(reports=purged)))
            fault.point("publication.noted")
        moves += _complete(against, levels, every_run=True)
        kept += _left_behind(against, purged).kept
    return Purge(moves, kept)


def rebuild(against: Checked) -> Index:
    """Write the index anew: every report is checked again.

    Raises:
        ArtifactError: The file of what was purged is damaged.
        TauLiveError: The index cannot be written.
    """
    with _lock(against.root):
        levels = Levels()
        _complete(against, levels)
        return _write_index(against, levels)


# Files


@contextmanager
def _lock(root: Root) -> Iterator[None]:
    """Keep other commands out, and delete unfinished files of those that were killed."""
    folder = root.place(SHELF)
    make_folders(folder)
    with hold(folder):
        for inner, _, _ in os.walk(folder):  # which follows no link
            sweep(Path(inner))
        yield


def _write_index(against: Checked, levels: Levels) -> Index:
    """Write the index if it has changed, and keep the levels of what it holds."""
    index = index_of(against, levels)
    levels.update({entry.sha256: entry.level for entry in index.entries})
    place, content = against.root.place(INDEX), content_of(index)
    if not place.exists() or place.read_bytes() != content:
        against.root.write_bytes(INDEX, content)
    return index


def _complete(against: Checked, levels: Levels, *, every_run: bool = False) -> list[Move]:
    """Write the index, and delete what is left of archived and purged reports.

    Args:
        against: What reports are checked against.
        levels: What they were checked against, by digest.
        every_run: Whether files of runs that were purged long ago go as well, if nothing names them
            any more; else only those of a purge that was interrupted.
    """
    root = against.root
    _write_index(against, levels)
    fault.point("publication.indexed")
    moves = []
    for active, archived in [*_twins(root)]:
        root.place(active).unlink()
        fault.point("publication.unlinked")
        moves.append(Move("archived", active, archived))
    for path in _left_behind(against, purged_reports(root), every_run=every_run).paths:
        root.place(path).unlink(missing_ok=True)
        fault.point("publication.deleted")
        moves.append(Move("purged", path, None))
    return moves


def _twins(root: Root) -> Iterator[tuple[str, str]]:
    """Yield the reports that lie in the archive and where they were published."""
    for report in reports_of_shelf(root):
        where = report.head.publication
        if (
            report.path == where.archive_path
            and _content(root, where.report_path) == report.content
        ):
            yield where.report_path, where.archive_path


def _content(root: Root, path: str) -> bytes | None:
    """Return the content of a file; ``None`` if there is none."""
    return root.read(path) if root.place(path).exists() else None


def _is_past(due: str | None, now: float) -> bool:
    return due is not None and seconds_of(due) <= now


# Publishing


def _valid_reports(
    name: str, against: Checked, levels: Levels, *, allow_records: bool
) -> Iterator[Report]:
    """Yield a report, or those of a proof, that are valid; keep their levels."""
    document = parse(against.root.read(name))
    names = [name]
    if kind_of(document) == "proof" and isinstance(document, dict):
        _check_report(name, against, allow_records=allow_records)
        run = Names(str(document["run_id"]))
        names = [run.report(kind) for kind in COMPARED]
    for own in names:
        report = read_report(against.root, own)
        levels[report.sha256] = _check_report(own, against, allow_records=allow_records)
        yield report


def _check_report(name: str, against: Checked, *, allow_records: bool) -> Level:
    level = level_of(name, against)
    if level == "records" and not allow_records:
        text = f"{name} is checked against records alone: allow that, or name the store of its run"
        raise ArtifactError(Fault("record_not_in_store", "", text))
    return level


def _published_at(root: Root, report: Report) -> str | None:
    """Return where a report is published or archived already; ``None`` if it is not.

    Raises:
        ArtifactError: Another was published under its path, or it was purged.
    """
    where = report.head.publication
    if any(gone.entry.path == where.report_path for gone in purged_reports(root)):
        text = f"{where.report_path} was published, and purged"
        raise ArtifactError(Fault("already_published", "", text))
    held = [
        item.path
        for item in reports_of_shelf(root)
        if item.head.publication.report_path == where.report_path  # in whichever month it is
    ]
    for path in (*held, where.report_path):
        content = _content(root, path)
        if content is not None and content != report.content:
            raise _other_content(path, report.path)
        if content is not None:
            return path
    return None


def _other_content(path: str, name: str) -> ArtifactError:
    text = f"{path} holds another content than {name}"
    return ArtifactError(Fault("already_published", "", text))


# Purging


def _due(
    against: Checked, levels: Levels, *, now: float, purge_retained: bool
) -> tuple[list[Gone], list[Kept]]:
    """Return the reports that are due: those that may go, as they are noted, and those kept."""
    root, index = against.root, index_of(against, levels)
    due = [
        entry
        for entry in index.entries
        if _is_past(entry.purge_due, now) and _may_go(entry, purge_retained=purge_retained)
    ]
    if not due:
        return [], []
    claims = claims_of(root, against.settings)
    going, kept = list[Gone](), list[Kept]()
    for run_id in dict.fromkeys(entry.run_id for entry in due):
        reason = claims.on(root, [entry for entry in index.entries if entry.run_id == run_id])
        for entry in (item for item in due if item.run_id == run_id):
            if reason is None:
                going.append(_purge_note(root, entry))
            else:
                kept.append(Kept(entry.place, reason))
    return going, kept


def _purge_note(root: Root, entry: Entry) -> Gone:
    head = read_report(root, entry.place).head
    purged = msgspec.structs.replace(entry, state="purged")
    return Gone(entry=purged, inputs_sha256=head.inputs_sha256)


def _may_go(entry: Entry, *, purge_retained: bool) -> bool:
    """Return whether a report that is due is one that is purged."""
    if entry.state == "purged":
        return False
    if entry.archive_due is None:
        return purge_retained
    return entry.state == "archived"


class _LeftBehind(NamedTuple):
    """The files that purged reports leave behind.

    Attributes:
        paths: The files to be deleted, in this order.
        kept: Inputs that stay, because another report names them.
    """

    paths: list[str]
    kept: list[Kept]


def _left_behind(
    against: Checked, purged: Sequence[Gone], *, every_run: bool = True
) -> _LeftBehind:
    """Return the files that purged reports leave behind, the reports themselves last.

    Args:
        against: The project and its store.
        purged: What was purged.
        every_run: Whether of every run; else of those that still have such a report.

    Raises:
        ArtifactError: A gate bundle cannot be read, so nobody knows what it names.
    """
    root, keys = against.root, {gone.entry.key for gone in purged}
    held = [*reports_of_shelf(root)]
    naming = _naming(root, [report for report in held if report.key not in keys], keys)
    result = _LeftBehind([], [])
    inputs_of = {gone.entry.run_id: gone.inputs_sha256 for gone in purged}
    here = {report.head.run_id for report in held if report.key in keys}
    for run_id, inputs in inputs_of.items():
        if run_id not in here and not every_run:
            continue
        files = [*_files_of_run(root, Names(run_id))]
        if not files or _inputs_sha256(root, Names(run_id).inputs) != inputs:
            continue  # gone already, or frozen again under its id
        own = [gone.entry for gone in purged if gone.entry.run_id == run_id]
        reason = naming.get(run_id) or claims_of(root, against.settings).on(root, own)
        if reason is None:
            result.paths.extend(files)
        else:
            result.kept.append(Kept(files[-1], reason))
    result.paths.extend(report.path for report in held if report.key in keys)
    return result


def _naming(root: Root, held: Sequence[Report], purged: set[tuple[str, str]]) -> dict[str, str]:
    """Return which report names each run: a published one, or a working one that never was.

    Args:
        root: The project.
        held: The reports that are published and archived.
        purged: Those that were purged, by path and digest.
    """
    working = []
    for kind in PUBLISHED:
        for place in sorted(root.place(REPORTS).glob(f"*-benchmark-{kind}-*.json")):
            with suppress(ArtifactError):  # one that cannot be read names nothing
                working.append(read_report(root, f"{REPORTS}/{place.name}"))
    result: dict[str, str] = {}
    for report in (*held, *(item for item in working if item.key not in purged)):
        for run_id in (report.head.run_id, *(run.run_id for run in report.head.runs)):
            result.setdefault(run_id, f"{report.path} names it")
    return result


def _files_of_run(root: Root, names: Names) -> Iterator[str]:
    """Yield the files of a run: copies first and the inputs last, by which it is known."""
    kinds = dict.fromkeys((*KINDS, *PUBLISHED))
    newest = [
        names.newest_report(kind)
        for kind in kinds
        if _content(root, names.newest_report(kind)) == _content(root, names.report(kind))
    ]
    paths = [
        *newest, *(names.report(kind) for kind in kinds), names.proof,
        *(names.records(role) for role in ROLES), names.inputs,
    ]  # fmt: skip
    yield from (path for path in paths if root.place(path).exists())


def _inputs_sha256(root: Root, path: str) -> object:
    """Return the digest that frozen inputs name; ``None`` if they are gone, or are none."""
    try:
        document = parse(root.read(path))
    except ArtifactError:
        return None
    return document.get("inputs_sha256") if isinstance(document, dict) else None
