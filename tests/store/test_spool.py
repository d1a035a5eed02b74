"""A spool belongs to one store, and what is in it goes nowhere else."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Barrier, Event, Thread

import pytest

from tau_live.core.addresses import keep, where_in
from tau_live.core.errors import SpoolOfOthersError
from tau_live.core.settings import Settings, spool_of
from tau_live.store.opening import open_spool
from tau_live.store.roles import Spool
from tests.contracts.making import begun

HERE, THERE = "postgresql://me@db/tau", "postgresql://me@other/tau"
SHIP = f"TAU_LIVE_RL_SPOOL='{{}}' tau-live ship --store '{HERE}'"
MOVE = "move '{}' away"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.sqlite"


@pytest.fixture
def spool(path: Path) -> Iterator[Spool]:
    with closing(open_spool(path)) as spool:
        yield spool


@pytest.mark.parametrize(
    ("owner", "who"),
    [
        pytest.param((HERE, "1"), (HERE, "1"), id="the same"),
        pytest.param((HERE, "1"), (THERE, "1"), id="the server has another name"),
        pytest.param((HERE, "1"), (HERE, ""), id="it cannot be reached"),
        pytest.param((HERE, ""), (HERE, "1"), id="it could not be reached before"),
        pytest.param((HERE, "1/1"), (HERE, "1/2"), id="it was restored"),
    ],
)
def test_a_spool_is_opened_for_its_own_store(
    path: Path, owner: tuple[str, str], who: tuple[str, str]
) -> None:
    for address, id_ in (owner, who, who):
        with closing(open_spool(path)) as spool:
            spool.belong_to(address, id_=id_)


@pytest.mark.parametrize(
    ("owner", "who", "todo"),
    [
        pytest.param((HERE, "1"), (THERE, "2"), SHIP, id="another"),
        pytest.param((HERE, "1"), (HERE, "2"), MOVE, id="another at its address"),
        pytest.param((HERE, "1/1"), (THERE, "1/2"), SHIP, id="a copy of it"),
        pytest.param((HERE, "1"), (THERE, ""), SHIP, id="it cannot be reached"),
        pytest.param((HERE, ""), (THERE, "2"), SHIP, id="it could not be reached before"),
    ],
)
def test_a_spool_of_another_store_is_refused_with_what_to_do(
    path: Path, owner: tuple[str, str], who: tuple[str, str], todo: str
) -> None:
    with closing(open_spool(path)) as spool:
        spool.belong_to(owner[0], id_=owner[1])
        begun(spool, "unsent")
    with closing(open_spool(path)) as spool:
        with pytest.raises(SpoolOfOthersError, match="has 1 rollouts to be sent there") as caught:
            spool.belong_to(who[0], id_=who[1])
        spool.belong_to(owner[0], id_=owner[1])  # it still is

    assert str(caught.value) == f"{caught.value.problem}: {caught.value.todo}"
    assert str(path) in caught.value.problem
    assert todo.format(path) in caught.value.todo


def test_a_spool_that_is_read_stays_nobodys(path: Path) -> None:
    open_spool(path).close()

    with closing(open_spool(path, read_only=True)) as spool:
        spool.belong_to(THERE, id_="2")
    with closing(open_spool(path)) as spool:
        spool.belong_to(HERE, id_="1")

        with pytest.raises(SpoolOfOthersError):
            spool.belong_to(THERE, id_="2")


def test_a_store_is_known_by_its_id_once_it_was_reached(spool: Spool) -> None:
    spool.belong_to(HERE, id_="")
    spool.belong_to(HERE, id_="1")
    spool.belong_to(THERE, id_="1")
    spool.belong_to(THERE, id_="")

    with pytest.raises(SpoolOfOthersError):
        spool.belong_to(HERE, id_="")


def test_a_spool_of_before_is_taken_over(path: Path) -> None:
    with closing(open_spool(path)) as spool:
        begun(spool, "unsent")
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("drop table belongs")
    with closing(open_spool(path)) as spool:
        spool.belong_to(HERE, id_="1")

        with pytest.raises(SpoolOfOthersError):
            spool.belong_to(THERE, id_="2")


def test_a_new_spool_becomes_that_of_one_store_alone(path: Path) -> None:
    barrier, owners = Barrier(5), list[str]()

    def take(number: int) -> None:
        with closing(open_spool(path)) as spool:
            barrier.wait()
            with suppress(SpoolOfOthersError):
                spool.belong_to(f"{HERE}_{number}", id_=str(number))
                owners.append(str(number))

    threads = [Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    barrier.wait()
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("begin immediate")  # all of them find it nobody's, and wait
        Event().wait(0.2)
        raw.execute("commit")
    for thread in threads:
        thread.join()

    assert len(owners) == 1


def test_tenants_have_spools_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    stores = [keep(f"{HERE}?tenant={name}") for name in ("a", "b")]
    own = [spool_of(Settings(store=store)) for store in stores]
    named = [spool_of(Settings(store=store, spool=tmp_path / "one.sqlite")) for store in stores]

    assert own[0] != own[1]
    assert named == [tmp_path / "one.sqlite"] * 2
    assert where_in(f"{HERE}?tenant=a") != where_in(f"{HERE}?tenant=b")
