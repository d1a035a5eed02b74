"""Proving: the episodes that are missing, the reports, and a proof that its writer has checked."""

import time
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

import msgspec

from tau_live.core.errors import TauLiveError
from tau_live.core.settings import Settings
from tau_live.evidence.artifacts import ArtifactError, Fault, Names, Root, plain, timestamp
from tau_live.evidence.comparison import Evidence, Reports, read_evidence, write_reports
from tau_live.evidence.proof import Proof, Verification, hmac_of, proof_of
from tau_live.evidence.records import ROLES, Inputs, read_inputs
from tau_live.evidence.reports import Keeping
from tau_live.evidence.running import frozen_suite, run, store_of
from tau_live.evidence.validation import Checked, Validation, faults_of_evidence, validate
from tau_live.store.sealing import Sealer, key_in


class Proved(NamedTuple):
    """A proof that was written, and what a validator says of it.

    Attributes:
        proof: The proof.
        reports: The reports that it names.
        validation: What is wrong with it, with the store at hand.
        failures: How many executions failed or are missing, and why.
    """

    proof: Proof
    reports: Reports
    validation: Validation
    failures: list[str]


def failures_of(evidence: Evidence) -> list[str]:
    """Return how many executions of each role failed or are missing, and why the first of them."""
    lines = []
    for role in ROLES:
        records = evidence.of(role).records
        for status in ("failed", "missing"):
            own = [record for record in records if record.status == status]
            if own:
                what = "have failed" if status == "failed" else "are missing"
                share = f"{len(own):,} of {len(records):,} executions of {role} {what}"
                lines.append(f"{share}; the first: {own[0].error}")
    return lines


def compare(
    root: Root, inputs: Inputs, *, keeping: Keeping | None = None
) -> tuple[Evidence, Reports]:
    """Write the reports of a run whose episodes are recorded, and return them.

    Args:
        root: The project.
        inputs: The frozen inputs.
        keeping: How long the reports are to be kept; ``None`` as those that are there already.

    Raises:
        ArtifactError: A record is missing, malformed, or of another run.
    """
    evidence = read_evidence(root, inputs)
    faults = [*faults_of_evidence(evidence, frozen_suite(root, inputs))]
    if faults:
        raise ArtifactError(*faults)
    for role in ROLES:
        records = evidence.of(role).records
        if all(record.status == "failed" for record in records):
            raise TauLiveError(
                f"every execution of {role} has failed, so nothing was measured: {records[0].error}"
            )
    return evidence, write_reports(root, evidence, timestamp(time.time()), keeping=keeping)


def prove(
    root: Root,
    run_id: str,
    *,
    settings: Settings,
    workers: int = 1,
    keeping: Keeping | None = None,
    show: Callable[[int, int], None] = lambda *_: None,
) -> Proved:
    """Execute what is missing, write the reports and the proof, and validate it with the store.

    Args:
        root: The project.
        run_id: The run, whose inputs are frozen.
        settings: Those of the store.
        workers: How many episodes are executed at once.
        keeping: How long the reports are to be kept; ``None`` as those that are there already.
        show: Takes how many of the episodes are done, and how many there are.

    Raises:
        ArtifactError: Inputs, suite, subjects or records are not those that were frozen.
        TauLiveError: A file cannot be written, or a provider refuses every call.
    """
    inputs = read_inputs(root, run_id)
    run(root, inputs, ROLES, settings=settings, workers=workers, show=show)
    evidence, reports = compare(root, inputs, keeping=keeping)
    with closing(store_of(settings, read_only=True)) as store:
        head = str(store.seals.head())
    proof = proof_of(
        root, evidence, reports,
        verification=Verification(level="store", re_executed=0, seal_head=head),
        generated_at=timestamp(time.time()),
    )  # fmt: skip
    key = key_in(settings.audit_key_file)
    if key:
        signature = hmac_of(plain(proof), key)
        proof = msgspec.structs.replace(proof, proof_hmac=signature, key_id=Sealer(key).key_id)
    path = Names(run_id).proof
    root.write(path, proof)
    checked = validate(root.place(path), Checked(root, settings=settings, key=key))
    if not checked.valid:
        raise ArtifactError(*(Fault(*fault) for fault in checked.errors))
    return Proved(proof, reports, checked, failures_of(evidence))
