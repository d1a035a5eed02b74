"""Opening a file: privately, readably, and never somebody else's."""

import os
import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from tau_live.core.errors import StoreError, StoreUnavailableError, StoreVersionError
from tau_live.core.records import Amendment, RolloutStatus, Trial
from tau_live.store.opening import open_at
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import LIVE, begun, decision, ready, reward, span, update
from tests.writes import forget_old, writes


@pytest.fixture
def generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("generous_umask")
def test_only_its_owner_may_read_a_new_store_and_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "one" / "two" / "store.sqlite"

    store = SqliteStore.open(path)
    begun(store)

    files = {file.name: _mode(file) for file in path.parent.iterdir()}
    store.close()
    assert files == {
        "store.sqlite": 0o600,
        "store.sqlite-wal": 0o600,
        "store.sqlite-shm": 0o600,
    }
    assert (_mode(path.parent), _mode(path.parent.parent)) == (0o700, 0o700)


@pytest.mark.usefixtures("generous_umask")
def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    SqliteStore.open(tmp_path / "store.sqlite").close()

    assert _mode(tmp_path) == 0o755


@pytest.mark.parametrize("name", ["a b.sqlite", "a?mode=ro#x%20.sqlite", "a'b;c.sqlite", "\u2603"])
def test_a_name_is_a_name_whatever_it_looks_like(tmp_path: Path, name: str) -> None:
    with closing(SqliteStore.open(tmp_path / name)) as store:
        begun(store)

    with closing(SqliteStore.open(tmp_path / name)) as again:
        assert again.rollouts.rollout(LIVE).status is RolloutStatus.RUNNING
    assert (tmp_path / name).is_file()


def test_a_relative_path_and_a_string_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    SqliteStore.open("folder/store.sqlite").close()

    assert (tmp_path / "folder" / "store.sqlite").is_file()


def test_a_new_file_is_set_up_for_many_processes(path: Path, store: SqliteStore) -> None:
    with sqlite3.connect(path) as other:
        found = {
            name: other.execute(f"pragma {name}").fetchone()[0]
            for name in ("journal_mode", "auto_vacuum", "application_id")
        }

    other.close()
    assert found == {"journal_mode": "wal", "auto_vacuum": 2, "application_id": 0x7461754C}


@pytest.mark.parametrize(("synchronous", "expected"), [("normal", 1), ("full", 2)])
def test_how_hard_it_is_synchronised_is_a_setting(
    path: Path, synchronous: Literal["normal", "full"], expected: int
) -> None:
    with closing(SqliteStore.open(path, synchronous=synchronous)) as store:
        assert store._connection.count("pragma synchronous") == expected


def test_a_read_only_store_reads_and_refuses_to_write(path: Path, store: SqliteStore) -> None:
    begun(store)

    reader = SqliteStore.open(path, read_only=True)

    assert reader.rollouts.rollout(LIVE) == store.rollouts.rollout(LIVE)
    with pytest.raises(StoreUnavailableError, match="read-only"):
        writes(reader).set_status(LIVE, RolloutStatus.FAILED, at=9.0)
    reader.close()


@pytest.mark.parametrize("is_open", [False, True])
def test_a_traceless_reader_sees_every_commit_and_leaves_no_file(
    path: Path, store: SqliteStore, *, is_open: bool
) -> None:
    begun(store)
    known = store.rollouts.rollout(LIVE)
    if not is_open:
        store.close()
    before = sorted(path.parent.iterdir())

    with closing(SqliteStore.open(path, read_only=True, traceless=True)) as reader:
        found = reader.rollouts.rollout(LIVE)
        meanwhile = sorted(path.parent.iterdir())

    assert found == known
    assert len(before) == (3 if is_open else 1)
    assert before == meanwhile == sorted(path.parent.iterdir())


def test_a_traceless_reader_sees_the_log_of_a_store_behind_a_link(
    path: Path, store: SqliteStore, tmp_path: Path
) -> None:
    begun(store)
    link = tmp_path / "elsewhere" / "link.sqlite"
    link.parent.mkdir()
    link.symlink_to(path)

    with closing(SqliteStore.open(link, read_only=True, traceless=True)) as reader:
        assert reader.rollouts.rollout(LIVE) == store.rollouts.rollout(LIVE)


