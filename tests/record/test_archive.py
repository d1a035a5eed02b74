"""Archives: whole, private, appended to, and never torn in a way that loses what was deleted."""

import gzip
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.errors import ArchiveError
from tau_live.record.archive import Archive, read_archive
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import ready, reward, span, update
from tests.writes import writes

NAMES = ["old.jsonl", "old.jsonl.gz"]
BLOCKS = [[{"table": "rollouts", "n": n}, {"table": "spans", "n": n}] for n in range(3)]
KILLED = """
import os, signal, sys
from contextlib import closing
from pathlib import Path
from tau_live.record.archive import Archive
from tau_live.store.sqlite.store import SqliteStore
store = SqliteStore.open(sys.argv[1])
writes = 0
write, fsync, after = os.write, os.fsync, int(sys.argv[3])
def counted(file, data):
    global writes
    writes += 1
    if writes == after:
        write(file, bytes(data)[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return write(file, data)
def synced(file):
    global writes
    writes += 1
    if writes == after:
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(file)
with closing(Archive(Path(sys.argv[2]))) as archive:
    os.write, os.fsync = counted, synced
    place = None
    while store.retention.sweep(before=1e9, limit=4, archive=archive.append).gone:
        pass
"""


def filled(path: Path, *, rollouts: int) -> list[dict[str, object]]:
    store = SqliteStore.open(path)
    with store.begin():
        for n in range(rollouts):
            ready(store, f"live-{n}", "model", "tools")
            writes(store).add_span(span(f"s-{n}", f"live-{n}", ended_at=4.0, status="ok"))
            writes(store).add_reward(reward(float(n), f"live-{n}"))
        # spans and rewards of several runs come one between the other
        for n in reversed(range(rollouts)):
            writes(store).add_span(span(f"t-{n}", f"live-{n}", ended_at=4.5, status="ok"))
        store.policies.add_update(update(rollouts, "model"), None)
        store.policies.add_update(update(rollouts, "tools"), None)
    rows = exported(store)
    store.close()
    return rows


def exported(store: SqliteStore) -> list[dict[str, object]]:
    return [dict(row) for row in store.export() if row["table"] not in {"updates", "policies"}]


def restored(path: Path, *archives: Path) -> list[dict[str, object]]:
    store = SqliteStore.open(path)
    for archive in archives:
        store.restore(read_archive(archive))
    rows = exported(store)
    store.close()
    return rows


def emptied(path: Path, archive: Archive, *, at_once: int) -> None:
    store = SqliteStore.open(path)
    while store.retention.sweep(before=1e9, limit=at_once, archive=archive.append).gone:
        pass
    store.close()


@pytest.mark.parametrize("name", NAMES)
def test_what_was_archived_comes_back_as_it_was(tmp_path: Path, name: str) -> None:
    before = filled(tmp_path / "store.sqlite", rollouts=9)

    with closing(Archive(tmp_path / name)) as archive:
        emptied(tmp_path / "store.sqlite", archive, at_once=2)

    left = SqliteStore.open(tmp_path / "store.sqlite")
    assert exported(left) == []
    left.close()
    assert restored(tmp_path / "again.sqlite", tmp_path / name) == before
    assert restored(tmp_path / "again.sqlite", tmp_path / name) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("after", [1, 2, 3])
def test_fault_17_a_kill_deletes_nothing_that_is_not_archived(
    tmp_path: Path, name: str, after: int
) -> None:
    before = filled(tmp_path / "store.sqlite", rollouts=9)

    killed = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path / "store.sqlite", tmp_path / name, str(after)],
        check=False,
    )
    with closing(Archive(tmp_path / name)) as archive:
        emptied(tmp_path / "store.sqlite", archive, at_once=4)

    assert killed.returncode == -signal.SIGKILL
    assert restored(tmp_path / "again.sqlite", tmp_path / name) == before


@given(cut=st.integers(1, 400), name=st.sampled_from(NAMES))
def test_whatever_a_kill_leaves_behind_the_last_whole_block_is_cut_off(
    tmp_path_factory: pytest.TempPathFactory, cut: int, name: str
) -> None:
    path = tmp_path_factory.mktemp("archive") / name
    with closing(Archive(path)) as archive:
        archive.append(BLOCKS[0])
        whole = path.stat().st_size
        archive.append(BLOCKS[1])
    size = path.stat().st_size
    os.truncate(path, max(whole, size - cut))

    with closing(Archive(path)) as archive:
        archive.append(BLOCKS[2])

    found = [row["n"] for row in read_archive(path)]
    assert found[:2] == [0, 0]
    assert found[-2:] == [2, 2]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_its_owners_alone(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with closing(Archive(path)) as archive:
        archive.append(BLOCKS[0])
    first = path.stat().st_mode & 0o777
    path.chmod(0o644)

    Archive(path).close()

    assert first == path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"SQLite format 3\0", id="a store"),
        pytest.param(b'{"event": "run.start"}\n', id="a recording"),
        pytest.param(gzip.compress(b"notes\n"), id="something compressed"),
        pytest.param(b"notes\n", id="notes"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_else_is_written_over(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(ArchiveError, match="not an archive"):
        Archive(path)

    assert path.read_bytes() == content


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic"):
        Archive(tmp_path / "link.jsonl")

    assert not (tmp_path / "elsewhere").exists()


def test_two_do_not_append_at_once(tmp_path: Path) -> None:
    with (
        closing(Archive(tmp_path / "a.jsonl")),
        pytest.raises(ArchiveError, match="another process"),
    ):
        Archive(tmp_path / "a.jsonl")


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file of this process grow, its log neither: so this is over before a test ends."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_what_a_full_disk_cuts_off_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with closing(Archive(path)) as archive:
        archive.append(BLOCKS[0])
        whole = path.read_bytes()

        with full_disk(), pytest.raises(OSError, match="File too large"):
            archive.append([{"table": "spans", "text": "x" * 9000}])
        after = path.read_bytes()
        archive.append(BLOCKS[1])

    assert after == whole
    assert [row["n"] for row in read_archive(path)] == [0, 0, 1, 1]


def test_a_compressed_archive_without_its_end_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with closing(Archive(path)) as archive:
        archive.append(BLOCKS[0])
    path.write_bytes(path.read_bytes()[:-4])

    with pytest.raises(ArchiveError, match="cannot read archive"):
        list(read_archive(path))
