"""Who decides a rollout, as a host meets it at the public door."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tau_live
from tau_live.core.choices import Choice
from tau_live.core.hookspecs import Answer, DecisionRequest, Promotion, hookimpl
from tau_live.core.records import AuditEntry
from tau_live.core.settings import Learner, Settings
from tau_live.core.settings.tables import HardGateCost, SafetySettings
from tau_live.operate.trials import expose, freeze_champion, roll_back, stop
from tau_live.store.files import policies_of
from tests.live.armed import (
    OPTIONS,
    again,
    decided,
    key_within,
    number_of,
    order,
    quick,
    told,
    trial,
)
from tests.live.running import decisions, opened, rounds, until
from tests.live.test_live_plugins import attached

pytestmark = pytest.mark.slow


def test_an_explicit_decision_is_the_learners_from_the_first_call(live: Path) -> None:
    found = [row for key in range(20) for row in decided(key)]

    assert {(row.arm, row.share, row.source) for row in found} == {("learner", 1.0, "policy")}


def test_a_share_is_kept_back_for_the_hosts_own_choice(live: Path, settings: Settings) -> None:
    again(replace(settings, control_share=0.5))

    found = {key: decided(key)[0] for key in range(30)}

    assert {key for key, row in found.items() if row.arm == "learner"} == {
        key for key in found if number_of(key) < 0.5
    }
    assert {row.share for row in found.values()} == {0.5}
    control = [row for row in found.values() if row.arm == "control"]
    assert 5 < len(control) < 25
    for row in control:
        assert (row.applied, row.source, row.propensity) == ("small", "default", None)
        assert (row.why_not, row.chosen in OPTIONS) == ("control", True)


def test_the_hosts_own_choices_are_counted_but_never_learned_from(
    live: Path, settings: Settings
) -> None:
    unit = (0.0, 1.0)
    again(replace(settings, control_share=0.5, reward_range=unit, learner=Learner.FLUSH))
    for key in range(16):
        with tau_live.run("arms", key=key) as run:
            choice = run.decide("model", OPTIONS, default="small")
            run.reward(float(choice.option == "large"))
    assert tau_live.flush(30)

    learner = sum(number_of(key) < 0.5 for key in range(16))
    with opened(live) as store:
        learned = sum(update.trajectories for update in store.policies.updates())
    assert learned == learner
    assert told()["rollouts"] == {"learner": learner, "control": 16 - learner}


def test_without_a_default_or_a_champion_there_is_no_control(
    live: Path, settings: Settings
) -> None:
    again(replace(settings, control_share=0.5))

    found = [decided(key, default=None)[0] for key in range(8)]

    assert {(row.arm, row.share, row.source) for row in found} == {("learner", 1.0, "policy")}


def test_a_run_keeps_its_arm_while_the_exposure_changes(live: Path, settings: Settings) -> None:
    keys = iter(range(10_000))
    decided("first")
    with tau_live.run("arms", key=key_within(0.2, 1.0)) as run:
        run.decide("model", OPTIONS, default="small")
        with opened(live) as store:
            expose(store, settings, order(), share=0.2)
        until(lambda: quick(next(keys)) == 0.2)
        run.decide("model", OPTIONS, default="small")
    assert tau_live.flush(30)

    assert [(row.arm, row.share) for row in decisions(live, run.id)] == [("learner", 1.0)] * 2


def test_a_run_that_is_tried_again_has_the_same_arm(live: Path, settings: Settings) -> None:
    again(replace(settings, control_share=0.5))
    found = []
    for key in range(10):
        for _ in range(2):
            with pytest.raises(ZeroDivisionError), tau_live.run("arms", key=key) as run:
                run.decide("model", OPTIONS, default="small")
                raise ZeroDivisionError
        assert tau_live.flush(30)
        found.append([row.arm for row in decisions(live, run.id)])

    assert all(len(arms) == 2 and arms[0] == arms[1] for arms in found)
    assert {arms[0] for arms in found} == {"learner", "control"}


@pytest.mark.timed
@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, "control"), (1.0, "learner")], ids=["none", "all"]
)
def test_an_exposure_reaches_a_running_process_within_a_second(
    live: Path, settings: Settings, share: float, expected: str
) -> None:
    again(replace(settings, control_share=0.5))
    decided(0)
    keys = iter(range(10_000))

    with opened(live) as store:
        expose(store, settings, order(), share=share)

    until(lambda: quick(next(keys)) == share, deadline_s=1.0)
    assert {decided(f"after-{n}")[0].arm for n in range(6)} == {expected}


@pytest.mark.timed
def test_a_stopped_learner_decides_nothing_even_in_runs_that_are_going_on(
    live: Path, settings: Settings
) -> None:
    decided(0)
    with tau_live.run("arms", key="on") as run:
        before = run.decide("model", OPTIONS, default="small")
        with opened(live) as store:
            stop(store, settings, order())

        until(lambda: run.decide("model", OPTIONS, default="small").source == "default",
              deadline_s=1.0)  # fmt: skip
    assert tau_live.flush(30)

    last = decisions(live, run.id)[-1]
    assert before.source == "policy"
    assert (last.arm, last.share, last.applied, last.chosen) == ("control", 0.0, "small", None)
    assert last.why_not == "stopped"
    assert decided("new", default=None)[0].applied == "small"


def learned_champion(live: Path, settings: Settings) -> int:
    """Let the learner learn, and freeze what it has become; return its version."""
    for start in range(0, 64, 8):
        rounds(8, start=start)
        assert tau_live.flush(30)
    with opened(live) as store:
        changed = freeze_champion(store, replace(settings, probation=0), order())
    return changed.version


def test_a_champion_decides_the_control_with_its_own_propensity(
    live: Path, settings: Settings
) -> None:
    again(replace(settings, control_share=0.5, probation=0))
    version = learned_champion(live, settings)
    until(lambda: told().get("champion") == version)

    found = [decided(key)[0] for key in range(20)]

    control = [row for row in found if row.arm == "control"]
    assert 3 < len(control) < 17
    for row in control:
        assert (row.source, row.policy_version, row.why_not) == ("policy", version, None)
        assert row.propensity == row.probabilities[row.options.index(str(row.applied))]


def test_a_champion_whose_file_is_damaged_leaves_the_control_to_the_host(
    live: Path, settings: Settings
) -> None:
    again(replace(settings, control_share=0.5, probation=0))
    version = learned_champion(live, settings)
    next(policies_of(settings.store).glob(f"*{version}-*.npz")).write_bytes(b"broken")
    again(replace(settings, control_share=0.5, probation=0))

    found = [decided(key)[0] for key in range(12)]

    assert {row.source for row in found if row.arm == "control"} == {"default"}


def test_the_files_of_champions_are_not_pruned(live: Path, settings: Settings) -> None:
    again(replace(settings, keep_checkpoints=2, probation=0))
    version = learned_champion(live, replace(settings, keep_checkpoints=2))

    for start in range(64, 128, 8):
        rounds(8, start=start)
        assert tau_live.flush(30)

    files = {int(file.stem[:9]) for file in policies_of(settings.store).glob("*.npz")}
    with opened(live) as store:
        newest = store.policies.versions()[-1].version
    assert version in files
    assert version < newest - 3


def acting(key: object, *, default: str = "small") -> Choice:
    """Decide as an adapter does that acts on a host's own decision point."""
    runtime = tau_live.attach()
    assert runtime is not None
    with tau_live.run("arms", key=key) as run:
        assert run.handle is not None
        return runtime.decide(
            run.handle, "model", options=OPTIONS, context=None, default=default, start=0.0
        )


