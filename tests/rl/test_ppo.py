"""Updates: they are careful, and they are the same every time."""

from dataclasses import replace

import numpy as np
import pytest

from tau_live.rl.batch import Trajectories, batch
from tau_live.rl.config import PPOConfig
from tau_live.rl.features import encode
from tau_live.rl.policy import PolicyConfig
from tau_live.rl.ppo import Update, epochs_for, logged_kl, update
from tau_live.rl.state import LearnerState
from tau_live.rl.throttle import giving_way
from tests.rl.digests import digest_of
from tests.rl.tasks import Chances, Step, Tile, TwoSteps, gathered, lived, played

SMALL = PolicyConfig(width=64, cross_width=256, ridge_width=128)


def rollouts(state: LearnerState, seed: int, count: int = 8) -> Trajectories:
    rng = np.random.default_rng(seed)
    task = TwoSteps()
    return gathered([played(task, state, rng) for _ in range(count)])


def updated(
    state: LearnerState, fresh: Trajectories, *, seed: int = 0, config: PPOConfig | None = None
) -> Update:
    return update(state, fresh, config=config or PPOConfig(), rng=np.random.default_rng(seed))


def one_step(rewards: list[float], *, options: int = 2) -> Trajectories:
    encoded = encode({}, [(f"o{k}", None) for k in range(options)], width=64)
    return gathered(
        [
            [Step(encoded, n % options, 1.0 / options, 0.0, reward)]
            for n, reward in enumerate(rewards)
        ]
    )


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits() -> None:
    first, second = (lived(Tile(), rollouts=48, seed=3, policy_config=SMALL) for _ in range(2))

    assert digest_of(first.state) == digest_of(second.state)
    assert digest_of(first.state.policy) == digest_of(second.state.policy)
    assert digest_of(first.state) != digest_of(lived(Tile(), rollouts=48, seed=4).state)


def test_whoever_interrupts_an_update_changes_nothing_of_it() -> None:
    untrained = LearnerState.initial(SMALL)
    fresh = rollouts(untrained, 5)
    breaths: list[None] = []

    with giving_way(lambda: breaths.append(None)):
        interrupted = update(untrained, fresh, config=PPOConfig(), rng=np.random.default_rng(9))

    alone = update(untrained, fresh, config=PPOConfig(), rng=np.random.default_rng(9))
    assert digest_of(interrupted.state) == digest_of(alone.state)
    assert len(breaths) > len(fresh.encoded)  # at least one for each decision


def test_saved_and_loaded_goes_on_bit_for_bit() -> None:
    state = lived(TwoSteps(), rollouts=32, seed=1, policy_config=SMALL).state
    untrained = LearnerState.initial(SMALL)
    fresh, window = rollouts(untrained, 5), rollouts(untrained, 6, 24)

    loaded = LearnerState.from_arrays(state.arrays())

    config = PPOConfig()
    gone_on = [
        update(one, fresh, window=window, config=config, rng=np.random.default_rng(9))
        for one in (state, loaded)
    ]
    assert digest_of(loaded) == digest_of(state)
    assert gone_on[0].state.counts.updates == state.counts.updates + 1
    assert digest_of(gone_on[0].state) == digest_of(gone_on[1].state)


def test_the_state_before_stays_as_it_was() -> None:
    state = LearnerState.initial(SMALL)
    before = digest_of(state)

    updated(state, one_step([1.0, 0.0] * 4))

    assert digest_of(state) == before


@pytest.mark.parametrize("seed", range(3))
def test_what_was_rewarded_becomes_more_probable(seed: int) -> None:
    state = LearnerState.initial(SMALL)

    found = updated(state, one_step([1.0, 0.0] * 4), seed=seed)

    encoded = encode({}, [("o0", None), ("o1", None)], width=64)
    assert found.state.policy.probabilities(encoded)[0] > 0.5
    assert found.skipped_reason is None
    assert found.state.counts.updates == 1
    assert found.state.policy.rollouts == 8


@pytest.mark.parametrize(
    ("fresh", "reason"),
    [
        pytest.param(one_step([1.0] * 8), "fewer than two distinct rewards", id="equal rewards"),
        pytest.param(
            one_step([1.0, 0.0] * 4, options=1), "no decision with a choice", id="no choice"
        ),
        pytest.param(
            replace(one_step([1.0, 0.0] * 4), propensity=np.full(8, np.nan)),
            "no decision with a choice",
            id="no propensity",
        ),
    ],
)
def test_too_little_to_learn_from_is_skipped_and_counted(fresh: Trajectories, reason: str) -> None:
    state = LearnerState.initial(SMALL)

    found = updated(state, fresh)

    assert found.skipped_reason is not None
    assert reason in found.skipped_reason
    assert digest_of(found.state.policy) == digest_of(state.policy)
    assert found.state.counts.skipped == 1
    assert found.state.counts.rollouts == len(fresh.length)
    assert found.state.value_fit.samples == len(fresh.length)  # the evidence is kept


