"""The total reward of a finished rollout, and whether it may be learned from.

Unknown is not zero (law 6): a rollout waits for its primary rewards until their deadline; then
their declared default counts, and without one the rollout is left out.

Combines reported rewards, penalties (``reward_rules``), and the rewards that plugins infer if there
is nothing better.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tau_live.core.events import OWN_HOST
from tau_live.core.guard import logger
from tau_live.core.hookspecs import RolloutSummary
from tau_live.core.plugins import Plugins
from tau_live.core.reasons import WhyNot
from tau_live.core.records import (
    LearnableRollout,
    Reason,
    Reward,
    RewardSource,
    Rollout,
    RolloutStatus,
    Span,
)
from tau_live.core.reward_rules import (
    HARD_GATE_TRIGGERED,
    Part,
    allowed_sources,
    cost_of,
    hard_gates,
    is_counted,
    penalties,
    refuses,
    total_after_safety,
    total_of,
    trusted_rewards,
)
from tau_live.core.reward_rules import SOURCE as SAFETY
from tau_live.core.settings import InferReward, Settings
from tau_live.core.settings.kinds import nearest
from tau_live.core.settings.tables import DeclaredReward
from tau_live.rl.bounds import is_usable
from tau_live.store.roles import Batch


class State(StrEnum):
    """The state of a rollout's reward."""

    READY = "ready"
    WAITING = "waiting"
    LEFT_OUT = "left_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The reward of a rollout, as far as it is known.

    Attributes:
        state: ``ready``, ``waiting`` or ``left_out``; a later reward may change it.
        total: The reward of the run itself; ``None`` unless it is ready.
        decisions: The additional reward of each decision, by decision id.
        early: The part of ``total`` given while the run went on, by the number of decisions that it
            had made by then.
        until: Epoch seconds at which to check again; ``None`` if only a new event can change it.
        reason: Why it is left out.
        names: The rewards concerned: those that are missing, wrong, or counted as their default.
    """

    state: State
    total: float | None = None
    decisions: Mapping[str, float] = field(default_factory=dict)
    early: Mapping[int, float] = field(default_factory=dict)
    until: float | None = None
    reason: WhyNot | None = None
    names: tuple[str, ...] = ()

    @property
    def worth(self) -> float | None:
        """The reward of the run and its decisions together; ``None`` unless it is ready."""
        if self.total is None or not self.decisions:
            return self.total
        return total_of([self.total, *self.decisions.values()])


def outcome(  # all its inputs; it depends on nothing else
    rewards: Sequence[Reward],
    declared: Sequence[DeclaredReward] = (),
    *,
    ended_at: float | None,
    now: float,
    deadline_s: float | None = None,
    ceiling: float = 0.0,
) -> Outcome:
    """Return the reward of a rollout at a time.

    Each numeric reward counts with the weight declared for its name, or, if none is declared, with
    1. Inferred ones count only if there is no other. Penalties of the source ``safety`` always
    count, last, and make nothing ready. Safety costs are not part of it (``reward_rules.cost_of``):
    they add nothing, and nothing waits for them.

    Args:
        rewards: All rewards of the rollout and its decisions, in any order.
        declared: The expected rewards; their names are unique.
        ended_at: Epoch seconds, UTC; ``None`` while it runs, when nothing is ready.
        now: Epoch seconds, UTC.
        deadline_s: Seconds, for rewards declared without a deadline, and if none is declared;
            ``None`` waits for ever.
        ceiling: The largest reward of a hard-gated rollout, at most 0.
    """
    if ended_at is None:
        return Outcome(state=State.WAITING)
    if not declared and len(rewards) == 1 and _is_plain(rewards[0]):  # the usual case
        value, before = float(rewards[0].value or 0.0), rewards[0].decisions_before
        early = {} if before is None else {before: value}
        return Outcome(state=State.READY, total=value, early=early)
    costs = {reward.name for reward in declared if reward.cost}
    rewards = [reward for reward in rewards if reward.name not in costs]
    declared = [reward for reward in declared if not reward.cost]
    counted = _countable(rewards, declared)
    present = {reward.name for reward in counted}
    missing = [reward for reward in declared if reward.name not in present]
    dues = {reward.name: _due(reward.deadline_s, deadline_s, ended_at) for reward in missing}
    if declared:
        not_ready = _invalid_rewards(counted, declared) or _pending(declared, dues, now=now)
    elif counted:
        not_ready = _invalid_rewards(counted, declared)
    else:
        not_ready = _overdue(_due(None, deadline_s, ended_at), (), now=now)
    return not_ready or _ready(counted, declared, missing, _penalties(rewards), ceiling=ceiling)


def _is_plain(reward: Reward) -> bool:
    """Return whether a reward, if it is the only one, is the total of its run."""
    return (
        reward.value is not None
        and is_usable(reward.value)
        and reward.source != SAFETY
        and reward.decision_id is None
    )


def _countable(rewards: Sequence[Reward], declared: Sequence[DeclaredReward]) -> list[Reward]:
    numeric = [reward for reward in rewards if reward.value is not None and reward.source != SAFETY]
    reported = [reward for reward in numeric if reward.source != RewardSource.INFERRED]
    names = {reward.name for reward in declared}
    return [reward for reward in reported or numeric if not declared or reward.name in names]


def _penalties(rewards: Sequence[Reward]) -> list[Part]:
    return [
        Part(reward.name, reward.value)
        for reward in rewards
        if reward.source == SAFETY and reward.value is not None and reward.decision_id is None
    ]


def _due(own_s: float | None, common_s: float | None, ended_at: float) -> float:
    wait_s = common_s if own_s is None else own_s
    return math.inf if wait_s is None else ended_at + wait_s


def _invalid_rewards(
    counted: Sequence[Reward], declared: Sequence[DeclaredReward]
) -> Outcome | None:
    by_name = {reward.name: reward for reward in declared}
    infinite = {reward.name for reward in counted if not is_usable(reward.value or 0.0)}
    if infinite:
        return _left_out(WhyNot.REWARD_NOT_FINITE, infinite)
    outside = {
        reward.name
        for reward in counted
        if reward.name in by_name and not by_name[reward.name].allows(reward.value or 0.0)
    }
    return _left_out(WhyNot.REWARD_OUT_OF_RANGE, outside) if outside else None


def _pending(
    declared: Sequence[DeclaredReward], dues: Mapping[str, float], *, now: float
) -> Outcome | None:
    """Return the outcome of a rollout with missing rewards; ``None`` if it needs none of them.

    Args:
        declared: The expected rewards.
        dues: The deadlines of missing rewards, in epoch seconds, by name.
        now: Epoch seconds, UTC.
    """
    primary = [reward for reward in declared if reward.primary]
    if primary:
        awaited = [reward for reward in primary if reward.name in dues]
        lost = [
            reward.name for reward in awaited if dues[reward.name] <= now and reward.default is None
        ]
        if lost:
            return _left_out(WhyNot.REWARD_MISSING, lost)
        late = [reward.name for reward in awaited if dues[reward.name] > now]
        return _overdue(min(dues[name] for name in late), late, now=now) if late else None
    if len(dues) < len(declared):
        return None  # none is primary, and one has come
    last = max(dues.values())
    if last <= now and any(reward.default is not None for reward in declared):
        return None
    return _overdue(last, [*dues], now=now)


def _overdue(due: float, names: Iterable[str], *, now: float) -> Outcome:
    if due <= now:
        return _left_out(WhyNot.REWARD_MISSING, names)
    until = due if math.isfinite(due) else None
    return Outcome(state=State.WAITING, until=until, names=tuple(sorted(names)))


def _left_out(reason: WhyNot, names: Iterable[str]) -> Outcome:
    return Outcome(state=State.LEFT_OUT, reason=reason, names=tuple(sorted(names)))


def _ready(
    counted: Sequence[Reward],
    declared: Sequence[DeclaredReward],
    missing: Sequence[DeclaredReward],
    penalties: Sequence[Part],
    *,
    ceiling: float,
) -> Outcome:
    weights = {reward.name: reward.weight for reward in declared}
    by_target: dict[str | None, list[float]] = {None: []}
    early: dict[int, list[float]] = {}
    for reward in counted:
        share = weights.get(reward.name, 1.0) * (reward.value or 0.0)
        by_target.setdefault(reward.decision_id, []).append(share)
        if reward.decision_id is None and reward.decisions_before is not None:
            early.setdefault(reward.decisions_before, []).append(share)
    defaulted = [reward for reward in missing if reward.default is not None]
    by_target[None] += [reward.weight * (reward.default or 0.0) for reward in defaulted]
    gate = [part for part in penalties if part.name == HARD_GATE_TRIGGERED]
    try:
        total = total_after_safety(by_target.pop(None), penalties, ceiling=ceiling)
        decisions = {
            str(target): total_after_safety(shares, gate, ceiling=ceiling)
            for target, shares in sorted(by_target.items(), key=str)
        }
        whole = total_of([total, *decisions.values()]) if decisions else total
    except OverflowError:
        return _left_out(WhyNot.REWARD_NOT_FINITE, {reward.name for reward in counted})
    if not all(map(is_usable, (whole, total, *decisions.values()))):
        return _left_out(WhyNot.REWARD_NOT_FINITE, {reward.name for reward in counted})
    return Outcome(
        state=State.READY,
        total=total,
        decisions=decisions,
        early={before: math.fsum(shares) for before, shares in sorted(early.items())},
        names=tuple(sorted(reward.name for reward in defaulted)),
    )


REFERENCE = "reference."
"""Prefix of the parts of the reference's inference, which count only if no other plugin has any."""

