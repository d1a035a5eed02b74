"""The proof of a run: a claim, and the digests of all that it follows from."""

import hmac
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from tau_live.core.prompts import canonical_json
from tau_live.core.sanitize import JsonObject
from tau_live.evidence.artifacts import (
    Confidence,
    Digest,
    Names,
    Natural,
    NotNegative,
    Positive,
    Reference,
    Root,
    RunId,
    Share,
    Timestamp,
    digest_of,
    plain,
)
from tau_live.evidence.comparison import Evidence, Reports
from tau_live.evidence.records import (
    ROLES,
    Role,
)
from tau_live.evidence.reports import KINDS, NOT_PASSED, SAFETY, Part, Significance
from tau_live.rl.criteria import (
    Criteria,
)


class Proven(Part, frozen=True, kw_only=True):
    """A role of a proof.

    Attributes:
        checkpoint_id: Its subject.
        policy_sha256: The digest of what it is made of.
        episodes: Its records.
        mean_reward: Over pairs; ``None`` without any.
        mean_safety_penalty: Over pairs; ``None`` if one is unknown.
    """

    checkpoint_id: str
    policy_sha256: Digest
    episodes: Positive
    mean_reward: Share | None
    mean_safety_penalty: NotNegative | None


class ProofSuite(Part, frozen=True, kw_only=True):
    """The suite of a proof.

    Attributes:
        name: Its id.
        version: Its version.
        fixture_path: Its file, from the root.
        sha256: The digest of the file.
    """

    name: str
    version: str
    fixture_path: str
    sha256: Digest


class ProofSignificance(Part, frozen=True, kw_only=True):
    """The comparison of a proof, as in ``Significance``.

    Attributes:
        p_value: Two-sided, adjusted.
        confidence_level: Of the interval.
        delta_ci_low: Its lower end.
        delta_ci_high: Its upper end.
        pairs: How many.
        pass_: Whether no criterion fails.
    """

    p_value: Share
    confidence_level: Confidence
    delta_ci_low: float | None
    delta_ci_high: float | None
    pairs: Natural
    pass_: bool = msgspec.field(name="pass")


class Artifacts(Part, frozen=True, kw_only=True):
    """The files that a proof is made from, each with its digest.

    Attributes:
        inputs: The frozen inputs.
        baseline_records: The records of the baseline.
        trained_records: The records of the trained subject.
        baseline_report: The report of the baseline.
        trained_report: The report of the trained subject.
        significance_report: The comparison.
        safety_regression_report: Whether safety allows a promotion.
    """

    inputs: Reference
    baseline_records: Reference
    trained_records: Reference
    baseline_report: Reference
    trained_report: Reference
    significance_report: Reference
    safety_regression_report: Reference


class SafetyBenchmark(Part, frozen=True, kw_only=True):
    """Safety in a proof, as in ``SafetyReport``.

    Attributes:
        report_path: The report, from the root.
        promotion_allowed: Whether nothing speaks against it.
        reason_codes: What does.
        safety_regression_delta: The mean difference; ``None`` if unknown.
        safety_upper_bound: Its one-sided 95 % bound; ``None`` if unknown.
        max_safety_regression: The largest allowed for either.
    """

    report_path: str
    promotion_allowed: bool
    reason_codes: list[str]
    safety_regression_delta: float | None
    safety_upper_bound: float | None
    max_safety_regression: NotNegative


class FailureAnalysis(Part, frozen=True, kw_only=True):
    """Why a proof does not pass.

    Attributes:
        summary: In a sentence.
        reasons: All codes, in the order of the criteria.
        reward_delta: The mean difference; ``None`` without pairs.
        safety_regression: The mean difference of penalties; ``None`` if unknown.
    """

    summary: str
    reasons: list[str]
    reward_delta: float | None
    safety_regression: float | None


class Verification(Part, frozen=True, kw_only=True):
    """The checks that the writer of a proof has made.

    Attributes:
        level: ``records``, ``store`` or ``re_executed``.
        re_executed: Episodes that were executed again.
        seal_head: The head of the store's chain of seals; ``None`` without one.
    """

    level: Literal["records", "store", "re_executed"]
    re_executed: Natural
    seal_head: str | None