def test_steps_too_short_to_change_a_weight_are_not_said_to_be_taken() -> None:
    state = LearnerState.initial(SMALL)
    still = PPOConfig(least_decisions=0.0, learning_rate=5e-324, net_learning_rate=5e-324)

    found = updated(state, one_step([1.0, 0.0] * 4), config=still)

    assert found.diagnostics.ppo_skipped == "none would change a weight"
    assert np.array_equal(found.state.policy.weights, state.policy.weights)
    assert found.state.adam.steps == 0
    steps = updated(state, one_step([1.0, 0.0] * 4), config=PPOConfig(least_decisions=0.0))
    assert steps.diagnostics.ppo_skipped is None


def test_what_was_decided_too_unlike_now_teaches_by_its_returns_alone() -> None:
    state = LearnerState.initial(SMALL)
    propensity = np.array([1.0 / 16] + [1.0] * 15)
    fresh = replace(one_step([1.0, 0.0] * 8, options=16), propensity=propensity)

    found = updated(state, fresh, config=PPOConfig(least_decisions=0.0))

    assert found.skipped_reason is None
    assert found.state.counts.updates == 1
    assert found.state.adam.steps == 0
    assert not found.state.policy.weights.any()
    assert found.state.policy.base.gains.any()
    assert found.state.policy.critic.any()
    assert found.diagnostics.epochs_run == 0
    assert found.diagnostics.ppo_skipped is not None
    assert found.diagnostics.ppo_skipped.startswith("effective sample of")


def test_what_is_too_old_for_the_actor_teaches_the_regressions() -> None:
    fresh = replace(one_step([1.0, 0.0] * 8), version_lag=np.full(16, 33))

    found = updated(LearnerState.initial(SMALL), fresh)

    assert found.skipped_reason is None
    assert found.state.adam.steps == 0
    assert found.state.policy.base.gains.any()
    assert found.diagnostics.epochs_run == 0


def test_no_rollout_at_all_is_skipped() -> None:
    nothing = Trajectories(
        encoded=[],
        chosen=np.zeros(0, dtype=np.int64),
        default=np.zeros(0, dtype=np.int64),
        propensity=np.zeros(0),
        value=np.zeros(0),
        reward=np.zeros(0),
        discount=np.zeros(0),
        bootstrap=np.zeros(0),
        length=np.zeros(0, dtype=np.int64),
        version_lag=np.zeros(0, dtype=np.int64),
    )

    found = updated(LearnerState.initial(SMALL), nothing)

    assert found.skipped_reason == "no new rollouts"


def test_an_update_that_goes_too_far_is_undone_and_counted() -> None:
    state = LearnerState.initial(SMALL)
    wild = PPOConfig(least_decisions=0.0, learning_rate=50.0, target_kl=0.0, max_kl=1e-6)

    found = updated(state, one_step([1.0, 0.0] * 4), config=wild)

    assert found.undone
    assert digest_of(found.state.policy) == digest_of(state.policy)
    np.testing.assert_array_equal(found.state.adam.first, state.adam.first)
    assert found.state.counts == state.counts._replace(
        rollouts=8, decisions=8, run_decisions=8, undone=1
    )


def test_the_whole_update_is_bounded_from_the_logged_probabilities() -> None:
    state, fresh = LearnerState.initial(SMALL), one_step([1.0, 0.0] * 4)
    steps = PPOConfig(least_decisions=0.0, from_logged=True)
    free = updated(state, fresh, config=replace(steps, from_logged=False))
    far = logged_kl(free.state.policy, fresh)

    within = updated(state, fresh, config=replace(steps, max_kl=1.01 * far))
    beyond = updated(state, fresh, config=replace(steps, max_kl=0.9 * far))

    assert free.diagnostics.base_kl == pytest.approx(far, rel=0.5)  # most of it is the base's
    assert (free.diagnostics.kl_k2 or 0.0) < 0.1 * far
    assert not within.undone
    assert beyond.undone
    assert digest_of(beyond.state.policy) == digest_of(state.policy)
    assert beyond.state.counts == state.counts._replace(
        rollouts=8, decisions=8, run_decisions=8, undone=1
    )


def test_the_divergence_from_logged_probabilities_is_half_the_mean_square() -> None:
    state, fresh = LearnerState.initial(SMALL), one_step([1.0, 0.0])
    logged = replace(fresh, propensity=np.array([0.25, np.nan]))

    assert logged_kl(state.policy, logged) == pytest.approx(0.5 * np.log(2.0) ** 2, rel=1e-9)