_NOT_REPORTED = frozenset({SAFETY, RewardSource.INFERRED})

WARNINGS_LIMIT = 100
"""How many refused sources, and names of rewards, are logged, once each."""


class Rewarding:
    """Settles finished rollouts: ready, waiting until a time, or left out.

    Args:
        settings: Declared rewards, deadlines, inference, safety.
        plugins: The plugins that infer rewards.
    """

    def __init__(self, settings: Settings, plugins: Plugins) -> None:
        self._settings = settings
        self._plugins = plugins
        self._declared = {reward.name: reward for reward in settings.rewards}
        self._expects_rewards = any(not reward.cost for reward in settings.rewards)
        self._warned: set[tuple[str, str]] = set()

    def settle(self, rollout: Rollout, *, batch: Batch, now: float) -> bool:
        """Mark a finished rollout ready, waiting or left out; ``True`` if it became ready."""
        rewards = batch.rewards(rollout.rollout_id)
        if rollout.host != OWN_HOST and any(map(_is_reported, rewards)):
            rewards += self._with_safety(rollout, rewards, batch)  # an inferred one includes it
        may_infer = self._may_infer(rollout, now=now)
        if rewards or not may_infer:  # without any it cannot be ready
            result = outcome_of(rewards, rollout, self._settings, now=now)
            if result.state is State.READY or not may_infer:
                return self._note(rollout, result, batch)
        inferred = self._infer(rollout, batch)
        if inferred is not None:
            rewards.append(inferred)
        result = outcome_of(rewards, rollout, self._settings, now=now)
        return self._note(rollout, result, batch)

    def rejects(self, rollout: Rollout, *, batch: Batch) -> bool:
        """Return whether the hard gate turns a successful run into a failure."""
        if not self._settings.safety.reject_rollout_on_hard_gate or rollout.host == OWN_HOST:
            return False
        blocked, codes = safety_of(batch.spans(rollout.rollout_id))
        return hard_gates(self._settings.safety, blocked, codes)

    def refuses(self, reward: Reward) -> bool:
        """Return whether a reward's source may not give it; logged once per source."""
        refused = refuses(reward, self._settings)
        if refused and self._is_new("reward_source_refused", reward.source):
            near = nearest(reward.source, allowed_sources(reward.name, self._settings))
            logger().warning(
                "reward_source_refused", name=reward.name, source=reward.source, nearest=near
            )
        return refused

    def mistake_in(self, reward: Reward) -> str | None:
        """Return the counter of a likely mistake in a reward that is stored, if there is one.

        Such a reward does not count, or leaves its run out; logged once per name.
        """
        if not self._declared or reward.value is None:
            return None
        own = self._declared.get(reward.name)
        if not is_counted(reward, self._settings.rewards):
            if self._is_new("reward_not_declared", reward.name):
                near = nearest(reward.name, self._declared)
                logger().warning(
                    "reward_not_declared", name=reward.name, value=reward.value, nearest=near
                )
            return "rewards_not_declared"
        if own is not None and not own.allows(reward.value):
            if self._is_new("reward_out_of_range", reward.name):
                logger().warning(
                    "reward_out_of_range", name=reward.name, value=reward.value, range=own.bounds
                )
            return "rewards_out_of_range"
        return None

    def _is_new(self, event: str, cause: str) -> bool:
        """Return whether a warning is due, which it is once per cause."""
        if len(self._warned) >= WARNINGS_LIMIT or (event, cause) in self._warned:
            return False
        self._warned.add((event, cause))
        return True

    def _note(self, rollout: Rollout, result: Outcome, batch: Batch) -> bool:
        reason = result.reason if result.state is State.LEFT_OUT else None
        batch.leave_out(rollout.rollout_id, reason)
        worth = result.worth
        if result.state is State.READY and worth is not None:
            return batch.mark_ready(rollout.rollout_id, total_reward=worth, run_reward=result.total)
        if result.state is State.WAITING and result.until is not None:
            batch.await_reward(rollout.rollout_id, until=result.until)
        return False

    def _may_infer(self, rollout: Rollout, *, now: float) -> bool:
        """Return whether a reward may be inferred: only if none is declared."""
        when = self._settings.infer_reward
        if when is InferReward.OFF or self._expects_rewards or rollout.ended_at is None:
            return False
        if rollout.reason is Reason.ABANDONED or not self._plugins.listening["infer_reward"]:
            return False
        if when is InferReward.AUTO and rollout.host == OWN_HOST:
            return False  # its caller could have given a reward: unknown is not zero
        at_once = when is not InferReward.DEADLINE
        return at_once or now >= rollout.ended_at + self._settings.reward_deadline_s

    def _infer(self, rollout: Rollout, batch: Batch) -> Reward | None:
        parts = self._plugins.infer_reward(summary_of(rollout, batch.spans(rollout.rollout_id)))
        if not parts:
            return None
        values = {part.name: part.value for part in parts}
        better = {name: value for name, value in values.items() if not name.startswith(REFERENCE)}
        value = sum(better.values()) if better else values.get(f"{REFERENCE}composite", 0.0)
        reward = Reward(
            rollout_id=rollout.rollout_id,
            name="inferred",
            value=value,
            comment=", ".join(f"{name} {number:g}" for name, number in values.items()),
            source=RewardSource.INFERRED,
            at=rollout.ended_at or 0.0,
        )
        batch.add_reward(reward)
        return reward

    def _with_safety(
        self, rollout: Rollout, rewards: Iterable[Reward], batch: Batch
    ) -> list[Reward]:
        spans = batch.spans(rollout.rollout_id)
        if not spans or any(reward.source == SAFETY for reward in rewards):
            return []
        blocked, codes = safety_of(spans)
        safety_rewards = [
            Reward(
                rollout_id=rollout.rollout_id,
                name=part.name,
                value=part.value,
                source=SAFETY,
                at=rollout.ended_at or 0.0,
            )
            for part in penalties(self._settings.safety, blocked, codes)
        ]
        for reward in safety_rewards:
            batch.add_reward(reward)
        return safety_rewards


