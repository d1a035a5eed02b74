"""An archive as a folder of Parquet files, which any query engine reads where they are.

Deleted rows go into ``pending.jsonl`` first, each block flushed to the disk before its rollouts are
deleted. At the end they are packed: a set of files, one for each table, for each day on which
rollouts ended. Each file is read back and compared, the manifest names them all at once, and only
then ``pending.jsonl`` is emptied. What a kill leaves there the next run packs, into the same files.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from tau_live.cli import arrow
from tau_live.core.errors import ArchiveError
from tau_live.core.files import make_folders, write_whole
from tau_live.record.archive import Archive, read_archive
from tau_live.store.retention import ExportRow, Rows

PENDING, MANIFEST = "pending.jsonl", "manifest.json"

ROLLOUTS_AT_ONCE = 10_000
"""The most rollouts of one set; they are in memory while it is packed."""

BLOCK = 200
"""How many rollouts are restored in one transaction."""

TABLES: Mapping[str, Sequence[str]] = {
    "rollouts": ("seq",),
    "attempts": ("rollout_id", "number"),
    "spans": ("rollout_id", "attempt", "started_at"),
    "decisions": ("point", "at", "seq"),
    "rewards": ("seq",),
}
"""The columns by which the rows of each table are ordered in a file, so that engines can skip."""


class PackedFile(msgspec.Struct, frozen=True):
    """A file of an archive.

    Attributes:
        path: Its path within the archive.
        table: The table that its rows are of.
        rows: How many there are.
        sha256: The digest of its bytes.
    """

    path: str
    table: str
    rows: int
    sha256: str


class PackedSet(msgspec.Struct, frozen=True):
    """The files of rollouts that ended on one day, and were packed together.

    Attributes:
        day: The day, in UTC.
        rollouts: How many there are.
        files: A file for each table that has rows.
    """

    day: str
    rollouts: int
    files: Sequence[PackedFile]


class Manifest(msgspec.Struct, frozen=True):
    """What an archive holds.

    Attributes:
        sets: In the order in which they were packed.
        pending: The digest of the rows that were packed last, which may still be pending.
        seals: The head of the store's chain of seals after that; empty without one.
    """

    sets: Sequence[PackedSet] = ()
    pending: str = ""
    seals: str = ""


class ArchiveFolder:
    """Appends rows to an archive in a folder; one process at a time.

    Args:
        folder: The folder, which is made if it is missing.

    Attributes:
        path: The folder.

    Raises:
        ArchiveError: It is not an archive, or another process appends to it.
        OSError: It cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        make_folders(folder)
        read_manifest(folder)  # before a file is made in somebody else's folder
        self._pending = Archive(folder / PENDING)  # nobody else changes the folder from here on
        try:
            manifest = read_manifest(folder)
            if manifest.pending == _digest_of(folder / PENDING):
                self._pending.clear()  # a kill came between the manifest and this
            self._write(manifest)
        except BaseException:
            self.close()
            raise

    @property
    def rows(self) -> int:
        """How many rows were appended."""
        return self._pending.rows

    def append(self, rows: Rows) -> None:
        """Append rows, and return when they are on the disk. Raises: OSError."""
        self._pending.append(rows)

    def pack(self, seals: str, report_progress: Callable[[int], None]) -> None:
        """Move what is pending into files of Parquet.

        Args:
            seals: The head of the store's chain of seals; empty without one.
            report_progress: Called with the number of rollouts packed so far.

        Raises:
            ArchiveError: A file does not hold what was written; everything is still pending.
            OSError: A file could not be written; likewise.
        """
        pending = self.path / PENDING
        if pending.stat().st_size:
            manifest = read_manifest(self.path)
            sets, count = [*manifest.sets], 0
            for day, rows in _by_day(pending):
                sets.append(_pack(self.path, day, _next_number(sets, day), rows))
                count += sets[-1].rollouts
                report_progress(count)
            self._write(Manifest(sets, _digest_of(pending), seals or manifest.seals))
            self._pending.clear()

    def rollouts_of(self, session: str) -> list[str]:
        """Return the ids of the rollouts of a session. Raises: ArchiveError."""
        return [
            str(row["rollout_id"])
            for packed in read_manifest(self.path).sets
            for file in packed.files
            if file.table == "rollouts"
            for row in _checked_rows(self.path, file)
            if row["session_id"] == session
        ]

    def forget(self, ids: Collection[str]) -> int:
        """Remove rollouts, and rewards under these ids, from the files; return how many rollouts.

        Raises:
            ArchiveError: A file is missing, was changed, or cannot be read.
            OSError: A file could not be written; nothing is removed.
        """
        manifest, gone = read_manifest(self.path), 0
        sets = list[PackedSet]()
        for packed in manifest.sets:
            rows = [row for file in packed.files for row in _checked_rows(self.path, file)]
            kept = [row for row in rows if row["rollout_id"] not in ids]
            if len(kept) == len(rows):
                sets.append(packed)
                continue
            number = _next_number([*manifest.sets, *sets], packed.day)
            new = _pack(self.path, packed.day, number, kept)
            gone += packed.rollouts - new.rollouts
            sets += [new] if kept else []
        self._write(msgspec.structs.replace(manifest, sets=sets))
        return gone

    def _write(self, manifest: Manifest) -> None:
        """Write the manifest, and remove what it does not name: of that nothing may remain."""
        content = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        write_whole(self.path / MANIFEST, content + b"\n")
        named = {self.path / file.path for packed in manifest.sets for file in packed.files}
        for file in self.path.glob("day=*/*"):
            if file not in named:
                file.unlink()

    def close(self) -> None:
        """Let another process append."""
        self._pending.close()


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of an archive; an empty one for a folder in which nothing is packed yet.

    Raises:
        ArchiveError: It cannot be read, or the folder holds something else.
    """
    path = folder / MANIFEST
    try:
        if not path.exists() and any(file.name != PENDING for file in folder.iterdir()):
            raise ArchiveError(f"'{folder}' is not an archive: name a new folder, or one of ours")
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return Manifest()
    except (OSError, msgspec.MsgspecError) as error:
        raise ArchiveError(f"cannot read archive '{path}': {error}") from error


def read_folder(folder: Path) -> Iterator[ExportRow]:
    """Yield the rows of an archive, each rollout before its own rows.

    Raises:
        ArchiveError: A file is missing, was changed, or cannot be read.
    """
    for packed in read_manifest(folder).sets:
        yield from _rows_of(folder, packed)
    with suppress(FileNotFoundError):
        if (folder / PENDING).stat().st_size:
            yield from read_archive(folder / PENDING)


def _rows_of(folder: Path, packed: PackedSet) -> Iterator[ExportRow]:
    """Yield the rows of a set, some rollouts with all their rows at a time."""
    tables = {file.table: _checked_rows(folder, file) for file in packed.files}
    rollouts = tables.pop("rollouts", [])
    owned = {name: _by_rollout(rows) for name, rows in tables.items()}
    for at in range(0, len(rollouts), BLOCK):
        some = rollouts[at : at + BLOCK]
        yield from some
        for of_table in owned.values():
            for row in some:
                yield from of_table.pop(row["rollout_id"], ())
    for rows in owned.get("rewards", {}).values():
        yield from rows  # their rollouts never came


def _checked_rows(folder: Path, file: PackedFile) -> Rows:
    """Return the rows of a file, if it is the one that the manifest names."""
    path = folder / file.path
    try:
        is_whole = _digest_of(path) == file.sha256
    except OSError as error:
        raise ArchiveError(f"cannot read archive '{path}': {error}") from error
    if not is_whole:
        raise ArchiveError(f"'{path}' is not the file that the manifest names")
    return arrow.read_rows(path, file.table)


def _by_rollout(rows: Rows) -> dict[object, list[ExportRow]]:
    """Return the rows of each rollout, in the order of their arrival."""
    owned: dict[object, list[ExportRow]] = {}
    for row in sorted(rows, key=partial(_order, names=("seq", "number"))):
        owned.setdefault(row["rollout_id"], []).append(row)
    return owned


def _order(row: ExportRow, names: Sequence[str]) -> Any:  # noqa: ANN401  # whatever is compared
    """Return by what a row is ordered: columns, those without a value first."""
    return [(row.get(name) is not None, row.get(name)) for name in names]


def _next_number(sets: Sequence[PackedSet], day: str) -> int:
    """Return the number of the next set of a day, by which its files are named."""
    names = [file.path for packed in sets if packed.day == day for file in packed.files]
    return 1 + max((int(Path(name).stem.rpartition("-")[2]) for name in names), default=0)


def _pack(folder: Path, day: str, number: int, rows: Rows) -> PackedSet:
    """Write the files of a set, and read them back."""
    within = folder / f"day={day}"
    make_folders(within)
    files = []
    for table, names in TABLES.items():
        kept = sorted(
            (row for row in rows if row["table"] == table), key=partial(_order, names=names)
        )
        if not kept:
            continue
        path = within / f"{table}-{number:04}.parquet"
        arrow.write_rows(path, kept)
        if [*arrow.read_rows(path, table)] != kept:
            raise ArchiveError(f"'{path}' does not hold what was written; nothing is lost")
        files.append(PackedFile(str(path.relative_to(folder)), table, len(kept), _digest_of(path)))
    count = sum(file.rows for file in files if file.table == "rollouts")
    return PackedSet(day, count, files)


def _by_day(pending: Path) -> Iterator[tuple[str, Rows]]:
    """Yield the rows that are pending by the day of their rollouts, some rollouts at a time.

    Of a rollout that is there twice, as deleting it was interrupted, the last copy counts.
    """
    last: dict[object, int] = {}
    for number, (id_, _) in enumerate(_rollouts_in(pending)):
        last[id_] = number
    current: dict[str, list[ExportRow]] = {}
    count = 0
    for number, (id_, rows) in enumerate(_rollouts_in(pending)):
        if last[id_] != number:
            continue
        current.setdefault(_day_of(rows[0]), []).extend(rows)
        count += 1
        if count == ROLLOUTS_AT_ONCE:
            yield from sorted(current.items())
            current, count = {}, 0
    yield from sorted(current.items())


def _rollouts_in(pending: Path) -> Iterator[tuple[object, list[ExportRow]]]:
    """Yield each rollout with its rows, and each reward whose rollout never came, by its id."""
    for rows in _blocks(read_archive(pending)):
        rollouts = {row["rollout_id"]: [row] for row in rows if row["table"] == "rollouts"}
        for row in rows:
            if row["table"] == "rollouts":
                continue
            if row["rollout_id"] in rollouts:
                rollouts[row["rollout_id"]].append(row)
            else:
                yield (row["rollout_id"], row["seq"]), [row]
        yield from rollouts.items()


def _blocks(rows: Iterable[ExportRow]) -> Iterator[list[ExportRow]]:
    """Yield rollouts with all their rows, as they were appended."""
    is_new = False
    block: list[ExportRow] = []
    for row in rows:
        is_rollout = row["table"] == "rollouts"
        if is_rollout and not is_new and block:
            yield block
            block = []
        is_new = is_rollout
        block.append(row)
    yield block


def _day_of(row: ExportRow) -> str:
    """Return the day of a rollout, or of a reward, in UTC."""
    at = row.get("ended_at") or row.get("started_at") or row.get("at") or 0.0
    return datetime.fromtimestamp(float(str(at)), tz=UTC).date().isoformat()


def _digest_of(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        for block in iter(partial(file.read, 1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
