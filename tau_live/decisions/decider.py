"""Options in, decision out: in memory, without taking a lock, never touching the disk."""

import threading
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from tau_live.core.records import Trial
from tau_live.rl.features import Features, Memory, encode
from tau_live.rl.policy import Policy

LEARNER = "learner"
CONTROL = "control"
KEPT_SHARE = 0.05
"""The share of rollouts that the previous champion keeps during a probation."""


class Arm(NamedTuple):
    """The arm that decides a rollout at a point.

    Attributes:
        name: ``learner`` or ``control``.
        share: The probability of the learner's assignment, in ``[0, 1]``; ``None`` where neither
            arm was assigned.
    """

    name: str
    share: float | None


NEITHER = Arm(CONTROL, None)
"""The host decides by itself, and the rollout is no evidence for either arm."""


def share_of(
    trial: Trial | None, *, start: float | None, has_control: bool, control_share: float
) -> float:
    """Return the share of rollouts that the learner may decide at a point.

    Args:
        trial: The trial of the point; ``None`` if there is none.
        start: The learner's share before any exposure was set, where an adapter acts on a host's
            own decision point; 0 is shadow. ``None`` for an explicit decision.
        has_control: Whether the host named a choice of its own.
        control_share: The control's share where no exposure was set, in ``[0, 1]``.
    """
    if trial is not None and trial.stopped is not None:
        return 0.0
    if start is None and not has_control and (trial is None or trial.control is None):
        return 1.0  # there is nothing to compare with, and the host has no choice of its own
    if trial is not None and trial.exposure is not None and not (start and trial.in_first_shadow):
        share = trial.exposure
    else:
        share = 1.0 - control_share if start is None else start
    if trial is not None and trial.kept:
        share = min(share, 1.0 - KEPT_SHARE)
    return share


class ServingVersion(NamedTuple):
    """The version that decides at a point."""

    version: int
    policy: Policy


class PolicyChoice(NamedTuple):
    """The choice of a policy, with everything that learning from it will need.

    Attributes:
        place: The index of the chosen option, from 0.
        probabilities: One for each option, as the policy gave them.
        propensity: The probability of the chosen option; ``None`` if unknown.
        value: The estimate of the return from here, in units of reward.
        version: The version that decided.
        encoded: The packed features that it saw.
    """

    place: int
    probabilities: tuple[float, ...]
    propensity: float | None
    value: float
    version: int
    encoded: bytes

    def with_answer(self, index: int, probability: float | None) -> "PolicyChoice":
        """Return this with a plugin's choice instead, to which our probabilities do not apply."""
        own = probability if probability is not None and 0.0 < probability <= 1.0 else None
        return self._replace(place=index, probabilities=(), propensity=own)


