"""Index: every report that was published, where it is, and what it was checked against."""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from tau_live.evidence.artifacts import (
    DAY_S,
    ArtifactError,
    Digest,
    Fault,
    Natural,
    Root,
    RunId,
    Share,
    Timestamp,
    as_kind,
    digest,
    parse,
    seconds_of,
    timestamp,
)
from tau_live.evidence.reports import PURGED_LATER, SHELF, Benchmark, Part, Publication, Retention
from tau_live.evidence.validation import Checked, validate

INDEX = f"{SHELF}/index.json"
PURGED = f"{SHELF}/purged.json"
"""What was purged: all that is left of it, so that the index can be made again."""

MIN_VALID, MAX_INVALID_RATIO = 1, 0.2

NO_STORE = "record_not_in_store"
"""The fault of records that a store does not have; it contradicts none of them."""

Level = Literal["records", "store"]


class Entry(Part, frozen=True, kw_only=True):
    """A report that was published.

    Attributes:
        report_kind: ``baseline``, ``trained``, ``significance`` or ``summary``.
        run_id: The run.
        suite_id: The suite; of a summary those of its runs, by commas.
        generated_at: When it was made.
        state: ``active`` at ``path``, ``archived`` at ``archive_path``, or ``purged``.
        path: Where it is published.
        archive_path: Where it is archived.
        sha256: The digest of its file.
        level: What it was checked against: ``records``, or the ``store`` as well.
        pass_: Whether no criterion fails, in no run of a summary; ``None`` of a report of one role.
        archive_due: From when it is archived; ``None`` if it stays where it is.
        purge_due: From when it may be purged; one that stays only by order.
    """

    report_kind: Literal["baseline", "trained", "significance", "summary"]
    run_id: RunId
    suite_id: str
    generated_at: Timestamp
    state: Literal["active", "archived", "purged"]
    path: str
    archive_path: str
    sha256: Digest
    level: Level
    pass_: bool | None = msgspec.field(name="pass")
    archive_due: Timestamp | None
    purge_due: Timestamp

    @property
    def key(self) -> tuple[str, str]:
        """Its name wherever it lies: the path of its publication, and its digest."""
        return self.path, self.sha256

    @property
    def place(self) -> str:
        """Where it lies; of a purged one where it was published."""
        return self.archive_path if self.state == "archived" else self.path


class Invalid(Part, frozen=True, kw_only=True):
    """A file among published reports that is none.

    Attributes:
        path: The file.
        reason: The code of what is wrong, and a sentence.
    """

    path: str
    reason: str


class Index(Part, frozen=True, kw_only=True):
    """Every report that was published.

    Attributes:
        schema_version: 1.
        entries: The reports, by path.
        invalid: Files that are no valid reports, by path.
    """

    schema_version: Literal[1] = 1
    entries: list[Entry]
    invalid: list[Invalid]


class Gone(Part, frozen=True, kw_only=True):
    """A report that was purged.

    Attributes:
        entry: Its entry in the index.
        inputs_sha256: The digest of the frozen inputs of its run; ``None`` of a summary.
    """

    entry: Entry
    inputs_sha256: Digest | None


class Purged(Part, frozen=True, kw_only=True):
    """Every report that was purged.

    Attributes:
        schema_version: 1.
        reports: The reports, by path.
    """

    schema_version: Literal[1] = 1
    reports: list[Gone]


class Quality(Part, frozen=True, kw_only=True):
    """Whether enough of what is published is valid.

    Attributes:
        scanned: Files that were looked at.
        valid: Those that are valid reports.
        invalid: Those that are not.
        invalid_ratio: The share of those that are not, in ``[0, 1]``; 0 without any file.
        pass_: Whether nothing speaks against it.
        reason_codes: What does.
    """

    scanned: Natural
    valid: Natural
    invalid: Natural
    invalid_ratio: Share
    pass_: bool = msgspec.field(name="pass")
    reason_codes: list[str]


class _Verdict(msgspec.Struct, frozen=True):
    pass_: bool = msgspec.field(name="pass")


