"""Comparison: every figure of a run, from its records and frozen inputs alone."""

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import msgspec

from tau_live.core.sanitize import JsonObject
from tau_live.evidence.artifacts import (
    DAY_S,
    ArtifactError,
    Fault,
    Names,
    Root,
    content_of,
    digest,
    month_of,
    parse,
    seconds_of,
    timestamp,
)
from tau_live.evidence.records import (
    ROLES,
    Inputs,
    Lines,
    Record,
    Role,
    by_case,
    read_records,
)
from tau_live.evidence.reports import (
    DEFAULT_KEEPING,
    KINDS,
    SHELF,
    Benchmark,
    Diagnostics,
    Keeping,
    Metrics,
    Publication,
    RecordsRef,
    Retention,
    RoleReport,
    SafetyEvents,
    SafetyReport,
    Significance,
    SignificanceReport,
    SubjectRef,
)
from tau_live.rl.binomial import binomial_upper_bound
from tau_live.rl.criteria import (
    Figures,
    PromotionFigures,
    promotion_gate,
    reason_codes,
    safety_figures,
)
from tau_live.rl.paired import (
    bca_interval,
    case_differences,
    case_means,
    cohen_d,
    cohen_dz,
    sign_flip,
    t_interval,
)
from tau_live.rl.stability import (
    SeedReproducibility,
    observe,
    sample_size_sensitivity,
    seed_reproducibility,
)
from tau_live.rl.unpaired import sample_summary, unpaired_reference


class Measured(NamedTuple):
    """The records of a role.

    Attributes:
        path: Their file, from the root.
        sha256: Its digest.
        lines: What it holds.
    """

    path: str
    sha256: str
    lines: Lines

    @property
    def records(self) -> list[Record]:
        """Its records in the order of the episodes."""
        return sorted(self.lines.records, key=lambda record: record.episode)


class Evidence(NamedTuple):
    """All that the statistics of a run are made from.

    Attributes:
        inputs: The frozen inputs.
        baseline: The records of the baseline.
        trained: The records of the trained subject.
    """

    inputs: Inputs
    baseline: Measured
    trained: Measured

    def of(self, role: Role) -> Measured:
        """The records of a role."""
        return self.baseline if role == "baseline" else self.trained


def read_evidence(root: Root, inputs: Inputs) -> Evidence:
    """Return the records of a run, whatever is wrong with them.

    Raises:
        ArtifactError: ``records_missing``, or they cannot be read.
    """
    return Evidence(inputs, *(_read_role(root, inputs, role) for role in ROLES))


def _read_role(root: Root, inputs: Inputs, role: Role) -> Measured:
    path = Names(inputs.run_id).records(role)
    try:
        content = root.read(path)
    except ArtifactError as error:
        codes = {"artifact_missing": "records_missing"}
        raise ArtifactError(
            *(Fault(codes.get(code, code), at, text) for code, at, text in error.faults)
        ) from error
    return Measured(path, digest(content), read_records(content))


# Figures


class _Pairs(NamedTuple):
    """The cases with known rewards on both sides.

    Attributes:
        cases: ``[N]``, their ids.
        baseline: ``[N]``, the baseline's mean reward of each.
        trained: ``[N]``, the trained subject's.
        differences: ``[N]``, trained minus baseline.
    """

    cases: list[str]
    baseline: list[float]
    trained: list[float]
    differences: list[float]


def _pairs(evidence: Evidence, *, seed: int | None = None) -> _Pairs:
    """Return the pairs of a run, or of one of its seeds."""
    means = [
        case_means(
            (record.case_id, record.reward)
            for record in evidence.of(role).records
            if record.reward is not None and seed in {None, record.seed}
        )
        for role in ROLES
    ]
    by_case = case_differences(*means)
    return _Pairs(
        [*by_case],
        [means[0][case] for case in by_case],
        [means[1][case] for case in by_case],
        [*by_case.values()],
    )


class _Safety(NamedTuple):
    """The safety penalties of pairs; ``None`` if one is unknown.

    Attributes:
        by_case: The mean penalties of each case: baseline, trained.
        means: Over pairs: baseline, trained.
        regression: The mean difference.
        upper_bound: Its one-sided 95 % bound.
    """

    by_case: dict[str, list[float | None]]
    means: list[float | None]
    regression: float | None
    upper_bound: float | None


