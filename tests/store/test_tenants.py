"""Tenants share a database and nothing in it: the server refuses a login of one all of another."""

import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tau_live.core.errors import StoreError, StoreUnavailableError, TauLiveError
from tau_live.core.reasons import Part, Pause
from tau_live.store.copying import copy
from tau_live.store.opening import open_at
from tau_live.store.postgres.listener import Listener
from tau_live.store.roles import Store
from tests.cli.conftest import Run, run
from tests.cli.filled import CHILD, QUEUED, SOLVED, fill
from tests.contracts.making import change_heard, ready
from tests.live.running import until
from tests.postgres import Server, needs_postgres
from tests.store.test_grants import agent, as_login, command, home

pytestmark = [needs_postgres, pytest.mark.slow]

__all__ = ["home", "run"]

KINDS = ("host", "learner", "operator", "reader")


class Shared(NamedTuple):
    """One database of a server, with two tenants: ``b`` has one of everything, ``a`` nothing.

    Attributes:
        server: The server.
        base: The address of the database, which names no tenant.
    """

    server: Server
    base: str

    def of(self, tenant: str, kind: str = "") -> str:
        """Return the address of a tenant, for its owner or one of its logins."""
        base = as_login(self.base, f"{tenant}_{kind}") if kind else self.base
        return f"{base}&tenant={tenant}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    own, folder = Server(), tmp_path_factory.mktemp("shared")
    try:
        base = own.new_database(empty=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(folder))
            for tenant in "ab":
                made = command(base, "store", "create", "--tenant", tenant, "--json")
                assert json.loads(made.stdout)["roles"] == [
                    f"tau_live_{tenant}_{kind}" for kind in KINDS
                ]
        fill(folder / "store.sqlite")
        with (
            closing(open_at(folder / "store.sqlite", read_only=True)) as full,
            closing(open_at(f"{base}&tenant=b", copying=True)) as made_b,
        ):
            copy(full, made_b, tell=lambda *_: None)
        for tenant in "ab":
            for kind in KINDS:
                login = f"{tenant}_{kind}"
                execute(base, f"create role {login} login in role tau_live_{tenant}_{kind}")
                execute(base, f"alter role {login} set search_path = {tenant}")
        yield Shared(own, base)
    finally:
        own.remove()


def execute(address: str, statement: str) -> list[Any]:
    """Run a statement past the store."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


OBJECTS = """
select relkind::text, quote_ident(relname), pg_class.oid::text from pg_class
where relnamespace = 'b'::regnamespace and relkind <> 'i'
union all
select 'function', quote_ident(proname), '(' || coalesce((
    select string_agg('null::' || format_type(type, null), ', ') from unnest(proargtypes) as type
), '') || ')' from pg_proc where pronamespace = 'b'::regnamespace
"""
"""Whatever there is in a schema, from the server's own catalogue: a new table is one more row."""

ATTEMPTS: Mapping[str, tuple[str, ...]] = {
    "r": (
        "select * from b.{0}", "insert into b.{0} default values", "delete from b.{0}",
        "truncate b.{0}", "do $$ begin lock table b.{0} in access share mode; end $$",
        "copy b.{0} to stdout",        "drop table b.{0}", "alter table b.{0} add column more text",
        "select table_to_xml({1}::oid, false, false, '')",
    ),
    "v": ("select * from b.{0}", "drop view b.{0}"),
    "S": (
        "select * from b.{0}", "select nextval('b.{0}')", "select nextval({1}::oid)",
        "select setval({1}::oid, 1)", "select pg_sequence_last_value({1}::oid)",
    ),
    "function": ("select b.{0}{1}", "drop routine b.{0}"),
}  # fmt: skip
"""What somebody may try with it, by its kind: by its name, and by its number where that will do."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_refuses_each_object_of_another_tenant(kind: str, shared: Shared) -> None:
    import psycopg

    objects = execute(shared.base, OBJECTS)
    attempts = [text.format(name, key) for of, name, key in objects for text in ATTEMPTS[of]]

    allowed = []
    with psycopg.connect(as_login(shared.base, f"a_{kind}"), autocommit=True) as connection:
        for attempt in attempts:
            try:
                connection.execute(attempt.encode())
                allowed.append(attempt)
            except psycopg.errors.InsufficientPrivilege:
                pass

    assert allowed == []
    assert {of for of, _, _ in objects} == ATTEMPTS.keys()
    assert len(objects) > 60


@pytest.mark.parametrize("kind", KINDS)
def test_a_login_cannot_choose_another_tenant(kind: str, shared: Shared) -> None:
    import psycopg

    own = as_login(shared.base, f"a_{kind}")
    for address in (
        f"{own}&tenant=b",
        f"{own}&options=-csearch_path%3Db&tenant=b",
        f"{own}&options=-csearch_path%3Db",
    ):
        with pytest.raises(StoreUnavailableError) as raised:
            open_at(address)
        assert raised.value.todo or "this login may not use it" in str(raised.value)

    with psycopg.connect(own, autocommit=True) as connection:
        connection.execute("set search_path = b")
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("select * from rollouts")
        for become in (f"set role tau_live_b_{kind}", f"set session authorization b_{kind}"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(become.encode())


IDS: Mapping[str, Any] = {
    "rollout_id": SOLVED, "decision_id": f"{SOLVED}:attempt-1:decision-1", "beginning": "live-",
    "point": "model", "version": 2, "run_id": "run-1", "name": "model", "owner": "machine:1:2",
    "number": 1, "after": 0, "seq": 0, "limit": 99, "of": 99, "newest": True, "without": "x",
    "within": None, "now": 5e9, "since": 0.0, "every_s": 1e9, "count": 2, "prefix": "process:",
    "seqs": [1, 2, 3], "ids": [SOLVED, CHILD, QUEUED], "queue": None, "upto": None, "kind": None,
    "chain": "lessons", "names": ["x"], "key": "x", "timeout_s": 0.0,
}  # fmt: skip
"""What the other tenant has, by the names of parameters."""


def answers(store: Store) -> dict[str, object]:
    """Return what each method of a store's roles answers that takes nothing but ``IDS``."""
    roles = {
        name: role
        for name, role in vars(store).items()
        if not name.startswith("_")
        and name not in {"address", "path", "seals", "checkpoints", "retention", "connection"}
    }
    found: dict[str, object] = {}
    for role, method in chain.from_iterable(
        ((role, name) for name, _ in inspect.getmembers(roles[role], callable)) for role in roles
    ):
        call = getattr(roles[role], method)
        if method.startswith("_"):
            continue
        own = inspect.signature(call).parameters
        needed = [name for name, each in own.items() if each.default is inspect.Parameter.empty]
        if {*needed} <= IDS.keys():
            found[f"{role}.{method}"] = _answer(call, own)
    return found


