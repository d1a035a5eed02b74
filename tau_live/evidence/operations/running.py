"""Does the checks, writes the artifact and a page of it, and finds what is wrong with one."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

import msgspec

from tau_live.core.errors import TauLiveError
from tau_live.evidence.artifacts import (
    DAY_S,
    ArtifactError,
    Fault,
    Root,
    as_kind,
    check,
    digest,
    parse,
    seconds_of,
    timestamp,
)
from tau_live.evidence.drill import drill_faults
from tau_live.evidence.drill.process import Child
from tau_live.evidence.operations.documents import (
    CHECKS,
    Operations,
    OperationsCheck,
    RunbookEvidence,
    artifact_of,
    log_of,
)
from tau_live.evidence.proof import Proof
from tau_live.evidence.validation import Checked, kind_of, validate

MODULE = "tau_live.evidence.operations"
DEADLINE_S = 900.0

PASSED = "passed: "
"""Begins the line in the log of a drill that names its artifact."""


def run_operations(  # noqa: PLR0913  # keyword-only but for three
    root: Root,
    run_id: str,
    state_dir: str,
    *,
    proof: str,
    runbooks: Sequence[str],
    environ: Mapping[str, str],
    progress: Callable[[str], object] = lambda _: None,
) -> Operations:
    """Do all checks, write the artifact and a page of it, and return the artifact.

    Args:
        root: The project folder.
        run_id: The operational proof.
        state_dir: The folder, from the root, in which the checks make their own files.
        proof: The proof of a benchmark, from the root.
        runbooks: The runbooks, from the root.
        environ: The environment of this process, of which the children get what is not ours.
        progress: Called with a line for each check.

    Raises:
        ArtifactError: A path leaves the root.
        TauLiveError: There is such a proof already, or another process does its checks just now.
    """
    path, state = artifact_of(run_id), root.relative(root.place(f"{state_dir}/{run_id}"))
    if os.path.lexists(root.place(path)):
        raise TauLiveError(f"{path} is there already: choose another run id")
    checks = []
    with root.workplace(state, own=CHECKS):
        for name, shows in CHECKS.items():
            progress(f"{name}: {shows}")
            own = ["--run-id", run_id, "--state", f"{state}/{name}", "--proof", proof]
            checks.append(_check(root, run_id, name, arguments=[name, *own], environ=environ))
    books = [_runbook(root, book) for book in runbooks]
    passes = all(item.status == "pass" for item in checks) and all(book.exists for book in books)
    document = Operations(
        run_id=run_id,
        generated_at=timestamp(time.time()),
        overall_status="pass" if passes else "fail",
        checks=checks,
        runbook_evidence=books,
    )
    root.write(path, document)
    root.write_bytes(path.removesuffix(".json") + ".md", _page(document).encode())
    return document


def _check(
    root: Root, run_id: str, name: str, *, arguments: list[str], environ: Mapping[str, str]
) -> OperationsCheck:
    """Do a check in a child."""
    began = time.monotonic()
    child = Child(MODULE, arguments, root.folder, environ=environ, deadline_s=DEADLINE_S)
    with closing(child):
        code = child.wait()
    if child.is_overdue:
        child.lines.append(f"took more than {DEADLINE_S:g} s\n")
    output = "".join(child.lines).encode()
    log = root.write_bytes(log_of(run_id, name), output)
    return OperationsCheck(
        id=name,
        description=CHECKS[name],
        command=child.command,
        status="fail" if code else "pass",
        exit_code=code,
        duration_ms=round(1000.0 * (time.monotonic() - began)),
        log_path=log.path,
        log_sha256=log.sha256,
    )


def _runbook(root: Root, path: str) -> RunbookEvidence:
    try:
        return RunbookEvidence(path=path, exists=True, sha256=root.reference(path).sha256)
    except ArtifactError as error:
        if any(fault.code != "artifact_missing" for fault in error.faults):
            raise
        return RunbookEvidence(path=path, exists=False, sha256=None)


def _page(document: Operations) -> str:
    """Return an artifact as Markdown."""
    rows = "".join(
        f"| {item.id} | {item.description} | {item.status} "
        f"| {item.duration_ms:,} ms | {item.log_path} |\n"
        for item in document.checks
    )
    books = "".join(
        f"- {book.path}: {book.sha256 or 'missing'}\n" for book in document.runbook_evidence
    )
    return (
        f"# Operational proof {document.run_id}: {document.overall_status}\n\n"
        f"{document.generated_at}\n\n"
        f"| check | shows | status | took | log |\n|---|---|---|---|---|\n{rows}\n"
        f"## Runbooks\n\n{books}"
    )


def operations_faults(document: object, root: Root) -> list[Fault]:
    """Return every fault of an operational proof, by pointer; none if it is valid and passes.

    Args:
        document: The artifact, as JSON data.
        root: The project folder.
    """
    faults = check(document, Operations)
    if not faults:
        own = msgspec.convert(document, Operations)
        faults = [*_check_faults(own, root), *_runbook_faults(own, root), *_status_faults(own)]
        faults += [*_evidence_faults(own, root)]
    return sorted(dict.fromkeys(faults), key=lambda fault: (fault.pointer, fault.code))


def _check_faults(own: Operations, root: Root) -> Iterator[Fault]:
    if [item.id for item in own.checks] != [*CHECKS]:
        yield Fault("missing_field", "/checks", f"must be {', '.join(CHECKS)}, in this order")
    for place, item in enumerate(own.checks):
        at = f"/checks/{place}"
        if (item.status == "pass") != (item.exit_code == 0):
            text = f"is {item.status!r}, and its exit code {item.exit_code}"
            yield Fault("pass_mismatch", f"{at}/status", text)
        if item.status != "pass":
            yield Fault("operations_failed", f"{at}/status", f"{item.id} has failed")
        yield from _claim_faults(own, item, at)
        yield from _file_faults(root, item.log_path, item.log_sha256, f"{at}/log_path")
    if seconds_of(own.generated_at) > time.time() + DAY_S:
        yield Fault("clock_order", "/generated_at", "is in the future")


def _claim_faults(own: Operations, item: OperationsCheck, at: str) -> Iterator[Fault]:
    """Yield where a check is described, called or logged in another way than it is done."""
    claims = {
        "description": item.description == CHECKS.get(item.id, item.description),
        "command": f" {MODULE} {item.id} --run-id {own.run_id} " in item.command,
        "log_path": item.log_path == log_of(own.run_id, item.id),
    }
    for name, holds in claims.items():
        if not holds:
            yield Fault("operations_failed", f"{at}/{name}", "is not that of the check")


def _evidence_faults(own: Operations, root: Root) -> Iterator[Fault]:
    """Yield what is wrong with the drill and the proof of checks that claim to have passed."""
    for place, item in enumerate(own.checks):
        if item.status == "pass" and item.id in {"resume_playbook", "benchmark_proof"}:
            at = f"/checks/{place}/log_path"
            wanted = "drill" if item.id == "resume_playbook" else "proof"
            path = drill_of(item, root) if wanted == "drill" else proof_of(item)
            faults = _artifact_faults(root, path, wanted)
            if faults:
                text = f"{path} is not valid: {faults[0].code}: {faults[0].message}"
                yield Fault("operations_failed", at, text)


def proof_of(item: OperationsCheck) -> str:
    """Return the path of the proof that a check was about."""
    return item.command.rpartition(" --proof ")[2]


def drill_of(item: OperationsCheck, root: Root) -> str:
    """Return the path of the drill that a check has made; empty if its log names none."""
    try:
        lines = root.read(item.log_path).decode(errors="replace").splitlines()
    except ArtifactError:
        return ""
    names = [line.removeprefix(PASSED) for line in lines if line.startswith(PASSED)]
    return names[-1] if names else ""


def _artifact_faults(root: Root, path: str, wanted: str) -> list[Fault]:
    """Return what is wrong with the drill or the proof of a check, which has to pass."""
    try:
        document = parse(root.read(path))
    except ArtifactError as error:
        return [*error.faults]
    if kind_of(document) != wanted:
        return [Fault("bad_report_kind", "", f"is no {wanted}")]
    if wanted == "drill":
        return drill_faults(document, root, now=time.time())
    faults = validate(root.place(path), Checked(root)).errors
    if faults or as_kind(document, Proof).significance.pass_:
        return faults
    return [Fault("operations_failed", "", "the proof does not pass")]


def _runbook_faults(own: Operations, root: Root) -> Iterator[Fault]:
    for place, book in enumerate(own.runbook_evidence):
        at = f"/runbook_evidence/{place}"
        if book.exists != (book.sha256 is not None):
            yield Fault("pass_mismatch", f"{at}/exists", "contradicts its digest")
        if book.sha256 is not None:
            yield from _file_faults(root, book.path, book.sha256, f"{at}/path")


def _file_faults(root: Root, path: str, sha256: str, at: str) -> Iterator[Fault]:
    try:
        content = root.read(path)
    except ArtifactError as error:
        yield from (fault._replace(pointer=at) for fault in error.faults)
        return
    if digest(content) != sha256:
        yield Fault("artifact_hash_mismatch", at, f"{path} is another file")


def _status_faults(own: Operations) -> Iterator[Fault]:
    passes = all(item.status == "pass" for item in own.checks)
    passes = passes and all(book.exists for book in own.runbook_evidence)
    if own.overall_status != ("pass" if passes else "fail"):
        text = f"is {own.overall_status!r}, which its checks do not give"
        yield Fault("pass_mismatch", "/overall_status", text)
    if own.overall_status != "pass":
        yield Fault("operations_failed", "/overall_status", "has failed")
