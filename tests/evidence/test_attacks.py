"""Attacks that once succeeded: code that is named, bytes that change, unchecked claims."""

import fcntl
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tau_live.core.errors import TauLiveError
from tau_live.evidence.artifacts import ArtifactError, digest, digest_of, parse, plain
from tau_live.evidence.records import ROLES, read_inputs
from tau_live.evidence.running import run, store_of
from tau_live.evidence.subjects import _output_of
from tests.evidence.projects import RUN, Forger, frozen, proved, settings_of
from tests.evidence.test_forgeries import put
from tests.evidence.test_proof import POINT, learned

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest") / "project"
    proved(folder)
    return folder


@pytest.fixture
def forger(honest: Path, tmp_path: Path) -> Forger:
    return Forger(honest, tmp_path / "forged")


def resealed_inputs(how: Callable[[Any], object]) -> Callable[[Any], object]:
    def change(inputs: Any) -> None:
        how(inputs)
        inputs["inputs_sha256"] = digest_of(inputs, without="inputs_sha256")

    return change


def test_nothing_that_an_artifact_names_is_executed(
    forger: Forger, monkeypatch: pytest.MonkeyPatch
) -> None:
    (forger.folder / "evil.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    monkeypatch.chdir(forger.folder)
    monkeypatch.syspath_prepend(str(forger.folder))
    role = {"kind": "policy", "subject": "python:evil:f", "policy_sha256": "1" * 64}

    forger.change(forger.names.inputs, resealed_inputs(put("roles", "trained", value=role)))
    forger.reseal()
    codes = forger.codes(store=True, re_execute=5)

    assert "inputs_mismatch" in codes
    assert not (forger.folder / "ran").exists() and "evil" not in sys.modules


PROOFS: dict[str, tuple[Callable[[Any], object], str]] = {
    "executed again, it says": (
        put("verification", value={"level": "re_executed", "re_executed": 0, "seal_head": None}),
        "out_of_range",
    ),
    "no head of a chain": (
        put("verification", "seal_head", value="lol"), "seal_broken",
    ),
    "half a surrogate": (put("trained", "checkpoint_id", value="\ud800"), "not_json"),
    "nested deeply": (
        put("failure_analysis", value=json.loads("[" * 900 + "]" * 900)), "not_json",
    ),
    "no version": (lambda proof: proof.pop("schema_version"), "missing_field"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROOFS)
def test_claims_that_nobody_checked_are_refused(forger: Forger, name: str) -> None:
    how, code = PROOFS[name]

    forger.change(forger.names.proof, how)

    assert code in forger.codes()


def test_the_head_of_a_proof_is_that_of_the_store(forger: Forger) -> None:
    forger.change(forger.names.proof, put("verification", "seal_head", value="5:" + "0" * 32))
    forger.reseal()

    assert forger.codes() == set() and forger.codes(store=True) == {"seal_broken"}


def test_reports_are_made_before_the_proof_and_after_the_episodes(forger: Forger) -> None:
    for at in ("1970-01-01T00:00:00Z", "2030-01-01T00:00:00Z"):
        forger.change(forger.names.report("baseline"), put("generated_at", value=at))
        forger.reseal()

        assert "clock_order" in forger.codes()


def test_without_its_signature_a_proof_is_refused_where_the_key_is(forger: Forger) -> None:
    assert forger.codes(key=b"k" * 32) == {"proof_hmac_mismatch"}


@pytest.mark.parametrize("days", [10**12, 2**62])
def test_a_report_is_not_kept_for_millions_of_years(forger: Forger, days: int) -> None:
    path = forger.names.report("trained")
    forger.change(path, put("retention", "retain_days", value=days))

    assert forger.codes(path) == {"bad_retain_days"}


def test_records_are_canonical(forger: Forger) -> None:
    forger.change_lines("trained", lambda lines: [lines[0].replace(b":", b": ", 1), *lines[1:]])
    forger.reseal()

    assert "records_malformed" in forger.codes()


@pytest.mark.parametrize(
    "returned",
    [
        {"output": "x", "safety_penalty": -1.0}, {"output": "x", "safety_penalty": 1e308},
        {"output": "x", "safety_penalty": "0"}, {"output": "x", "tokens": True},
        {"output": "x", "tokens": 1.5}, {"output": "x", "cost_usd": float("nan")},
        {"output": "\ud800"}, {"answer": "x"}, 7,
    ],
)  # fmt: skip
def test_what_a_subject_reports_is_checked(returned: object) -> None:
    with pytest.raises(ValueError, match=r"must|surrogate"):
        _output_of(returned)


def test_no_two_processes_execute_one_run(tmp_path: Path) -> None:
    root = frozen(tmp_path)
    inputs = read_inputs(root, RUN)

    with root.place(f"tasks/reports/m24-benchmark-inputs-{RUN}.json").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(TauLiveError, match="another process executes"):
            run(root, inputs, ROLES, settings=settings_of(tmp_path))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"baseline": "policy:tool@0", "suite": "reasoning-suite-v1"}, "needs an agent"),
        ({"suite": "reasoning-suite-v1"}, "needs an agent or a model"),
        ({"suite": "tool-use-smoke-v1"}, "fewer than 10"),
        ({"seeds": (1, 2)}, "at least 3 seeds"),
        ({"baseline": "python:tests.evidence.projects:right"}, "one subject"),
    ],
)
def test_a_plan_that_could_never_pass_is_not_frozen(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(TauLiveError, match=words):
        frozen(tmp_path, **changes)


def test_a_baseline_that_always_fails_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TauLiveError, match="every execution of baseline has failed"):
        proved(tmp_path, baseline="python:tests.evidence.test_attacks:broken")


