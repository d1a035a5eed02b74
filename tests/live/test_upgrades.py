"""A database is migrated while hosts of the version before and of the new one write to it."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from tau_live.core.errors import StoreBusyError, StoreError, StoreVersionError
from tau_live.core.records import RolloutQuery
from tau_live.record.heartbeats import check_unneeded
from tau_live.store.opening import migrate, open_at
from tests.bench.fleet import store_live
from tests.live.fleet import started as started_agent
from tests.live.running import environ, go, line, until
from tests.postgres import needs_postgres, server

pytestmark = [needs_postgres, pytest.mark.slow]

ROWS = 200_000

MIGRATIONS = {
    2: [
        "alter table rollouts add column note text not null default 'none'",
        "alter table decisions add column note text",
        "create table notes (rollout_id text primary key, content text not null)",
    ],
    3: [
        "drop index concurrently if exists rollouts_by_note",
        "create index concurrently rollouts_by_note on rollouts (note)",
    ],
}
"""What a version adds, and an index of it."""

CONTRACTIONS = {3: ["drop table notes", "alter table decisions drop column note"]}
"""What hosts of the second version need, and those of the third do not."""

AGENT = """
import sys
from tau_live.store.postgres import schema
schema.VERSION = int(sys.argv[1])
import tau_live

with tau_live.run("answer"):
    pass
print(tau_live.flush(30.0), flush=True)
sys.stdin.readline()
"""

LEARN = """
import runpy, sys
from tau_live.store.postgres import schema
schema.VERSION = int(sys.argv.pop())
sys.argv += ["learn"]
runpy.run_module("tau_live.cli", run_name="__main__")
"""

HOST = """
import json, sys, time
from contextlib import closing

from tau_live.core.errors import StoreBusyError, StoreVersionError
from tau_live.store.opening import open_at
from tau_live.store.postgres import schema
from tests.bench.fleet import store_live

address, name, version = sys.argv[1], sys.argv[2], int(sys.argv[3])
schema.VERSION = version
stored, failed, refused, times, openings = 0, 0, 0, [], 0
print("ready", flush=True)
end = None
while end is None or time.monotonic() < end:
    if end is None:
        sys.stdin.readline()
        end = time.monotonic() + float(sys.argv[4])
    try:
        store = open_at(address)
    except StoreVersionError:
        refused += 1
        time.sleep(0.05)
        continue
    openings += 1
    with closing(store):
        for _ in range(20):  # and then it starts anew, as hosts do that are rolled
            ids = [f"{name}-{stored}-{place}" for place in range(8)]
            began = time.monotonic()
            while True:
                try:
                    with store.begin():
                        store_live(store, ids)
                        if version > 1:
                            for id_ in ids:
                                store.connection.change(
                                    "insert into notes values (?, 'new')", (id_,)
                                )
                    break
                except StoreBusyError as error:
                    failed += 1
                    print(error, file=sys.stderr)
                    assert time.monotonic() < began + 30.0
            times.append(time.monotonic() - began)
            stored += len(ids)
            if time.monotonic() > end:
                break
print(json.dumps(
    {"stored": stored, "failed": failed, "refused": refused, "longest": max(times),
     "openings": openings}
))
"""

LOCKS = """
select relname::text from pg_locks join pg_class on pg_class.oid = relation
where granted and mode in (
    'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'
)
and relname in ('rollouts', 'decisions')
"""


def grow(address: str) -> None:
    """Store many rollouts with a decision each, as copies of one."""
    import psycopg

    with closing(open_at(address)) as store:
        store_live(store, ["first"])
    with psycopg.connect(address) as connection:
        for table, own in (
            ("rollouts", "'copy-' || number"),
            ("decisions", "(select seq from rollouts where rollout_id = 'copy-' || number)"),
        ):
            key = "rollout_id" if table == "rollouts" else "rollout_seq"
            found = connection.execute(
                "select attname::text from pg_attribute where attrelid = %s::regclass "
                "and attnum > 0 and attgenerated = '' and attidentity = '' and attname <> %s "
                "and not attisdropped",
                (table, key),
            )
            names = ", ".join(f'"{name}"' for (name,) in found if name != "ready_seq")
            statement = (
                f"insert into {table} ({key}, {names}) select {own}, {names} "
                f"from {table}, generate_series(1, {ROWS}) as number"
            )
            connection.execute(statement.encode())


class LockWatch:
    """Measures how long writers of a table are locked out, at a stretch, in seconds."""

    def __init__(self, address: str) -> None:
        self._address, self._end = address, Event()
        self.longest_s, self.looks = 0.0, 0
        self._thread = Thread(target=self._watch)

    def __enter__(self) -> "LockWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        import psycopg

        since: dict[str, float] = {}
        with psycopg.connect(self._address, autocommit=True) as connection:
            while not self._end.wait(0.005):
                now = time.monotonic()
                held = {row[0] for row in connection.execute(LOCKS)}
                since = {name: since.get(name, now) for name in held}
                self.longest_s = max([self.longest_s, *(now - began for began in since.values())])
                self.looks += 1


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be of the version after the next."""
    from tau_live.store.postgres import schema

    monkeypatch.setattr(schema, "MIGRATIONS", MIGRATIONS)
    monkeypatch.setattr(schema, "VERSION", 3)


