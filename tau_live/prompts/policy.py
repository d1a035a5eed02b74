"""The policy of an optimization, which learns to choose among its prompts.

Whoever leads the run chooses the prompt of each item, enqueues as many items as an update takes,
waits for them, and updates by the parts of the live learner. All of that follows from the seed and
the results of items. So the number of workers makes no difference, and a run that was interrupted
goes through the same versions again, without executing an item twice.

What the agent of an item decides itself is chosen by the same version, and learned from alike. The
points are those of the run alone: nothing here serves or changes a live policy.
"""

import itertools
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

import tau_live
from tau_live.core.choices import Choice
from tau_live.core.errors import (
    CheckpointError,
    StoreFilesError,
    StoreUnavailableError,
    TauLiveError,
    UnknownError,
)
from tau_live.core.gate import State as GateState
from tau_live.core.offers import mask_of, own_choice, read_options, text_of
from tau_live.core.prompts import canonical_json
from tau_live.core.records import (
    AuditEntry,
    Claim,
    Decision,
    LearnableRollout,
    PolicyVersion,
    RolloutStatus,
)
from tau_live.core.redaction import clean_id
from tau_live.core.sanitize import JsonObject, Limits, mapping
from tau_live.core.settings import Settings
from tau_live.decisions.checkpoints import Checkpoint, load, prune, save
from tau_live.decisions.choice import UNNAMED, Offer, offer_of
from tau_live.decisions.decider import LEARNER, Decider, PolicyChoice
from tau_live.decisions.policies import policy_config
from tau_live.decisions.runs import RunEvents
from tau_live.learn.learner import ALGORITHM, VERSIONS_KNOWN, PointLearner
from tau_live.learn.trajectories import CollectedRollouts, own_reward
from tau_live.operate.optimizations import LED, state_now
from tau_live.prompts.config import RlOptimizer
from tau_live.prompts.rows import Row, without_secrets
from tau_live.rl.config import Normalization, PPOConfig
from tau_live.rl.features import Features
from tau_live.rl.policy import Policy
from tau_live.rl.ppo import Update, logged_kl
from tau_live.rl.state import LearnerState
from tau_live.store.checkpoints import version_of
from tau_live.store.roles import Checkpoints, Store

POINT = "prompt"
"""The decision point at which an item gets its prompt."""

OWN = "agent."
"""What precedes the names of the points of an agent, so that none is ``POINT``."""

SHORT = 64
"""Characters of the longest text of a row that is part of the context."""

MOST_POINTS = 16
"""Decision points of the agent that are learned; at others the untrained policy decides."""

_DEFAULT = PPOConfig()


def point_of(name: str, run_id: str) -> str:
    """Return the name under which decisions of a run are stored."""
    return f"{name}@{run_id}"


def context_of(row: Row) -> Features:
    """Return the fields of a row that are numbers or short texts, without secrets."""
    task = row.input if isinstance(row.input, Mapping) else {"input": row.input}
    fields = {**row.metadata, **task}
    return {
        name: without_secrets(value)
        for name, value in sorted(fields.items())
        if isinstance(value, int | float) or (isinstance(value, str) and len(value) <= SHORT)
    }


# Choosing


class Policies:
    """The versions of a run's policy, as far as they are needed; of one thread.

    Args:
        seed: Of the run.
    """

    def __init__(self, *, seed: int) -> None:
        self._seed = seed
        self._known: tuple[str, Decider] | None = None

    def decider(self, checkpoints: Checkpoints, name: str) -> Decider:
        """Return the decider of a version, verified when it is loaded; the last one is kept.

        Args:
            checkpoints: Those of the run.
            name: The version's checkpoint; empty is the untrained policy.

        Raises:
            StoreFilesError: It is missing or damaged; the item is tried again.
        """
        if self._known is None or self._known[0] != name:
            try:
                checkpoint = load(checkpoints, name) if name else None
                states = {} if checkpoint is None else states_of(checkpoint)
            except CheckpointError as error:
                raise StoreFilesError(str(error)) from error
            version = 0 if checkpoint is None else checkpoint.version
            self._known = name, decider_of(states, version, seed=self._seed)
        return self._known[1]


def decider_of(states: Mapping[str, LearnerState], version: int, *, seed: int) -> Decider:
    """Return a decider with these policies, and elsewhere the untrained one."""
    decider = Decider(Policy.initial(policy_config(Settings())), seed=seed)
    for point, state in states.items():
        decider.serve(point, version, state.policy)
    return decider


