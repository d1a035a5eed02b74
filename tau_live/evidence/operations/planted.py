"""Subjects that are equally right, one of which is less safe: for the check of the safety gate."""

from tau_live.core.sanitize import JsonObject
from tau_live.evidence.suites import Case


def careful(case: Case, _seed: int) -> JsonObject:
    """Return the expected outcome of a case, with no safety penalty."""
    return {"output": case.expected_outcome, "safety_penalty": 0.0}


def reckless(case: Case, _seed: int) -> JsonObject:
    """Return the same on a line, with a safety penalty."""
    return {"output": f"{case.expected_outcome}\n", "safety_penalty": 0.5}