def test_an_acting_adapter_begins_in_shadow_and_its_agreement_is_told(
    live: Path, settings: Settings
) -> None:
    again(replace(settings, reward_range=(0.0, 1.0)))
    for key in range(12):
        choice = acting(key)
        tau_live.reward(1.0, run=choice.run)
        assert (choice.option, choice.source) == ("small", "default")
    assert tau_live.flush(30)

    with opened(live) as store:
        rows = [one.agreed for one in store.trials.assignments("model", after=0, limit=99)]
    assert len(rows) == 12
    assert told()["agreement"] == sum(map(bool, rows)) / 12
    assert (told()["exposure"], told()["ladder"]) == (0.0, True)


def test_an_order_before_the_first_run_decides_it(live: Path, settings: Settings) -> None:
    again(settings)
    with opened(live) as store:
        expose(store, settings, order(), share=1.0)
    again(settings)

    choices = [acting(key) for key in range(4)]

    assert {choice.source for choice in choices} == {"policy"}


def test_a_shadow_that_was_long_enough_ends_at_the_first_rung(
    live: Path, settings: Settings
) -> None:
    again(replace(settings, reward_range=(0.0, 1.0)))
    for key in range(56):
        tau_live.reward(1.0, run=acting(key).run)
    assert tau_live.flush(30)

    assert trial(live).exposure == 0.05
    assert acting(key_within(0.0, 0.05)).source == "policy"
    assert acting(key_within(0.05, 1.0)).source == "default"


class Hears:
    """Hears of promotions."""

    def __init__(self) -> None:
        self.heard: list[Promotion] = []

    @hookimpl
    def policy_promoted(self, promotion: Promotion) -> None:
        self.heard.append(promotion)


