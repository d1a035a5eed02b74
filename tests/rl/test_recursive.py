"""The recursive regression: the closed form, its posterior, its columns, drift and storage."""

import hashlib
import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.rl.arrays import FloatArray, IntArray
from tau_live.rl.crossing import Crossed
from tau_live.rl.recursive import BLOCK, LEFT_OUT, TARGETS, UNSEEN, Columns, Regression
from tests.rl.rows import WIDTH, samples, sparse

CUTS = st.lists(st.integers(0, 40), max_size=5)


def regressed(
    dense: FloatArray,
    rewards: FloatArray,
    costs: FloatArray | None = None,
    *,
    cuts: list[int] | None = None,
    penalty: float = 1.0,
    draws: int = 4,
    joint: int = WIDTH,
) -> Regression:
    found = Regression.empty(WIDTH, joint, draws=draws)
    edges = [0, *sorted(cuts or []), len(rewards)]
    for begin, end in pairwise(edges):
        part = slice(begin, end)
        found = found.including(
            sparse(dense[part]),
            rewards[part],
            None if costs is None else costs[part],
            penalty=penalty,
            rng=np.random.default_rng(begin),
        )
    return found


def by_slot(fit: Regression, weights: FloatArray) -> FloatArray:
    """Return ``[WIDTH]``, 0 for a slot without a column."""
    columns = fit.columns.of
    found: FloatArray = np.where(columns >= 0, weights[np.maximum(columns, 0)], 0.0)
    return found


def ridge(dense: FloatArray, targets: FloatArray, penalty: float) -> FloatArray:
    gram = dense.T @ dense + penalty * np.eye(WIDTH)
    return np.linalg.solve(gram, dense.T @ (targets - targets.mean()))


@given(st.integers(0, 2**32), st.sampled_from([0.1, 1.0, 30.0]), CUTS)
@settings(max_examples=40, deadline=None)
def test_is_the_closed_form_however_the_samples_come(
    seed: int, penalty: float, cuts: list[int]
) -> None:
    dense, rewards = samples(seed, 40)
    costs = np.roll(rewards, 7) * 3.0 - 1.0

    found = regressed(dense, rewards, costs, cuts=cuts, penalty=penalty)

    expected = ridge(dense, rewards, penalty)
    np.testing.assert_allclose(by_slot(found, found.reward), expected, rtol=0, atol=1e-9)
    expected = ridge(dense, costs, penalty)
    np.testing.assert_allclose(by_slot(found, found.cost), expected, rtol=0, atol=1e-9)
    seen = np.flatnonzero(found.columns.of >= 0)
    gram = dense[:, seen].T @ dense[:, seen] + penalty * np.eye(len(seen))
    at = found.columns.of[seen]
    covariance = found.covariance[np.ix_(at, at)]
    np.testing.assert_allclose(covariance, np.linalg.inv(gram), rtol=0, atol=1e-9)
    assert np.array_equal(found.covariance, found.covariance.T)


@given(st.integers(0, 2**32), CUTS)
@settings(max_examples=20, deadline=None)
def test_moments_are_those_of_all_however_the_samples_come(seed: int, cuts: list[int]) -> None:
    dense, rewards = samples(seed, 40)
    costs = np.roll(rewards, 7) * 3.0 - 1.0

    found = regressed(dense, rewards, costs, cuts=cuts)

    assert found.samples == 40
    assert found.mean == pytest.approx(rewards.mean(), rel=1e-12)
    assert found.deviation == pytest.approx(rewards.std(), rel=1e-12)
    assert found.cost_mean == pytest.approx(costs.mean(), rel=1e-12)
    assert found.cost_deviation == pytest.approx(costs.std(), rel=1e-12)


