"""The terms of a logit: they are all there is to it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.rl.arrays import frozen
from tau_live.rl.config import PPOConfig
from tau_live.rl.features import encode
from tau_live.rl.policy import (
    HOST_DEFAULT,
    KERNEL,
    NETWORK,
    RESIDUAL,
    RIDGE,
    UNCERTAINTY,
    Policy,
    PolicyConfig,
    terms,
)
from tests.rl.rows import heard, known, networked
from tests.rl.tasks import Product, lived

pytestmark = pytest.mark.slow

CONFIG = PolicyConfig(epsilon=0.1)
OPTIONS = [("small", {"usd": 0.1}), ("large", {"usd": 2.0}), ("none", None)]
MASKS = st.none() | st.lists(st.booleans(), min_size=3, max_size=3).filter(any)


def trained(seed: int) -> Policy:
    rng = np.random.default_rng(seed)
    return replace(
        Policy.initial(CONFIG),
        weights=frozen(rng.normal(size=CONFIG.cross_width)),
        net=networked(rng, CONFIG),
        base=known(
            rng,
            CONFIG.cross_width,
            CONFIG.ridge_width,
            kernel=heard(rng, CONFIG.width, ("small", "none")),
        ),
        rollouts=int(rng.integers(0, 3)) * 64,
    )


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 99),
    st.sampled_from([None, 0, 1, 2]),
    MASKS,
    st.none() | st.lists(st.booleans(), min_size=3, max_size=3),
    st.floats(-9, 9),
)
def test_the_terms_sum_to_the_logits_and_those_make_the_probabilities(
    seed: int,
    default: int | None,
    mask: list[bool] | None,
    flags: list[bool] | None,
    words: float,
) -> None:
    policy = trained(seed)
    encoded = encode({"words": words, "lang": "de"}, OPTIONS)
    allowed = None if mask is None else np.array(mask)
    explored = None if flags is None else np.array(flags)

    found = terms(policy, encoded, default=default, allowed=allowed, explored=explored)

    logits = np.sum(list(found.values()), axis=0)
    if (
        allowed is None and explored is None
    ):  # else the base is as sharp as the options allowed are sure
        np.testing.assert_allclose(logits, policy.logits(encoded, default=default), atol=1e-12)
    may = np.ones(3, dtype=np.bool_) if allowed is None else allowed
    weights = np.where(may, np.exp(logits - logits[may].max()), 0.0)
    shares = may if explored is None else may & explored
    floor = np.where(shares, 0.1 / max(shares.sum(), 1), 0.0)
    kept = 0.9 if shares.any() else 1.0
    expected = np.where(may, kept * weights / weights.sum() + floor, 0.0)
    given_ = policy.probabilities(encoded, default=default, allowed=allowed, explored=explored)
    np.testing.assert_allclose(given_, expected, atol=1e-12)


def test_the_terms_of_a_policy_that_has_learned_sum_to_its_logits() -> None:
    config = PPOConfig(least_decisions=0.0)
    policy = lived(Product(), rollouts=160, seed=1, every=32, config=config).state.policy
    encoded = encode({"x": 1.0, "y": -0.5}, [(name, None) for name in Product.options])

    found = terms(policy, encoded, default=1, allowed=None)

    assert all(np.abs(values).max() > 0.0 for values in found.values())
    logits = np.sum(list(found.values()), axis=0)
    np.testing.assert_allclose(logits, policy.logits(encoded, default=1), atol=1e-12)


def test_of_an_untrained_policy_only_the_hosts_default_adds_anything() -> None:
    found = terms(Policy.initial(CONFIG), encode({}, OPTIONS), default=2, allowed=None)

    assert found[HOST_DEFAULT].tolist() == [0.0, 0.0, CONFIG.default_bonus]
    assert not any(found[name].any() for name in (RIDGE, KERNEL, UNCERTAINTY, RESIDUAL, NETWORK))


def test_what_does_not_fit_the_policy_is_refused() -> None:
    with pytest.raises(ValueError, match=f"{CONFIG.width} wide"):
        terms(Policy.initial(CONFIG), encode({}, OPTIONS, width=64), default=None, allowed=None)
