"""A copy holds what its store held, goes on from there, and survives the death of who makes it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tau_live
from tau_live.core.addresses import is_address, keep
from tau_live.core.errors import StoreError, StoreVersionError
from tau_live.core.settings import Learner, Settings
from tau_live.operate.verification import verify_store
from tau_live.store import copying
from tau_live.store.copying import AT_LAST, columns, copy, count_rows
from tau_live.store.opening import open_at
from tests.cli.filled import fill
from tests.contracts.making import begun
from tests.postgres import needs_postgres, server

Place = Callable[[Path], str]
LIVED, MORE = 64, 32


def in_sqlite(folder: Path) -> str:
    return str(folder / "store.sqlite")


def in_postgres(_: Path) -> str:
    return server().new_database(empty=True)


PLACES = {"file": in_sqlite, "database": in_postgres}
WAYS = [
    pytest.param(source, target, id=f"{source} to {target}", marks=needs_postgres)
    if "database" in {source, target}
    else pytest.param(source, target, id=f"{source} to {target}")
    for source in PLACES
    for target in PLACES
]


def put(source: str, target: str) -> dict[str, int]:
    with (
        closing(open_at(source, read_only=True)) as given,
        closing(open_at(target, copying=True)) as made,
    ):
        return copy(given, made, tell=lambda _table, _rows: None)


def contents(address: str) -> dict[str, list[Any]]:
    """Return all rows of a store, and its export."""
    everything = dict.fromkeys(AT_LAST, ("*", "1")) | {
        table: (", ".join(known.all), ", ".join(known.key))
        for table, known in columns().items()
        if table != "seals"
    }
    with closing(open_at(address, read_only=True)) as store:
        return {"export": list(store.export())} | {
            table: [
                *map(tuple, store.connection.rows(f"select {names} from {table} order by {by}"))
            ]
            for table, (names, by) in everything.items()
        }


def agent(address: str, runs: range) -> list[str]:
    """Let an agent live, learn at once, and return what it chose."""
    path = keep(address) if is_address(address) else Path(address)
    patch = pytest.MonkeyPatch()
    patch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    tau_live.attach(
        Settings(
            store=path,
            learner=Learner.FLUSH,
            update_interval=16,
            exploration=0.5,
            decide_deadline_ms=60_000.0,
            control_share=0.3,
            reward_range=(0.0, 1.0),
        )
    )
    chosen = []
    for key in runs:
        with tau_live.run("triage", key=key) as run:
            context = {"lang": ("de", "en")[key % 2]}
            choice = run.decide("model", ["small", "large"], default="small", context=context)
            chosen.append(str(choice))
            run.reward(float(np.random.default_rng(key).random() < 0.5))
        if key % 16 == 15:
            assert tau_live.flush(30)
    assert tau_live.flush(30)
    tau_live.detach()
    patch.undo()
    return chosen


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store that has learned, and one with one of everything."""
    folder = tmp_path_factory.mktemp("original")
    agent(str(folder / "lived.sqlite"), range(LIVED))
    fill(folder / "filled.sqlite")
    yield folder


def source_in(place: str, original: Path, folder: Path) -> str:
    if place == "file":
        return str(original)
    address = PLACES[place](folder)
    put(str(original), address)
    return address


@pytest.mark.parametrize("name", ["lived", "filled"])
@pytest.mark.parametrize(("source", "target"), WAYS)
def test_a_copy_holds_every_row_of_its_store(
    source: str, target: str, name: str, original: Path, tmp_path: Path
) -> None:
    given = source_in(source, original / f"{name}.sqlite", tmp_path)
    made = PLACES[target](tmp_path)

    rows = put(given, made)

    assert contents(made) == contents(given)
    with closing(open_at(given, read_only=True)) as one, closing(open_at(made)) as other:
        for row in one.policies.versions():
            with one.checkpoints.open(row.file) as file, other.checkpoints.open(row.file) as copied:
                assert file.read() == copied.read()
        assert rows["checkpoints"] == len(one.checkpoints.names()) > 0
        assert sum(rows[table] for table in rows.keys() - {*AT_LAST}) == count_rows(one, other)
        assert one.retention.size().rollouts == other.retention.size().rollouts


