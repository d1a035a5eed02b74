"""Differences: where a document is not the one that was computed again, and what lie that is."""

import math
import re
from collections.abc import Iterator

from tau_live.evidence.artifacts import Fault

TOLERANCE = 1e-9

CODES: tuple[tuple[str, str], ...] = (
    (r"/(inputs_sha256|run_id|suite)$", "inputs_mismatch"),
    (r"/records_sha256/", "artifact_hash_mismatch"),
    (r"/holm(/|$)", "holm_mismatch"),
    (r"/counts/", "records_count_mismatch"),
    (r"/smoke$", "planned_n_mismatch"),
    (r"/benchmark_suite/", "suite_hash_mismatch"),
    (r"/subject/", "inputs_mismatch"),
    (r"/(checkpoint_id|policy_sha256)$", "inputs_mismatch"),
    (r"/records/sha256$", "artifact_hash_mismatch"),
    (r"/records/", "records_count_mismatch"),
    (r"/artifacts/.*/sha256$", "artifact_hash_mismatch"),
    (r"/(report_path|artifacts/.*)$", "bad_report_path"),
    (r"/archive_path$", "bad_archive_path"),
    (r"/report_kind$", "bad_report_kind"),
    (r"/criteria/|/max_safety_regression$", "criteria_loosened"),
    (r"/(pass|promotion_allowed)$", "pass_mismatch"),
    (r"/(reason_codes|reasons|summary)(/|$)", "reason_codes_mismatch"),
    (r"/sample_size_sensitivity", "sensitivity_mismatch"),
    (r"/seed_reproducibility", "reproducibility_mismatch"),
    (r"safety|/diagnostics", "safety_mismatch"),
    (r"/comparisons$", "holm_mismatch"),
    (r"/(confidence_level|alpha)$", "confidence_level_invalid"),
    (r"/(p_value[a-z_]*|exact|draws|seed|zero_pairs|method)$", "p_value_mismatch"),
    (r"/(delta_ci|t_ci)_|/unpaired_reference", "interval_mismatch"),
    (r"/(mean_delta|reward_delta|effect_[a-z]+)$", "delta_mismatch"),
    (r"/(planned_pairs|pairs|pairs_missing|sample_count)$", "planned_n_mismatch"),
    (r"/metrics/(episodes|known|missing|pairs_available)$", "records_count_mismatch"),
    (r"/episodes$", "records_count_mismatch"),
)
"""The code of a figure that differs, by the first pattern that its pointer matches."""


def differences(
    document: object, wanted: object, at: str = "", *, drawn: float = TOLERANCE
) -> Iterator[Fault]:
    """Yield where a document is not the one that was computed again.

    Args:
        document: The document.
        wanted: What it is to be.
        at: The JSON pointer of both.
        drawn: The tolerance of the ends of drawn intervals.
    """
    if at.startswith("/retention") or at == "/verification":
        return  # the operator's choice, checked on its own
    if isinstance(wanted, dict) and isinstance(document, dict):
        for name in [*wanted, *(document.keys() - wanted.keys())]:
            own, other = document.get(name), wanted.get(name)
            yield from differences(own, other, f"{at}/{name}", drawn=drawn)
    elif isinstance(wanted, list) and isinstance(document, list) and len(wanted) == len(document):
        for place, (own, other) in enumerate(zip(document, wanted, strict=True)):
            yield from differences(own, other, f"{at}/{place}", drawn=drawn)
    elif not _same(document, wanted, drawn if "/delta_ci_" in at else TOLERANCE):
        code = next((code for pattern, code in CODES if re.search(pattern, at)), "mean_mismatch")
        yield Fault(code, at, f"must be {wanted!r}, got {document!r}"[:300])


def _same(own: object, wanted: object, tolerance: float) -> bool:
    numbers = {int, float}
    if type(own) in numbers and type(wanted) in numbers:
        return math.isclose(own, wanted, rel_tol=0.0, abs_tol=tolerance)  # type: ignore[arg-type]  # two numbers
    return type(own) is type(wanted) and own == wanted
