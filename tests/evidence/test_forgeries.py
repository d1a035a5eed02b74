"""Forged artifacts, each refused with the code that it deserves; the honest one is valid."""

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tau_live.core.records import Rollout, RolloutMode
from tau_live.evidence.artifacts import content_of, digest, template_of, timestamp
from tau_live.evidence.comparison import read_evidence, reports_of, significance_of
from tau_live.evidence.proof import hmac_of
from tau_live.evidence.records import Record, read_inputs, read_records
from tau_live.evidence.running import store_of
from tau_live.evidence.validation import STRUCTS
from tau_live.store.opening import open_at
from tau_live.store.sealing import Sealer
from tests.evidence.projects import RUN, Forger, proved, settings_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with a proof that passes."""
    folder = tmp_path_factory.mktemp("honest") / "project"
    assert proved(folder).proof.significance.pass_
    return folder


@pytest.fixture
def forger(honest: Path, tmp_path: Path) -> Forger:
    return Forger(honest, tmp_path / "forged")


def test_the_honest_proof_is_valid_with_and_without_the_store(forger: Forger) -> None:
    found = [forger.validation(), forger.validation(store=True, re_execute=20)]

    assert [(one.valid, one.level, one.errors) for one in found] == [
        (True, "records", []), (True, "re_executed", []),
    ]  # fmt: skip


def put(*keys: str, value: object) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        at = document
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value

    return change


PROOF: dict[str, tuple[Callable[[Any], None], str]] = {
    "p of .9 that passes": (put("significance", "p_value", value=0.9), "p_value_mismatch"),
    "confidence of .1": (
        put("significance", "confidence_level", value=0.1), "confidence_level_invalid",
    ),
    "confidence of 1 - p": (
        put("significance", "confidence_level", value=0.9999), "confidence_level_invalid",
    ),
    "confidence of 2": (put("significance", "confidence_level", value=2.0), "out_of_range"),
    "p of 2": (put("significance", "p_value", value=2), "out_of_range"),
    "a mean of NaN": (put("trained", "mean_reward", value=float("nan")), "not_finite"),
    "a mean of 'NaN'": (put("trained", "mean_reward", value="NaN"), "not_finite"),
    "a better mean": (put("trained", "mean_reward", value=0.99), "mean_mismatch"),
    "an interval further up": (
        put("significance", "delta_ci_low", value=0.5), "interval_mismatch",
    ),
    "more pairs": (put("significance", "pairs", value=200), "planned_n_mismatch"),
    "pass of 1": (put("significance", "pass", value=1), "wrong_type"),
    "pass of false": (put("significance", "pass", value=False), "pass_mismatch"),
    "looser criteria": (put("criteria", "min_reward_delta", value=0.0), "criteria_loosened"),
    "criteria below 10 pairs": (put("criteria", "min_pairs", value=2), "out_of_range"),
    "more safety than measured": (
        put("safety_benchmark", "safety_upper_bound", value=-0.5), "safety_mismatch",
    ),
    "another subject": (put("trained", "checkpoint_id", value="policy:a@1"), "inputs_mismatch"),
    "no digest of the policy": (put("trained", "policy_sha256", value=""), "policy_hash_missing"),
    "schema 2": (put("schema_version", value=2), "unsupported_schema_version"),
    "schema 4294967297": (put("schema_version", value=4294967297), "unsupported_schema_version"),
    "schema true": (put("schema_version", value=True), "unsupported_schema_version"),
    "a future date": (put("generated_at", value="2999-01-01T00:00:00Z"), "clock_order"),
    "a date before the episodes": (
        put("generated_at", value="2020-01-01T00:00:00Z"), "clock_order",
    ),
    "no date": (put("generated_at", value="yesterday"), "bad_timestamp"),
    "February 30": (put("generated_at", value="2026-02-30T00:00:00Z"), "bad_timestamp"),
    "another program's run id": (put("run_id", value="M24_x"), "bad_run_id"),
    "a file that does not exist": (
        put("artifacts", "inputs", "path", value="tasks/reports/none.json"), "artifact_missing",
    ),
    "a file out of the root": (
        put("artifacts", "inputs", "path", value="../inputs.json"), "artifact_outside_root",
    ),
    "an absolute path": (
        put("artifacts", "inputs", "path", value="/etc/hostname"), "artifact_outside_root",
    ),
    "another file's digest": (
        put("artifacts", "inputs", "sha256", value="0" * 64), "artifact_hash_mismatch",
    ),
    "an unknown field": (put("note", value="trust me"), "unknown_field"),
    "a blank name": (put("benchmark_suite", "name", value=" "), "blank_string"),
    "no reasons": (put("failure_analysis", value=None), "wrong_type"),
    "another gain": (put("failure_analysis", "reward_delta", value=0.9), "delta_mismatch"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROOF)
def test_a_forged_proof_is_refused(forger: Forger, name: str) -> None:
    how, code = PROOF[name]

    forger.change(forger.names.proof, how)

    assert code in forger.codes()


@pytest.mark.parametrize("text", ["1e999", "NaN", "-Infinity"])
def test_a_number_that_json_does_not_know_is_refused(forger: Forger, text: str) -> None:
    place = forger.folder / forger.names.proof
    document = json.loads(place.read_text())
    document["significance"]["p_value"] = 0.123456
    place.write_text(json.dumps(document).replace("0.123456", text))

    assert "not_finite" in forger.codes()


def test_a_key_that_is_given_twice_is_refused(forger: Forger) -> None:
    place = forger.folder / forger.names.proof
    text = place.read_text().replace('"run_id"', '"run_id": "m24-other", "run_id"', 1)
    place.write_text(text)

    assert forger.codes() == {"duplicate_key"}


@pytest.mark.parametrize(("content", "code"), [(b"{", "not_json"), (b"[]", "not_an_object")])
def test_what_is_no_artifact_is_refused(forger: Forger, content: bytes, code: str) -> None:
    (forger.folder / forger.names.proof).write_bytes(content)

    assert forger.codes() == {code}


@pytest.mark.parametrize("kind", STRUCTS)
def test_a_template_is_refused_as_it_is(forger: Forger, kind: str) -> None:
    (forger.folder / "empty.json").write_bytes(json.dumps(template_of(STRUCTS[kind])).encode())

    assert "template_not_filled" in forger.codes("empty.json")


def test_a_digest_that_was_not_made_again_is_refused(forger: Forger) -> None:
    forger.change(forger.names.proof, put("failure_analysis", "summary", value="splendid"))

    assert forger.codes() >= {"proof_hash_mismatch", "reason_codes_mismatch"}


# Records


Lines = Callable[[list[bytes]], list[bytes]]


def changed(how: Callable[[dict[str, Any]], None], number: int = 0) -> Lines:
    def change(lines: list[bytes]) -> list[bytes]:
        record = json.loads(lines[number])
        how(record)
        text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return [*lines[:number], f"{text}\n".encode(), *lines[number + 1 :]]

    return change


RECORDS: dict[str, tuple[str, Lines, str]] = {
    "a better record": ("trained", changed(put("reward", value=1.0)), "records_malformed"),
    "a record of another case": (
        "trained", changed(put("case_id", value="tool-099")), "inputs_mismatch",
    ),
    "a doubled record": ("trained", lambda lines: [*lines, lines[-1]], "records_duplicate_episode"),
    "a dropped bad record": ("baseline", lambda lines: lines[1:], "records_count_mismatch"),
    "a record of another run": (
        "trained", changed(put("run_id", value="m24-other")), "records_foreign_run",
    ),
    "a record of another role": (
        "trained", changed(put("role", value="baseline")), "records_foreign_run",
    ),
    "another seed": ("trained", changed(put("seed", value=9)), "seed_mismatch"),
    "another suite": (
        "trained", changed(put("suite_sha256", value="0" * 64)), "suite_hash_mismatch",
    ),
    "a torn line": ("trained", lambda lines: [*lines, b'{"run_id":'], "records_malformed"),
    "no JSON": ("trained", lambda lines: [b"!\n", *lines[1:]], "records_malformed"),
    "a missing one with a reward": (
        "trained", changed(put("status", value="missing")), "records_malformed",
    ),
    "ended before it began": (
        "trained", changed(put("ended_at", value="2020-01-01T00:00:00Z")), "clock_order",
    ),
    "a reward of 1e999": (
        "trained", lambda lines: [lines[0].replace(b'"reward":', b'"reward":1e999,"x":'),
                                  *lines[1:]], "records_malformed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("reseals", [False, True])
def test_forged_records_are_refused(forger: Forger, name: str, reseals: bool) -> None:
    role, how, code = RECORDS[name]

    forger.change_lines(role, how)
    if reseals:
        forger.reseal()

    assert code in forger.codes()


def test_records_of_the_baseline_that_were_copied_are_refused(forger: Forger) -> None:
    records = [read_records((forger.folder / forger.names.records(role)).read_bytes()).records
               for role in ("baseline", "trained")]  # fmt: skip
    fields = ("output_sha256", "started_at", "ended_at", "latency_ms", "reward", "dimensions")

    def copy(lines: list[bytes]) -> list[bytes]:
        del lines
        return [_with(new, **{name: getattr(old, name) for name in fields}).line
                for old, new in zip(*records, strict=True)]  # fmt: skip

    forger.change_lines("trained", copy)
    forger.reseal()

    assert "copied_records" in forger.codes()


def _with(record: Record, **fields: object) -> Record:
    return msgspec.structs.replace(record, **fields)


def test_missing_records_are_told(forger: Forger) -> None:
    (forger.folder / forger.names.records("trained")).unlink()

    assert forger.codes() >= {"records_missing"}


def test_swapped_roles_are_refused(forger: Forger) -> None:
    names = [forger.folder / forger.names.records(role) for role in ("baseline", "trained")]
    aside = forger.folder / "aside"
    shutil.move(names[0], aside)
    shutil.move(names[1], names[0])
    shutil.move(aside, names[1])
    forger.reseal()

    assert "records_foreign_run" in forger.codes()


# Inputs and reports


INPUTS: dict[str, tuple[Callable[[Any], None], str]] = {
    "looser criteria": (put("criteria", "max_p_value", value=0.5), "inputs_mismatch"),
    "one subject": (
        lambda inputs: inputs["roles"].update(trained=inputs["roles"]["baseline"]), "same_policy",
    ),
    "another number of pairs": (put("planned_pairs", value=70), "planned_n_mismatch"),
    "a seed twice": (put("seeds", value=[1, 1, 2]), "seed_mismatch"),
    "another suite": (put("suite", "sha256", value="0" * 64), "suite_hash_mismatch"),
}  # fmt: skip


@pytest.mark.parametrize("name", INPUTS)
def test_forged_inputs_are_refused(forger: Forger, name: str) -> None:
    how, code = INPUTS[name]

    forger.change(forger.names.inputs, how)

    assert code in forger.codes(forger.names.inputs) and code in forger.codes()


def test_another_suite_is_refused(forger: Forger) -> None:
    forger.change(
        "tasks/suites/tool-use-suite-v1.json",
        put("description", value="easier"),
    )

    assert "suite_hash_mismatch" in forger.codes()


REPORTS: dict[str, tuple[Callable[[Any], None], str]] = {
    "p": (put("significance", "p_value", value=0.0), "p_value_mismatch"),
    "drawn p": (put("significance", "draws", value=99), "p_value_mismatch"),
    "t interval": (put("significance", "t_ci_low", value=0.9), "interval_mismatch"),
    "gain": (put("significance", "mean_delta", value=0.9), "delta_mismatch"),
    "safety": (put("significance", "safety_regression", value=-1.0), "safety_mismatch"),
    "sizes": (
        put("significance", "sample_size_sensitivity", "max_p_value_drift", value=0.01),
        "sensitivity_mismatch",
    ),
    "seeds": (
        put("significance", "seed_reproducibility", "reward_delta_range", value=0.02),
        "reproducibility_mismatch",
    ),
    "comparisons": (put("significance", "comparisons", value=3), "holm_mismatch"),
    "pass": (put("significance", "pass", value=False), "pass_mismatch"),
    "reasons": (put("significance", "reason_codes", value=["none"]), "reason_codes_mismatch"),
    "kind": (put("report_kind", value="praise"), "bad_report_kind"),
    "place": (put("publication", "report_path", value="x.json"), "bad_report_path"),
    "place of the archive": (put("publication", "archive_path", value="x"), "bad_archive_path"),
    "retention": (put("retention", "policy", value="forever"), "bad_retention_policy"),
    "days": (put("retention", "retain_days", value=0), "bad_retain_days"),
    "retain 10, archive 20": (
        lambda report: report["retention"].update(retain_days=10, archive_after_days=20),
        "bad_archive_after_days",
    ),
    "purge": (put("retention", "purge_after", value="2026-01-01T00:00:00Z"), "bad_purge_after"),
    "run": (put("run_id", value="m24-right-2"), "path_run_id_mismatch"),
}  # fmt: skip


@pytest.mark.parametrize("name", REPORTS)
def test_a_forged_report_is_refused(forger: Forger, name: str) -> None:
    how, code = REPORTS[name]

    forger.change(forger.names.report("significance"), how)

    assert code in forger.codes(forger.names.report("significance"))


@pytest.mark.parametrize("name", sorted(REPORTS.keys() - {"kind", "run"}))
def test_a_proof_with_a_forged_report_is_refused(forger: Forger, name: str) -> None:
    how, code = REPORTS[name]

    forger.change(forger.names.report("significance"), how)
    forger.reseal()

    assert code in forger.codes()


def test_links_out_of_the_root_are_refused(forger: Forger, tmp_path: Path) -> None:
    place = forger.folder / forger.names.report("trained")
    outside = tmp_path / "outside.json"
    shutil.move(place, outside)
    place.symlink_to(outside)

    assert "artifact_outside_root" in forger.codes()


# The store


def test_consistent_invented_records_are_found_by_the_store(forger: Forger) -> None:
    def invent(lines: list[bytes]) -> list[bytes]:
        return [changed(lambda record: record.update(tokens=1), place)(lines)[place]
                for place in range(len(lines))]  # fmt: skip

    forger.change_lines("trained", invent)
    forger.reseal()

    assert forger.codes() == set()  # records alone cannot tell
    assert "record_differs_from_store" in forger.codes(store=True)


def test_records_that_no_store_has_are_found(forger: Forger) -> None:
    for path in forger.folder.glob("store.sqlite*"):
        if path.is_file():
            path.unlink()
    settings = settings_of(forger.folder)
    open_at(settings.store).close()

    assert "record_not_in_store" in forger.codes(store=True)


def test_an_edited_store_is_found_by_its_seals(forger: Forger) -> None:
    def better(record: dict[str, Any]) -> None:
        record["cost_usd"] = 0.0

    forger.change_lines("trained", changed(better))
    forger.reseal()
    line = (forger.folder / forger.names.records("trained")).read_bytes().splitlines(True)[0]
    record = json.loads(line)
    with sqlite3.connect(forger.folder / "store.sqlite") as raw:
        raw.execute("update rewards set comment = ? where rollout_id = ?",
                    (digest(line), record["rollout_id"]))  # fmt: skip
        raw.execute("update rollouts set output = ? where rollout_id = ?",
                    (json.dumps(record), record["rollout_id"]))  # fmt: skip
    raw.close()

    codes = forger.codes(store=True)
    assert "seal_broken" in codes and "record_differs_from_store" not in codes


def test_a_case_from_training_is_found(forger: Forger) -> None:
    suite = json.loads((forger.folder / "tasks/suites/tool-use-suite-v1.json").read_text())
    rollout = Rollout(
        rollout_id="opt-1", mode=RolloutMode.TRAIN, queue="opt",
        input={"prompt": suite["cases"][3]["prompt"]},
    )  # fmt: skip
    with closing(store_of(settings_of(forger.folder))) as store:
        store.queue.enqueue(rollout)

    assert "contaminated_case" in forger.codes(store=True)


# Keys, and other machines


def test_a_proof_with_a_key_is_checked_by_whoever_has_it(forger: Forger) -> None:
    key = b"k" * 32

    def sign(proof: dict[str, Any]) -> None:
        proof["proof_hmac"], proof["key_id"] = hmac_of(proof, key), Sealer(key).key_id

    forger.change(forger.names.proof, sign)

    assert forger.codes(key=key) == set()
    assert forger.codes(key=b"o" * 32) == {"unknown_key_id"}
    forger.change(forger.names.proof, put("proof_hmac", value="0" * 64))
    assert forger.codes(key=key) == {"proof_hmac_mismatch"}


def test_a_proof_stays_valid_elsewhere(forger: Forger, tmp_path: Path) -> None:
    elsewhere = tmp_path / "a folder of élan"
    shutil.move(forger.folder, elsewhere)
    forger = Forger(elsewhere, tmp_path / "again")
    before = {name: os.environ.get(name) for name in ("TZ", "LC_ALL")}
    os.environ |= {"TZ": "Pacific/Kiritimati", "LC_ALL": "de_DE.UTF-8"}
    time.tzset()
    try:
        assert forger.codes(store=True) == set()
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ |= {} if value is None else {name: value}
        time.tzset()


def test_reports_of_the_same_records_are_the_same_bytes(forger: Forger) -> None:
    evidence = read_evidence(forger.root, read_inputs(forger.root, RUN))
    at = timestamp(1_800_000_000)

    twice = [
        [content_of(one) for one in reports_of(evidence, significance_of(evidence), at)]
        for _ in range(2)
    ]

    assert twice[0] == twice[1]
