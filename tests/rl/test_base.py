"""The base of a policy: its formula, its doubts, costs, and the way from one to the next."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.rl.arrays import FloatArray, IntArray
from tau_live.rl.base import Base, Estimates, base_of
from tau_live.rl.recursive import TARGETS, UNSEEN, Regression
from tests.rl.digests import digest
from tests.rl.rows import WIDTH, added, known, samples, sparse


class Setting(NamedTuple):
    """How a base is made."""

    sharpness: float = 2.0
    exploration: float = 0.5
    penalty: float = 2.0
    multiplier: float = 0.0


def learned(
    dense: FloatArray, rewards: FloatArray, costs: FloatArray | None = None, *, draws: int = 2_000
) -> Regression:
    return Regression.empty(WIDTH, WIDTH, draws=draws).including(
        sparse(dense), rewards, costs, penalty=2.0, rng=np.random.default_rng(0)
    )


def made(fit: Regression, setting: Setting | None = None) -> Base:
    return base_of(fit, **(setting or Setting())._asdict())


def whole(options: FloatArray) -> IntArray:
    return np.array([0, len(options)])


@given(st.integers(0, 2**32), st.sampled_from([0.0, 3.0]))
@settings(max_examples=20, deadline=None)
def test_what_is_added_is_the_formula(seed: int, multiplier: float) -> None:
    dense, rewards = samples(seed, 40)
    costs = np.roll(rewards, 3) ** 2
    fit = learned(dense, rewards, costs, draws=32)
    options, starts = np.roll(dense[:6], 1, axis=1), np.array([0, 2, 6])  # slot 3 occurs, unseen

    found = added(made(fit, Setting(multiplier=multiplier)), sparse(options), starts)

    rows = np.where(fit.columns.of >= 0, options, 0.0)[:, np.argsort(fit.columns.of)[1:]]
    unseen = np.where(fit.columns.of == UNSEEN, options, 0.0)
    noise = fit.noise + multiplier * fit.cost_noise
    drawn = rows @ fit.weights[:, TARGETS:]
    doubts = noise * np.sqrt((drawn**2).mean(axis=1) + (unseen**2).sum(axis=1) / 2.0)
    gains = rows @ (fit.reward - multiplier * fit.cost)
    for part in (slice(0, 2), slice(2, 6)):
        count = part.stop - part.start
        sharpness = 2.0 + np.log(count - 1) / np.sqrt(2.0)
        beta = sharpness / np.sqrt((doubts[part] ** 2).mean())
        alpha = 0.5 * np.sqrt(np.log1p(40 / count))
        expected = beta * (gains[part] + alpha * doubts[part])
        np.testing.assert_allclose(found[part], expected, rtol=1e-4, atol=1e-4)


def test_doubts_are_the_standard_errors_of_the_regression() -> None:
    dense, rewards = samples(1, 40)
    fit = learned(dense, rewards, draws=20_000)

    found = made(fit).estimates(sparse(dense[:6]))

    rows = dense[:6][:, np.argsort(fit.columns.of)[1:]]
    variances = np.einsum("md,de,me->m", rows, fit.covariance, rows)
    np.testing.assert_allclose(found.doubts, fit.noise * np.sqrt(variances), rtol=0.03)


def test_an_option_never_tried_has_the_largest_doubt() -> None:
    rng = np.random.default_rng(4)
    tried = np.eye(WIDTH)[rng.integers(0, 3, size=50)]
    base = made(learned(tried, rng.normal(size=50)), Setting(exploration=5.0))
    offered = np.eye(WIDTH)[:4]

    found = base.estimates(sparse(offered))

    assert int(np.argmax(found.doubts)) == 3
    assert found.gains[3] == 0.0
    assert int(np.argmax(added(base, sparse(offered), whole(offered)))) == 3


def test_logits_grow_with_evidence_until_the_limit() -> None:
    rng = np.random.default_rng(5)
    tried = np.eye(WIDTH)[rng.integers(0, 2, size=100_000)]
    rewards = tried[:, 0] * 0.2 + rng.normal(size=len(tried))
    offered = np.eye(WIDTH)[:2]
    counts = (20, 200, 2_000)

    gaps = []
    for count in counts:
        base = made(learned(tried[:count], rewards[:count], draws=64), Setting(exploration=0.0))
        doubts = base.estimates(sparse(offered)).doubts
        gaps.append(base.sharpness / float(np.sqrt((doubts**2).mean())))

    assert gaps[1] / gaps[0] == pytest.approx(np.sqrt(10.0), rel=0.35)
    assert gaps[2] / gaps[1] == pytest.approx(np.sqrt(10.0), rel=0.35)


def test_no_two_options_are_further_apart_than_the_limit() -> None:
    sure = known(np.random.default_rng(0), WIDTH, 6)._replace(
        draws=np.zeros((6, 4), dtype=np.float32), columns=np.arange(WIDTH, dtype=np.int32) % 6
    )
    offered = np.eye(WIDTH)[:2]

    found = added(sure, sparse(offered), whole(offered))

    np.testing.assert_allclose(found, sure.limit * sure.gains[:2], rtol=1e-12)


@pytest.mark.parametrize("multiplier", [0.0, 1e-3, 1e3])
def test_costs_matter_even_where_rewards_are_equal(multiplier: float) -> None:
    rng = np.random.default_rng(6)
    tried = np.eye(WIDTH)[rng.integers(0, 2, size=60)]
    offered = np.eye(WIDTH)[:2]

    base = made(learned(tried, np.ones(60), tried[:, 0]), Setting(multiplier=multiplier))
    found = added(base, sparse(offered), whole(offered))

    assert np.isfinite(found).all()
    assert (found[0] < found[1]) == (multiplier > 0.0)


def test_without_sharpness_or_differences_there_is_no_base() -> None:
    dense, rewards = samples(5, 40)
    offered = sparse(dense)

    off = made(learned(dense, rewards), Setting(sharpness=0.0))
    equal = made(learned(dense, np.ones(40)))
    alike = made(learned(dense, np.ones(40), np.ones(40)), Setting(multiplier=2.0))

    for base in (off, equal, alike, Base.initial(WIDTH)):
        assert not added(base, offered, whole(dense)).any()


def test_part_of_the_way_is_between_the_two_ends() -> None:
    rng = np.random.default_rng(7)
    here, there = (known(rng, WIDTH, columns) for columns in (3, 6))

    halfway = there.interpolate(here, 0.25)

    def by_slot(base: Base) -> FloatArray:
        found: FloatArray = np.where(base.columns >= 0, base.gains[np.maximum(base.columns, 0)], 0)
        return found

    expected = 0.75 * by_slot(here) + 0.25 * by_slot(there)
    expected[there.columns < 0] = 0.0
    np.testing.assert_allclose(by_slot(halfway), expected, rtol=1e-12)
    assert halfway.draws is there.draws
    assert there.interpolate(here, 1.0).gains.tolist() == there.gains.tolist()


def test_is_saved_and_loaded_to_the_last_bit() -> None:
    dense, rewards = samples(8, 40)
    base = made(learned(dense, rewards))

    loaded = Base.from_arrays(base.arrays(), cross_width=WIDTH)

    assert digest(loaded.arrays()) == digest(base.arrays())
    np.testing.assert_array_equal(
        added(loaded, sparse(dense), whole(dense)), added(base, sparse(dense), whole(dense))
    )


@pytest.mark.parametrize("count", [2, 3, 10, 50])
def test_many_rivals_that_are_as_far_behind_get_together_what_a_single_one_would(
    count: int,
) -> None:
    base = known(np.random.default_rng(0), WIDTH, 6)._replace(exploration=0.0, limit=1e9)
    gains = np.zeros(count)
    gains[0] = np.sqrt(2.0)  # one standard error of the difference of two options
    found = Estimates(gains, np.ones(count))

    logits = base.logits(found, np.array([0, count]))

    shares = np.exp(logits - logits[0])
    assert shares[1:].sum() == pytest.approx(np.exp(-2.0 * np.sqrt(2.0)))


def test_where_contexts_never_differ_there_is_no_variety() -> None:
    dense, rewards = samples(3, 40)
    base = made(learned(dense, rewards, draws=32))
    same = np.repeat(dense[:2], 5, axis=0)
    names = np.repeat([0, 1], 5)

    assert base.variety(sparse(same), names) == pytest.approx(1.0)
    assert base.variety(sparse(same), np.arange(10)) == 1.0  # nobody came twice


def test_variety_is_how_far_doubts_stand_out_from_that_of_the_average() -> None:
    dense, rewards = samples(3, 40)
    base = made(learned(dense, rewards, draws=32))
    names = np.arange(12) % 2

    found = base.variety(sparse(dense[:12]), names)

    rows = np.stack([dense[:12][names == name].mean(axis=0) for name in names])
    here, average = (base.estimates(sparse(part)).doubts for part in (dense[:12], rows))
    expected = np.sqrt((here**2).mean() / (average**2).mean())
    assert expected > 1.2
    assert found == pytest.approx(expected)


@given(st.floats(0.0, 1e-150), st.integers(2, 300), st.floats(1e-3, 1e6))
@settings(deadline=None)
def test_without_any_doubt_it_is_as_sharp_as_it_may_be(
    doubt: float, options: int, sharpness: float
) -> None:
    base = made(learned(*samples(1, 40), draws=8))._replace(sharpness=sharpness)

    with np.errstate(all="raise", under="ignore"):
        betas = base.betas(np.full(options, doubt), np.array([0, options]))

    assert betas.tolist() == [base.limit]


def test_a_part_of_a_step_brings_a_part_of_the_bonus_for_doubt_too() -> None:
    goal = known(np.random.default_rng(0), WIDTH, 6)
    before = Base.initial(WIDTH)

    found = goal.interpolate(before, 0.25)

    assert found.exploration == pytest.approx(0.25 * goal.exploration)
    assert found.interpolate(goal, 0.0).exploration == goal.exploration
