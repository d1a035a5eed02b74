"""What the monitors see in a live system, what holds the gate by it, and what a restart forgets."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

import tau_live
from tau_live.core.records import Monitor
from tau_live.core.settings import Learner as LearnerMode
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredReward
from tau_live.learn.learner import Learner
from tau_live.rl.config import PPOConfig
from tau_live.store.sqlite.store import SqliteStore
from tests.live.running import until

HARM = DeclaredReward(name="harm", cost=True)
SOLVED = DeclaredReward(name="solved")
OPTIONS = ("a", "b")
Worth = Callable[[str, float], float]


def lived(
    settings: Settings, count: int, worth: Worth, *, harm: float | None = None, first: int = 0
) -> dict[str, object]:
    """Make runs one after the other, learn in between, and return the snapshot."""
    assert tau_live.attach(settings) is not None
    for number in range(first, first + count):
        rng = random.Random(number)
        with tau_live.run("work", key=f"run-{number}") as run:
            choice = run.decide("model", list(OPTIONS))
            run.reward(worth(choice.option, rng.random()), name="solved")
            if harm is not None:
                run.reward(float(rng.random() < harm), name="harm")
        if number % 8 == 7 and settings.learner is not LearnerMode.OFF:
            tau_live.flush()
    snapshot = tau_live.snapshot()
    tau_live.detach()  # stores what is left
    return snapshot


def even(choice: str, at: float) -> float:
    return float(at < (0.8 if choice == "a" else 0.5))


def _rate(choice: str, at: float, *, b: float) -> float:
    return float(at < (0.5 if choice == "a" else b))


def gate_of(path: Path) -> tuple[str, str | None]:
    store = SqliteStore.open(path)
    try:
        row = store.gate.load()
        return row.state, row.reason
    finally:
        store.close()


def monitor_of(path: Path) -> Monitor:
    store = SqliteStore.open(path)
    try:
        return store.monitors.monitor("model")
    finally:
        store.close()


def vars_of(monitor: Monitor) -> dict[str, object]:
    """Return everything that a monitor remembers, side by side."""
    return {**structs.asdict(monitor), **monitor.numbers, "numbers": None}


@pytest.fixture
def calm(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Learn inside ``flush`` alone, so that the same runs are learned from in the same updates."""
    tau_live.detach()
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    return replace(settings, learner=LearnerMode.FLUSH, rewards=(SOLVED, HARM))


@pytest.mark.slow
def test_the_figures_stand_in_snapshot_report_and_store(calm: Settings, path: Path) -> None:
    snapshot = lived(calm, 32, even, harm=0.0)

    monitors, report = snapshot["monitors"], snapshot["last_report"]
    assert isinstance(monitors, dict)
    assert isinstance(report, dict)
    assert monitors["model"]["rollouts"] == 32
    assert monitors["model"]["sources"] == {"api": 1.0}
    assert monitors["model"]["cost"] == 0.0
    assert report["monitors"]["entropy"] == monitors["model"]["entropy"]
    assert monitor_of(path).watermark == 32


@pytest.mark.slow
def test_too_much_harm_holds_the_gate_and_a_reset_begins_anew(calm: Settings, path: Path) -> None:
    limited = replace(calm, cost_limit=0.1)

    lived(limited, 80, even, harm=0.6)

    assert gate_of(path) == ("hold", "violations_over_limit")
    reset(path)
    lived(limited, 40, even, harm=0.0, first=80)
    assert gate_of(path) == ("pass", None)


def reset(path: Path) -> None:
    from tau_live.core.gate_keeper import GateKeeper

    store = SqliteStore.open(path)
    keeper = GateKeeper(limit=3, who="test")
    keeper.refresh(store.gate)
    keeper.reset("mended", who="tests", at=2e9)
    keeper.refresh(store.gate)
    store.close()


@pytest.mark.slow
def test_as_much_harm_as_is_allowed_holds_nothing(calm: Settings, path: Path) -> None:
    snapshot = lived(replace(calm, cost_limit=0.5), 80, even, harm=0.2)

    assert gate_of(path) == ("pass", None)
    assert isinstance(snapshot["monitors"], dict)
    assert snapshot["monitors"]["model"]["costs"] == 80


@pytest.mark.slow
def test_a_bound_of_choices_holds_only_where_it_is_set(calm: Settings, path: Path) -> None:
    lived(calm, 96, even)
    assert gate_of(path) == ("pass", None)

    lived(replace(calm, option_share_limit=0.3), 32, even, first=96)

    assert gate_of(path) == ("hold", "choices_collapsed")


