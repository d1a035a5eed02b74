"""The policy: a distribution in every case, masks, floor, default, and exact storage."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.rl.arrays import BoolArray, FloatArray, frozen
from tau_live.rl.crossing import Scale, critic_width
from tau_live.rl.features import Encoded, encode
from tau_live.rl.net import Net
from tau_live.rl.policy import Policy, PolicyConfig, sample
from tests.rl.digests import digest_of
from tests.rl.rows import heard, known, networked

CONFIG = PolicyConfig(width=32, cross_width=64, ridge_width=32)
HEARD = ("o0", "o1", "o3")


def trained(seed: int, config: PolicyConfig = CONFIG, *, size: float = 1.0) -> Policy:
    rng = np.random.default_rng(seed)
    return replace(
        Policy.initial(config),
        weights=frozen(rng.normal(size=config.cross_width) * size),
        net=networked(rng, config),
        base=known(
            rng, config.cross_width, config.ridge_width, kernel=heard(rng, config.width, HEARD)
        ),
        critic=frozen(rng.normal(size=critic_width(config.width))),
        scale=Scale(
            frozen(rng.normal(size=2 * config.width)), frozen(np.ones(2 * config.width) * 0.5)
        ),
        rollouts=8,
    )


def decision(seed: int, *, options: int, width: int = 32) -> Encoded:
    rng = np.random.default_rng(seed)
    return encode(
        {"x": rng.normal(), "y": rng.normal() * 100, "kind": f"k{rng.integers(3)}"},
        [(f"o{k}", {"cost": rng.random()} if k % 2 else None) for k in range(options)],
        width=width,
    )


@pytest.mark.slow
@given(
    st.integers(0, 2**32),
    st.integers(1, 9),
    st.sampled_from(
        [(size, floor) for size in (0.0, 1.0, 1e3, 1e300) for floor in (0.0, 0.02, 1.0)]
    ),
    st.data(),
)
@settings(deadline=None)
def test_is_always_a_distribution_over_the_allowed(
    seed: int, options: int, sizes: tuple[float, float], data: st.DataObject
) -> None:
    size, epsilon = sizes
    policy = trained(seed, replace(CONFIG, epsilon=epsilon), size=size)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=options, max_size=options)))
    allowed = mask if mask.any() else None
    default = data.draw(st.one_of(st.none(), st.integers(0, options - 1)))

    found = policy.probabilities(decision(seed, options=options), default=default, allowed=allowed)

    usable = np.ones(options, dtype=np.bool_) if allowed is None else allowed
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert (found[~usable] == 0.0).all()
    assert (found[usable] >= epsilon / usable.sum() * (1 - 1e-12)).all()


@pytest.mark.slow
@given(st.integers(0, 2**32), st.lists(st.booleans(), min_size=2, max_size=9), st.booleans())
@settings(deadline=None)
def test_what_is_unsafe_to_explore_is_chosen_on_its_estimate_alone(
    seed: int, flags: list[bool], learned: bool
) -> None:
    policy = replace(trained(seed), rollouts=8 * learned)
    blunt = replace(
        policy,
        config=replace(CONFIG, epsilon=0.0),
        base=policy.base._replace(exploration=0.0),
    )
    explored = np.array(flags)
    encoded = decision(seed, options=len(flags))

    found = policy.probabilities(encoded, explored=explored)

    estimated = blunt.probabilities(encoded)
    pairs = itertools.combinations(np.flatnonzero(~explored), 2)
    odds = [(found[a] * estimated[b], found[b] * estimated[a]) for a, b in pairs]
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert all(one == pytest.approx(other, rel=1e-9, abs=1e-300) for one, other in odds)
    if not explored.any():
        np.testing.assert_allclose(found, estimated, rtol=1e-9)
    else:
        assert (found[explored] >= CONFIG.epsilon / explored.sum() * (1 - 1e-12)).all()


def test_an_option_that_is_not_explored_may_have_next_to_no_probability() -> None:
    policy = trained(3, size=30.0)
    encoded = decision(3, options=5)
    worst = int(np.argmin(policy.probabilities(encoded)))
    explored = np.arange(5) != worst

    before = policy.probabilities(encoded)
    after = policy.probabilities(encoded, explored=explored)

    assert before[worst] >= CONFIG.epsilon / 5
    assert after[worst] < 1e-9
    assert (after[explored] >= CONFIG.epsilon / 4 * (1 - 1e-12)).all()


def test_masking_is_leaving_the_option_out() -> None:
    policy = trained(1)
    options: list[tuple[str, None]] = [("a", None), ("b", None), ("c", None)]
    allowed: BoolArray = np.array([True, False, True])

    masked = policy.probabilities(encode({"x": 1.0}, options, width=32), allowed=allowed, default=2)

    without = policy.probabilities(
        encode({"x": 1.0}, [options[0], options[2]], width=32), default=1
    )
    np.testing.assert_allclose(masked[allowed], without, rtol=1e-14)


def test_the_order_of_options_does_not_matter() -> None:
    policy = trained(2)
    options: list[tuple[str, dict[str, object]]] = [
        ("a", {"cost": 1.0}),
        ("b", {"cost": 2.0}),
        ("c", {"cost": 3.0}),
    ]

    forth = policy.probabilities(encode({"x": 1.0}, options, width=32), default=0)
    back = policy.probabilities(encode({"x": 1.0}, options[::-1], width=32), default=2)

    np.testing.assert_allclose(forth, back[::-1], rtol=1e-14)


def test_the_context_changes_the_choice() -> None:
    policy = trained(3)
    options: list[tuple[str, None]] = [("a", None), ("b", None)]

    found = [policy.logits(encode({"kind": kind}, options, width=32)) for kind in ("x", "y")]

    differences = [float(logits[0] - logits[1]) for logits in found]
    assert abs(differences[0] - differences[1]) > 1e-3


def test_untrained_is_uniform_but_for_the_default() -> None:
    policy = Policy.initial(CONFIG)
    encoded = decision(0, options=4)

    plain, preferred = policy.probabilities(encoded), policy.probabilities(encoded, default=2)

    np.testing.assert_allclose(plain, 0.25, rtol=1e-14)
    floor = CONFIG.epsilon
    expected = (1.0 - floor) * np.exp(2.0) / (np.exp(2.0) + 3.0) + floor / 4
    assert preferred[2] == pytest.approx(expected, rel=1e-12)


def test_the_bonus_of_the_default_fades_with_evidence() -> None:
    policies = [replace(Policy.initial(CONFIG), rollouts=count) for count in (0, 64, 6_400)]

    bonuses = [policy.default_bonus for policy in policies]

    assert bonuses == pytest.approx([2.0, 1.0, 2.0 / 101])


def test_a_masked_default_gives_its_bonus_to_nobody() -> None:
    allowed = np.array([True, True, False])

    found = Policy.initial(CONFIG).probabilities(decision(0, options=3), default=2, allowed=allowed)

    np.testing.assert_allclose(found, [0.5, 0.5, 0.0], rtol=1e-14)


def test_numbers_are_scaled_by_what_the_version_knows() -> None:
    critic = trained(4).critic.copy()
    critic[33:] = 0.0  # of products of features
    net = Net.initial(CONFIG.net_width, slots=CONFIG.width)
    policy = replace(trained(4), critic=frozen(critic), net=net)
    raw = encode({"x": 3.0}, [("a", None), ("b", None)], width=32)
    slot = int(raw.indices[1])

    far = policy.judge(raw).value

    scaled = (3.0 - policy.scale.mean[slot]) * policy.scale.inverse[slot]
    assert far == pytest.approx(policy.critic[32] + policy.critic[slot] * scaled, rel=1e-9)


def test_arrays_bring_back_the_same_policy() -> None:
    policy = trained(5)

    again = Policy.from_arrays(policy.arrays())

    assert again.config == policy.config
    assert digest_of(again) == digest_of(policy)
    encoded = decision(5, options=4)
    np.testing.assert_array_equal(
        again.probabilities(encoded, default=1), policy.probabilities(encoded, default=1)
    )


def test_the_digest_does_not_depend_on_the_byte_order() -> None:
    policy = trained(6)
    swapped = {
        name: array.astype(array.dtype.newbyteorder(">")) for name, array in policy.arrays().items()
    }

    assert digest_of(Policy.from_arrays(swapped)) == digest_of(policy)


def test_the_digest_sees_the_smallest_change() -> None:
    policy = trained(7)
    weights = np.array(policy.weights)
    weights[3] = np.nextafter(weights[3], np.inf)

    assert digest_of(replace(policy, weights=frozen(weights))) != digest_of(policy)


@pytest.mark.parametrize("name", sorted(Policy.initial(CONFIG).arrays()))
def test_damaged_arrays_are_refused_by_name(name: str) -> None:
    arrays = trained(0).arrays()
    damaged = np.array(arrays[name], dtype=np.float64)
    damaged.flat[0] = np.nan

    with pytest.raises(ValueError, match=name):
        Policy.from_arrays(arrays | {name: damaged})
    with pytest.raises(ValueError, match=name):
        Policy.from_arrays({key: value for key, value in arrays.items() if key != name})
    with pytest.raises(ValueError, match=name):
        Policy.from_arrays(arrays | {name: np.zeros(5)})


@pytest.mark.parametrize(("decisions", "share"), [(0, 1.0), (8, 1.0), (32, 0.25)])
def test_the_decisions_of_a_rollout_share_exploration(decisions: int, share: float) -> None:
    policy = replace(trained(0, size=1e3), decisions=decisions)
    again = Policy.from_arrays(policy.arrays())
    encoded = decision(1, options=4)

    least = float(
        again.judge(encoded, default=None, allowed=None, explored=None).probabilities.min()
    )

    assert least == pytest.approx(CONFIG.epsilon * share / 4)
    assert again.decisions == decisions


def test_an_earlier_version_explores_as_it_did() -> None:
    policy = replace(trained(0), decisions=32)
    arrays = policy.arrays() | {"rollouts": np.array([8])}

    assert Policy.from_arrays(arrays).epsilon == CONFIG.epsilon


def test_a_version_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Policy.initial(CONFIG).weights[0] = 1.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("width", 0),
        ("width", 65_536),
        ("cross_width", 100),
        ("cross_width", 8),
        ("ridge_width", 65_536),
        ("ridge_width", 48),
        ("epsilon", -0.1),
        ("epsilon", float("nan")),
        ("default_bonus", -1.0),
        ("default_fade", 0.0),
        ("net_width", 257),
        ("kernels", -1),
        ("kernels", 1_025),
    ],
)
def test_a_shape_out_of_range_is_named(field: str, value: float) -> None:
    arguments = {field: value}

    with pytest.raises(ValueError, match=field):
        PolicyConfig(**arguments)  # type: ignore[arg-type]  # the wrong types are the test


def test_a_decision_that_does_not_fit_is_refused() -> None:
    policy = Policy.initial(CONFIG)
    encoded = decision(0, options=3)

    with pytest.raises(ValueError, match="wide"):
        policy.probabilities(decision(0, options=3, width=64))
    with pytest.raises(ValueError, match="0 options"):
        policy.probabilities(encode({}, [], width=32))
    with pytest.raises(ValueError, match="default"):
        policy.probabilities(encoded, default=3)
    with pytest.raises(ValueError, match="one allowed"):
        policy.probabilities(encoded, allowed=np.zeros(3, dtype=np.bool_))
    with pytest.raises(ValueError, match="one allowed"):
        policy.probabilities(encoded, allowed=np.ones(2, dtype=np.bool_))
    with pytest.raises(ValueError, match="explored"):
        policy.probabilities(encoded, explored=np.ones(2, dtype=np.bool_))


@given(st.integers(0, 2**32))
def test_never_draws_what_has_no_probability(seed: int) -> None:
    rng = np.random.default_rng(seed)
    probabilities: FloatArray = np.array([0.0, 0.5, 0.0, 0.5, 0.0])

    assert sample(probabilities, rng) in (1, 3)


def test_draws_as_often_as_the_probabilities_say() -> None:
    rng = np.random.default_rng(8)
    probabilities: FloatArray = np.array([0.1, 0.0, 0.6, 0.3])

    drawn = np.bincount([sample(probabilities, rng) for _ in range(4_000)], minlength=4) / 4_000

    np.testing.assert_allclose(drawn, probabilities, atol=0.03)  # four standard errors
