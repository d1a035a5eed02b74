"""Damage of a store's files: found, said, and nothing of it deleted."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tau_live.core.errors import StoreDamagedError, StoreUnavailableError
from tau_live.core.records import AuditEntry
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import begun
from tests.faulty_vfs import Plan, faulty_disk

FRAME = 24 + 4096


@pytest.fixture
def killed(path: Path, store: SqliteStore) -> Path:
    """The files of a store with three rollouts whose process was killed: the log holds them."""
    folder = path.with_name("killed")
    folder.mkdir()
    store._connection.rows("pragma wal_checkpoint(truncate)")
    for number in range(3):
        begun(store, f"live-{number}")
    for end in ("", "-wal"):
        shutil.copy(f"{path}{end}", folder)
    return folder / path.name


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def spoil_header(log: bytearray) -> None:
    log[17] ^= 1


def spoil_first_frame(log: bytearray) -> None:
    log[32 + 24 + 100] ^= 1


def spoil_half_way(log: bytearray) -> None:
    log[32 + (len(log) - 32) // FRAME // 2 * FRAME + 24 + 100] ^= 1


@pytest.mark.parametrize("spoil", [spoil_header, spoil_first_frame, spoil_half_way])
def test_a_damaged_log_is_said_and_kept(
    killed: Path, spoil: Callable[[bytearray], None], caplog: pytest.LogCaptureFixture
) -> None:
    log = bytearray(log_of(killed).read_bytes())
    spoil(log)
    log_of(killed).write_bytes(log)

    store = SqliteStore.open(killed)
    begun(store, "live-new")
    store.close()

    [kept] = killed.parent.glob("store.sqlite.aside-*-wal")
    assert kept.read_bytes() == bytes(log)
    assert kept.stat().st_mode & 0o077 == 0
    assert "log_damaged" in caplog.text


@pytest.mark.parametrize("commits", [False, True])
def test_a_whole_log_is_read_and_nothing_is_said(
    killed: Path, caplog: pytest.LogCaptureFixture, *, commits: bool
) -> None:
    last = log_of(killed).read_bytes()[-FRAME:] if commits else bytes(FRAME)
    with log_of(killed).open("ab") as file:  # what a kill or a full disk did not let finish
        file.write(last[: FRAME // 2])

    store = SqliteStore.open(killed)
    found = [store.rollouts.find_rollout(f"live-{number}") for number in range(3)]
    store.close()

    assert None not in found
    assert caplog.text == ""
    assert list(killed.parent.glob("*.aside-*")) == []


def test_a_log_that_another_process_goes_on_with_is_not_taken_for_damaged(
    path: Path, store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(40):
        begun(store, f"live-{number}")
        if number % 7 == 0:
            store._connection.rows("pragma wal_checkpoint(restart)")
        SqliteStore.open(path).close()

    assert caplog.text == ""


LOCKS = """
import fcntl, sys
with open(sys.argv[1], "r+b") as index:
    fcntl.lockf(index, fcntl.LOCK_EX, 1, 121)
    print(flush=True)
    sys.stdin.read()
"""
"""Holds the lock of a log's index under which it is copied into the store."""


def test_a_log_that_another_process_copies_is_not_taken_for_damaged(
    path: Path, store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    begun(store)
    command = [sys.executable, "-c", LOCKS, f"{path}-shm"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()

        SqliteStore.open(path).close()

        other.communicate()
    assert caplog.text == ""
    assert list(path.parent.glob("*.aside-*")) == []


def test_an_emptied_file_with_a_log_is_damaged_and_the_log_is_left(killed: Path) -> None:
    log = log_of(killed).read_bytes()
    killed.write_bytes(b"")

    with pytest.raises(StoreDamagedError, match="has a write-ahead log"):
        SqliteStore.open(killed)

    assert log_of(killed).read_bytes() == log


def test_what_a_removed_store_left_is_set_aside_before_another_is_made(killed: Path) -> None:
    log = log_of(killed).read_bytes()
    policies = killed.with_name("store-policies")
    policies.mkdir()
    killed.unlink()

    store = SqliteStore.open(killed)
    found = store.rollouts.find_rollout("live-0")
    store.close()

    [kept] = killed.parent.glob("store.sqlite.aside-*-wal")
    assert found is None
    assert kept.read_bytes() == log
    assert not policies.exists()
    assert len(list(killed.parent.glob("store-policies.aside-*"))) == 1


def test_the_policies_of_another_store_of_nearly_the_same_name_stay(tmp_path: Path) -> None:
    SqliteStore.open(tmp_path / "store.sqlite").close()
    (tmp_path / "store-policies").mkdir()

    SqliteStore.open(tmp_path / "store.db").close()

    assert (tmp_path / "store-policies").is_dir()


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "removed"])
def test_a_store_that_was_taken_away_leaves_no_log_to_the_next(
    path: Path, store: SqliteStore, replaced: bool
) -> None:
    begun(store)
    other = path.with_name("other.sqlite")
    SqliteStore.open(other).close()
    if replaced:
        other.rename(path)
    else:
        path.unlink()

    gone = not store.is_there()
    store.set_leftovers_aside()

    assert gone
    assert not log_of(path).exists()
    again = SqliteStore.open(path)
    begun(again, "live-again")
    store.close()  # the last connection to the old file
    found = again.rollouts.find_rollout("live-again")
    integrity = again._connection.rows("pragma integrity_check")[0][0]
    again.close()
    assert found is not None
    assert integrity == "ok"
    assert len(list(path.parent.glob("store.sqlite.aside-*-wal"))) == 1


def test_an_emptied_file_is_not_there_any_more(path: Path, store: SqliteStore) -> None:
    begun(store)
    with path.open("wb"):
        pass

    assert not store.is_there()


def test_a_disk_that_may_not_be_written_is_refused_at_once(path: Path) -> None:
    """It is not waited for as one that others keep locked is: nothing would change."""
    read_only = 8
    began = time.monotonic()

    with faulty_disk() as disk:
        disk.fail(Plan(at=1, lasting=True, calls=("write",), error=read_only))
        with pytest.raises(StoreUnavailableError, match="read-only"):
            SqliteStore.open(path, busy_timeout_s=60.0)

    assert time.monotonic() - began < 30.0


@pytest.mark.parametrize("details", ["~", "[]"])
def test_a_line_of_the_audit_that_was_spoiled_is_read_without_its_details(
    store: SqliteStore, details: str
) -> None:
    store.audit.add(AuditEntry(at=1.0, who="me", action="pause", reason="why", details={"a": 1}))
    store._connection.rows("update audit set details = ?", (details,))

    found = [(line.action, line.details) for line in store.audit.entries()]

    assert found == [("pause", {})]


@pytest.mark.slow
def test_a_commit_on_its_way_to_a_slow_disk_is_not_lost(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with faulty_disk() as disk:
        writer = SqliteStore.open(path, synchronous="full")
        begun(writer, "live-before")
        before = disk.counts["sync"]
        disk.slow_s = 1.0
        thread = threading.Thread(target=begun, args=(writer, "live-slow"))
        thread.start()
        while disk.counts["sync"] == before:  # its pages are in the log by then
            assert thread.is_alive()
        time.sleep(0.05)  # between the count and the wait
        disk.slow_s = 0.0
        SqliteStore.open(path).close()
        thread.join()
        writer.close()

    assert "log_damaged" not in caplog.text
    assert not list(path.parent.glob("*.aside-*"))