def _is_reported(reward: Reward) -> bool:
    return reward.value is not None and reward.source not in _NOT_REPORTED


def outcome_of(
    rewards: Iterable[Reward], rollout: Rollout, settings: Settings, *, now: float = math.inf
) -> Outcome:
    """Return the reward of a rollout under the current settings, of trusted sources alone.

    Args:
        rewards: All its rewards, and those of its decisions.
        rollout: The rollout.
        settings: Trusted sources, declared rewards, their deadline, the ceiling of a hard gate.
        now: Epoch seconds, UTC; by default every wait is over.
    """
    return outcome(
        trusted_rewards(rewards, settings),
        settings.rewards,
        ended_at=rollout.ended_at,
        now=now,
        deadline_s=settings.reward_deadline_s,
        ceiling=settings.safety.hard_gate_reward_ceiling,
    )


def taken_by_safety(learnable: LearnableRollout, settings: Settings) -> tuple[float, float]:
    """Return the penalties of a run's own reward, at most 0, and the ceiling of that reward."""
    safety_rewards = [
        reward
        for reward in learnable.rewards
        if reward.source == SAFETY and reward.decision_id is None
    ]
    gated = any(reward.name == HARD_GATE_TRIGGERED for reward in safety_rewards)
    ceiling = settings.safety.hard_gate_reward_ceiling if gated else math.inf
    return math.fsum(min(0.0, reward.value or 0.0) for reward in safety_rewards), ceiling


