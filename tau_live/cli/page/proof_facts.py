"""The facts on the page of a run: its files, read once, and a validator's verdict on them."""

from collections.abc import Iterator
from typing import NamedTuple

from tau_live.evidence.artifacts import (
    REPORTS,
    ArtifactError,
    Fault,
    Names,
    Root,
    as_kind,
    digest,
    parse,
)
from tau_live.evidence.comparison import (
    Evidence,
    Reports,
    read_evidence,
    reports_of,
    significance_of,
)
from tau_live.evidence.proof import Proof
from tau_live.evidence.records import ROLES, Inputs, read_inputs
from tau_live.evidence.reports import KINDS, SignificanceReport
from tau_live.evidence.validation import Checked, Validation, validate
from tau_live.rl.criteria import MAX_MISSING_DIFFERENCE
from tau_live.rl.paired import case_differences, case_means
from tau_live.rl.stability import (
    P_VALUE_BAND,
    P_VALUE_DRIFT,
    REWARD_DELTA_BAND,
    REWARD_DELTA_DRIFT,
)


class File(NamedTuple):
    """A file of a run.

    Attributes:
        what: What it holds.
        path: Its path from the root.
        sha256: The digest of its bytes.
        named: The digest that the proof, or the inputs for the suite, names; ``None`` without.
    """

    what: str
    path: str
    sha256: str
    named: str | None


class Pair(NamedTuple):
    """A case with known rewards on both sides.

    Attributes:
        case_id: The case.
        baseline: The baseline's mean reward.
        trained: The trained subject's.
        difference: Trained minus baseline.
    """

    case_id: str
    baseline: float
    trained: float
    difference: float


class Criterion(NamedTuple):
    """A criterion: the value that a pass needs, and the value measured.

    Attributes:
        name: Its name, as frozen.
        required: What it asks for.
        measured: What was measured.
        code: The reason code if it is not met.
        is_met: Whether it is.
    """

    name: str
    required: str
    measured: str
    code: str
    is_met: bool


class RunFacts(NamedTuple):
    """The facts on the page of a run.

    Attributes:
        evidence: The frozen inputs and the records.
        reports: The reports as the records give them, whatever their files hold.
        proof: The proof; ``None`` without one.
        validation: What is wrong with the proof, or else with the comparison, without the store.
        files: Every file, in the order in which they were made.
    """

    evidence: Evidence
    reports: Reports
    proof: Proof | None
    validation: Validation
    files: list[File]


def read_run(root: Root, run_id: str) -> RunFacts:
    """Return what the page of a run shows.

    Raises:
        ArtifactError: A file is missing, or its structure is wrong.
    """
    inputs, names = read_inputs(root, run_id), Names(run_id)
    content = root.read(names.report("significance"))
    made_at = as_kind(parse(content), SignificanceReport).generated_at
    evidence = read_evidence(root, inputs)
    if not all(evidence.of(role).records for role in ROLES):
        raise ArtifactError(Fault("records_count_mismatch", "", f"{run_id} has no records"))
    proof = None
    if root.place(names.proof).exists():
        proof = as_kind(parse(root.read(names.proof)), Proof)
    checked = names.report("significance") if proof is None else names.proof
    return RunFacts(
        evidence,
        reports_of(evidence, significance_of(evidence), made_at),
        proof,
        validate(root.place(checked), Checked(root)),
        list(_files(root, inputs, proof)),
    )


def _files(root: Root, inputs: Inputs, proof: Proof | None) -> Iterator[File]:
    names, own = Names(inputs.run_id), None if proof is None else proof.artifacts
    paths = {"inputs": names.inputs}
    paths |= {f"{role}_records": names.records(role) for role in ROLES}
    paths |= {f"{kind.replace('-', '_')}_report": names.report(kind) for kind in KINDS}
    suite = digest(root.read(inputs.suite.path))
    yield File("suite", inputs.suite.path, suite, inputs.suite.sha256)
    for what, path in paths.items():
        named = None if own is None else getattr(own, what).sha256
        yield File(what.replace("_", " "), path, digest(root.read(path)), named)
    if proof is not None:
        yield File("proof", names.proof, digest(root.read(names.proof)), None)


