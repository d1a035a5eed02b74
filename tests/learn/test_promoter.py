"""Evidence of trials as it is stored, and what follows from it."""

import math
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tau_live.core.records import RolloutStatus, Trial
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredDecision, DeclaredReward
from tau_live.learn.learner import LEASE
from tau_live.learn.promotion.promoter import Promoter, void_test
from tau_live.learn.promotion.rules import OUT_OF_RANGE, Move, Step, trial_at
from tau_live.rl.verdict import Evidence, Outcomes
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import attempt, begun, decision, reward, rollout
from tests.trialled import NOW, Arms, add, advanced, end, fill, moves, serve, settings_of
from tests.writes import writes

pytestmark = pytest.mark.slow


def test_the_evidence_is_that_of_the_rollouts_in_their_order(
    path: Path, store: SqliteStore
) -> None:
    fill(store, 60, Arms(learner=0.6, control=0.5, lost=0.2), seed=1)
    assigned = store.trials.assignments("model", after=0, limit=99)

    advanced(store, settings_of(path))

    known = [one.rollout.total_reward for one in assigned]
    expected = Evidence.none(rewards=(0.0, 1.0)).including(
        Outcomes(
            rewards=np.array([math.nan if one is None else one for one in known]),
            costs=np.full(60, math.nan),
            learner=np.array([one.arm == "learner" for one in assigned]),
            shares=np.full(60, 0.5),
        )
    )
    trial = store.trials.trial("model")
    assert trial.evidence == expected.numbers()
    assert trial.watermark == assigned[-1].place
    assert trial.tally["learner"] + trial.tally["control"] == 60


def test_it_does_not_matter_when_somebody_looked(tmp_path: Path) -> None:
    every = [looked_after(tmp_path / f"{len(sizes)}", sizes) for sizes in SIZES]

    assert every == every[:1] * len(SIZES)
    assert [(move, trial.champion) for moved, trial in every for move in moved[:1]] == [
        (Move.FROZEN, 1)
    ] * len(SIZES)


SIZES = [(300,), (1,) * 300, (7, 250, 43)]


def looked_after(folder: Path, sizes: tuple[int, ...]) -> tuple[list[Move], Trial]:
    """Return what came of the same rollouts when they were counted so many at a time."""
    settings = settings_of(folder / "store.sqlite")
    store = SqliteStore.open(settings.store)
    serve(store, settings, 1)
    steps: list[Step] = []
    for n, size in enumerate(sizes):
        for at in range(sum(sizes[:n]), sum(sizes[:n]) + size):
            add(store, f"r-{at}", learner=at % 2 == 0, share=0.5)
            end(store, f"r-{at}", float(at % 2 == 0))
        steps += advanced(store, settings)
    trial = store.trials.trial("model")
    store.close()
    return moves(steps), replace(trial, watched=0, revision=0)


def test_a_rollout_whose_reward_may_still_come_holds_up_those_behind_it(
    path: Path, store: SqliteStore
) -> None:
    settings = settings_of(path)
    for name in ("a", "b", "c"):
        add(store, name, learner=True, share=0.5)
    end(store, "a", 1.0)
    end(store, "c", 0.0)
    writes(store).set_status("b", RolloutStatus.SUCCEEDED, at=2.0)
    writes(store).await_reward("b", until=NOW + 50.0)

    advanced(store, settings)
    early = store.trials.trial("model").tally
    advanced(store, settings, now=NOW + 60.0)
    late = store.trials.trial("model").tally

    assert (early["learner"], early["learner_known"]) == (1, 1)
    assert (late["learner"], late["learner_known"]) == (3, 2)


def test_a_fifth_that_never_comes_does_not_hold_up_the_others(
    path: Path, store: SqliteStore
) -> None:
    """Their deadline is a day, and everybody else's reward came at once."""
    with store.begin():
        for at in range(2_000):
            name, began = f"r-{at}", NOW + 0.1 * at
            writes(store).begin_rollout(rollout(name, started_at=began))
            writes(store).begin_attempt(attempt(name))
            arm = "learner" if at % 2 else "control"
            writes(store).add_decision(replace(decision(1, name), arm=arm, share=0.5))
            writes(store).set_status(name, RolloutStatus.SUCCEEDED, at=began + 0.05)
            if at % 5 == 4:
                writes(store).await_reward(name, until=began + 86_400.0)
            else:
                writes(store).add_reward(reward(1.0, name, at=began + 0.1))
                writes(store).mark_ready(name, total_reward=1.0)

    advanced(store, settings_of(path), now=NOW + 201.0)

    tally = store.trials.trial("model").tally
    assert tally["seen"] >= 1_980
    assert tally["learner_known"] + tally["control_known"] == pytest.approx(1_600, abs=16)