def choose_prompt(
    decider: Decider, pool: Sequence[str], context: Features, *, repeat: int
) -> PolicyChoice:
    """Return the choice of a prompt version; the draw follows from the item's number alone."""
    return decider.choose(
        _key(repeat, POINT, 1),
        point=POINT,
        options=[(version, None) for version in pool],
        context=context,
        default=None,
    )


def _key(repeat: int, point: str, number: int) -> str:
    """Return what a draw follows from, beside the seed: the same in every run of a config."""
    return canonical_json([repeat, point, number]).decode()


class ItemDecisions:
    """The decisions of one attempt at an item.

    Args:
        decider: Decides.
        claim: The attempt.
        run: Its run.
        repeat: The number of the item's repetition, which no other item of the phase has.
        keeps_texts: Whether contexts and features may be stored.
    """

    def __init__(  # keyword-only but for three
        self,
        decider: Decider,
        claim: Claim,
        run: tau_live.Run,
        *,
        repeat: int,
        keeps_texts: bool,
    ) -> None:
        self._decider = decider
        self._claim = claim
        self._repeat = repeat
        self._keeps = keeps_texts
        self._events = RunEvents(stream="optimize", limits=Limits())
        self._lock = threading.Lock()
        handle = run.handle  # the runtime may record decisions of an adapter besides
        self._ordinals = itertools.count(1) if handle is None else handle.ordinals
        self._numbers = itertools.count(1)
        self._made: list[Decision] = []

    @property
    def all(self) -> list[Decision]:
        """The decisions so far, in their order."""
        with self._lock:
            return [*self._made]

    def note_prompt(self, pool: Sequence[str], context: Features) -> None:
        """Note how the item got its prompt, which whoever enqueued it chose in the same way."""
        choice = choose_prompt(self._decider, pool, context, repeat=self._repeat)
        offer = Offer(
            names=tuple(pool), originals=tuple(pool), features=(None,) * len(pool), default=None,
            own=None, cut=0,
        )  # fmt: skip
        self._note(POINT, offer, context, choice)

    def decide(
        self, point: object, options: object, *, context: object, default: object,
        allowed: object, exploit_only: object,
    ) -> Choice:  # fmt: skip
        """Choose for the agent, or return its own choice where nothing can be chosen."""
        listed, mask = read_options(options, default), mask_of(allowed, exploit_only)
        offer = None
        if listed.readable and mask.readable:
            offer = offer_of(listed, default, mask=mask, read=self._events.features)
        if offer is None:
            return own_choice(listed.originals, default, mask)
        name, known = OWN + (text_of(point) or UNNAMED), self._events.context(context)
        with self._lock:
            number = next(self._numbers)
        choice = self._decider.choose(
            _key(self._repeat, name, number),
            point=name,
            options=list(zip(offer.names, offer.features, strict=True)),
            context=known,
            default=offer.default,
            allowed=offer.allowed,
            explored=offer.explored,
        )
        decision = self._note(name, offer, known, choice)
        return Choice(
            offer.originals[choice.place], choice.propensity, "policy", decision.decision_id,
            choice.version, decision.rollout_id,
        )  # fmt: skip

    def _note(self, point: str, offer: Offer, context: Features, choice: PolicyChoice) -> Decision:
        names, claim = tuple(map(clean_id, offer.names)), self._claim
        features = {
            name: without_secrets({**row})
            for name, row in zip(names, offer.features, strict=True)
            if row
        }
        decision = Decision(
            rollout_id=claim.rollout.rollout_id,
            attempt=claim.attempt.number,
            ordinal=next(self._ordinals),
            point=point_of(clean_id(point), claim.rollout.queue or ""),
            options=names,
            allowed=_select(names, offer.allowed),
            exploit_only=_select(names, offer.explored, has=False),
            chosen=names[choice.place],
            applied=names[choice.place],
            default=None if offer.default is None else names[offer.default],
            propensity=choice.propensity,
            probabilities=choice.probabilities,
            value=choice.value,
            policy_version=choice.version,
            arm=LEARNER,
            at=time.time(),
            context=mapping(without_secrets({**context})) if self._keeps else {},
            features=features if self._keeps else {},
            encoded=choice.encoded,
        )
        with self._lock:
            self._made.append(decision)
        return decision


