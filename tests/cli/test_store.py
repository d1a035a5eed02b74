"""``tau-live store``: a store in a file or a database, made, checked and copied by one command."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from tau_live.store.opening import open_at
from tests.cli.conftest import Read, Run
from tests.cli.test_keys import undocumented
from tests.postgres import needs_postgres, server


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def exported(address: object) -> list[str]:
    with closing(open_at(str(address), read_only=True)) as store:
        return [json.dumps(row) for row in store.export()]


@needs_postgres
def test_a_store_is_moved_into_a_database_and_back_by_two_commands(
    lived: Path, tmp_path: Path, read: Read, run: Run
) -> None:
    address, back = server().new_database(empty=True), tmp_path / "back.sqlite"

    there = read("store", "copy", lived, address)
    here = run("store", "copy", address, back)

    assert isinstance(there, dict)
    assert undocumented("store copy", there) == (set(), set())
    assert (there["from"], there["rows"]["rollouts"]) == (str(lived), 192)
    assert here.stdout.endswith(f"are in {back}, in {here.stdout.split()[-2]} s\n")
    assert exported(address) == exported(back) == exported(lived)
    with closing(open_at(back, read_only=True)) as store:
        entries = store.audit.entries(limit=2)
    assert [entry.action for entry in entries] == ["copy", "copy"]
    assert entries[1].reason == f"from {lived}"


@needs_postgres
def test_a_database_is_made_with_its_roles_as_often_as_one_likes(read: Read) -> None:
    address = server().new_database(empty=True)

    first, again = read("store", "create", address), read("store", "create", "--store", address)

    assert first == again
    assert isinstance(first, dict)
    assert undocumented("store create", first) == (set(), set())
    assert first["roles"] == [
        f"tau_live_{name}" for name in ("host", "learner", "operator", "reader")
    ]


def test_a_file_is_made_without_roles(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "new" / "store.sqlite"

    done = run("store", "create", path)

    assert (done.exit_code, done.stdout) == (0, f"{path} is ready\n")
    assert exported(path) == []


def test_whoever_writes_meanwhile_is_named(filled: Path, tmp_path: Path, run: Run) -> None:
    result = run("store", "copy", filled, tmp_path / "copy.sqlite")

    assert result.exit_code == 0
    assert result.stderr == (
        f"note: attached to {filled}: machine:1:2: what they store from now on is not in the copy\n"
    )


def test_a_keyed_chain_stays_keyed_in_a_copy(filled: Path, tmp_path: Path, run: Run) -> None:
    key = {"TAU_LIVE_RL_AUDIT_KEY_FILE": str(tmp_path / "key")}
    first, second = tmp_path / "first.sqlite", tmp_path / "second.sqlite"
    run("store", "copy", filled, first, **key)

    done = run("store", "copy", first, second, **key)

    assert done.exit_code == 0
    verified = run("verify", "--store", second, **key)
    assert verified.stdout.startswith("no sealed row was changed")
    assert "sealed with the key" in verified.stdout


def test_a_store_is_no_copy_of_itself(filled: Path, run: Run) -> None:
    result = run("store", "copy", filled, filled)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "FROM and TO are one store" in result.stderr


def test_what_is_not_there_is_not_copied(tmp_path: Path, run: Run) -> None:
    result = run("store", "copy", tmp_path / "none.sqlite", tmp_path / "copy.sqlite")

    assert result.exit_code == 1
    assert result.stderr == f"tau-live: no store at {tmp_path / 'none.sqlite'}\n"
    assert not (tmp_path / "copy.sqlite").exists()
