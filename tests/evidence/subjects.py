"""Subjects for a proof that passes."""

from tau_live.evidence.suites import Case


def right(case: Case, _seed: int) -> dict[str, object]:
    return {"output": case.expected_outcome, "safety_penalty": 0.0}


def wrong(_case: Case, _seed: int) -> dict[str, object]:
    return {"output": "nothing", "safety_penalty": 0.0}