def is_outside(learnable: LearnableRollout, settings: Settings) -> bool:
    """Return whether a reward of a rollout, or their total, is outside its range.

    Penalties do not count: they are the operator's, and may bring a total below any range.
    """
    rewards = [reward for reward in learnable.rewards if reward.source != SAFETY]
    result = outcome_of(rewards, learnable.rollout, settings)
    totals = totals_within(settings)
    if result.worth is None or totals is None:
        return result.reason is WhyNot.REWARD_OUT_OF_RANGE
    return not totals[0] <= result.worth <= totals[1]


def incurred_cost(learnable: LearnableRollout, settings: Settings, *, now: float) -> float | None:
    """Return the safety cost of a rollout, in ``[0, 1]``; ``None`` if unknown."""
    return cost_of(
        trusted_rewards(learnable.rewards, settings),
        settings.rewards,
        hard_gate=settings.safety.hard_gate_cost,
        ended_at=learnable.rollout.ended_at,
        now=now,
        deadline_s=settings.reward_deadline_s,
    ).value


def reward_range(settings: Settings) -> tuple[float, float] | None:
    """Return the lowest and highest possible total of a rollout; ``None`` if undeclared.

    The range that is set goes first: several sources, keys or decisions may each give a declared
    reward, and only the operator knows how many do.
    """
    return settings.reward_range or declared_range(settings.rewards)


