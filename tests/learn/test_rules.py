"""What follows from evidence: rungs, champions, the way back, and being taken out."""

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from tau_live.core.records import Trial
from tau_live.core.settings import Settings
from tau_live.learn.promotion.rules import Move, Step, evidence_of, finding_of
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import reward
from tests.trialled import (
    GATED,
    HARM,
    Arms,
    add,
    advanced,
    end,
    fill,
    harm,
    moves,
    serve,
    settings_of,
)
from tests.writes import writes

pytestmark = pytest.mark.slow


def test_a_learner_that_is_clearly_better_is_frozen_and_its_control_keeps_a_share(
    path: Path, store: SqliteStore
) -> None:
    settings = settings_of(path)
    serve(store, settings, 1)
    fill(store, 600, Arms(learner=0.9, control=0.3), seed=2)

    steps = advanced(store, settings)

    trial = store.trials.trial("model")
    entry = store.audit.entries(limit=1)[0]
    assert moves(steps) == [Move.FROZEN]
    assert (trial.champion, trial.previous, trial.control, trial.test) == (1, None, None, 2)
    assert 0 < trial.kept < settings.probation
    assert (entry.action, entry.who, entry.details["champion"]) == ("champion_frozen", "test", 1)
    assert "better than the control" in entry.reason


def test_of_two_arms_that_are_the_same_none_is_promoted(path: Path, store: SqliteStore) -> None:
    settings = settings_of(path)
    serve(store, settings, 1)
    fill(store, 2_000, Arms(), seed=3)

    steps = advanced(store, settings)

    trial = store.trials.trial("model")
    assert Move.FROZEN not in moves(steps)
    assert trial.champion is None
    assert trial.finding["verdict"] == "wait"


def test_a_champion_that_turns_out_worse_goes_and_the_one_before_comes_back(
    path: Path, store: SqliteStore
) -> None:
    settings = settings_of(path)
    serve(store, settings, 1)
    serve(store, settings, 2, parent=1)
    store.trials.save(Trial(point="model", champion=2, previous=1, kept=5_000, revision=1))
    fill(store, 1_500, Arms(learner=0.1, control=0.9, share=0.9), seed=4)

    steps = advanced(store, settings)

    trial = store.trials.trial("model")
    assert moves(steps)[0] is Move.RETURNED
    assert (trial.champion, trial.previous, trial.kept) == (1, None, 0)
    assert store.policies.in_service()["model"].version == 1


def test_where_the_host_was_the_champion_before_the_learner_keeps_the_lowest_rung(
    path: Path, store: SqliteStore
) -> None:
    settings = settings_of(path)
    serve(store, settings, 1)
    store.trials.save(Trial(point="model", champion=1, kept=5_000, revision=1))
    fill(store, 1_500, Arms(learner=0.1, control=0.9, share=0.9), seed=4)

    advanced(store, settings)

    trial = store.trials.trial("model")
    assert (trial.champion, trial.exposure) == (None, 0.05)
    assert store.policies.in_service()["model"].version == 1


def test_a_pinned_version_stays_when_the_champion_before_comes_back(
    path: Path, store: SqliteStore
) -> None:
    settings = settings_of(path)
    serve(store, settings, 1)
    serve(store, settings, 2, parent=1)
    store.policies.put_in_service("model", 2, pinned=True, at=1.0)
    store.trials.save(Trial(point="model", champion=2, previous=1, kept=5_000, revision=1))
    fill(store, 1_500, Arms(learner=0.1, control=0.9, share=0.9), seed=4)

    advanced(store, settings)

    assert store.policies.in_service()["model"].version == 2
    assert store.trials.trial("model").exposure == 0.05


def test_a_probation_that_is_over_leaves_the_champion_and_begins_a_new_test(
    path: Path, store: SqliteStore
) -> None:
    settings = settings_of(path)
    store.trials.save(Trial(point="model", champion=2, previous=1, kept=10, revision=1))
    fill(store, 12, Arms(), seed=5)

    steps = advanced(store, settings)

    trial = store.trials.trial("model")
    assert moves(steps) == [Move.RELEASED]
    assert (trial.champion, trial.previous, trial.control, trial.test) == (2, 1, 2, 2)


def test_what_another_control_decided_is_not_counted_for_the_new_one(
    path: Path, store: SqliteStore
) -> None:
    settings = settings_of(path)
    store.trials.save(Trial(point="model", champion=2, previous=1, kept=10, revision=1))
    fill(store, 12, Arms(), seed=5)
    advanced(store, settings)

    fill(store, 5, Arms(), seed=5, start=12)
    advanced(store, settings)

    trial = store.trials.trial("model")
    assert (trial.watermark, trial.since, trial.tally["seen"]) == (17, 12, 5)


def test_a_ladder_begins_in_shadow_and_climbs_rung_by_rung(path: Path, store: SqliteStore) -> None:
    settings = settings_of(path)
    serve(store, settings, 1)
    start = 0
    shares = []
    steps: list[Step] = []
    while store.trials.trial("model").champion is None and start < 12_000:
        share = store.trials.trial("model").exposure or 0.0
        fill(store, 200, Arms(learner=0.99, control=0.01, share=share), seed=6, start=start)
        start += 200
        steps += advanced(store, settings)
        shares.append(share)

    trial = store.trials.trial("model")
    assert moves(steps) == [Move.CLIMBED, Move.CLIMBED, Move.CLIMBED, Move.FROZEN]
    assert [*dict.fromkeys(shares)] == [0.0, 0.05, 0.25, 0.5]
    assert (trial.ladder, trial.exposure, trial.champion) == (True, 1.0, 1)