def test_a_rollout_that_never_ends_is_given_up_after_the_deadline(
    path: Path, store: SqliteStore
) -> None:
    settings = settings_of(path, reward_deadline_s=100.0)
    add(store, "open", learner=True, share=0.5)

    advanced(store, settings, now=100.5)
    early = store.trials.trial("model").tally
    advanced(store, settings, now=101.5)

    assert early == {}
    assert store.trials.trial("model").tally["learner_known"] == 0.0


def test_a_test_can_be_voided_and_begins_anew_with_less_to_spend(
    path: Path, store: SqliteStore
) -> None:
    fill(store, 16, Arms(), seed=5)
    advanced(store, settings_of(path))
    before = store.trials.trial("model")

    void_test(store, "model", reason="drift", who="monitor", at=9.0)

    after = store.trials.trial("model")
    entry = store.audit.entries(limit=1)[0]
    assert (after.test, after.tally, after.evidence) == (2, {}, {})
    assert after.watermark == before.watermark
    assert (entry.action, entry.reason, entry.who) == ("test_restarted", "drift", "monitor")


def test_a_reward_that_comes_before_the_first_end_does_not_hide_a_shadow(
    path: Path, store: SqliteStore
) -> None:
    settings = settings_of(path)
    add(store, "a", learner=False, share=0.0)
    writes(store).add_reward(reward(1.0, "a", name="reward"))
    advanced(store, settings)

    end(store, "a", 1.0)
    advanced(store, settings)

    trial = store.trials.trial("model")
    assert (trial.ladder, trial.exposure) == (True, 0.0)


def test_an_exposure_in_the_settings_is_where_a_point_starts(
    path: Path, store: SqliteStore
) -> None:
    declared = DeclaredDecision(point="model", exposure=0.5)
    fill(store, 16, Arms(), seed=11)

    advanced(store, settings_of(path, decisions=(declared,)))

    trial = store.trials.trial("model")
    assert (trial.ladder, trial.exposure) == (False, 0.5)
    assert trial.tally["seen"] == 16


def test_a_shadow_ends_where_an_exposure_is_set_later(path: Path, store: SqliteStore) -> None:
    settings = settings_of(path)
    for name in ("a", "b"):
        add(store, name, learner=False, share=0.0)
        end(store, name, 1.0)
    advanced(store, settings)
    for name in ("c", "d"):
        add(store, name, learner=True, share=1.0)
        end(store, name, 1.0)

    advanced(store, settings)

    trial = store.trials.trial("model")
    assert (trial.ladder, trial.exposure, trial.test) == (True, 1.0, 2)
    assert (trial.tally["learner"], trial.tally.get("control", 0.0)) == (2.0, 0.0)


def test_without_a_range_nothing_is_claimed_and_the_rollouts_are_counted(
    path: Path, store: SqliteStore
) -> None:
    fill(store, 400, Arms(learner=0.9, control=0.1), seed=10)

    steps = advanced(store, Settings(store=path))

    trial = store.trials.trial("model")
    assert steps == []
    assert (trial.evidence, trial.finding) == ({}, {})
    assert trial.tally["seen"] == 400


def test_another_range_begins_another_test(path: Path, store: SqliteStore) -> None:
    fill(store, 16, Arms(), seed=11)
    advanced(store, settings_of(path))
    fill(store, 16, Arms(), seed=11, start=16)

    advanced(store, Settings(store=path, reward_range=(-1.0, 1.0)))

    trial = store.trials.trial("model")
    assert (trial.test, trial.evidence["test"]) == (2, 2)
    assert trial.evidence["missing_learner_count"] + trial.evidence["missing_control_count"] == 16