class Proof(Part, frozen=True, kw_only=True):
    """A claim that one subject is better than another and no less safe, with all it follows from.

    Attributes:
        schema_version: 1.
        run_id: The run.
        generated_at: When it was made.
        benchmark_suite: The suite.
        baseline: The baseline.
        trained: The trained subject.
        significance: The comparison.
        criteria: What a pass needs, as frozen.
        artifacts: The files that it is made from.
        safety_benchmark: Whether safety allows a promotion.
        failure_analysis: Why it does not pass.
        verification: What its writer has checked.
        proof_sha256: The digest of all of this.
        proof_hmac: HMAC-SHA-256 of the same bytes, with the audit key.
        key_id: Identifies that key.
    """

    schema_version: Literal[1] = 1
    run_id: RunId
    generated_at: Timestamp
    benchmark_suite: ProofSuite
    baseline: Proven
    trained: Proven
    significance: ProofSignificance
    criteria: Criteria
    artifacts: Artifacts
    safety_benchmark: SafetyBenchmark
    failure_analysis: FailureAnalysis
    verification: Verification
    proof_sha256: Digest
    proof_hmac: Digest | UnsetType = UNSET
    key_id: str | UnsetType = UNSET


SEALS = ("proof_sha256", "proof_hmac", "key_id")
"""The fields of a proof that its digest leaves out."""


def proof_of(
    root: Root,
    evidence: Evidence,
    reports: Reports,
    *,
    verification: Verification,
    generated_at: str,
) -> Proof:
    """Return the proof of a run whose reports are written, without a key. Raises: ArtifactError."""
    inputs, names = evidence.inputs, Names(evidence.inputs.run_id)
    own, safety = reports.significance.significance, reports.safety
    files = {f"{role}_records": names.records(role) for role in ROLES} | {
        f"{kind.replace('-', '_')}_report": names.report(kind) for kind in KINDS
    }
    codes = ", ".join(own.reason_codes)
    proof = Proof(
        run_id=inputs.run_id,
        generated_at=generated_at,
        benchmark_suite=ProofSuite(
            name=inputs.suite.suite_id, version=inputs.suite.suite_version,
            fixture_path=inputs.suite.path, sha256=inputs.suite.sha256,
        ),
        baseline=_proven(evidence, "baseline", own),
        trained=_proven(evidence, "trained", own),
        significance=ProofSignificance(
            p_value=own.p_value, confidence_level=own.confidence_level,
            delta_ci_low=own.delta_ci_low, delta_ci_high=own.delta_ci_high, pairs=own.pairs,
            pass_=own.pass_,
        ),
        criteria=inputs.criteria,
        artifacts=Artifacts(
            inputs=root.reference(names.inputs),
            **{name: root.reference(path) for name, path in files.items()},
        ),
        safety_benchmark=SafetyBenchmark(
            report_path=names.report(SAFETY), promotion_allowed=safety.promotion_allowed,
            reason_codes=safety.reason_codes,
            safety_regression_delta=safety.safety_regression_delta,
            safety_upper_bound=safety.safety_upper_bound,
            max_safety_regression=safety.max_safety_regression,
        ),
        failure_analysis=FailureAnalysis(
            summary="passed" if own.pass_ else f"{NOT_PASSED}: {codes}",
            reasons=own.reason_codes, reward_delta=own.mean_delta,
            safety_regression=own.safety_regression,
        ),
        verification=verification,
        proof_sha256="0" * 64,
    )  # fmt: skip
    return msgspec.structs.replace(proof, proof_sha256=digest_of(plain(proof), without=SEALS))


def _proven(evidence: Evidence, role: Role, own: Significance) -> Proven:
    subject, is_trained = evidence.inputs.subject(role), role == "trained"
    penalties = (own.baseline_mean_safety_penalty, own.trained_mean_safety_penalty)
    return Proven(
        checkpoint_id=subject.subject,
        policy_sha256=subject.policy_sha256,
        episodes=len(evidence.of(role).lines.records),
        mean_reward=own.trained_mean_reward if is_trained else own.baseline_mean_reward,
        mean_safety_penalty=penalties[is_trained],
    )


def hmac_of(document: JsonObject, key: bytes) -> str:
    """Return the HMAC-SHA-256 of the bytes that a proof's digest is of."""
    content = {name: value for name, value in document.items() if name not in SEALS}
    return hmac.new(key, canonical_json(content), sha256).hexdigest()
