"""Chains of seals of many writers: none can be changed, cut off or replaced unseen."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.synchronize import Barrier
from pathlib import Path

import msgspec
import pytest

from tau_live.core.addresses import keep
from tau_live.core.errors import StoreUnavailableError
from tau_live.core.settings import Settings
from tau_live.operate.verification import verify_store
from tau_live.record.heartbeats import beat
from tau_live.store.opening import open_at
from tau_live.store.postgres.sealing import Entries
from tau_live.store.roles import Store
from tau_live.store.sealing import Sealer
from tests.bench.fleet import store_batch
from tests.contracts.making import begun, reward
from tests.postgres import needs_postgres, server
from tests.writes import writes

pytestmark = needs_postgres

WRITERS = 8

IDLE = """
create or replace function revise() returns trigger language plpgsql as
$$ begin return null; end $$
"""
"""Announces nothing any more."""

UNSEEN = """
alter table rollouts disable trigger user;
delete from rollouts where rollout_id = 'a-1';
alter table rollouts enable trigger user
"""
"""Deletes a rollout, and leaves what belongs to it."""


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = server().new_database()
    keep(made)
    return made


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "audit"


@pytest.fixture
def edit(address: str) -> Iterator[Callable[[str], None]]:
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:

        def run(statement: str) -> None:
            connection.execute(statement.encode())

        yield run


def record(address: str, *names: str, key: Path | None = None, keeps: bool = False) -> None:
    """Store rollouts as a process of its own chain does."""
    with closing(open_at(address, key_file=key)) as store:
        for name in names:
            store_batch(store, [f"{name}-{number}" for number in range(4)])
        if keeps:
            beat(store, "one")


def found(address: str, key: Path | None = None) -> set[str]:
    """Return the codes of what is found."""
    with closing(open_at(address, read_only=True)) as store:
        settings = Settings(store=store.path, audit_key_file=key)
        return {finding.code for finding in verify_store(store, settings).findings}


def chains(store: Store) -> int:
    return store.connection.count("select count(distinct chain) from seals")


def write(address: str, number: int, start: Barrier, die: bool) -> None:
    """Write beside others; some die in a transaction."""
    store = open_at(address)
    store_batch(store, [f"first-{number}"])
    start.wait(60.0)
    for turn in range(12):
        store_batch(store, [f"of-{number}-{turn}-{place}" for place in range(8)])
        writes(store).add_reward(reward(0.5, "first-0", name=f"of-{number}-{turn}"))
    if die:
        with store.begin(), store.batch([]) as batch:
            batch.add_reward(reward(0.5, "first-0", name=f"lost-{number}"))
            batch._write_meanwhile()
            os.kill(os.getpid(), signal.SIGKILL)
    store.close()


@pytest.mark.slow
def test_each_of_many_writers_has_a_chain_and_may_be_killed(address: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(WRITERS)
    processes = [
        spawn.Process(target=write, args=(address, number, start, number % 2 == 0))
        for number in range(WRITERS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120.0)

    assert [process.exitcode for process in processes] == [-signal.SIGKILL, 0] * (WRITERS // 2)
    with closing(open_at(address, read_only=True)) as store:
        assert chains(store) == WRITERS
        assert store.seals.count() == WRITERS * (1 + 12 * 2)
        assert len(store.rewards.rewards("first-0")) == 1 + WRITERS * 12
    assert found(address) == set()


def test_a_chain_that_ends_earlier_is_found_after_its_head_was_kept(
    address: str, edit: Callable[[str], None]
) -> None:
    record(address, "a", "b")
    record(address, "keeper", keeps=True)
    assert found(address) == set()
    edit(
        "delete from rollouts where rollout_id like 'b-%'; delete from rewards "
        "where rollout_id like 'b-%'; delete from seals where place = (select max(place) from seals"
        " where chain = (select chain from seals order by place limit 1)); "
    )

    assert "cut_off" in found(address)


def test_a_chain_that_is_removed_whole_is_found_after_its_head_was_kept(
    address: str, edit: Callable[[str], None]
) -> None:
    record(address, "a")
    record(address, "keeper", keeps=True)
    edit(
        "delete from rollouts where rollout_id like 'a-%'; delete from rewards "
        "where rollout_id like 'a-%'; "
        "delete from seals where place = (select min(place) from seals)"
    )

    assert "cut_off" in found(address)


def test_heads_are_kept_once_a_minute_and_of_chains_that_went_on(address: str) -> None:
    record(address, "a")
    with closing(open_at(address)) as store:
        count = store.seals.count()
        for _ in range(3):
            beat(store, "one")
        once = store.seals.count()
        store.seals._kept_at -= 61.0  # type: ignore[attr-defined]
        beat(store, "one")
        still = store.seals.count()
        record(address, "b")
        store.seals._kept_at -= 61.0  # type: ignore[attr-defined]
        beat(store, "one")

        assert (once, still, store.seals.count()) == (count + 1, count + 1, count + 3)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("delete from seals where place = (select min(place) + 1 from seals)", "broken_link"),
        ("update seals set rows = rows || '\\x00' where place = (select min(place) from seals)",
         "broken_link"),
        ("update seals set link = '\\x00'", "broken_link"),
        ("update seals set place = place + 1000", "broken_link"),
        ("update seals set before = 0, before_link = ''", "broken_link"),
        ("update seals set chain = 7", "broken_link"),
        ("delete from seals where place <= (select min(place) + 1 from seals)", "no_beginning"),
        ("update rewards set source = 'me'", "added"),
        ("alter table rollouts disable trigger rollouts_forgotten", "schema"),
        (IDLE, "schema"),
        ("create trigger mine after insert on rewards execute function revise('x')", "schema"),
        ("create rule mine as on insert to rewards do instead nothing", "schema"),
        ("delete from rollouts where rollout_id = 'a-1'", "removed"),
        (UNSEEN, "orphans"),
    ],
)  # fmt: skip
def test_what_is_done_to_chains_is_found(
    statement: str, code: str, address: str, edit: Callable[[str], None]
) -> None:
    record(address, "a", "b", "c")
    edit(statement)

    assert code in found(address)


def test_an_earlier_state_of_a_row_is_found(address: str, edit: Callable[[str], None]) -> None:
    with closing(open_at(address)) as store:
        begun(store, "live-1")
        writes(store).leave_out("live-1", "reward_missing")
        writes(store).leave_out("live-1", "other")
    edit("update rollouts set left_out = 'reward_missing'")

    assert found(address) == {"edited"}


def test_a_seal_is_newer_than_that_of_whoever_had_the_row_before(address: str) -> None:
    with closing(open_at(address)) as one, closing(open_at(address)) as other:
        begun(one, "live-1")
        with one.begin(), one.batch(["elsewhere"]) as batch:
            writes(other).leave_out("live-1", "reward_missing")
            batch.leave_out("live-1", "reward_not_finite")

    assert found(address) == set()


def test_a_connection_that_was_lost_goes_on_with_another_chain(
    address: str, edit: Callable[[str], None]
) -> None:
    with closing(open_at(address)) as store:
        begun(store, "live-1")
        writes(store).leave_out("live-1", "reward_missing")
        edit("delete from seals; delete from rollouts")  # as after a failover that lost it
        edit(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        )
        with pytest.raises(StoreUnavailableError):
            begun(store, "live-2")
        store.stamp()
        begun(store, "live-2")
        writes(store).leave_out("live-2", "reward_missing")

    assert found(address) == set()


def test_a_seal_that_retention_deleted_cannot_be_put_back(
    address: str, edit: Callable[[str], None]
) -> None:
    record(address, "a")
    edit("create table kept as select * from seals")
    with closing(open_at(address)) as store:
        store.retention.forget([f"a-{number}" for number in range(4)])
    edit("insert into seals select * from kept; drop table kept")

    assert found(address) == {"no_beginning"}


def test_a_key_seals_what_nobody_without_it_can(
    address: str, key: Path, edit: Callable[[str], None]
) -> None:
    record(address, "a", key=key)
    assert found(address, key) == set()
    record(address, "b")

    assert found(address, key) == {"other_key"}
    assert found(address) == {"other_key"}


def test_seals_before_the_key_count_if_it_binds_them(
    address: str, key: Path, edit: Callable[[str], None]
) -> None:
    record(address, "a")
    record(address, "b")
    record(address, "c", key=key)
    assert found(address, key) == set()
    edit("update seals set key_id = '' where key_id <> ''")

    assert "not_keyed" in found(address, key)


def test_a_chain_without_the_key_cannot_be_added_before_it(
    address: str, key: Path, edit: Callable[[str], None]
) -> None:
    record(address, "a")
    record(address, "b", key=key)
    with closing(open_at(address, read_only=True)) as store:
        place = store.connection.count("select min(place) from seals")
        store_id = store.connection.count("select id from store_id")
    rows = msgspec.msgpack.encode(
        [Entries("rewards", [("a-1", "", "more", "api", "")], b"\x01" * 16)]
    )
    link = Sealer().link(store_id, place - 1, 5, 0, b"", rows)
    values = f"{place - 1}, 5, 0, '', '\\x{rows.hex()}', '\\x{link.hex()}', ''"
    edit(f"insert into seals values ({values})")

    assert "not_keyed" in found(address, key)


def test_a_seal_of_another_store_with_the_same_key_will_not_do(
    address: str, key: Path, edit: Callable[[str], None], tmp_path: Path
) -> None:
    import psycopg

    record(address, "a", key=key)
    other = server().new_database(empty=True)
    record(other, "x", key=key)
    edit("select nextval('seal_places') from generate_series(1, 99)")
    with psycopg.connect(other) as source, psycopg.connect(address) as target:
        [row] = source.execute("select * from seals").fetchall()
        target.execute("delete from seals")
        target.execute("insert into seals values (%s, %s, %s, %s, %s, %s, %s)", row)

    assert "broken_link" in found(address, key)


def test_a_database_in_place_of_the_one_with_the_key_is_refused_until_adopted(
    address: str, key: Path, edit: Callable[[str], None]
) -> None:
    record(address, "a", key=key)
    edit("truncate seals, rollouts, rewards, decisions, arms, attempts, recorded_spans")
    edit("truncate ready_points, ids")
    record(address, "b")

    with pytest.raises(StoreUnavailableError, match=r"put in its place.*--adopt"):
        record(address, "c", key=key)


@pytest.mark.parametrize("ways", [1, 3])
def test_rows_are_compared_in_slices_where_there_are_many(
    ways: int, address: str, edit: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tau_live.store.postgres.seals.SLICE", 40 // ways)
    record(address, "a", "b")
    assert found(address) == set()
    edit("update rewards set value = 3.0 where rollout_id in ('a-1', 'b-2')")

    with closing(open_at(address, read_only=True)) as store:
        names = [finding.what for finding in store.seals.changed_rows(("rewards", "decisions"))]

    assert sorted(names) == ["reward solved of a-1", "reward solved of b-2"]
