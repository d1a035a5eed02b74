"""The explanation of a decision: its stored facts, and the recomputation by its version."""

from collections.abc import Mapping, Sequence
from contextlib import closing

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tau_live.core.errors import CheckpointError, DiffersError, OddRowError, UnknownError
from tau_live.core.prompts import POOL
from tau_live.core.reasons import SENTENCES, WhyNot
from tau_live.core.records import Decision, LearnableRollout, Reward, Rollout, Update
from tau_live.core.settings import Settings
from tau_live.decisions.policies import load_policy, policy_config
from tau_live.decisions.prompts import pool_content
from tau_live.learn.trajectories import CollectedRollouts, explored_of, mask_of, trajectories_of
from tau_live.record.rewards import outcome_of
from tau_live.rl.config import PPOConfig
from tau_live.rl.features import Encoded, unpack
from tau_live.rl.gae import gae
from tau_live.rl.policy import Policy, terms
from tau_live.store.opening import open_at
from tau_live.store.roles import Store


class Recomputed(Struct, frozen=True):
    """The recomputation of a stored decision by a version.

    Attributes:
        terms: ``[A]`` contributions to the logit of every option, by name; empty where unknown.
        probabilities: ``[A]``, from its version; ``None`` where unknown.
        difference: Largest difference from those stored; ``None`` where there is no comparison.
        problem: Why something is unknown; ``None`` where all is known.
    """

    terms: Mapping[str, Sequence[float]] = {}
    probabilities: Sequence[float] | None = None
    difference: float | None = None
    problem: str | None = None


class Credit(Struct, frozen=True, kw_only=True, rename={"return_": "return"}):
    """The credit of a decision; also its JSON form.

    Attributes:
        state: ``learned``, ``ready``, ``waiting`` or ``left out``.
        why: Why nothing is learned from it; ``None`` where something is.
        reward: The reward before the next step of its point.
        return_: The discounted return until the end.
        advantage: How much better the return was than its version had expected.
        update: The update that learned from it.
        since: How rewards changed after that update; ``None`` where they did not.
    """

    state: str
    why: str | None = None
    reward: float | None = None
    return_: float | None = None
    advantage: float | None = None
    update: int | None = None
    since: str | None = None


class UsedPool(Struct, frozen=True):
    """The pool of lessons in a prompt that was decided.

    Attributes:
        version: Its version.
        lessons: ``[id, version]`` of its lessons; empty if the pool is not found any more.
    """

    version: str
    lessons: Sequence[object] = ()


class Why(Struct, frozen=True, kw_only=True):
    """The explanation of one decision.

    Attributes:
        decision: The stored decision.
        rollout: Its rollout.
        gate: The gate's state when it was made.
        recomputed: Its recomputation by its version.
        rewards: Rewards of the decision, and of its whole rollout.
        credit: Its credit.
        pool: The pool of lessons that the agent took, or would have taken; ``None`` without one.
    """

    decision: Decision
    rollout: Rollout
    gate: str
    recomputed: Recomputed
    rewards: Sequence[Reward]
    credit: Credit
    pool: UsedPool | None = None


def why(store: Store, settings: Settings, decision_id: str) -> Why:
    """Return the explanation of a decision.

    Raises:
        UnknownError: No such decision is stored.
    """
    decision = store.decisions.decision(decision_id)
    rollout = store.rollouts.rollout(decision.rollout_id)
    rewards = store.rewards.rewards(decision.rollout_id)
    credits_ = credits_of(store, settings, rollout, point=decision.point)
    return Why(
        decision=decision,
        rollout=rollout,
        gate=gate_at(store, decision.at),
        recomputed=recompute(store, settings, decision),
        rewards=[reward for reward in rewards if reward.decision_id in (None, decision_id)],
        credit=credits_[decision_id],
        pool=_pool(store, settings, decision),
    )


def _pool(store: Store, settings: Settings, decision: Decision) -> UsedPool | None:
    names = (decision.applied or "", decision.chosen or "")
    option = next((name for name in names if name.startswith(POOL)), None)
    if option is None:
        return None
    declared = (each for each in settings.decisions if each.point == decision.point)
    key = next((each.prompt_key for each in declared), None)
    path, content = settings.prompts_store, None
    if key is not None and path in {None, settings.store}:
        content = pool_content(store, option, key)
    elif key is not None and path is not None and path.exists():
        with closing(open_at(path, read_only=True)) as prompts:
            content = pool_content(prompts, option, key)
    lessons = (content or {}).get("lessons")
    return UsedPool(option.removeprefix(POOL), lessons if isinstance(lessons, list) else [])


def check_probabilities(explanation: Why) -> None:
    """Check that the stored probabilities of a decision are those that its version gives.

    Raises:
        DiffersError: They differ, or cannot be recomputed.
    """
    result = explanation.recomputed
    name = explanation.decision.decision_id
    if result.problem is not None or result.difference is None:
        raise DiffersError(f"cannot recompute {name}: {result.problem}")
    if not result.difference <= 1e-9:  # also refuses NaN
        version = explanation.decision.policy_version
        hint = "" if version else "; version 0 is built from the settings, which may have changed"
        raise DiffersError(
            f"{name}: version {version} gives other probabilities than those stored, "
            f"by up to {result.difference:.3g}{hint}"
        )


def gate_at(store: Store, at: float) -> str:
    """Return the state of the gate at a time, in epoch seconds."""
    return next((entry.state for entry in store.gate.log() if entry.at <= at), "pass")