@given(st.integers(0, 2**32), CUTS)
@settings(max_examples=20, deadline=None)
def test_once_all_features_were_seen_one_by_one_is_all_at_once(seed: int, cuts: list[int]) -> None:
    dense, rewards = samples(seed, 41)
    start = regressed(np.ones((1, WIDTH)), rewards[:1])
    rng = np.random.default_rng(1)
    edges = [1, *sorted(1 + cut for cut in cuts), 41]

    parts = start
    for begin, end in pairwise(edges):
        if end > begin:
            part = slice(begin, end)
            parts = parts.including(sparse(dense[part]), rewards[part], penalty=1.0, rng=rng)

    again = np.random.default_rng(1)
    whole = start.including(sparse(dense[1:]), rewards[1:], penalty=1.0, rng=again)
    np.testing.assert_allclose(parts.weights, whole.weights, rtol=0, atol=1e-9)  # the same draws
    np.testing.assert_allclose(parts.covariance, whole.covariance, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(parts.columns.of, whole.columns.of)
    assert parts.mean == pytest.approx(whole.mean, rel=1e-12)  # only sums differ by rounding; the
    assert parts.samples == whole.samples  # residuals are less the mean that was known, so differ


@pytest.mark.parametrize("penalty", [0.1, 1.0, 10.0])
def test_residuals_all_at_once_are_the_least_penalised_sum_of_squares(penalty: float) -> None:
    dense, rewards = samples(1, 40)

    found = regressed(dense, rewards, rewards * 2.0, penalty=penalty)

    weights = ridge(dense, rewards, penalty)
    errors = rewards - rewards.mean() - dense @ weights
    least = float(errors @ errors + penalty * weights @ weights)
    assert found.residuals == pytest.approx(least, rel=1e-9)
    assert found.noise == pytest.approx(np.sqrt(least / 40), rel=1e-9)
    assert found.cost_noise == pytest.approx(2.0 * np.sqrt(least / 40), rel=1e-9)


@pytest.mark.parametrize("cuts", [[], [1], list(range(40))])
def test_draws_are_from_the_posterior(cuts: list[int]) -> None:
    dense, rewards = samples(2, 40)
    draws = 20_000

    found = regressed(dense, rewards, cuts=cuts, penalty=2.0, draws=draws)

    drawn = found.weights[:, TARGETS:]
    errors = np.sqrt(np.outer(*[np.diag(found.covariance)] * 2) / draws)  # at most, twice this
    assert np.abs(drawn @ drawn.T / draws - found.covariance).max() <= 10.0 * errors.max()
    deviations = np.abs(drawn.mean(axis=1)) / np.sqrt(np.diag(found.covariance) / draws)
    assert deviations.max() < 4.5
    ratio = (drawn**2).mean(axis=1) / np.diag(found.covariance)
    np.testing.assert_allclose(ratio, 1.0, atol=0.05)  # five standard errors


def test_a_posterior_of_nothing_is_the_prior() -> None:
    found = regressed(np.eye(WIDTH)[:1], np.ones(1), draws=20_000, penalty=4.0)

    drawn = found.weights[0, TARGETS:]
    assert drawn.var() == pytest.approx(1.0 / 5.0, rel=0.05)
    assert found.covariance.tolist() == [[pytest.approx(0.2)]]


def test_columns_go_to_those_who_came_first() -> None:
    columns = Columns.none(8, 3)

    first = columns.including(np.array([5, 2, 5]))
    full = first.including(np.array([2, 7, 0, 7, 1]))
    later = full.including(np.array([3, 5]))

    assert first.of.tolist() == [-1, -1, 1, -1, -1, 0, -1, -1]
    assert full.of.tolist() == [LEFT_OUT, LEFT_OUT, 1, UNSEEN, UNSEEN, 0, UNSEEN, 2]
    assert later.of[3] == LEFT_OUT
    assert (first.used, full.used, later.used) == (2, 3, 3)
    assert columns.of.tolist() == [UNSEEN] * 8


@given(st.integers(0, 2**32), CUTS)
@settings(max_examples=20, deadline=None)
def test_features_without_covariances_are_learned_as_if_they_had_none(
    seed: int, cuts: list[int]
) -> None:
    dense, rewards = samples(seed, 40)

    found = regressed(dense, rewards, cuts=cuts, joint=3)

    order = np.argsort(np.where(found.columns.of >= 0, found.columns.of, WIDTH))
    rows = dense[:, order[: found.columns.used]]
    covariance: FloatArray = np.eye(found.columns.used)
    weights: FloatArray = np.zeros((found.columns.used, 2))
    targets = np.stack([rewards, np.ones(40)], axis=1)
    edges = pairwise([0, *sorted(cuts), 40])
    blocks = [
        slice(at, min(at + BLOCK, end)) for begin, end in edges for at in range(begin, end, BLOCK)
    ]
    for block in blocks:
        part = rows[block]
        before = np.linalg.inv(covariance)
        covariance[:] = np.linalg.inv(before + part.T @ part)
        weights = covariance @ (before @ weights + part.T @ targets[block])
        covariance[3:] = np.diag(np.diag(covariance))[3:]
        covariance[:, 3:] = np.diag(np.diag(covariance))[:, 3:]
    expected = weights[:, 0] - rewards.mean() * weights[:, 1]
    np.testing.assert_allclose(found.reward, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.covariance, covariance[:3, :3], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.variances, np.diag(covariance)[3:], rtol=0, atol=1e-9)


def test_a_feature_without_covariances_is_forgotten_and_fades_as_others_do() -> None:
    dense, rewards = samples(6, 400)
    fit = regressed(dense, rewards, penalty=2.0, joint=3, draws=20_000)
    last = np.flatnonzero(fit.columns.of == 3)

    gone = fit.forget(last, penalty=2.0, rng=np.random.default_rng(0))
    half = fit.fade(0.5, penalty=2.0, rng=np.random.default_rng(0))

    assert gone.variances[0] == 0.5
    assert gone.reward[3] == 0.0
    assert gone.weights[3, TARGETS:].var() == pytest.approx(0.5, rel=0.05)
    np.testing.assert_array_equal(gone.variances[1:], fit.variances[1:])
    np.testing.assert_array_equal(gone.covariance, fit.covariance)
    np.testing.assert_allclose(half.variances, (fit.variances + 0.5) / 2.0)


def test_two_features_that_share_a_column_leave_it_a_variance() -> None:
    row = Crossed(np.array([0, 1, 1]), np.array([1.0, 30.0, 30.0]), np.array([0, 3]))
    found = Regression.empty(4, 1, draws=4)

    for _ in range(200):
        found = found.including(row, np.ones(1), penalty=1.0, rng=_RNG)

    assert 0.0 < found.variances[0] < 0.01
    assert row.dot(found.gain(0.0)) == pytest.approx(1.0, rel=0.01)


def test_unknown_costs_change_nothing_about_costs() -> None:
    dense, rewards = samples(4, 80)
    costs = np.append(rewards[:40] ** 2, np.full(40, np.nan))

    before = regressed(dense[:40], rewards[:40], costs[:40])
    after = regressed(dense, rewards, costs, cuts=[40])

    np.testing.assert_allclose(after.cost, before.cost, rtol=1e-10, atol=1e-10)
    assert after.cost_mean == before.cost_mean
    assert after.cost_squares == before.cost_squares
    assert after.cost_residuals == pytest.approx(before.cost_residuals, rel=1e-10)
    np.testing.assert_array_equal(after.reward, regressed(dense, rewards, cuts=[40]).reward)


def test_costs_never_known_are_zero() -> None:
    dense, rewards = samples(5, 40)

    found = regressed(dense, rewards, np.full(40, np.nan))

    assert not found.cost.any()
    assert (found.cost_mean, found.cost_deviation, found.cost_noise) == (0.0, 0.0, 0.0)


@pytest.mark.slow
def test_forgotten_features_are_as_at_first_and_all_others_as_they_were() -> None:
    dense, rewards = samples(6, 400)
    fit = regressed(dense, rewards, penalty=2.0, draws=20_000)
    slots: IntArray = np.array([1, 3, 4])  # 3 was never seen

    found = fit.forget(slots, penalty=2.0, rng=np.random.default_rng(0))

    gone = np.isin(np.arange(len(fit.covariance)), fit.columns.of[[1, 4]])
    np.testing.assert_array_equal(found.covariance[gone], 0.5 * np.eye(len(gone))[gone])
    np.testing.assert_array_equal(found.covariance[:, gone], 0.5 * np.eye(len(gone))[:, gone])
    kept = np.ix_(~gone, ~gone)
    np.testing.assert_array_equal(found.covariance[kept], fit.covariance[kept])
    np.testing.assert_array_equal(found.weights[~gone], fit.weights[~gone])
    assert not found.reward[gone].any()
    drawn = (found.weights[gone, TARGETS:] ** 2).mean(axis=1)
    np.testing.assert_allclose(drawn, 0.5, rtol=0.06)


def test_forgotten_features_are_relearned_soon() -> None:
    rng = np.random.default_rng(7)
    dense = np.eye(WIDTH)[rng.integers(0, 2, size=2_000)]
    rewards = dense[:, 0]
    fit = regressed(dense, rewards)
    changed = 1.0 - rewards[:30]

    kept, fresh = (
        one.including(sparse(dense[:30]), changed, penalty=1.0, rng=rng)
        for one in (fit, fit.forget(np.array([0, 1]), penalty=1.0, rng=rng))
    )

    first, second = fresh.columns.of[:2]
    assert fresh.reward[first] < fresh.reward[second]
    assert kept.reward[first] > kept.reward[second]


def test_faded_evidence_is_between_all_of_it_and_none() -> None:
    dense, rewards = samples(6, 400)
    fit = regressed(dense, rewards, penalty=2.0, draws=20_000)

    whole, half, nothing = (
        fit.fade(share, penalty=2.0, rng=np.random.default_rng(0)) for share in (0.0, 0.5, 1.0)
    )

    np.testing.assert_array_equal(whole.weights, fit.weights)
    np.testing.assert_array_equal(whole.covariance, fit.covariance)
    prior = 0.5 * np.eye(len(fit.covariance))
    np.testing.assert_allclose(half.covariance, (fit.covariance + prior) / 2.0)
    np.testing.assert_allclose(half.reward, fit.reward * 0.5**0.5)
    drawn = half.weights[:, TARGETS:]
    np.testing.assert_allclose(drawn @ drawn.T / 20_000, half.covariance, atol=0.02)
    assert half.samples == 200.0
    assert half.deviation == pytest.approx(fit.deviation)
    assert half.noise == pytest.approx(fit.noise)
    np.testing.assert_array_equal(nothing.covariance, prior)
    assert not nothing.reward.any()


@pytest.mark.slow
def test_thousands_of_samples_round_to_nothing() -> None:
    rng = np.random.default_rng(8)
    dense = rng.normal(size=(8_000, WIDTH))
    rewards = dense @ rng.normal(size=WIDTH) + 1_000.0

    found = regressed(dense, rewards, draws=0, penalty=0.01)

    np.testing.assert_allclose(
        by_slot(found, found.reward), ridge(dense, rewards, 0.01), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("joint", [3, WIDTH])
def test_is_saved_and_loaded_to_the_last_bit(joint: int) -> None:
    dense, rewards = samples(9, 40)
    fit = regressed(dense, rewards, np.roll(rewards, 1), joint=joint)

    loaded = Regression.from_arrays(
        fit.arrays("action"), "action", slots=WIDTH, joint=joint, draws=4
    )

    assert loaded.columns.used == fit.columns.used
    for one, other in ((loaded, fit), *zip(_gone_on(loaded), _gone_on(fit), strict=True)):
        np.testing.assert_array_equal(one.columns.of, other.columns.of)
        np.testing.assert_array_equal(one.covariance, other.covariance)
        np.testing.assert_array_equal(one.variances, other.variances)
        np.testing.assert_array_equal(one.weights, other.weights)
        assert one[5:] == other[5:]


def _gone_on(fit: Regression) -> list[Regression]:
    dense, rewards = samples(10, 20)
    rng = np.random.default_rng(0)
    return [fit.including(sparse(dense), rewards, rewards, penalty=1.0, rng=rng)]


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("action_columns", np.full(WIDTH, 11)),
        ("action_columns", np.full(WIDTH, LEFT_OUT - 1)),
        ("action_columns", np.zeros(3)),
        ("action_covariance", np.zeros(2)),
        ("action_variances", np.zeros(2)),
        ("action_variances", np.full(9, -1.0)),
        ("action_weights", np.full((1, 7), np.nan)),
        ("action_numbers", np.array([-1.0, 0, 0, 0, 0, 0, 0, 1])),
        ("action_numbers", np.array([1.0, 0, -1, 0, 0, 0, 0, 1])),
        ("action_numbers", np.array([1.0, 0, 0, 0, 0, 0, 0, 99])),
        ("action_numbers", np.zeros(6)),
    ],
)
def test_damaged_arrays_are_refused_by_name(name: str, damaged: FloatArray) -> None:
    arrays = regressed(*samples(9, 40), joint=3).arrays("action")

    with pytest.raises(ValueError, match=name):
        Regression.from_arrays(arrays | {name: damaged}, "action", slots=WIDTH, joint=3, draws=4)
    del arrays[name]
    with pytest.raises(ValueError, match=name):
        Regression.from_arrays(arrays, "action", slots=WIDTH, joint=3, draws=4)