def broken(case: object, seed: int) -> str:
    """Fail at once."""
    raise TypeError("takes other arguments")


def test_a_replaced_policy_is_found(tmp_path: Path) -> None:
    version = learned(settings_of(tmp_path), runs=60)
    proved(tmp_path, baseline="host", trained=f"policy:{POINT}@{version}")
    forger = Forger(tmp_path, tmp_path.parent / f"{tmp_path.name}-copy")
    with closing(store_of(settings_of(forger.folder))) as store:
        assert forger.codes(store=True) == set()
        store.close()
    with closing(sqlite3.connect(forger.folder / "store.sqlite")) as raw:
        raw.execute("update policies set sha256 = ? where version = ?", ("0" * 64, version))
        raw.commit()

    assert "inputs_mismatch" in forger.codes(store=True)


def test_inputs_are_refused_before_they_are_written(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"bad_run_id|out_of_range"):
        frozen(tmp_path, "m24-../x")
    with pytest.raises(ArtifactError, match="out_of_range"):
        frozen(tmp_path, seeds=(-1, 2, 3))

    assert not [*tmp_path.rglob("*inputs*")]


def test_a_document_is_read_as_it_is_written(forger: Forger) -> None:
    content = (forger.folder / forger.names.inputs).read_bytes()

    assert plain(read_inputs(forger.root, RUN)) == parse(content)


def test_rewards_that_are_sealed_anew_after_the_proof_are_found(forger: Forger) -> None:
    def cheaper(lines: list[bytes]) -> list[bytes]:
        return [lines[0].replace(b'"tokens":12', b'"tokens":11'), *lines[1:]]

    forger.change_lines("trained", cheaper)
    line = (forger.folder / forger.names.records("trained")).read_bytes().splitlines(True)[0]
    record = json.loads(line)
    with closing(store_of(settings_of(forger.folder))) as store:
        connection = store.rewards._connection
        own = store.rewards.rewards(record["rollout_id"])
        connection.change("delete from rewards where rollout_id = ?", (record["rollout_id"],))
        with store.batch([record["rollout_id"]]) as batch:
            for reward in own:
                batch.add_reward(msgspec.structs.replace(reward, comment=digest(line), seq=0))
        connection.change(
            "update rollouts set output = ? where rollout_id = ?",
            (json.dumps(record), record["rollout_id"]),
        )

    forger.reseal()

    assert "seal_broken" in forger.codes(store=True)