def _select(
    names: Sequence[str], flags: Sequence[bool] | None, *, has: bool = True
) -> tuple[str, ...] | None:
    if flags is None:
        return None
    return tuple(name for name, flag in zip(names, flags, strict=True) if flag is has)


class ItemRun(tau_live.Run):
    """The run of an item, in which the policy of the optimization decides."""

    __slots__ = ("_decisions",)

    def __init__(self, run: tau_live.Run, decisions: ItemDecisions) -> None:
        super().__init__(run.name, run.run_id, run.handle)
        self._decisions = decisions

    def decide(
        self, point: str, options: object, *, context: Features | None = None,
        default: object = None, allowed: Iterable[object] | None = None,
        exploit_only: Iterable[object] | None = None,
    ) -> Choice:  # fmt: skip
        """Choose one of ``options``; see ``tau_live.Run.decide``."""
        return self._decisions.decide(
            point, options, context=context, default=default, allowed=allowed,
            exploit_only=exploit_only,
        )  # fmt: skip


# Learning


class OptimizerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a run's policy.

    Attributes:
        executed: Whether an update changed the policy. It says nothing about how much was learned.
        trajectories: Rollouts with a decision that could be learned from.
        samples: Those decisions.
        mean_total_loss: Mean loss after PPO's steps, over the samples; ``None`` if it took none.
        observed_approx_kl: The largest of the executed updates: the mean over its new samples of
            ``log(new / logged probability)**2 / 2``.
        early_stop_triggered: Whether ``target_kl`` ended the steps of an update.
        skipped_reason: Why no update was executed; ``None`` if one was, or if it is too early.
        updates: Executed updates.
        undone: Updates that ``max_kl`` undid.
        distinct_rewards: Different rewards of rollouts.
        mean_reward_first: Mean reward of the rollouts before the first update.
        mean_reward_last: Mean reward of the rollouts before the last.
        ppo_gradient_norm: Mean norm of the gradient of PPO's steps; ``None`` if it took none.
        ppo_kl: The largest divergence by PPO's own steps; ``None`` likewise.
        near_certain_share: The share of decisions of the last update in which an option has a
            probability of 0.95 or more; ``None`` likewise.
        policy_version: The version of the policy; 0 is the untrained one.
        policy_sha256: The checksum of its numbers.
        config: Its block of the config, every default materialised.
    """

    executed: bool = False
    trajectories: int = 0
    samples: int = 0
    mean_total_loss: float | None = None
    observed_approx_kl: float = 0.0
    early_stop_triggered: bool = False
    skipped_reason: str | None = None
    updates: int = 0
    undone: int = 0
    distinct_rewards: int = 0
    mean_reward_first: float | None = None
    mean_reward_last: float | None = None
    ppo_gradient_norm: float | None = None
    ppo_kl: float | None = None
    near_certain_share: float | None = None
    policy_version: int = 0
    policy_sha256: str
    config: JsonObject


class OptimizerError(TauLiveError):
    """An update of the policy raised an error."""


def first_report(block: RlOptimizer) -> OptimizerReport:
    """Return the report of a run whose policy has not learned yet."""
    return OptimizerReport(
        policy_sha256=checksum({}), config=block.model_dump(mode="json", by_alias=True)
    )


def skip(report: object, *, why: str) -> OptimizerReport | None:
    """Return the report of a run that ended before an update; ``None`` if there was one."""
    known = msgspec.convert(report, OptimizerReport)
    return None if known.executed else replace(known, skipped_reason=why)


def why_stopped(store: Store, why: str, *, was_paused: bool) -> str:
    """Return why the policy of a run that stopped learns no more.

    Args:
        store: The store, whose gate may hold.
        why: ``cancelled`` or ``budget_exhausted``.
        was_paused: Whether the run was paused before.
    """
    if store.gate.load().state != GateState.PASS:
        return "gate_hold"
    return "paused" if was_paused else why


def checksum(states: Mapping[str, LearnerState]) -> str:
    """Return the checksum of the policies of some points, the same in any run and store."""
    states = states or {POINT: LearnerState.initial(policy_config(Settings()))}
    arrays = {
        f"{point} {name}": array
        for point, state in states.items()
        for name, array in state.policy.arrays().items()
    }
    return Checkpoint(version=0, point=POINT, parent=0, parent_sha256="", arrays=arrays).sha256


def states_of(checkpoint: Checkpoint) -> dict[str, LearnerState]:
    """Return the learner's state of each point of a checkpoint.

    Raises:
        CheckpointError: It is none of an optimization.
    """
    points = checkpoint.metadata.get("points")
    try:
        return {
            str(point): LearnerState.from_arrays(
                {
                    name.partition(".")[2]: array
                    for name, array in checkpoint.arrays.items()
                    if name.startswith(f"{number}.")
                }
            )
            for number, point in enumerate(points if isinstance(points, list) else ())
        }
    except ValueError as error:
        raise CheckpointError(f"checkpoint {checkpoint.version} is damaged: {error}") from error


def ppo_config(block: RlOptimizer) -> PPOConfig:
    """Return how an update learns by the block of a config."""
    gae, ppo = block.gae, block.ppo
    target_kl = inf if ppo.target_kl is None else ppo.target_kl
    max_kl = inf if ppo.max_kl is None else ppo.max_kl
    return PPOConfig(
        clip=ppo.clip_epsilon,
        gamma=gae.gamma,
        lambda_=gae.lambda_,
        learning_rate=block.learning_rate,
        net_learning_rate=block.learning_rate
        * (_DEFAULT.net_learning_rate / _DEFAULT.learning_rate),
        epochs=ppo.epochs,
        minibatch=ppo.mini_batch_size * ppo.gradient_accumulation_steps,
        target_kl=target_kl,
        max_kl=max_kl,
        value_coefficient=ppo.value_loss_coefficient,
        entropy_coefficient=ppo.entropy_coefficient,
        base_kl=min(_DEFAULT.base_kl, target_kl / 2, max_kl / 2),  # so that steps have room
        kl_coefficient=ppo.kl_penalty_coefficient,
        normalization=Normalization(
            advantages=gae.normalize_advantages,
            returns=gae.normalize_returns,
            per_rollout=block.normalization_scope == "trajectory",
            clip_advantages=gae.clip_advantages or inf,
            clip_returns=gae.clip_returns or inf,
            epsilon=gae.normalization_epsilon,
        ),
        least_decisions=0.0,  # the config asks for PPO's steps
        from_logged=True,
    )


class _Learned(NamedTuple):
    """An executed update of one point."""

    update: Update
    kl: float
    samples: int


class PolicyTraining:
    """The updates of a run's policy, one for each group of items.

    A point is learned by itself, as by the live learner. Rollouts of an update that was skipped or
    undone are learned from with the next. The ratios of PPO are to the policy that its steps begin
    at; the logged probabilities count in importance weights, and in every bound on the divergence.

    Args:
        block: How it learns.
        run_id: The run.
        seed: Of the run.
        checkpoints: Those of the run; the newest few stay.

    Attributes:
        checkpoint: The name of the newest version's; empty before the first.
        decider: Decides by that version.
    """

    def __init__(
        self, block: RlOptimizer, run_id: str, *, seed: int, checkpoints: Checkpoints
    ) -> None:
        self._run_id = run_id
        self._seed = seed
        self._checkpoints = checkpoints
        self._settings = Settings(seed=seed)
        self._ppo = ppo_config(block)
        self._states: dict[str, LearnerState] = {}
        self._unlearned: dict[str, list[LearnableRollout]] = {}
        self._older: dict[str, list[LearnableRollout]] = {}
        self._sha256 = ""
        self._succeeded = self._decided = False
        self._rewards: set[float] = set()
        self._losses: list[tuple[float, int]] = []
        self._gradients: list[float] = []
        self._report = first_report(block)
        self.checkpoint = ""
        self.decider = decider_of({}, 0, seed=seed)

    @property
    def report(self) -> OptimizerReport:
        """The report so far."""
        return self._report

    def learn(self, rollouts: Sequence[LearnableRollout]) -> None:
        """Update the policies of all points by rollouts that have ended, in their order.

        Raises:
            OptimizerError: The update failed.
            StoreUnavailableError: There is no room for its checkpoint now; the run can be resumed.
        """
        try:
            learned = self._learn([self._own(each) for each in rollouts])
            if learned:
                self._keep(learned)
        except StoreUnavailableError:
            raise
        except Exception as error:  # whatever it is, the gate counts it
            raise OptimizerError(f"{type(error).__name__}: {error}") from error

    def _learn(self, rollouts: Sequence[LearnableRollout]) -> list[_Learned]:
        self._count(rollouts)
        learned = [self._learn_point(point, rollouts) for point in self._points(rollouts)]
        return [each for each in learned if each is not None]

    def _points(self, rollouts: Sequence[LearnableRollout]) -> list[str]:
        """Return the points of these rollouts that are learned."""
        points = {decision.point for each in rollouts for decision in each.decisions}
        for point in sorted(points, key=lambda name: (name != POINT, name)):
            if len(self._older) <= MOST_POINTS:
                self._older.setdefault(point, [])
        return sorted(points & self._older.keys())

    def _count(self, rollouts: Sequence[LearnableRollout]) -> None:
        rewards = [own_reward(each.rollout) for each in rollouts]
        known = [reward for reward in rewards if reward is not None]
        mean = sum(known) / len(known) if known else None
        first = self._report.mean_reward_first
        self._rewards.update(known)
        self._succeeded |= any(each.rollout.status is RolloutStatus.SUCCEEDED for each in rollouts)
        self._decided |= any(each.decisions for each in rollouts)
        usable = [self._learner(point).collect(rollouts) for point in self._points(rollouts)]
        self._report = replace(
            self._report,
            distinct_rewards=len(self._rewards),
            mean_reward_first=mean if first is None else first,
            mean_reward_last=self._report.mean_reward_last if mean is None else mean,
            trajectories=self._report.trajectories
            + len({id_ for each in usable for id_ in each.rollout_ids}),
            samples=self._report.samples + sum(len(each.decisions) for each in usable),
        )

    def _learn_point(self, point: str, rollouts: Sequence[LearnableRollout]) -> _Learned | None:
        """Return the update of a point; rollouts that none could learn from are kept for later."""
        learner, most = self._learner(point), self._settings.max_rollouts_per_update
        deciding = [
            each for each in rollouts if any(known.point == point for known in each.decisions)
        ]
        fresh = [*self._unlearned.get(point, ()), *deciding][-max(most, len(deciding)) :]
        older = self._older[point]
        new = learner.collect(fresh)
        update, new = learner.learn(fresh, older, new=new)
        self._unlearned[point] = fresh
        if update is None:
            return None
        if update.undone:
            self._report = replace(self._report, undone=self._report.undone + 1)
        if update.undone or update.skipped_reason is not None:
            return None
        self._unlearned[point] = []
        self._older[point] = [*older, *fresh][-self._settings.window :]
        self._states[point] = update.state
        return _Learned(update, _kl(update, new), len(new.decisions))

    def _learner(self, point: str) -> PointLearner:
        newest = self._report.policy_version
        versions = [
            PolicyVersion(
                version=version, point=point, parent=version - 1, algorithm=ALGORITHM, sha256="",
                file="", rollouts=0, created_at=0.0,
            )
            for version in range(max(1, newest - VERSIONS_KNOWN), newest + 1)
        ]  # fmt: skip
        state = self._states.get(point) or LearnerState.initial(policy_config(self._settings))
        return PointLearner(
            self._settings, self._ppo, point=point, versions=versions, state=state, at=0.0
        )

    def _own(self, learnable: LearnableRollout) -> LearnableRollout:
        """Return a rollout with the decisions that are this policy's, by the names of points.

        These have no run in them, so that the same run once more learns the same; and the rollout
        has an owner, so that the age of its decisions is counted in versions, not in seconds.
        """
        ending = point_of("", self._run_id)
        decisions = [
            replace(decision, point=decision.point.removesuffix(ending))
            for decision in learnable.decisions
            if decision.point.endswith(ending)
        ]
        rollout = replace(learnable.rollout, owner=self._run_id)
        return LearnableRollout(rollout, decisions, learnable.rewards)

    def _keep(self, learned: Sequence[_Learned]) -> None:
        """Make a version of what was learned, save it, and report it."""
        report, measured = self._report, [each.update.diagnostics for each in learned]
        self._losses += [
            (known.total_loss, each.samples)
            for each, known in zip(learned, measured, strict=True)
            if known.total_loss is not None
        ]
        self._gradients += [
            known.gradient_norm for known in measured if known.gradient_norm is not None
        ]
        weight = sum(samples for _, samples in self._losses)
        divergences = [report.ppo_kl, *(known.kl_k3 for known in measured)]
        shares = [known.near_certain_share for known in measured]
        version = report.policy_version + 1
        checkpoint = self._make_checkpoint(version)
        self._report = replace(
            report,
            executed=True,
            updates=report.updates + 1,
            mean_total_loss=sum(loss * n for loss, n in self._losses) / weight if weight else None,
            observed_approx_kl=max(report.observed_approx_kl, *(each.kl for each in learned)),
            early_stop_triggered=report.early_stop_triggered
            or any(known.early_stop for known in measured),
            ppo_gradient_norm=sum(self._gradients) / len(self._gradients)
            if self._gradients
            else None,
            ppo_kl=max((kl for kl in divergences if kl is not None), default=None),
            near_certain_share=next(
                (share for share in shares if share is not None), report.near_certain_share
            ),
            policy_version=version,
            policy_sha256=checksum(self._states),
        )
        self.checkpoint = save(self._checkpoints, checkpoint)
        for name in self._checkpoints.names():
            if version_of(name) == version and name != self.checkpoint:
                self._checkpoints.delete(name)  # of a store that is gone
        self._sha256 = checkpoint.sha256
        self.decider = decider_of(self._states, version, seed=self._seed)
        prune(self._checkpoints, keep=self._settings.keep_checkpoints, needed=frozenset({version}))

    def _make_checkpoint(self, version: int) -> Checkpoint:
        points = sorted(self._states)
        return Checkpoint(
            version=version,
            point=point_of(POINT, self._run_id),
            parent=version - 1,
            parent_sha256=self._sha256,
            arrays={
                f"{number}.{name}": array
                for number, point in enumerate(points)
                for name, array in self._states[point].arrays().items()
            },
            metadata={"algorithm": ALGORITHM, "seed": self._seed, "points": points},
        )

    def end(self) -> OptimizerReport:
        """Return the report at the end of the phase, with the reason if nothing was learned."""
        report = self._report
        if report.executed:
            return report
        reasons = (
            ("no_succeeded_train_rollouts", not self._succeeded),
            ("no_trajectories_collected", not self._decided),
            ("no_ppo_samples_constructed", not report.samples),
            ("fewer_than_two_distinct_rewards", report.distinct_rewards < 2),
            ("effective_sample_too_small", not report.undone),
            ("kl_exceeded", True),
        )
        why = next(reason for reason, applies in reasons if applies)
        self._report = replace(report, skipped_reason=why)
        return self._report


def _kl(update: Update, new: CollectedRollouts) -> float:
    return 0.0 if new.trajectories is None else logged_kl(update.state.policy, new.trajectories)


def is_policy(ref: str) -> bool:
    """Return whether a reference is one of a version of a run's policy."""
    return ref.startswith(f"{point_of(POINT, '')}opt-") and ":" in ref