@needs_postgres
@pytest.mark.parametrize("name", ["lived", "filled"])
def test_a_copy_in_a_file_has_the_chain_of_its_store_or_one_of_its_own(
    name: str, original: Path, tmp_path: Path
) -> None:
    given, made = str(original / f"{name}.sqlite"), in_postgres(tmp_path)
    back, beside = in_sqlite(tmp_path), str(tmp_path / "beside.sqlite")
    put(given, made)

    put(made, back)
    put(given, beside)

    for file in (back, beside):
        with closing(open_at(file)) as store:
            assert contents(file) == contents(given)
            assert verify_store(store, Settings(store=Path(file))).findings == []
    with closing(open_at(given, read_only=True)) as one, closing(open_at(beside)) as other:
        assert one.seals.head() == other.seals.head()


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), WAYS)
def test_numbers_and_learning_go_on_where_the_store_was(
    source: str, target: str, original: Path, tmp_path: Path
) -> None:
    given = source_in(source, original / "lived.sqlite", tmp_path)
    kept, made = str(tmp_path / "kept.sqlite"), PLACES[target](tmp_path)
    put(given, kept)
    put(given, made)

    chosen = agent(kept, range(LIVED, LIVED + MORE))
    chosen_there = agent(made, range(LIVED, LIVED + MORE))

    assert chosen_there == chosen
    one, other = contents(kept), contents(made)
    assert len(one["policies"]) > (LIVED // 16)
    for table in ("policies", "updates", "resources"):
        assert [row for row in one["export"] if row["table"] == table] == [
            row for row in other["export"] if row["table"] == table
        ]
    for table in ("rollouts", "ready_points", "arms", "rewards", "sequences"):
        assert [row[0] for row in one[table]] == [row[0] for row in other[table]]


DYING = """
import os, signal, sys
from contextlib import closing
from tau_live.core import fault
from tau_live.store.copying import copy
from tau_live.store import copying
from tau_live.store.opening import open_at

copying.ROWS = 16
source, target, after = sys.argv[1:]
left = int(after)

def die(table, rows):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

with closing(open_at(source, read_only=True)) as given:
    with closing(open_at(target, copying=True)) as made:
        copy(given, made, tell=die)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), WAYS)
def test_a_copy_that_was_killed_goes_on_and_holds_what_the_store_holds_then(
    source: str, target: str, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = str(tmp_path / "given.sqlite")
    put(str(original / "lived.sqlite"), given)
    given = source_in(source, Path(given), tmp_path)
    made = PLACES[target](tmp_path)
    monkeypatch.setattr(copying, "ROWS", 16)
    for steps in (5, 12, 25):  # within checkpoints, rollouts and later tables
        killed = subprocess.run(
            [sys.executable, "-c", DYING, given, made, str(steps)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL
        with pytest.raises(StoreVersionError, match="not whole yet"):
            open_at(made)
        with pytest.raises(StoreVersionError, match="not whole yet"):
            open_at(made, read_only=True)
    with closing(open_at(given)) as store:  # a writer between: new, changed and forgotten rows
        begun(store, "live-new")
        last = store.rollouts.rollout("live-new").seq
        with store.begin():
            store.connection.change("update rollouts set name = 'changed' where seq = 40")
            store.connection.change("delete from rollouts where seq = 5")

    put(given, made)

    assert contents(made) == contents(given)
    with closing(open_at(made)) as store:
        begun(store, "live-newer")
        assert store.rollouts.rollout("live-newer").seq > last


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_a_store_with_rows_of_its_own_is_left_alone(
    source: str, target: str, original: Path, tmp_path: Path
) -> None:
    given = source_in(source, original / "lived.sqlite", tmp_path)
    made = PLACES[target](tmp_path / "other")
    with closing(open_at(made)) as store:
        begun(store)

    with pytest.raises(StoreError, match=r"is not empty: it has rows in rollouts"):
        put(given, made)

    with closing(open_at(made)) as store:
        assert store.retention.size().rollouts == 1


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_an_unfinished_copy_of_another_store_is_left_alone(
    source: str, target: str, original: Path, tmp_path: Path
) -> None:
    given = source_in(source, original / "lived.sqlite", tmp_path)
    made = PLACES[target](tmp_path / "other")

    def fail(_table: str, _rows: int) -> None:
        raise KeyboardInterrupt

    with (
        closing(open_at(original / "filled.sqlite", read_only=True)) as filled,
        closing(open_at(made, copying=True)) as begun_,
        pytest.raises(KeyboardInterrupt),
    ):
        copy(filled, begun_, tell=fail)

    with pytest.raises(StoreError, match="is a copy of another store"):
        put(given, made)