def recompute(store: Store, settings: Settings, decision: Decision) -> Recomputed:
    """Return the recomputation of a decision by the version that decided."""
    encoded = _features(decision)
    if isinstance(encoded, str):
        return Recomputed(problem=encoded)
    policy = _policy(store, settings, decision.policy_version)
    if isinstance(policy, str):
        return Recomputed(problem=policy)
    options = decision.options
    default = options.index(decision.default) if decision.default in options else None
    mask, explored = mask_of(decision), explored_of(decision)
    try:
        probabilities = policy.probabilities(
            encoded, default=default, allowed=mask, explored=explored
        )
        arrays = terms(policy, encoded, default=default, allowed=mask, explored=explored)
    except ValueError as error:
        return Recomputed(problem=str(error))
    added_terms = {name: values.tolist() for name, values in arrays.items()}
    if len(decision.probabilities) != len(options):
        problem = "no probabilities are stored: the policy did not decide"
        return Recomputed(added_terms, probabilities.tolist(), None, problem)
    difference = float(np.abs(probabilities - np.array(decision.probabilities)).max())
    return Recomputed(added_terms, probabilities.tolist(), difference, None)


def _features(decision: Decision) -> Encoded | str:
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
        return Policy.initial(policy_config(settings))
    try:
        row = store.policies.version(version)
        if row.file not in store.checkpoints.names():
            return f"the checkpoint of version {version} was pruned"
        return load_policy(store.checkpoints, row)
    except UnknownError:
        return f"version {version} is not in this store: it belongs to another store or was pruned"
    except (CheckpointError, OddRowError) as error:
        return str(error)


def credits_of(
    store: Store, settings: Settings, rollout: Rollout, *, point: str
) -> dict[str, Credit]:
    """Return the credit of each decision of a rollout at one point, by its id."""
    update, since = _update_of(store, point, rollout.ready_seq), None
    decisions = store.decisions.decisions(rollout.rollout_id)
    if store.rollouts.why_left_out(rollout.rollout_id) == WhyNot.ARRIVED_LATE:
        late = Credit(state="left out", why=SENTENCES[WhyNot.ARRIVED_LATE])
        return {one.decision_id: late for one in decisions if one.point == point}
    whole = LearnableRollout(rollout, decisions, store.rewards.rewards(rollout.rollout_id))
    if update is not None:
        whole, since = as_learned(whole, update, settings)
    collected = trajectories_of(
        [whole],
        point,
        versions=[],
        discount=PPOConfig().gamma,
        outcome=lambda known: outcome_of(known.rewards, known.rollout, settings),
        learn_from_host=settings.learn_from_host,
    )
    reasons = {omission.decision_id: omission.reason for omission in collected.left_out}
    learned = _learned_credits(collected)
    if update is not None:
        learned = {
            name: replace(credit, state="learned", update=update.update, since=since)
            for name, credit in learned.items()
        }
    return {
        decision.decision_id: learned.get(decision.decision_id)
        or _left_out(rollout, reasons.get(decision.decision_id) or reasons.get(None))
        for decision in decisions
        if decision.point == point
    }


def as_learned(
    whole: LearnableRollout, update: Update, settings: Settings
) -> tuple[LearnableRollout, str | None]:
    """Return a rollout as an update learned from it, as far as known, and what changed since.

    A reward that is sent again replaces the one before, which is not kept.
    """
    rollout, rewards = whole.rollout, whole.rewards
    earlier = [reward for reward in rewards if reward.value is None or reward.at <= update.at]
    if len(earlier) == len(rewards):
        return whole, None
    before, now = (outcome_of(known, rollout, settings) for known in (earlier, rewards))
    learned = f"since update {update.update} learned from it"
    if before.worth is None:
        return whole, (
            f"rewards were sent again {learned}, so these figures may not be those that it "
            "learned from"
        )
    if before.worth == now.worth:
        return whole, None
    then = replace(rollout, total_reward=before.worth, run_reward=before.total)
    is_now = "none that counts" if now.worth is None else f"{now.worth:g}"
    return whole._replace(rollout=then, rewards=earlier), (
        f"the reward has changed {learned}, from {before.worth:g} to {is_now}; these figures are "
        f"those of {before.worth:g}"
    )


def _left_out(rollout: Rollout, reason: str | None) -> Credit:
    waits = rollout.ready_seq is None
    why_not = SENTENCES[WhyNot.REWARD_NOT_DUE if waits else WhyNot(reason or WhyNot.NO_REWARD)]
    return Credit(state="waiting" if waits else "left out", why=why_not)


def _learned_credits(collected: CollectedRollouts) -> dict[str, Credit]:
    """Return the credit of each decision that can be learned from, by its id."""
    steps = collected.trajectories
    if steps is None:
        return {}
    whole_return = gae(steps.reward, steps.discount, 0.0 * steps.value, 0.0, lambda_=1.0)
    bootstrap, lambda_ = float(steps.bootstrap[0]), PPOConfig().lambda_
    estimated = gae(steps.reward, steps.discount, steps.value, bootstrap, lambda_=lambda_)
    return {
        decision.decision_id: Credit(
            state="ready",
            reward=float(steps.reward[at]),
            return_=float(whole_return.returns[at]),
            advantage=float(estimated.advantages[at]),
        )
        for at, decision in enumerate(collected.decisions)
    }


def _update_of(store: Store, point: str, ready_seq: int | None) -> Update | None:
    """Return the update that learned from a rollout; skipped ones did not."""
    for row in store.policies.updates(point=point):
        if (
            row.executed
            and ready_seq is not None
            and row.first_ready <= ready_seq <= row.last_ready
        ):
            return row
    return None
