"""Bundles are what the updates of a real store learned from."""

import math
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

import tau_live
from tau_live.core.errors import TauLiveError
from tau_live.core.records import RolloutQuery
from tau_live.core.settings import Learner, Settings
from tau_live.evidence.bundles import bundles
from tau_live.evidence.payloads import Bundle, lineage
from tau_live.learn.trajectories import CUT_OFF
from tau_live.rl.config import PPOConfig
from tau_live.rl.gae import gae
from tau_live.store.opening import open_at
from tau_live.store.roles import Store
from tests.docs.blocks import blocks
from tests.writes import forget_old

pytestmark = pytest.mark.slow  # its agent learns

RUNS = 32
PPO = PPOConfig()


class StoppedError(KeyboardInterrupt):
    """Interrupts a run."""


@contextmanager
def on(settings: Settings) -> Iterator[None]:
    """Switch tau-live on in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAU_LIVE_RL", "1")
        tau_live.detach()
        assert tau_live.attach(settings) is not None
        yield
        tau_live.detach()


def live() -> None:
    """Let an agent of two steps a run live, whose every fourth run is interrupted."""
    for key in range(RUNS):
        with suppress(StoppedError), tau_live.run("answer", key=key) as run:
            plan = run.decide("step", ["look", "guess"], default="guess", context={"n": key})
            run.reward(0.25, name="plan", decision=plan)
            tool = run.decide("step", ["web", "book"], default="book", context={"n": -key})
            if key % 4 == 3:
                run.reward(0.5, decision=tool)
                raise StoppedError
            run.reward(float(tool.option == "web"))
        if key % 8 == 7:
            assert tau_live.flush(30)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    settings = Settings(
        store=tmp_path_factory.mktemp("taught") / "store.sqlite",
        learner=Learner.FLUSH,
        decide_deadline_ms=60_000.0,
        control_share=0.3,
        update_interval=8,
        max_rollouts_per_update=8,
    )
    with on(settings):
        live()
    return settings


@pytest.fixture
def copied(settings: Settings, tmp_path: Path) -> Settings:
    """A copy of the store, to be changed."""
    folder = tmp_path / "copied"
    shutil.copytree(settings.store.parent, folder)
    return replace(settings, store=folder / settings.store.name)


@pytest.fixture
def taught(settings: Settings) -> Iterator[Store]:
    store = open_at(settings.store, read_only=True)
    yield store
    store.close()


@pytest.fixture
def exported(taught: Store, settings: Settings) -> list[Bundle]:
    return list(bundles(taught, settings))


def test_every_rollout_that_an_update_learned_from_is_there_once(
    taught: Store, exported: list[Bundle]
) -> None:
    updates = [row for row in taught.policies.updates() if row.executed]
    ids = [bundle.trajectory.rollout_id for bundle in exported]

    assert len(updates) > 1
    assert len(ids) == len({*ids}) == sum(row.trajectories for row in updates)
    assert sum(len(bundle.trajectory.steps) for bundle in exported) == sum(
        row.samples for row in updates
    )


def test_rewards_and_choices_are_those_stored(taught: Store, exported: list[Bundle]) -> None:
    for bundle in exported:
        trajectory = bundle.trajectory
        assert trajectory.rollout_id is not None
        total = taught.rollouts.rollout(trajectory.rollout_id).total_reward
        stored = taught.decisions.decisions(trajectory.rollout_id)

        assert trajectory.total_return == pytest.approx(total, abs=1e-12)
        assert [step.action for step in trajectory.steps] == [row.applied for row in stored]
        assert [step.value_estimate for step in trajectory.steps] == [row.value for row in stored]
        assert [step.logprob for step in trajectory.steps] == [
            math.log(row.propensity or 0.0) for row in stored
        ]


def test_advantages_are_those_of_gae(exported: list[Bundle]) -> None:
    for bundle in exported:
        steps = bundle.trajectory.steps
        values = np.array([step.value_estimate or 0.0 for step in steps])
        expected = gae(
            np.array([step.reward for step in steps]),
            np.array([0.0 if step.done else PPO.gamma for step in steps]),
            values,
            float(values[-1]),
            lambda_=PPO.lambda_,
        )

        np.testing.assert_allclose(bundle.advantages.advantages, expected.advantages, atol=1e-12)
        np.testing.assert_allclose(bundle.advantages.value_targets, expected.returns, atol=1e-12)


def test_only_a_run_that_was_cut_off_is_not_done(taught: Store, exported: list[Bundle]) -> None:
    cut_off = {
        row.rollout_id
        for row in taught.rollouts.query(RolloutQuery()).rollouts
        if row.reason in CUT_OFF
    }

    not_done = {
        bundle.trajectory.rollout_id for bundle in exported if not bundle.trajectory.steps[-1].done
    }

    assert not_done
    assert not_done == cut_off & {bundle.trajectory.rollout_id for bundle in exported}
    assert not any(step.done for bundle in exported for step in bundle.trajectory.steps[:-1])


def test_the_checkpoints_are_one_lineage_and_count_what_they_were_taught(
    exported: list[Bundle],
) -> None:
    checkpoints = {bundle.checkpoint.checkpoint_id: bundle.checkpoint for bundle in exported}

    path = lineage(checkpoints.values(), exported[-1].checkpoint.checkpoint_id)

    assert path == [*checkpoints.values()]
    assert path[-1].global_step == sum(len(bundle.trajectory.steps) for bundle in exported)
    assert path[-1].episode_count == len(exported)
    for one in path:
        own = [bundle.trajectory for bundle in exported if bundle.checkpoint == one]
        mean = np.mean([trajectory.total_return for trajectory in own])
        assert one.mean_reward == pytest.approx(mean)


def test_a_reward_that_came_later_changes_no_figure_and_is_said(
    settings: Settings, exported: list[Bundle], copied: Settings
) -> None:
    before = exported[0].trajectory
    assert before.rollout_id is not None
    with on(copied):
        assert tau_live.reward(5.0, run=before.rollout_id, key="late")
        assert tau_live.flush(30)

    with closing(open_at(copied.store, read_only=True)) as store:
        after = next(bundles(store, copied)).trajectory

    assert after.steps == before.steps
    assert after.metadata.keys() - before.metadata.keys() == {"since"}
    assert "the reward has changed" in str(after.metadata["since"])


def test_settings_that_would_have_learned_from_more_are_refused(
    taught: Store, settings: Settings
) -> None:
    other = replace(settings, learn_from_host=True)

    with pytest.raises(TauLiveError, match="export with the settings that it had"):
        list(bundles(taught, other))


def test_what_was_forgotten_is_left_out(exported: list[Bundle], copied: Settings) -> None:
    with closing(open_at(copied.store)) as store:
        gone = forget_old(store, before=time.time() + 1.0, limit=3)

        left = list(bundles(store, copied))

    assert gone == 3
    assert 0 < len(exported) - len(left) <= 3
    assert left[0].checkpoint.mean_reward is None
    assert left[-1] == exported[-1]


def test_the_line_that_the_documentation_shows_is_a_bundle() -> None:
    page = (Path(__file__).parents[2] / "docs/howto/record-replay.md").read_text()
    shown = [block.text for block in blocks(page) if block.language == "json"]

    read = [msgspec.json.decode(text, type=Bundle) for text in shown]

    assert [bundle.trajectory.total_return for bundle in read] == [1.0]
