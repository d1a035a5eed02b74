"""Why a decision was made as it was: what is stored of it, and what its version makes of that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tau_live.errors import CheckpointError, DiffersError, UnknownError
from tau_live.learning.trajectories import Collected, trajectories_of
from tau_live.learning.usable import explored_of, mask_of
from tau_live.policies.files import checkpoint_folder, load_policy, policy_config
from tau_live.reasons import SENTENCES, WhyNot
from tau_live.rewards.settling import earned_by_decisions, earned_early
from tau_live.rl.config import PPOConfig
from tau_live.rl.explaining import terms
from tau_live.rl.features import Encoded, unpack
from tau_live.rl.gae import gae
from tau_live.rl.policy import Policy
from tau_live.rollouts import Decision, Reward, Rollout
from tau_live.settings import Settings
from tau_live.store.records import LearnableRollout
from tau_live.store.roles import Store

CLOSE = 1e-9
"""Probabilities that are no further apart are the same."""


class Recomputed(NamedTuple):
    """What a version makes of a stored decision.

    Attributes:
        terms: By name, what each adds to the logit of every option; empty where not known.
        probabilities: ``[A]``, as its version gives them; ``None`` where that is not known.
        difference: The largest from those stored; ``None`` where there is nothing to compare.
        problem: Why something is not known; ``None`` where all is.
    """

    terms: Mapping[str, Sequence[float]]
    probabilities: Sequence[float] | None
    difference: float | None
    problem: str | None


class Credit(NamedTuple):
    """What a decision got afterwards.

    Attributes:
        state: ``learned``, ``ready``, ``waiting`` or ``left out``.
        why: Why nothing is learned from it; ``None`` where something is.
        reward: What followed it before the next step of its point.
        return_: What followed it until the end, discounted.
        advantage: How much better that was than its version had expected.
        update: The update that learned from it.
    """

    state: str
    why: str | None
    reward: float | None
    return_: float | None
    advantage: float | None
    update: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Everything there is to say about one decision.

    Attributes:
        decision: As it is stored.
        rollout: Its rollout.
        gate: The gate's state when it was made.
        share: The share of rollouts that the learner might decide then; ``None`` if not recorded.
        recomputed: What its version makes of it now.
        rewards: Those of the decision, and those of its whole rollout.
        credit: What came of it.
    """

    decision: Decision
    rollout: Rollout
    gate: str
    share: float | None
    recomputed: Recomputed
    rewards: Sequence[Reward]
    credit: Credit


def why(store: Store, settings: Settings, decision_id: str) -> Why:
    """Return everything there is to say about a decision.

    Raises:
        UnknownError: No such decision is stored.
    """
    decision = store.decisions.decision(decision_id)
    rollout = store.rollouts.rollout(decision.rollout_id)
    rewards = store.rewards.rewards(decision.rollout_id)
    return Why(
        decision=decision,
        rollout=rollout,
        gate=gate_at(store, decision.at),
        share=getattr(decision, "share", None),
        recomputed=recomputed(store, settings, decision),
        rewards=[one for one in rewards if one.decision_id in (None, decision_id)],
        credit=credit_of(store, settings, rollout, decision),
    )


def checked(found: Why) -> None:
    """Refuse a decision whose stored probabilities are not those that its version gives.

    Raises:
        DiffersError: They are not, or it cannot be told.
    """
    told = found.recomputed
    name = found.decision.decision_id
    if told.problem is not None or told.difference is None:
        raise DiffersError(f"cannot recompute {name}: {told.problem}")
    if not told.difference <= CLOSE:
        version = found.decision.policy_version
        hint = "" if version else "; version 0 is built from the settings, which may have changed"
        raise DiffersError(
            f"{name}: version {version} gives other probabilities than those stored, "
            f"by up to {told.difference:.3g}{hint}"
        )


def gate_at(store: Store, at: float) -> str:
    """Return the state of the gate at a time, in epoch seconds."""
    before = (entry for entry in store.gate.log() if entry.at <= at)
    latest = next(before, None)
    return latest.state if latest is not None else "pass"


