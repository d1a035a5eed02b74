"""The gate bundle: the exit decision of a programme, computed from validated artifacts alone."""

import time
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from tau_live.evidence.artifacts import (
    DAY_S,
    ArtifactError,
    Fault,
    Names,
    Natural,
    NotNegative,
    Reference,
    Root,
    RunId,
    as_kind,
    check,
    parse,
    plain,
)
from tau_live.evidence.operations import Operations, operations_faults
from tau_live.evidence.proof import Proof
from tau_live.evidence.validation import Checked, validate


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the bundle."""


class BenchmarkFlags(_Part, frozen=True, kw_only=True):
    """Whether the benchmark is passed.

    Attributes:
        pass_: Whether the proof is valid and passes.
        pass_reports: 1 if it is valid and passes.
        fail_reports: 1 if it is valid and does not pass.
        invalid_files: 1 if it is not valid, or not there.
        reason_codes: Why it does not pass, or what is wrong with it.
        report_ref: The proof; ``None`` if it is not there.
    """

    pass_: bool = msgspec.field(name="pass")
    pass_reports: Natural
    fail_reports: Natural
    invalid_files: Natural
    reason_codes: list[str]
    report_ref: Reference | None


class SafetyFlags(_Part, frozen=True, kw_only=True):
    """Whether safety allows a promotion.

    Attributes:
        pass_: Whether the proof is valid and its safety report allows it.
        observed_regression: The mean difference of penalties; ``None`` if unknown.
        upper_bound: Its bound; ``None`` if unknown.
        max_allowed_regression: The largest allowed for either; ``None`` without a valid proof.
        reason_codes: What speaks against it.
        report_ref: The safety report; ``None`` without a valid proof.
    """

    pass_: bool = msgspec.field(name="pass")
    observed_regression: float | None
    upper_bound: float | None
    max_allowed_regression: NotNegative | None
    reason_codes: list[str]
    report_ref: Reference | None


class OperationsFlags(_Part, frozen=True, kw_only=True):
    """Whether the operational proof is passed.

    Attributes:
        pass_: Whether it is valid and passes.
        pause_resume_proven: Whether a running agent has obeyed pause and resume.
        rollback_proven: Whether it has obeyed a rollback.
        recovery_drill_proven: Whether a drill has passed.
        report_ref: The operational proof; ``None`` if it is not there.
        recovery_log_ref: The log of the drill; ``None`` if it is not there.
    """

    pass_: bool = msgspec.field(name="pass")
    pause_resume_proven: bool
    rollback_proven: bool
    recovery_drill_proven: bool
    report_ref: Reference | None
    recovery_log_ref: Reference | None


class RunbookFlags(_Part, frozen=True, kw_only=True):
    """The runbooks.

    Attributes:
        operator_runbook_ref: How to operate it; ``None`` if it is not there.
        incident_playbook_ref: What to do in an incident; ``None`` if it is not there.
    """

    operator_runbook_ref: Reference | None
    incident_playbook_ref: Reference | None


class Decision(_Part, frozen=True, kw_only=True):
    """The exit decision.

    Attributes:
        pass_: Whether nothing speaks against it.
        benchmark_pass: Whether the benchmark is passed.
        safety_pass: Whether safety allows a promotion.
        operations_pass: Whether the operational proof is passed.
        runbooks_present: Whether both runbooks are there.
        reason_codes: What speaks against it.
    """

    pass_: bool = msgspec.field(name="pass")
    benchmark_pass: bool
    safety_pass: bool
    operations_pass: bool
    runbooks_present: bool
    reason_codes: list[str]


class Gate(_Part, frozen=True, kw_only=True):
    """The gate bundle.

    Attributes:
        schema_version: 1.
        run_id: The bundle.
        generated_at_epoch_ms: When it was written.
        benchmark: The benchmark.
        safety: Safety.
        operations: Operations.
        runbooks: The runbooks.
        decision: The exit decision.
    """

    schema_version: Literal[1] = 1
    run_id: RunId
    generated_at_epoch_ms: Natural
    benchmark: BenchmarkFlags
    safety: SafetyFlags
    operations: OperationsFlags
    runbooks: RunbookFlags
    decision: Decision


class Sources(NamedTuple):
    """The sources of a bundle, each from the root; empty for none.

    Attributes:
        proof: The proof of the benchmark.
        operations: The operational proof.
        operator_runbook: How to operate it.
        incident_playbook: What to do in an incident.
    """

    proof: str
    operations: str
    operator_runbook: str
    incident_playbook: str


def write_gate(root: Root, run_id: str, sources: Sources) -> Gate:
    """Write the bundle of a run, and return it; ``decision`` says whether it passes.

    Raises:
        ArtifactError: The run id is none.
        TauLiveError: It cannot be written.
    """
    gate = gate_of(root, run_id, sources, at_ms=int(1000 * time.time()))
    faults = check(plain(gate), Gate)
    if faults:
        raise ArtifactError(*faults)
    root.write(Names(run_id).gate, gate)
    return gate


def gate_of(root: Root, run_id: str, sources: Sources, *, at_ms: int) -> Gate:
    """Return the bundle that artifacts give; nothing is believed that is not validated.

    Args:
        root: The project folder.
        run_id: The bundle.
        sources: What it is computed from.
        at_ms: Epoch milliseconds.
    """
    benchmark, proof = _benchmark(root, sources.proof)
    safety, operations = _safety(root, proof), _operations(root, sources.operations)
    runbooks = RunbookFlags(
        operator_runbook_ref=_reference(root, sources.operator_runbook),
        incident_playbook_ref=_reference(root, sources.incident_playbook),
    )
    fails = {
        "benchmark_failed": not benchmark.pass_,
        "safety_failed": not safety.pass_,
        "operations_failed": not operations.pass_,
        "operator_runbook_missing": runbooks.operator_runbook_ref is None,
        "incident_playbook_missing": runbooks.incident_playbook_ref is None,
    }
    codes = [code for code, is_reason in fails.items() if is_reason]
    return Gate(
        run_id=run_id,
        generated_at_epoch_ms=at_ms,
        benchmark=benchmark,
        safety=safety,
        operations=operations,
        runbooks=runbooks,
        decision=Decision(
            pass_=not codes,
            benchmark_pass=benchmark.pass_,
            safety_pass=safety.pass_,
            operations_pass=operations.pass_,
            runbooks_present=None not in {*msgspec.structs.astuple(runbooks)},
            reason_codes=codes,
        ),
    )


def _benchmark(root: Root, path: str) -> tuple[BenchmarkFlags, Proof | None]:
    """Return the flags of a proof, and the proof if it is valid."""
    proof, codes = None, ["artifact_missing"]
    if path:
        checked = validate(root.folder / path, Checked(root))
        codes = sorted({fault.code for fault in checked.errors})
        if checked.valid and checked.kind == "proof":
            proof = as_kind(parse(root.read(path)), Proof)
            codes = proof.failure_analysis.reasons
    passes = proof is not None and proof.significance.pass_
    flags = BenchmarkFlags(
        pass_=passes,
        pass_reports=int(passes),
        fail_reports=int(proof is not None and not passes),
        invalid_files=int(proof is None),
        reason_codes=codes,
        report_ref=_reference(root, path),
    )
    return flags, proof


def _safety(root: Root, proof: Proof | None) -> SafetyFlags:
    if proof is None:
        return SafetyFlags(
            pass_=False, observed_regression=None, upper_bound=None, max_allowed_regression=None,
            reason_codes=["safety_unknown"], report_ref=None,
        )  # fmt: skip
    own = proof.safety_benchmark
    return SafetyFlags(
        pass_=own.promotion_allowed,
        observed_regression=own.safety_regression_delta,
        upper_bound=own.safety_upper_bound,
        max_allowed_regression=own.max_safety_regression,
        reason_codes=own.reason_codes,
        report_ref=_reference(root, own.report_path),
    )


def _operations(root: Root, path: str) -> OperationsFlags:
    passed, log = set[str](), ""
    passes = False
    try:
        document = parse(root.read(path))
        own = as_kind(document, Operations)
        passed = {item.id for item in own.checks if item.status == "pass"}
        passes = not operations_faults(document, root)
        log = next((item.log_path for item in own.checks if item.id == "resume_playbook"), "")
    except ArtifactError:
        passed = set()
    return OperationsFlags(
        pass_=passes,
        pause_resume_proven=passes and "control_sequence" in passed,
        rollback_proven=passes and "control_sequence" in passed,
        recovery_drill_proven=passes and "resume_playbook" in passed,
        report_ref=_reference(root, path),
        recovery_log_ref=_reference(root, log),
    )


def _reference(root: Root, path: str) -> Reference | None:
    try:
        return root.reference(path)
    except ArtifactError:
        return None


def gate_faults(document: object, root: Root) -> list[Fault]:
    """Return every fault of a bundle, by pointer; one that is valid need not pass.

    Args:
        document: The artifact, as JSON data.
        root: The project folder.
    """
    faults = check(document, Gate)
    if not faults:
        own = msgspec.convert(document, Gate)
        references = {
            "/benchmark/report_ref": own.benchmark.report_ref,
            "/safety/report_ref": own.safety.report_ref,
            "/operations/report_ref": own.operations.report_ref,
            "/operations/recovery_log_ref": own.operations.recovery_log_ref,
            "/runbooks/operator_runbook_ref": own.runbooks.operator_runbook_ref,
            "/runbooks/incident_playbook_ref": own.runbooks.incident_playbook_ref,
        }
        for at, reference in references.items():
            faults += [*_reference_faults(root, reference, at)]
        faults += [*_flag_faults(own, root)]
        if own.generated_at_epoch_ms > 1000 * (time.time() + DAY_S):
            faults.append(Fault("clock_order", "/generated_at_epoch_ms", "is in the future"))
    return sorted(dict.fromkeys(faults), key=lambda fault: (fault.pointer, fault.code))


def _reference_faults(root: Root, reference: Reference | None, at: str) -> Iterator[Fault]:
    if reference is None:
        return
    try:
        now = root.reference(reference.path)
    except ArtifactError as error:
        yield from (fault._replace(pointer=f"{at}/path") for fault in error.faults)
        return
    if now != reference:
        text = f"{reference.path} is another file"
        yield Fault("artifact_hash_mismatch", f"{at}/sha256", text)


def _flag_faults(own: Gate, root: Root) -> Iterator[Fault]:
    """Yield each flag that is not what the references of the bundle give."""
    sources = Sources(
        *(
            "" if reference is None else reference.path
            for reference in (
                own.benchmark.report_ref,
                own.operations.report_ref,
                own.runbooks.operator_runbook_ref,
                own.runbooks.incident_playbook_ref,
            )
        )
    )
    wanted = plain(gate_of(root, own.run_id, sources, at_ms=own.generated_at_epoch_ms))
    for group, fields in plain(own).items():
        for name, value in fields.items() if isinstance(fields, dict) else ():
            if value != wanted[group][name]:
                text = f"is {value!r}, and the artifacts give {wanted[group][name]!r}"
                yield Fault("gate_flag_mismatch", f"/{group}/{name}", text)
