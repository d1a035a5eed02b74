"""A host that chooses by knowledge that the policy lacks does not damage what the policy learns.

What is hidden (``z``) is one of two; option ``a`` earns 1 where it is 1 and nothing else, so half
on average. ``b`` and ``c`` earn 0.7 in the language that suits them and 0.2 in the other. Without
knowing ``z``, ``a`` is never the best; the insider takes it whenever it earns 1.
"""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tau_live.core.records import (
    Decision,
    LearnableRollout,
    PolicyVersion,
    Reason,
    Reward,
    Rollout,
    RolloutStatus,
)
from tau_live.core.settings import Settings
from tau_live.decisions.decider import Decider
from tau_live.learn.learner import PointLearner
from tau_live.rl.config import PPOConfig
from tau_live.rl.features import encode
from tau_live.rl.policy import Policy, PolicyConfig
from tau_live.rl.state import LearnerState
from tests.rl.digests import digest_of

OPTIONS = ("a", "b", "c")
SUITS = {"de": (0.7, 0.2), "en": (0.2, 0.7)}
BEST = 0.7
ROUNDS, EACH = 8, 32


class World:
    """Makes rollouts, of the policy and of the insider, and learns from them.

    Args:
        seed: Of everything that is drawn.
        insider: ``none``, ``own`` (without a propensity, as it is) or ``posing`` (as if the policy
            had drawn what the insider chose).
        learn_from_host: The setting.
    """

    def __init__(self, seed: int, *, insider: str, learn_from_host: bool = False) -> None:
        self.rngs = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
        self.insider = insider
        self.settings = Settings(
            store=Path("store.sqlite"), seed=seed, learn_from_host=learn_from_host
        )
        self.state = LearnerState.initial(PolicyConfig())
        self.versions: list[PolicyVersion] = []
        self.past: list[LearnableRollout] = []
        self.made = 0

    def lived(self) -> LearnerState:
        """Return what comes of all rounds."""
        for _ in range(ROUNDS):
            fresh = [self.rollout(by_insider=False) for _ in range(EACH)]
            if self.insider != "none":
                fresh += [self.rollout(by_insider=True) for _ in range(EACH)]
            self.learn(fresh)
        return self.state

    def rollout(self, *, by_insider: bool) -> LearnableRollout:
        rng = self.rngs[by_insider]
        lang, hidden = ("de", "en")[int(rng.integers(2))], bool(rng.random() < 0.5)
        means = (float(hidden), *SUITS[lang])
        id_ = f"{'insider' if by_insider else 'policy'}-{rng.integers(2**60)}"
        decider = Decider(self.state.policy, seed=self.settings.seed)
        made = decider.choose(
            id_,
            point="model",
            options=[(name, None) for name in OPTIONS],
            context={"lang": lang},
            default=None,
        )
        place = int(np.argmax(means)) if by_insider else made.place
        self.made += 1
        decision = Decision(
            rollout_id=id_,
            attempt=1,
            ordinal=1,
            point="model",
            options=OPTIONS,
            chosen=OPTIONS[made.place],
            applied=OPTIONS[place],
            propensity=None if by_insider else made.propensity,
            probabilities=made.probabilities,
            value=made.value,
            policy_version=len(self.versions),
            at=float(self.made),
            encoded=made.encoded,
        )
        if by_insider and self.insider == "posing":
            decision = replace(
                decision, chosen=OPTIONS[place], propensity=made.probabilities[place]
            )
        return rewarded(decision, float(rng.random() < means[place]), self.made)

    def learn(self, fresh: list[LearnableRollout]) -> None:
        point_learner = PointLearner(
            self.settings,
            PPOConfig(),
            point="model",
            versions=self.versions,
            state=self.state,
            at=float(self.made),
        )
        result, _ = point_learner.learn(fresh, self.past, new=point_learner.collect(fresh))
        self.past += fresh
        if result is None or result.skipped_reason or result.undone:
            return
        self.state = result.state
        number = len(self.versions) + 1
        self.versions.append(
            PolicyVersion(version=number, point="model", parent=number - 1, algorithm="ppo",
                          sha256="", file="", rollouts=0, created_at=float(self.made))
        )  # fmt: skip


def rewarded(decision: Decision, reward: float, number: int) -> LearnableRollout:
    rollout = Rollout(
        rollout_id=decision.rollout_id,
        status=RolloutStatus.SUCCEEDED,
        reason=Reason.COMPLETED,
        owner="here",
        total_reward=reward,
        ready_seq=number,
    )
    given = Reward(rollout_id=decision.rollout_id, value=reward, at=decision.at)
    return LearnableRollout(rollout, [decision], [given])


def worth(policy: Policy) -> float:
    """Return what a policy earns on average, exactly."""
    found = []
    for lang, means in SUITS.items():
        encoded = encode({"lang": lang}, [(name, None) for name in OPTIONS])
        found.append(float(policy.probabilities(encoded) @ np.array([0.5, *means])))
    return sum(found) / len(found)


@pytest.mark.slow
def test_a_host_that_knows_more_does_not_damage_the_policy() -> None:
    seeds = range(5)

    alone = [World(seed, insider="none").lived() for seed in seeds]
    off = [World(seed, insider="own").lived() for seed in (0, 1)]
    on = [World(seed, insider="own", learn_from_host=True).lived() for seed in seeds]
    posing = [World(seed, insider="posing").lived() for seed in seeds]

    assert [digest_of(one) for one in off] == [digest_of(one) for one in alone[:2]]
    without, with_, fooled = (
        np.array([worth(one.policy) for one in states]) for states in (alone, on, posing)
    )
    noise = float(without.std(ddof=1) / np.sqrt(len(without)))
    assert with_.mean() >= without.mean() - max(2.0 * noise, 0.02)
    assert without.mean() > 0.9 * BEST
    assert fooled.mean() < without.mean() - 0.05  # or this task would show nothing
    assert digest_of(on[0]) != digest_of(off[0])
