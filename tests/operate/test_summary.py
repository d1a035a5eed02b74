from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tau_live.cli.status import counted_of, last_update
from tau_live.core.reasons import WhyNot, drops_of
from tau_live.core.records import AuditEntry, RolloutStatus, StoredFinding, Trial
from tau_live.core.settings import Settings
from tau_live.learn.promotion.rules import NO_CONTROL, HeldUp, trial_at
from tau_live.operate.alert_rules import GREW
from tau_live.operate.alerts import AlertRaiser
from tau_live.operate.report.choices import thirds_of
from tau_live.operate.report.facts import Facts, Mean
from tau_live.operate.report.report import report_facts
from tau_live.operate.report.stretches import marks_of
from tau_live.operate.status import status_of
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import begun, policy, ready, update
from tests.trialled import NOW, add, advanced, end, settings_of
from tests.writes import writes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(tmp_path / "store.sqlite")
    yield opened
    opened.close()


def facts(store: SqliteStore, *, enabled: bool = True) -> Facts:
    return report_facts(store, Settings(store=store.path), now=1e9, enabled=enabled)


def tried(store: SqliteStore, lower: float, upper: float) -> None:
    """Let a trial at ``model`` have found a difference, and a version serve."""
    difference: dict[str, float | None] = {
        "estimate": (lower + upper) / 2.0,
        "lower": lower,
        "upper": upper,
    }
    finding: StoredFinding = {"verdict": "wait", "difference": difference, "cost": difference}
    store.trials.save(Trial(point="model", exposure=0.5, finding=finding, revision=1))
    store.policies.add_update(replace(update(1), version=3), policy(3))


def test_where_nothing_is_on_it_says_how_to_switch_it_on(store: SqliteStore) -> None:
    ready(store, "live-1", "model")

    summary = facts(store, enabled=False).summary

    assert (summary.on.state, summary.on.answer) == ("doubtful", "off here")
    assert summary.next[0].startswith("Set `TAU_LIVE_RL=1` where your agent runs: `TAU_LIVE_RL=1 ")


def test_what_is_wrong_comes_before_the_switch_of_this_shell(store: SqliteStore) -> None:
    begun(store, "live-1")
    writes(store).set_status("live-1", RolloutStatus.SUCCEEDED, at=2.0)

    first, last = facts(store, enabled=False).summary.next

    assert "No rollout has a reward" in first
    assert last.startswith("Set `TAU_LIVE_RL=1`")


def test_runs_that_ask_for_no_decision_are_told_how_to(store: SqliteStore) -> None:
    ready(store, "live-1")

    assert "tau-live init --dry-run" in facts(store).summary.next[0]


def test_what_waits_for_a_learner_that_nobody_runs_is_said(store: SqliteStore) -> None:
    for place in range(4):
        ready(store, f"live-{place}", "model")
    settings = Settings(store=store.path, update_interval=2)

    summary = report_facts(store, settings, now=1e9, enabled=True).summary

    assert summary.next[0].startswith("4 rollouts wait to be learned from, and no process runs")
    assert "tau-live learn --once" in summary.next[0]


def test_without_a_control_no_lift_is_claimed_and_it_says_how_to_have_one(
    store: SqliteStore,
) -> None:
    ready(store, "live-1", "model")
    difference: dict[str, float | None] = {"estimate": 0.0, "lower": -5.0, "upper": 5.0}
    finding: StoredFinding = {"verdict": "wait", "difference": difference, "cost": difference}
    evidence = {"test": 1.0, "reward_learner_count": 1.0, "reward_control_count": 0.0}
    for point in ("model", "tool"):
        trial = Trial(point=point, exposure=1.0, finding=finding, evidence=evidence, revision=1)
        store.trials.save(trial)
    store.policies.add_update(replace(update(1), version=3), policy(3))

    summary = facts(store).summary

    assert "difference" not in summary.learning.sentence
    assert len(summary.next) == 1, "the same advice once, however many points there are"
    assert "TAU_LIVE_RL_CONTROL_SHARE=0.1" in summary.next[0]


def test_rewards_outside_the_range_that_is_set_are_doubted_with_the_range_that_fits(
    store: SqliteStore,
) -> None:
    for at in range(100):
        ready(store, f"live-{at}", "model", total_reward=-1.0 if at < 3 else 0.5)
    settings = Settings(store=store.path, reward_range=(0.0, 1.0))

    summary = report_facts(store, settings, now=1e9, enabled=True).summary

    outside = (
        "3 of the newest 100 rewards are outside the range from 0 to 1: they go from -1 to 0.5"
    )
    assert summary.healthy.sentence == f"{outside}."
    assert summary.next[1] == (
        f"{outside}. Nothing is claimed from those. If they are right: "
        "`export TAU_LIVE_RL_REWARD_RANGE=-1,1`; if not, find their source."
    )


