import json
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tau_live.core.errors import TauLiveError
from tau_live.core.settings import Settings
from tau_live.evidence.artifacts import Names, Root, plain
from tau_live.evidence.gate import Sources, gate_faults, gate_of, write_gate
from tau_live.evidence.operations import Operations, operations_faults, run_operations
from tau_live.evidence.operations.documents import CHECKS, artifact_of, log_of
from tau_live.evidence.proving import prove
from tau_live.evidence.running import Frozen, freeze, store_of

pytestmark = pytest.mark.slow

RUN_ID = "m24-operations-1"
PROOF = "m24-right"
RUNBOOK = "docs/runbook.md"


def proven(root: Root) -> str:
    """Prove that being right is better than being wrong; return the path of the proof."""
    settings = Settings(store=root.folder / "proof.sqlite")
    subject = "python:tests.evidence.subjects"
    wanted = Frozen("tool-use-suite-v1", f"{subject}:wrong", f"{subject}:right", (1, 2, 3))
    with closing(store_of(settings)) as store:
        freeze(root, PROOF, wanted, store=store, settings=settings)
    assert prove(root, PROOF, settings=settings).proof.significance.pass_
    return Names(PROOF).proof


def do_checks(root: Root, *, proof: str, runbook: str) -> Operations:
    """Do all checks."""
    return run_operations(
        root, RUN_ID, "state", proof=proof, runbooks=[runbook], environ=os.environ
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with an operational proof that has passed."""
    folder = tmp_path_factory.mktemp("operations")
    root = Root(folder)
    root.write_bytes(RUNBOOK, b"# Runbook\n")
    run_operations(
        root, RUN_ID, "state", environ=os.environ, proof=proven(root), runbooks=[RUNBOOK]
    )
    return folder


def document_in(folder: Path) -> Any:
    return json.loads((folder / artifact_of(RUN_ID)).read_bytes())


def codes(document: object, folder: Path) -> set[str]:
    return {fault.code for fault in operations_faults(document, Root(folder))}


def test_all_checks_pass_on_a_good_tree(folder: Path) -> None:
    document = document_in(folder)

    logs = {one["id"]: (folder / one["log_path"]).read_text() for one in document["checks"]}
    assert [(one["id"], one["status"]) for one in document["checks"]] == [
        (name, "pass") for name in CHECKS
    ], logs
    assert operations_faults(document, Root(folder)) == []
    assert "policy rollback" in logs["control_sequence"]
    assert "checkpoint_promotion_blocked_safety_regression" in logs["safety_gate"]
    assert "passed: tasks/reports/m24-resume-after-crash" in logs["resume_playbook"]
    assert "p_value_mismatch" in logs["benchmark_proof"]
    page = (folder / artifact_of(RUN_ID)).with_suffix(".md").read_text()
    assert not any(str(folder) in text for text in (page, *logs.values()))


def test_a_proof_that_is_not_there_fails_its_own_check_alone(folder: Path, tmp_path: Path) -> None:
    root = Root(tmp_path)

    document = run_operations(
        root, RUN_ID, "state", environ=os.environ, proof="none.json", runbooks=["none.md"]
    )

    assert [one.id for one in document.checks if one.status == "fail"] == ["benchmark_proof"]
    assert document.overall_status == "fail"
    assert codes(plain(document), tmp_path) == {"operations_failed"}
    with pytest.raises(TauLiveError, match="choose another run id"):
        do_checks(root, proof="none.json", runbook="none.md")


def test_a_status_that_was_typed_is_refused(folder: Path) -> None:
    document = document_in(folder)
    document["checks"][0]["exit_code"] = 1

    assert codes(document, folder) == {"pass_mismatch"}


def test_an_overall_status_that_was_typed_is_refused(folder: Path) -> None:
    document = document_in(folder)
    document["checks"][0] |= {"exit_code": 1, "status": "fail"}

    assert codes(document, folder) == {"pass_mismatch", "operations_failed"}


def test_a_check_that_was_left_out_is_refused(folder: Path) -> None:
    document = document_in(folder)
    del document["checks"][2]

    assert codes(document, folder) == {"missing_field"}


def test_a_log_that_was_edited_is_refused(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / log_of(RUN_ID, "safety_gate")).write_text("promotion refused\n")
    (copy / RUNBOOK).unlink()

    assert codes(document_in(copy), copy) == {"artifact_hash_mismatch", "artifact_missing"}


def test_the_drill_behind_a_check_is_validated(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    (store,) = copy.glob("state/*/resume_playbook/*/named_point/store.sqlite")
    store.unlink()

    assert codes(document_in(copy), copy) == {"operations_failed"}


def test_the_proof_behind_a_check_is_validated(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    records = copy / Names(PROOF).records("trained")
    records.write_bytes(b"".join(records.read_bytes().splitlines(keepends=True)[:-1]))

    assert codes(document_in(copy), copy) == {"operations_failed"}


def sources_of(**changes: str) -> Sources:
    own = Sources(Names(PROOF).proof, artifact_of(RUN_ID), RUNBOOK, RUNBOOK)
    return own._replace(**changes)


def test_the_gate_passes_on_a_good_tree(folder: Path) -> None:
    root = Root(folder)

    gate = write_gate(root, "m24-gate-1", sources_of())

    assert (gate.decision.pass_, gate.decision.reason_codes) == (True, [])
    assert gate.operations.rollback_proven
    assert gate_faults(json.loads((folder / Names("m24-gate-1").gate).read_bytes()), root) == []


@pytest.mark.parametrize(
    ("changes", "flag", "code"),
    [
        ({"proof": "none.json"}, "benchmark_pass", "benchmark_failed"),
        ({"operations": "none.json"}, "operations_pass", "operations_failed"),
        ({"operator_runbook": "none.md"}, "runbooks_present", "operator_runbook_missing"),
        ({"incident_playbook": "../none.md"}, "runbooks_present", "incident_playbook_missing"),
    ],
)
def test_what_is_missing_flips_its_own_flag(
    folder: Path, changes: dict[str, str], flag: str, code: str
) -> None:
    root = Root(folder)

    gate = gate_of(root, "m24-gate-2", sources_of(**changes), at_ms=1)

    codes = [*gate.decision.reason_codes]
    if "proof" in changes:  # safety is measured by the proof
        codes.remove("safety_failed")
    assert codes == [code]
    assert not plain(gate)["decision"][flag]
    assert not gate.decision.pass_
    assert gate_faults(plain(gate), root) == []


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("decision", "pass", True),
        ("decision", "operations_pass", True),
        ("operations", "pass", True),
        ("operations", "recovery_drill_proven", True),
        ("safety", "observed_regression", -1.0),
        ("benchmark", "fail_reports", 3),
    ],
)
def test_a_flag_that_was_set_by_hand_is_refused(
    folder: Path, group: str, name: str, value: object
) -> None:
    root = Root(folder)
    document = plain(gate_of(root, "m24-gate-3", sources_of(operations="none.json"), at_ms=1))

    document[group][name] = value
    (fault,) = gate_faults(document, root)

    assert (fault.code, fault.pointer) == ("gate_flag_mismatch", f"/{group}/{name}")


def test_a_reference_to_another_file_is_refused(folder: Path) -> None:
    root = Root(folder)
    document = plain(gate_of(root, "m24-gate-4", sources_of(), at_ms=1))

    document["runbooks"]["operator_runbook_ref"]["sha256"] = "0" * 64

    codes = {fault.code for fault in gate_faults(document, root)}
    assert codes == {"artifact_hash_mismatch", "gate_flag_mismatch"}
