"""The simulated tests are those that decide promotions."""

import numpy as np
import pytest

from tau_live.learn.promotion.power import Experiment, Stage, power_of, rollouts_to_prove
from tau_live.learn.promotion.rules import EVERY
from tau_live.rl.verdict import Evidence, Outcomes, Rule, Verdict


@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param(Experiment(difference=0.3, mean=0.4), id="success and failure"),
        pytest.param(
            Experiment(difference=2.0, mean=5.0, spread=3.0, reward_range=(-10.0, 20.0)),
            id="a wider range",
        ),
        pytest.param(Experiment(difference=0.3, mean=0.4, missing=0.3), id="some never arrive"),
    ],
)
def test_the_verdict_is_to_promote_exactly_when_the_simulation_ends(
    experiment: Experiment,
) -> None:
    stage = Stage(share=0.5, test=3)

    count = rollouts_to_prove(experiment, stage, np.random.default_rng(5))

    rng = np.random.default_rng(5)
    learner = rng.random(8192) < stage.share
    rewards = experiment.rewards(rng, learner)
    evidence, looks = Evidence.none(rewards=experiment.reward_range)._replace(test=3), 0
    rule = Rule(cost_margin=None)
    while evidence.finding(rule).verdict is not Verdict.PROMOTE:
        chunk = slice(looks * EVERY, (looks + 1) * EVERY)
        evidence = evidence.including(
            Outcomes(
                rewards=rewards[chunk],
                costs=np.full(EVERY, np.nan),
                learner=learner[chunk],
                shares=np.full(EVERY, 0.5),
            )
        )
        looks += 1
    assert count == looks * EVERY


@pytest.mark.slow
def test_half_the_difference_takes_about_four_times_as_long() -> None:
    _, large = power_of(Experiment(difference=0.2, mean=0.4), streams=60)
    _, small = power_of(Experiment(difference=0.1, mean=0.4), streams=60)

    assert large.median is not None
    assert small.median is not None
    assert 3.0 < small.median / large.median < 5.0


def test_rewards_have_the_mean_and_the_spread_that_were_given() -> None:
    experiment = Experiment(difference=2.0, mean=4.0, spread=1.5, reward_range=(0.0, 10.0))
    learner = np.arange(200_000) % 2 == 0

    rewards = experiment.rewards(np.random.default_rng(1), learner)

    assert rewards[learner].mean() == pytest.approx(6.0, abs=0.02)
    assert rewards[~learner].mean() == pytest.approx(4.0, abs=0.02)
    assert rewards[learner].std() == pytest.approx(1.5, abs=0.02)


def test_a_test_that_takes_too_long_has_no_number() -> None:
    _, total = power_of(Experiment(difference=0.001, mean=0.4), streams=2, most=10_000)

    assert (total.median, total.ninetieth) == (None, None)


def test_what_twenty_simulated_tests_cannot_prove_is_not_tried_two_hundred_times() -> None:
    tried: list[None] = []

    _, total = power_of(
        Experiment(difference=1e-300, mean=0.4), most=8192, advance=lambda: tried.append(None)
    )

    assert (total.median, total.ninetieth, len(tried)) == (None, None, 20)


def test_the_ladder_has_a_test_below_each_full_share() -> None:
    experiment = Experiment(difference=0.1, mean=0.5, control_share=0.5, ladder=True)

    assert [(stage.share, stage.test) for stage in experiment.stages()] == [(0.05, 2), (0.25, 3)]
