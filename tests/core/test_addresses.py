"""An address of a database, and the private file that stands for it."""

import stat
import sys
from pathlib import Path

import pytest

from tau_live.core.addresses import (
    address_in,
    file_of,
    is_remote,
    keep,
    split_own,
    split_tenant,
    where_in,
    with_tenant,
)
from tau_live.core.errors import SettingsError
from tau_live.core.settings import Settings
from tau_live.operate.stops import kill_file

ADDRESS = "postgresql://me:secret@db.example:5433/tau?sslmode=verify-full"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_a_kept_address_is_private_and_in_no_name(state: Path) -> None:
    file = keep(ADDRESS)

    assert address_in(file) == ADDRESS
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert "db.example_tau" in str(file)
    assert "secret" not in str(file)


def test_each_address_has_a_file_of_its_own() -> None:
    others = [ADDRESS, ADDRESS.replace("secret", "other"), f"{ADDRESS}&options=-csearch_path%3Deu"]

    assert len({keep(address) for address in others}) == 3
    assert keep(ADDRESS) == file_of(ADDRESS)


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        pytest.param("postgresql://boss@db.example:5433/tau", True, id="another login"),
        pytest.param("postgresql://db.example:5433?dbname=tau&user=boss", True, id="in parameters"),
        pytest.param("postgresql://me@pool:6432/tau?direct=db.example:5433", True, id="a pooler"),
        pytest.param("postgresql://me@db.example:6432/tau?direct=:5433", True, id="its pooler"),
        pytest.param("postgresql://me@db.example/tau", False, id="another port"),
        pytest.param("postgresql://me@db.example:5433/other", False, id="another name"),
        pytest.param("postgresql://me@db.other:5433/tau", False, id="another server"),
        pytest.param(f"{ADDRESS}&tenant=team_a", False, id="a tenant"),
    ],
)
def test_the_logins_of_a_database_have_one_kill_switch(other: str, *, is_same: bool) -> None:
    files = {kill_file(file_of(address), None) for address in (ADDRESS, other)}

    assert (len(files) == 1) is is_same
    assert all(file.name == "store.address.off" for file in files)


def test_the_file_of_somebody_else_has_its_own(tmp_path: Path) -> None:
    assert kill_file(tmp_path / "tau.address", None) == tmp_path / "tau.address.off"
    assert kill_file(tmp_path / "a@b.sqlite", None) == tmp_path / "a@b.sqlite.off"


@pytest.mark.parametrize("content", ["", "SQLite format 3\0", "redis://x/1", "x" * 5000, "\udcff"])
def test_other_files_hold_no_address(tmp_path: Path, content: str) -> None:
    file = tmp_path / "store.address"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))

    assert address_in(file) is None
    assert address_in(tmp_path) is None
    assert address_in(tmp_path / "missing") is None


def test_a_file_of_another_name_is_not_even_opened(tmp_path: Path) -> None:
    """To close it would give away the locks that SQLite holds on it in this process."""
    file = tmp_path / "store.sqlite"
    file.write_text(ADDRESS)
    opened = []
    sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)

    assert address_in(file) is None
    assert str(file) not in map(str, opened)


def test_the_setting_takes_an_address() -> None:
    loaded = Settings.from_env({"TAU_LIVE_RL_STORE": f" {ADDRESS} "})

    assert loaded.settings.store == file_of(ADDRESS)
    assert address_in(loaded.settings.store) == ADDRESS


def test_an_address_that_cannot_be_kept_is_in_no_message(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (state / "tau-live").write_text("a file where a folder has to be")

    with pytest.raises(SettingsError) as raised:
        Settings.from_env({"TAU_LIVE_RL_STORE": ADDRESS})

    assert "cannot be kept" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("address", "remote"),
    [
        ("postgresql://tau@db.example/tau", True),
        ("postgresql://tau@/tau?hostaddr=192.0.2.7", True),
        ("postgresql://tau@localhost,db.example/tau", True),
        ("postgresql://tau@/tau?host=/run/postgresql", False),
        ("postgresql://tau@127.0.0.1:5433/tau", False),
        ("postgresql://tau@/tau", False),
    ],
)
def test_a_database_on_another_machine_is_known_by_its_address(
    address: str, *, remote: bool
) -> None:
    assert is_remote(address) is remote


@pytest.mark.parametrize("base", ["postgresql://me@db/tau", ADDRESS])
def test_a_tenant_is_taken_out_of_an_address(base: str) -> None:
    assert split_tenant(base) == (base, "")
    assert split_tenant(with_tenant(base, "team_a")) == (base, "team_a")


def test_a_tenant_stands_anywhere_among_what_an_address_says() -> None:
    found = split_tenant("postgresql://me@db/tau?host=/run&tenant=team_a&port=5433")

    assert found == ("postgresql://me@db/tau?host=/run&port=5433", "team_a")


@pytest.mark.parametrize("query", ["tenant=", "tenant=A", "tenant=a&tenant=b", "tenant=a%20b"])
def test_what_no_tenant_is_named_is_refused(query: str) -> None:
    with pytest.raises(ValueError, match="tenant"):
        split_tenant(f"postgresql://me@db/tau?{query}")


def test_a_parameter_of_ours_is_no_part_of_another() -> None:
    address = "postgresql://me@db/tau?indirect=1&direct=db:5432"

    assert split_own(address, "direct") == ("postgresql://me@db/tau?indirect=1", "db:5432")


@pytest.mark.parametrize(
    ("address", "where"),
    [
        ("postgresql://me:secret@db:1/tau?sslmode=require", "postgresql://me@db:1/tau"),
        ("postgresql:///tau?password=secret&host=db", "postgresql:///tau?host=db"),
        ("postgresql://db/tau?user=me&tenant=a", "postgresql://db/tau?tenant=a&user=me"),
        ("postgresql://db/tau?tenant=a&user=me", "postgresql://db/tau?tenant=a&user=me"),
        ("postgresql:///?service=tau&sslpassword=secret", "postgresql:///?service=tau"),
    ],
)
def test_what_says_where_a_store_is_holds_no_secret(address: str, where: str) -> None:
    assert where_in(address) == where


@pytest.mark.parametrize(
    "text",
    [
        "postgresql:/me:secret@db.example:5432/tau", "postgres:db.example/tau",
        "PostgreSQL://me:secret@db.example/tau", "jdbc:postgresql://db.example/tau",
        "me:secret@db.example:5432/tau", "db.example:5432/tau", "host=db.example dbname=tau",
        "mysql://db.example/tau",
    ],
)  # fmt: skip
def test_a_mistyped_address_is_no_path(text: str) -> None:
    with pytest.raises(SettingsError, match="looks like an address") as caught:
        Settings.from_env({"TAU_LIVE_RL_STORE": text})

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["tau@home.sqlite", "/srv/me@db:1/tau", "./a:1/b", "postgres/x.sqlite", "C:/tau.sqlite"]
)
def test_an_odd_path_is_a_path(text: str) -> None:
    assert Settings.from_env({"TAU_LIVE_RL_STORE": text}).settings.store == Path(text)