@pytest.mark.slow
def test_an_option_that_becomes_worse_is_told_and_voids_the_test(
    calm: Settings, path: Path
) -> None:
    lived(calm, 160, even)
    snapshot = lived(
        replace(calm, drift_holds=True), 120, lambda _choice, at: float(at < 0.05), first=160
    )

    alarms = monitor_of(path).alarms
    assert alarms
    assert {alarm["direction"] for alarm in alarms} == {"worse"}
    assert monitor_of(path).since >= 160
    assert gate_of(path) == ("hold", "option_became_worse")
    assert isinstance(snapshot["counters"], dict)
    assert snapshot["counters"]["drift_alarms"] == len(alarms)


@pytest.mark.slow
def test_after_an_option_became_better_recent_evidence_decides(calm: Settings, path: Path) -> None:
    """Without fading both kinds of evidence foresee the same: only the alarm prefers one."""
    quiet = replace(calm, learner=LearnerMode.OFF, exploration=0.5)
    found: list[tuple[list[str], bool]] = []

    for first in range(0, 200, 8):
        rate = 1.0 if first >= 120 else 0.0
        lived(quiet, 8, partial(_rate, b=rate), first=first)
        store = SqliteStore.open(path)
        learner = Learner(store, quiet, holder="test", ppo=PPOConfig(fading=0.0))
        result = learner.run_next(now=1.0)
        assert result is not None
        alarms = [str(alarm["direction"]) for alarm in store.monitors.monitor("model").alarms]
        found.append((alarms, bool(result.update.report.get("recent_evidence"))))
        store.close()

    assert found[-1][0] == ["better"]
    assert all(decides == bool(alarms) for alarms, decides in found)


@pytest.mark.slow
def test_stopped_and_started_again_it_remembers_the_same(
    calm: Settings, path: Path, tmp_path: Path
) -> None:
    other = replace(calm, store=tmp_path / "other.sqlite", cost_limit=0.5)
    lived(other, 64, even, harm=0.2)

    for first in range(0, 64, 8):
        lived(replace(calm, cost_limit=0.5), 8, even, harm=0.2, first=first)

    one, two = monitor_of(path), monitor_of(other.store)
    costs = one.numbers["costs"], two.numbers["costs"]  # the hour is another
    assert {**vars_of(one), "costs": None} == {**vars_of(two), "costs": None}
    assert [isinstance(known, dict) and known["rewarded"] for known in costs] == [128, 128]


@pytest.mark.slow
def test_a_rollout_is_seen_once_though_an_update_was_skipped(calm: Settings, path: Path) -> None:
    lived(calm, 16, lambda _choice, _at: 1.0)  # rewards that are all the same teach nothing
    drift = monitor_of(path).numbers["drift"]
    lived(calm, 16, even, first=16)

    seen = monitor_of(path)
    assert seen.watermark == 32
    assert drift is not None
    charts = seen.numbers["drift"]
    assert isinstance(charts, dict)
    total = sum(chart["seen"] for name, chart in charts.items() if name != "counters")
    assert total <= 32


@pytest.mark.slow
def test_the_test_of_the_arms_is_voided_in_the_transaction_that_stores_the_alarm(
    calm: Settings, path: Path
) -> None:
    lived(calm, 160, even)
    lived(replace(calm, learner=LearnerMode.OFF), 120, lambda *_: 0.0, first=160)
    store = SqliteStore.open(path)
    voided: list[tuple[str, int]] = []

    def void(point: str, _at: float) -> None:
        voided.append((point, store.counters.counts()["drift_alarms"]))
        assert store.monitors.monitor(point).alarms
        raise RuntimeError("killed before it is committed")

    learner = Learner(store, calm, holder="test", void=void)
    with pytest.raises(RuntimeError, match="killed"):
        while learner.run_next(now=1.0):
            pass

    assert voided == [("model", 1)]
    assert not store.monitors.monitor("model").alarms
    assert "drift_alarms" not in store.counters.counts()
    store.close()


@pytest.mark.slow
def test_rewards_that_never_come_hold_the_gate(calm: Settings, path: Path) -> None:
    """64 runs end without the reward that is waited for; their deadline is over at once."""
    primary = DeclaredReward(name="solved", primary=True, deadline_s=1e-6)
    strict = replace(calm, rewards=(primary,), missing_reward_limit=0.3)
    assert tau_live.attach(strict) is not None
    with tau_live.run("work", key="first") as run:
        run.reward(1.0, name="solved")
    tau_live.flush()

    for number in range(80):
        with tau_live.run("work", key=f"silent-{number}"):
            pass
    tau_live.flush()

    until(lambda: tau_live.snapshot()["gate"]["reason"] == "rewards_missing")  # type: ignore[index]
    tau_live.detach()
    assert gate_of(path) == ("hold", "rewards_missing")
