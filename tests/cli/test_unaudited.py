"""What operators do while the store comes and goes is in its audit, once, when it is back."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tau_live.cli.unaudited import write_down
from tau_live.operators.kill_switch import kill_file
from tau_live.settings import Settings
from tau_live.store.records import AuditEntry
from tau_live.store.sqlite import SqliteStore

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
            write_down((settings, nowhere)[number % 2], entry(f"{number}-{each}"))

    threads = [threading.Thread(target=acts, args=(number,)) for number in range(OPERATORS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    write_down(settings, entry("last"))

    made = [f"{number}-{each}" for number in range(OPERATORS) for each in range(EACH)]
    assert sorted(reasons(settings)) == sorted([*made, "last"])


def test_a_line_that_a_full_disk_cut_off_spoils_only_itself(settings: Settings) -> None:
    switch = kill_file(settings.store, settings.kill_file)
    switch.with_name(f"{switch.name}.log").write_bytes(b'{"at": 1.0, "wh')
    with closing(sqlite3.connect(settings.store)) as other:
        other.execute("begin immediate")
        problem = write_down(settings, entry("locked"))

    after = write_down(settings, entry("free"))

    assert (problem is None, after) == (False, None)
    assert sorted(reasons(settings)) == ["free", "locked"]