def test_a_traceless_reader_cannot_write(path: Path, store: SqliteStore) -> None:
    begun(store)
    store.close()

    with closing(SqliteStore.open(path, read_only=True, traceless=True)) as reader:
        with pytest.raises(StoreUnavailableError, match="read-only"):
            writes(reader).set_status(LIVE, RolloutStatus.FAILED, at=9.0)


def test_what_sqlite_made_beside_a_store_that_was_read_only_may_be_written_again(
    path: Path, store: SqliteStore
) -> None:
    beside = [path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm")]
    for file in beside:
        file.chmod(0o400)  # as SQLite makes them beside a store of that mode

    SqliteStore.open(path).close()

    assert [file.stat().st_mode & 0o777 for file in beside] == [0o600, 0o600]


def test_a_read_only_store_must_be_there_and_is_not_made(path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="cannot be opened"):
        SqliteStore.open(path, read_only=True)

    assert list(path.parent.iterdir()) == []


def test_an_empty_file_is_not_a_store_for_reading(path: Path) -> None:
    path.touch()

    with pytest.raises(StoreVersionError, match="is empty: run your agent with TAU_LIVE_RL=1 once"):
        SqliteStore.open(path, read_only=True)

    assert path.read_bytes() == b""


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()

    with closing(SqliteStore.open(path)) as store:
        begun(store)

    assert path.stat().st_size > 0


@pytest.mark.parametrize("content", [b"garbage" * 1000, b"x", b"SQLite format 3\x00" + b"x" * 5000])
def test_garbage_is_refused_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    with pytest.raises(StoreUnavailableError, match=re.escape(str(path))):
        SqliteStore.open(path)

    assert path.read_bytes() == content


def test_a_folder_in_its_place_is_refused(path: Path) -> None:
    path.mkdir()

    with pytest.raises(StoreUnavailableError, match="cannot be opened"):
        SqliteStore.open(path)


def test_a_file_in_place_of_its_folder_is_refused(path: Path) -> None:
    path.write_text("no folder")

    with pytest.raises(StoreUnavailableError, match="cannot be opened"):
        SqliteStore.open(path / "store.sqlite")


@pytest.mark.parametrize(
    "made",
    ["create table theirs (x)", "pragma application_id = 7", "pragma user_version = 3"],
)
def test_the_database_of_another_application_is_refused_and_left_as_it_is(
    path: Path, made: str
) -> None:
    other = sqlite3.connect(path)
    other.execute(made)
    other.commit()
    other.close()
    before = path.read_bytes()

    with pytest.raises(StoreUnavailableError, match="belongs to another application"):
        SqliteStore.open(path)

    assert path.read_bytes() == before


def test_a_damaged_page_is_an_error_of_ours(path: Path) -> None:
    store = SqliteStore.open(path)
    begun(store)
    store.retention.vacuum()
    store.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)

    with (
        pytest.raises(StoreUnavailableError, match="damaged"),
        closing(SqliteStore.open(path)) as damaged,
    ):
        damaged.rollouts.rollout(LIVE)


def test_a_value_that_no_tau_live_writes_is_named(path: Path, store: SqliteStore) -> None:
    begun(store)
    with sqlite3.connect(path) as other:
        other.execute("update rollouts set status = 'dancing'")
    other.close()

    with pytest.raises(StoreError, match=r"in status of rollouts 'live-1'.*dancing"):
        store.rollouts.rollout(LIVE)


def test_a_sqlite_that_is_too_old_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))

    with pytest.raises(StoreUnavailableError, match=r"expected 3\.37\.0 or newer"):
        SqliteStore.open(path)

    assert not path.exists()


def test_a_store_that_somebody_keeps_locked_is_waited_for_so_long_and_no_longer(
    path: Path, store: SqliteStore
) -> None:
    impatient = SqliteStore.open(path, busy_timeout_s=0.01)

    with store.begin(), pytest.raises(StoreUnavailableError, match="locked it for too long"):
        begun(impatient)

    begun(impatient)
    assert store.rollouts.rollout(LIVE).status is RolloutStatus.RUNNING
    impatient.close()