class Decider:
    """Holds the serving policy of every decision point.

    Args:
        untrained: The policy of points without a version.
        seed: With the decision's own id it determines the draw, so that the order in which
            decisions arrive does not matter.

    Attributes:
        paused: Whether the host decides everywhere by itself.
        stopped: The points at which the learner decides nothing.
        permitted_until: Seconds of the monotonic clock after which no policy may decide.
    """

    def __init__(self, untrained: Policy, *, seed: int) -> None:
        self._untrained = ServingVersion(0, untrained)
        self._seed = seed
        self._served: Mapping[str, ServingVersion] = {}
        self._champions: Mapping[str, ServingVersion] = {}
        self._trials: Mapping[str, Trial] = {}
        self._memories: dict[int, Memory] = {}
        self.paused = False
        self.permitted_until = float("inf")
        self.stopped: frozenset[str] = frozenset()
        self._write_lock = threading.Lock()  # for writers alone; deciding takes no lock

    def permit(self, until: float) -> None:
        """Let policies decide until a time, in seconds of the monotonic clock."""
        self.permitted_until = until

    def serve(self, point: str, version: int, policy: Policy) -> None:
        """Put a version into service; decisions under way end with the one that they began with."""
        before = self._served.get(point, self._untrained).policy
        if before.config.width == policy.config.width:
            policy.layouts.prepare(policy, before.layouts)
        with self._write_lock:
            self._served = {**self._served, point: ServingVersion(version, policy)}

    def withdraw(self, point: str) -> None:
        """Put the untrained policy into service again."""
        with self._write_lock:
            self._served = {
                name: serving for name, serving in self._served.items() if name != point
            }

    def compare(self, trial: Trial, champion: Policy | None) -> None:
        """Assign rollouts by this trial from now on.

        Args:
            trial: Holds the learner's share, and the version that is the control.
            champion: The policy of that version; ``None`` where the control is the host's own
                choice.
        """
        with self._write_lock:
            self._trials = {**self._trials, trial.point: trial}
            self.stopped = frozenset(
                point for point, known in self._trials.items() if known.stopped is not None
            )
            champions = {**self._champions}
            champions.pop(trial.point, None)
            if champion is not None and trial.control is not None:
                champions[trial.point] = ServingVersion(trial.control, champion)
            self._champions = champions

    def arm(
        self,
        point: str,
        rollout_id: str,
        *,
        start: float | None,
        has_control: bool,
        control_share: float,
    ) -> Arm:
        """Draw the arm of a rollout at a point; arguments as for ``share_of``."""
        share = share_of(
            self._trials.get(point),
            start=start,
            has_control=has_control,
            control_share=control_share,
        )
        is_learner = uniform(f"{self._seed}:arm:{rollout_id}") < share
        return Arm(LEARNER if is_learner else CONTROL, share)

    def champion(self, point: str) -> ServingVersion | None:
        """Return the version that is the control of a point; ``None`` is the host's own choice."""
        return self._champions.get(point)

    def versions(self) -> dict[str, int]:
        """Return the version in service at each point."""
        return {point: serving.version for point, serving in self._served.items()}

    def choose(  # noqa: PLR0913  # keyword-only but for one
        self,
        decision_id: str,
        *,
        point: str,
        options: Sequence[tuple[str, Features | None]],
        context: Features,
        default: int | None,
        allowed: Sequence[bool] | None = None,
        explored: Sequence[bool] | None = None,
        by: ServingVersion | None = None,
    ) -> PolicyChoice:
        """Choose one of the options.

        Args:
            decision_id: Its id, which with the seed determines the draw.
            point: The decision point.
            options: ``[A]``, names with their features, at least one.
            context: The context of the decision.
            default: The index of the host's own choice; ``None`` if it has none.
            allowed: ``[A]``, which of them are allowed, at least one; ``None`` allows all.
            explored: ``[A]``, which of them may be explored; ``None`` explores all.
            by: The version that chooses; ``None`` takes the learner's.
        """
        version, policy = by or self._served.get(point, self._untrained)
        width = policy.config.width
        memory = self._memories.get(width)
        if memory is None:
            memory = self._memories.setdefault(width, Memory())
        encoded = encode(context, options, width=width, memory=memory)
        mask = None if allowed is None else np.array(allowed, dtype=np.bool_)
        flags = None if explored is None else np.array(explored, dtype=np.bool_)
        judgement = policy.judge(encoded, default=default, allowed=mask, explored=flags)
        probabilities = tuple(judgement.probabilities.tolist())
        index = draw(probabilities, uniform(f"{self._seed}:{decision_id}"))
        return PolicyChoice(
            place=index,
            probabilities=probabilities,
            propensity=probabilities[index],
            value=judgement.value,
            version=version,
            encoded=judgement.packed,
        )


def uniform(key: str) -> float:
    """Return a number in ``[0, 1)`` hashed from the key, with 53 random bits."""
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def draw(probabilities: Sequence[float], at: float) -> int:
    """Return the index of the option in whose share of ``[0, 1)`` ``at`` falls, never one of 0."""
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
