"""A checkpoint of 0.1.0 before its networks went (08eecd8): five updates, 160 rollouts."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from tau_live.decisions import checkpoints
from tau_live.rl.config import PPOConfig
from tau_live.rl.features import encode
from tau_live.rl.policy import Policy, terms
from tau_live.rl.ppo import update
from tau_live.rl.state import LearnerState
from tests.rl.tasks import Product, gathered, played

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint-0.1.0"


@pytest.fixture
def early(tmp_path: Path) -> checkpoints.Checkpoint:
    packed = next(GOLDEN.glob("*.npz.gz"))
    file = tmp_path / packed.stem
    file.write_bytes(gzip.decompress(packed.read_bytes()))
    return checkpoints.load(file)


def test_it_decides_as_before_but_for_the_network(early: checkpoints.Checkpoint) -> None:
    policy = Policy.from_arrays(early.arrays)
    encoded = encode({"x": 1.0, "y": -0.5}, [(name, None) for name in Product.options], width=16)

    now = terms(policy, encoded, default=1, allowed=None)

    before = json.loads((GOLDEN / "terms.json").read_text())
    assert set(before) - set(now) == {"ppo network"}
    for name, values in now.items():
        np.testing.assert_allclose(values, before[name], rtol=1e-9)


def test_it_goes_on_learning(early: checkpoints.Checkpoint) -> None:
    state, rng = LearnerState.from_arrays(early.arrays), np.random.default_rng(0)

    made = update(
        state,
        gathered([played(Product(), state, rng) for _ in range(32)]),
        config=PPOConfig(),
        rng=rng,
    )

    assert made.state.counts.updates == state.counts.updates + 1
    assert not np.array_equal(made.state.policy.weights, state.policy.weights)