def test_a_window_of_the_same_rollouts_weighs_by_how_likely_they_are_now() -> None:
    state = LearnerState.initial(SMALL)
    unlikely = replace(one_step([1.0, 0.0] * 4), propensity=np.full(8, 1.0))

    found = update(
        state,
        one_step([1.0, 0.0] * 4),
        window=unlikely,
        config=PPOConfig(sharpness=0.0),
        rng=np.random.default_rng(0),
    )

    expected = (8 * 1.0 + 8 * 0.5) ** 2 / (8 * 1.0 + 8 * 0.25)  # weights 1 and min(1, 0.5 / 1)
    assert found.diagnostics.effective_sample_size == pytest.approx(expected, rel=1e-12)
    assert found.diagnostics.samples == 16
    assert found.diagnostics.rollouts == 8
    assert found.diagnostics.window_rollouts == 8


def test_the_oldest_are_left_out_where_the_effective_sample_would_be_too_small() -> None:
    state = LearnerState.initial(SMALL)
    fresh = one_step([1.0, 0.0] * 4)
    older = one_step([1.0, 0.0] * 100, options=20)
    propensity = np.full(200, 1.0)  # weights of 0.05, which is 1/20 over 1
    propensity[:140:10] = 0.05  # among the oldest a few weigh 1
    propensity[140:] = 0.05  # the newest all do
    window = replace(older, propensity=propensity)

    found = update(
        state,
        fresh,
        window=window,
        config=PPOConfig(sharpness=0.0),
        rng=np.random.default_rng(0),
    )

    share = found.diagnostics.effective_sample_size
    assert share is not None
    assert 60 <= found.diagnostics.window_rollouts < 200
    assert share >= 0.5 * (8 + found.diagnostics.window_rollouts)


def test_the_critic_is_the_regression_and_what_steps_add_to_it() -> None:
    still = PPOConfig(learning_rate=1e-12, net_learning_rate=1e-12)
    once = lived(TwoSteps(), rollouts=24, seed=0, policy_config=SMALL).state

    twice = updated(once, rollouts(once, 1), config=still).state

    expected = once.policy.critic - once.value_base
    np.testing.assert_allclose(twice.policy.critic - twice.value_base, expected, atol=1e-9)
    assert np.abs(expected).max() > 1e-3
    assert np.abs(twice.value_base - once.value_base).max() > 1e-3


@pytest.mark.slow
def test_the_critic_expects_what_was_earned_although_luck_has_moved_the_policy() -> None:
    nothing = encode({}, [(name, None) for name in Chances.options], width=SMALL.width)
    for seed in range(4):
        life = lived(Chances((0.5, 0.5)), rollouts=240, seed=seed, policy_config=SMALL)

        assert life.state.policy.judge(nothing).value == pytest.approx(
            np.mean(life.rewards), abs=0.004
        )


def test_the_base_moves_the_policy_by_a_bounded_step() -> None:
    state = LearnerState.initial(SMALL)
    fresh = one_step([1.0, 0.0] * 20)

    far, near = (
        updated(state, fresh, config=PPOConfig(base_kl=bound)).diagnostics.base_kl
        for bound in (100.0, 0.02)
    )

    assert far is not None
    assert near is not None
    assert far > 0.1
    assert 0.0 < near <= 0.02


def test_a_choice_without_a_propensity_says_nothing_about_the_options() -> None:
    state = LearnerState.initial(SMALL)
    fresh = replace(one_step([1.0, 0.0] * 4), propensity=np.array([0.5, 0.5] + [np.nan] * 6))

    found = updated(state, fresh)

    assert found.state.action_fit.samples == 2
    assert found.state.value_fit.samples == 8


def test_numbers_are_scaled_anew_while_all_can_be_rebuilt() -> None:
    state = LearnerState.initial(SMALL)
    rng = np.random.default_rng(0)
    task = Tile()
    all_of_them = [played(task, state, rng) for _ in range(40)]
    first = updated(state, gathered(all_of_them[:8])).state

    rebuilt = update(
        first,
        gathered(all_of_them[8:24]),
        window=gathered(all_of_them[:8]),
        config=PPOConfig(),
        rng=rng,
    ).state
    kept = update(rebuilt, gathered(all_of_them[24:]), config=PPOConfig(), rng=rng).state

    assert (first.scaled_rollouts, rebuilt.scaled_rollouts, kept.scaled_rollouts) == (8, 24, 24)
    assert [one.action_fit.samples for one in (first, rebuilt, kept)] == [8, 24, 40]
    np.testing.assert_array_equal(kept.policy.scale.mean, rebuilt.policy.scale.mean)
    assert not np.array_equal(first.policy.scale.mean, rebuilt.policy.scale.mean)


