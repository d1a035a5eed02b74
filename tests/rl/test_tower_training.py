"""The steps in place are those of the published algorithm, and they learn."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tau_live.rl.adam import FlatAdam
from tau_live.rl.products import Floats
from tau_live.rl.tower_training import (
    TowerConfig,
    TowerSamples,
    clipped_surrogate,
    train_towers,
)
from tau_live.rl.towers import (
    Hidden,
    Outputs,
    Shape,
    forward_heads,
    forward_hidden,
    initial,
    viewed,
    with_ones,
)

SHAPE = Shape(3, 8, 3)


def samples(rng: np.random.Generator, count: int = 50) -> TowerSamples:
    return TowerSamples(
        with_ones(rng.normal(size=(count, SHAPE.inputs)), dtype=np.float64),
        rng.integers(SHAPE.outputs, size=count),
        np.log(rng.uniform(0.1, 0.9, size=count)),
        rng.normal(size=count),
        rng.normal(size=count),
    )


def said(flat: Floats, inputs: Floats, shape: Shape = SHAPE) -> Outputs:
    hidden = Hidden.buffers(len(inputs), shape, dtype=flat.dtype)
    outputs = Outputs.buffers(len(inputs), shape, dtype=flat.dtype)
    forward_hidden(viewed(flat, shape), inputs, hidden)
    forward_heads(viewed(flat, shape), hidden, outputs)
    return outputs


def loss(outputs: Outputs, given: TowerSamples, config: TowerConfig) -> float:
    """The formula itself."""
    logits = outputs.logits.T.astype(np.float64)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    ratios = np.exp(logs[np.arange(len(logs)), given.chosen] - given.logprobs)
    cut = np.clip(ratios, 1.0 - config.clip, 1.0 + config.clip)
    policy = -np.minimum(ratios * given.advantages, cut * given.advantages).mean()
    entropy = -(np.exp(logs) * logs).sum(axis=1).mean()
    value = 0.5 * ((outputs.values - given.returns) ** 2).mean()
    return float(policy + config.value * value - config.entropy * entropy)


@pytest.mark.parametrize("entropy", [0.0, 0.1])
def test_the_gradient_by_outputs_is_that_of_finite_differences(entropy: float) -> None:
    rng = np.random.default_rng(0)
    given = samples(rng)
    config = TowerConfig(entropy=entropy, value=0.7, scaled=False)
    outputs = Outputs(rng.normal(size=(3, 50)), rng.normal(size=50))
    by = Outputs(np.zeros((3, 50)), np.zeros(50))

    step = clipped_surrogate(Outputs(*(one.copy() for one in outputs)), by, given, config)

    for found, array in zip(by, outputs, strict=True):
        expected = np.zeros_like(array)
        for place in np.ndindex(*array.shape):
            kept = float(array[place])
            array[place] = kept + 1e-6
            above = loss(outputs, given, config)
            array[place] = kept - 1e-6
            expected[place] = (above - loss(outputs, given, config)) / 2e-6
            array[place] = kept
        np.testing.assert_allclose(found, expected, atol=1e-8)
    total = step.policy + 0.7 * step.value - entropy * step.entropy
    assert total == pytest.approx(loss(outputs, given, config))


def test_advantages_are_scaled_within_a_minibatch() -> None:
    rng = np.random.default_rng(1)
    given = samples(rng)
    scaled = given._replace(
        advantages=(given.advantages - given.advantages.mean()) / given.advantages.std(ddof=1)
    )
    outputs = Outputs(rng.normal(size=(3, 50)), rng.normal(size=50))
    found, expected = (Outputs(np.zeros((3, 50)), np.zeros(50)) for _ in range(2))

    clipped_surrogate(Outputs(*(one.copy() for one in outputs)), found, given, TowerConfig())
    clipped_surrogate(outputs, expected, scaled, TowerConfig(scaled=False))

    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-9)


def test_every_epoch_sees_every_decision_once_even_where_the_last_minibatch_is_short() -> None:
    rng = np.random.default_rng(3)
    flat = initial(SHAPE, rng, dtype=np.float64)

    done = train_towers(
        flat,
        FlatAdam.untrained(SHAPE.size, dtype=np.float64),
        samples(rng),
        TowerConfig(epochs=3, minibatch=16),
        shape=SHAPE,
        rng=rng,
    )

    assert done.steps.shape == (3 * 4, 6)
    assert np.isfinite(done.steps).all()


def test_a_step_is_no_longer_than_the_longest_gradient_allows() -> None:
    rng = np.random.default_rng(4)
    given = samples(rng)
    moments = []
    for longest in (1e9, 1e-3):
        adam = FlatAdam.untrained(SHAPE.size, dtype=np.float64)
        train_towers(
            initial(SHAPE, np.random.default_rng(0), dtype=np.float64),
            adam,
            given,
            TowerConfig(epochs=1, minibatch=50, gradient_norm=longest),
            shape=SHAPE,
            rng=np.random.default_rng(0),
        )
        moments.append(float(np.linalg.norm(adam.first)) / 0.1)

    assert moments[0] > 0.1
    assert moments[1] == pytest.approx(1e-3, rel=1e-2)


def test_no_step_is_taken_beyond_the_divergence() -> None:
    rng = np.random.default_rng(5)
    flat = initial(SHAPE, rng, dtype=np.float64)
    before = flat.copy()

    done = train_towers(
        flat,
        FlatAdam.untrained(SHAPE.size, dtype=np.float64),
        samples(rng),
        TowerConfig(stop_kl=0.0),
        shape=SHAPE,
        rng=rng,
    )

    assert done.early_stop
    assert done.epochs == 1
    assert flat.tolist() == before.tolist()


def test_learns_which_option_a_situation_asks_for() -> None:
    """The sign of the product of two inputs, which no linear scorer can tell."""
    rng = np.random.default_rng(6)
    shape = Shape(2, 16, 2)
    flat = initial(shape, rng)
    adam = FlatAdam.untrained(shape.size)
    config = TowerConfig(learning_rate=5e-3, epochs=4, minibatch=128)
    for _ in range(12):
        x = rng.normal(size=(512, 2))
        inputs = with_ones(x)
        outputs = said(flat, inputs, shape)
        logs = outputs.logits - np.log(np.exp(outputs.logits).sum(axis=0))
        chosen = (rng.random(512) < np.exp(logs[1])).astype(np.int64)
        rewards = (chosen == (x[:, 0] * x[:, 1] > 0.0)).astype(np.float32)
        given = TowerSamples(
            inputs, chosen, logs[chosen, np.arange(512)], rewards - outputs.values, rewards
        )

        train_towers(flat, adam, given, config, shape=shape, rng=rng)

    x = rng.normal(size=(2000, 2))
    logits = said(flat, with_ones(x), shape).logits
    assert ((logits[1] > logits[0]) == (x[:, 0] * x[:, 1] > 0.0)).mean() > 0.9


_DIGEST = """
import hashlib
import numpy as np
from tau_live.rl.adam import FlatAdam
from tau_live.rl.tower_training import TowerConfig, TowerSamples, train_towers
from tau_live.rl.towers import Shape, initial, with_ones
rng = np.random.default_rng(0)
shape = Shape(40, 64, 5)
flat = initial(shape, rng, dtype={dtype!r})
given = TowerSamples(
    with_ones(rng.normal(size=(600, 40)), dtype=flat.dtype), rng.integers(5, size=600),
    *(rng.normal(size=600).astype(flat.dtype) for _ in range(3)))
adam = FlatAdam.untrained(shape.size, dtype=flat.dtype)
train_towers(flat, adam, given, TowerConfig(epochs=2, minibatch=256), shape=shape, rng=rng)
print(hashlib.sha256(flat.tobytes()).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_number_of_threads_changes_no_bit(dtype: str) -> None:
    root = Path(__file__).parents[2]
    found = [
        subprocess.run(
            [sys.executable, "-c", _DIGEST.format(dtype=dtype)],
            env={**os.environ, "PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    ]

    assert found[0] == found[1]