def test_a_point_in_shadow_is_told_how_to_let_it_act(store: SqliteStore) -> None:
    tried(store, lower=-0.1, upper=0.2)
    ready(store, "live-1", "model")
    store.trials.save(Trial(point="model", exposure=0.0, revision=2))

    advice = " ".join(facts(store).summary.next)

    assert "The learner of model is in shadow: it decides nothing yet" in advice
    assert '`tau-live policy exposure model 5% --reason "..."`' in advice


def test_a_learner_that_was_stopped_is_not_healthy_and_it_says_where_and_why(
    store: SqliteStore,
) -> None:
    tried(store, lower=0.1, upper=0.2)
    why = "critical violation in rollout live-1"
    store.trials.save(replace(store.trials.trial("model"), stopped=why, revision=2))

    healthy = facts(store).summary.healthy

    assert (healthy.state, healthy.answer) == ("bad", "no")
    assert healthy.sentence == f"The learner is stopped at model: {why}."


def test_what_a_hold_keeps_out_is_no_doubt_of_health(store: SqliteStore) -> None:
    ready(store, "live-1", "model")
    store.counters.add({"runs_not_recorded_while_held": 9, "decisions_not_recorded": 9})
    well = facts(store).summary.healthy
    store.counters.add({"events_refused_span": 1})
    ill = facts(store).summary

    assert (well.answer, well.state) == ("yes", "good")
    assert "except what a hold keeps out" in well.sentence
    assert ill.healthy.answer == "look closer"
    assert "1 events, decisions or rewards" in ill.healthy.sentence
    assert "refused, mainly events_refused_span" in ill.next[0]


def test_rewards_that_a_hold_kept_out_are_to_be_sent_again(store: SqliteStore) -> None:
    ready(store, "live-1", "model")
    store.counters.add({"rewards_not_taken_while_held": 3})

    summary = facts(store).summary

    assert summary.healthy.sentence == "3 rewards came during a hold and were not recorded."
    assert any(one.startswith("Send the 3 rewards again") for one in summary.next)


@pytest.mark.parametrize(("reruns", "said"), [(7, False), (8, True)])
def test_runs_whose_key_was_used_before_are_said_with_what_to_do(
    store: SqliteStore, reruns: int, *, said: bool
) -> None:
    ready(store, "live-1", "model")
    store.counters.add({"reruns_after_end": reruns})

    summary = facts(store).summary

    told = f"{reruns} runs had the key of a run that had succeeded, so nothing is learned from them"
    assert (f"{told}." in summary.healthy.sentence) is said
    assert (f"{told}: give each run a `key` of its own, or none." in summary.next) is said


def test_an_old_drop_is_no_doubt_of_health_and_a_new_one_is(store: SqliteStore) -> None:
    ready(store, "live-1", "model")
    store.counters.add({"dropped_queue_full": 3, "rewards_refused": 2})
    store.alerts.note(GREW, "dropped_queue_full", f"3 {1e9 - 3_600.0}")
    store.alerts.note(GREW, "rewards_refused", f"2 {1e9 - 90_000.0}")
    fresh = facts(store)
    store.alerts.note(GREW, "dropped_queue_full", f"3 {1e9 - 86_400.0}")
    old = facts(store)
    store.counters.add({"dropped_queue_full": 1})
    again = facts(store)

    assert fresh.summary.healthy.sentence.startswith("3 events, decisions or rewards were dropped")
    assert "so far, the last at 2001-09-09 00:46 UTC" in fresh.summary.healthy.sentence
    assert "Events were dropped" in fresh.summary.next[0]
    assert (old.summary.healthy.answer, old.summary.healthy.state) == ("yes", "good")
    assert old.summary.healthy.sentence == "The gate passes; nothing was dropped in the last day."
    assert old.summary.next == ["Nothing to do."]
    assert old.drops == {"dropped_queue_full": 3, "rewards_refused": 2}, "the sums stay"
    assert again.summary.healthy.answer == "look closer"
    assert "the last since the previous check" in again.summary.healthy.sentence


