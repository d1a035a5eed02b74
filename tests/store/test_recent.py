"""What a doctor looks at: the newest rows, whatever the size of the store, damaged or not."""

import time
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tau_live.store.recent import DECISIONS, REWARDS, recent_rows
from tau_live.store.sqlite.connection import connect
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import begun, decision, reward
from tests.writes import writes


def filled(file: Path, times: int) -> None:
    with closing(SqliteStore.open(file)) as store, store.begin():
        begun(store)
        for number in range(1, times + 1):
            writes(store).add_decision(replace(decision(number), at=float(number)))
            writes(store).add_reward(reward(key=f"{number}", at=float(number)))
        writes(store).add_reward(reward(None, name="note", at=99.0))


def test_the_newest_come_first_and_no_more_than_were_asked_for(tmp_path: Path) -> None:
    filled(tmp_path / "store.sqlite", 9)

    found = recent_rows(tmp_path / "store.sqlite", limit=4)

    assert [one.at for one in found.decisions] == [9.0, 8.0, 7.0, 6.0]
    assert [one.at for one in found.rewards] == [9.0, 8.0, 7.0]  # the newest of all is a text
    assert found.decisions[0].options == ("small", "large")


def test_neither_question_sorts_or_looks_further_than_its_bound(tmp_path: Path) -> None:
    filled(tmp_path / "store.sqlite", 9)

    with closing(connect(tmp_path / "store.sqlite", busy_timeout_s=1.0, read_only=True)) as opened:
        plans = [
            row["detail"]
            for sql in (DECISIONS, REWARDS)
            for row in opened.rows(f"explain query plan {sql}", (4,))
        ]

    assert not [plan for plan in plans if "TEMP B-TREE" in plan]


def test_options_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite"
    filled(file, 2)
    with closing(connect(file, busy_timeout_s=1.0, read_only=False)) as opened, opened.begin():
        opened.rows("update decisions set options = '[\"small' where ordinal = 1")
        opened.rows("update decisions set options = '7' where ordinal = 2")

    found = recent_rows(file, limit=9)

    assert [one.options for one in found.decisions] == [(), ()]


@pytest.mark.timed
def test_it_is_quick_in_a_store_of_many_rows(tmp_path: Path) -> None:
    filled(tmp_path / "store.sqlite", 1_500)

    begun_at = time.process_time()
    recent_rows(tmp_path / "store.sqlite", limit=1_000)

    assert time.process_time() - begun_at < 0.5
