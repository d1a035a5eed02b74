import shutil
import sqlite3
from pathlib import Path

import pytest

from tau_live.core.processes import PROCESSES, this_process
from tau_live.store.files import policies_of
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run


def damaged(path: Path) -> bytes:
    """Zero a page in the middle, as a disk that loses one does."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 8192 * 4096
    content[middle : middle + 4096] = bytes(4096)
    path.write_bytes(content)
    return bytes(content)


def test_a_damaged_store_is_kept_with_its_policies_and_another_begun_held(
    filled: Path, run: Run, read: Read
) -> None:
    content = damaged(filled)
    policies = sorted(file.name for file in policies_of(filled).iterdir())

    result = run("set-aside", "--store", filled, "--reason", "the disk lost a page")

    gate = run("gate", "--store", filled)
    [kept] = filled.parent.glob("store.sqlite.aside-*[0-9]Z")
    [folder] = filled.parent.glob("store-policies.aside-*")
    assert (result.exit_code, gate.exit_code) == (0, 3)
    assert kept.name in result.stdout
    assert kept.read_bytes() == content
    assert sorted(file.name for file in folder.iterdir()) == policies
    assert "store_replaced" in gate.stdout
    with sqlite3.connect(filled) as database:
        [(action, reason)] = database.execute("select action, reason from audit").fetchall()
    database.close()
    assert (action, reason) == ("set_aside", "the disk lost a page")


def test_whoever_meets_a_damaged_store_is_told_what_to_do(filled: Path, run: Run) -> None:
    filled.write_bytes(filled.read_bytes()[:4_096] + bytes(8_192))

    result = run("status", "--store", filled)

    assert result.exit_code == 1
    assert "is damaged" in result.stderr
    assert (
        f"`tau-live set-aside --store {filled}` keeps its files and starts an empty store"
        in result.stderr
    )


def test_what_is_set_aside_is_read_as_one_by_sqlite(path: Path, run: Run) -> None:
    store = SqliteStore.open(path)
    store.counters.add({"seen": 1})  # in the log alone, as long as somebody has it open
    copies = path.with_name("copies")
    copies.mkdir()
    for file in path.parent.glob("store.sqlite*"):
        shutil.copy(file, copies)
    store.close()

    result = run(
        "set-aside", "--store", copies / path.name, "--reason", "to see", "--even-if-sound"
    )

    [kept] = copies.glob("store.sqlite.aside-*Z")
    with sqlite3.connect(kept) as database:
        found = database.execute("select * from counters").fetchall()
    database.close()
    assert result.exit_code == 0
    assert found == [("seen", 1)]


def files(store: Path) -> dict[str, int]:
    return {file.name: file.stat().st_ino for file in store.parent.iterdir()}


def test_said_twice_it_refuses_the_store_that_it_began_and_changes_nothing(
    filled: Path, run: Run
) -> None:
    damaged(filled)
    run("set-aside", "--store", filled, "--reason", "the disk lost a page")
    before = files(filled)

    twice = [run("set-aside", "--store", filled, "--reason", "again") for _ in range(2)]

    assert [result.exit_code for result in twice] == [1, 1]
    assert "is the empty one that was started at" in twice[0].stderr
    assert "(the disk lost a page)" in twice[0].stderr
    assert "tau-live gate reset --reason" in twice[0].stderr
    assert files(filled).items() >= before.items()
    assert not [name for name in files(filled).keys() - before.keys() if ".aside-" in name]


def test_a_sound_store_is_refused_unless_somebody_insists(filled: Path, run: Run) -> None:
    refused = run("set-aside", "--store", filled, "--reason", "why not")
    kept = [*filled.parent.glob("*.aside-*")]
    insisted = run("set-aside", "--store", filled, "--reason", "why not", "--even-if-sound")

    assert (refused.exit_code, insisted.exit_code, kept) == (1, 0, [])
    assert (
        f"stays: it is intact. `tau-live doctor --store {filled}` checks for other causes"
        in refused.stderr
    )
    assert "--even-if-sound" in refused.stderr
    assert [*filled.parent.glob("store.sqlite.aside-*Z")]


def test_a_store_that_was_used_since_is_sound_like_any_other(filled: Path, run: Run) -> None:
    damaged(filled)
    run("set-aside", "--store", filled, "--reason", "the disk lost a page")
    run("gate", "reset", "--store", filled, "--reason", "begun anew")

    result = run("set-aside", "--store", filled, "--reason", "again")

    assert result.exit_code == 1
    assert "it is intact" in result.stderr


@pytest.mark.parametrize("content", [b"", b"garbage" * 1_000], ids=["empty", "no store"])
def test_what_is_no_store_of_ours_is_set_aside(content: bytes, path: Path, run: Run) -> None:
    path.write_bytes(content)

    result = run("set-aside", "--store", path, "--reason", "it is no store")

    [kept] = path.parent.glob("store.sqlite.aside-*Z")
    assert result.exit_code == 0
    assert kept.read_bytes() == content


def test_a_text_file_named_by_mistake_stays(tmp_path: Path, run: Run) -> None:
    source = tmp_path / "agent.py"
    source.write_text("print('größer')\n")

    result = run("set-aside", "--store", source, "--reason", "a typo")

    assert result.exit_code == 1
    assert "is a text file, not a store" in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["agent.py"]


def test_where_there_is_no_store_nothing_is_set_aside(path: Path, run: Run) -> None:
    result = run("set-aside", "--store", path, "--reason", "to see")

    assert result.exit_code == 1
    assert "nothing to set aside" in result.stderr
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("lost", [b"", b"garbage" * 100])
def test_doctor_finds_damage_and_says_what_to_do(
    lost: bytes, filled: Path, read: Read, run: Run
) -> None:
    filled.write_bytes(lost) if lost else damaged(filled)

    result = run("doctor", "--store", filled)

    assert result.exit_code == 1
    assert "tau-live set-aside" in result.stdout


@pytest.mark.slow
def test_doctor_says_that_others_keep_the_store_locked(filled: Path, run: Run) -> None:
    store = SqliteStore.open(filled)

    with store.begin():
        result = run("doctor", "--store", filled)
    store.close()

    assert "another process locked it" in " ".join(result.stdout.split())
    assert "stop the process that locks it" in " ".join(result.stdout.split())


def test_status_and_doctor_name_a_process_that_lives_but_cannot_write(
    filled: Path, run: Run, read: Read
) -> None:
    store = SqliteStore.open(filled)
    me = this_process()
    store.clock = lambda: filled.stat().st_mtime - 90.0
    store.leases.acquire(PROCESSES + me, me, ttl_s=20.0)
    store.close()

    status = read("status", "--store", filled)
    words = run("status", "--store", filled).stdout
    doctor = run("doctor", "--store", filled)

    assert isinstance(status, dict)
    assert list(status["silent"]) == [me]
    assert status["silent"][me] >= 69.0
    assert "cannot write" in words
    assert doctor.exit_code == 1
    assert "but has written nothing for" in " ".join(doctor.stdout.split())
