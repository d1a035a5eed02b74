"""What each role of a database may do is decided by the server, and is enough for its work."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tau_live.core.records import RolloutQuery
from tau_live.store.opening import open_at
from tests.live.running import environ
from tests.live.test_database import AGENT
from tests.postgres import Server, needs_postgres

pytestmark = [needs_postgres, pytest.mark.slow]

LOGINS = ("host", "learner", "operator", "reader")

LIVING = """
import tau_live

flushed = []
for number in range(60):
    with tau_live.run("answer", key=f"{number}") as run:
        run.decide("model", ["small", "large"])
        run.reward(1.0)
    if number % 20 == 19:
        flushed.append(tau_live.flush(1.5))
print(flushed, tau_live.snapshot()["gate"]["state"], flush=True)
"""
"""An agent that lives for longer than three failures of its learner would take."""

FORBIDDEN = {
    "update a decision": "update decisions set applied = 'other'",
    "delete a decision": "delete from decisions",
    "update the gate": "update gate set state = 'pass'",
    "insert the gate": "insert into gate select 1, 'pass', null, null, 0, '{}', 1",
    "write the gate's history": "insert into gate_log (at) values (0)",
    "add a version": "insert into policies select 9, 'model', 0, '', '', '', 0, 0, '{}'",
    "update a version": "update policies set sha256 = ''",
    "put a version into service": "update in_service set version = 0",
    "add an update": "insert into updates (point) values ('model')",
    "change a trial": "update trials set exposure = 1",
    "replace a checkpoint": "update checkpoints set content = ''",
    "pause": "insert into pauses values ('learning', '', '', 0)",
    "resume": "delete from pauses",
    "write the audit": "insert into audit (at) values (0)",
    "edit the audit": "update audit set who = ''",
    "delete from the audit": "delete from audit",
    "change a seal": "update seals set key_id = ''",
    "delete seals": "delete from seals",
    "read lessons": "select * from lessons",
    "delete a rollout": "delete from rollouts",
    "delete spans": "delete from recorded_spans",
    "empty a table": "truncate rollouts",
    "change the schema": "alter table rollouts add column more text",
    "make a table": "create table more (n integer)",
    "change its version": "update schema_version set version = 2",
    "change a function": "create or replace function revise() returns trigger language plpgsql as "
    "$$ begin return null; end $$",
    "drop a trigger": "drop trigger gate_revised on gate",
    "become another": "set role tau_live_operator",
}
"""What the login of a host must not do."""


@pytest.fixture(scope="module")
def served() -> Iterator[Server]:
    own = Server()
    yield own
    own.remove()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def address(served: Server, home: Path) -> str:
    """A store with its roles, and a login in each of them."""
    import psycopg

    made = served.new_database(empty=True)
    with closing(open_at(made)) as store:
        store.make_roles()
    with psycopg.connect(made, autocommit=True) as connection:
        for name in LOGINS:
            known = connection.execute("select 1 from pg_roles where rolname = %s", (name,))
            if known.fetchone() is None:
                connection.execute(f"create role {name} login in role tau_live_{name}".encode())
    return made


def as_login(address: str, name: str) -> str:
    return address.replace("//tau@", f"//{name}@")


def run(
    address: str, *arguments: str, learner: str = "off", interval: int = 8, spool: str = "off"
) -> "subprocess.CompletedProcess[str]":
    own = {
        **environ(Path()),
        "TAU_LIVE_RL_STORE": address,
        "TAU_LIVE_RL_LEARNER": learner,
        "TAU_LIVE_RL_SPOOL": spool,
        "TAU_LIVE_RL_UPDATE_INTERVAL": str(interval),
        "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
    }
    return subprocess.run(
        [sys.executable, *arguments], env=own, capture_output=True, text=True, check=False,
        timeout=120.0,
    )  # fmt: skip


def agent(address: str, name: str) -> "subprocess.CompletedProcess[str]":
    """Run an agent that does not wait for a learner."""
    return run(address, "-c", AGENT, name, "30", "30", interval=64)


def command(
    address: str, *arguments: str, learner: str = "off"
) -> "subprocess.CompletedProcess[str]":
    return run(address, "-m", "tau_live.cli", *arguments, learner=learner)


def test_a_host_records_and_decides_with_its_own_rights_alone(address: str) -> None:
    done = agent(as_login(address, "host"), "a")
    learned = command(as_login(address, "learner"), "learn", "--once", "--json")
    again = agent(as_login(address, "host"), "b")

    assert (done.stdout, done.stderr) == ("True\n", "")
    assert (learned.returncode, learned.stderr) == (0, "")
    assert (again.stdout, again.stderr) == ("True\n", "")
    with closing(open_at(address, read_only=True)) as store:
        newest = store.rollouts.query(RolloutQuery(descending=True, limit=1)).rollouts[0]
        [decision] = store.decisions.decisions(newest.rollout_id)
        assert store.rollouts.query(RolloutQuery()).total == 60
        assert store.counters.counts().get("refused_rewards", 0) == 0
    assert (decision.source, decision.policy_version) == ("policy", 1)


def test_a_process_that_also_learns_needs_both_roles(address: str) -> None:
    done = run(as_login(address, "learner"), "-c", AGENT, "a", "30", "30", learner="thread")

    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize("with_spool", [False, True])
def test_an_agent_that_may_not_learn_leaves_it_to_others_and_says_so_once(
    address: str, home: Path, with_spool: bool
) -> None:
    own = as_login(address, "host")
    spool = str(home / "spool.sqlite") if with_spool else "off"

    done = run(own, "-c", LIVING, learner="thread", spool=spool)
    checked = command(own, "store", "check", "--json", learner="thread")
    quiet = command(own, "store", "check", "--json")
    learned = command(as_login(address, "learner"), "learn", "--once", "--json")

    assert done.stdout == "[False, False, False] pass\n"
    assert done.stderr.count("may_not_learn") == done.stderr.count("\n") == 1, done.stderr
    assert "grant tau_live_learner" in done.stderr
    with closing(open_at(address, read_only=True)) as store:
        assert store.rollouts.query(RolloutQuery()).total == 60
    doubts = [each for each in json.loads(checked.stdout)["checks"] if each["state"] != "ok"]
    assert [each["check"] for each in doubts] == ["learning"]
    assert doubts[0]["found"].startswith("this login may not learn: ")
    assert (checked.returncode, json.loads(quiet.stdout)["worst"]) == (0, "ok")
    assert (learned.returncode, learned.stderr) == (0, "")


def test_an_operator_stops_the_agents_of_a_machine_whatever_their_login(address: str) -> None:
    own, host = as_login(address, "operator"), as_login(address, "host")
    command(own, "kill", "--reason", "nonsense")
    agent(host, "stopped")
    command(own, "unkill", "--reason", "mended")
    agent(host, "goes-on")

    with closing(open_at(address, read_only=True)) as store:
        runs = {run.run_id for run in store.rollouts.query(RolloutQuery()).rollouts}
    assert runs == {f"answer/goes-on-{number}" for number in range(30)}


def test_what_a_host_may_not_write_into_the_audit_waits_for_who_may(
    address: str, home: Path
) -> None:
    host = as_login(address, "host")
    stopped = command(host, "kill", "--reason", "nonsense")
    command(host, "unkill", "--reason", "mended")
    done = agent(host, "a")
    waiting = [*home.rglob("*.off.log")]
    run(as_login(address, "learner"), "-c", AGENT, "b", "30", "30", learner="thread")

    assert "this login may not insert audit" in stopped.stderr
    assert (done.stdout, done.stderr, len(waiting)) == ("True\n", "", 1)
    assert [*home.rglob("*.off.log")] == []
    with closing(open_at(address, read_only=True)) as store:
        actions = [entry.action for entry in store.audit.entries()]
        assert store.rollouts.query(RolloutQuery()).total == 60
    assert actions[:2] == ["unkill", "kill"]


def test_a_login_without_a_connection_left_holds_nobody(address: str) -> None:
    import psycopg

    own = as_login(address, "learner")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("alter role learner connection limit 2")
        try:
            agent_of = AGENT.replace("    with", "    time.sleep(0.2)\n    with", 1)
            done = run(own, "-c", f"import time{agent_of}", "a", "60", "1", learner="thread")
        finally:
            connection.execute("alter role learner connection limit -1")
    gate = command(own, "gate", "--json")

    assert "too many connections" in done.stderr
    assert (gate.returncode, json.loads(gate.stdout)["state"]) == (0, "pass")


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_server_refuses_a_host(what: str, address: str) -> None:
    import psycopg

    with (
        psycopg.connect(as_login(address, "host"), autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(FORBIDDEN[what].encode())


def test_a_learner_may_do_what_the_page_says_and_end_no_pause(address: str) -> None:
    own = as_login(address, "learner")
    run(own, "-c", AGENT, "a", "30", "30", learner="thread")

    done = [
        command(own, *arguments, "--reason", "why")
        for arguments in (
            ("gate", "hold"),
            ("gate", "reset"),
            ("pause", "collection"),
            ("policy", "use", "0", "--point", "model"),
        )
    ]
    refused = command(own, "resume", "collection", "--reason", "why")

    assert [one.stderr for one in done if one.returncode] == []
    assert "may not delete pauses: it needs the role tau_live_operator\n" in refused.stderr


def test_an_operator_stops_and_resumes_and_forgets(address: str) -> None:
    agent(as_login(address, "host"), "a")
    command(as_login(address, "learner"), "learn", "--once")
    own = as_login(address, "operator")
    with closing(open_at(own, read_only=True)) as store:
        newest = store.rollouts.query(RolloutQuery(descending=True, limit=1)).rollouts[0]

    done = [
        command(own, *arguments)
        for arguments in (
            ("gate", "hold", "--reason", "why"),
            ("gate", "reset", "--reason", "why"),
            ("pause", "learning", "--reason", "why"),
            ("resume", "learning", "--reason", "why"),
            ("kill", "--reason", "why"),
            ("unkill", "--reason", "why"),
            ("policy", "use", "0", "--point", "model", "--reason", "why"),
            ("policy", "exposure", "model", "25%", "--reason", "why"),
            ("reward", "1", "--run", newest.rollout_id),
            ("gc", "--keep", "0"),
            ("rollouts",),
            ("status",),
        )
    ]

    assert [one.stderr for one in done if one.returncode] == []


def test_a_reader_looks_and_changes_nothing(address: str) -> None:
    agent(as_login(address, "host"), "a")
    own = as_login(address, "reader")

    for looks in (("status",), ("rollouts",), ("gate", "log"), ("export",), ("updates",)):
        assert command(own, *looks).stderr == ""
    refused = command(own, "gate", "hold", "--reason", "why")

    assert refused.returncode == 1
    assert "permission denied for table turns: docs/howto/fleet.md" in refused.stderr


@pytest.mark.parametrize("name", ["operator", "reader"])
def test_who_may_read_everything_copies_a_store(address: str, home: Path, name: str) -> None:
    agent(as_login(address, "host"), "a")
    copy = home / "copy.sqlite"

    done = command(address, "store", "copy", as_login(address, name), str(copy))

    assert (done.returncode, done.stderr) == (0, "")
    with closing(open_at(copy, read_only=True)) as copied:
        assert copied.rollouts.query(RolloutQuery()).total == 30


@pytest.mark.parametrize(
    ("arguments", "lacking", "roles"),
    [
        (("gate", "hold", "--reason", "why"), "insert gate", ("learner", "operator")),
        (("pause", "learning", "--reason", "why"), "insert pauses", ("learner", "operator")),
        (("verify",), "select lessons", ("learner", "operator", "reader")),
    ],
)
def test_a_command_that_a_login_may_not_use_says_which_role_may(
    address: str, arguments: tuple[str, ...], lacking: str, roles: tuple[str, ...]
) -> None:
    agent(as_login(address, "host"), "a")

    refused = command(as_login(address, "host"), *arguments)

    needed = " or ".join(f"tau_live_{role}" for role in roles)
    assert refused.returncode == 1
    assert f"this login may not {lacking}: it needs the role {needed}\n" in refused.stderr


def test_a_login_that_may_make_no_roles_is_told_what_to_do(served: Server, home: Path) -> None:
    import psycopg

    own = Server()
    try:
        made = own.new_database(empty=True)
        with psycopg.connect(made, autocommit=True) as connection:
            connection.execute("create role plain login")
            connection.execute("create schema authorization plain")
        plain = as_login(made, "plain")

        refused = command(plain, "store", "create")
        done = command(plain, "store", "create", "--no-roles", "--json")
    finally:
        own.remove()

    assert refused.returncode == 1
    assert "may not make the roles tau_live_plain_host" in refused.stderr
    assert "--no-roles" in refused.stderr
    assert json.loads(done.stdout)["roles"] == []


def test_a_login_that_may_not_grant_is_refused_until_the_owner_has_granted(address: str) -> None:
    import psycopg

    own = as_login(address, "operator")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("revoke insert on rewards from tau_live_host")
        connection.execute("grant delete on rollouts to tau_live_host")

    refused = command(own, "store", "create")
    by_owner = command(address, "store", "create")
    again = command(own, "store", "create")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert "tau_live_host may not insert rewards, and 1 more" in refused.stderr
    assert "let the owner of the tables call" in refused.stderr
    assert (by_owner.returncode, again.returncode) == (0, 0)


def test_rights_that_were_given_by_hand_are_taken_away(address: str) -> None:
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("grant delete on rollouts to tau_live_host")

    with closing(open_at(address)) as store:
        store.make_roles()

    with (
        psycopg.connect(as_login(address, "host"), autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("delete from rollouts")


def test_a_file_has_no_roles(tmp_path: Path) -> None:
    with closing(open_at(tmp_path / "store.sqlite")) as store:
        assert store.make_roles() == []
