"""Off-policy estimates: exact expectations, the formulas as loops, closed forms, an outsider's."""

from collections.abc import Callable, Iterator
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.rl.arrays import FloatArray
from tau_live.rl.evaluation.estimators import Estimator, Support
from tau_live.rl.evaluation.log import Log, Offered
from tau_live.rl.evaluation.report import EvaluationConfig, evaluate, evaluate_rollouts
from tests.rl.logs import Drawn, drawn, lenient, weighted

ONE_STEP = (Estimator.IPS, Estimator.SNIPS, Estimator.DM, Estimator.DR, Estimator.SNDR)

# A problem of two contexts with two and three options; rewards are 0 or 1.
CONTEXTS = (0.3, 0.7)
LOGGING = (np.array([0.8, 0.2]), np.array([0.5, 0.1, 0.4]))
TARGET = (np.array([0.1, 0.9]), np.array([0.2, 0.7, 0.1]))
MEANS = (np.array([0.25, 0.75]), np.array([0.1, 0.9, 0.5]))
WRONG_MODEL = (np.array([0.9, 0.0]), np.array([0.3, 0.2, 1.0]))
TRUTH = sum(
    share * float(target @ means)
    for share, target, means in zip(CONTEXTS, TARGET, MEANS, strict=True)
)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def values(log: Log, config: EvaluationConfig | None = None) -> dict[Estimator, float]:
    found = evaluate(log, config or lenient(), rng=rng()).estimates
    return {name: one.value for name, one in found.items() if one.value is not None}


def outcomes() -> list[tuple[float, int, int, float]]:
    """Return probability, context, applied option and reward of all that one decision can be."""
    return [
        (
            CONTEXTS[x] * LOGGING[x][a] * (MEANS[x][a] if reward else 1.0 - MEANS[x][a]),
            x,
            a,
            float(reward),
        )
        for x in range(2)
        for a in range(len(LOGGING[x]))
        for reward in (0, 1)
    ]


def expectation(name: Estimator, model: tuple[FloatArray, FloatArray], *, decisions: int) -> float:
    """Return the mean of an estimate over every log of so many decisions that there can be."""
    total = 0.0
    for case in product(outcomes(), repeat=decisions):
        log = Log(
            rollouts=np.arange(decisions),
            propensities=np.array([LOGGING[x][a] for _, x, a, _ in case]),
            rewards=np.array([reward for *_, reward in case]),
            targets=Offered.of(
                [TARGET[x] for _, x, _, _ in case],
                np.array([a for _, _, a, _ in case]),
                [model[x] for _, x, _, _ in case],
            ),
        )
        total += prod(probability for probability, *_ in case) * values(log)[name]
    return total


@pytest.mark.parametrize("name", [Estimator.IPS, Estimator.DR])
@pytest.mark.parametrize("decisions", [1, 2])
def test_is_unbiased_over_all_that_can_happen(name: Estimator, decisions: int) -> None:
    found = expectation(name, WRONG_MODEL, decisions=decisions)

    assert found == pytest.approx(TRUTH, abs=1e-12)


def test_the_direct_method_is_as_wrong_as_its_model() -> None:
    right = expectation(Estimator.DM, MEANS, decisions=2)
    wrong = expectation(Estimator.DM, WRONG_MODEL, decisions=2)

    expected = sum(
        share * float(target @ model)
        for share, target, model in zip(CONTEXTS, TARGET, WRONG_MODEL, strict=True)
    )
    assert right == pytest.approx(TRUTH, abs=1e-12)
    assert wrong == pytest.approx(expected, abs=1e-12)
    assert abs(wrong - TRUTH) > 0.1


def test_doubly_robust_is_exact_when_the_model_knows_every_reward() -> None:
    case = drawn(3, 40)
    for n, applied in enumerate(case.applied):
        case.predictions[n][applied] = case.rewards[n]

    found = values(case.log())

    mean = np.mean([t @ q for t, q in zip(case.targets, case.predictions, strict=True)])
    assert found[Estimator.DR] == pytest.approx(float(mean), abs=1e-12)
    assert found[Estimator.SNDR] == pytest.approx(float(mean), abs=1e-12)
    assert found[Estimator.DM] == pytest.approx(float(mean), abs=1e-12)
    assert abs(found[Estimator.IPS] - float(mean)) > 1e-3