@pytest.mark.slow
def test_it_is_not_healthy_while_rewards_are_missing_and_says_since_when(
    store: SqliteStore,
) -> None:
    looks = AlertRaiser(
        Settings(store=store.path), owner="host:1", tell=lambda _: None, count=lambda _: None,
        clock=lambda: 1e9,
    )  # fmt: skip
    settings = Settings(store=store.path)

    def after(number: int, *, missing: bool, at: float) -> Facts:
        for _ in range(number):
            name = f"live-{sum(store.rollouts.counts_by_status().values())}"
            if missing:
                begun(store, name)
                writes(store).set_status(name, RolloutStatus.SUCCEEDED, at=2.0)
                writes(store).leave_out(name, WhyNot.REWARD_MISSING)
            else:
                ready(store, name, "model")
        looks.check(store, status_of(store, settings, now=at))
        return facts(store)

    before = after(600, missing=False, at=1e9 - 600.0)
    missing = after(90, missing=True, at=1e9 - 300.0)
    still = after(60, missing=False, at=1e9 - 200.0)
    over = after(40, missing=False, at=1e9)

    assert before.summary.healthy.answer == "yes"
    assert missing.summary.healthy.answer == "look closer"
    assert "missing since 2001-09-09 01:41 UTC: 90 of 100" in missing.summary.healthy.sentence
    assert "rewards-missing in docs/howto/runbook.md" in missing.summary.next[0]
    assert "since 2001-09-09 01:41 UTC: 40 of 100" in still.summary.healthy.sentence
    assert over.summary.healthy.answer == "yes"
    assert over.status.rewards_missing is None


def test_rollouts_without_any_reward_are_the_first_thing_to_mend(store: SqliteStore) -> None:
    begun(store, "live-1")
    writes(store).set_status("live-1", RolloutStatus.SUCCEEDED, at=2.0)

    assert "No rollout has a reward" in facts(store).summary.next[0]


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        pytest.param(0.1, 0.3, ("good", "yes, and better"), id="proven better"),
        pytest.param(-0.1, 0.3, ("good", "yes"), id="not known"),
        pytest.param(-0.3, -0.1, ("bad", "yes, but worse"), id="proven worse"),
    ],
)
def test_the_answer_follows_the_proof_and_not_the_estimate(
    store: SqliteStore, lower: float, upper: float, expected: tuple[str, str]
) -> None:
    ready(store, "live-1", "model")
    tried(store, lower, upper)

    learning = facts(store).summary.learning

    assert (learning.state, learning.answer) == expected
    assert f"between {lower:+.3g} and {upper:+.3g} however often you look" in learning.sentence


def test_where_nothing_is_to_be_done_it_says_so(store: SqliteStore) -> None:
    ready(store, "live-1", "model")

    assert facts(store).summary.next == ["Nothing to do."]


@pytest.mark.parametrize(
    ("counter", "state", "advice"),
    [
        pytest.param("dropped_queue_full", "doubtful", "QUEUE_LIMIT", id="too many at once"),
        pytest.param("dropped_unwritten", "doubtful", "by cause.", id="no time at the end"),
        pytest.param("dropped_paused", "good", "Nothing to do.", id="wanted"),
    ],
)
def test_the_advice_about_drops_is_what_helps_against_them(
    store: SqliteStore, counter: str, state: str, advice: str
) -> None:
    ready(store, "live-1", "model")
    store.counters.add({counter: 3})

    summary = facts(store).summary

    assert summary.healthy.state == state
    assert advice in summary.next[0]
    assert ("QUEUE_LIMIT" in summary.next[0]) == (counter == "dropped_queue_full")


def test_only_what_was_lost_counts_as_lost() -> None:
    counters = {
        "dropped_queue_full": 2,
        "rewards_refused_source": 5,
        "events_not_taken_while_held": 1,
        "duplicate_spans": 9,
        "left_out_no_reward": 9,
        "dropped_closed": 4,
        "dropped_paused": 7,
        "dropped_unwritten": 0,
    }

    assert list(drops_of(counters).items()) == [
        ("rewards_refused_source", 5),
        ("dropped_queue_full", 2),
        ("events_not_taken_while_held", 1),
    ]


def test_what_holds_the_comparison_up_is_said_with_how_much_it_has_counted(
    store: SqliteStore,
) -> None:
    settings = settings_of(store.path)
    for number in range(60):
        add(store, f"r-{number}", learner=bool(number % 2), share=0.5)
        if number != 16:
            end(store, f"r-{number}", 1.0)
    writes(store).set_status("r-16", RolloutStatus.SUCCEEDED, at=2.0)
    writes(store).await_reward("r-16", until=NOW + 86_400.0)
    advanced(store, settings)

    found = report_facts(store, settings, now=NOW, enabled=True)

    trial = found.status.trials["model"]
    assert trial.uncounted == 44
    assert trial.held_up == HeldUp(rollout_id="r-16", open=False, until=NOW + 86_400.0)
    told = " ".join(found.summary.next)
    assert (
        "has counted 16 of 60 rollouts: it is waiting for the reward of r-16 until 1970-01-02"
        in told
    )
    assert "; 16 of 60 rollouts counted, the next, r-16, waits for its reward until" in counted_of(
        trial, now=NOW
    )
    assert counted_of(replace(trial, uncounted=0, held_up=None), now=NOW) == ""


