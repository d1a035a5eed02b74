"""``tau-live verify``: what it finds, what it says, and how it ends."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tau_live.policies.files import checkpoint_folder
from tau_live.settings import Settings
from tau_live.store.sqlite import SqliteStore
from tests.cli.conftest import Run
from tests.cli.filled import SOLVED
from tests.contracts.making import begun, decision


def _do(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)


def _keyed(path: Path, key: Path) -> None:
    store = SqliteStore.open(path, key_file=key)
    begun(store, "keyed-1")
    store.decisions.add_decision(decision(1, "keyed-1"))
    store.close()


def test_a_store_that_nobody_touched_is_sound(filled: Path, read: Callable[..., object]) -> None:
    found = read("verify", "--store", filled)

    assert isinstance(found, dict)
    assert found["sound"] is True
    assert found["findings"] == []
    assert found["seals"] > 5


@pytest.mark.parametrize(
    ("statement", "code", "what"),
    [
        ("update decisions set propensity = 0.9", "edited", f"decision {SOLVED}:attempt-1"),
        ("update decisions set applied = 'large' where seq = 1", "edited", "decision"),
        ("update rewards set value = 2.0", "edited", "reward"),
        ("delete from rewards", "removed", "reward"),
        ("update updates set samples = 99", "edited", "update"),
        ("update policies set sha256 = 'x'", "edited", "policy version"),
        ("update audit set reason = 'nothing'", "edited", "line of the audit"),
        ("delete from gate_log", "removed", "line of the gate's history"),
        ("insert into audit values (99, 1.0, 'x', 'y', 'z', '{}')", "added", "line of the audit"),
        ("update gate set state = 'hold'", "gate", "its history ends with pass"),
        ("insert into pauses values ('deciding', 'x', 'y', 1.0)", "pauses", "it is paused, and"),
        ("delete from seals where place = 2", "broken_link", "seal 3"),
        ("update seals set seal = zeroblob(32) where place = 2", "broken_link", "seal 2"),
        ("update seals set place = -place where place in (2, 3)", "broken_link", "seal"),
        ("delete from seals where place > 3", "cut_off", "seals 4"),
        ("delete from seals where place < 3", "no_beginning", "seals 1 to 2"),
    ],
)
def test_what_was_done_behind_its_back_is_found(
    statement: str, code: str, what: str, filled: Path, run: Run
) -> None:
    _do(filled, statement)

    found = run("verify", "--store", filled, "--json")
    told = run("verify", "--store", filled)

    assert (found.exit_code, told.exit_code) == (1, 1)
    assert f'"code": "{code}"' in found.stdout
    assert what in told.stdout


def test_a_pause_that_was_taken_away_is_found_and_one_that_was_ended_is_sound(
    filled: Path, run: Run
) -> None:
    run("pause", "learning", "deciding", "--reason", "odd", "--store", filled)
    run("resume", "deciding", "--reason", "mended", "--store", filled)
    before = run("verify", "--store", filled)
    _do(filled, "delete from pauses")

    found = run("verify", "--store", filled)

    assert (before.exit_code, found.exit_code) == (0, 1)
    assert "learning: it is not paused, and the audit says otherwise" in " ".join(
        found.stdout.split()
    )
    assert "deciding" not in found.stdout


def test_a_checkpoint_that_was_touched_is_found(filled: Path, run: Run) -> None:
    file = next(checkpoint_folder(Settings(store=filled)).glob("*.npz"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

    found = run("verify", "--store", filled)

    assert found.exit_code == 1
    assert "version" in found.stdout
    assert "damaged" in found.stdout


def test_with_a_key_nobody_else_can_seal(tmp_path: Path, run: Run) -> None:
    path, key = tmp_path / "store.sqlite", tmp_path / "keys" / "audit"
    _keyed(path, key)
    _do(path, "delete from decisions", "delete from seals")
    _keyed_without(path)

    found = run("verify", "--store", path, TAU_LIVE_RL_AUDIT_KEY_FILE=str(key))

    assert found.exit_code == 1
    assert "without a key" in found.stdout + found.stderr


def _keyed_without(path: Path) -> None:
    store = SqliteStore.open(path)
    store.decisions.add_decision(decision(1, "keyed-1"))
    store.close()


def test_a_key_may_come_later_and_binds_what_was_before(tmp_path: Path, run: Run) -> None:
    path, key = tmp_path / "store.sqlite", tmp_path / "audit"
    _first(path)
    _keyed(path, key)

    sound = run("verify", "--store", path, TAU_LIVE_RL_AUDIT_KEY_FILE=str(key))
    blind = run("verify", "--store", path)

    assert sound.exit_code == 0
    assert blind.exit_code == 1
    assert "no key is at hand" in blind.stdout


def _first(path: Path) -> None:
    store = SqliteStore.open(path)
    begun(store, "first-1")
    store.decisions.add_decision(decision(1, "first-1"))
    store.close()


def test_a_key_that_is_made_is_its_owners_alone_and_not_in_the_store(tmp_path: Path) -> None:
    path, key = tmp_path / "store.sqlite", tmp_path / "keys" / "audit"

    _keyed(path, key)

    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_bytes().strip() not in path.read_bytes()


def test_an_end_that_was_cut_off_cleanly_shows_against_an_earlier_head(
    filled: Path, run: Run, read: Callable[..., object]
) -> None:
    found = read("verify", "--store", filled)
    assert isinstance(found, dict)
    head = str(found["head"])
    _do(
        filled,
        "delete from audit",
        "delete from seals where kind = 'audit'",
        "update sqlite_sequence set seq = (select max(place) from seals) where name = 'seals'",
    )

    known = run("verify", "--store", filled, "--head", head)

    assert known.exit_code == 1
    assert f"seal {head.partition(':')[0]}" in known.stdout


def test_a_head_that_is_still_led_through_is_fine(
    filled: Path, run: Run, read: Callable[..., object]
) -> None:
    found = read("verify", "--store", filled)
    assert isinstance(found, dict)
    _first(filled)

    later = run("verify", "--store", filled, "--head", found["head"])

    assert later.exit_code == 0


def test_what_is_no_head_is_a_wrong_use(filled: Path, run: Run) -> None:
    assert run("verify", "--store", filled, "--head", "nonsense").exit_code == 2