def test_self_normalised_estimates_move_with_the_rewards() -> None:
    case = drawn(4, 60)
    raised = case._replace(
        rewards=[reward + 5.0 for reward in case.rewards],
        predictions=[row + 5.0 for row in case.predictions],
    )

    before, after = (values(one.log(), lenient(0.0, 6.0)) for one in (case, raised))

    for name in (Estimator.SNIPS, Estimator.SNDR, Estimator.DR, Estimator.DM):
        assert after[name] - before[name] == pytest.approx(5.0, abs=1e-12)
    assert abs(after[Estimator.IPS] - before[Estimator.IPS] - 5.0) > 1e-3


def from_the_formulas(case: Drawn) -> dict[Estimator, float]:
    """Return the estimates by the formulas as they are written, one decision after another."""
    count = len(case.rewards)
    ips = weights = dm = dr = corrections = 0.0
    for n in range(count):
        applied = case.applied[n]
        weight = float(case.targets[n][applied]) / case.propensities[n]
        expected = 0.0
        for probability, prediction in zip(case.targets[n], case.predictions[n], strict=True):
            expected += float(probability) * float(prediction)
        residual = case.rewards[n] - float(case.predictions[n][applied])
        ips += weight * case.rewards[n]
        weights += weight
        dm += expected
        dr += expected + weight * residual
        corrections += weight * residual
    return {
        Estimator.IPS: ips / count,
        Estimator.SNIPS: ips / weights,
        Estimator.DM: dm / count,
        Estimator.DR: dr / count,
        Estimator.SNDR: dm / count + corrections / weights,
    }


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_equals_the_formulas(seed: int, decisions: int, longest: int) -> None:
    case = drawn(seed, decisions, longest=longest)

    found = values(case.log())

    expected = from_the_formulas(case)
    assert list(found) == list(ONE_STEP)
    for name in ONE_STEP:
        assert found[name] == pytest.approx(expected[name], rel=1e-9, abs=1e-9)


def test_agrees_with_the_open_bandit_pipeline() -> None:
    decisions, options = 12, 3
    index = np.arange(decisions)[:, None] + np.arange(options)
    logging = (1.0 + index % 4) / (1.0 + index % 4).sum(axis=1, keepdims=True)
    target = (1.0 + index % 5) / (1.0 + index % 5).sum(axis=1, keepdims=True)
    applied = np.arange(decisions) % options

    found = values(
        Log(
            rollouts=np.arange(decisions),
            propensities=logging[np.arange(decisions), applied],
            rewards=(np.arange(decisions) % 7) / 7.0,
            targets=Offered.of(list(target), applied, list((index % 6) / 6.0)),
        )
    )

    # obp 0.4.1, obp/ope/estimators.py, estimate_policy_value of each of the five classes
    expected = {
        Estimator.IPS: 0.4106481481481481,
        Estimator.SNIPS: 0.31399156317295496,
        Estimator.DM: 0.39560185185185187,
        Estimator.DR: 0.26143904320987654,
        Estimator.SNDR: 0.29301770482686584,
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=0, abs=1e-12)


def test_by_hand() -> None:
    log = weighted([2.0, 0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.5, 1.0])

    found = evaluate(log, lenient(), rng=rng())

    ips, snips = found.estimates[Estimator.IPS], found.estimates[Estimator.SNIPS]
    assert ips.value == pytest.approx(2.5 / 5.0)
    # terms 2, 0, 0, 0.5, 0: squared distances from 0.5 are 2.25, 0.25, 0.25, 0, 0.25
    assert ips.standard_error == pytest.approx(np.sqrt(3.0 / 4.0 / 5.0))
    assert snips.value == pytest.approx(2.5 / 4.0)
    # the distances of the rewards from 0.625, times weight over mean weight
    squares = 0.9375**2 + 0.78125**2 + 0.15625**2
    assert snips.standard_error == pytest.approx(np.sqrt(squares / 4.0 / 5.0))
    assert found.logged == pytest.approx(0.7)
    assert found.weights.effective_sample_size == pytest.approx(16.0 / 6.0)
    assert found.weights.largest == 2.0
    assert found.weights.zero == pytest.approx(0.4)
    assert found.weights.mean == pytest.approx(0.8)