def test_a_full_disk_is_an_error_of_ours_and_leaves_nothing_half_written(
    store: SqliteStore,
) -> None:
    pages = store._connection.count("pragma page_count")
    store._connection.rows(f"pragma max_page_count = {pages + 20}")
    written = []

    with pytest.raises(StoreUnavailableError, match="the disk is full"):
        for number in range(10_000):
            with store.begin():
                begun(store, f"live-{number}")
                writes(store).amend_rollout(f"live-{number}", Amendment(metadata={"x": "y" * 1000}))
            written.append(f"live-{number}")

    found = list(store.export())
    rollouts = [row for row in found if row["table"] == "rollouts"]
    assert [row["rollout_id"] for row in rollouts] == written
    assert len([row for row in found if row["table"] == "attempts"]) == len(written) > 0
    assert all(row["metadata"] for row in rollouts)


def test_after_a_full_disk_nothing_of_the_same_transaction_is_kept(store: SqliteStore) -> None:
    pages = store._connection.count("pragma page_count")
    store._connection.rows(f"pragma max_page_count = {pages + 5}")

    with pytest.raises(StoreUnavailableError, match="rolled back"), store.begin():
        begun(store)
        with pytest.raises(StoreUnavailableError, match="the disk is full"):
            for number in range(1000):
                store.counters.add({f"{number}{'y' * 5000}": 1})
        store.counters.add({"after": 1})

    assert store.rollouts.find_rollout(LIVE) is None
    assert store.counters.counts() == {}


def test_what_is_forgotten_leaves_no_row_in_any_table(path: Path, store: SqliteStore) -> None:
    ready(store, LIVE, "model")
    writes(store).add_span(span())
    writes(store).add_reward(reward())
    store.policies.add_update(update(1), None)
    writes(store).add_decision(replace(decision(2), share=0.75))
    store.trials.save(Trial(point="model", watermark=1, revision=1))

    forget_old(store, before=99.0, limit=9)

    tables = (
        *("rollouts", "attempts", "spans", "recorded_spans", "decisions", "rewards"),
        *("ready_points", "awaiting", "arms"),
    )
    left = {table: store._connection.count(f"select count(*) from {table}") for table in tables}
    assert left == dict.fromkeys(tables, 0)


def test_space_is_given_back_in_steps(path: Path, store: SqliteStore) -> None:
    with store.begin():
        for number in range(400):
            begun(store, f"live-{number}")
            writes(store).amend_rollout(f"live-{number}", Amendment(metadata={"x": "y" * 5000}))
            writes(store).set_status(f"live-{number}", RolloutStatus.SUCCEEDED, at=5.0)
    store._connection.rows("pragma wal_checkpoint(truncate)")
    before = path.stat().st_size

    forget_old(store, before=9.0, limit=1000)
    store.retention.vacuum()

    assert path.stat().st_size < before / 4
    assert store._connection.count("pragma freelist_count") == 0


CLOSED = """
import os, sys
from tau_live.core.errors import StoreError
from tau_live.store.opening import open_at
from tau_live.store.sqlite.store import SqliteStore

store = SqliteStore.open(sys.argv[1])
store.counters.add({"a": 1})
os.closerange(3, 64)
files = [open(__file__ if "__file__" in globals() else os.devnull) for _ in range(20)]
try:
    store.counters.add({"a": 1})
except StoreError as error:
    print(error)
store.close()
print(all(os.fstat(file.fileno()) for file in files))
"""


@pytest.mark.slow
def test_who_closes_the_stores_own_descriptors_is_named_and_keeps_what_took_their_numbers(
    path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLOSED, str(path)], capture_output=True, text=True, check=True
    )

    said, kept = done.stdout.splitlines()
    assert "this process closed its files" in said
    assert kept == "True"


@pytest.mark.parametrize("scheme", ["", "sqlite:"])
def test_a_store_is_opened_from_its_address(tmp_path: Path, scheme: str) -> None:
    with closing(open_at(f"{scheme}{tmp_path / 'store.sqlite'}")) as store:
        assert store.path == tmp_path / "store.sqlite"


def test_a_path_may_look_like_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with closing(open_at("mine:1.sqlite")), closing(open_at(Path("sqlite:2"))):
        assert {"mine:1.sqlite", "sqlite:2"} <= {path.name for path in tmp_path.iterdir()}


def test_an_address_that_nothing_opens_is_refused() -> None:
    with pytest.raises(StoreUnavailableError, match="got redis:"):
        open_at("redis://here/tau")
