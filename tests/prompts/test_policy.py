"""The phase ``policy``: a policy that learns to choose among the prompts of a run."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tau_live.core.errors import TauLiveError
from tau_live.core.gate_keeper import hold_stored
from tau_live.core.records import Decision, LearnableRollout, Rollout, RolloutMode, RolloutQuery
from tau_live.core.settings import Settings
from tau_live.decisions.policies import load_policy
from tau_live.operate.optimizations import optimization_status
from tau_live.prompts.config import RlOptimizer
from tau_live.prompts.control import move
from tau_live.prompts.lead import Shown
from tau_live.prompts.optimizer import resume
from tau_live.prompts.policy import (
    OptimizerReport,
    PolicyTraining,
    checksum,
    context_of,
    restore,
)
from tau_live.prompts.rows import row_of
from tau_live.prompts.worker import POLICY
from tau_live.store.checkpoints import FolderCheckpoints
from tau_live.store.files import policies_of
from tau_live.store.records import Optimization
from tests.prompts.agents import notes
from tests.prompts.choosers import CHOOSERS, NEW, OLD, OTHER
from tests.prompts.runs import Bench, Ended, Start, wait_for
from tests.trialled import add, end, serve

SHARE = [{"name": "python", "callable": f"{CHOOSERS}:share"}]
BASE: dict[str, Any] = {"ppo": {"mini_batch_size": 4, "epochs": 2}}
CHANGES: list[dict[str, Any]] = [
    {"learning_rate": 0.02},
    {"normalization_scope": "trajectory"},
    {"gae": {"gamma": 0.5}},
    {"gae": {"lambda": 0.1}},
    {"gae": {"normalize_advantages": False}},
    {"gae": {"normalize_returns": True}},
    {"gae": {"clip_advantages": 0.1}},
    {"gae": {"clip_returns": 0.1}},
    {"gae": {"normalization_epsilon": 0.5}},
    {"ppo": {"clip_epsilon": 0.0}},
    {"ppo": {"value_loss_coefficient": 2.0}},
    {"ppo": {"entropy_coefficient": 0.5}},
    {"ppo": {"kl_penalty_coefficient": 2.0}},
    {"ppo": {"mini_batch_size": 8}},
    {"ppo": {"gradient_accumulation_steps": 2}},
    {"ppo": {"epochs": 3}},
    {"ppo": {"target_kl": 0.01}},
    {"ppo": {"max_kl": 0.01}},
]
"""Changes of a block, each of one key."""


def config(rows: int = 64, *, agent: str = "second", **changes: Any) -> dict[str, Any]:
    """Return a config of two prompts, of which the agent is right with the second.

    Keys of the block stand in ``block``.
    """
    tasks = [{"prompt": f"train {number}", "expected": "yes"} for number in range(rows)]
    block = changes.pop("block", {})
    return {
        "optimize": tasks,
        "validate": [],
        "model": None,
        "agent": f"{CHOOSERS}:{agent}",
        "resources": {"system_prompt": OLD},
        "search": {"algorithm": "none", "initial_prompts": {"new": NEW}},
        "rl_optimizer": {"enabled": True, **block},
        **changes,
    }


def report_of(run: Optimization) -> dict[str, Any]:
    report = run.report["rl_optimizer"]
    assert isinstance(report, dict)
    return report


def items_of(bench: Bench, run: Optimization) -> list[Rollout]:
    """Return the items of the phase, in their order."""
    found = bench.store.rollouts.query(RolloutQuery(mode=RolloutMode.TRAIN)).rollouts
    own = [item for item in found if item.queue == run.run_id and item.metadata["phase"] == POLICY]
    return sorted(own, key=lambda item: item.seq)


def decisions_of(bench: Bench, run: Optimization) -> list[Decision]:
    """Return the decisions of the phase, in the order of its items."""
    ids = [item.rollout_id for item in items_of(bench, run)]
    return [each for id_ in ids for each in bench.store.decisions.decisions(id_)]


# What it learns


@pytest.mark.slow
def test_the_policy_learns_which_prompt_is_right(bench: Bench) -> None:
    run = bench.run(**config())

    report = report_of(run)
    [*_, last] = decisions_of(bench, run)
    assert run.state == "completed", run.error
    assert [*report] == [*OptimizerReport.__struct_fields__]
    assert (report["executed"], report["skipped_reason"]) == (True, None)
    assert (report["trajectories"], report["samples"]) == (64, 64)
    assert report["updates"] >= 8
    assert report["policy_version"] == report["updates"]
    assert report["observed_approx_kl"] > 0.0
    assert report["policy_sha256"] != checksum({})
    assert report["mean_reward_last"] > report["mean_reward_first"]
    assert last.point == f"prompt@{run.run_id}"
    assert last.probabilities[1] > 0.8
    assert last.propensity == last.probabilities[last.options.index(last.applied or "")]


def test_the_prompt_of_an_item_is_the_one_that_was_chosen(bench: Bench) -> None:
    run = bench.run(**config(8))

    versions = [item.metadata["version"] for item in items_of(bench, run)]
    assert [each.applied for each in decisions_of(bench, run)] == versions
    assert len({*versions}) == 2


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["second", "deciding"])
def test_any_number_of_workers_and_any_run_of_a_config_learn_the_same_bytes(
    bench: Bench, agent: str
) -> None:
    scorers = SHARE if agent == "deciding" else [{"name": "exact_match"}]
    first = bench.run(**config(24, agent=agent, scorers=scorers), worker_count=1)

    again = bench.run(**config(24, agent=agent, scorers=scorers), worker_count=1)
    many = bench.run(**config(24, agent=agent, scorers=scorers), worker_count=8)

    assert report_of(first)["executed"]
    assert json.dumps(report_of(again)) == json.dumps(report_of(first))
    assert json.dumps(report_of(many)) == json.dumps(report_of(first))


@pytest.mark.slow
def test_what_the_agent_decides_is_learned_too(bench: Bench) -> None:
    run = bench.run(**config(32, agent="deciding", scorers=SHARE))

    decided = decisions_of(bench, run)
    style = [each for each in decided if each.point == f"agent.style@{run.run_id}"]
    report = report_of(run)
    assert (report["trajectories"], report["samples"]) == (32, 4 * 32)
    assert {each.point.partition("@")[0] for each in decided} == {
        "prompt", "agent.style", "agent.tone",
    }  # fmt: skip
    assert style[0].probabilities[0] < 0.5  # the agent's own choice is the other
    assert style[-1].probabilities[0] > 0.8
    assert {each.policy_version for each in style} == {0, 1, 2, 3}
    assert report["mean_reward_last"] > report["mean_reward_first"]


@pytest.mark.slow
def test_it_learns_from_the_reward_with_safety(bench: Bench) -> None:
    run = bench.run(**config(32, agent="unsafe"))

    [*_, last] = decisions_of(bench, run)
    assert report_of(run)["mean_reward_first"] < 0.0
    assert last.probabilities[1] < 0.2


@pytest.mark.slow
def test_only_train_items_of_the_run_reach_it_and_nothing_live_changes(bench: Bench) -> None:
    alone = bench.run(**config(16))
    held_out = [{"prompt": f"val {number}", "expected": "no"} for number in range(8)]
    beside = bench.begin(**config(16, validate=held_out))
    settings = Settings(store=bench.store.path)
    serve(bench.store, settings, 1)
    for number in range(4):
        name = f"live-{number}"
        add(bench.store, name, learner=True, share=0.5, point=f"prompt@{beside.run_id}")
        end(bench.store, name, 0.0)
    before = bench.store.policies.in_service(), bench.store.trials.points()

    ended = bench.lead(beside)

    assert ended.config_digest != alone.config_digest
    assert report_of(ended) == report_of(alone)
    assert (bench.store.policies.in_service(), bench.store.trials.points()) == before
    assert [known.version for known in bench.store.policies.versions()] == [1]
    served = load_policy(bench.store.checkpoints, bench.store.policies.version(1))
    assert served.rollouts == 0


def test_a_row_is_context_by_its_numbers_and_short_texts() -> None:
    task = {"n": 2, "kind": "short", "long": "x" * 65, "nested": {"a": 1}}
    row = row_of({"input": task, "expected": "e", "metadata": {"tier": "gold"}}, 0)

    assert context_of(row) == {"kind": "short", "n": 2, "tier": "gold"}


def test_no_text_is_stored_where_none_is_wanted(bench: Bench) -> None:
    run = bench.run(**config(8, content="none"))

    decided = decisions_of(bench, run)
    assert [each.context for each in decided] == [{}] * 8
    assert report_of(run)["samples"] == 8


# Keys of the block


def test_a_block_has_every_default_and_the_report_shows_it(bench: Bench) -> None:
    run = bench.run(**config(8, block={"gae": {"gamma": 0.5}}))

    shown = report_of(run)["config"]
    assert (shown["rollouts"], shown["update_interval"], shown["pool_limit"]) == (8, 8, 4)
    assert (shown["gae"]["gamma"], shown["gae"]["lambda"]) == (0.5, 0.95)
    assert shown["ppo"]["mini_batch_size"] == 32


def learned(bench: Bench, run: Optimization, folder: Path, **changes: Any) -> OptimizerReport:
    """Return what is learned of the items of a run with a block that is changed."""
    parts = {
        name: {**BASE.get(name, {}), **part}
        for name, part in changes.items()
        if name in {"gae", "ppo"}
    }
    block = RlOptimizer.model_validate({"enabled": True, **BASE, **changes, **parts})
    training = PolicyTraining(block, run.run_id, seed=0, checkpoints=FolderCheckpoints(folder))
    rollouts = [
        LearnableRollout(
            item,
            bench.store.decisions.decisions(item.rollout_id),
            bench.store.rewards.rewards(item.rollout_id),
        )
        for item in items_of(bench, run)
    ]
    for start in range(0, len(rollouts), 8):
        training.learn(rollouts[start : start + 8])
    return training.end()


@pytest.mark.slow
def test_every_key_of_learning_changes_what_is_learned(bench: Bench, tmp_path: Path) -> None:
    run = bench.run(**config(24, agent="deciding", scorers=SHARE, block=BASE))
    base = learned(bench, run, tmp_path / "base")

    found = [learned(bench, run, tmp_path / "changed", **change) for change in CHANGES]

    same = [
        change
        for change, report in zip(CHANGES, found, strict=True)
        if report.policy_sha256 == base.policy_sha256
    ]
    assert base.policy_sha256 == report_of(run)["policy_sha256"]
    assert same == []


@pytest.mark.slow
def test_every_key_of_the_phase_changes_what_is_learned(bench: Bench) -> None:
    prompts = {"new": NEW, "other": OTHER, "third": "Third."}
    search = {"algorithm": "none", "initial_prompts": prompts}
    blocks: list[dict[str, Any]] = [
        {}, {"rollouts": 24}, {"update_interval": 4}, {"pool_limit": 2},
    ]  # fmt: skip

    runs = [bench.run(**config(16, search=search, block=block)) for block in blocks]

    assert len({report_of(run)["policy_sha256"] for run in runs}) == len(blocks)
    assert [len(items_of(bench, run)) for run in runs] == [16, 24, 16, 16]
    assert [report_of(run)["updates"] for run in runs] == [2, 3, 4, 2]
    assert [len(decisions_of(bench, run)[0].options) for run in runs] == [4, 4, 4, 3]


@pytest.mark.slow
def test_rows_are_repeated_in_another_order(bench: Bench) -> None:
    run = bench.run(**config(8, block={"rollouts": 20}))

    rows = [int(str(item.metadata["row"])) for item in items_of(bench, run)]
    assert sorted(rows[:8]) == sorted(rows[8:16]) == [*range(8)]
    assert rows[:8] != rows[8:16]
    assert len({*rows[16:]}) == 4


@pytest.mark.slow
def test_the_divergence_is_bounded(bench: Bench) -> None:
    bounds = [{}, {"target_kl": 0.001, "epochs": 20}, {"max_kl": 0.02}, {"max_kl": 0.0}]

    runs = [bench.run(**config(24, block={"ppo": ppo})) for ppo in bounds]

    free, stopped, bounded, undone = map(report_of, runs)
    assert free["observed_approx_kl"] > 0.1
    assert not free["early_stop_triggered"]
    assert stopped["early_stop_triggered"]
    assert stopped["observed_approx_kl"] < 0.01
    assert (bounded["executed"], bounded["observed_approx_kl"] <= 0.02) == (True, True)
    assert (undone["executed"], undone["skipped_reason"]) == (False, "kl_exceeded")
    assert (undone["updates"], undone["undone"]) == (0, 3)
    assert undone["policy_sha256"] == checksum({})


# Why nothing is learned


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"agent": "raising"}, "no_succeeded_train_rollouts"),
        ({"optimize": [], "validate": ["any"]}, "no_succeeded_train_rollouts"),
        ({"agent": "even", "search": {"algorithm": "none"}}, "no_trajectories_collected"),
        ({"agent": "lone", "search": {"algorithm": "none"}}, "no_ppo_samples_constructed"),
        ({"agent": "same"}, "fewer_than_two_distinct_rewards"),
        ({"budget": {"rollouts": 20}}, "budget_exhausted"),
    ],
)
def test_nothing_is_learned_for_the_first_reason_that_applies(
    bench: Bench, changes: dict[str, Any], reason: str
) -> None:
    run = bench.run(**config(8, **changes))

    report = report_of(run)
    assert run.state == "completed", run.error
    assert (report["executed"], report["skipped_reason"]) == (False, reason)
    assert [*report] == [*OptimizerReport.__struct_fields__]
    assert report["policy_sha256"] == checksum({})


@pytest.mark.slow
@pytest.mark.parametrize("reason", ["cancelled", "paused", "gate_hold"])
def test_a_run_that_is_stopped_says_why_it_learned_nothing(bench: Bench, reason: str) -> None:
    run = bench.begin(**config(64, agent="slow", block={"update_interval": 64}))

    def stop(shown: Shown) -> None:
        if shown.phase != POLICY:
            return
        if shown.state == "paused" or reason == "cancelled":
            move(bench.store, run.run_id, "cancel", reason="enough", who="ada")
        elif reason == "paused" and shown.state == "running":
            move(bench.store, run.run_id, "pause", reason="wait", who="ada")
        elif reason == "gate_hold" and bench.store.gate.load().state == "pass":
            hold_stored(
                bench.store.gate, limit=3, reason="test", detail="", who="ada", at=time.time()
            )

    ended = bench.lead(run, show=stop)

    assert ended.state == "cancelled"
    assert (report_of(ended)["executed"], report_of(ended)["skipped_reason"]) == (False, reason)


@pytest.mark.slow
def test_an_update_that_fails_ends_the_run_and_counts_at_the_gate(bench: Bench) -> None:
    run = bench.begin(**config(16))
    folder = policies_of(bench.store.path) / run.run_id
    folder.parent.write_text("in the way")

    ended = bench.lead(run)

    assert (ended.state, ended.reason_code) == ("failed", "optimizer_failed")
    assert "CheckpointError" in (ended.error or "")
    assert bench.store.gate.load().streaks["update"] == 1


@pytest.mark.parametrize("block", [None, {"enabled": False}])
def test_a_run_without_it_says_nothing_of_it(bench: Bench, block: object) -> None:
    run = bench.run(**{**config(4), "rl_optimizer": block})

    status = optimization_status(bench.store, run)
    assert "rl_optimizer" not in run.report
    assert "rl_optimizer" not in status
    assert status["total_rollouts"] == 8


# Status, interruption, rollback


@pytest.mark.slow
def test_the_status_shows_the_phase_and_the_report(bench: Bench) -> None:
    seen: list[Shown] = []

    run = bench.lead(
        bench.begin(**config(32, agent="slow")), show=seen.append, settings=None
    )  # fmt: skip

    status: Any = json.loads((bench.folder / "status.json").read_text())
    assert [shown.phase for shown in seen if shown.phase == POLICY]
    assert status["rl_optimizer"] == report_of(run)
    assert status["total_rollouts"] == 96
    assert run.report["preflight"]["policy_items"] == 32  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.parametrize("place", [2, 20])
def test_a_killed_run_that_is_resumed_learns_like_one_that_was_not(
    bench: Bench, start: Start, place: int
) -> None:
    changes = config(
        24, agent="deciding", scorers=SHARE, heartbeat_interval_ms=300, completion_timeout_secs=60
    )
    whole = bench.run(**changes)
    gate = bench.folder / f"gate-row-{items_of(bench, whole)[place].metadata['row']}"
    (bench.folder / "executed").unlink()
    gate.touch()
    leader = start("--config", bench.config(**changes))
    wait_for(lambda: notes("at"))
    time.sleep(0.2)  # the other worker goes on

    leader.kill()
    leader.wait()
    gate.unlink()
    killed = bench.store.optimizations.runs()[0]
    before = Counter(notes("executed"))
    resume(bench.store, killed.run_id, who="ada")
    resumed = bench.lead(bench.store.optimizations.run(killed.run_id))

    after = Counter(notes("executed"))
    assert killed.phase == POLICY
    assert resumed.state == "completed", resumed.error
    assert report_of(resumed) == report_of(whole)
    assert {id_: after[id_] for id_ in before} == dict(before)
    assert max(after.values()) == 1
    assert len(after) == 72


@pytest.mark.slow
def test_another_process_decides_by_the_same_policy(bench: Bench, start: Start) -> None:
    changes = config(24, agent="deciding", scorers=SHARE, worker_count=1)
    alone = bench.run(**changes)
    gate = bench.folder / f"gate-row-{items_of(bench, alone)[10].metadata['row']}"
    gate.touch()
    leader = start("--config", bench.config(**changes))
    wait_for(lambda: notes("at"))  # its worker waits, in the second round
    helper = start("worker")
    run = bench.store.optimizations.runs()[0]

    wait_for(lambda: sum(each.status == "succeeded" for each in items_of(bench, run)) == 15)
    gate.unlink()
    ended = Ended(leader)

    owners = {
        attempt.owner
        for item in items_of(bench, run)
        for attempt in bench.store.rollouts.attempts(item.rollout_id)
    }
    assert ended.code == 0, ended.err
    assert helper.wait(timeout=60) == 0
    assert len(owners) == 2
    assert report_of(bench.store.optimizations.run(run.run_id)) == report_of(alone)


@pytest.mark.slow
def test_items_whose_policy_is_gone_are_missing_and_end_no_worker(bench: Bench) -> None:
    slow_polls: dict[str, Any] = {
        "worker_count": 1,
        "poll_interval_ms": 1500,
    }  # it comes after the removal
    run = bench.begin(**config(16, max_attempts=1, **slow_polls))
    folder = policies_of(bench.store.path) / run.run_id

    def remove(shown: Shown) -> None:
        for path in folder.glob("*.npz"):
            path.unlink()

    ended = bench.lead(run, show=remove)

    statuses = [item.status.value for item in items_of(bench, ended)]
    assert ended.state == "completed", ended.error
    assert statuses == ["succeeded"] * 8 + ["failed"] * 8
    assert report_of(ended)["samples"] == 8


@pytest.mark.slow
def test_a_rollback_puts_the_policy_back(bench: Bench) -> None:
    run = bench.run(**config(24))
    [first, *_] = {each.policy_version: each for each in decisions_of(bench, run)}
    assert first == 0

    restore(bench.store, f"prompt@{run.run_id}:1", reason="worse", who="ada")

    report = report_of(bench.store.optimizations.run(run.run_id))
    entry = bench.store.audit.entries(limit=1)[0]
    assert report["policy_version"] == 1
    assert report["policy_sha256"] != report_of(run)["policy_sha256"]
    assert (entry.action, entry.who, entry.reason) == ("optimize rollback", "ada", "worse")


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["another run", "another version", "no number", "damaged"])
def test_a_policy_that_cannot_be_verified_is_not_put_back(bench: Bench, broken: str) -> None:
    run = bench.run(**config(16))
    ref = {
        "another run": "prompt@opt-000000000000-1:1",
        "another version": f"prompt@{run.run_id}:7",
        "no number": f"prompt@{run.run_id}:one",
    }.get(broken, f"prompt@{run.run_id}:1")
    if broken == "damaged":
        [path] = (policies_of(bench.store.path) / run.run_id).glob("000000001-*")
        path.write_bytes(path.read_bytes()[:-1] + b"0")

    with pytest.raises(TauLiveError, match="failed to load rollback checkpoint '"):
        restore(bench.store, ref, reason="worse", who="ada")

    assert bench.store.optimizations.run(run.run_id) == run
    assert bench.store.audit.entries(limit=1) == []
