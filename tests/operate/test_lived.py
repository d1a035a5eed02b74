import math

import numpy as np
import pytest

from tau_live.learn.evaluation.records import Record
from tau_live.operate.report.stretches import calibration, errors_over_time


def records(count: int) -> list[Record]:
    return [
        Record(f"live-{n}", ("a", "b"), None, 0, None, 0.5, 1.0, b"", place=n + 1)
        for n in range(count)
    ]


def test_an_estimate_that_is_right_lies_on_the_line() -> None:
    rng = np.random.default_rng(1)
    expected = rng.random(4000)
    came = (rng.random(4000) < expected).astype(np.float64)

    bins = calibration(expected, came)

    assert len(bins) == 10
    assert [one.came.count for one in bins] == [400] * 10
    for one in bins:
        assert one.came.mean == pytest.approx(one.expected, abs=0.08)


def test_what_was_not_expected_is_left_out() -> None:
    expected = np.array([math.nan, 0.5, 0.5])

    (only,) = calibration(expected, np.array([9.0, 0.0, 1.0]))

    assert (only.expected, only.came.count, only.came.mean) == (0.5, 2, 0.5)
    assert calibration(np.full(3, math.nan), np.zeros(3)) == []


def test_errors_are_told_stretch_by_stretch_in_the_order_of_rollouts() -> None:
    errors = np.concatenate([np.zeros(160), np.ones(160)])

    found = errors_over_time(records(320), errors)

    assert (found[0].first, found[-1].last) == (1, 320)
    assert [one.error.mean for one in found] == [0.0] * 10 + [1.0] * 10
    assert errors_over_time(records(2), np.full(2, math.nan)) == []