def test_rewards_of_decisions_count_and_no_total_leaves_its_range(
    path: Path, store: SqliteStore
) -> None:
    declared = (DeclaredReward(name="reward", range=(0.0, 1.0)),)
    settings = Settings(store=path, rewards=declared)
    for name, total in (("a", -2.0), ("b", 0.0)):
        add(store, name, learner=True, share=0.5)
        end(store, name, total)
    of_decision = reward(0.5, "b", name="reward", decision_id="b:attempt-1:decision-1")
    writes(store).add_reward(of_decision)

    advanced(store, settings)

    trial = store.trials.trial("model")
    assert trial.evidence["reward_learner_total"] == 0.5
    assert trial.evidence["reward_learner_count"] == 2.0


@pytest.mark.parametrize(("outside", "promoted"), [(12, True), (200, False)])
def test_nothing_is_claimed_while_more_than_a_few_rewards_are_outside_their_range(
    path: Path, store: SqliteStore, outside: int, *, promoted: bool
) -> None:
    settings = settings_of(path)
    serve(store, settings, 1)
    with store.begin():
        for at in range(1_200):  # the learner earns 1, or -1, which counts as the range's 0
            add(store, f"r-{at}", learner=bool(at % 2), share=0.5)
            far = at % 2 and at // 2 % 600 < outside
            end(store, f"r-{at}", -1.0 if far else float(at % 2))

    steps = advanced(store, settings)

    assert (Move.FROZEN in moves(steps)) is promoted
    facts = trial_at(store, "model", settings, now=NOW)
    assert facts is not None
    assert (facts["verdict"] == "out_of_range") is not promoted
    if not promoted:
        assert facts["why"] == f"{OUT_OF_RANGE}: 200 of 1,200 rollouts"
        assert facts["difference"] == {
            "estimate": pytest.approx(1.0 / 3.0), "lower": None, "upper": None, "plain": True,
        }  # fmt: skip


@pytest.mark.parametrize(
    ("span", "promoted"),
    [
        pytest.param(None, False, id="each is in its range, and their total is not"),
        pytest.param((0.0, 2.0), True, id="the operator expects two of them"),
    ],
)
def test_totals_of_several_sources_outside_the_range_keep_a_difference_from_being_claimed(
    path: Path, store: SqliteStore, span: tuple[float, float] | None, *, promoted: bool
) -> None:
    declared = (DeclaredReward(name="reward", range=(0.0, 1.0)),)
    settings = Settings(store=path, rewards=declared, reward_range=span)
    serve(store, settings, 1)
    with store.begin():
        for at in range(1_200):
            is_learner = at % 2 == 1
            add(store, f"r-{at}", learner=is_learner, share=0.5)
            if is_learner and at % 12 == 1:
                other = reward(1.0, f"r-{at}", name="reward", source="reviewer")
                writes(store).add_reward(other)
                end(store, f"r-{at}", 1.0, total=2.0)
            else:
                end(store, f"r-{at}", float(is_learner))

    steps = advanced(store, settings)

    assert (Move.FROZEN in moves(steps)) is promoted
    facts = trial_at(store, "model", settings, now=NOW)
    assert facts is not None
    assert (facts["verdict"] == "out_of_range") is not promoted


def test_what_was_outside_another_range_is_past(path: Path, store: SqliteStore) -> None:
    settings = settings_of(path)
    serve(store, settings, 1)
    for start in (0, 400):
        with store.begin():
            for at in range(start, start + 400):
                add(store, f"r-{at}", learner=bool(at % 2), share=0.5)
                end(store, f"r-{at}", float(at % 2) - 0.5)
        steps = advanced(store, settings)
        settings = Settings(store=path, reward_range=(-1.0, 1.0))

    assert Move.FROZEN in moves(steps)


def test_rewards_left_out_for_their_own_range_keep_a_difference_from_being_claimed(
    path: Path, store: SqliteStore
) -> None:
    settings = Settings(store=path, rewards=(DeclaredReward(name="reward", range=(0.0, 1.0)),))
    serve(store, settings, 1)
    with store.begin():
        for at in range(800):
            add(store, f"r-{at}", learner=bool(at % 2), share=0.5)
            if at % 16 < 2:
                writes(store).add_reward(reward(7.0, f"r-{at}", name="reward"))
                writes(store).leave_out(f"r-{at}", "reward_out_of_range")
                end(store, f"r-{at}", None)
            else:
                end(store, f"r-{at}", float(at % 2))

    steps = advanced(store, settings)

    assert Move.FROZEN not in moves(steps)
    assert store.trials.trial("model").finding["verdict"] == "out_of_range"