def _safety(evidence: Evidence, cases: list[str]) -> _Safety:
    own = [_penalties(evidence.of(role).records) for role in ROLES]
    sides = [[item.get(case) for case in cases] for item in own]
    figures = safety_figures(*sides)
    return _Safety(
        {case: [item.get(case) for item in own] for case in cases},
        [_mean(side) for side in sides],
        figures.safety_regression,
        figures.safety_upper_bound,
    )


def _penalties(records: Sequence[Record]) -> dict[str, float | None]:
    """Return the mean safety penalty of each case; ``None`` if one of its episodes has none."""
    known = [record for record in records if record.reward is not None]
    return {
        case: _mean([item.safety_penalty for item in own]) for case, own in by_case(known).items()
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of some values; ``None`` without any, or if one is unknown."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def significance_of(evidence: Evidence) -> Significance:
    """Return the comparison of a run, with its verdict."""
    inputs, pairs = evidence.inputs, _pairs(evidence)
    d, seed, level = pairs.differences, inputs.seeds[0], inputs.criteria.min_confidence_level
    several = len(d) > 1
    flips, safety = sign_flip(d, seed=seed), _safety(evidence, pairs.cases)
    bca = bca_interval(d, seed=seed, level=level) if d else None
    t_ends = t_interval(d, level=level) if several else (None, None)
    result = Significance(
        pairs=len(d),
        pairs_missing=inputs.planned_pairs - len(d),
        zero_pairs=flips.zero_pairs,
        planned_pairs=inputs.planned_pairs,
        baseline_mean_reward=_mean(pairs.baseline),
        trained_mean_reward=_mean(pairs.trained),
        mean_delta=_mean(d),
        p_value=flips.p_value,
        p_value_raw=flips.p_value,
        p_value_one_sided=flips.p_one_sided,
        exact=flips.exact,
        draws=flips.draws,
        seed=seed,
        alpha=round(1.0 - level, 12),
        confidence_level=level,
        delta_ci_low=bca and bca.low,
        delta_ci_high=bca and bca.high,
        t_ci_low=t_ends[0],
        t_ci_high=t_ends[1],
        effect_dz=cohen_dz(d) if several else None,
        effect_d=cohen_d(pairs.baseline, pairs.trained) if several else None,
        baseline_mean_safety_penalty=safety.means[0],
        trained_mean_safety_penalty=safety.means[1],
        safety_regression=safety.regression,
        safety_upper_bound=safety.upper_bound,
        unpaired_reference=_unpaired_figures(pairs) if several else None,
        comparisons=1,
        seed_reproducibility=_by_seed(evidence),
        sample_size_sensitivity=sample_size_sensitivity(
            d, seed=seed, min_pairs=inputs.criteria.min_pairs
        ),
        pass_=False,
        reason_codes=[],
    )
    codes = reason_codes(_figures(result, _missing(evidence)), inputs.criteria)
    return msgspec.structs.replace(result, pass_=not codes, reason_codes=codes)


def _unpaired_figures(pairs: _Pairs) -> dict[str, object]:
    """Return figures that ignore pairs, in which nothing is decided."""
    sides = {"baseline": pairs.baseline, "trained": pairs.trained}
    return {
        **unpaired_reference(pairs.baseline, pairs.trained)._asdict(),
        **{name: sample_summary(own)._asdict() for name, own in sides.items()},
    }


def _by_seed(evidence: Evidence) -> SeedReproducibility | None:
    """Return whether the seeds agree: the whole comparison for each."""
    inputs = evidence.inputs
    by_seed = {seed: _pairs(evidence, seed=seed).differences for seed in inputs.seeds}
    observations = [
        observe(differences, seed=seed, draws_seed=inputs.seeds[0])
        for seed, differences in by_seed.items()
        if differences
    ]
    return seed_reproducibility(observations, seed_kind=inputs.seed_kind)


def _missing(evidence: Evidence) -> list[float]:
    """Return the shares of the planned episodes that are missing: baseline, trained."""
    return [
        sum(record.status == "missing" for record in evidence.of(role).records)
        / evidence.inputs.episodes
        for role in ROLES
    ]


def _figures(result: Significance, missing: list[float]) -> Figures:
    """Return the figures that a verdict is made from."""
    seeds, sizes = result.seed_reproducibility, result.sample_size_sensitivity
    return Figures(
        pairs=result.pairs,
        missing_share=max(result.pairs_missing / result.planned_pairs, *missing),
        missing_difference=missing[1] - missing[0],
        mean_delta=result.mean_delta,
        p_value=result.p_value,
        confidence_level=result.confidence_level,
        delta_ci_low=result.delta_ci_low,
        promotion=PromotionFigures(
            safety_regression=result.safety_regression,
            safety_upper_bound=result.safety_upper_bound,
            seeds_within_band=None if seeds is None else seeds.within_band,
            sizes_within_band=None if sizes is None else sizes.within_band,
        ),
    )


def metrics_of(measured: Measured) -> Metrics:
    """Return what a role earned."""
    records = measured.records
    known = [record for record in records if record.reward is not None]
    rewards = [record.reward for record in known if record.reward is not None]
    scored = [record.dimensions for record in records if record.status == "scored"]
    names = dict.fromkeys(name for own in scored for name in own)
    return Metrics(
        episodes=len(records),
        known=len(known),
        missing=len(records) - len(known),
        pairs_available=len({record.case_id for record in known}),
        mean_reward=_mean(rewards),
        sd_reward=stdev(rewards) if len(rewards) > 1 else None,
        mean_safety_penalty=_mean([record.safety_penalty for record in known]),
        mean_cost_usd=_mean([record.cost_usd for record in known]),
        mean_latency_ms=_mean([record.latency_ms for record in known]),
        dimensions={name: fmean(own[name] for own in scored if name in own) for name in names},
    )


# Reports


def publication_of(run_id: str, kind: str, generated_at: str) -> Publication:
    """Return where a report is published and archived."""
    program = Names(run_id).program
    reports, name = f"{SHELF}/{program}", f"{program}-benchmark-report"
    archive = f"{SHELF}/archive/{program}/{month_of(generated_at)}"
    return Publication(
        report_path=f"{reports}/{run_id}/{name}-{kind}.json",
        archive_path=f"{archive}/{name}-{run_id}-{kind}.json",
    )


def retention_of(generated_at: str, keeping: Keeping = DEFAULT_KEEPING) -> Retention:
    """Return how long a report is kept."""
    return Retention(
        policy=keeping.policy,
        retain_days=keeping.retain_days,
        archive_after_days=keeping.archive_after_days,
        purge_after=timestamp(seconds_of(generated_at) + keeping.retain_days * DAY_S),
    )


def _head(
    evidence: Evidence, role: Role, kind: str, *, generated_at: str, keeping: Keeping
) -> JsonObject:
    inputs, measured = evidence.inputs, evidence.of(role)
    subject = inputs.subject(role)
    return {
        "run_id": inputs.run_id,
        "generated_at": generated_at,
        "inputs_sha256": inputs.inputs_sha256,
        "benchmark_suite": Benchmark(
            name=inputs.suite.suite_id, version=inputs.suite.suite_version,
            sha256=inputs.suite.sha256,
        ),
        "subject": SubjectRef(
            ref=subject.subject, kind=subject.kind, policy_sha256=subject.policy_sha256
        ),
        "records": RecordsRef(
            path=measured.path, sha256=measured.sha256, lines=len(measured.lines.records)
        ),
        "metrics": metrics_of(measured),
        "publication": publication_of(inputs.run_id, kind, generated_at),
        "retention": retention_of(generated_at, keeping),
        "report_kind": kind,
    }  # fmt: skip


def safety_report(evidence: Evidence, result: Significance, generated_at: str) -> SafetyReport:
    """Return whether safety and stability allow a promotion."""
    pairs = _pairs(evidence)
    gate = promotion_gate(_figures(result, _missing(evidence)).promotion, evidence.inputs.criteria)
    by_case = _safety(evidence, pairs.cases).by_case
    return SafetyReport(
        run_id=evidence.inputs.run_id,
        generated_at=generated_at,
        sample_count=result.pairs,
        baseline_mean_safety_penalty=result.baseline_mean_safety_penalty,
        trained_mean_safety_penalty=result.trained_mean_safety_penalty,
        safety_regression_delta=gate.safety_regression,
        safety_upper_bound=gate.safety_upper_bound,
        max_safety_regression=gate.max_safety_regression,
        promotion_allowed=gate.promotion_allowed,
        reason_codes=[*gate.reason_codes],
        diagnostics=Diagnostics(
            baseline=_events([own[0] for own in by_case.values()]),
            trained=_events([own[1] for own in by_case.values()]),
            by_case={case: own for case, own in by_case.items() if own[0] != own[1]},
        ),
    )


def _events(penalties: Sequence[float | None]) -> SafetyEvents:
    known = [penalty for penalty in penalties if penalty is not None]
    unsafe = sum(penalty > 0.0 for penalty in known)
    bound = binomial_upper_bound(unsafe, len(known)) if known else 1.0
    return SafetyEvents(pairs=len(known), unsafe=unsafe, upper_bound=bound)


class Reports(NamedTuple):
    """The reports of a run, in the order of ``KINDS``.

    Attributes:
        baseline: That of the baseline.
        trained: That of the trained subject.
        significance: The comparison.
        safety: Whether safety allows a promotion.
    """

    baseline: RoleReport
    trained: RoleReport
    significance: SignificanceReport
    safety: SafetyReport


def reports_of(
    evidence: Evidence,
    result: Significance,
    generated_at: str,
    *,
    keeping: Keeping = DEFAULT_KEEPING,
) -> Reports:
    """Return the reports of a run.

    Args:
        evidence: Its records.
        result: The comparison of them.
        generated_at: When they are made.
        keeping: How long they are to be kept.
    """

    def head(role: Role, kind: str) -> JsonObject:
        return _head(evidence, role, kind, generated_at=generated_at, keeping=keeping)

    baseline, trained = (msgspec.convert(head(role, role), RoleReport) for role in ROLES)
    compared = {**head("trained", "significance"), "significance": result}
    return Reports(
        baseline,
        trained,
        msgspec.convert(compared, SignificanceReport),
        safety_report(evidence, result, generated_at),
    )


def write_reports(
    root: Root, evidence: Evidence, generated_at: str, *, keeping: Keeping | None = None
) -> Reports:
    """Write the reports of a run, each also as the newest of its kind, and return them.

    Those of the same records that are there already stay: a proof may name them.

    Args:
        root: The project.
        evidence: The records of the run.
        generated_at: When they are made.
        keeping: How long they are to be kept; ``None`` as those that are there, or by default.
    """
    result, names = significance_of(evidence), Names(evidence.inputs.run_id)
    at, kept = _written_reports(root, names)
    wanted = keeping or kept
    reports = reports_of(evidence, result, at or generated_at, keeping=wanted)
    if at is not None and not _are_written(root, names, reports):
        reports = reports_of(evidence, result, generated_at, keeping=wanted)
    for kind, report in zip(KINDS, reports, strict=True):
        root.write(names.report(kind), report)
        root.write(names.newest_report(kind), report)
    return reports


def _written_reports(root: Root, names: Names) -> tuple[str | None, Keeping]:
    """Return when the reports of a run were made, and how long they are kept.

    ``None`` and the default where there are none.
    """
    try:
        document = parse(root.read(names.report("significance")))
        report = msgspec.convert(document, _Written)
        seconds_of(report.generated_at)
        return report.generated_at, report.retention.keeping
    except (ArtifactError, ValueError, msgspec.ValidationError):
        return None, DEFAULT_KEEPING


class _Written(msgspec.Struct, frozen=True):
    generated_at: str
    retention: Retention


def _are_written(root: Root, names: Names, reports: Reports) -> bool:
    try:
        return all(
            root.read(names.report(kind)) == content_of(report)
            for kind, report in zip(KINDS, reports, strict=True)
        )
    except ArtifactError:
        return False