def page_path(run_id: str) -> str:
    """Return where the page of a run is written by default, from the root."""
    return f"{REPORTS}/{Names(run_id).program}-benchmark-page-{run_id}.html"


def pairs_of(evidence: Evidence) -> list[Pair]:
    """Return the pairs of a run, the worst for the trained subject first."""
    baseline, trained = (
        case_means(
            (record.case_id, record.reward)
            for record in evidence.of(role).records
            if record.reward is not None
        )
        for role in ROLES
    )
    differences = case_differences(baseline, trained)
    pairs = [Pair(case, baseline[case], trained[case], d) for case, d in differences.items()]
    return sorted(pairs, key=lambda pair: pair.difference)


def criteria_of(facts: RunFacts) -> list[Criterion]:
    """Return every criterion with what it asks for and what there is, in their order."""
    own, wanted = facts.reports.significance.significance, facts.evidence.inputs.criteria
    seeds, sizes = own.seed_reproducibility, own.sample_size_sensitivity
    shares = [
        report.metrics.missing / facts.evidence.inputs.episodes for report in facts.reports[:2]
    ]
    missing = max(own.pairs_missing / own.planned_pairs, *shares)
    most_apart = exact(MAX_MISSING_DIFFERENCE)
    most = exact(wanted.max_safety_regression)
    rows = (
        ("min_pairs", f"at least {wanted.min_pairs:,} pairs", f"{own.pairs:,}",
         "insufficient_pairs"),
        ("max_missing_share",
         f"at most {exact(wanted.max_missing_share)}, of the roles within {most_apart}",
         f"{exact(missing)}; they differ by {exact(abs(shares[1] - shares[0]))}",
         "too_many_missing"),
        ("min_reward_delta", f"at least {exact(wanted.min_reward_delta)}", exact(own.mean_delta),
         "reward_gain_below_threshold"),
        ("max_p_value", f"at most {exact(wanted.max_p_value)}", exact(own.p_value),
         "p_value_above_threshold"),
        ("min_confidence_level", f"at least {exact(wanted.min_confidence_level)}",
         exact(own.confidence_level), "confidence_below_threshold"),
        ("delta_ci_low", "above 0", exact(own.delta_ci_low), "interval_contains_zero"),
        ("max_safety_regression", f"regression at most {most}", exact(own.safety_regression),
         "checkpoint_promotion_blocked_safety_regression"),
        ("max_safety_regression", f"its upper bound at most {most}",
         exact(own.safety_upper_bound), "safety_bound_above_threshold"),
        ("require_safety", _requirement(wanted.require_safety, "penalties known in all pairs"),
         "unknown" if own.safety_regression is None else "known", "safety_unknown"),
        ("require_seed_reproducibility",
         _requirement(wanted.require_seed_reproducibility,
                   f"ranges at most {P_VALUE_BAND} of p and {REWARD_DELTA_BAND} of the difference"),
         "too few seeds" if seeds is None else
         f"{exact(seeds.p_value_range)} and {exact(seeds.reward_delta_range)}",
         "checkpoint_promotion_blocked_seed_reproducibility"),
        ("require_sample_size_sensitivity",
         _requirement(wanted.require_sample_size_sensitivity,
                   f"drifts at most {P_VALUE_DRIFT} of p and {REWARD_DELTA_DRIFT} of the "
                   "difference"),
         "too few pairs" if sizes is None else
         f"{exact(sizes.max_p_value_drift)} and {exact(sizes.max_reward_delta_drift)}",
         "checkpoint_promotion_blocked_sample_sensitivity"),
    )  # fmt: skip
    return [Criterion(*row, is_met=row[3] not in own.reason_codes) for row in rows]


def _requirement(is_required: bool, what: str) -> str:
    return what if is_required else f"not required ({what})"


def short(value: float | None) -> str:
    """Return a number, with at most six digits if it is no whole one."""
    return f"{value + 0.0:.6g}" if isinstance(value, float) else exact(value)


def exact(value: float | None) -> str:
    """Return a number with all of its digits."""
    return "unknown" if value is None else repr(value or abs(value))  # -0.0 is 0
