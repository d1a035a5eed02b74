"""What operators do while the store comes and goes is in its audit, once, when it is back."""

import fcntl
import sqlite3
import threading
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

import tau_live
from tau_live.core.errors import StoreBusyError
from tau_live.core.records import AuditEntry
from tau_live.core.settings import Settings
from tau_live.operate.access import MOST_BYTES, record_entry, store_waiting
from tau_live.operate.stops import kill_file
from tau_live.store.sqlite.store import SqliteStore
from tests.live.running import until

OPERATORS, EACH = 4, 40


def entry(reason: str) -> AuditEntry:
    return AuditEntry(at=1.0, who="me", action="kill", reason=reason)


def reasons(settings: Settings) -> list[str]:
    with closing(SqliteStore.open(settings.store)) as store:
        return [one.reason for one in store.audit.entries(limit=OPERATORS * EACH + 9)]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = Settings(store=tmp_path / "store.sqlite")
    SqliteStore.open(found.store).close()
    return found


@pytest.mark.slow
def test_of_operators_at_once_nothing_is_lost_and_nothing_is_there_twice(
    settings: Settings,
) -> None:
    """Half of them find no store each time, and wait in the file that the others empty."""
    nowhere = Settings(
        store=settings.store.with_name("gone.sqlite"),
        kill_file=kill_file(settings.store, settings.kill_file),
    )
    barrier = threading.Barrier(OPERATORS)

    def acts(number: int) -> None:
        barrier.wait()
        for each in range(EACH):
            record_entry((settings, nowhere)[number % 2], entry(f"{number}-{each}"))

    threads = [threading.Thread(target=acts, args=(number,)) for number in range(OPERATORS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record_entry(settings, entry("last"))

    made = [f"{number}-{each}" for number in range(OPERATORS) for each in range(EACH)]
    assert sorted(reasons(settings)) == sorted([*made, "last"])


@pytest.mark.slow
def test_a_line_that_a_full_disk_cut_off_spoils_only_itself(settings: Settings) -> None:
    switch = kill_file(settings.store, settings.kill_file)
    switch.with_name(f"{switch.name}.log").write_bytes(b'{"at": 1.0, "wh')
    with closing(sqlite3.connect(settings.store)) as other:
        other.execute("begin immediate")
        problem = record_entry(settings, entry("locked"))

    after = record_entry(settings, entry("free"))

    assert (problem is None, after) == (False, None)
    assert sorted(reasons(settings)) == ["free", "locked"]


def test_a_log_of_somebody_else_is_neither_taken_in_nor_added_to(settings: Settings) -> None:
    settings = replace(settings, kill_file=settings.store.with_name("agent"))
    log = settings.store.with_name("agent.log")
    log.write_text("started\nstopped\n")
    log.chmod(0o600)
    with closing(SqliteStore.open(settings.store)) as store:
        taken = store_waiting(store, settings)

    stored = record_entry(settings, entry("stored"))
    problem = record_entry(
        replace(settings, store=settings.store.with_name("nowhere")), entry("lost")
    )

    assert (taken, stored) == (0, None)
    assert problem is not None
    assert "the audit log has no entry of this" in problem
    assert log.read_text() == "started\nstopped\n"
    assert reasons(settings) == ["stored"]


def waiting(settings: Settings, reason: str) -> Path:
    """Write something down while the store is locked; return where it waits."""
    with closing(sqlite3.connect(settings.store)) as other:
        other.execute("begin immediate")
        assert record_entry(settings, entry(reason)) is not None
    switch = kill_file(settings.store, settings.kill_file)
    return switch.with_name(f"{switch.name}.log")


@pytest.mark.slow
def test_what_waits_comes_in_once_with_whoever_has_the_store_open(settings: Settings) -> None:
    log = waiting(settings, "locked")
    content = log.read_bytes()
    with closing(SqliteStore.open(settings.store)) as store:
        taken = [store_waiting(store, settings) for _ in range(2)]
        log.write_bytes(content)  # as if the process had died before it took the file away
        log.chmod(0o600)
        again = store_waiting(store, settings)

    assert (taken, again) == ([1, 0], 1)
    assert reasons(settings) == ["locked"]
    assert not log.exists()


@pytest.mark.slow
def test_the_file_stays_where_the_store_does_not_take_it(settings: Settings) -> None:
    log = waiting(settings, "locked")
    with (
        closing(SqliteStore.open(settings.store, busy_timeout_s=0.05)) as store,
        closing(sqlite3.connect(settings.store)) as other,
    ):
        other.execute("begin immediate")
        with pytest.raises(StoreBusyError):
            store_waiting(store, settings)

    assert log.exists()
    assert reasons(settings) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", ["locked", "others may write", "a link", "a folder", "too large"])
def test_what_others_may_have_made_or_are_at_work_on_is_left_alone(
    settings: Settings, case: str
) -> None:
    log = waiting(settings, "locked")
    own = log.with_name("own.log")
    if case == "others may write":
        log.chmod(0o666)
    elif case == "a link":
        log.rename(own)
        log.symlink_to(own)
    elif case == "a folder":
        log.unlink()
        log.mkdir()
    elif case == "too large":
        log.write_bytes(log.read_bytes() + b"\n" * MOST_BYTES)

    with log.open("rb") if case == "locked" else nullcontext() as file:
        if file is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        with closing(SqliteStore.open(settings.store)) as store:
            taken = store_waiting(store, settings)

    assert taken == 0
    assert reasons(settings) == []
    assert log.exists()


@pytest.mark.slow
def test_a_running_process_takes_it_in_by_itself(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    tau_live.attach(settings)

    log = waiting(settings, "locked")
    until(lambda: not log.exists())
    tau_live.detach()

    assert reasons(settings) == ["locked"]
