"""Reports of a run: what each role earned, how the two compare, and whether safety allows it."""

from typing import Any, Literal

import msgspec

from tau_live.evidence.artifacts import (
    ArtifactError,
    Confidence,
    Digest,
    Fault,
    Natural,
    NotNegative,
    Positive,
    RunId,
    Share,
    Timestamp,
)
from tau_live.evidence.records import (
    ROLES,
)
from tau_live.rl.stability import (
    INTERPRETATION,
    SampleSizeSensitivity,
    SeedReproducibility,
)

PURGED_LATER, RETAINED = "archive-then-purge", "retain-only"
POLICIES = (PURGED_LATER, RETAINED)
RETAIN_DAYS, ARCHIVE_AFTER_DAYS = 365, 30
NOT_PASSED = "a regression or a non-significant improvement"
SAFETY = "safety-regression"
KINDS = (*ROLES, "significance", SAFETY)
"""The reports of a run, in the order in which they are written."""

PUBLISHED = (*ROLES, "significance", "summary")
"""The reports that are published."""

SHELF = ".tau/reports"
"""Where they are published and archived, with their index."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of an artifact: all of its fields, and no others."""


class Benchmark(Part, frozen=True, kw_only=True):
    """The suite of a report.

    Attributes:
        name: Its id.
        version: Its version.
        sha256: The digest of its file.
    """

    name: str
    version: str
    sha256: Digest


class SubjectRef(Part, frozen=True, kw_only=True):
    """The subject of a report.

    Attributes:
        ref: Its reference.
        kind: Its kind.
        policy_sha256: The digest of what it is made of.
    """

    ref: str
    kind: str
    policy_sha256: Digest


class RecordsRef(Part, frozen=True, kw_only=True):
    """The records of a report.

    Attributes:
        path: Their file, from the root.
        sha256: Its digest.
        lines: How many.
    """

    path: str
    sha256: Digest
    lines: Positive


class Metrics(Part, frozen=True, kw_only=True):
    """The figures of a role.

    Attributes:
        episodes: Episodes with a record.
        known: Those with a reward.
        missing: Those without.
        pairs_available: Cases with a known reward.
        mean_reward: Over known episodes; ``None`` without any.
        sd_reward: With ``n - 1``; ``None`` of fewer than two.
        mean_safety_penalty: Over known episodes; ``None`` if one is unknown.
        mean_cost_usd: US dollars, likewise.
        mean_latency_ms: Milliseconds, likewise.
        dimensions: The mean score of each dimension, over scored episodes.
    """

    episodes: Positive
    known: Natural
    missing: Natural
    pairs_available: Natural
    mean_reward: Share | None
    sd_reward: NotNegative | None
    mean_safety_penalty: NotNegative | None
    mean_cost_usd: NotNegative | None
    mean_latency_ms: NotNegative | None
    dimensions: dict[str, Share]


class Publication(Part, frozen=True, kw_only=True):
    """Where a report is published and archived, from the root.

    Attributes:
        report_path: Where it is published.
        archive_path: Where it is archived.
    """

    report_path: str
    archive_path: str


class Retention(Part, frozen=True, kw_only=True):
    """How long a report is kept.

    Attributes:
        policy: ``archive-then-purge`` or ``retain-only``.
        retain_days: Days until it may be purged.
        archive_after_days: Days until it is archived.
        purge_after: When it may be purged.
    """

    policy: str
    retain_days: int
    archive_after_days: int
    purge_after: Timestamp

    @property
    def keeping(self) -> "Keeping":
        """What the operator chose. Raises: ArtifactError."""
        return Keeping(
            policy=self.policy,
            retain_days=self.retain_days,
            archive_after_days=self.archive_after_days,
        )


class Keeping(Part, frozen=True, kw_only=True):
    """How long the reports of a run are to be kept, as an operator chooses.

    Attributes:
        policy: ``archive-then-purge`` or ``retain-only``.
        retain_days: Days until they may be purged, above 0.
        archive_after_days: Days until they are archived, from 0 to ``retain_days``.
    """

    policy: str = PURGED_LATER
    retain_days: int = RETAIN_DAYS
    archive_after_days: int = ARCHIVE_AFTER_DAYS

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            text = f"must be one of {', '.join(POLICIES)}, got {self.policy!r}"
            raise ArtifactError(Fault("bad_retention_policy", "/policy", text))
        if self.retain_days <= 0:
            text = f"must be above 0, got {self.retain_days!r}"
            raise ArtifactError(Fault("bad_retain_days", "/retain_days", text))
        if not 0 <= self.archive_after_days <= self.retain_days:
            text = f"must be from 0 to retain_days, got {self.archive_after_days!r}"
            raise ArtifactError(Fault("bad_archive_after_days", "/archive_after_days", text))


DEFAULT_KEEPING = Keeping()


class _Head(Part, frozen=True, kw_only=True):
    schema_version: Literal[1] = 1
    run_id: RunId
    generated_at: Timestamp
    inputs_sha256: Digest
    benchmark_suite: Benchmark
    subject: SubjectRef
    records: RecordsRef
    metrics: Metrics
    publication: Publication
    retention: Retention


class RoleReport(_Head, frozen=True, kw_only=True):
    """The report of a role.

    Attributes:
        schema_version: 1.
        report_kind: The role.
        run_id: The run.
        generated_at: When it was made.
        inputs_sha256: The digest of the frozen inputs.
        benchmark_suite: The suite.
        subject: The subject.
        records: Its records.
        metrics: What it earned.
        publication: Where it is published.
        retention: How long it is kept.
    """

    report_kind: Literal["baseline", "trained"]


