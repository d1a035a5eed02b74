"""Rules of rewards: sources, safety costs, penalties, and inferred rewards.

A source is a claim of the reward itself. The lists here keep out sources that an operator did not
think of, and bound the influence of one that several can use (users, above all); they do not stop a
liar in the same process, who could as well write into the store.

A cost is never a part of the total (``rewards.outcome``), and nothing waits for it. It is a share
of the worst: 0 is safe, 1 is the worst that was declared.

Inference measures form: a reply, few turns, no failed tools. It is one reward, ``inferred``; its
parts explain it and are not rewards of their own, because they would be added to it.
"""

import math
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from tau_live.core.hookspecs import RolloutSummary
from tau_live.core.records import LearnableRollout, Reward, RewardSource
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredReward, HardGateCost, SafetySettings

SOURCE = "safety"
"""The source of penalties, which distinguishes them from rewards of a host or a user."""

PENALTY_TOTAL = "safety.penalty_total"
HARD_GATE_PENALTY = "safety.hard_gate_penalty"
HARD_GATE_TRIGGERED = "safety.hard_gate_triggered"
"""A marker of value 0: the rollout is hard-gated."""

_INJECTION = "prompt_injection."
_LEAK = "secret_leak."


class Part(NamedTuple):
    """A named part of a reward."""

    name: str
    value: float


def penalty(policy: SafetySettings, reason_code: str) -> float:
    """Return the penalty of a reason code, at least 0."""
    if reason_code in policy.reason_code_penalties:
        return policy.reason_code_penalties[reason_code]
    if reason_code.startswith(_INJECTION):
        return policy.prompt_injection_penalty
    if reason_code.startswith(_LEAK):
        return policy.secret_leak_penalty
    return policy.default_reason_code_penalty


def hard_gates(policy: SafetySettings, blocked_events: int, reason_codes: Iterable[str]) -> bool:
    """Return whether these events trigger the hard gate, which caps the reward at its ceiling."""
    return (policy.blocked_event_triggers_hard_gate and blocked_events > 0) or any(
        code in policy.hard_gate_reason_codes or code.startswith(policy.hard_gate_reason_prefixes)
        for code in reason_codes
    )


def penalties(
    policy: SafetySettings, blocked_events: int, reason_codes: Iterable[str]
) -> list[Part]:
    """Return the penalties of a rollout, as parts that are at most 0; empty without any.

    Args:
        policy: The penalty of each reason code.
        blocked_events: How many of its safety events blocked.
        reason_codes: The codes of all its safety events; each counts once.

    Source:
        The reference's safety reward policy, SR1 to SR3 in its contract.
    """
    codes = sorted(set(reason_codes))
    if not blocked_events and not codes:
        return []  # as of most rollouts
    total = math.fsum(
        [*(penalty(policy, code) for code in codes), blocked_events * policy.blocked_penalty]
    )
    parts = [Part(PENALTY_TOTAL, -total)] if total > 0.0 else []
    if hard_gates(policy, blocked_events, codes):
        if policy.hard_gate_penalty > 0.0:
            parts.append(Part(HARD_GATE_PENALTY, -policy.hard_gate_penalty))
        parts.append(Part(HARD_GATE_TRIGGERED, 0.0))
    return parts


def total_after_safety(
    values: Sequence[float], penalties: Sequence[Part], *, ceiling: float
) -> float:
    """Return the reward of a rollout after penalties; nothing may be added to it.

    The sum of ``values`` and ``penalties``; if the penalties hold the marker of the hard gate, each
    value is at most ``ceiling``, and so is the sum, even if it is not finite.

    Args:
        values: Parts of the reward.
        penalties: As returned by ``penalties``.
        ceiling: The largest reward of a hard-gated rollout, at most 0.

    Raises:
        OverflowError: The sum is not finite, and the rollout is not hard-gated.
    """
    gated = any(part.name == HARD_GATE_TRIGGERED for part in penalties)
    taken = [min(0.0, part.value) for part in penalties]
    if not gated:
        return total_of([*values, *taken])
    try:  # ``min(ceiling, nan)`` is the ceiling; ``min(nan, ceiling)`` is not
        total = total_of([*(min(ceiling, value) for value in values), *taken])
    except OverflowError:
        return ceiling
    return min(total, ceiling)


def total_of(values: Iterable[float]) -> float:
    """Return the exact sum, rounded once: the order of the values does not matter.

    Raises:
        OverflowError: It is not a finite number.
    """
    try:
        total = math.fsum(values)
    except ValueError as error:  # infinities of both signs
        raise OverflowError(str(error)) from error
    if not math.isfinite(total):
        raise OverflowError(f"the sum is {total!r}")
    return total


_ROUNDS = 60

OURS = frozenset({SOURCE, RewardSource.INFERRED.value})
"""Sources of our own rewards, which are always trusted once they are stored."""