def recomputed(store: Store, settings: Settings, decision: Decision) -> Recomputed:
    """Return what the version that decided makes of the stored features."""
    found = _encoded(decision)
    if isinstance(found, str):
        return Recomputed({}, None, None, found)
    policy = _policy(store, settings, decision.policy_version)
    if isinstance(policy, str):
        return Recomputed({}, None, None, policy)
    options = decision.options
    default = options.index(decision.default) if decision.default in options else None
    mask, explored = mask_of(decision), explored_of(decision)
    try:
        probabilities = policy.probabilities(
            found, default=default, allowed=mask, explored=explored
        )
        added = terms(policy, found, default=default, allowed=mask, explored=explored)
    except ValueError as error:
        return Recomputed({}, None, None, str(error))
    told = {name: values.tolist() for name, values in added.items()}
    if len(decision.probabilities) != len(options):
        problem = "no probabilities are stored: the policy did not decide"
        return Recomputed(told, probabilities.tolist(), None, problem)
    difference = float(np.abs(probabilities - np.array(decision.probabilities)).max())
    return Recomputed(told, probabilities.tolist(), difference, None)


def _encoded(decision: Decision) -> Encoded | str:
    if not decision.encoded:
        return SENTENCES[WhyNot.NO_FEATURES]
    try:
        encoded = unpack(decision.encoded)
    except ValueError:
        return SENTENCES[WhyNot.FEATURES_DAMAGED]
    fits = encoded.options == len(decision.options) > 0
    return encoded if fits else SENTENCES[WhyNot.FEATURES_DAMAGED]


def _policy(store: Store, settings: Settings, version: int) -> Policy | str:
    if version == 0:
        return Policy.untrained(policy_config(settings))
    folder = checkpoint_folder(settings)
    try:
        row = store.policies.version(version)
        if not (folder / row.file).exists():
            return f"the checkpoint of version {version} was pruned"
        return load_policy(folder, row)
    except UnknownError:
        return f"version {version} is not in this store: it belongs to another store or was pruned"
    except CheckpointError as error:
        return str(error)


def credit_of(store: Store, settings: Settings, rollout: Rollout, decision: Decision) -> Credit:
    """Return what a decision got afterwards, as an update learns from it."""
    return credits_of(store, settings, rollout, point=decision.point)[decision.decision_id]


def credits_of(
    store: Store, settings: Settings, rollout: Rollout, *, point: str
) -> dict[str, Credit]:
    """Return what each decision of a rollout at one point got afterwards, by its id."""
    decisions = store.decisions.decisions(rollout.rollout_id)
    whole = LearnableRollout(rollout, decisions, store.rewards.rewards(rollout.rollout_id))
    found = trajectories_of(
        [whole],
        point,
        versions=[],
        discount=PPOConfig().gamma,
        earned=lambda one: earned_by_decisions(one, settings),
        early=lambda one: earned_early(one, settings),
        learn_from_host=settings.learn_from_host,
    )
    reasons = {one.decision_id: one.reason for one in found.left_out}
    learned = _learned(store, point, rollout, found)
    return {
        one.decision_id: learned.get(one.decision_id)
        or _left_out(rollout, reasons.get(one.decision_id) or reasons.get(None))
        for one in decisions
        if one.point == point
    }


def _left_out(rollout: Rollout, reason: str | None) -> Credit:
    waits = rollout.ready_seq is None
    why_not = SENTENCES[WhyNot.REWARD_NOT_DUE if waits else WhyNot(reason or WhyNot.NO_REWARD)]
    return Credit("waiting" if waits else "left out", why_not, None, None, None, None)


def _learned(store: Store, point: str, rollout: Rollout, found: Collected) -> dict[str, Credit]:
    """Return the credit of each decision that can be learned from, by its id."""
    one = found.trajectories
    if one is None:
        return {}
    whole_return = gae(one.reward, one.discount, 0.0 * one.value, 0.0, lambda_=1.0)
    bootstrap, lambda_ = float(one.bootstrap[0]), PPOConfig().lambda_
    estimated = gae(one.reward, one.discount, one.value, bootstrap, lambda_=lambda_)
    update = _update_of(store, point, rollout.ready_seq)
    return {
        decision.decision_id: Credit(
            state="ready" if update is None else "learned",
            why=None,
            reward=float(one.reward[at]),
            return_=float(whole_return.returns[at]),
            advantage=float(estimated.advantages[at]),
            update=update,
        )
        for at, decision in enumerate(found.decisions)
    }


def _update_of(store: Store, point: str, ready_seq: int | None) -> int | None:
    """Return the update that learned from a rollout; skipped ones did not."""
    for row in store.policies.updates(point=point):
        if (
            row.executed
            and ready_seq is not None
            and row.first_ready <= ready_seq <= row.last_ready
        ):
            return row.update
    return None