class Significance(Part, frozen=True, kw_only=True):
    """The comparison of a run.

    Attributes:
        method: ``paired_sign_flip``.
        pairs: Cases with known rewards on both sides.
        pairs_missing: Planned pairs that are none.
        zero_pairs: Pairs without a difference.
        planned_pairs: As frozen.
        baseline_mean_reward: Over pairs; ``None`` without any, like all that follow from them.
        trained_mean_reward: Likewise.
        mean_delta: Trained minus baseline.
        p_value: Two-sided, Holm-adjusted over ``comparisons``.
        p_value_raw: Before that.
        p_value_one_sided: Of "trained is no better".
        exact: Whether all signs were counted; else some were drawn.
        draws: How many; ``None`` if exact.
        seed: Of draws, resamples and subsets: the first of the run.
        alpha: 1 - ``confidence_level``.
        confidence_level: Of the intervals, declared before.
        delta_ci_low: The lower end of the BCa bootstrap interval.
        delta_ci_high: Its upper end.
        t_ci_low: The lower end of the paired t interval.
        t_ci_high: Its upper end.
        effect_dz: Mean difference in standard deviations of differences; ``None`` without spread.
        effect_d: In pooled standard deviations; ``None`` without spread.
        baseline_mean_safety_penalty: Over pairs; ``None`` if one is unknown, like all of safety.
        trained_mean_safety_penalty: Likewise.
        safety_regression: The mean difference of penalties.
        safety_upper_bound: Its one-sided 95 % bound, by Student's t.
        unpaired_reference: Figures that ignore pairs, for comparison only.
        comparisons: How many claims share these data.
        seed_reproducibility: Whether the seeds agree; ``None`` of fewer than three.
        sample_size_sensitivity: Whether smaller samples agree; ``None`` if there are too few pairs.
        pass_: Whether no criterion fails.
        reason_codes: All that fail, in the order of the criteria.
        interpretation: What all of this does and does not say.
    """

    method: Literal["paired_sign_flip"] = "paired_sign_flip"
    pairs: Natural
    pairs_missing: Natural
    zero_pairs: Natural
    planned_pairs: Positive
    baseline_mean_reward: Share | None
    trained_mean_reward: Share | None
    mean_delta: float | None
    p_value: Share
    p_value_raw: Share
    p_value_one_sided: Share
    exact: bool
    draws: Positive | None
    seed: Natural
    alpha: Confidence
    confidence_level: Confidence
    delta_ci_low: float | None
    delta_ci_high: float | None
    t_ci_low: float | None
    t_ci_high: float | None
    effect_dz: float | None
    effect_d: float | None
    baseline_mean_safety_penalty: NotNegative | None
    trained_mean_safety_penalty: NotNegative | None
    safety_regression: float | None
    safety_upper_bound: float | None
    unpaired_reference: dict[str, Any] | None
    comparisons: Positive
    seed_reproducibility: SeedReproducibility | None
    sample_size_sensitivity: SampleSizeSensitivity | None
    pass_: bool = msgspec.field(name="pass")
    reason_codes: list[str]
    interpretation: str = INTERPRETATION


class SignificanceReport(_Head, frozen=True, kw_only=True):
    """The report of a comparison; fields as in ``RoleReport``, of the trained role.

    Attributes:
        report_kind: ``significance``.
        significance: The comparison.
    """

    report_kind: Literal["significance"] = "significance"
    significance: Significance


class SafetyEvents(Part, frozen=True, kw_only=True):
    """How often something unsafe happened.

    Attributes:
        pairs: Pairs whose penalty is known.
        unsafe: Those with a penalty above 0.
        upper_bound: The one-sided 95 % bound of their share, by Clopper and Pearson.
    """

    pairs: Natural
    unsafe: Natural
    upper_bound: Share


class Diagnostics(Part, frozen=True, kw_only=True):
    """The figures behind a safety regression.

    Attributes:
        baseline: How often the baseline was unsafe.
        trained: How often the trained subject was.
        by_case: Mean safety penalties where the roles differ: baseline, trained.
    """

    baseline: SafetyEvents
    trained: SafetyEvents
    by_case: dict[str, list[NotNegative | None]]


class SafetyReport(Part, frozen=True, kw_only=True):
    """Whether safety allows a promotion.

    Attributes:
        schema_version: 1.
        run_id: The run.
        generated_at: When it was made.
        sample_count: Pairs.
        baseline_mean_safety_penalty: Over pairs; ``None`` if one is unknown.
        trained_mean_safety_penalty: Likewise.
        safety_regression_delta: The mean difference; ``None`` if unknown.
        safety_upper_bound: Its one-sided 95 % bound; ``None`` if unknown.
        max_safety_regression: The largest allowed for either.
        promotion_allowed: Whether nothing speaks against it.
        reason_codes: What does.
        diagnostics: What the difference is made of.
    """

    schema_version: Literal[1] = 1
    run_id: RunId
    generated_at: Timestamp
    sample_count: Natural
    baseline_mean_safety_penalty: NotNegative | None
    trained_mean_safety_penalty: NotNegative | None
    safety_regression_delta: float | None
    safety_upper_bound: float | None
    max_safety_regression: NotNegative
    promotion_allowed: bool
    reason_codes: list[str]
    diagnostics: Diagnostics