def _answer(call: Any, parameters: Mapping[str, inspect.Parameter]) -> object:
    values = {name: IDS[name] for name in parameters if name in IDS}
    by_name = {
        n: v for n, v in values.items() if parameters[n].kind is inspect.Parameter.KEYWORD_ONLY
    }
    try:
        found = call(*[v for n, v in values.items() if n not in by_name], **by_name)
        return list(found) if inspect.isgenerator(found) else found
    except TauLiveError as error:
        return type(error).__name__


def test_no_role_answers_with_what_another_tenant_has(shared: Shared, tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    open_at(path).close()

    with (
        closing(open_at(path, read_only=True)) as empty,
        closing(open_at(as_login(shared.base, "a_reader"), read_only=True)) as mine,
        closing(open_at(shared.of("b", "reader"), read_only=True)) as theirs,
    ):
        nothing, found, known = answers(empty), answers(mine), answers(theirs)
        exported = (list(mine.export()), len(list(theirs.export())) > 9)

    writing = {name for name, answer in found.items() if answer == "StoreUnavailableError"}
    assert found["audit.may_add"] is False  # which a reader may not
    others = {*writing, "audit.may_add"}
    assert {**found, **{name: nothing[name] for name in others}} == nothing
    assert len(writing) < len(nothing) / 3
    assert exported == ([], True)
    assert sum(known[name] != nothing[name] for name in known) > 30


COMMANDS = (
    ("show", SOLVED),
    ("why", f"{SOLVED}:attempt-1:decision-1"),
    ("updates", "2"),
    ("policy", "show", "2"),
    ("policy", "use", "2", "--point", "model", "--reason", "why"),
    ("policy", "rollback", "model", "--reason", "why"),
    ("optimize", "show", "{run}"),
    ("optimize", "status", "{run}"),
    ("forget", SOLVED, "--reason", "why"),
)
"""Commands that take the id of something in the store."""


def test_no_command_finds_an_id_of_another_tenant(shared: Shared, home: Path, run: Run) -> None:
    with closing(open_at(shared.of("b"), read_only=True)) as store:
        name = store.optimizations.runs()[0].run_id
    for command_words in COMMANDS:
        words = [word.format(run=name) for word in command_words]
        refused = run(*words, "--store", as_login(shared.base, "a_operator"))
        assert refused.exit_code, words
        done = run(*words, "--store", shared.of("b", "operator"))
        assert (done.exit_code, words) == (0, words), done.output


def test_a_reward_for_an_id_of_another_tenant_stays_with_who_gave_it(
    shared: Shared, home: Path, run: Run
) -> None:
    given = run("reward", "1", "--run", CHILD, TAU_LIVE_RL_STORE=as_login(shared.base, "a_host"))

    with (
        closing(open_at(shared.of("a"))) as mine,
        closing(open_at(shared.of("b"))) as theirs,
    ):
        kept = [store.rewards.rewards(CHILD) for store in (mine, theirs)]
    assert (given.exit_code, len(kept[0]), kept[1]) == (0, 1, [])


def test_an_id_is_anothers_in_another_tenant(shared: Shared, home: Path) -> None:
    for tenant in ("c", "d"):
        made = command(shared.base, "store", "create", "--tenant", tenant)
        login = f"create role {tenant}_agent login in role tau_live_{tenant}_host"
        execute(shared.base, login)
        assert made.returncode == 0
    execute(shared.base, "alter role c_agent set search_path = c")

    unnamed = agent(as_login(shared.base, "c_agent"), "run")
    named = agent(f"{as_login(shared.base, 'd_agent')}&tenant=d", "run")

    assert [one.stderr for one in (unnamed, named)] == ["", ""]
    with (
        closing(open_at(f"{shared.base}&tenant=c")) as one,
        closing(open_at(f"{shared.base}&tenant=d")) as other,
    ):
        ids = [store.rollouts.ids_beginning_with("live-", limit=99) for store in (one, other)]
        counts = [store.retention.size().rollouts for store in (one, other)]
        assert counts == [30, 30]
        assert sorted(ids[0]) == sorted(ids[1])  # of the same host, and the same keys
        assert one.rewards.became_ready() == other.rewards.became_ready() == 30


PAUSE = Pause(part=Part.LEARNING, reason="odd", who="me@here", at=5.0)


def test_an_order_wakes_no_host_of_another_tenant_and_a_forged_one_does_no_harm(
    shared: Shared,
) -> None:
    [(channel,)] = execute(shared.base, "select 'tau_live_' || 'b.revisions'::regclass::oid")
    with (
        closing(Listener(as_login(shared.base, "a_host"))) as mine,
        closing(Listener(as_login(shared.base, "b_host"))) as theirs,
        closing(open_at(shared.of("b"))) as store,
        closing(open_at(shared.of("b", "host"))) as host,
    ):
        first = (mine.is_due(), theirs.is_due())
        change_heard(host)
        store.pauses.begin(PAUSE)
        until(theirs.is_due, deadline_s=1.0)
        woken = mine.is_due()
        change_heard(host)

        forge = f"select pg_notify('{channel}', 'gate') from generate_series(1, 1000)"
        execute(as_login(shared.base, "a_host"), forge)
        until(theirs.is_due, deadline_s=1.0)
        changed = host.changes()
        again = theirs.is_due()
        store.pauses.end(PAUSE.part)
        heard = change_heard(host)

    assert first == (True, True)
    assert not woken
    assert ({*changed}, again) == (set(), False)  # a look at a row that says that nothing changed
    assert heard


def test_no_tenant_keeps_a_lock_that_another_waits_for(shared: Shared, home: Path) -> None:
    import psycopg

    keys = (
        "select pg_advisory_lock(oid::bigint) from pg_class where relnamespace = 'b'::regnamespace"
    )
    with (
        psycopg.connect(as_login(shared.base, "a_host"), autocommit=True) as connection,
        psycopg.connect(shared.base) as owner,
    ):
        connection.execute(keys.encode())
        connection.execute(f"select pg_advisory_lock({0x7461754C})")
        owner.execute("lock table a.turns, a.schema_version")
        with closing(open_at(shared.of("b", "host"), busy_timeout_s=0.5)) as store:
            ready(store, "live-locked", "model")
            store.counters.add({"locked": 1})
            assert store.rollouts.find_rollout("live-locked") is not None
        done = [
            command(shared.of("b"), "store", "migrate"),
            command(shared.base, "store", "create", "--tenant", "e"),
        ]

    assert [(one.returncode, one.stderr) for one in done] == [(0, ""), (0, "")]


def test_tenants_are_checked_and_paid_for_one_by_one(shared: Shared, home: Path) -> None:
    mine = command(as_login(shared.base, "a_host"), "store", "check", "--json")
    theirs = command(shared.of("a", "host").replace("=a", "=b"), "store", "check", "--json")
    costs = [
        json.loads(command(shared.of(tenant, "reader"), "store", "cost", "--json").stdout)
        for tenant in "ab"
    ]

    checks = {check["check"]: check["found"] for check in json.loads(mine.stdout)["checks"]}
    assert checks["rights"].startswith("those of tau_live_a_host")
    assert (theirs.returncode, "may not use it" in theirs.stdout) == (1, True)
    assert (costs[0]["rollouts"], costs[1]["rollouts"] >= 5) == (0, True)


@pytest.mark.parametrize("name", ["A", "a-b", "1a", "pg_a", "public", "a" * 46, "", "a;b"])
def test_a_tenant_is_named_so_that_its_roles_can_be(name: str, shared: Shared, run: Run) -> None:
    refused = run("store", "create", shared.base, "--tenant", name)

    assert (refused.exit_code, "cannot be named" in refused.stderr) == (1, True)


def test_roles_of_a_tenant_of_another_database_are_not_taken_over(
    shared: Shared, home: Path
) -> None:
    other = shared.server.new_database(empty=True)

    refused = command(other, "store", "create", "--tenant", "b")

    assert refused.returncode == 1
    assert "tau_live_b_host" in refused.stderr
    with suppress(StoreError), closing(open_at(f"{as_login(other, 'b_host')}&tenant=b")) as store:
        pytest.fail(f"{store.address} was opened")


def test_a_file_has_no_tenants(tmp_path: Path, run: Run) -> None:
    refused = run("store", "create", tmp_path / "store.sqlite", "--tenant", "a")

    assert (refused.exit_code, "a file has no tenants" in refused.stderr) == (1, True)