def test_rewards_of_the_policy_itself_give_their_mean_and_its_error() -> None:
    rewards = np.random.default_rng(1).random(50)

    found = evaluate(weighted([1.0] * 50, rewards.tolist()), lenient(), rng=rng())

    for one in found.estimates.values():
        assert one.value == pytest.approx(float(rewards.mean()))
        assert one.standard_error == pytest.approx(float(rewards.std(ddof=1)) / np.sqrt(50))
    assert found.weights.effective_sample_size == pytest.approx(50.0)


def test_a_rollout_counts_once_however_many_decisions_it_has() -> None:
    case = drawn(5, 40)
    doubled = case.taken([*range(40), *range(40)])

    once = evaluate(case.log(), lenient(), rng=rng())
    twice = evaluate(doubled.log(), lenient(), rng=rng())

    for name, one in once.estimates.items():
        assert twice.estimates[name].value == pytest.approx(one.value)
        assert twice.estimates[name].standard_error == pytest.approx(one.standard_error)
    assert twice.weights.rollouts == 40
    assert twice.weights.effective_sample_size == pytest.approx(once.weights.effective_sample_size)


def test_weights_are_cut_at_the_cap_and_counted() -> None:
    log = weighted([10.0, 4.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0])

    found = evaluate(log, lenient(cap=4.0), rng=rng())

    assert found.estimates[Estimator.IPS].value == pytest.approx(9.0 / 4.0)
    assert found.weights.clipped == 0.25
    assert found.weights.largest == 10.0
    assert found.weights.effective_sample_size == pytest.approx(81.0 / 33.0)


def paths() -> Iterator[tuple[float, float, list[int], list[float]]]:
    """Yield probability, probability under the target, choices and rewards of two steps.

    The first step's option 1 ends the rollout; the second step's chances follow the first reward.
    """
    first, second = np.array([0.6, 0.4]), np.array([0.3, 0.7])
    first_target, second_target = np.array([0.2, 0.8]), np.array([0.9, 0.1])
    for a, reward in product((0, 1), (0.0, 1.0)):
        chance = 0.75 if reward == float(a) else 0.25
        if a == 1:
            yield first[a] * chance, first_target[a] * chance, [a], [reward]
            continue
        for b, later in product((0, 1), (0.0, 1.0)):
            after = 0.9 if (later == float(b)) == (reward > 0.5) else 0.1
            yield (
                first[a] * chance * second[b] * after,
                first_target[a] * chance * second_target[b] * after,
                [a, b],
                [reward, later],
            )


def test_per_decision_sampling_is_unbiased_over_all_that_can_happen() -> None:
    logging, target = ([0.6, 0.4], [0.3, 0.7]), ([0.2, 0.8], [0.9, 0.1])
    total = truth = 0.0

    for probability, wanted, chosen, rewards in paths():
        log = Log(
            rollouts=np.zeros(len(chosen), dtype=np.int64),
            propensities=np.array([logging[t][a] for t, a in enumerate(chosen)]),
            rewards=np.array(rewards),
            targets=np.array([target[t][a] for t, a in enumerate(chosen)]),
        )
        value = evaluate_rollouts(log, lenient(0.0, 2.0), rng=rng()).estimates[Estimator.PDIS].value
        assert value is not None
        total += probability * value
        truth += wanted * sum(rewards)

    assert total == pytest.approx(truth, abs=1e-12)


