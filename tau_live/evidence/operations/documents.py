"""The artifact of the operational proof."""

from typing import Literal

import msgspec

from tau_live.evidence.artifacts import REPORTS, Digest, Names, Natural, RunId, Timestamp

CHECKS = {
    "control_sequence": "pause, resume and rollback are obeyed within a second by a running agent",
    "safety_gate": "a subject with a planted safety regression is refused",
    "resume_playbook": "a training that is killed goes on, and loses and doubles nothing",
    "benchmark_proof": "the proof is valid, and a forged copy of it is refused",
}
"""What each check shows, in the order in which they are done."""


def artifact_of(run_id: str) -> str:
    """Return the path of the artifact, from the root."""
    return f"{REPORTS}/{Names(run_id).program}-operations-{run_id}.json"


def log_of(run_id: str, check: str) -> str:
    """Return the path of the log of a check, from the root."""
    return f"{REPORTS}/{Names(run_id).program}-operations-{run_id}-{check.replace('_', '-')}.log"


class OperationsCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A check that was done.

    Attributes:
        id: Its name.
        description: What it shows.
        command: Its command, from the root.
        status: ``pass`` if the command ended with 0.
        exit_code: What the command ended with; below 0 the number of a signal.
        duration_ms: How long it took.
        log_path: Its output.
        log_sha256: The digest of that.
    """

    id: str
    description: str
    command: str
    status: Literal["pass", "fail"]
    exit_code: int
    duration_ms: Natural
    log_path: str
    log_sha256: Digest


class RunbookEvidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A runbook.

    Attributes:
        path: The file, from the root.
        exists: Whether it is there.
        sha256: The digest of its bytes; ``None`` if it is not there.
    """

    path: str
    exists: bool
    sha256: Digest | None


class Operations(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The artifact of the operational proof.

    Attributes:
        schema_version: 1.
        run_id: The proof.
        generated_at: When it was written.
        overall_status: ``pass`` if all checks have passed and all runbooks are there.
        checks: The checks.
        runbook_evidence: The runbooks.
    """

    schema_version: Literal[1] = 1
    run_id: RunId
    generated_at: Timestamp
    overall_status: Literal["pass", "fail"]
    checks: list[OperationsCheck]
    runbook_evidence: list[RunbookEvidence]
