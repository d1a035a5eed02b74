"""``tau-live store``: a store in a file or a database, made, checked and copied by one command."""

import gzip
import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tau_live.core.errors import StoreUnavailableError
from tau_live.core.gate_keeper import ProcessReport
from tau_live.record.heartbeats import beat
from tau_live.store.lean import SCHEMA_VERSION
from tau_live.store.opening import open_at
from tests.cli.conftest import Read, Run
from tests.cli.test_keys import undocumented
from tests.postgres import Server, needs_postgres, server

COST = "bytes a rollout"


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


@needs_postgres
def test_a_sound_database_passes_every_check(read: Read, run: Run) -> None:
    address = server().new_database()

    done = read("store", "check", address)

    assert isinstance(done, dict)
    assert undocumented("store check", done) == (set(), set())
    assert done["worst"] == "ok"
    found = {check["check"]: check["found"] for check in done["checks"]}
    assert found["encryption"] == "none"  # a socket of this machine
    assert found["rights"].startswith("those of tau_live_host, tau_live_learner, tau_live_operator")
    assert found["schema"] == "version 1"
    assert {"server", "clock", "round trip", "commits", "connections"} <= found.keys()
    assert "round trip" in run("doctor", "--store", address).stdout


@needs_postgres
@pytest.mark.parametrize(
    ("statement", "what", "found"),
    [
        ("update schema_version set version = 9, oldest = 9", "schema", "install a newer tau-live"),
        ("update schema_version set version = 0", "schema", "run `tau-live store migrate"),
        ("drop table schema_version", "schema", "is empty"),
        ("revoke all on rollouts from nobody_else", "rights", "may not select rollouts"),
    ],
)
def test_what_would_not_work_is_found(statement: str, what: str, found: str, run: Run) -> None:
    import psycopg

    address = server().new_database()
    with psycopg.connect(address, autocommit=True) as connection:
        if "nobody_else" in statement:
            connection.execute("create role nobody_else login")
            address = address.replace("//tau@", "//nobody_else@")
        connection.execute(statement.encode())

    done = run("store", "check", address, "--json")

    assert done.exit_code == 1
    checks = json.loads(done.stdout)["checks"]
    assert any(check["check"] == what and found in check["found"] for check in checks)


@needs_postgres
@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("alter role tau set synchronous_commit = off", "synchronous_commit is off"),
        ("alter system set max_connections = 6", "connections are free"),
    ],
)
@pytest.mark.slow
def test_what_may_hurt_later_is_a_warning(setting: str, found: str, run: Run) -> None:
    import psycopg

    own = Server()
    try:
        address = own.new_database()
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(setting.encode())
        own.stop("fast")
        own.run("pg_ctl", "start", "--wait", "--log", str(own.folder / "log"), "--options",
                f"-k {own.folder} -c listen_addresses=")  # fmt: skip
        done = run("store", "check", address, "--json")
    finally:
        own.remove()

    assert done.exit_code == 0
    assert json.loads(done.stdout)["worst"] == "warn"
    assert found in done.stdout


@needs_postgres
@pytest.mark.parametrize(
    ("more", "problem", "todo"),
    [
        ("", "is empty", "make it with `tau-live store create"),
        ("&tenant=team_b", "there is no tenant team_b", "create --store ADDRESS --tenant team_b`"),
        ("&tenant=Team-A", "a tenant is [a-z]", "correct the address"),
        ("&tenent=team_a", "it has no parameter 'tenent'", "tenant=NAME"),
    ],
)
@pytest.mark.parametrize("command", [("store", "check"), ("doctor", "--store")])
def test_a_store_that_is_not_there_comes_with_what_makes_it(
    command: tuple[str, str], more: str, problem: str, todo: str, run: Run
) -> None:
    address = f"{server().new_database(empty=True)}{more}"

    done = run(*command, address, "--json")

    assert done.exit_code == 1
    failed = [check for check in json.loads(done.stdout)["checks"] if check["state"] == "fail"]
    assert problem in failed[0]["found"]
    assert todo in failed[0]["advice"]
    assert "free disk space" not in done.stdout


@needs_postgres
def test_an_empty_database_is_not_migrated_but_made(run: Run) -> None:
    address = server().new_database(empty=True)

    done = run("store", "migrate", address)

    assert (done.exit_code, done.stdout) == (1, "")
    assert "is empty: make it with `tau-live store create`" in done.stderr
    assert run("store", "create", address).exit_code == 0


