"""Summaries of several runs: p-values adjusted, and every figure computed again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tau_live.core.errors import TauLiveError
from tau_live.evidence.artifacts import Names, Root, timestamp
from tau_live.evidence.summary import KIND, repeatability_of, summary_of, write_summary
from tests.evidence.projects import Forger, proved, smaller
from tests.evidence.test_forgeries import put

pytestmark = pytest.mark.slow

ALL = "m24-all"


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with a large run, a small one, and a summary of both."""
    folder = tmp_path_factory.mktemp("several") / "project"
    folder.mkdir()
    proved(folder, "m24-large")
    proved(folder, "m24-small", suite=smaller(folder, 12))
    root = Root(folder)
    write_summary(root, summary_of(root, ALL, ["m24-large", "m24-small"], timestamp(1.8e9)))
    return folder


def test_a_summary_adjusts_p_values_and_calls_small_runs_smoke(several: Path) -> None:
    found = summary_of(Root(several), ALL, ["m24-large", "m24-small"], timestamp(1.8e9))

    large, small = found.runs
    assert found.holm == [2 * large.p_value, max(2 * large.p_value, small.p_value)]
    assert (large.pass_, small.pass_, large.smoke, small.smoke) == (True, False, True, True)
    assert (found.counts.runs, found.counts.passed) == (2, 1)


def test_a_deterministic_subject_earns_the_same_in_each_run(several: Path) -> None:
    for number in (1, 2):
        proved(several, f"m24-again-{number}")

    found = repeatability_of(Root(several), ["m24-again-1", "m24-again-2"], tolerance=0.0)

    assert (found.within_tolerance, found.max_observed_range, len(found.case_reports)) == (
        True, 0.0, 80,
    )  # fmt: skip
    with pytest.raises(TauLiveError, match="one suite"):
        repeatability_of(Root(several), ["m24-large", "m24-small"], tolerance=0.0)


FORGED: dict[str, tuple[Callable[[Any], object], str]] = {
    "an unadjusted p": (lambda own: own["holm"].__setitem__(0, 0.0001), "holm_mismatch"),
    "one run less": (lambda own: own["runs"].pop(), "holm_mismatch"),
    "one run twice": (lambda own: own["runs"].append(own["runs"][0]), "holm_mismatch"),
    "a pass": (lambda own: own["runs"][1].update({"pass": True}), "pass_mismatch"),
    "no smoke": (lambda own: own["runs"][1].update(smoke=False), "planned_n_mismatch"),
    "another p": (lambda own: own["runs"][1].update(p_value=0.01), "p_value_mismatch"),
    "more runs": (lambda own: own["counts"].update(passed=2), "records_count_mismatch"),
    "days": (put("retention", "retain_days", value=-1), "bad_retain_days"),
}


@pytest.mark.parametrize("name", [None, *FORGED])
def test_a_forged_summary_is_refused(several: Path, tmp_path: Path, name: str | None) -> None:
    forger = Forger(several, tmp_path / "forged")
    path = Names(ALL).report(KIND)
    how, code = FORGED[name] if name is not None else (lambda _: None, "")

    forger.change(path, how)

    codes = forger.codes(path, now=1.8e9)
    assert codes == set() if name is None else code in codes
