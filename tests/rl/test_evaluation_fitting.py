"""Cross-fitting: folds by rollout, the ridge itself, and that nothing leaks."""

from dataclasses import replace

import numpy as np
import pytest

from tau_live.rl.arrays import FloatArray, offsets
from tau_live.rl.crossing import Crossed
from tau_live.rl.evaluation.estimators import Estimator, folds_of
from tau_live.rl.evaluation.log import Log, Offered, Reason
from tau_live.rl.evaluation.report import evaluate
from tests.rl.fitting import WIDEST, cross_fitted
from tests.rl.logs import drawn, lenient

NAN = float("nan")
UNIT = (0.0, 1.0)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def problem(seed: int, decisions: int, *, noise: float = 0.05) -> tuple[Log, FloatArray]:
    """Return a log of one step with two to four options, and features that say the reward."""
    case = drawn(seed, decisions, longest=3)
    draws = np.random.default_rng(seed)
    rows = [draws.normal(size=(len(target), 3)) for target in case.targets]
    means = [
        0.5 + 0.2 * row.sum() for row, a in zip(rows, case.applied, strict=True) for row in [row[a]]
    ]
    rewards = np.clip(np.array(means) + noise * draws.normal(size=decisions), 0.0, 1.0)
    log = case._replace(rewards=rewards.tolist()).log(model=False)
    return log, np.concatenate(rows)


def predictions(log: Log) -> FloatArray:
    assert isinstance(log.targets, Offered)
    assert log.targets.predictions is not None
    return log.targets.predictions


def test_steps_of_a_rollout_are_in_one_fold_and_folds_are_of_one_size() -> None:
    rollouts = np.repeat([f"live-{n}" for n in range(53)], 3)

    found = folds_of(rollouts, 5)

    assert (found.reshape(53, 3) == found[::3, None]).all()
    assert sorted(np.bincount(found[::3]).tolist()) == [10, 10, 11, 11, 11]


def test_folds_depend_on_ids_not_on_the_order_of_rows() -> None:
    rollouts = np.array([f"live-{n % 40}" for n in range(100)])

    forwards, backwards = folds_of(rollouts, 4), folds_of(rollouts[::-1], 4)

    assert forwards.tolist() == backwards[::-1].tolist()


def test_equals_ridge_without_the_rollouts_it_speaks_of() -> None:
    log, features = problem(0, 90)
    assert isinstance(log.targets, Offered)

    found = predictions(cross_fitted(log, features, reward_range=UNIT, folds=3, penalty=2.0))

    fold = folds_of(log.rollouts, 3)
    starts = offsets(log.targets.counts)
    for n in range(90):
        train = np.flatnonzero(fold != fold[n])
        x, y = features[(starts[:-1] + log.targets.applied)[train]], log.rewards[train]
        weights = np.linalg.solve(x.T @ x + 2.0 * np.eye(3), x.T @ (y - y.mean()))
        mine = slice(int(starts[n]), int(starts[n + 1]))
        expected = np.clip(features[mine] @ weights + y.mean(), 0.0, 1.0)
        np.testing.assert_allclose(found[mine], expected, rtol=1e-9)
    assert {0.0, 1.0} <= set(found.tolist())


def test_sparse_and_dense_features_say_the_same() -> None:
    log, dense = problem(1, 80)
    dense = np.where(np.abs(dense) < 0.7, 0.0, dense)  # some rows become empty
    rows, slots = np.nonzero(dense)
    starts = offsets(np.bincount(rows, minlength=len(dense)))

    found = cross_fitted(log, Crossed(slots, dense[rows, slots], starts), reward_range=UNIT)

    expected = predictions(cross_fitted(log, dense, reward_range=UNIT))
    np.testing.assert_allclose(predictions(found), expected, rtol=1e-12)
    assert (np.diff(starts) == 0).any()