@contextmanager
def first_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process be of the first version meanwhile."""
    from tau_live.store.postgres import schema

    with monkeypatch.context() as before:
        before.setattr(schema, "VERSION", 1)
        yield


def started(
    stack: ExitStack, address: str, name: str, version: int, seconds: float
) -> "subprocess.Popen[str]":
    return stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-c", HOST, address, name, str(version), str(seconds)],
            env=environ(Path()), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
    )  # fmt: skip


@pytest.mark.timed
@pytest.mark.usefixtures("newer")
def test_hosts_of_two_versions_write_while_a_database_is_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tau_live.core.addresses import keep

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with first_version(monkeypatch):
        address = server().new_database(empty=True)
        grow(address)
    with ExitStack() as stack:
        old = [started(stack, address, f"old-{number}", 1, 12.0) for number in range(2)]
        new = started(stack, address, "new", 3, 12.0)
        for host in (*old, new):
            assert line(host) == "ready"
        for host in (*old, new):
            go(host)
        watch = stack.enter_context(LockWatch(address))
        time.sleep(3.0)
        began = time.monotonic()
        versions = migrate(keep(address), key_file=None)
        took_s = time.monotonic() - began
        results = [json.loads(host.communicate(timeout=90.0)[0]) for host in (*old, new)]

    print(f"{took_s=} {watch.longest_s=} {results=}")  # shown if it fails
    assert versions == (1, 3)
    assert watch.longest_s < 1.0
    assert watch.looks > 100
    assert [result["refused"] for result in results[:-1]] == [0, 0]
    assert results[-1]["refused"] > 0
    assert all(result["openings"] > 1 for result in results)
    with closing(open_at(address, read_only=True)) as store:
        count = store.connection.count
        stored = sum(result["stored"] for result in results)
        assert store.rollouts.query(RolloutQuery(limit=1)).total == ROWS + 1 + stored
        assert count("select count(*) from notes") == results[-1]["stored"]
        assert count("select count(*) from pg_index where not indisvalid") == 0
        assert store.rewards.ready_count("model", after=0) == 1 + stored


@pytest.mark.usefixtures("newer")
def test_a_migration_waits_for_a_reader_and_lets_others_pass_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    from tau_live.core.addresses import keep

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with first_version(monkeypatch):
        address = server().new_database()
    found: list[object] = []
    with psycopg.connect(address) as reader:
        reader.execute("select count(*) from rollouts")
        migrating = Thread(target=lambda: found.append(migrate(keep(address), key_file=None)))
        migrating.start()
        time.sleep(3.0)
        assert not found
    migrating.join()

    assert found == [(1, 3)]


@pytest.mark.parametrize(
    ("version", "oldest", "refusal"),
    [
        (2, 1, None),
        (2, 2, "has schema 2 for hosts that know 2, this tau-live knows 1: install a newer"),
        (0, 0, "has schema 0, this tau-live needs 1: run `tau-live store migrate`"),
    ],
)
def test_a_host_takes_what_adds_and_refuses_what_takes_away(
    version: int, oldest: int, refusal: str | None
) -> None:
    import psycopg

    address = server().new_database()
    with psycopg.connect(address) as connection:
        connection.execute("update schema_version set version = %s, oldest = %s", (version, oldest))

    if refusal is None:
        with closing(open_at(address)) as store:
            store_live(store, ["one"])
        return
    with pytest.raises(StoreVersionError, match=refusal):
        open_at(address)


@pytest.fixture
def upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newer: None) -> str:
    """Return the address of a database of the first version, in a process of the third."""
    from tau_live.store.postgres import schema

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(schema, "CONTRACTIONS", CONTRACTIONS)
    with first_version(monkeypatch):
        return server().new_database()


def contract(address: str) -> list[int]:
    """Take away what only earlier versions need, from a database that is migrated before."""
    from tau_live.core.addresses import keep

    migrate(keep(address), key_file=None)
    with closing(open_at(address)) as store:
        return store.contract(partial(check_unneeded, store))


def oldest_and_notes(address: str) -> tuple[int, bool]:
    """Return the oldest version that hosts may know, and whether what it needs is there."""
    import psycopg

    with psycopg.connect(address) as connection:
        found = connection.execute(
            "select oldest, to_regclass('notes') is not null from schema_version"
        ).fetchone()
    assert found is not None
    return found[0], found[1]


def let_pass(address: str, seconds: float) -> None:
    """Let all processes have been seen longer ago."""
    import psycopg

    with psycopg.connect(address) as connection:
        connection.execute("update leases set expires_at = expires_at - %s", (seconds,))


def test_nothing_is_taken_away_while_an_older_host_was_seen_in_the_last_hour(
    upgraded: str,
) -> None:
    refusals = []
    with started_agent(AGENT, upgraded, 1) as old:
        assert line(old) == "True"
        with pytest.raises(StoreBusyError, match=r"schema 1, \d+ s ago") as caught:
            contract(upgraded)
        refusals.append(str(caught.value))
        go(old)
        assert old.wait(60.0) == 0
    for seconds in (0.0, 3_500.0):  # it has left; the next may be started at any time
        let_pass(upgraded, seconds)
        with pytest.raises(StoreBusyError, match="such hosts were seen") as caught:
            contract(upgraded)
        refusals.append(str(caught.value))
    before = oldest_and_notes(upgraded)
    with started_agent(AGENT, upgraded, 3) as new:
        assert line(new) == "True"
        let_pass(upgraded, 100.0)
        done, again = contract(upgraded), contract(upgraded)
        go(new)
        assert new.wait(60.0) == 0

    assert all(f":{old.pid}:" in refusal for refusal in refusals), refusals
    assert (before, done, again) == ((1, True), [3], [])
    assert oldest_and_notes(upgraded) == (3, False)


def test_who_was_shut_out_is_refused_and_hurts_no_agent(
    upgraded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = contract(upgraded)
    with first_version(monkeypatch), pytest.raises(StoreVersionError, match="install a newer"):
        open_at(upgraded)
    with started_agent(AGENT, upgraded, 1) as old:
        assert line(old) == "False"
        go(old)

        assert old.wait(60.0) == 0
    with closing(open_at(upgraded)) as store:
        store_live(store, ["new"])
    assert done == [3]


def test_a_learner_that_is_older_counts_as_a_host(upgraded: str) -> None:
    with started_agent(LEARN, upgraded, 1) as learner:
        try:
            until(lambda: _is_seen(upgraded))
        finally:
            learner.kill()
    with pytest.raises(StoreBusyError, match=f":{learner.pid}:"):
        contract(upgraded)
    let_pass(upgraded, 3_700.0)
    assert contract(upgraded) == [3]


def _is_seen(address: str) -> bool:
    import psycopg

    with psycopg.connect(address) as connection:
        found = connection.execute("select 1 from leases where name like 'seen:%'")
        return found.fetchone() is not None


def test_what_cannot_be_taken_away_whole_stays_whole(
    upgraded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tau_live.store.postgres import schema

    with monkeypatch.context() as broken:
        broken.setattr(schema, "CONTRACTIONS", {3: [*CONTRACTIONS[3], "select 1 / 0"]})
        with pytest.raises(StoreError, match="division by zero"):
            contract(upgraded)
    left = oldest_and_notes(upgraded)

    assert left == (1, True)
    assert contract(upgraded) == [3]
