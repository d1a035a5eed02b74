"""The chain of seals goes with the rows that retention deletes, in whatever order they go."""

import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tau_live.core.records import RolloutStatus
from tau_live.core.settings import Settings
from tau_live.operate.verification import verify_store
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import begun, decision, reward
from tests.writes import forget_old, writes

ROLLOUTS, STEP, ROWS_EACH = 400, 60, 3

Order = Callable[[list[int]], Sequence[int]]


def shuffled(numbers: list[int]) -> Sequence[int]:
    return random.Random(3).sample(numbers, len(numbers))


def filled(settings: Settings, order: Order) -> SqliteStore:
    """Return a store whose rollouts ended in an order of their own."""
    store = SqliteStore.open(settings.store, key_file=settings.audit_key_file)
    with store.begin():
        for number in range(ROLLOUTS):
            name = f"live-{number}"
            begun(store, name)
            for ordinal in (1, 2):
                writes(store).add_decision(decision(ordinal, name))
            writes(store).add_reward(reward(1.0, name))
        for place, number in enumerate(order([*range(ROLLOUTS)])):
            at = 5.0 + place / 1000
            writes(store).set_status(f"live-{number}", RolloutStatus.SUCCEEDED, at=at)
    return store


def found(settings: Settings) -> set[str]:
    with closing(SqliteStore.open(settings.store, read_only=True)) as store:
        return {each.code for each in verify_store(store, settings).findings} - {"checkpoint"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(store=tmp_path / "store.sqlite", audit_key_file=tmp_path / "key")


@pytest.mark.slow
@pytest.mark.parametrize("order", [list, shuffled, lambda all_: all_[::-1]])
def test_a_chain_goes_with_what_it_sealed(settings: Settings, order: Order) -> None:
    store = filled(settings, order)
    lengths = [store.seals.count()]
    while forget_old(store, before=9.0, limit=STEP):
        lengths.append(store.seals.count())
        assert found(settings) == set()

    assert lengths[0] > ROLLOUTS * ROWS_EACH
    assert max(lengths) <= 2 * lengths[0]
    assert order is not list or max(lengths) <= lengths[0] + len(lengths)
    assert lengths[-1] <= 5
    store.close()


@pytest.mark.slow
def test_a_chain_stays_as_long_while_as_much_comes_as_goes(settings: Settings) -> None:
    store = filled(settings, list)
    lengths = [store.seals.count()]
    for step in range(20):
        with store.begin():
            for number in range(STEP):
                name = f"new-{step}-{number}"
                begun(store, name)
                for ordinal in (1, 2):
                    writes(store).add_decision(decision(ordinal, name))
                writes(store).add_reward(reward(1.0, name))
                writes(store).set_status(name, RolloutStatus.SUCCEEDED, at=6.0 + step)
        assert forget_old(store, before=1e9, limit=STEP) == STEP
        lengths.append(store.seals.count())

    assert found(settings) == set()
    assert max(lengths) <= 2.2 * lengths[0]
    store.close()


@pytest.mark.slow
def test_a_row_that_was_edited_is_found_though_its_seal_was_made_anew(settings: Settings) -> None:
    store = filled(settings, shuffled)
    with closing(sqlite3.connect(settings.store)) as db, db:
        last = shuffled([*range(ROLLOUTS)])[-1]
        db.execute("update rewards set value = 7 where rollout_id = ?", (f"live-{last}",))

    for _ in range(ROLLOUTS // STEP):
        assert forget_old(store, before=9.0, limit=STEP) == STEP

    assert found(settings) == {"edited"}
    store.close()