def test_features_of_very_many_slots_share_those_that_a_model_may_have() -> None:
    log, dense = problem(1, 200)
    slots = np.arange(dense.size)
    values, starts = dense.ravel() ** 2, np.arange(0, dense.size + 1, 3)
    apart = np.zeros((len(dense), WIDEST))
    np.add.at(apart, (slots // 3, slots * 5 % WIDEST), values)

    found = cross_fitted(log, Crossed(slots * 5, values, starts), reward_range=UNIT)

    expected = predictions(cross_fitted(log, apart, reward_range=UNIT))
    few = predictions(cross_fitted(log, Crossed(slots % 3 * 5_000, values, starts),
                                   reward_range=UNIT))  # fmt: skip
    plain = predictions(cross_fitted(log, dense**2, reward_range=UNIT))
    assert dense.size > WIDEST
    np.testing.assert_allclose(predictions(found), expected, rtol=1e-9)
    np.testing.assert_allclose(few, plain, rtol=1e-12)


def test_a_good_model_makes_the_error_smaller() -> None:
    log, features = problem(2, 600)

    fitted = cross_fitted(log, features, reward_range=UNIT)

    found = evaluate(fitted, lenient(), rng=rng()).estimates
    dr, ips = found[Estimator.DR].standard_error, found[Estimator.IPS].standard_error
    assert dr is not None
    assert ips is not None
    assert dr < 0.5 * ips


def test_memorising_is_of_no_use() -> None:
    """Every rollout has a feature of its own, by which a model could tell each reward it saw."""
    size = 400
    draws = rng()
    applied = draws.integers(2, size=size)
    rewards = draws.integers(2, size=size).astype(np.float64)  # nothing to be known about
    log = Log(
        rollouts=np.arange(size),
        propensities=np.full(size, 0.5),
        rewards=rewards,
        targets=Offered.of([np.full(2, 0.5)] * size, applied),
    )
    own = np.diag(np.ones(2 * size))  # one slot for every option of every decision

    found = predictions(cross_fitted(log, own, reward_range=UNIT, folds=4, penalty=1e-6))

    fold = folds_of(log.rollouts, 4)
    for number in range(4):
        mean = rewards[fold != number].mean()
        np.testing.assert_allclose(found[np.repeat(fold == number, 2)], mean, rtol=1e-12)


def test_steps_of_one_rollout_do_not_tell_on_each_other() -> None:
    rollouts = np.repeat(np.arange(100), 2)
    luck = np.repeat(rng().integers(2, size=100), 2).astype(np.float64)  # shared by both steps
    log = Log(
        rollouts=rollouts,
        propensities=np.full(200, 0.5),
        rewards=luck,
        targets=Offered.of([np.ones(1)] * 200, np.zeros(200, dtype=np.int64)),
    )
    own = np.diag(np.ones(100))[rollouts]

    kept, torn = (
        predictions(cross_fitted(one, own, reward_range=UNIT, penalty=1e-6))
        for one in (log, replace(log, rollouts=np.arange(200)))
    )

    assert (np.abs(kept - luck) > 0.3).all()
    assert (np.abs(torn - luck) < 1e-3).mean() > 0.5  # what there would be to tell


def test_what_cannot_be_learned_from_is_not() -> None:
    log, features = problem(3, 60)
    assert isinstance(log.targets, Offered)
    rewards, applied = log.rewards.copy(), log.targets.applied.copy()
    rewards[0], rewards[1], rewards[2], applied[3] = NAN, np.inf, 7.0, -1
    at = offsets(log.targets.counts)
    broken = features.copy()
    applied[4] = 0
    broken[at[4]] = NAN
    dirty = Log(
        rollouts=np.arange(60),
        propensities=log.propensities,
        rewards=rewards,
        targets=log.targets._replace(applied=applied),
    )

    found = cross_fitted(dirty, broken, reward_range=UNIT)

    unknown = replace(dirty, rewards=np.where(np.arange(60) < 5, NAN, log.rewards))
    expected = predictions(cross_fitted(unknown, features, reward_range=UNIT))
    others = np.arange(len(features)) != at[4]
    np.testing.assert_array_equal(predictions(found)[others], expected[others])
    assert np.isnan(predictions(found)).nonzero()[0].tolist() == [at[4]]
    assert evaluate(found, lenient(), rng=rng()).left_out == {
        Reason.NO_REWARD: 1,
        Reason.REWARD_NOT_FINITE: 1,
        Reason.REWARD_OUT_OF_RANGE: 1,
        Reason.APPLIED_NOT_OFFERED: 1,
        Reason.PREDICTION_NOT_FINITE: 1,
    }


def test_one_rollout_alone_has_nobody_to_learn_from() -> None:
    case = drawn(7, 3)._replace(rollouts=[1, 1, 1])
    log = case.log(model=False)

    found = cross_fitted(log, np.ones((sum(map(len, case.targets)), 1)), reward_range=UNIT)

    assert np.isnan(predictions(found)).all()
    assert evaluate(found, lenient(), rng=rng()).left_out == {Reason.PREDICTION_NOT_FINITE: 3}


def test_what_does_not_fit_is_refused() -> None:
    log, features = problem(4, 10)
    chosen_only = Log(
        rollouts=log.rollouts,
        propensities=log.propensities,
        rewards=log.rewards,
        targets=np.full(10, 0.5),
    )
    count = len(features)

    with pytest.raises(TypeError, match="options"):
        cross_fitted(chosen_only, features, reward_range=UNIT)
    with pytest.raises(ValueError, match="features"):
        cross_fitted(log, features[1:], reward_range=UNIT)
    with pytest.raises(ValueError, match="penalty"):
        cross_fitted(log, features, reward_range=UNIT, penalty=0.0)
    with pytest.raises(ValueError, match="folds"):
        cross_fitted(log, features, reward_range=UNIT, folds=1)
    with pytest.raises(ValueError, match="slots"):
        cross_fitted(
            log,
            Crossed(np.full(count, -1), np.ones(count), np.arange(count + 1)),
            reward_range=UNIT,
        )