def restore(store: Store, ref: str, *, reason: str, who: str) -> OptimizerReport:
    """Put the policy of a run that has ended back to an earlier version.

    Args:
        store: The store.
        ref: ``prompt@RUN:VERSION``.
        reason: Why.
        who: Who is on record for it.

    Returns:
        The report of the run's policy, as it is now.

    Raises:
        TauLiveError: The checkpoint cannot be loaded or verified, or the run is led by a process;
            then nothing is changed.
    """
    point, _, version = ref.rpartition(":")
    run_id = point.removeprefix(point_of(POINT, ""))
    try:
        run = store.optimizations.run(run_id)
        checkpoints = store.checkpoints.of_run(run_id)
        [name] = [name for name in checkpoints.names() if version_of(name) == int(version)]
        checkpoint = load(checkpoints, name)
        states = states_of(checkpoint)
        report = msgspec.convert(run.report["rl_optimizer"], OptimizerReport)
    except (CheckpointError, UnknownError, LookupError, ValueError) as error:
        raise TauLiveError(f"failed to load rollback checkpoint '{ref}'") from error
    if (checkpoint.point, checkpoint.version) != (point, int(version)) or not states:
        raise TauLiveError(f"failed to load rollback checkpoint '{ref}'")
    state, _ = state_now(run)
    if state in LED:
        raise TauLiveError(f"cannot roll back the policy of a run that is {state}")
    report = replace(report, policy_version=checkpoint.version, policy_sha256=checksum(states))
    details = {
        "run_id": run_id, "policy_version": checkpoint.version, "sha256": report.policy_sha256,
    }  # fmt: skip
    with store.begin():
        store.optimizations.amend_report(run_id, rl_optimizer=msgspec.to_builtins(report))
        store.audit.add(
            AuditEntry(
                at=time.time(), who=who, action="optimize rollback", reason=reason, details=details
            )
        )
    return report
