"""The lines that ``tau-live bench`` prints for people."""

from collections.abc import Iterator

from tau_live.evidence.artifacts import Names
from tau_live.evidence.proof import Proof
from tau_live.evidence.reports import Significance


def comparison_facts(own: Significance, *, limit: float) -> Iterator[tuple[str, str]]:
    """Yield the lines of a comparison.

    Args:
        own: The comparison.
        limit: The largest safety regression that is allowed.
    """
    yield "verdict", _verdict(own)
    yield "reward", _reward(own)
    yield "safety", _safety(own, limit)
    yield "stable", _stability(own)


def proof_facts(proof: Proof, own: Significance) -> Iterator[tuple[str, str]]:
    """Yield the six lines of a proof."""
    better, worse = proof.trained.checkpoint_id, proof.baseline.checkpoint_id
    suite = proof.benchmark_suite.name
    yield "claim", f"{better} is better than {worse} and no less safe, on {suite}"
    yield from comparison_facts(own, limit=proof.criteria.max_safety_regression)
    path = Names(proof.run_id).proof
    yield "proof", f"{path}, valid with the store; sha256 {proof.proof_sha256[:16]}"


def _verdict(own: Significance) -> str:
    return "passed" if own.pass_ else f"not passed: {', '.join(own.reason_codes)}"


def _number(value: float | None, digits: int = 3) -> str:
    return "unknown" if value is None else f"{value:+.{digits}f}"


def _reward(own: Significance) -> str:
    if own.mean_delta is None:
        return "no pair has a reward on both sides"
    return (
        f"{own.mean_delta:+.3f} a case ({own.baseline_mean_reward:.3f} to "
        f"{own.trained_mean_reward:.3f}), {own.confidence_level:.0%} interval "
        f"{_number(own.delta_ci_low)} to {_number(own.delta_ci_high)}, p = {own.p_value:.4g}, "
        f"{own.pairs} pairs"
    )


def _safety(own: Significance, limit: float) -> str:
    if own.safety_regression is None:
        return "unknown: nothing watched it in every pair"
    return (
        f"{own.safety_regression:+.3f} penalty a case, at most "
        f"{_number(own.safety_upper_bound)} with 95 % confidence ({limit:g} is allowed)"
    )


def _stability(own: Significance) -> str:
    seeds, sizes = own.seed_reproducibility, own.sample_size_sensitivity
    of_seeds = (
        "too few seeds"
        if seeds is None
        else f"{seeds.run_count} seeds " + ("agree" if seeds.within_band else "disagree")
    )
    of_sizes = (
        "too few pairs for subsets"
        if sizes is None
        else "subsets of the pairs " + ("agree" if sizes.within_band else "disagree")
    )
    return f"{of_seeds}, {of_sizes}"
