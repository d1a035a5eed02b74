"""A damaged row in the store changes no probability, and does not stop what is learned."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tau_live
from tau_live.learning.learner import Learner
from tau_live.policies.files import checkpoint_folder, load_policy
from tau_live.reasons import WhyNot
from tau_live.rl.features import encode, pack
from tau_live.rollouts import RolloutStatus
from tau_live.settings import Settings
from tau_live.store.roles import Store
from tests.contracts.making import attempt, decision, reward, rollout
from tests.live.running import gate, opened, rounds

GOOD = encode({"words": 3.0}, [("small", None), ("large", None)])
NAN = GOOD._replace(values=np.full_like(GOOD.values, np.nan))
INFINITE = GOOD._replace(values=np.full_like(GOOD.values, np.inf))

POISONS = {
    "nan features": "update decisions set encoded = :nan",
    "infinite features": "update decisions set encoded = :infinite",
    "damaged features": "update decisions set encoded = x'0102030405'",
    "cut features": "update decisions set encoded = substr(encoded, 1, 9)",
    "no features": "update decisions set encoded = x''",
    "propensity 0": "update decisions set propensity = 0.0",
    "negative propensity": "update decisions set propensity = -0.5",
    "tiny propensity": "update decisions set propensity = 1e-308",
    "propensity above 1": "update decisions set propensity = 7.0",
    "infinite propensity": "update decisions set propensity = 9e999",
    "infinite value": "update decisions set value = 9e999",
    "foreign choice": "update decisions set applied = 'other', chosen = 'other'",
}


def add(store: Store, number: int, *, total: float, point: str = "model") -> str:
    """Store a finished and rewarded rollout with one decision."""
    rollout_id = f"live-{number}"
    store.rollouts.begin_rollout(rollout(rollout_id))
    store.rollouts.begin_attempt(attempt(rollout_id))
    row = decision(1, rollout_id)
    chosen = row.options[number % 2]
    store.decisions.add_decision(
        replace(row, point=point, chosen=chosen, applied=chosen, propensity=0.5,
                probabilities=(0.5, 0.5), value=0.0, policy_version=0, arm="learner",
                encoded=pack(GOOD))
    )  # fmt: skip
    store.rewards.add_reward(reward(total, rollout_id))
    store.rollouts.set_status(rollout_id, RolloutStatus.SUCCEEDED, at=9.0)
    store.rewards.mark_ready(rollout_id, total_reward=total)
    return rollout_id


def worth(number: int) -> float:
    """Return a reward that says a little about the choice."""
    return float((number // 2) % 2) + 0.25 * (number % 2)


def probabilities(path: Path, settings: Settings) -> list[float]:
    """Return what serves, as the probabilities of one decision."""
    with opened(path) as store:
        version = store.policies.in_service()["model"].version
        policy = load_policy(checkpoint_folder(settings), store.policies.version(version))
    found: list[float] = policy.probabilities(GOOD, default=None).tolist()
    return found


def learn(path: Path, settings: Settings, sql: str | None) -> list[float]:
    """Store 16 good rollouts and, between them, perhaps a poisoned one; learn from them."""
    with opened(path) as store:
        for number in range(16):
            if number == 7 and sql is not None:
                bad = add(store, 100, total=1.0)
                values = {"nan": pack(NAN), "infinite": pack(INFINITE)}
                where = f"where rollout_seq = (select seq from rollouts where rollout_id = '{bad}')"
                store._connection.change(f"{sql} {where}", values)
            add(store, number, total=worth(number))
        learned = Learner(store, settings, holder="test").run_next(now=1.0)
    assert learned is not None
    assert learned.update.executed, learned.update
    return probabilities(path, settings)


@pytest.mark.parametrize("name", POISONS)
def test_a_poisoned_decision_changes_no_probability(tmp_path: Path, name: str) -> None:
    clean, bad = tmp_path / "clean" / "s.sqlite", tmp_path / "bad" / "s.sqlite"

    expected = learn(clean, Settings(store=clean), None)
    found = learn(bad, Settings(store=bad), POISONS[name])

    assert found == expected
    assert all(0.0 < probability < 1.0 for probability in found)


@pytest.mark.parametrize("total", [1e200, -1e300, 1.7e308])
def test_a_reward_beyond_what_can_be_learned_from_is_left_out(path: Path, total: float) -> None:
    settings = Settings(store=path)
    with opened(path) as store:
        for number in range(12):
            add(store, number, total=total if number == 5 else worth(number))
        learned = Learner(store, settings, holder="test").run_next(now=1.0)

    assert learned is not None
    assert (learned.update.executed, learned.update.trajectories) == (True, 11)
    assert learned.update.report["left_out"] == {WhyNot.REWARD_NOT_FINITE: 1}
    assert np.isfinite(probabilities(path, settings)).all()


def test_a_rollout_that_breaks_an_update_is_left_out_of_it(path: Path) -> None:
    settings = Settings(store=path)
    with opened(path) as store:
        ids = [add(store, number, total=worth(number)) for number in range(12)]
    with sqlite3.connect(path) as other:
        other.execute("update decisions set encoded = ? where rollout_seq = 6", (pack(INFINITE),))
    other.close()

    with opened(path) as store:
        learned = Learner(store, settings, holder="test").run_next(now=1.0)

    assert learned is not None
    assert (learned.update.executed, learned.update.trajectories) == (True, len(ids) - 1)
    assert learned.update.report["left_out"] == {WhyNot.BREAKS_UPDATE: 1}
    assert np.isfinite(probabilities(path, settings)).all()


@pytest.mark.slow
def test_a_nan_in_the_store_does_not_stop_a_live_process(live: Path) -> None:
    ids = rounds(7)
    assert tau_live.flush(30)
    with sqlite3.connect(live, timeout=10) as other:
        other.execute("update rollouts set total_reward = 9e999 where rollout_id = ?", (ids[2],))
        other.execute("update rewards set value = 9e999 where rollout_id = ?", (ids[3],))
    other.close()

    rounds(17, start=7)
    assert tau_live.flush(30)

    with opened(live) as store:
        assert any(update.executed for update in store.policies.updates())
    assert gate()["state"] == "pass"
    serving = tau_live.snapshot()["policies_in_service"]
    assert isinstance(serving, dict)
    assert serving["model"] >= 1
