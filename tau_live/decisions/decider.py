"""Options in, decision out: in memory, without a lock on the way, never touching the disk."""

import threading
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from tau_live.core.records import Trial
from tau_live.rl.features import Memory, encode
from tau_live.rl.policy import Policy

LEARNER = "learner"
CONTROL = "control"
KEPT_SHARE = 0.05
"""What a champion that was replaced keeps for a while."""


class Arm(NamedTuple):
    """The arm that decides a rollout at a point.

    Attributes:
        name: ``learner`` or ``control``.
        share: The probability with which it would have been the learner; ``None`` where nobody
            was assigned, so that the rollout is in neither arm.
    """

    name: str
    share: float | None


NEITHER = Arm(CONTROL, None)
"""The host decides by itself, and nothing is concluded from that."""


def share_of(
    trial: Trial | None, *, start: float | None, has_control: bool, control_share: float
) -> float:
    """Return the share of rollouts that the learner may decide at a point.

    Args:
        trial: What is known of the point; ``None`` if nothing is.
        start: What the learner decides before any exposure was set, where an adapter acts on a
            host's own decision point; 0 is shadow. ``None`` for an explicit decision.
        has_control: Whether the host named a choice of its own.
        control_share: What is kept back for the control where no exposure was set.
    """
    if trial is not None and trial.stopped is not None:
        return 0.0
    if start is None and not has_control and (trial is None or trial.control is None):
        return 1.0  # there is nothing to compare with, and somebody has to choose
    if trial is not None and trial.exposure is not None and not (start and trial.in_first_shadow):
        share = trial.exposure
    else:
        share = 1.0 - control_share if start is None else start
    if trial is not None and trial.kept:
        share = min(share, 1.0 - KEPT_SHARE)
    return share


FeatureMap = Mapping[str, object]


class Served(NamedTuple):
    """The version that decides at a point."""

    version: int
    policy: Policy


class Decided(NamedTuple):
    """The choice of a policy, with everything that learning from it will need.

    Attributes:
        place: Which of the options, from 0.
        probabilities: One for each option, as the policy gave them.
        propensity: With which probability this option had been chosen; ``None`` if unknown.
        value: Its estimate of the return from here.
        version: Which version decided.
        encoded: The packed features it saw.
    """

    place: int
    probabilities: tuple[float, ...]
    propensity: float | None
    value: float
    version: int
    encoded: bytes

    def with_answer(self, index: int, probability: float | None) -> "Decided":
        """Return this with what a plugin chose instead; our own probabilities do not hold then."""
        own = probability if probability is not None and 0.0 < probability <= 1.0 else None
        return self._replace(place=index, probabilities=(), propensity=own)


class Decider:
    """Holds the serving policy of every decision point.

    Args:
        untrained: What decides where nothing has been learned yet.
        seed: With the decision's own id it determines what is drawn, so that the order in which
            decisions arrive does not matter.

    Attributes:
        paused: Whether the host decides everywhere by itself.
        stopped: The points at which the learner may decide nothing.
    """

    def __init__(self, untrained: Policy, *, seed: int) -> None:
        self._untrained = Served(0, untrained)
        self._seed = seed
        self._served: Mapping[str, Served] = {}
        self._champions: Mapping[str, Served] = {}
        self._trials: Mapping[str, Trial] = {}
        self._memories: dict[int, Memory] = {}
        self.paused = False
        self.stopped: frozenset[str] = frozenset()
        self._changing = threading.Lock()  # for those who change it; nobody waits to decide

    def serve(self, point: str, version: int, policy: Policy) -> None:
        """Let a version decide from now on; decisions under way end with the one they have."""
        before = self._served.get(point, self._untrained).policy
        if before.config.width == policy.config.width:
            policy.layouts.prepare(policy, before.layouts)
        with self._changing:
            self._served = {**self._served, point: Served(version, policy)}

    def withdraw(self, point: str) -> None:
        """Let the untrained policy decide again."""
        with self._changing:
            self._served = {name: held for name, held in self._served.items() if name != point}

    def compare(self, trial: Trial, champion: Policy | None) -> None:
        """Assign rollouts by this trial from now on.

        Args:
            trial: Says which share is the learner's, and which version is the control.
            champion: The policy of that version; ``None`` where the host's own choice is it.
        """
        with self._changing:
            self._trials = {**self._trials, trial.point: trial}
            stopped = {point for point, held in self._trials.items() if held.stopped is not None}
            self.stopped = frozenset(stopped)
            others = {name: held for name, held in self._champions.items() if name != trial.point}
            if champion is not None and trial.control is not None:
                others[trial.point] = Served(trial.control, champion)
            self._champions = others

    def arm(
        self,
        point: str,
        rollout_id: str,
        *,
        start: float | None,
        has_control: bool,
        control_share: float,
    ) -> Arm:
        """Return the arm of a rollout at a point; ``share_of`` says what is what."""
        share = share_of(
            self._trials.get(point),
            start=start,
            has_control=has_control,
            control_share=control_share,
        )
        is_learners = uniform(f"{self._seed}:arm:{rollout_id}") < share
        return Arm(LEARNER if is_learners else CONTROL, share)

    def champion(self, point: str) -> Served | None:
        """Return the version that is the control of a point; ``None`` is the host's own choice."""
        return self._champions.get(point)

    def versions(self) -> dict[str, int]:
        """Return which version serves each point."""
        return {point: held.version for point, held in self._served.items()}

    def choose(  # noqa: PLR0913  # what it depends on
        self,
        decision_id: str,
        *,
        point: str,
        options: Sequence[tuple[str, FeatureMap | None]],
        context: FeatureMap,
        default: int | None,
        allowed: Sequence[bool] | None = None,
        explored: Sequence[bool] | None = None,
        by: Served | None = None,
    ) -> Decided:
        """Choose one of at least one options.

        Args:
            decision_id: Its id, which with the seed determines what is drawn.
            point: The decision point.
            options: ``[A]``, names with their features.
            context: What is known of the situation.
            default: The index of the host's own choice, if it has one.
            allowed: ``[A]``, which of them may be chosen, at least one; ``None`` allows all.
            explored: ``[A]``, which of them may be explored; ``None`` explores all.
            by: Who chooses; ``None`` is the learner.
        """
        version, policy = by or self._served.get(point, self._untrained)
        width = policy.config.width
        memory = self._memories.get(width)
        if memory is None:
            memory = self._memories.setdefault(width, Memory())
        encoded = encode(context, options, width=width, memory=memory)
        mask = None if allowed is None else np.array(allowed, dtype=np.bool_)
        flags = None if explored is None else np.array(explored, dtype=np.bool_)
        judged = policy.judge(encoded, default=default, allowed=mask, explored=flags)
        probabilities = tuple(judged.probabilities.tolist())
        index = draw(probabilities, uniform(f"{self._seed}:{decision_id}"))
        return Decided(
            place=index,
            probabilities=probabilities,
            propensity=probabilities[index],
            value=judged.value,
            version=version,
            encoded=judged.packed,
        )


def uniform(key: str) -> float:
    """Return a number in ``[0, 1)`` that the key alone determines, with 53 random bits."""
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def draw(probabilities: Sequence[float], at: float) -> int:
    """Return the option in whose share of ``[0, 1)`` the number falls; never one that has none."""
    below = 0.0
    last = 0
    for index, probability in enumerate(probabilities):
        if probability <= 0.0:
            continue
        below += probability
        last = index
        if at < below:
            return index
    return last