@pytest.mark.slow
def test_what_is_given_up_before_its_deadline_is_said_to_be(store: SqliteStore) -> None:
    settings = settings_of(store.path)
    for number in range(240):
        add(store, f"r-{number}", learner=bool(number % 2), share=0.5)
        if number != 16:
            end(store, f"r-{number}", 1.0)
    writes(store).set_status("r-16", RolloutStatus.SUCCEEDED, at=2.0)
    writes(store).await_reward("r-16", until=NOW + 86_400.0)
    began = store.rollouts.rollout("r-16").started_at
    assert began is not None
    store.trials.save(Trial(point="model", exposure=0.5, watermark=16, revision=1))

    trial = trial_at(store, "model", settings, now=NOW)

    assert trial is not None
    assert isinstance(trial["held_up"], dict)
    assert began < trial["held_up"]["until"] <= began + NOW


def test_why_no_version_was_made_yet_is_said(store: SqliteStore) -> None:
    for number in range(3):
        ready(store, f"live-{number}", "model")

    learning = facts(store).summary.learning

    assert learning.answer == "not yet"
    assert "An update waits for rewarded rollouts: 3 of 8 at model." in learning.sentence


def test_where_no_process_is_attached_nothing_is_good(store: SqliteStore) -> None:
    on = facts(store).summary.on

    assert (on.state, on.answer) == ("doubtful", "on, idle")


def test_the_first_rewards_are_told_apart_once_they_are_not_the_last(store: SqliteStore) -> None:
    for number in range(199):
        ready(store, f"live-{number}", "model")
    early = facts(store).status.mean_reward
    ready(store, "live-199", "model")
    late = facts(store).status.mean_reward

    assert early.first is None
    assert None not in (early.last, late.first, late.last)


def test_a_difference_that_two_points_share_is_said_to_be_of_the_run(store: SqliteStore) -> None:
    tried(store, lower=0.1, upper=0.2)
    store.trials.save(replace(store.trials.trial("model"), point="tools", revision=1))
    ready(store, "live-1", "model", "tools")

    learning = facts(store).summary.learning

    assert "At model, tools (one difference, of the whole run) the difference" in learning.sentence
    assert learning.sentence.count("the difference over") == 1


def test_the_summary_compares_the_thirds_that_the_curve_shows(store: SqliteStore) -> None:
    for number in range(240):
        ready(store, f"live-{number}", "model", total_reward=float(number >= 120))
    tried(store, lower=-0.1, upper=0.2)

    found = facts(store)

    first, last = thirds_of([one.reward for one in found.stretches]) or (Mean(), Mean())
    assert (first.mean, last.mean) == (0.0, 1.0)
    assert "of the first third of rollouts 0, of the last 1." in found.summary.learning.sentence


def test_at_full_exposure_the_few_that_a_control_once_decided_claim_nothing(
    store: SqliteStore,
) -> None:
    difference: dict[str, float | None] = {"estimate": 0.0, "lower": -2.0, "upper": 2.0}
    finding: StoredFinding = {"verdict": "wait", "difference": difference, "cost": difference}
    evidence = {"test": 1.0, "reward_learner_count": 900.0, "reward_control_count": 3.0}
    store.trials.save(
        Trial(point="model", exposure=1.0, finding=finding, evidence=evidence, revision=1)
    )

    trial = trial_at(store, "model", Settings(store=store.path, reward_range=(0.0, 1.0)), now=NOW)

    assert trial is not None
    assert trial["difference"] == {"estimate": None, "lower": None, "upper": None, "plain": False}
    assert trial["why"] == NO_CONTROL


def test_an_update_in_which_ppo_took_no_step_says_so() -> None:
    report = {
        "update": 5, "point": "model", "executed": True, "version": 5, "trajectories": 8,
        "ppo_skipped": "fewer than two distinct rewards",
    }  # fmt: skip

    assert last_update(report) == (
        "#5 model: made version 5 from 8 rollouts, from the regressions alone: PPO took no step "
        "(fewer than two distinct rewards)"
    )


def test_what_evidence_changed_no_process_is_named_for(store: SqliteStore) -> None:
    process = "vm/[4026531836]:11205:95296-23e692bd"
    for action in ("champion_frozen", "policy_stop"):
        details = {"point": "model"}
        entry = AuditEntry(at=5.0, who=process, action=action, reason="why", details=details)
        store.audit.add(entry)

    assert [mark.who for mark in marks_of(store, [])] == [process, "evidence"]