def test_while_another_process_has_the_lease_nothing_is_counted(
    path: Path, store: SqliteStore
) -> None:
    fill(store, 8, Arms(), seed=12)
    store.leases.acquire(f"{LEASE}model", "elsewhere:1:2", ttl_s=30.0)
    promoter = Promoter(store, settings_of(path), holder="test")

    assert promoter.advance(now=NOW) == []
    assert store.trials.trial("model").revision == 0


def test_points_are_counted_apart(path: Path, store: SqliteStore) -> None:
    begun(store, "other")
    add(store, "a", learner=True, share=0.5)
    add(store, "b", learner=False, share=0.0, point="tools")
    for name in ("a", "b"):
        end(store, name, 1.0)

    advanced(store, settings_of(path))

    found = store.trials.trials()
    assert {point: trial.ladder for point, trial in found.items()} == {
        "model": False,
        "tools": True,
    }
    assert found["tools"].exposure == 0.0


def test_a_change_takes_the_champion_down_and_what_was_decided_before_it_proves_nothing(
    path: Path, store: SqliteStore
) -> None:
    """The rewards of 40 rollouts come after the alarm, and were decided before it."""
    settings = settings_of(path)
    store.trials.save(Trial(point="model", champion=3, previous=2, kept=9, revision=1))
    for at in range(40):
        add(store, f"r-{at}", learner=at % 2 == 0, share=0.5)

    void_test(store, "model", reason="drift", who="learner", at=9.0)
    for at in range(40):
        end(store, f"r-{at}", float(at % 2 == 0))
    fill(store, 8, Arms(), seed=5, start=40)
    advanced(store, settings)

    trial = store.trials.trial("model")
    assert (trial.champion, trial.previous, trial.control) == (None, None, None)
    assert trial.kept == 1  # the probation goes on, and counts the eight
    assert trial.tally["seen"] == 8
    assert store.audit.entries()[0].details["champion"] == 3


def test_frozen_is_the_version_that_earned_it(path: Path, store: SqliteStore) -> None:
    settings = settings_of(path)
    for version in range(1, 6):
        serve(store, settings, version, parent=version - 1)
    for at in range(300):
        decided_by(store, f"r-{at}", 2, learner=at % 2 == 0)
        end(store, f"r-{at}", float(at % 2 == 0))

    steps = advanced(store, settings)

    assert moves(steps) == [Move.FROZEN]
    assert store.trials.trial("model").champion == 2
    assert store.policies.in_service()["model"].version == 5


@pytest.mark.parametrize(
    ("later", "expected"), [(1.0, Move.FROZEN), (0.0, Move.RESTARTED)], ids=["as before", "fallen"]
)
def test_what_collapsed_since_is_not_promoted_for_what_it_was(
    path: Path, store: SqliteStore, later: float, expected: Move
) -> None:
    """The evidence is counted in its order, and what is known by now is far ahead of it."""
    settings = settings_of(path)
    serve(store, settings, 1)
    for at in range(300):
        decided_by(store, f"before-{at}", 1, learner=at % 2 == 0)
        end(store, f"before-{at}", float(at % 2 == 0))
    for at in range(128):
        decided_by(store, f"after-{at}", 1, learner=at % 2 == 0)
        end(store, f"after-{at}", later)

    steps = advanced(store, settings)

    assert moves(steps) == [expected]
    trial = store.trials.trial("model")
    assert trial.champion == (1 if later else None)
    assert trial.since == (0 if later else store.trials.newest_place("model"))


def decided_by(store: SqliteStore, name: str, version: int, *, learner: bool) -> None:
    """Begin a rollout that a version decided, or the control."""
    begun(store, name)
    arm = "learner" if learner else "control"
    row = replace(decision(1, name), arm=arm, share=0.5, policy_version=version)
    writes(store).add_decision(row)
