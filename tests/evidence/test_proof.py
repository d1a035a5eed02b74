"""Proofs of real runs: what passes, what does not and why, and what a kill leaves behind."""

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

import tau_live
from tau_live.core.errors import PolicyError, TauLiveError
from tau_live.core.settings import Learner, Settings
from tau_live.evidence import running
from tau_live.evidence.artifacts import ArtifactError, Names, Root
from tau_live.evidence.promotion import GATE, promote_on_proof
from tau_live.evidence.proving import compare, prove
from tau_live.evidence.records import ROLES, read_inputs, read_records
from tau_live.evidence.running import Frozen, freeze, run, store_of
from tau_live.evidence.suites import Output, reward_of, score
from tau_live.operate.trials import Order, promote
from tests.evidence import suites
from tests.evidence.projects import (
    RIGHT,
    RUN,
    SEEDS,
    Forger,
    frozen,
    proved,
    settings_of,
    smaller,
)
from tests.live.running import environ

pytestmark = pytest.mark.slow

POINT = "tool"


def learned(settings: Settings, *, runs: int = 400) -> int:
    """Let a live policy learn which tool is right, on other tasks; return its version."""
    rng, own = Random(7), replace(settings, learner=Learner.FLUSH, act=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAU_LIVE_RL", "1")
        tau_live.detach()
        tau_live.attach(own)
        for number in range(runs):
            case = suites.tool_case(rng, number)
            with tau_live.run("agent", key=f"{number}") as now:
                choice = now.decide(POINT, case.options, context=case.context, default="search")
                now.reward(reward_of(case, score(case, Output(text=str(choice.option)))))
            if number % 20 == 19:
                assert tau_live.flush(60.0)
        tau_live.detach()
    with closing(store_of(settings)) as store:
        return store.policies.in_service()[POINT].version


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Return a project whose store has a learned policy, and its version."""
    folder = tmp_path_factory.mktemp("taught")
    return folder, learned(settings_of(folder))


def test_a_better_policy_is_proven_on_records_of_real_runs(taught: tuple[Path, int]) -> None:
    folder, version = taught
    subjects = {"baseline": f"policy:{POINT}@0", "trained": f"policy:{POINT}@{version}"}

    found = proved(folder, "m24-policies", **subjects)

    own = found.reports.significance.significance
    assert own.pass_ and own.mean_delta is not None and own.mean_delta > 0.05, own.reason_codes
    assert found.proof.verification.level == "store" and found.validation.valid
    with closing(store_of(settings_of(folder), read_only=True)) as store:
        records = read_records(found_records(folder, "m24-policies", "trained")).records
        rollout = store.rollouts.rollout(records[0].rollout_id)
        decision = store.decisions.decisions(records[0].rollout_id)[0]
    assert (rollout.mode, rollout.total_reward) == ("test", None)
    assert sum(decision.probabilities) == pytest.approx(1.0)


def found_records(folder: Path, run_id: str, role: Any) -> bytes:
    return (folder / Names(run_id).records(role)).read_bytes()


def test_one_policy_twice_is_no_comparison(taught: tuple[Path, int]) -> None:
    folder, version = taught
    one = f"policy:{POINT}@{version}"

    with pytest.raises(ArtifactError, match="same_policy"):
        proved(folder, "m24-same", baseline=one, trained=one)


def test_a_regression_of_safety_does_not_pass(tmp_path: Path) -> None:
    unsafe = "python:tests.evidence.projects:unsafe"

    found = proved(tmp_path, trained=unsafe)

    own = found.reports.significance.significance
    assert set(own.reason_codes) == {
        "checkpoint_promotion_blocked_safety_regression", "safety_bound_above_threshold",
    }  # fmt: skip
    assert not found.reports.safety.promotion_allowed and found.validation.valid


def test_a_lucky_seed_is_outside_of_the_band(tmp_path: Path) -> None:
    found = proved(tmp_path, trained="python:tests.evidence.projects:lucky")

    own = found.reports.significance.significance
    assert own.seed_reproducibility is not None and not own.seed_reproducibility.within_band
    assert "checkpoint_promotion_blocked_seed_reproducibility" in own.reason_codes


def test_too_few_pairs_prove_nothing(tmp_path: Path) -> None:
    path = smaller(tmp_path, 12)

    found = proved(tmp_path, suite=path)

    assert found.proof.failure_analysis.reasons[0] == "insufficient_pairs"


def test_what_fails_earns_nothing_and_what_its_surroundings_lose_is_missing(tmp_path: Path) -> None:
    found = {
        name: prove(
            frozen(tmp_path / name, trained=f"python:tests.evidence.projects:{name}"),
            RUN,
            settings=settings_of(tmp_path / name),
            workers=8,  # who cannot be reached is tried again after a while
        )
        for name in ("failing", "unreachable")
    }

    statuses = {
        name: Counter(
            (record.status, record.reward is None)
            for record in read_records(found_records(tmp_path / name, RUN, "trained")).records
        )
        for name in found
    }
    assert statuses["failing"].keys() == {("scored", False), ("failed", False)}
    assert statuses["unreachable"].keys() == {("scored", False), ("missing", True)}
    assert "too_many_missing" in found["unreachable"].proof.failure_analysis.reasons
    assert "too_many_missing" not in found["failing"].proof.failure_analysis.reasons


@pytest.mark.parametrize(("name", "failed"), [("leaving", range(20, 50)), ("blocking", [1])])
def test_a_subject_that_leaves_or_blocks_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, failed: Sequence[int]
) -> None:
    monkeypatch.setattr(running, "TIMEOUT_S", 1.0)

    proved(tmp_path, trained=f"python:tests.evidence.projects:{name}")

    records = read_records(found_records(tmp_path, RUN, "trained")).records
    assert sum(record.status == "failed" for record in records) in failed
    assert not any(record.status == "missing" for record in records)


# Freezing and running


def test_inputs_are_frozen_once(tmp_path: Path) -> None:
    root = frozen(tmp_path)

    with (
        pytest.raises(TauLiveError, match="never change"),
        closing(store_of(settings_of(tmp_path))) as store,
    ):
        plan = Frozen("tool-use-suite-v1", "host", RIGHT, SEEDS)
        freeze(root, RUN, plan, store=store, settings=settings_of(tmp_path))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trained": "policy:tool"}, "policy:POINT@VERSION"),
        ({"trained": "policy:tool@99"}, "99"),
        ({"trained": "magic:1"}, "a subject is"),
        ({"trained": "python:nowhere:x"}, "cannot import"),
        ({"trained": "prompt:p-1"}, "no prompt"),
        ({"trained": "checkpoint:../x.npz"}, "leaves the root"),
        ({"seeds": (1, 1)}, "each seed once"),
        ({"episodes": 7}, "multiple of 240"),
        ({"suite": "none.json"}, "cannot be read"),
    ],
)
def test_what_cannot_be_measured_is_not_frozen(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(TauLiveError, match=words):
        frozen(tmp_path, **changes)

    assert not (tmp_path / Names(RUN).inputs).exists()


def test_a_run_refuses_another_suite_than_the_frozen_one(tmp_path: Path) -> None:
    path = smaller(tmp_path, 20)
    root = frozen(tmp_path, suite=path)
    smaller(tmp_path, 21)

    with pytest.raises(ArtifactError, match="suite_hash_mismatch"):
        run(root, read_inputs(root, RUN), ROLES, settings=settings_of(tmp_path))


def test_workers_make_the_same_reports(tmp_path: Path) -> None:
    reports = []
    for workers in (1, 4):
        folder = tmp_path / str(workers)
        root = frozen(folder)
        inputs = read_inputs(root, RUN)
        run(root, inputs, ROLES, settings=settings_of(folder), workers=workers)
        own = compare(root, inputs)[1].significance
        reports.append(msgspec.structs.replace(own.significance))

    assert reports[0] == reports[1]


def test_comparing_again_leaves_a_proof_valid(tmp_path: Path) -> None:
    found = proved(tmp_path)
    root = Root(tmp_path)

    again = compare(root, read_inputs(root, RUN))[1]

    assert again == found.reports
    assert prove(root, RUN, settings=settings_of(tmp_path)).validation.valid


KILLED = """
import os, signal, sys
from pathlib import Path
from tau_live.core import fault
from tau_live.evidence.artifacts import Root
from tau_live.evidence.records import ROLES, read_inputs
from tau_live.evidence.running import run
from tests.evidence.projects import RUN, settings_of

folder, name, nth = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
reached = 0
def die(point):
    global reached
    reached += point == name
    if reached == nth:
        os.kill(os.getpid(), signal.SIGKILL)
fault.listeners.append(die)
root = Root(folder)
run(root, read_inputs(root, RUN), ROLES, settings=settings_of(folder), workers=2)
"""


@pytest.mark.parametrize("name", ["evidence.stored", "evidence.recorded", "store.commit"])
def test_a_run_that_was_killed_goes_on_without_executing_an_episode_again(
    tmp_path: Path, name: str
) -> None:
    root = frozen(tmp_path, suite=smaller(tmp_path, 20))
    command = [sys.executable, "-c", KILLED, str(tmp_path), name]

    for nth in (3, 17, 40):
        done = subprocess.run(
            [*command, str(nth)], env=environ(tmp_path / "store.sqlite"),
            cwd=Path(__file__).parents[2], check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == -9
    with (tmp_path / Names(RUN).records("trained")).open("ab") as file:
        file.write(b'{"run_id":')  # what a kill in the midst of a write leaves
    ran = run(root, read_inputs(root, RUN), ROLES, settings=settings_of(tmp_path))

    assert ran.torn == ["trained"] and dict(ran.recorded) == {"baseline": 60, "trained": 60}
    with closing(store_of(settings_of(tmp_path), read_only=True)) as store:
        for role in ROLES:
            records = read_records(found_records(tmp_path, RUN, role)).records
            assert sorted(record.episode for record in records) == [*range(60)]
            for record in records:
                rewards = store.rewards.rewards(record.rollout_id)
                assert {one.comment for one in rewards} == {record.sha256}
    assert prove(root, RUN, settings=settings_of(tmp_path)).validation.valid


# Promotion


def order() -> Order:
    return Order("policy_promote", POINT, "proven", "operator", 1e9)


def test_a_champion_is_made_only_on_its_own_proof_that_passes(
    taught: tuple[Path, int], tmp_path: Path
) -> None:
    folder, version = taught
    run_id = "m24-promotion"
    proved(folder, run_id, baseline="host", trained=f"policy:{POINT}@{version}")
    proved(folder, "m24-other", baseline="host", trained=f"policy:{POINT}@{version - 1}")
    forger = Forger(folder, tmp_path / "copy", run_id)
    settings = replace(settings_of(forger.folder), require_proof=True)
    own, other = (forger.folder / Names(name).proof for name in (run_id, "m24-other"))
    forger.change(forger.names.inputs, lambda inputs: inputs["criteria"].update(min_reward_delta=0))
    forged = forger.folder / "forged.json"
    forged.write_bytes(own.read_bytes().replace(b'"pass": true', b'"pass": false'))

    with closing(store_of(settings)) as store:
        refused = [
            _refusal(store, settings, forger.root, proof) for proof in (None, own, forged, other)
        ]
        lines = [line for line in store.audit.entries() if line.action == GATE]
    with closing(store_of(settings_of(folder))) as store:
        changed = promote_on_proof(
            store, replace(settings_of(folder), require_proof=True), order(), act=promote,
            proof=folder / Names(run_id).proof, root=Root(folder),
        )  # fmt: skip
        allowed = [line for line in store.audit.entries() if line.action == GATE]

    assert "require-proof" in refused[0] and "inputs_mismatch" in refused[1]
    assert "pass_mismatch" in refused[2] and "proof_of_another_version" in refused[3]
    assert [line.details["allowed"] for line in lines] == [False] * 3
    assert changed.champion == version and [line.details["allowed"] for line in allowed] == [True]


def _refusal(store: Any, settings: Settings, root: Root, proof: Path | None) -> str:
    with pytest.raises(PolicyError) as raised:
        promote_on_proof(store, settings, order(), act=promote, proof=proof, root=root)
    return str(raised.value)