@pytest.mark.parametrize(
    "command",
    [
        "store check",
        "store migrate",
        "store cost",
        "store create --tenant team_a",
        "doctor --store",
    ],
)
def test_without_the_client_every_command_names_the_extra(
    command: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:
        if name.startswith("tau_live.store.postgres."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)  # as if not there

    done = run(*command.split(), "postgresql://tau@127.0.0.1:1/tau")

    assert done.exit_code == 1
    assert "pip install 'tau-live[postgres]'" in " ".join(done.output.split())
    assert "internal error" not in done.output


def test_a_database_that_cannot_be_reached_is_named(tmp_path: Path, run: Run) -> None:
    done = run("store", "check", f"postgresql://tau:secret@/tau?host={tmp_path}")

    assert done.exit_code == 1
    assert "cannot be used" in done.stdout
    assert "secret" not in done.output


def test_a_file_is_checked_too(filled: Path, read: Read) -> None:
    done = read("store", "check", filled)

    assert isinstance(done, dict)
    assert done["worst"] == "ok"
    assert [check["check"] for check in done["checks"]] == ["schema", "writing"]


@needs_postgres
def test_a_database_is_migrated_by_command_alone(
    read: Read, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tau_live.store.postgres import schema

    address = server().new_database()
    monkeypatch.setattr(schema, "MIGRATIONS", {2: ["alter table rollouts add column more text"]})
    monkeypatch.setattr(schema, "VERSION", 2)

    refused = run("status", "--store", address)
    done = read("store", "migrate", address)

    assert "has schema 1, this tau-live needs 2: run `tau-live store migrate" in refused.stderr
    assert isinstance(done, dict)
    assert undocumented("store migrate", done) == (set(), set())
    assert (done["before"], done["after"]) == (1, 2)
    with closing(open_at(address, read_only=True)) as store:
        assert store.connection.rows("select more from rollouts") == []


@needs_postgres
def test_what_only_older_hosts_need_goes_once_none_was_seen_for_an_hour(
    read: Read, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    from tau_live.store.postgres import schema

    address = server().new_database()
    with closing(open_at(address)) as store:
        beat(store, "elsewhere:1:1", ProcessReport(revision=0))
    monkeypatch.setattr(schema, "MIGRATIONS", {2: ["alter table rollouts add column more text"]})
    monkeypatch.setattr(schema, "CONTRACTIONS", {2: ["alter table rollouts drop column more"]})
    monkeypatch.setattr(schema, "VERSION", 2)

    added = read("store", "migrate", address)
    refused = run("store", "migrate", address, "--contract")
    with psycopg.connect(address) as connection:
        connection.execute("update leases set expires_at = expires_at - 3600")
    done = read("store", "migrate", address, "--contract")
    again = run("store", "migrate", address, "--contract")

    assert isinstance(added, dict)
    assert isinstance(done, dict)
    assert (added["contracted"], done["contracted"], done["before"]) == ([], [2], 2)
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "elsewhere:1:1 (schema 1, 0 s ago)" in refused.stderr, refused.stderr
    assert again.stdout == "the store has schema 2\n"
    with pytest.raises(StoreUnavailableError), closing(open_at(address)) as store:
        store.connection.rows("select more from rollouts")


@needs_postgres
@pytest.mark.slow
def test_a_migration_does_not_wait_in_the_way_of_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    from tau_live.store.postgres import schema

    address = server().new_database()
    monkeypatch.setattr(schema, "MIGRATIONS", {2: ["alter table rollouts add column more text"]})
    monkeypatch.setattr(schema, "VERSION", 2)

    with psycopg.connect(address) as other:
        other.execute("select count(*) from rollouts")
        done = run("store", "migrate", address)
    again = run("store", "migrate", address)

    assert done.exit_code == 1
    assert "lock timeout" in done.stderr
    assert again.stdout == "the store has schema 2; it had 1\n"


@pytest.mark.parametrize("place", ["file", pytest.param("database", marks=needs_postgres)])
def test_a_store_says_what_a_rollout_costs_in_it(
    place: str, lived: Path, tmp_path: Path, read: Read, run: Run
) -> None:
    address = str(lived)
    if place == "database":
        address = server().new_database(empty=True)
        read("store", "copy", lived, address)

    done = read("store", "cost", address)

    assert isinstance(done, dict)
    assert undocumented("store cost", done) == (set(), set())
    assert done["rollouts"] == done["tables"]["rollouts"]["rows"] == 192
    sizes = [table["bytes"] for table in done["tables"].values()]
    assert done["bytes_per_rollout"] == pytest.approx(sum(sizes) / 192)
    assert done["tables"]["decisions"]["bytes_per_rollout"] > 200  # its features alone
    assert done["log_bytes_per_rollout"] is done["processor_s_per_rollout"] is None
    text = run("store", "cost", address).stdout
    head, columns, *lines = text.splitlines()
    assert (head, columns.split()) == (
        "of 192 rollouts:",
        ["table", "rows", "bytes", *COST.split()],
    )
    assert lines[-1].split()[-1] == f"{round(done['bytes_per_rollout']):,}"
    assert "e+" not in text


@needs_postgres
def test_a_database_is_not_limited_by_bytes(lived: Path, read: Read, run: Run) -> None:
    address = server().new_database(empty=True)
    read("store", "copy", lived, address)

    by_size = run("gc", "--max-size", "1KB", "--store", address)
    by_setting = run("gc", "--keep", "1000", "--store", address, TAU_LIVE_RL_RETENTION_MB="0.001")
    by_setting_alone = run("gc", "--store", address, TAU_LIVE_RL_RETENTION_MB="0.001")

    assert (by_size.exit_code, by_setting.exit_code, by_setting_alone.exit_code) == (2, 0, 2)
    assert "--max-size limits a file" in by_size.stderr
    assert "TAU_LIVE_RL_RETENTION_MB limits nothing" in by_setting.stderr
    assert exported(address) == exported(lived)


def test_an_empty_store_costs_nothing_that_is_known(tmp_path: Path, read: Read, run: Run) -> None:
    run("store", "create", tmp_path / "store.sqlite")

    done = read("store", "cost", tmp_path / "store.sqlite")

    assert isinstance(done, dict)
    assert (done["rollouts"], done["bytes_per_rollout"]) == (0, None)


def test_an_old_file_is_migrated(tmp_path: Path, read: Read) -> None:
    path = tmp_path / "store.sqlite"
    with gzip.open(Path(__file__).parents[1] / "golden/store-0.1.0/store.sqlite.gz") as old:
        path.write_bytes(old.read())
    path.chmod(0o600)

    done = read("store", "migrate", path)

    assert isinstance(done, dict)
    assert done["before"] < done["after"] == SCHEMA_VERSION


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