@given(st.integers(0, 2**32), st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_estimates_over_several_steps_equal_the_formulas(seed: int, decisions: int) -> None:
    case = drawn(seed, decisions, longest=4)

    found = evaluate_rollouts(case.log(), lenient(0.0, 4.0), rng=rng()).estimates

    rollouts: dict[int, list[tuple[float, float]]] = {}
    for n, rollout in enumerate(case.rollouts):
        steps = rollouts.setdefault(rollout, [])
        weight = float(case.targets[n][case.applied[n]]) / case.propensities[n]
        steps.append(((steps[-1][0] if steps else 1.0) * weight, case.rewards[n]))
    plain = sum(weight * reward for steps in rollouts.values() for weight, reward in steps)
    weighted_sum = 0.0
    for t in range(max(map(len, rollouts.values()))):
        earned = sum(steps[t][0] * steps[t][1] for steps in rollouts.values() if t < len(steps))
        weighted_sum += earned / sum(
            steps[min(t, len(steps) - 1)][0] for steps in rollouts.values()
        )
    assert found[Estimator.PDIS].value == pytest.approx(plain / len(rollouts), rel=1e-9)
    assert found[Estimator.WPDIS].value == pytest.approx(weighted_sum, rel=1e-9)


def test_steps_of_rollouts_may_be_interleaved() -> None:
    case = drawn(6, 60, longest=3)
    by_step = sorted(range(60), key=lambda n: (case.rollouts[:n].count(case.rollouts[n]), -n))
    mixed = case.taken(by_step)

    together = evaluate_rollouts(case.log(), lenient(0.0, 3.0), rng=rng())
    apart = evaluate_rollouts(mixed.log(), lenient(0.0, 3.0), rng=rng())

    for name, one in together.estimates.items():
        assert apart.estimates[name].value == pytest.approx(one.value, rel=1e-12)


def test_one_step_is_the_same_either_way() -> None:
    case = drawn(7, 80)

    steps = evaluate(case.log(), lenient(cap=9.0), rng=rng())
    rollouts = evaluate_rollouts(case.log(), lenient(cap=9.0), rng=rng())

    pairs = ((Estimator.IPS, Estimator.PDIS), (Estimator.SNIPS, Estimator.WPDIS))
    for one, other in pairs:
        assert steps.estimates[one].value == pytest.approx(rollouts.estimates[other].value)
    assert steps.estimates[Estimator.IPS].bernstein == pytest.approx(
        rollouts.estimates[Estimator.PDIS].bernstein
    )
    assert steps.weights == pytest.approx(rollouts.weights)


def test_the_same_log_and_seed_give_the_same_answer_in_any_order_of_rows() -> None:
    case = drawn(8, 120)
    backwards = case.taken(range(119, -1, -1))
    config = EvaluationConfig(reward_range=(0.0, 1.0), weight_cap=20.0, replicates=50)

    first, second = (evaluate(case.log(), config, rng=rng()) for _ in range(2))
    third = evaluate(backwards.log(), config, rng=rng())

    assert first == second
    for name, one in first.estimates.items():
        assert third.estimates[name].value == pytest.approx(one.value, rel=1e-12)
        assert third.estimates[name].bootstrap == pytest.approx(one.bootstrap, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("reward_range", lambda: EvaluationConfig(reward_range=(1.0, 1.0))),
        ("reward_range", lambda: EvaluationConfig(reward_range=(0.0, np.inf))),
        ("weight_cap", lambda: EvaluationConfig(reward_range=(0.0, 1.0), weight_cap=0.5)),
        ("weight_cap", lambda: EvaluationConfig(reward_range=(0.0, 1.0), weight_cap=np.nan)),
        ("confidence", lambda: EvaluationConfig(reward_range=(0.0, 1.0), confidence=1.0)),
        ("replicates", lambda: EvaluationConfig(reward_range=(0.0, 1.0), replicates=-1)),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(
    name: str, build: Callable[[], EvaluationConfig | Support]
) -> None:
    with pytest.raises(ValueError, match=name):
        build()
