"""Decisions that kernels have a part in: served, learned from and explained, they are the same."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.rl.arrays import BoolArray, FloatArray
from tau_live.rl.batch import Trajectories, batch
from tau_live.rl.config import PPOConfig
from tau_live.rl.features import Encoded, encode
from tau_live.rl.policy import KERNEL, Policy, PolicyConfig, terms
from tau_live.rl.ppo import update
from tau_live.rl.state import LearnerState
from tau_live.rl.surrogate import choices
from tests.rl.digests import digest_of
from tests.rl.tasks import Chances, Product, Rings, Slopes, Worth, gathered, lived, played
from tests.rl.test_served import HEARD, trained

SMALL = PolicyConfig(width=64, cross_width=256, ridge_width=128)
WITHOUT = PolicyConfig(kernels=0)
NAMES = st.lists(
    st.sampled_from([*HEARD, "never seen", "another"]), min_size=1, max_size=6, unique=True
)
FLAGS = st.none() | st.lists(st.booleans(), min_size=6, max_size=6)


def one(
    encoded: Encoded, chosen: int, *, allowed: BoolArray | None, explored: BoolArray | None
) -> Trajectories:
    """Return a rollout of one decision."""
    return Trajectories(
        encoded=[encoded],
        chosen=np.array([chosen]),
        default=np.array([chosen]),
        propensity=np.array([0.5]),
        value=np.zeros(1),
        reward=np.ones(1),
        discount=np.zeros(1),
        bootstrap=np.zeros(1),
        length=np.array([1]),
        version_lag=np.zeros(1, dtype=np.int64),
        allowed=[allowed],
        explored=[explored],
    )


def softmax(policy: Policy, logits: FloatArray, shares: BoolArray) -> FloatArray:
    """Return the probabilities that these logits make, the floor given to some."""
    weights = np.exp(logits - logits.max())
    epsilon = policy.config.epsilon if shares.any() else 0.0
    floor = np.where(shares, epsilon / max(int(shares.sum()), 1), 0.0)
    found: FloatArray = (1.0 - epsilon) * weights / weights.sum() + floor
    return found


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 99),
    NAMES,
    FLAGS,
    FLAGS,
    st.sampled_from([{}, {"x": 0.5}, {"x": -2.0, "kind": "red", "more": ["a", "b"]}]),
)
def test_served_learned_from_and_explained_they_have_the_same_probabilities(
    seed: int,
    names: list[str],
    mask: list[bool] | None,
    flags: list[bool] | None,
    context: dict[str, object],
) -> None:
    policy, count = trained(seed), len(names)
    options = [(name, {"cost": 0.5} if n % 2 else None) for n, name in enumerate(names)]
    encoded = encode(context, options, width=32)
    allowed = None if mask is None or not any(mask[:count]) else np.array(mask[:count])
    explored = None if flags is None else np.array(flags[:count])
    may = np.ones(count, dtype=np.bool_) if allowed is None else allowed
    default = int(np.flatnonzero(may)[0])

    found = policy.probabilities(encoded, default=default, allowed=allowed, explored=explored)

    data = batch(policy, one(encoded, default, allowed=allowed, explored=explored))
    learned = choices(data, policy.weights, policy.net).probabilities
    np.testing.assert_allclose(found[may], learned, rtol=1e-7, atol=1e-12)
    told = terms(policy, encoded, default=default, allowed=allowed, explored=explored)
    logits = np.sum(list(told.values()), axis=0)[may]
    shares = np.ones(count, dtype=np.bool_) if explored is None else explored
    expected = softmax(policy, logits, shares[may])
    np.testing.assert_allclose(found[may], expected, rtol=1e-7, atol=1e-12)
    own = set(policy.base.kernel.names.tolist())
    known = np.array([slot in own for slot in encoded.indices[encoded.starts[1:-1]].tolist()])
    assert (np.abs(told[KERNEL][known]) > 0.0).all()
    assert not told[KERNEL][~known].any()


@pytest.mark.slow
def test_a_saved_policy_decides_and_is_digested_as_before() -> None:
    policy = lived(Product(), rollouts=96, seed=1, every=32, policy_config=SMALL).state.policy
    encoded = encode({"x": 1.0, "y": 1.0}, [("same", None), ("other", None)], width=64)

    loaded = Policy.from_arrays(policy.arrays())

    assert policy.base.kernel.is_trusted
    assert digest_of(loaded) == digest_of(policy)
    assert loaded.probabilities(encoded).tolist() == policy.probabilities(encoded).tolist()


@pytest.mark.slow
def test_a_learner_whose_kernels_are_heard_goes_on_bit_for_bit() -> None:
    whole = lived(Product(), rollouts=96, seed=1, every=32, policy_config=SMALL).state
    rng = np.random.default_rng(7)
    fresh, window = (gathered([played(Product(), whole, rng) for _ in range(16)]) for _ in "ab")

    loaded = LearnerState.from_arrays(whole.arrays())

    gone_on = [
        update(one, fresh, window=window, config=PPOConfig(), rng=np.random.default_rng(9)).state
        for one in (whole, loaded)
    ]
    assert whole.policy.base.kernel.is_trusted
    assert digest_of(loaded) == digest_of(whole)
    assert digest_of(gone_on[0]) == digest_of(gone_on[1]) != digest_of(whole)
    assert gone_on[0].kernels.sums.samples == whole.kernels.sums.samples + 16.0


@pytest.mark.slow
def test_decisions_that_were_not_ours_neither_teach_nor_judge_kernels() -> None:
    state = lived(Product(), rollouts=96, seed=1, every=32, policy_config=SMALL).state
    fresh = gathered([played(Product(), state, np.random.default_rng(7)) for _ in range(16)])
    fresh.propensity[:] = np.nan

    found = update(state, fresh, config=PPOConfig(), rng=np.random.default_rng(9)).state

    assert found.kernels.sums == state.kernels.sums
    assert [fit.samples for fit in found.kernels.fits] == [
        fit.samples for fit in state.kernels.fits
    ]


@pytest.mark.slow
def test_kernels_are_judged_before_they_learn() -> None:
    first = lived(Product(), rollouts=32, seed=1, every=32, policy_config=SMALL).state
    second = lived(Product(), rollouts=64, seed=1, every=32, policy_config=SMALL).state

    assert first.kernels.sums.samples == 0.0
    assert sum(fit.samples for fit in first.kernels.fits) == 32
    assert second.kernels.sums.samples == 32.0
    assert sum(fit.samples for fit in second.kernels.fits) == 64


@pytest.mark.slow
def test_an_option_that_is_doubted_is_new_to_kernels_too() -> None:
    state = lived(Product(), rollouts=96, seed=1, every=32, policy_config=SMALL).state
    rows = encode({}, [("same", None)], width=64)
    doubted = rows.indices[rows.starts[1] :].astype(np.int64)

    found = state.forget(doubted, penalty=4.0, rng=np.random.default_rng(9))

    assert set(state.kernels.names) - set(found.kernels.names) == set(doubted.tolist())
    assert len(found.kernels.fits) == len(state.kernels.fits) - 1 == 1
    assert found.kernels.sums == state.kernels.sums


def test_without_waves_there_are_no_kernels() -> None:
    state = lived(Product(), rollouts=32, seed=1, every=16, policy_config=WITHOUT).state

    assert state.kernels.fits == ()
    assert state.policy.base.kernel.gains.shape == (0, 0)


def test_contexts_without_features_teach_no_kernel() -> None:
    state = lived(Chances((0.9, 0.1)), rollouts=64, seed=1, policy_config=SMALL).state

    assert state.kernels.fits == ()
    assert state.kernels.sums.samples == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "with_", "without"),
    [
        pytest.param(Product, 0.85, 0.65, id="the sign of a product"),
        pytest.param(Rings, 0.7, 0.55, id="rings"),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_what_no_slope_can_say_is_learned(
    task: type[Product], with_: float, without: float, seed: int
) -> None:
    heard = lived(task(), rollouts=640, seed=seed, every=64, window=0)
    slopes = lived(task(), rollouts=640, seed=seed, every=64, window=0, policy_config=WITHOUT)

    assert (heard.state.policy.base.kernel.trust > 0.9).all()
    assert np.mean(heard.rewards[320:]) > with_  # 0.92 and 0.93; 0.80 and 0.85
    assert np.mean(slopes.rewards[320:]) < without  # 0.58 and 0.57; 0.42 and 0.43


@pytest.mark.slow
def test_where_slopes_say_it_all_kernels_are_heard_by_chance_alone() -> None:
    """1.5 standard errors are exceeded by chance in one case of fifteen."""
    heard = [lived(Slopes(), rollouts=320, seed=seed, every=32, window=0) for seed in range(6)]
    slopes = lived(Slopes(), rollouts=320, seed=0, every=32, window=0, policy_config=WITHOUT)

    assert sum(life.state.policy.base.kernel.is_trusted for life in heard) <= 1
    assert np.mean(heard[0].rewards[160:]) > np.mean(slopes.rewards[160:]) - 0.1


@pytest.mark.slow
def test_rewards_that_tell_the_worth_of_the_state_alone_earn_trust_by_chance_alone() -> None:
    """1.5 standard errors are exceeded by chance in one case of fifteen."""
    states = [lived(Worth(), rollouts=64, seed=seed, every=16, window=0).state for seed in range(6)]

    assert {state.kernels.sums.samples for state in states} == {480.0}
    assert sum(state.policy.base.kernel.is_trusted for state in states) <= 1


def digest() -> str:
    """Return the digest of a learner whose kernels are heard."""
    state = lived(Product(), rollouts=96, seed=1, every=32, policy_config=SMALL).state
    assert state.policy.base.kernel.is_trusted
    return digest_of(state)


@pytest.mark.slow
def test_threads_and_hash_seeds_change_no_bit() -> None:
    found = []
    for threads, seed in (("1", "0"), ("2", "1")):
        done = subprocess.run(
            [sys.executable, "-c", "from tests.rl.test_heard import digest; print(digest())"],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "OPENBLAS_NUM_THREADS": threads,
                "PYTHONHASHSEED": seed,
            },
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(done.stdout)

    assert found[0] == found[1]
    assert len(found[0]) == 65
