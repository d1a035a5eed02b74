"""The regression of each option: the closed form, who has one, its trust and drift."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.rl.arrays import FloatArray, IntArray
from tau_live.rl.base import Base, base_of
from tau_live.rl.kernel import MOST, Kernel, KernelInput, Kernels, Penalty, Sums
from tau_live.rl.recursive import Regression
from tests.rl.digests import digest
from tests.rl.kernels import WAVES, kernel_of, learned, rows, slots
from tests.rl.rows import WIDTH, known, samples, sparse

PENALTY = 0.125


def ridge(features: FloatArray, targets: FloatArray, mean: float) -> FloatArray:
    gram = features.T @ features + PENALTY * np.eye(features.shape[1])
    return np.asarray(np.linalg.solve(gram, features.T @ (targets - mean)), dtype=np.float64)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 30), st.floats(0.0, 3.0))
def test_each_options_regression_is_the_closed_form(
    seed: int, split: int, multiplier: float
) -> None:
    rng = np.random.default_rng(seed)
    names = rng.choice([9, 4, 700], size=31)
    features, rewards, costs = rows(rng, 31), rng.normal(size=31) + 5.0, rng.normal(size=31)
    found = Kernels.empty(WAVES)
    for part in (slice(0, split), slice(split, 31)):
        found = found.including(names[part], features[part], rewards[part], costs[part])

    served = found.to_kernel(multiplier, (4.5, 0.25))

    assert served.names.tolist() == np.unique(names).tolist()
    for name, gains in zip(served.names, served.gains, strict=True):
        at = names == name
        expected = ridge(features[at], rewards[at], 4.5)
        expected -= multiplier * ridge(features[at], costs[at], 0.25)
        np.testing.assert_allclose(gains, expected, rtol=0, atol=1e-9)


def test_an_unknown_cost_changes_no_estimate_of_costs() -> None:
    rng = np.random.default_rng(3)
    names, features = np.repeat(slots(5, 9), 20), rows(rng, 40)
    rewards, costs = rng.normal(size=(2, 40))
    costs[20:] = np.nan
    before = Kernels.empty(WAVES).including(
        names[:20], features[:20], rewards[:20], costs[:20], cost_mean=2.0
    )

    found = before.including(slots(5), features[:1], np.ones(1), np.full(1, np.nan), cost_mean=2.0)
    found = found.including(names, features, rewards, np.full(40, np.nan), cost_mean=2.0)

    priced, free = (found.to_kernel(price, (0.0, 2.0)).gains for price in (1.0, 0.0))
    earlier = [before.to_kernel(price, (0.0, 2.0)).gains[0] for price in (1.0, 0.0)]
    np.testing.assert_allclose(priced[0] - free[0], earlier[0] - earlier[1], atol=1e-9)
    np.testing.assert_allclose(priced[1], free[1], atol=1e-9)  # as dear as the mean, not free


def test_the_first_that_came_have_a_regression_and_no_others() -> None:
    names = np.random.default_rng(4).permutation(1_000)[: MOST + 5]

    some = learned(names[:20].tolist())
    rng = np.random.default_rng(0)
    found = some.including(names, rows(rng, len(names)), *rng.normal(size=(2, len(names))))

    assert found.names.tolist() == names[:MOST].tolist()
    assert len(found.fits) == MOST
    assert not found.to_kernel(0.0, (0.0, 0.0)).places(names[MOST:])[1].any()
    assert [fit.samples for fit in found.fits] == [6] * 20 + [1] * (MOST - 20)


def test_nothing_new_changes_nothing() -> None:
    before = learned([3, 1])

    found = before.including(slots(), np.zeros((0, WAVES)), np.zeros(0), np.zeros(0))

    assert digest(found.arrays()) == digest(before.arrays())


def test_what_is_forgotten_is_new_and_leaves_its_place() -> None:
    before = learned(range(MOST))

    found = before.forget(slots(5, 7, 999))

    assert found.names.tolist() == [name for name in range(MOST) if name not in (5, 7)]
    assert found.sums == before.sums
    assert not found.to_kernel(0.0, (0.0, 0.0)).places(slots(5))[1][0]
    kept = np.delete(before.to_kernel(0.0, (0.0, 0.0)).gains, [5, 7], axis=0)
    np.testing.assert_array_equal(found.to_kernel(0.0, (0.0, 0.0)).gains, kept)
    again = found.including(slots(5), np.ones((1, WAVES)), np.ones(1), np.zeros(1))
    alone = Kernels.empty(WAVES).including(slots(5), np.ones((1, WAVES)), np.ones(1), np.zeros(1))
    np.testing.assert_array_equal(again.fits[-1].weights, alone.fits[0].weights)


def test_a_new_start_keeps_the_trust() -> None:
    before = learned([3, 1])._replace(sums=Sums(90.0, 80.0, 70.0, 40.0, 50.0))

    found = before.restart()

    assert (found.fits, found.names.tolist(), found.width) == ((), [], WAVES)
    assert found.sums.trust == before.sums.trust == 0.8


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 60), st.floats(-1.0, 3.0))
def test_trust_is_the_share_that_would_have_foreseen_best(
    seed: int, count: int, worth: float
) -> None:
    rng = np.random.default_rng(seed)
    own, shared = rng.normal(size=(2, count))
    errors = shared + worth * own + 0.3 * rng.normal(size=count)

    found = Sums()
    for part in (slice(0, 1), slice(1, count)):
        found = found.including(errors[part], shared[part], own[part])

    share = float(own @ (errors - shared) / (own @ own))
    deviation = float(np.sqrt(((errors - shared) ** 2).mean() / (own @ own)))
    sure = share > 1.5 * deviation
    assert found.trust == pytest.approx(min(share, 1.0) if sure else 0.0, rel=1e-9)
    left = (errors - shared - found.trust * own) if sure else errors
    expected = min(np.sqrt((left @ left) / (errors @ errors)), 1.0)
    assert found.residual_share == pytest.approx(expected, rel=1e-9, abs=1e-7)


@pytest.mark.parametrize(
    ("sums", "trust"),
    [
        pytest.param(Sums(), 0.0, id="nothing was foreseen yet"),
        pytest.param(Sums(100.0, 1.0, 100.0, 14.9, 100.0), 0.0, id="within chance"),
        pytest.param(Sums(100.0, 200.0, 100.0, 15.1, 100.0), 0.151, id="beyond chance"),
        pytest.param(Sums(100.0, 200.0, 100.0, 180.0, 100.0), 1.0, id="never more than all"),
        pytest.param(Sums(100.0, 200.0, 100.0, -90.0, 100.0), 0.0, id="worse than slopes"),
        pytest.param(Sums(9.0, np.inf, np.inf, np.inf, np.inf), 0.0, id="past all numbers"),
        pytest.param(Sums(9.0, 0.0, 1e-300, 1e-200, 1e-300), 1.0, id="slopes without an error"),
    ],
)
def test_trust_is_earned(sums: Sums, trust: float) -> None:
    found = sums.trust

    assert found == pytest.approx(trust)
    assert 0.0 <= sums.residual_share <= 1.0


@pytest.mark.parametrize("unit", [1e-100, 1e-50, 1e50, 1e100])
@pytest.mark.parametrize("mended", [14.0, 16.0, 40.0])
def test_trust_hangs_on_no_unit_of_reward(unit: float, mended: float) -> None:
    sums = Sums(100.0, 200.0, 100.0, mended, 100.0)

    found = Sums(100.0, *[number * unit**2 for number in sums[1:]])

    assert found.trust == pytest.approx(sums.trust)
    assert found.residual_share == pytest.approx(sums.residual_share)


def judged(
    kernels: Kernels,
    rng: np.random.Generator,
    rewards: FloatArray,
    *,
    seen: KernelInput,
    chosen: IntArray,
) -> Kernels:
    """Return the regressions with what decisions say, where slopes expect nothing."""
    options = int(seen.counts.sum())
    return kernels.judge(
        seen,
        np.zeros(options),
        rewards,
        chosen=chosen,
        probabilities=np.repeat(1.0 / seen.counts, seen.counts),
        mean=0.0,
    )


def two_options(rng: np.random.Generator, count: int) -> tuple[KernelInput, IntArray]:
    seen = KernelInput(np.tile([3, 8], count), rows(rng, count), np.full(count, 2))
    return seen, 2 * np.arange(count) + rng.integers(2, size=count)


def taught(gains: FloatArray) -> Kernels:
    """Return regressions of the options 3 and 8 that learned these gains, almost exactly."""
    rng = np.random.default_rng(6)
    features = rows(rng, 400)
    found = Kernels.empty(WAVES)
    for name, gain in zip((3, 8), gains, strict=True):
        names = np.full(len(features), name)
        found = found.including(names, features, features @ gain, np.zeros(len(features)))
    return found


def test_kernels_that_are_right_where_slopes_say_nothing_are_believed() -> None:
    rng = np.random.default_rng(7)
    gains = rng.normal(size=(2, WAVES))
    seen, chosen = two_options(rng, 100)
    rewards = np.einsum("nw,nw->n", seen.waves, gains[chosen % 2])

    found = judged(taught(gains), rng, rewards, seen=seen, chosen=chosen)

    assert found.sums.samples == 100.0
    assert found.sums.trust > 0.99
    assert found.sums.residual_share < 0.05


def test_what_is_foreseen_of_all_options_alike_earns_no_trust() -> None:
    rng = np.random.default_rng(8)
    gain = rng.normal(size=WAVES)
    seen, chosen = two_options(rng, 100)
    rewards = seen.waves @ gain

    found = judged(taught(np.array([gain, gain])), rng, rewards, seen=seen, chosen=chosen)

    assert found.sums.blind < 0.01 * found.sums.errors  # it knows the state all right
    assert found.sums.trust == 0.0


@pytest.mark.slow
def test_what_is_an_accident_earns_no_trust() -> None:
    heard = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        kernels = taught(rng.normal(size=(2, WAVES)))
        seen, chosen = two_options(rng, 50)

        found = judged(kernels, rng, rng.normal(size=50), seen=seen, chosen=chosen)

        heard += found.sums.trust > 0.0
    assert heard <= 8  # 1.5 standard errors: 1 in 15


@pytest.mark.parametrize(
    ("penalty", "gain", "value"),
    [
        pytest.param(Penalty(1.0, 0.5, 3.0), 1.0, 1.0, id="within chance"),
        pytest.param(Penalty(1.0, 9.0, 3.0), 1.0, 2.0, id="more would have been better"),
        pytest.param(Penalty(1.0, -9.0, 3.0), -1.0, 0.5, id="less would have been better"),
        pytest.param(Penalty(32.0, 9.0, 3.0), 1.0, 32.0, id="never above the largest"),
        pytest.param(Penalty(1 / 32, -9.0, 3.0), -1.0, 1 / 32, id="never below the least"),
        pytest.param(Penalty(1.0, np.inf, np.inf), 1.0, 1.0, id="past all numbers"),
    ],
)
def test_the_penalty_changes_beyond_chance(penalty: Penalty, gain: float, value: float) -> None:
    found = penalty.including(np.array([gain]), np.ones(1))

    assert found.value == value


@pytest.mark.parametrize(("noise", "least", "most"), [(3.0, 2.0, 32.0), (0.01, 1 / 32, 0.0625)])
def test_noise_raises_the_penalty_and_certainty_lowers_it(
    noise: float, least: float, most: float
) -> None:
    rng = np.random.default_rng(11)
    gains, found = rng.normal(size=(2, WAVES)), Kernels.empty(WAVES)
    for _ in range(200):
        seen, chosen = two_options(rng, 8)
        rewards = np.einsum("nw,nw->n", seen.waves, gains[chosen % 2])
        rewards += noise * rng.normal(size=8)
        if found.fits:
            found = judged(found, rng, rewards, seen=seen, chosen=chosen)
        found = found.including(seen.names[chosen], seen.waves, rewards, np.zeros(8))

    assert least <= found.penalty.value <= most
    kept = found.restart()
    assert (kept.penalty, kept.sums, kept.fits) == (found.penalty, found.sums, ())


def test_a_changed_penalty_is_that_of_all_samples() -> None:
    rng = np.random.default_rng(12)
    found = learned([3, 8], each=40)._replace(penalty=Penalty(0.125, 1e3, 1.0))
    again = Kernels.empty(WAVES)._replace(penalty=Penalty(0.25))
    seen, chosen = two_options(rng, 8)

    found = judged(found, rng, np.zeros(8), seen=seen, chosen=chosen)
    again = learned([3, 8], each=40, into=again)

    assert found.penalty.value == 0.25
    for fit, expected in zip(found.fits, again.fits, strict=True):
        np.testing.assert_allclose(fit.weights, expected.weights, atol=1e-9)
        np.testing.assert_allclose(fit.covariance, expected.covariance, atol=1e-9)
        assert (fit.covariance == fit.covariance.T).all()


def test_options_that_kernels_do_not_know_are_left_to_slopes() -> None:
    rng = np.random.default_rng(9)
    kernels = taught(rng.normal(size=(2, WAVES)))
    seen, chosen = two_options(rng, 20)
    unknown = seen._replace(names=seen.names + 1_000)

    found = judged(kernels, rng, rng.normal(size=20), seen=unknown, chosen=chosen)

    assert found.sums.changes == 0.0
    assert found.sums.blind == found.sums.errors > 0.0
    assert found.penalty == Penalty()


def test_no_decisions_say_nothing() -> None:
    seen = KernelInput(slots(), np.zeros((0, WAVES)), slots())

    found = judged(learned([3]), np.random.default_rng(0), np.zeros(0), seen=seen, chosen=slots())

    assert found.sums == Sums()


@settings(deadline=None)
@given(st.integers(0, 2**32), st.floats(0.0, 1.0))
def test_near_is_between_the_two(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    gains = rng.normal(size=(4, WAVES))
    here, there = kernel_of([2, 5], gains[:2], 0.9), kernel_of([2, 7], gains[2:], 0.3)

    found = here.interpolate(there, share)

    assert found.names.tolist() == [2, 5]
    np.testing.assert_allclose(found.trust, [share * 0.9 + (1.0 - share) * 0.3, share * 0.9])
    expected = np.array([share * gains[0] + (1.0 - share) * gains[2], gains[1]])
    np.testing.assert_allclose(found.gains, expected, atol=1e-12)


def test_near_begins_at_the_other_and_ends_at_itself() -> None:
    gains = np.random.default_rng(10).normal(size=(4, WAVES))
    here, there = kernel_of([2, 5], gains[:2], 0.9), kernel_of([2, 5], gains[2:], 0.3)

    first, last = here.interpolate(there, 0.0), here.interpolate(there, 1.0)

    assert digest(first.arrays()) == digest(there.arrays())
    assert digest(last.arrays()) == digest(here.arrays())
    assert digest(here.interpolate(Kernel.none(WAVES), 1.0).arrays()) == digest(here.arrays())
    assert not here.interpolate(Kernel.none(WAVES), 0.5).gains.flags.writeable
    assert len(Kernel.none(WAVES).interpolate(here, 0.5).names) == 0


@settings(deadline=None)
@given(st.integers(0, 2**32), st.floats(0.0, 1.0))
def test_an_option_that_comes_to_be_known_begins_where_slopes_left_it(
    seed: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    gains = rng.normal(size=(3, WAVES))
    before = known(rng, WIDTH, 8, kernel=kernel_of([3], gains[:1], 0.9))
    goal = before._replace(kernel=kernel_of([3, 8], gains[1:], 0.8))
    options, seen = (
        sparse(samples(1, 3)[0]),
        KernelInput(slots(8, 4, 3), rows(rng, 1), np.array([3])),
    )

    nearest, found = (
        goal.interpolate(before, of).estimates(options, seen).gains for of in (0.0, share)
    )

    first, last = (base.estimates(options, seen).gains for base in (before, goal))
    np.testing.assert_allclose(nearest, first, atol=1e-12)
    assert found[0] == pytest.approx((1.0 - share) * first[0] + share * last[0])


def test_what_it_says_is_the_inner_product_of_those_that_it_knows() -> None:
    rng = np.random.default_rng(11)
    gains, features = rng.normal(size=(2, WAVES)), rows(rng, 2)
    kernel = kernel_of([3, 8], gains, 0.75)

    said, knows, trust = kernel.predict(KernelInput(slots(8, 4, 9, 3), features, np.array([3, 1])))

    assert knows.tolist() == [True, False, False, True]
    assert trust.tolist() == [0.75, 0.0, 0.0, 0.75]
    expected = [features[0] @ gains[1], 0.0, 0.0, features[1] @ gains[0]]
    np.testing.assert_allclose(said, expected, atol=1e-12)
    nothing, none, no_trust = Kernel.none(WAVES).predict(
        KernelInput(slots(8, 4), features, np.array([1, 1]))
    )
    assert (nothing.tolist(), none.tolist()) == ([0.0, 0.0], [False, False])
    assert no_trust.tolist() == [0.0, 0.0]


def test_an_estimate_is_slopes_and_kernels_by_their_trust() -> None:
    rng = np.random.default_rng(12)
    kernel = kernel_of([3, 8], rng.normal(size=(2, WAVES)), 0.25)
    base: Base = known(rng, WIDTH, 8, kernel=kernel)
    options = sparse(samples(1, 3)[0])
    seen = KernelInput(slots(8, 4, 3), rows(rng, 1), np.array([3]))

    found = base.estimates(options, seen)

    slopes = base.estimates(options)
    said, _, _ = kernel.predict(seen)
    expected = 0.75 * slopes.gains + 0.25 * said
    expected[1] = slopes.gains[1]  # never seen
    np.testing.assert_allclose(found.gains, expected, atol=1e-12)
    np.testing.assert_array_equal(found.doubts, slopes.doubts)


def test_what_kernels_mend_is_noise_no_more() -> None:
    dense, rewards = samples(2, 60)
    fit = Regression.empty(WIDTH, WIDTH).including(
        sparse(dense), rewards, penalty=1.0, rng=np.random.default_rng(0)
    )
    trusted = learned([3])._replace(sums=Sums(60.0, 40.0, 40.0, 30.0, 30.0))

    one, other = (
        base_of(fit, sharpness=6.0, exploration=0.5, penalty=1.0, multiplier=0.0, kernels=kernels)
        for kernels in (None, trusted)
    )

    assert trusted.sums.residual_share == 0.5
    assert other.noise == pytest.approx(0.5 * one.noise)
    assert (one.kernel.is_trusted, other.kernel.is_trusted) == (False, True)
