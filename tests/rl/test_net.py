"""The small network of a policy: what it says, its gradient, and features that come and go."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tau_live.rl.arrays import FloatArray, IntArray, frozen, offsets
from tau_live.rl.crossing import Crossed
from tau_live.rl.features import encode
from tau_live.rl.net import MOST, Net, view
from tau_live.rl.policy import PolicyConfig
from tests.rl.rows import networked

CONFIG = PolicyConfig(width=16, net_width=5)
COUNTS = np.array([2, 1, 4])


def rows(rng: np.random.Generator, count: int, *, constant: bool) -> Crossed:
    """Rows of one to four entries; those of contexts begin with the constant."""
    lengths = rng.integers(1, 5, size=count)
    slots: IntArray = rng.integers(CONFIG.width, size=int(lengths.sum()))
    values = rng.normal(size=len(slots))
    if constant:
        slots[offsets(lengths)[:-1]] = CONFIG.width
        values[offsets(lengths)[:-1]] = 1.0
    return Crossed(slots, values, offsets(lengths))


def from_the_definition(net: Net, context: Crossed, option: Crossed) -> tuple[float, float]:
    """The formula, with one loop over entries."""
    towers, width = view(net.flat, net.shape), net.width
    bias = towers.first[0].astype(np.float64)
    first = bias.copy()
    for slot, value in zip(context.slots, context.values, strict=True):
        if slot < CONFIG.width and net.contexts.of[slot] >= 0:
            first += value * towers.first[1 + net.contexts.of[slot]]

    def last(tower: int, before: FloatArray) -> FloatArray:
        part = slice(tower * width, (tower + 1) * width)
        found: FloatArray = np.tanh(
            np.tanh(before[part]) @ towers.second[tower] + towers.second_bias[part]
        )
        return found

    score = 0.0
    for slot, value in zip(option.slots, option.values, strict=True):
        column = net.options.of[slot]
        if column >= 0:
            score += value * float((last(0, first) - last(0, bias)) @ towers.actor[:, column])
    return score, float((last(1, first) - last(1, bias)) @ towers.critic)


@pytest.mark.parametrize("seed", range(5))
def test_says_what_the_definition_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net = networked(rng, CONFIG)
    contexts, options = rows(rng, 3, constant=True), rows(rng, 7, constant=False)

    said = net.forward(contexts, options, offsets(COUNTS))

    owners = np.repeat(np.arange(3), COUNTS)
    expected = [
        from_the_definition(net, contexts.rows(np.array([owner])), options.rows(np.array([at])))
        for at, owner in enumerate(owners)
    ]
    np.testing.assert_allclose(said.scores, [score for score, _ in expected], atol=1e-12)
    np.testing.assert_allclose(said.values[owners], [value for _, value in expected], atol=1e-12)


@pytest.mark.parametrize("width", [0, 1, 5])
def test_the_gradient_is_that_of_finite_differences(width: int) -> None:
    rng = np.random.default_rng(1)
    net = networked(rng, replace(CONFIG, net_width=width))
    contexts, options = rows(rng, 3, constant=True), rows(rng, 7, constant=False)
    by_score, by_value = rng.normal(size=7), rng.normal(size=3)

    def total(flat: FloatArray) -> float:
        said = replace(net, flat=flat).forward(contexts, options, offsets(COUNTS))
        return float(said.scores @ by_score + said.values @ by_value)

    found = net.gradient(net.forward(contexts, options, offsets(COUNTS)), by_score, by_value)

    steps = 1e-6 * np.eye(len(net.flat))
    expected = [(total(net.flat + step) - total(net.flat - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_one_decision_is_scored_as_many_are() -> None:
    net = networked(np.random.default_rng(2), CONFIG)
    encoded = encode(
        {"x": 0.3, "y": -2.0, "kind": "k1"},
        [("a", None), ("b", {"cost": 0.2, "size": "big"}), ("c", {"cost": 2.0})],
        width=CONFIG.width,
    )
    values = encoded.values.astype(np.float64)
    starts = encoded.starts.astype(np.int64)
    slots, split = encoded.indices.astype(np.int64), int(starts[1])
    context = Crossed(slots[:split], values[:split], starts[:2])
    options = Crossed(slots[split:], values[split:], starts[1:] - split)

    found = net.scores(context, options)
    wired = net.wire(slots[:split], slots[split:])
    assert wired is not None
    _, value = wired.judge(values[:split])

    said = net.forward(context, options, np.array([0, 3]))
    np.testing.assert_allclose(found, said.scores, rtol=1e-12, atol=1e-14)
    assert value == pytest.approx(float(said.values[0]), rel=1e-12)
    assert len(set(found.tolist())) == 3


def test_adds_exactly_nothing_until_it_is_taught() -> None:
    rng = np.random.default_rng(3)
    net = Net.initial(5, slots=CONFIG.width)
    wider = net.including(np.arange(9), np.arange(9))
    contexts, options = rows(rng, 3, constant=True), rows(rng, 7, constant=False)

    said = [one.forward(contexts, options, offsets(COUNTS)) for one in (net, wider)]

    assert not any(one.scores.any() or one.values.any() for one in said)


def test_adds_nothing_without_a_context() -> None:
    net = networked(np.random.default_rng(10), CONFIG)
    encoded = encode({}, [("a", None), ("b", None), ("c", None)], width=CONFIG.width)
    slots, values = encoded.indices.astype(np.int64), encoded.values.astype(np.float64)
    context = Crossed(slots[:1], values[:1], np.array([0, 1]))

    found = net.scores(context, Crossed(slots[1:], values[1:], np.arange(4)))

    assert found.tolist() == [0.0, 0.0, 0.0]
    wired = net.wire(encoded.indices[:1].astype(np.int64), encoded.indices[1:].astype(np.int64))
    assert wired is not None
    assert wired.judge(values[:1])[1] == 0.0


def test_an_option_that_comes_later_adds_nothing_and_changes_no_other() -> None:
    rng = np.random.default_rng(4)
    net = networked(rng, CONFIG)
    new = int(np.flatnonzero(net.options.of[: CONFIG.width] < 0)[0])
    contexts, options = rows(rng, 3, constant=True), rows(rng, 7, constant=False)
    before = net.forward(contexts, options, offsets(COUNTS))

    wider = net.including(np.array([], dtype=np.int64), np.array([new]))

    after = wider.forward(contexts, options, offsets(COUNTS))
    np.testing.assert_array_equal(after.scores, before.scores)
    np.testing.assert_array_equal(after.values, before.values)
    assert wider.shape.outputs == net.shape.outputs + 1


def test_a_features_first_layer_does_not_depend_on_what_came_before_it() -> None:
    nothing = np.array([], dtype=np.int64)
    net = Net.initial(5, slots=CONFIG.width)

    early = net.including(np.array([7, 3]), nothing)
    late = net.including(np.array([1]), nothing).including(np.array([7]), nothing)

    row = early.towers.first[1 + early.contexts.of[7]]
    np.testing.assert_array_equal(row, late.towers.first[1 + late.contexts.of[7]])
    assert np.abs(row - early.towers.first[1 + early.contexts.of[3]]).min() > 0.0


def test_there_is_room_for_so_many_features_and_no_more() -> None:
    rng = np.random.default_rng(5)
    slots: IntArray = rng.permutation(4 * MOST).astype(np.int64)

    net = Net.initial(5, slots=4 * MOST).including(slots, slots)

    assert net.shape.inputs == net.shape.outputs == MOST
    assert set(np.flatnonzero(net.contexts.of >= 0)) == set(slots[:MOST])
    again = net.including(slots[::-1], slots[::-1])
    assert again is net


def test_what_options_said_can_be_forgotten() -> None:
    rng = np.random.default_rng(6)
    net = networked(rng, CONFIG)
    known = np.flatnonzero(net.options.of >= 0)
    context = rows(rng, 1, constant=True)
    options = Crossed(known, np.ones(len(known)), np.arange(len(known) + 1))
    before = net.forward(context, options, np.array([0, len(known)]))

    found = net.forget(known[:2]).forward(context, options, np.array([0, len(known)]))

    assert found.scores[:2].tolist() == [0.0, 0.0]
    np.testing.assert_array_equal(found.scores[2:], before.scores[2:])
    np.testing.assert_array_equal(found.values, before.values)


def test_without_units_there_is_nothing_to_learn_or_to_store() -> None:
    net = Net.initial(0, slots=CONFIG.width).including(np.arange(9), np.arange(9))

    assert net.flat.tolist() == [0.0]
    assert net.shape.inputs == net.shape.outputs == 0


def test_arrays_bring_back_the_same_network() -> None:
    rng = np.random.default_rng(7)
    net = networked(rng, CONFIG)
    contexts, options = rows(rng, 3, constant=True), rows(rng, 7, constant=False)

    again = Net.from_arrays(net.arrays(), width=5, slots=CONFIG.width)

    said = [one.forward(contexts, options, offsets(COUNTS)) for one in (net, again)]
    np.testing.assert_array_equal(said[0].scores, said[1].scores)
    np.testing.assert_array_equal(said[0].values, said[1].values)


@pytest.mark.parametrize("name", ["net_inputs", "net_outputs"])
def test_two_features_in_one_place_are_refused(name: str) -> None:
    arrays = networked(np.random.default_rng(8), CONFIG).arrays()
    twice = np.array(arrays[name], dtype=np.int64)
    twice[np.flatnonzero(twice >= 0)[:2]] = 0

    with pytest.raises(ValueError, match=name):
        Net.from_arrays(arrays | {name: twice}, width=5, slots=CONFIG.width)


def test_a_version_cannot_be_changed() -> None:
    net = networked(np.random.default_rng(9), CONFIG)

    with pytest.raises(ValueError, match="read-only"):
        net.towers.actor[0, 0] = 1.0
    copy = net.writable_copy()
    copy.flat[:] = 0.0
    assert net.flat.any()
    assert isinstance(frozen(copy.flat), np.ndarray)


_DIGEST = """
import hashlib
import numpy as np
from tau_live.rl.arrays import offsets
from tau_live.rl.crossing import Crossed
from tau_live.rl.net import Net
rng = np.random.default_rng(0)
net = Net.initial(64, slots=512).including(np.arange(256), np.arange(40)).writable_copy()
net.flat[:] += 0.1 * rng.normal(size=len(net.flat))
contexts, options = (
    Crossed(rng.integers(200, size=600 * n * 9), rng.normal(size=600 * n * 9),
            np.arange(0, 600 * n * 9 + 1, 9)) for n in (1, 5))
output = net.forward(contexts, options, np.arange(0, 3001, 5))
found = net.gradient(output, rng.normal(size=3000), rng.normal(size=600))
print(hashlib.sha256(output.scores.tobytes() + found.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_the_number_of_threads_changes_no_bit() -> None:
    root = Path(__file__).parents[2]
    found = [
        subprocess.run(
            [sys.executable, "-c", _DIGEST],
            env={**os.environ, "PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    ]

    assert found[0] == found[1]
