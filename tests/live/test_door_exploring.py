"""Options that are unsafe to explore, through the public door: stored, learned from, explained."""

from pathlib import Path

import numpy as np
import pytest

import tau_live
from tau_live.core.settings import Settings
from tau_live.operate.why import recompute
from tau_live.store.sqlite.store import SqliteStore
from tests.live.running import decisions, exported, opened

pytestmark = pytest.mark.slow

NAMES = ["careful", "bold", "reckless"]


def worked(count: int, *, first: int = 0) -> list[str]:
    """Make runs in which ``reckless`` is worst, learn, and return their ids."""
    ids = []
    for number in range(first, first + count):
        with tau_live.run("work", key=number) as run:
            choice = run.decide(
                "model", NAMES, context={"n": number % 3}, exploit_only=["reckless", "absent"]
            )
            run.reward({"careful": 0.6, "bold": 1.0, "reckless": 0.0}[choice.option])
            ids.append(run.id)
        if number % 8 == 7:
            assert tau_live.flush(30)
    return ids


def test_it_is_stored_learned_from_and_recomputed_to_the_last_digit(
    live: Path, settings: Settings
) -> None:
    ids = worked(64)

    rows = [decisions(live, id_)[0] for id_ in ids]
    with opened(live) as store:
        told = [recompute(store, settings, row) for row in rows]
        executed = [row.executed for row in store.policies.updates(point="model")]
    assert {row.exploit_only for row in rows} == {("reckless",)}
    assert executed.count(True) > 4
    assert max(row.policy_version for row in rows) > 4
    assert max(one.difference or 0.0 for one in told) < 1e-9
    assert [one.problem for one in told] == [None] * len(told)


def test_an_option_that_is_bad_falls_below_the_floor_that_others_keep(live: Path) -> None:
    worked(160)

    with tau_live.run("last") as run:
        run.decide("model", NAMES, context={"n": 1}, exploit_only=["reckless"])
    assert tau_live.flush(30)

    careful, bold, reckless = decisions(live, run.id)[0].probabilities
    assert reckless < 0.001
    assert min(careful, bold) >= 0.005 * (1 - 1e-9)
    assert np.isclose(careful + bold + reckless, 1.0)


def test_what_cannot_be_read_is_counted_and_the_host_keeps_its_choice(live: Path) -> None:
    with tau_live.run("work") as run:
        choice = run.decide("model", NAMES, default="bold", exploit_only={"reckless": True})

    refused = tau_live.snapshot()["refused"]
    assert (choice.option, choice.source) == ("bold", "default")
    assert isinstance(refused, dict)
    assert refused["masks_refused"] == 1
    assert live.exists()


def test_without_a_run_it_is_stored_too_and_exported(live: Path) -> None:
    tau_live.decide("model", NAMES, exploit_only="reckless")
    assert tau_live.flush(30)

    store = SqliteStore.open(live)
    store.close()
    assert any("reckless" in str(row) and "exploit_only" in str(row) for row in exported(live))