def totals_within(settings: Settings) -> tuple[float, float] | None:
    """Return the totals that count as within ``reward_range``: rounding may pass its ends."""
    ends = reward_range(settings)
    if ends is None:
        return None
    slack = 1e-9 * max(map(abs, ends))
    return ends[0] - slack, ends[1] + slack


def declared_range(declared: Sequence[DeclaredReward]) -> tuple[float, float] | None:
    """Return the lowest and highest total of declared rewards; ``None`` if one has no range.

    Each counts once, whoever gives it.
    An optional reward may be missing and add nothing: only a primary one, or the only one, always
    counts.
    """
    low = high = 0.0
    counted = sum(not reward.cost for reward in declared)
    for reward in declared:
        if reward.cost:
            continue
        if reward.range is None:
            return None
        ends = sorted(reward.weight * end for end in reward.range)
        if not (reward.primary or counted == 1):
            ends = [min(0.0, ends[0]), max(0.0, ends[1])]
        low, high = low + ends[0], high + ends[1]
    return (low, high) if low < high else None


def safety_of(spans: Iterable[Span]) -> tuple[int, set[str]]:
    """Return how many safety events blocked, and the reason codes of all safety events."""
    blocked = 0
    codes: set[str] = set()
    for span in spans:
        if span.kind != "policy":
            continue
        blocked += bool(span.attributes.get("blocked"))
        reason_codes = span.attributes.get("reason_codes")
        codes.update(map(str, reason_codes) if isinstance(reason_codes, list) else ())
    return blocked, codes


def summary_of(rollout: Rollout, spans: Iterable[Span]) -> RolloutSummary:
    """Return the summary of a finished rollout for a rewarder."""
    spans = list(spans)
    blocked, codes = safety_of(spans)
    messages = [
        (str(span.attributes.get("role", "")), _chars(span.attributes.get("content")))
        for span in spans
        if span.kind == "message"
    ]
    replies = [chars for role, chars in messages if role == "assistant"]
    questions = [chars for role, chars in messages if role == "user"]
    output = rollout.metadata.get("output")
    if not replies and isinstance(output, Mapping):
        replies = [_chars(output)]
    return RolloutSummary(
        rollout_id=rollout.rollout_id,
        host=rollout.host,
        run_id=rollout.run_id,
        session_id=rollout.session_id,
        parent_id=rollout.parent_id,
        status=rollout.status,
        reason=rollout.reason,
        has_assistant_reply=any(replies),
        session_completed=rollout.status is RolloutStatus.SUCCEEDED,
        tool_errors=sum(s.kind == "tool" and s.attributes.get("is_error") is True for s in spans),
        safety_blocked=blocked > 0,
        blocked_events=blocked,
        reason_codes=frozenset(codes),
        turns=sum(span.kind == "turn" for span in spans),
        input_chars=questions[0] if questions else _chars(rollout.input),
        output_chars=replies[-1] if replies else 0,
        spans=tuple(spans),
        metadata=rollout.metadata,
    )


def _chars(content: object) -> int:
    chars = content.get("chars") if isinstance(content, Mapping) else None
    return chars if isinstance(chars, int) else 0