def test_a_single_allowed_option_teaches_the_critic_only() -> None:
    state = LearnerState.initial(SMALL)
    fresh = one_step([1.0, 0.0] * 4)
    only = np.array([True, False])
    masked = replace(fresh, chosen=np.zeros(8, dtype=np.int64), allowed=[only] * 7 + [None])

    found = updated(state, masked, config=PPOConfig(least_decisions=0.0))

    assert found.diagnostics.effective_sample_size == 1.0
    assert found.state.policy.critic.any()


def test_a_cut_off_rollout_is_not_taken_for_a_failure() -> None:
    fresh = one_step([0.0] * 7 + [1.0])
    cut = replace(fresh, discount=np.ones(8), bootstrap=np.ones(8))

    values = [
        updated(LearnerState.initial(SMALL), one).state.policy.judge(fresh.encoded[0]).value
        for one in (fresh, cut)
    ]

    assert values[1] > values[0]


@pytest.mark.slow
def test_the_floor_of_exploration_holds_after_learning() -> None:
    life = lived(Tile(), rollouts=160, seed=0, policy_config=replace(SMALL, epsilon=0.3))
    encoded = encode(
        {"wanted": "red", "noise": 0.0}, [(name, None) for name in Tile.options], width=64
    )

    assert life.state.policy.probabilities(encoded).min() >= 0.1 * (1 - 1e-12)


def test_few_rollouts_get_few_epochs() -> None:
    config = PPOConfig()

    assert [epochs_for(config, rollouts) for rollouts in (1, 8, 32, 64, 500)] == [2, 2, 6, 10, 10]
    assert epochs_for(PPOConfig(epochs=3), 64) == 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("chosen", np.full(8, 2)),
        ("default", np.full(8, -2)),
        ("propensity", np.zeros(8)),
        ("propensity", np.full(8, 1.1)),
        ("reward", np.full(8, np.nan)),
        ("value", np.full(8, np.inf)),
        ("discount", np.full(8, 1.5)),
        ("bootstrap", np.full(8, np.nan)),
        ("length", np.full(8, 2)),
        ("version_lag", np.full(8, -1)),
        ("reward", np.zeros(3)),
        ("bootstrap", np.zeros(3)),
        ("allowed", [None]),
        ("allowed", [np.array([False, False])] * 8),
    ],
)
def test_trajectories_that_do_not_fit_are_refused(field: str, value: object) -> None:
    fresh = one_step([1.0, 0.0] * 4)

    with pytest.raises(ValueError, match=field):
        replace(fresh, **{field: value})  # type: ignore[arg-type]  # the wrong types are the test


def test_damaged_arrays_of_a_state_are_refused() -> None:
    arrays = LearnerState.initial(SMALL).arrays()

    for name in (
        "counts",
        "advantage_scale",
        "scaled_rollouts",
        "adam_first",
        "moments_means",
        "value_base",
    ):
        with pytest.raises(ValueError, match=name):
            LearnerState.from_arrays({key: arrays[key] for key in arrays if key != name})
    with pytest.raises(ValueError, match="counts"):
        LearnerState.from_arrays(arrays | {"counts": np.full(5, -1)})


def test_where_a_run_has_one_decision_the_regressions_learn_alone() -> None:
    state, fresh = LearnerState.initial(SMALL), one_step([1.0, 0.0] * 4)

    alone = updated(state, fresh)
    among_others = updated(state, replace(fresh, run_decisions=np.full(8, 3)))

    assert alone.diagnostics.ppo_skipped == "runs have one decision"
    assert alone.state.counts.updates == 1
    assert alone.state.policy.base.gains.any()
    assert not alone.state.policy.weights.any()
    assert alone.diagnostics.entropy is not None
    assert among_others.diagnostics.ppo_skipped is None
    assert among_others.state.policy.weights.any()


def test_a_point_whose_runs_got_shorter_loses_what_ppo_added() -> None:
    state, fresh = LearnerState.initial(SMALL), one_step([1.0, 0.0] * 4)
    long = updated(state, replace(fresh, run_decisions=np.full(8, 2))).state
    for seed in range(8):
        long = updated(long, fresh, seed=seed).state

    assert long.counts.run_decisions < 1.5 * long.counts.rollouts
    assert not long.policy.weights.any()
    assert not long.policy.net.shape.outputs
    assert long.adam.steps == 0


def test_without_ppo_the_critic_is_right_on_average() -> None:
    state = LearnerState.initial(SMALL)
    poor, good = one_step([0.0, 0.2] * 16), one_step([0.8, 1.0] * 4)

    state = updated(state, poor).state
    found = updated(state, good).state

    values = batch(found.policy, good).contexts.dot(found.policy.critic)
    assert values.mean() == pytest.approx(0.9, abs=1e-9)
