"""What monitors remember: nonsense is forgotten, and rewards that stay away are counted once."""

from pathlib import Path

import pytest

from tau_live.core.reasons import WhyNot
from tau_live.core.records import (
    LearnableRollout,
    Monitor,
    MonitorNumbers,
    Rollout,
    RolloutStatus,
)
from tau_live.core.settings import Settings
from tau_live.learn.monitoring import (
    FEWEST,
    MISSING,
    RECOUNT_AFTER,
    MissingWatch,
    Reason,
    drift_of,
    figures,
    monitor_figures,
)
from tau_live.operate.alert_rules import incidents_in
from tau_live.operate.status import status_of
from tau_live.rl.drift import Drift, DriftRule
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import begun, ready
from tests.writes import forget_old, writes


def test_rewards_that_stay_away_hold_once_and_then_count_anew() -> None:
    watch = MissingWatch(0.3)
    watch.check(100, 900)  # what was before this process began

    looks = [watch.check(100, 900 + more) for more in (FEWEST - 1, FEWEST, FEWEST + 9)]

    assert [one.reason if one else None for one in looks] == [None, Reason.MISSING, None]


def test_a_long_good_past_hides_no_bad_present() -> None:
    watch = MissingWatch(0.3)
    for came in range(0, 20 * RECOUNT_AFTER, RECOUNT_AFTER):
        assert watch.check(came, 0) is None

    assert watch.check(19 * RECOUNT_AFTER, 2 * FEWEST) is not None


@pytest.mark.slow
def test_a_store_that_forgets_misses_no_more_rewards_than_came(tmp_path: Path) -> None:
    """One in five is missing, and all are forgotten: as many are stored at each look."""
    settings = Settings(store=tmp_path / "store.sqlite")
    store, watch = SqliteStore.open(settings.store), MissingWatch(0.3)
    said_of: list[str] = []
    for number in range(10 * FEWEST):
        if number % 5:
            ready(store, f"live-{number}")
        else:
            begun(store, f"live-{number}")
            writes(store).set_status(f"live-{number}", RolloutStatus.FAILED, at=5.0)
            writes(store).leave_out(f"live-{number}", WhyNot.REWARD_MISSING)
        forget_old(store, before=100.0, limit=10)
        if number % 50 == 0:
            said = status_of(store, settings, now=6.0)
            missing = said.counters.get(MISSING, 0)
            hold = watch.check(said.became_ready, missing, waiting=said.waiting_for_reward)
            found = incidents_in(said, {}, settings)
            said_of += [hold.detail] if hold else []
            said_of += [one.sentence for one in found if one.sentence]

    store.close()
    assert said_of == []


def test_without_a_limit_nothing_is_counted() -> None:
    watch = MissingWatch(None)
    watch.check(0, 0)

    assert watch.check(0, 5_000) is None


@pytest.mark.parametrize(
    "numbers",
    [{}, {"drift": {"counters": {}}}, {"drift": {"option:a": {"mean": 0.0}}}],
)
def test_charts_that_make_no_sense_begin_anew(numbers: MonitorNumbers) -> None:
    monitor = Monitor(point="model", numbers=numbers)

    assert drift_of(monitor) == Drift.none()
    assert monitor_figures(monitor).rollouts == 0


def test_stored_figures_that_make_no_sense_are_not_shown() -> None:
    monitor = Monitor(
        point="model", numbers={"figures": {"rollouts": "x"}, "limits": (0.0, 2.0), "outliers": 3}
    )

    shown = monitor_figures(monitor)

    assert (shown.rollouts, shown.highest_reward, shown.outliers) == (0, 2.0, 3)


def test_a_rollout_whose_total_cannot_be_read_is_in_no_mean() -> None:
    known = Rollout(rollout_id="a", total_reward=2.0)
    both = [LearnableRollout(one, [], []) for one in (known, Rollout(rollout_id="b"))]

    assert figures(both, "model", costs=[None, None]).reward_mean == 2.0


def test_charts_are_remembered_bit_for_bit() -> None:
    drift, _ = Drift.none().including([("a", 0.1 * n % 0.7) for n in range(90)], DriftRule())

    found = drift_of(Monitor(point="model", numbers={"drift": drift.numbers()}))

    assert found == drift


def test_what_waited_when_the_gate_was_reset_does_not_hold_it_again() -> None:
    watch = MissingWatch(0.3)
    watch.check(500, 0)
    watch.check(500, 100, waiting=250, holds=True)

    reset = watch.check(500, 100, waiting=250)
    old = watch.check(560, 350, waiting=40)
    new = watch.check(560, 350 + 2 * FEWEST, waiting=40)

    assert reset is None
    assert old is None
    assert new is not None
