"""The gradient is that of the loss, to the last digit finite differences can show."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tau_live.rl.arrays import BoolArray, FloatArray, IntArray, frozen
from tau_live.rl.batch import Batch, Trajectories, batch
from tau_live.rl.config import Normalization, PPOConfig
from tau_live.rl.crossing import Scale, critic_width, cross, rows
from tau_live.rl.features import Encoded, encode
from tau_live.rl.policy import Policy, PolicyConfig
from tau_live.rl.state import LearnerState
from tau_live.rl.surrogate import Targets, build_batch, choices, forward, objective
from tests.rl.reference_loss import PPOCoefficients, PPOSamples, ppo_loss
from tests.rl.rows import crossed, known, networked

CONFIG = PolicyConfig(width=16, cross_width=32, ridge_width=16, net_width=4)
DECISIONS = 24


def policy(rng: np.random.Generator) -> Policy:
    return replace(
        Policy.initial(CONFIG),
        weights=frozen(rng.normal(size=CONFIG.cross_width) * 0.3),
        net=networked(rng, CONFIG),
        base=known(rng, CONFIG.cross_width, CONFIG.ridge_width)._replace(sharpness=0.3),
        critic=frozen(rng.normal(size=critic_width(CONFIG.width))),
        scale=Scale(frozen(rng.normal(size=32)), frozen(rng.uniform(0.5, 2.0, size=32))),
        rollouts=8,
    )


def flags(rng: np.random.Generator, encoded: list[Encoded]) -> list[BoolArray | None]:
    """Which options are explored: all, some, or none."""
    shares = rng.choice([0.0, 0.5, 1.0], size=len(encoded))
    found = [rng.random(one.options) < share for one, share in zip(encoded, shares, strict=True)]
    return [None if n % 4 == 0 else one for n, one in enumerate(found)]


def decisions(rng: np.random.Generator) -> tuple[list[Encoded], list[BoolArray | None]]:
    """Two to five options, with and without features, a third of them with a mask."""
    encoded: list[Encoded] = []
    masks: list[BoolArray | None] = []
    for n in range(DECISIONS):
        options = int(rng.integers(2, 6))
        encoded.append(
            encode(
                {"x": rng.normal(), "kind": f"k{rng.integers(3)}"},
                [
                    (f"o{k}", {"cost": rng.random(), "size": "big"} if k % 2 else None)
                    for k in range(options)
                ],
                width=CONFIG.width,
            )
        )
        mask = rng.random(options) < 0.6
        mask[:2] = True
        masks.append(mask if n % 3 == 0 else None)
    return encoded, masks


def trajectories(rng: np.random.Generator) -> Trajectories:
    encoded, masks = decisions(rng)
    chosen: IntArray = rng.integers(0, 2, size=DECISIONS)
    return Trajectories(
        encoded=encoded,
        chosen=chosen,
        default=rng.integers(-1, 2, size=DECISIONS),
        propensity=rng.uniform(0.1, 1.0, size=DECISIONS),
        value=np.zeros(DECISIONS),
        reward=rng.normal(size=DECISIONS),
        discount=np.tile([1.0, 0.0], DECISIONS // 2),
        bootstrap=np.zeros(DECISIONS // 2),
        length=np.full(DECISIONS // 2, 2),
        version_lag=np.zeros(DECISIONS, dtype=np.int64),
        allowed=masks,
    )


def held(rng: np.random.Generator) -> Trajectories:
    """Return the same with options that are unsafe to explore."""
    played = trajectories(rng)
    return replace(played, explored=flags(rng, list(played.encoded)))


def targets(data: Batch, start: Policy, rng: np.random.Generator) -> Targets:
    """Ratios from far below to far above the clip, advantages of both signs, some no actors."""
    now = choices(data, start.weights, start.net).logprobs
    return Targets(
        now + rng.choice([-0.6, -0.1, 0.0, 0.1, 0.6], size=DECISIONS),
        rng.normal(size=DECISIONS),
        rng.choice([0.0, 0.4, 1.0], size=DECISIONS),
        rng.normal(size=DECISIONS),
        now + rng.choice([-0.3, 0.0, 0.3], size=DECISIONS),
    )


@pytest.mark.parametrize("made", [trajectories, held])
@pytest.mark.parametrize("epsilon", [0.0, 0.02, 0.5])
@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_equals_finite_differences(
    seed: int, epsilon: float, made: Callable[[np.random.Generator], Trajectories]
) -> None:
    rng = np.random.default_rng(seed)
    start = policy(rng)
    data = batch(start, made(rng))
    wanted = targets(data, start, rng)
    config = PPOConfig(entropy_coefficient=0.05, kl_coefficient=0.3)
    data = data._replace(epsilon=epsilon)
    ends = np.cumsum([len(start.weights), len(start.critic)])
    parameters = np.concatenate([start.weights, start.critic, start.net.flat])

    found = objective(data, wanted, start.weights, start.critic, net=start.net, config=config)

    def total(at: FloatArray) -> float:
        weights, critic, flat = np.split(at, ends)
        net = replace(start.net, flat=flat)
        return objective(data, wanted, weights, critic, net=net, config=config).total

    step, gradient = 1e-5, np.concatenate([found.weights, found.critic, found.net])
    clipped = np.abs(np.exp(found.logprobs - wanted.logprobs) - 1.0) > 0.2
    assert clipped.any() and not clipped.all()
    for part in np.split(np.arange(len(parameters)), ends):
        for _ in range(8):  # directions within the part: a wrong number shows in every one
            direction = np.zeros(len(parameters))
            direction[part] = rng.normal(size=len(part))
            ahead, behind = (total(parameters + sign * step * direction) for sign in (1, -1))
            truth, scale = (ahead - behind) / (2 * step), np.linalg.norm(gradient[part])
            assert abs(gradient @ direction - truth) <= 1e-6 * scale * np.sqrt(len(part)) + 1e-10


@pytest.mark.parametrize("seed", range(4))
def test_the_loss_is_the_references_where_every_decision_weighs_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = policy(rng)
    data = batch(start, trajectories(rng))
    wanted = targets(data, start, rng)._replace(weights=np.ones(DECISIONS))

    found = objective(data, wanted, start.weights, start.critic, net=start.net, config=PPOConfig())

    now = choices(data, start.weights, start.net)
    values = data.contexts.dot(start.critic) + forward(data, start.net).values
    samples = PPOSamples(
        wanted.logprobs, now.logprobs, wanted.advantages, wanted.returns, values, now.entropies
    )
    expected = ppo_loss(samples, PPOCoefficients(clip=0.2, value=0.5, entropy=0.01))
    assert 0.0 < expected.clipped_fraction < 1.0
    for name in ("policy", "value", "entropy", "total"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-12), name


def tried(rewards: list[float]) -> Trajectories:
    """Return rollouts of one decision between two options, each as probable as the other."""
    count = len(rewards)
    encoded = encode({}, [("old", None), ("new", None)], width=CONFIG.width)
    return Trajectories(
        encoded=[encoded] * count,
        chosen=np.zeros(count, dtype=np.int64),
        default=np.full(count, -1),
        propensity=np.full(count, 0.5),
        value=np.zeros(count),
        reward=np.array(rewards),
        discount=np.zeros(count),
        bootstrap=np.zeros(count),
        length=np.ones(count, dtype=np.int64),
        version_lag=np.zeros(count, dtype=np.int64),
    )


@pytest.mark.parametrize(
    ("per_rollout", "expected"),
    [
        (False, [0.5773502537936193, -1.7320507613808576, 0.5773502537936193, 0.5773502537936193]),
        (True, [0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_advantages_are_standardized_over_the_update_or_over_each_rollout(
    per_rollout: bool, expected: list[float]
) -> None:
    """The numbers are the vectors of the contract of prompt optimization, section 10."""
    config = PPOConfig(gamma=0.99, normalization=Normalization(per_rollout=per_rollout))
    start, played = LearnerState.initial(CONFIG), tried([1.0, 0.0, 1.0, 1.0])

    found = build_batch(start, start, batch(start.policy, played), played, config=config, new=4)

    np.testing.assert_allclose(found.targets.advantages, expected, rtol=1e-15)


def test_the_loss_before_the_first_step_is_the_contracts() -> None:
    config = PPOConfig(normalization=Normalization())
    start, played = LearnerState.initial(CONFIG), tried([1.0, 0.0, 1.0, 1.0])
    data = batch(start.policy, played)
    wanted = build_batch(start, start, data, played, config=config, new=4).targets
    policy = start.policy

    found = objective(data, wanted, policy.weights, policy.critic, net=policy.net, config=config)

    expected = [0.0, 0.375, 0.6931471805599453, 0.1805685281944005]
    figures = [found.policy, found.value, found.entropy, found.total]
    np.testing.assert_allclose(figures, expected, rtol=1e-12, atol=1e-12)


def test_normalized_targets_are_clipped() -> None:
    played = tried([1.0, 0.0, 1.0, 1.0])
    start = LearnerState.initial(CONFIG)
    data = batch(start.policy, played)
    own = Normalization(returns=True, clip_advantages=0.5, clip_returns=1.5)

    found = build_batch(start, start, data, played, config=PPOConfig(normalization=own), new=4)

    assert found.targets.advantages.tolist() == [0.5, -0.5, 0.5, 0.5]
    assert found.targets.returns[1] == -1.5
    np.testing.assert_allclose(found.targets.returns[0], 0.5773502537936193, rtol=1e-15)


def test_all_ratios_are_1_at_the_start() -> None:
    rng = np.random.default_rng(0)
    start = policy(rng)
    data = batch(start, trajectories(rng))
    before = choices(data, start.weights, start.net)
    wanted = targets(data, start, rng)._replace(logprobs=before.logprobs)

    found = objective(
        data,
        wanted,
        start.weights,
        start.critic,
        net=start.net,
        config=PPOConfig(entropy_coefficient=0.0),
    )

    np.testing.assert_array_equal(found.logprobs, before.logprobs)
    acting = wanted.weights > 0
    expected = -(wanted.weights * wanted.advantages)[acting].mean()
    assert found.policy == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("made", [trajectories, held])
def test_the_batch_says_what_the_policy_says(
    made: Callable[[np.random.Generator], Trajectories],
) -> None:
    rng = np.random.default_rng(1)
    start = policy(rng)
    played = made(rng)

    data = batch(start, played)

    found = choices(data, start.weights, start.net)
    values = data.contexts.dot(start.critic) + forward(data, start.net).values
    for n, (encoded, mask) in enumerate(zip(played.encoded, played.masks, strict=True)):
        default = int(played.default[n])
        expected = start.probabilities(
            encoded,
            default=None if default < 0 else default,
            allowed=mask,
            explored=played.flags[n],
        )
        kept = expected if mask is None else expected[mask]
        part = slice(int(data.starts[n]), int(data.starts[n + 1]))
        np.testing.assert_allclose(found.probabilities[part], kept, rtol=1e-12)
        assert found.logprobs[n] == pytest.approx(np.log(expected[played.chosen[n]]), rel=1e-12)
        assert values[n] == pytest.approx(start.judge(encoded).value, rel=1e-12)


def test_the_loss_does_not_depend_on_the_order_of_decisions() -> None:
    rng = np.random.default_rng(2)
    start = policy(rng)
    data = batch(start, held(rng))
    wanted = targets(data, start, rng)
    order = rng.permutation(DECISIONS)

    found = objective(
        data.select(order),
        wanted.select(order),
        start.weights,
        start.critic,
        net=start.net,
        config=PPOConfig(),
    )

    expected = objective(
        data, wanted, start.weights, start.critic, net=start.net, config=PPOConfig()
    )
    assert found.total == pytest.approx(expected.total, rel=1e-12)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.net, expected.net, rtol=1e-9, atol=1e-12)


def test_the_loss_does_not_depend_on_the_order_of_options() -> None:
    def loss(names: list[str]) -> float:
        one = encode({"x": 1.0}, [(name, None) for name in names], width=16)
        rng = np.random.default_rng(3)
        start = policy(rng)
        played = Trajectories(
            encoded=[one],
            chosen=np.array([names.index("b")]),
            default=np.array([names.index("a")]),
            propensity=np.array([0.5]),
            value=np.zeros(1),
            reward=np.ones(1),
            discount=np.zeros(1),
            bootstrap=np.zeros(1),
            length=np.ones(1, dtype=np.int64),
            version_lag=np.zeros(1, dtype=np.int64),
        )
        wanted = Targets(np.array([-1.0]), np.ones(1), np.ones(1), np.ones(1), np.zeros(1))
        data = batch(start, played)
        return objective(
            data,
            wanted,
            start.weights,
            start.critic,
            net=start.net,
            config=PPOConfig(),
        ).total

    assert loss(["a", "b", "c"]) == pytest.approx(loss(["c", "a", "b"]), rel=1e-12)


def test_one_decision_is_crossed_as_many_are() -> None:
    rng = np.random.default_rng(4)
    encoded, masks = decisions(rng)
    scale = policy(rng).scale

    many = cross(*rows(encoded, masks, scale), width=16, cross_width=32)

    ones = [
        crossed(one, mask, scale, cross_width=32) for one, mask in zip(encoded, masks, strict=True)
    ]
    np.testing.assert_array_equal(many.slots, np.concatenate([one.slots for one in ones]))
    np.testing.assert_array_equal(many.values, np.concatenate([one.values for one in ones]))
    np.testing.assert_array_equal(
        np.diff(many.starts), np.concatenate([np.diff(one.starts) for one in ones])
    )