def allowed_sources(name: str, settings: Settings) -> Sequence[str]:
    """Return the sources allowed for a reward of that name, as patterns; empty allows all."""
    own = next((reward.sources for reward in settings.rewards if reward.name == name), ())
    return own or settings.reward_sources


def refuses(reward: Reward, settings: Settings) -> bool:
    """Return whether a reported reward is refused.

    That is one from a source that is not allowed, and a positive one with the source of penalties.
    """
    if reward.source == SOURCE and (reward.value or 0.0) > 0.0:
        return True
    known = allowed_sources(reward.name, settings)
    return bool(known) and not _matches(reward.source, known)


def is_counted(reward: Reward, declared: Collection[DeclaredReward]) -> bool:
    """Return whether a reward can count: once any is declared, only those and penalties do."""
    expects_some = any(not known.cost for known in declared)
    is_known = any(known.name == reward.name for known in declared)
    return is_known or not expects_some or reward.source in OURS


def trusted_rewards(rewards: Iterable[Reward], settings: Settings) -> list[Reward]:
    """Return the stored rewards that count under the current settings."""
    if not settings.reward_sources and not any(reward.sources for reward in settings.rewards):
        return list(rewards)
    return [reward for reward in rewards if reward.source in OURS or not refuses(reward, settings)]


def cap_sources(
    rollouts: Sequence[LearnableRollout], settings: Settings
) -> tuple[list[LearnableRollout], list[LearnableRollout]]:
    """Return the rollouts that may be learned from together, and those over a source's cap.

    Of the rollouts kept, at most the share ``cap`` has a reward of a capped source; all sources
    that match one pattern share its cap, so that more names gain nothing. A checksum of their ids
    decides which are kept, so that being first gains nothing either; a fractional number is rounded
    up as often as keeps the share right over many updates.
    """
    caps = settings.source_caps
    groups = {
        rollout.rollout.rollout_id: {
            _group(source, caps) for source in _sources(rollout, settings.rewards)
        }
        - {None}
        for rollout in rollouts
        if caps
    }
    if not any(groups.values()):
        return list(rollouts), []
    order = sorted(groups, key=lambda id_: zlib.crc32(id_.encode()))
    rounding = zlib.crc32("".join(order).encode()) / 2**32
    size = _size([groups[id_] for id_ in order], caps)
    room = {group: math.floor(cap * size + rounding) for group, cap in caps.items()}
    over: set[str] = set()
    for id_ in order:
        own = [group for group in groups[id_] if group is not None]
        if all(room[group] > 0 for group in own):
            for group in own:
                room[group] -= 1
        else:
            over.add(id_)
    kept = [rollout for rollout in rollouts if rollout.rollout.rollout_id not in over]
    return kept, [rollout for rollout in rollouts if rollout.rollout.rollout_id in over]


def _size(groups: Sequence[Collection[str | None]], caps: Mapping[str, float]) -> float:
    """Return the largest number of rollouts to keep such that each group is within its share.

    Rollouts are kept in this order, each as far as all its groups have room.
    """
    size = float(len(groups))
    for _ in range(_ROUNDS):
        room = {group: cap * size for group, cap in caps.items()}
        size = 0.0
        for own in groups:
            part = min((room[group] for group in own if group is not None), default=1.0)
            part = min(part, 1.0)
            size += part
            for group in own:
                if group is not None:
                    room[group] -= part
    return size


def _sources(rollout: LearnableRollout, declared: Sequence[DeclaredReward]) -> set[str]:
    names = {reward.name for reward in declared}
    return {
        reward.source
        for reward in rollout.rewards
        if reward.value is not None
        and reward.source not in OURS
        and (not names or reward.name in names)
    }


def _group(source: str, caps: Mapping[str, float]) -> str | None:
    """Return the name of a source's cap: its own, else the tightest pattern that it matches."""
    if source in caps:
        return source
    known = [pattern for pattern in caps if fnmatchcase(source, pattern)]
    return min(known, key=lambda pattern: (caps[pattern], pattern), default=None)


def _matches(source: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(source, pattern) for pattern in patterns)


class Cost(NamedTuple):
    """The safety cost of a rollout.

    Attributes:
        value: In ``[0, 1]``; ``None`` if unknown, which is not zero.
        critical: Whether it includes a critical violation.
    """

    value: float | None
    critical: bool


UNKNOWN = Cost(None, False)