def test_a_learner_on_the_ladder_that_is_worse_goes_down_a_rung(
    path: Path, store: SqliteStore
) -> None:
    settings = settings_of(path)
    store.trials.save(Trial(point="model", ladder=True, exposure=0.5, revision=1))
    fill(store, 400, Arms(learner=0.1, control=0.9), seed=7)

    steps = advanced(store, settings)

    assert moves(steps)[0] is Move.LOWERED
    assert store.trials.trial("model").exposure in (0.05, 0.25)


def test_a_learner_that_is_worse_than_a_champion_goes_on_from_that(
    path: Path, store: SqliteStore
) -> None:
    settings = settings_of(path, control_share=0.5)
    serve(store, settings, 1)
    serve(store, settings, 2, parent=1)
    store.trials.save(Trial(point="model", champion=1, revision=1))
    fill(store, 400, Arms(learner=0.1, control=0.9), seed=7)

    steps = advanced(store, settings)

    assert moves(steps)[0] is Move.RESTARTED
    assert store.policies.in_service()["model"].version == 1


def test_with_a_margin_a_learner_that_is_as_good_is_given_up(
    path: Path, store: SqliteStore
) -> None:
    settings = settings_of(path, promote_margin=0.3)
    fill(store, 1_500, Arms(), seed=8)

    steps = advanced(store, settings)

    assert moves(steps)[0] is Move.RESTARTED
    assert "not better than the control by the margin" in steps[0].reason


def test_a_learner_that_is_better_but_costs_more_is_taken_out(
    path: Path, store: SqliteStore
) -> None:
    settings = settings_of(path, rewards=(HARM,))
    serve(store, settings, 1)
    fill(store, 600, Arms(learner=0.9, control=0.3, harm=0.5), seed=9)

    steps = advanced(store, settings)

    trial = store.trials.trial("model")
    assert moves(steps) == [Move.STOPPED]
    assert trial.stopped is not None
    assert trial.stopped.startswith("costlier than the control")
    assert trial.champion is None


def test_one_critical_violation_takes_the_learner_out_before_its_rollout_has_ended(
    path: Path, store: SqliteStore
) -> None:
    for name in ("first", "second"):
        add(store, name, learner=True, share=0.9)
    violation = reward(0.0, "second", name="safety.hard_gate_triggered", source="safety")
    writes(store).add_reward(violation)

    steps = advanced(store, settings_of(path, safety=GATED))

    assert moves(steps) == [Move.STOPPED]
    assert store.trials.trial("model").stopped == "critical violation in rollout second"
    assert store.audit.entries(limit=1)[0].action == "learner_stopped"


def test_a_reward_corrected_to_a_critical_violation_takes_the_learner_out_at_once(
    path: Path, store: SqliteStore
) -> None:
    settings = settings_of(path, rewards=(replace(HARM, critical=0.9),))
    for name in ("first", "second"):
        add(store, name, learner=True, share=0.9)
        harm(store, name, 0.0)
        end(store, name, 1.0)
    before = advanced(store, settings)
    harm(store, "first", 1.0)

    steps = advanced(store, settings)

    assert (before, moves(steps)) == ([], [Move.STOPPED])
    assert store.trials.trial("model").stopped == "critical violation in rollout first"


def test_a_violation_on_probation_takes_the_new_champion_out_as_well(
    path: Path, store: SqliteStore
) -> None:
    store.trials.save(Trial(point="model", champion=2, previous=1, kept=10, revision=1))
    add(store, "first", learner=True, share=0.9)
    violation = reward(0.0, "first", name="safety.hard_gate_triggered", source="safety")
    writes(store).add_reward(violation)

    advanced(store, settings_of(path, safety=GATED))

    trial = store.trials.trial("model")
    assert (trial.champion, trial.control, trial.kept) == (1, 1, 0)
    assert trial.stopped is not None


def test_a_probation_does_not_run_out_while_the_learner_is_stopped(
    path: Path, store: SqliteStore
) -> None:
    halted = Trial(point="model", champion=2, previous=1, kept=10, stopped="why", revision=1)
    store.trials.save(halted)
    fill(store, 12, Arms(share=0.0), seed=5)

    advanced(store, settings_of(path))

    assert store.trials.trial("model").kept == 10


def test_a_violation_of_the_control_is_not_the_learners(path: Path, store: SqliteStore) -> None:
    add(store, "first", learner=False, share=0.9)
    violation = reward(0.0, "first", name="safety.hard_gate_triggered", source="safety")
    writes(store).add_reward(violation)

    steps = advanced(store, settings_of(path, safety=GATED))

    assert steps == []
    assert store.trials.trial("model").stopped is None


def test_a_violation_that_an_operator_has_seen_does_not_stop_the_learner_again(
    path: Path, store: SqliteStore
) -> None:
    settings = settings_of(path, safety=GATED)
    add(store, "first", learner=True, share=0.9)
    violation = reward(0.0, "first", name="safety.hard_gate_triggered", source="safety")
    writes(store).add_reward(violation)
    advanced(store, settings)
    trial = store.trials.trial("model")
    store.trials.save(structs.replace(trial, stopped=None, revision=trial.revision + 1))

    end(store, "first", 1.0)
    steps = advanced(store, settings)

    assert steps == []


def test_evidence_that_cannot_be_read_proves_nothing_and_begins_anew(path: Path) -> None:
    trial = Trial(point="model", evidence={"test": 1.0}, test=3)

    assert finding_of(trial, Settings(store=path, reward_range=(0.0, 1.0))) is None
    assert evidence_of(trial, rewards=(0.0, 1.0)).test == 4
