"""Code inside a run may be kept from giving that run its rewards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import tau_live
from tau_live.core.settings import Settings
from tau_live.store.sqlite.store import SqliteStore


@pytest.fixture
def strict(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    tau_live.detach()
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    settings = Settings(store=path, self_rewards=False, reward_sources=("reviewer",))
    assert tau_live.attach(settings) is not None
    yield path
    tau_live.detach()


def _refused() -> object:
    refused = tau_live.snapshot()["refused"]
    assert isinstance(refused, dict)
    return refused.get("rewards_refused_from_inside", 0)


@pytest.mark.usefixtures("strict")
def test_a_run_cannot_value_itself_nor_one_around_it_nor_its_session() -> None:
    with tau_live.run("outer", session="s") as outer:
        choice = outer.decide("model", ["a", "b"])
        own = [
            outer.reward(1.0, source="reviewer"),
            tau_live.reward(1.0, source="reviewer"),
            tau_live.reward(1.0, run=outer.id, source="reviewer"),
            tau_live.reward(1.0, decision=choice, source="reviewer"),
            tau_live.reward(1.0, session="s", source="reviewer"),
        ]
        with tau_live.run("inner"):
            own.append(tau_live.reward(1.0, run=outer, source="reviewer"))

    assert own == [False] * 6
    assert _refused() == 6


@pytest.mark.usefixtures("strict")
def test_from_outside_and_for_others_rewards_are_taken() -> None:
    with tau_live.run("one") as one:
        pass
    with tau_live.run("other"):
        inside_another = tau_live.reward(1.0, run=one.id, source="reviewer")

    assert inside_another
    assert one.reward(0.5, source="reviewer", name="later")
    assert _refused() == 0


def test_a_source_that_is_not_listed_is_refused_and_counted(strict: Path) -> None:
    with tau_live.run("one") as one:
        pass
    one.reward(1.0, source="agent")

    assert tau_live.flush(10.0)

    tau_live.detach()
    store = SqliteStore.open(strict, read_only=True)
    counts, rewards = store.counters.counts(), store.rewards.rewards(one.id)
    store.close()
    assert counts["rewards_refused_source"] == 1
    assert rewards == []