def cost_of(  # all its inputs; it depends on nothing else
    rewards: Sequence[Reward],
    declared: Sequence[DeclaredReward],
    *,
    hard_gate: HardGateCost = HardGateCost.NO,
    ended_at: float | None = None,
    now: float = math.inf,
    deadline_s: float | None = None,
) -> Cost:
    """Return the safety cost of a rollout: the largest of its declared costs.

    A value is divided by the upper end of its declared range (1 without a range) and clipped to
    ``[0, 1]``; a NaN is unknown. Of several values the largest counts: two violations in one
    rollout are one rollout that violates.

    A declared cost that is missing counts as its default once its deadline is over; without a
    default it is unknown. If only some costs are known, those count.

    Args:
        rewards: All rewards of the rollout and its decisions, in any order.
        declared: The expected rewards; only costs matter.
        hard_gate: The cost of triggering the hard gate. Only rollouts that did are marked, so with
            ``cost`` and ``critical`` the operator vouches that the host reports every safety event:
            where no cost is declared, an unmarked rollout then costs 0 and is not unknown.
        ended_at: Epoch seconds, UTC; ``None`` treats every deadline as over.
        now: Epoch seconds, UTC.
        deadline_s: Seconds, for costs declared without a deadline; ``None`` waits for ever.
    """
    costs = [reward for reward in declared if reward.cost]
    reported = [_reported_cost(cost, rewards) for cost in costs]
    known = [cost for cost in reported if cost.value is not None]
    for declared_cost, cost in zip(costs, reported, strict=True):
        wait_s = deadline_s if declared_cost.deadline_s is None else declared_cost.deadline_s
        over = ended_at is None or (wait_s is not None and ended_at + wait_s <= now)
        if cost.value is None and declared_cost.default is not None and over:
            known.append(_scale(declared_cost, declared_cost.default))
    if hard_gate is not HardGateCost.NO:
        gated = any(
            reward.source == SOURCE and reward.name == HARD_GATE_TRIGGERED for reward in rewards
        )
        if gated:
            known.append(Cost(1.0, hard_gate is HardGateCost.CRITICAL))
        elif not costs:
            known.append(Cost(0.0, False))
    if not known:
        return UNKNOWN
    worst = max(cost.value or 0.0 for cost in known)
    return Cost(worst, any(cost.critical for cost in known))


def _reported_cost(declared: DeclaredReward, rewards: Sequence[Reward]) -> Cost:
    values = [
        reward.value
        for reward in rewards
        if reward.name == declared.name
        and reward.value is not None
        and not math.isnan(reward.value)
    ]
    return _scale(declared, max(values)) if values else UNKNOWN


def _scale(declared: DeclaredReward, value: float) -> Cost:
    _, high = declared.bounds
    critical = declared.critical is not None and value >= declared.critical
    return Cost(min(max(value, 0.0) / high, 1.0), critical)


NAME = "inferred"


class Inference(NamedTuple):
    """The inferred reward of a run, and its parts.

    Attributes:
        composite: The reward, in [-1, 1].
        completion: 0.5 for a reply.
        session_completion: -0.25 if it did not end by itself.
        reliability: -0.25 for each failed tool, at most two of them.
        efficiency: 0.5 for at most two turns, 0.25 for at most four.
        token_efficiency: From 0.25, for an answer no longer than the question, down to -0.25, for
            one three times as long or longer; 0 if either is empty.
        safety: -1 if a safety rule blocked anything; then that alone is the reward.
        confidence: The confidence in the guess, in [0, 1]; not part of the reward.
    """

    composite: float
    completion: float
    session_completion: float
    reliability: float
    efficiency: float
    token_efficiency: float
    safety: float
    confidence: float


def infer(summary: RolloutSummary) -> Inference:
    """Return the inferred reward of a run.

    ``composite = clip(completion + session_completion + reliability + efficiency +
    token_efficiency, -1, 1)``, or exactly -1 if a safety rule blocked anything: safety comes last,
    and nothing is added after it.

    Source:
        The reference's live reward inference, RI1 to RI4 in its contract.
    """
    has_reply, completed = summary.has_assistant_reply, summary.session_completed
    completion = 0.5 if has_reply else 0.0
    session_completion = 0.0 if completed else -0.25
    reliability = 0.0 - 0.25 * min(summary.tool_errors, 2)  # never -0.0
    efficiency = 0.5 if summary.turns <= 2 else 0.25 if summary.turns <= 4 else 0.0
    token_efficiency = _token_efficiency(summary.input_chars, summary.output_chars)
    total = completion + session_completion + reliability + efficiency + token_efficiency
    confidence = 0.5 + 0.25 * (has_reply + (summary.turns > 0) - (not completed))
    return Inference(
        composite=-1.0 if summary.safety_blocked else max(-1.0, min(1.0, total)),
        completion=completion,
        session_completion=session_completion,
        reliability=reliability,
        efficiency=efficiency,
        token_efficiency=token_efficiency,
        safety=-1.0 if summary.safety_blocked else 0.0,
        confidence=max(0.0, min(1.0, confidence)),
    )


def _token_efficiency(input_chars: int, output_chars: int) -> float:
    if not input_chars or not output_chars:
        return 0.0
    ratio = min(3.0, max(1.0, output_chars / input_chars))
    return 0.25 - ((ratio - 1.0) / 2.0) * 0.5
