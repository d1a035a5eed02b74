"""What is kept for decisions that look alike: nothing but the time may show that it is."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.rl import policy as served
from tau_live.rl.arrays import FloatArray, frozen
from tau_live.rl.base import Base
from tau_live.rl.crossing import Crossed, Scale, critic_width, rows
from tau_live.rl.features import Encoded, encode, pack
from tau_live.rl.kernel import KernelInput, features
from tau_live.rl.policy import Judgement, Policy, PolicyConfig
from tests.rl.rows import added, crossed, heard, known

pytestmark = pytest.mark.slow

CONFIG = PolicyConfig(width=32, cross_width=64, ridge_width=32)
HEARD = ("a", "o0", "o2", "o3")
TEXTS = ("red", "green", "the quick brown fox jumps over the lazy dog")


def trained(seed: int, config: PolicyConfig = CONFIG) -> Policy:
    rng = np.random.default_rng(seed)
    return replace(
        Policy.initial(config),
        weights=frozen(rng.normal(size=config.cross_width)),
        base=known(
            rng, config.cross_width, config.ridge_width, kernel=heard(rng, config.width, HEARD)
        ),
        critic=frozen(rng.normal(size=critic_width(config.width))),
        scale=Scale(
            frozen(rng.normal(size=2 * config.width)),
            frozen(rng.uniform(0.2, 0.8, size=2 * config.width)),
            context=0.7,
            options=0.6,
            own=0.5,
        ),
        rollouts=8,
    )


def decision(seed: int, *, width: int = 32) -> Encoded:
    """Return one of few shapes, with numbers of its own."""
    rng = np.random.default_rng(seed)
    context = {"x": rng.normal(), "y": 9.0 * rng.normal(), "kind": TEXTS[seed % 3]}
    options = [
        (f"o{k}", {"cost": rng.random(), "note": TEXTS[(seed + k) % 3]} if k % 3 else None)
        for k in range(1 + seed % 5)
    ]
    return encode(context, options, width=width)


def by_definition(policy: Policy, encoded: Encoded) -> FloatArray:
    """Return the logits as sums over all pairs and all waves."""
    pairs = crossed(encoded, None, policy.scale, cross_width=policy.config.cross_width)
    split = int(encoded.starts[1])
    slots = encoded.indices.astype(np.int64)
    context = Crossed(
        slots[:split], rows([encoded], [None], policy.scale)[0].values, np.array([0, split])
    )
    waves = features(context, policy.config.width, count=policy.config.kernels)
    seen = KernelInput(slots[encoded.starts[1:-1]], waves, np.array([encoded.options]))
    starts = np.array([0, encoded.options])
    return pairs.dot(policy.weights) + added(policy.base, pairs, starts, seen)


def same(one: Judgement, other: Judgement) -> bool:
    return one.probabilities.tolist() == other.probabilities.tolist() and one[1:] == other[1:]


@given(st.integers(0, 9), st.integers(0, 2**32))
@settings(deadline=None)
def test_logits_are_the_sums_over_all_pairs(policy: int, seed: int) -> None:
    made = trained(policy)

    found = made.logits(decision(seed))

    np.testing.assert_allclose(found, by_definition(made, decision(seed)), rtol=1e-9, atol=1e-9)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=20))
@settings(deadline=None)
def test_what_is_kept_changes_no_bit(seeds: list[int]) -> None:
    policy = trained(1)

    for seed in [*seeds, *seeds]:
        found = policy.judge(decision(seed))

        assert same(found, trained(1).judge(decision(seed)))


def test_what_is_packed_is_what_packing_gives() -> None:
    for seed in range(20):
        assert trained(1).judge(decision(seed)).packed == pack(decision(seed))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("_CHUNK", 1, id="a table too large to hold"),
        pytest.param("_CHUNK", 300, id="a table in two parts"),
        pytest.param("_DENSE", 0, id="options with little in common"),
        pytest.param("_DENSE", 10**9, id="one table for all"),
    ],
)
def test_every_way_to_sum_gives_the_same(
    name: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [trained(2).judge(decision(seed)) for seed in range(30)]
    monkeypatch.setattr(served, name, value)

    found = [trained(2).judge(decision(seed)) for seed in range(30)]

    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.probabilities, other.probabilities, rtol=1e-10)
        assert one.value == other.value


def test_features_that_share_a_slot_are_summed_pair_by_pair() -> None:
    config = PolicyConfig(width=3, cross_width=16, ridge_width=16)
    policy = trained(3, config)
    many = {f"f{n}": float(n) for n in range(9)}

    found = policy.logits(encode(many, [("a", many), ("b", many)], width=3))

    encoded = encode(many, [("a", many), ("b", many)], width=3)
    np.testing.assert_allclose(found, by_definition(policy, encoded), rtol=1e-9)


def test_an_untrained_policy_asks_the_regression_nothing() -> None:
    policy = replace(trained(1), rollouts=0)
    encoded = decision(4)

    found = policy.logits(encoded)

    pairs = crossed(encoded, None, policy.scale, cross_width=64)
    np.testing.assert_allclose(found, pairs.dot(policy.weights), rtol=1e-12)


def test_what_is_kept_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = trained(1)
    policy.judge(decision(1))
    bound = 3 * policy.layouts.size
    monkeypatch.setattr(served, "KEPT_BYTES", bound)

    for seed in range(40):
        policy.judge(decision(seed))

    assert bound / 3 < policy.layouts.size <= bound


def test_numbers_and_categories_in_one_slot_do_not_look_alike() -> None:
    policy = trained(1)
    numbers = encode({"x": 1.0}, [("a", {"cost": 1.0}), ("b", None)], width=32)
    others = numbers._replace(numeric=np.zeros_like(numbers.numeric))
    policy.judge(numbers)

    found = policy.logits(others)

    np.testing.assert_allclose(found, by_definition(policy, others), rtol=1e-9)


def test_what_alone_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = trained(1)
    monkeypatch.setattr(served, "KEPT_BYTES", 100)

    policy.judge(decision(1))

    assert policy.layouts.size == 0


def test_the_last_used_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = trained(1)
    first = decision(1)
    kept = policy.layouts.of(policy, first)
    other = policy.layouts.of(policy, decision(2))
    monkeypatch.setattr(served, "KEPT_BYTES", 4 * policy.layouts.size)

    for seed in range(3, 40):
        policy.judge(decision(seed))
        policy.judge(first)

    assert policy.layouts.of(policy, first) is kept
    assert policy.layouts.of(policy, decision(2)) is not other


def test_a_new_version_keeps_nothing_of_an_old_one() -> None:
    policy = trained(1)
    policy.judge(decision(1))

    changed = replace(policy, weights=frozen(2.0 * policy.weights))

    assert changed.layouts is not policy.layouts
    np.testing.assert_allclose(
        changed.logits(decision(1)), by_definition(changed, decision(1)), rtol=1e-9
    )


def test_what_recurs_is_ready_before_a_new_version_decides() -> None:
    old, new = trained(1), trained(2)
    recurring, seen_once = decision(0), decision(1)
    for encoded in (recurring, seen_once, recurring):
        old.judge(encoded)

    new.layouts.prepare(new, old.layouts)

    size = new.layouts.size
    assert size > 0
    assert new.judge(recurring).packed == trained(2).judge(recurring).packed
    assert new.judge(recurring).value == trained(2).judge(recurring).value
    assert np.array_equal(new.logits(recurring), trained(2).logits(recurring))
    assert new.layouts.size == size
    new.judge(seen_once)
    assert new.layouts.size > size


def test_many_threads_share_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "KEPT_BYTES", 20_000)
    policy = trained(1)
    alone = [trained(1).judge(decision(seed)) for seed in range(40)]
    together = threading.Barrier(8)
    found: list[list[tuple[int, Judgement]]] = [[] for _ in range(8)]

    def decides(number: int) -> None:
        rng = np.random.default_rng(number)
        together.wait(30.0)
        for seed in rng.integers(0, 40, size=100).tolist():
            found[number].append((seed, policy.judge(decision(seed))))

    threads = [threading.Thread(target=decides, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)

    assert [len(one) for one in found] == [100] * 8
    assert all(same(one, alone[seed]) for of_one in found for seed, one in of_one)
    assert policy.layouts.size <= 20_000


def test_parts_sum_to_the_estimates() -> None:
    rng = np.random.default_rng(5)
    base: Base = known(rng, 64, 32)
    policy = replace(trained(1), base=base)
    pairs = crossed(decision(7), None, policy.scale, cross_width=64)

    parts = np.add.reduceat(base.parts(pairs.slots) * pairs.values, pairs.starts[:-1], axis=1)
    unseen = np.add.reduceat(base.unseen(pairs.slots) * pairs.values**2, pairs.starts[:-1])

    found = base.estimate(parts, unseen)
    np.testing.assert_allclose(found.gains, base.estimates(pairs).gains, rtol=1e-12)
    np.testing.assert_allclose(found.doubts, base.estimates(pairs).doubts, rtol=1e-12)