def test_a_plugin_hears_of_champions_rungs_and_stops(live: Path, settings: Settings) -> None:
    plugin = Hears()
    attached(plugin, replace(settings, probation=0))
    version = learned_champion(live, settings)
    with opened(live) as store:
        expose(store, settings, order(), share=0.25)
        until(lambda: any(one.exposure == 0.25 for one in plugin.heard))
        stop(store, settings, order())
        until(lambda: any(one.stopped for one in plugin.heard))
        roll_back(store, settings, order(), pin=False)

    until(lambda: [one.change for one in plugin.heard].count("version") > 8)

    changes = [one.change for one in plugin.heard if one.change != "version"]
    assert changes == ["champion", "exposure", "stopped"]
    assert {one.champion for one in plugin.heard if one.change == "champion"} == {version}


class Answers:
    """Always chooses the last option, for sure."""

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer:
        return Answer(option=[*request.options][-1], probability=1.0)


def test_a_plugin_that_decides_takes_part_in_the_learners_arm_alone(
    live: Path, settings: Settings
) -> None:
    attached(Answers(), replace(settings, control_share=0.5))

    found = [decided(key)[0] for key in range(16)]

    assert {(row.arm, row.applied) for row in found} == {
        ("learner", "large"),
        ("control", "small"),
    }


def entries(path: Path) -> list[AuditEntry]:
    with opened(path) as store:
        return store.audit.entries()[::-1]


def agent(key: object, *, good: str) -> None:
    """Run an agent whose own choice is the small model; one of the models is the good one."""
    with tau_live.run("arms", key=key) as run:
        choice = run.decide("model", OPTIONS, default="small")
        run.reward(float(choice.option == good))


def test_a_learner_that_is_better_is_frozen_and_when_the_world_turns_the_host_comes_back(
    live: Path, settings: Settings
) -> None:
    again(replace(settings, control_share=0.3, reward_range=(0.0, 1.0)))
    keys = iter(range(100_000))
    while trial(live).champion is None:
        for _ in range(40):
            agent(next(keys), good="large")
        assert tau_live.flush(30)
        assert next(keys) < 4_000
    promoted = entries(live)
    with opened(live) as store:  # so that it does not learn its way out
        store.policies.put_in_service("model", trial(live).champion or 0, pinned=True, at=5.0)

    while trial(live).exposure is None:
        for _ in range(40):
            agent(next(keys), good="small")
        assert tau_live.flush(30)
        assert next(keys) < 8_000

    assert [entry.action for entry in promoted] == ["champion_frozen"]
    first, *between, last = [entry.action for entry in entries(live)]
    assert (first, last) == ("champion_frozen", "champion_returned")
    assert {*between} <= {"test_restarted"}  # when the monitor sees that the world has turned
    assert (trial(live).exposure, trial(live).champion) == (0.05, None)
    until(lambda: told()["exposure"] == 0.05)


def test_a_critical_violation_takes_the_learner_out_of_the_running_process(
    live: Path, settings: Settings
) -> None:
    again(replace(settings, safety=SafetySettings(hard_gate_cost=HardGateCost.CRITICAL)))
    decided(0)
    with tau_live.run("arms", key="bad") as run:
        run.decide("model", OPTIONS, default="small")
        run.reward(0.0, name="safety.hard_gate_triggered", source="safety")

    assert tau_live.flush(30)

    assert decided("after")[0].arm == "control"
    assert told()["stopped"] == f"critical violation in rollout {run.id}"
    assert [entry.action for entry in entries(live)] == ["learner_stopped"]


def test_without_a_range_the_status_says_why_nothing_is_claimed(
    live: Path, settings: Settings
) -> None:
    again(replace(settings, control_share=0.5))
    for key in range(16):
        agent(key, good="large")
    assert tau_live.flush(30)

    difference = told()["difference"]
    assert isinstance(difference, dict)
    assert "TAU_LIVE_RL_REWARD_RANGE" in str(told()["why"])
    assert (difference["plain"], difference["lower"]) == (True, None)
    report = tau_live.snapshot()["last_report"]
    assert isinstance(report, dict)
    assert "trial" in report


def test_a_champion_that_loves_what_broke_is_no_control(live: Path, settings: Settings) -> None:
    """It was proven by an option that then breaks; afterwards the control is the host again."""
    ranged = replace(
        settings, learner=Learner.FLUSH, control_share=0.3, reward_range=(0.0, 1.0), probation=50
    )
    again(ranged)
    rng = np.random.default_rng(1)
    champions: list[int | None] = []
    for key in range(900):
        with tau_live.run("arms", key=key) as run:
            option = run.decide("model", OPTIONS, default="small").option
            earned = (0.85 if key < 500 else 0.05) if option == "large" else 0.4
            run.reward(float(rng.random() < earned))
        if key % 16 == 15:
            assert tau_live.flush(60)
            champions.append(trial(live).champion)
    tau_live.detach()

    assert champions[30] is not None
    assert champions[-1] is None
    with opened(live) as store:
        late = [
            store.decisions.decisions(one.rollout.rollout_id)[0]
            for one in store.trials.assignments(
                "model", after=trial(live).watermark - 200, limit=200
            )
        ]
    assert {one.applied for one in late if one.arm == "control"} == {"small"}
