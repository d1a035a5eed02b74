"""The price of safety counts every cost once, whenever it comes."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredReward
from tau_live.learn.learner import Learner
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import reward
from tests.live.running import opened
from tests.live.test_poison import add, worth
from tests.writes import writes

HARM = DeclaredReward(name="harm", cost=True)
SOLVED = DeclaredReward(name="reward")


@pytest.fixture
def settings(path: Path) -> Settings:
    return Settings(store=path, rewards=(SOLVED, HARM), cost_limit=0.2, reward_deadline_s=60.0)


def learned(store: SqliteStore, settings: Settings, numbers: Iterable[int]) -> dict[str, float]:
    """Add rollouts, learn from them, and return the price."""
    for number in numbers:
        add(store, number, total=worth(number))
    assert Learner(store, settings, holder="test").run_next(now=None) is not None
    found = store.monitors.monitor("model").numbers["multiplier"]
    assert isinstance(found, dict)
    return found


def harm(store: SqliteStore, number: int, cost: float, *, at: float = 9.0) -> None:
    """Report what a rollout cost in safety."""
    writes(store).add_reward(reward(cost, f"live-{number}", name="harm", at=at))


def test_costs_that_come_after_their_rollouts_were_learned_from_raise_the_price(
    path: Path, settings: Settings
) -> None:
    with opened(path) as store:
        before = learned(store, settings, range(16))
        for number in range(16):
            harm(store, number, float(number % 2))

        after = learned(store, settings, range(16, 24))

    assert (before["seen"], before["value"]) == (0.0, 0.0)
    assert (after["seen"], after["estimate"]) == (16.0, 0.5)
    assert after["value"] > 0.0


def test_a_cost_counts_once_however_often_it_is_looked_at(path: Path, settings: Settings) -> None:
    with opened(path) as store:
        for number in range(8):
            harm(store, number, 1.0)
        learned(store, settings, range(8))
        harm(store, 0, 1.0, at=10.0)
        writes(store).add_reward(reward(1.0, "live-1", name="another", at=10.0))

        after = learned(store, settings, range(8, 16))

    assert (after["seen"], after["estimate"]) == (8.0, 1.0)


def test_a_cost_that_is_corrected_after_it_was_counted_corrects_the_estimate(
    path: Path, settings: Settings
) -> None:
    with opened(path) as store:
        for number in range(8):
            harm(store, number, 1.0)
        learned(store, settings, range(8))
        for number in range(6):
            harm(store, number, 0.0, at=10.0)

        after = learned(store, settings, range(8, 16))

    assert (after["seen"], after["estimate"]) == (8.0, 0.25)


def test_a_default_counts_once_its_deadline_is_over_though_its_rollout_was_learned_from(
    path: Path, settings: Settings
) -> None:
    silent = replace(settings, rewards=(SOLVED, replace(HARM, default=0.0)))
    with opened(path) as store:
        learned(store, silent, range(8))
        for number in range(2):
            harm(store, number, 1.0, at=20.0)
        early = learned(store, silent, range(8, 16))
        writes(store).add_reward(reward(0.0, "live-23", name="seen", at=69.0))

        late = learned(store, silent, range(16, 24))

    assert (early["seen"], early["estimate"]) == (2.0, 1.0)
    assert late["seen"] == 24.0
    assert late["estimate"] == pytest.approx(2.0 / 24.0)


def test_without_a_limit_nothing_is_noted_and_one_that_is_set_later_begins_then(
    path: Path, settings: Settings
) -> None:
    free = replace(settings, cost_limit=None)
    with opened(path) as store:
        harm(store, 0, 1.0)
        learned(store, free, range(8))
        nothing = store.monitors.monitor("model").numbers["costs"]
        first = learned(store, settings, range(8, 16))
        harm(store, 1, 1.0)

        second = learned(store, settings, range(16, 24))

    assert nothing == {}
    assert (first["seen"], second["seen"]) == (0.0, 1.0)
