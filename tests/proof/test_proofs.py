"""Every proof holds in its quick tier."""

import pytest

from tests.proof.figures import Figure, Tier
from tests.proof.report import names, proven

TIMED = frozenset({"hosts", "orders", "queue"})
"""Proofs of how long something takes."""

PROOFS = [
    pytest.param(name, marks=[pytest.mark.timed] if name in TIMED else []) for name in names()
]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROOFS)
def test_a_proof_holds(name: str) -> None:
    result = proven(name, Tier.QUICK, lambda _done, _of: None)

    assert result.figures
    assert [figure for figure in result.figures if not figure.holds] == []


@pytest.mark.parametrize(
    ("figure", "holds"),
    [
        pytest.param(Figure(1, "lost", 0, at_most=0), True, id="within"),
        pytest.param(Figure(1, "lost", 1, at_most=0), False, id="too much"),
        pytest.param(Figure(1, "rounds", 24, at_least=25), False, id="too little"),
        pytest.param(Figure(1, "rows", float("nan"), at_most=1), False, id="not a number"),
        pytest.param(Figure(1, "rows", 5), True, id="no bound"),
    ],
)
def test_a_figure_holds_within_its_bounds(figure: Figure, holds: bool) -> None:
    assert figure.holds == holds