def test_features_that_an_earlier_version_left_out_are_new() -> None:
    arrays = regressed(np.eye(WIDTH)[:2], np.ones(2)).arrays("action")
    arrays["action_columns"] = np.where(np.arange(WIDTH) == 5, LEFT_OUT, arrays["action_columns"])
    del arrays["action_variances"]

    loaded = Regression.from_arrays(arrays, "action", slots=WIDTH, joint=2, draws=4)
    later = loaded.including(sparse(np.eye(WIDTH)[5:6]), np.zeros(1), penalty=1.0, rng=_RNG)

    assert (loaded.columns.of[5], later.columns.of[5]) == (UNSEEN, 2)
    assert (len(loaded.covariance), later.variances.tolist()) == (2, [pytest.approx(0.5)])


def test_no_samples_change_nothing() -> None:
    fit = regressed(*samples(11, 5))

    assert fit.including(sparse(np.zeros((0, WIDTH))), np.zeros(0), penalty=1.0, rng=_RNG) is fit


_RNG = np.random.default_rng(0)


@pytest.mark.slow
def test_threads_change_no_bit() -> None:
    found = []
    for threads in ("1", "2"):
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OPENBLAS_NUM_THREADS": threads,
        }
        done = subprocess.run(
            [sys.executable, "-c", "from tests.rl.test_recursive import digest; print(digest())"],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(done.stdout)

    assert found[0] == found[1]
    assert len(found[0]) == 65


def digest() -> str:
    """Return the digest of a regression wide enough for a library to split it among threads.

    One sample alone is multiplied as a vector, which is split in other ways.
    """
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(66, 700)) * (rng.random((66, 700)) < 0.5)
    fit = Regression.empty(700, 600)
    for part in (slice(65), slice(65, 66)):
        rewards = rng.normal(size=len(dense[part]))
        fit = fit.including(sparse(dense[part]), rewards, rewards, penalty=1.0, rng=rng)
    kernel = Regression.empty(256, 256, draws=0)
    rewards = rng.normal(size=65)
    kernel = kernel.including(sparse(rng.normal(size=(65, 256))), rewards, penalty=1.0, rng=rng)
    hashed = hashlib.sha256()
    for known in (fit.forget(np.arange(9), penalty=1.0, rng=rng), kernel.penalise(2.0)):
        for array in known.arrays("of").values():
            hashed.update(array.tobytes())
    return hashed.hexdigest()
