"""A damaged row in the store changes no probability, and does not stop what is learned."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

import tau_live
from tau_live.core.reasons import WhyNot
from tau_live.core.records import RolloutStatus
from tau_live.core.settings import Learner as Where
from tau_live.core.settings import Settings
from tau_live.decisions.policies import load_policy
from tau_live.learn.learner import Learner
from tau_live.learn.monitoring import monitor_figures
from tau_live.record.rewards import taken_by_safety
from tau_live.rl.bounds import Fence
from tau_live.rl.features import encode, pack
from tau_live.store.roles import Store
from tests import learnables
from tests.contracts.making import attempt, decision, reward, rollout
from tests.learnables import collected, learnable
from tests.live.running import gate, opened, rounds
from tests.writes import writes

pytestmark = pytest.mark.slow

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
    writes(store).begin_rollout(rollout(rollout_id))
    writes(store).begin_attempt(attempt(rollout_id))
    row = decision(1, rollout_id)
    chosen = row.options[number % 2]
    writes(store).add_decision(
        structs.replace(row, point=point, chosen=chosen, applied=chosen, propensity=0.5,
                probabilities=(0.5, 0.5), value=0.0, policy_version=0, arm="learner",
                encoded=pack(GOOD))
    )  # fmt: skip
    writes(store).add_reward(reward(total, rollout_id))
    writes(store).set_status(rollout_id, RolloutStatus.SUCCEEDED, at=9.0)
    writes(store).mark_ready(rollout_id, total_reward=total)
    return rollout_id


def worth(number: int) -> float:
    """Return a reward that says a little about the choice."""
    return float((number // 2) % 2) + 0.25 * (number % 2)


def probabilities(path: Path, settings: Settings) -> list[float]:
    """Return what serves, as the probabilities of one decision."""
    with opened(path) as store:
        version = store.policies.in_service()["model"].version
        policy = load_policy(store.checkpoints, store.policies.version(version))
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


def lived(lie: float, *, seed: int) -> float:
    """Return how often the bad option was taken lately, with 5 % of the rewards being lies."""
    rng = np.random.default_rng(seed)
    taken: list[object] = []
    for number in range(400):
        with tau_live.run("lied to", key=number) as run:
            choice = run.decide("model", ["good", "bad"])
            option = choice.option
            assert choice.source == "policy"
            worth = float(rng.random() < (0.8 if option == "good" else 0.2))
            if rng.random() < 0.05:
                worth = lie if option == "bad" else -lie
            run.reward(worth)
        taken.append(option)
        if number % 8 == 7:
            assert tau_live.flush(60)
    return taken[-200:].count("bad") / 200


@pytest.mark.parametrize("lie", [3.0, 100.0, 1e6])
def test_one_user_in_twenty_does_not_own_the_policy(
    live: Path, settings: Settings, lie: float
) -> None:
    tau_live.detach()
    tau_live.attach(replace(settings, stream="lies", learner=Where.FLUSH, seed=3))

    bad = lived(lie, seed=4)

    tau_live.detach()
    assert bad < 0.1
    with opened(live) as store:
        found = monitor_figures(store.monitors.monitor("model"))
        counted = store.counters.counts().get("reward_outliers", 0)
    if lie > 3.0:
        assert (found.lowest_reward, found.highest_reward) == (0.0, 1.0)
        assert found.outliers == pytest.approx(13, abs=10)  # 5 % of 256
        assert counted >= 10


def test_a_declared_reward_is_no_outlier_however_rare(path: Path) -> None:
    """A jackpot within the range counts in full; one beyond it counts as the range's end."""
    expected = learned_from(path, jackpot=40.0, within=(0.0, 40.0))

    assert learned_from(path.with_name("b.sqlite"), jackpot=90.0, within=(0.0, 40.0)) == expected
    assert learned_from(path.with_name("c.sqlite"), jackpot=40.0, within=None) != expected


def test_rewards_that_are_often_outside_the_range_set_for_them_count_as_they_came(
    path: Path,
) -> None:
    """A range that is wrong must not make the worse option look like the better one."""
    found = []
    for name, within in (("set", (0.0, 1.0)), ("none", None)):
        settings = Settings(store=path.with_name(name) / "s.sqlite", reward_range=within)
        with opened(settings.store) as store:
            for number in range(64):  # the second option earns less, and half of it is below 0
                total = (-1.0 if number % 4 == 1 else 1.0) if number % 2 else 0.1
                add(store, number, total=total if number % 8 != 3 else -1.0)
            assert Learner(store, settings, holder="test").run_next(now=1.0) is not None
        found.append(probabilities(settings.store, settings))

    assert found[0] == found[1]
    assert found[0][0] > found[0][1]


def learned_from(path: Path, *, jackpot: float, within: tuple[float, float] | None) -> list[float]:
    settings = Settings(store=path, reward_range=within, max_rollouts_per_update=32)
    with opened(path) as store:
        for number in range(32):
            add(store, number, total=jackpot if number == 5 else worth(number))
        assert Learner(store, settings, holder="test").run_next(now=1.0) is not None
    return probabilities(path, settings)


def test_what_safety_takes_away_is_no_outlier() -> None:
    penalty = learnables.reward(-50.0, source="safety", name="safety.penalty_total")
    taken = learnables.decision(1)
    rows = [learnable(taken, total_reward=worth(number)) for number in range(11)]
    rows.append(learnable(taken, total_reward=-49.0, rewards=(penalty,)))
    rows.append(learnable(taken, total_reward=950.0, rewards=(penalty,)))
    found = collected(*rows, taken=lambda one: taken_by_safety(one, Settings()))

    limits = Fence().including(found.extremes()).limits
    bounded, beyond = found.within(limits)

    assert limits == (0.0, 1.25)
    assert len(beyond) == 1
    assert bounded.trajectories is not None
    assert bounded.trajectories.reward[-2:].tolist() == [-49.0, 1.25 - 50.0]