class _Run(msgspec.Struct, frozen=True):
    run_id: RunId
    suite: str
    pass_: bool = msgspec.field(name="pass")


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a report, as publication needs it.

    Attributes:
        report_kind: Its kind.
        run_id: The run.
        generated_at: When it was made.
        inputs_sha256: The digest of the frozen inputs; ``None`` of a summary.
        benchmark_suite: The suite; ``None`` of a summary.
        publication: Where it is published and archived.
        retention: How long it is kept.
        significance: Its verdict; ``None`` if it compares nothing.
        runs: The runs of a summary.
    """

    report_kind: Literal["baseline", "trained", "significance", "summary"]
    run_id: RunId
    generated_at: Timestamp
    inputs_sha256: Digest | None = None
    benchmark_suite: Benchmark | None = None
    publication: Publication
    retention: Retention
    significance: _Verdict | None = None
    runs: list[_Run] = []

    @property
    def suite_id(self) -> str:
        """Its suite, or those of its runs."""
        if self.benchmark_suite is not None:
            return self.benchmark_suite.name
        return ",".join(dict.fromkeys(run.suite for run in self.runs))

    @property
    def verdict(self) -> bool | None:
        """Whether no criterion fails; ``None`` if it compares nothing."""
        if self.runs:
            return all(run.pass_ for run in self.runs)
        return None if self.significance is None else self.significance.pass_


class Report(NamedTuple):
    """The file of a report.

    Attributes:
        path: Where it lies, from the root.
        content: Its bytes.
        head: What it says of itself.
    """

    path: str
    content: bytes
    head: Head

    @property
    def sha256(self) -> str:
        """The digest of its file."""
        return digest(self.content)

    @property
    def key(self) -> tuple[str, str]:
        """As that of its entry."""
        return self.head.publication.report_path, self.sha256


def read_report(root: Root, path: str) -> Report:
    """Return a report, whether or not it is valid.

    Raises:
        ArtifactError: It cannot be read, or is no report that can be published.
    """
    content = root.read(path)
    try:
        return Report(path, content, msgspec.convert(parse(content), Head))
    except msgspec.ValidationError as error:
        text = f"{path} is no report that can be published: {error}"
        raise ArtifactError(Fault("bad_report_kind", "", text)) from error


def entry_of(report: Report, level: Level) -> Entry:
    """Return the entry of a report that lies where it is published or archived."""
    head, where = report.head, report.head.publication
    made, keeping = seconds_of(head.generated_at), head.retention
    archived_at = timestamp(made + keeping.archive_after_days * DAY_S)
    return Entry(
        report_kind=head.report_kind,
        run_id=head.run_id,
        suite_id=head.suite_id,
        generated_at=head.generated_at,
        state="archived" if report.path == where.archive_path else "active",
        path=where.report_path,
        archive_path=where.archive_path,
        sha256=report.sha256,
        level=level,
        pass_=head.verdict,
        archive_due=archived_at if keeping.policy == PURGED_LATER else None,
        purge_due=keeping.purge_after,
    )


def level_of(path: str, against: Checked) -> Level:
    """Return what an artifact holds out against: the store, or the records alone.

    A store that lacks the rollouts of an artifact does not contradict it; any other fault counts.

    Raises:
        ArtifactError: It is not valid.
    """
    result = validate(against.root.folder / path, against)
    contradictions = [fault for fault in result.errors if fault.code != NO_STORE]
    if result.errors and not contradictions:
        result = validate(against.root.folder / path, against._replace(settings=None))
        contradictions = result.errors
    if contradictions:
        raise ArtifactError(*contradictions[:20])
    return "records" if result.level == "records" else "store"


def files_of_shelf(root: Root) -> list[str]:
    """Return the files among published and archived reports, by path."""
    result = root.place(SHELF).rglob("*.json")
    paths = (place.relative_to(root.folder).as_posix() for place in result)
    readable = (path for path in paths if path.isprintable())  # others are none of ours
    return sorted(path for path in readable if path not in {INDEX, PURGED})


def reports_of_shelf(root: Root) -> Iterator[Report]:
    """Yield every file that can be read as a report, valid or not."""
    for path in files_of_shelf(root):
        try:
            yield read_report(root, path)
        except ArtifactError:
            continue  # the index tells of it


def purged_reports(root: Root) -> list[Gone]:
    """Return what was purged, by path.

    Raises:
        ArtifactError: The file that holds it is damaged.
    """
    if not root.place(PURGED).exists():
        return []
    return as_kind(parse(root.read(PURGED)), Purged).reports


def known_levels(root: Root) -> dict[str, Level]:
    """Return the levels of reports by digest, as the index has them; empty if it is damaged."""
    try:
        entries = as_kind(parse(root.read(INDEX)), Index).entries
    except ArtifactError:
        return {}
    return {entry.sha256: entry.level for entry in entries}


def index_of(against: Checked, levels: Mapping[str, Level]) -> Index:
    """Return the index, made from the files.

    A move or a purge that was interrupted counts as done once its copy, or its note, is whole.

    Args:
        against: What reports are checked against.
        levels: What those were checked against that are not checked again, by digest.

    Raises:
        ArtifactError: The file of what was purged is damaged.
    """
    purged = [gone.entry for gone in purged_reports(against.root)]
    result = {entry.key: entry for entry in purged}
    invalid = []
    for path in files_of_shelf(against.root):
        try:
            report = read_report(against.root, path)
            if report.key in result and result[report.key].state != "active":
                continue
            result[report.key] = entry_of(report, _level(report, against, levels))
        except ArtifactError as error:
            reason = _reason(path, error, against)
            invalid.append(Invalid(path=path, reason=reason))
    entries = sorted(result.values(), key=lambda entry: entry.key)
    return Index(entries=entries, invalid=invalid)


def _level(report: Report, against: Checked, levels: Mapping[str, Level]) -> Level:
    where = report.head.publication
    is_known = report.path in {where.report_path, where.archive_path} and report.sha256 in levels
    return levels[report.sha256] if is_known else level_of(report.path, against)


def _reason(path: str, error: ArtifactError, against: Checked) -> str:
    """Return the first fault of a file, by the validator if it finds any."""
    errors = validate(against.root.folder / path, against).errors
    first = (errors or error.faults)[0]
    return f"{first.code}: {first.message}"


def quality_of(
    index: Index, *, min_valid: int = MIN_VALID, max_invalid_ratio: float = MAX_INVALID_RATIO
) -> Quality:
    """Return whether enough of what is published is valid.

    Args:
        index: The index.
        min_valid: The fewest valid reports.
        max_invalid_ratio: The largest share of files that are not valid, in ``[0, 1]``.
    """
    valid = sum(entry.state != "purged" for entry in index.entries)
    invalid = len(index.invalid)
    scanned = valid + invalid
    ratio = invalid / scanned if scanned else 0.0
    codes = {
        "no_valid_artifacts": not valid,
        "below_min_valid_entries": 0 < valid < min_valid,
        "invalid_ratio_exceeded": ratio > max_invalid_ratio,
    }
    reasons = [code for code, holds in codes.items() if holds]
    return Quality(
        scanned=scanned, valid=valid, invalid=invalid, invalid_ratio=ratio, pass_=not reasons,
        reason_codes=reasons,
    )  # fmt: skip
