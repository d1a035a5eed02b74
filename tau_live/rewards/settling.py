"""Whether a finished rollout may be learned from, and with which reward.

Brings together what came (``rewards.join``), what safety takes away (``rewards.safety``), and what
plugins infer where nothing better is there.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from tau_live.envelope import OWN_HOST
from tau_live.guard import logger
from tau_live.hookspecs import RolloutSummary
from tau_live.plugins import Plugins
from tau_live.reasons import WhyNot
from tau_live.rewards.cost import cost_of
from tau_live.rewards.join import Outcome, State, outcome
from tau_live.rewards.safety import HARD_GATE_TRIGGERED, hard_gates, penalties
from tau_live.rewards.safety import SOURCE as SAFETY
from tau_live.rewards.sources import refuses, trusted
from tau_live.rollouts import Reason, Reward, RewardSource, Rollout, RolloutStatus, Span
from tau_live.settings import DeclaredReward, InferReward, Settings
from tau_live.store.records import LearnableRollout
from tau_live.store.roles import Batch

REFERENCE = "reference."
"""Begins the parts of the reference's inference, which count only where no other plugin has any."""

_NOT_REPORTED = frozenset({SAFETY, RewardSource.INFERRED})

TOLD_LIMIT = 100
"""Of so many refused sources a line is logged, one each."""


class Rewarding:
    """Settles finished rollouts: ready, waiting until a time, or left out.

    Args:
        settings: Declared rewards, deadlines, when to infer, what safety costs.
        plugins: Who infers.
    """

    def __init__(self, settings: Settings, plugins: Plugins) -> None:
        self._settings = settings
        self._plugins = plugins
        self._declared = settings.rewards
        self._safety = settings.safety
        self._told: set[str] = set()

    def settle(self, rollout: Rollout, *, store: Batch, now: float) -> bool:
        """Mark a finished rollout ready, waiting or left out; ``True`` if it became ready."""
        rewards = store.rewards.rewards(rollout.rollout_id)
        if rollout.host != OWN_HOST and any(map(_is_reported, rewards)):
            rewards += self._with_safety(rollout, rewards, store)  # an inferred one includes it
        may_infer = self._may_infer(rollout, now=now)
        if rewards or not may_infer:  # without any it cannot be ready
            found = self._outcome(rollout, rewards, now=now)
            if found.state is State.READY or not may_infer:
                return self._noted(rollout, found, store)
        inferred = self._inferred(rollout, store)
        if inferred is not None:
            rewards.append(inferred)
        return self._noted(rollout, self._outcome(rollout, rewards, now=now), store)

    def rejects(self, rollout: Rollout, *, store: Batch) -> bool:
        """Say whether safety makes a failure of a run that ended well."""
        if not self._safety.reject_rollout_on_hard_gate or rollout.host == OWN_HOST:
            return False
        blocked, codes = safety_of(store.rollouts.spans(rollout.rollout_id))
        return hard_gates(self._safety, blocked, codes)

    def refuses(self, reward: Reward) -> bool:
        """Say whether a reward comes from somebody who may not give it; logged once a source."""
        refused = refuses(reward, self._settings)
        if refused and len(self._told) < TOLD_LIMIT and reward.source not in self._told:
            self._told.add(reward.source)
            logger().warning("reward_source_refused", name=reward.name, source=reward.source)
        return refused

    def _outcome(self, rollout: Rollout, rewards: list[Reward], *, now: float) -> Outcome:
        return outcome(
            trusted(rewards, self._settings),
            self._declared,
            ended_at=rollout.ended_at,
            now=now,
            deadline_s=self._settings.reward_deadline_s,
            ceiling=self._settings.safety.hard_gate_reward_ceiling,
        )

    def _noted(self, rollout: Rollout, found: Outcome, store: Batch) -> bool:
        reason = found.reason if found.state is State.LEFT_OUT else None
        store.rewards.leave_out(rollout.rollout_id, reason)
        if found.state is State.READY and found.earned is not None:
            return store.rewards.mark_ready(
                rollout.rollout_id, total_reward=found.earned, run_reward=found.total
            )
        if found.state is State.WAITING and found.until is not None:
            store.rewards.await_reward(rollout.rollout_id, until=found.until)
        return False

    def _may_infer(self, rollout: Rollout, *, now: float) -> bool:
        """Say whether a form of reward may stand in: only where nothing better is declared."""
        when = self._settings.infer_reward
        expected = any(not one.cost for one in self._declared)
        if when is InferReward.OFF or expected or rollout.ended_at is None:
            return False
        if rollout.reason is Reason.ABANDONED or not self._plugins.listens("infer_reward"):
            return False
        if when is InferReward.AUTO and rollout.host == OWN_HOST:
            return False  # whoever runs it could have said what it was worth: unknown is not zero
        at_once = when is not InferReward.DEADLINE
        return at_once or now >= rollout.ended_at + self._settings.reward_deadline_s

    def _inferred(self, rollout: Rollout, store: Batch) -> Reward | None:
        parts = self._plugins.infer_reward(
            summary_of(rollout, store.rollouts.spans(rollout.rollout_id))
        )
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
        store.rewards.add_reward(reward)
        return reward

    def _with_safety(
        self, rollout: Rollout, rewards: Iterable[Reward], store: Batch
    ) -> list[Reward]:
        spans = store.rollouts.spans(rollout.rollout_id)
        if not spans or any(reward.source == SAFETY for reward in rewards):
            return []
        blocked, codes = safety_of(spans)
        found = [
            Reward(
                rollout_id=rollout.rollout_id,
                name=part.name,
                value=part.value,
                source=SAFETY,
                at=rollout.ended_at or 0.0,
            )
            for part in penalties(self._safety, blocked, codes)
        ]
        for reward in found:
            store.rewards.add_reward(reward)
        return found


def _is_reported(reward: Reward) -> bool:
    return reward.value is not None and reward.source not in _NOT_REPORTED


def _outcome_of(found: LearnableRollout, settings: Settings) -> Outcome:
    return outcome(
        trusted(found.rewards, settings),
        settings.rewards,
        ended_at=found.rollout.ended_at,
        now=math.inf,
        deadline_s=settings.reward_deadline_s,
        ceiling=settings.safety.hard_gate_reward_ceiling,
    )


def earned_by_decisions(found: LearnableRollout, settings: Settings) -> Mapping[str, float]:
    """Return what each decision of a rollout is worth besides the run, safety included."""
    return _outcome_of(found, settings).decisions


def earned_early(found: LearnableRollout, settings: Settings) -> Mapping[int, float]:
    """Return what of a run's own reward was given while it went on, by its decisions until then."""
    return _outcome_of(found, settings).early


def taken_by_safety(found: LearnableRollout, settings: Settings) -> tuple[float, float]:
    """Return what safety took from a run's own reward, at most 0, and the most it may be worth."""
    given = [one for one in found.rewards if one.source == SAFETY and one.decision_id is None]
    gated = any(one.name == HARD_GATE_TRIGGERED for one in given)
    most = settings.safety.hard_gate_reward_ceiling if gated else math.inf
    return math.fsum(min(0.0, one.value or 0.0) for one in given), most


def is_outside(found: LearnableRollout, settings: Settings) -> bool:
    """Say whether a reward of a rollout, or all of them together, is outside the range set for it.

    What safety takes away is the operator's word, and may bring a total below any range.
    """
    given = [one for one in found.rewards if one.source != SAFETY]
    result = _outcome_of(found._replace(rewards=given), settings)
    if result.earned is None or settings.reward_range is None:
        return result.reason is WhyNot.REWARD_OUT_OF_RANGE
    low, high = settings.reward_range
    return not low <= result.earned <= high


def incurred(found: LearnableRollout, settings: Settings, *, now: float) -> float | None:
    """Return what a rollout cost in safety, in ``[0, 1]``; ``None`` where that is not known."""
    return cost_of(
        trusted(found.rewards, settings),
        settings.rewards,
        hard_gate=settings.safety.hard_gate_cost,
        ended_at=found.rollout.ended_at,
        now=now,
        deadline_s=settings.reward_deadline_s,
    ).value


def reward_range(settings: Settings) -> tuple[float, float] | None:
    """Return the lowest and highest reward that a rollout can have; ``None`` if nobody said."""
    return settings.reward_range or declared_range(settings.rewards)


def declared_range(declared: Sequence[DeclaredReward]) -> tuple[float, float] | None:
    """Return the lowest and highest total of declared rewards; ``None`` if one has no range.

    What need not come may be worth nothing: only a primary reward, or the only one, always counts.
    """
    low = high = 0.0
    counted = sum(not one.cost for one in declared)
    for one in declared:
        if one.cost:
            continue
        if one.range is None:
            return None
        ends = sorted(one.weight * end for end in one.range)
        if not (one.primary or counted == 1):
            ends = [min(0.0, ends[0]), max(0.0, ends[1])]
        low, high = low + ends[0], high + ends[1]
    return (low, high) if low < high else None


def safety_of(spans: Iterable[Span]) -> tuple[int, set[str]]:
    """Return how many safety events blocked, and the reason codes of all of them."""
    blocked = 0
    codes: set[str] = set()
    for span in spans:
        if span.kind != "policy":
            continue
        blocked += bool(span.attributes.get("blocked"))
        found = span.attributes.get("reason_codes")
        codes.update(map(str, found) if isinstance(found, list) else ())
    return blocked, codes


def summary_of(rollout: Rollout, spans: Iterable[Span]) -> RolloutSummary:
    """Return what a rewarder is told of a finished rollout."""
    spans = list(spans)
    blocked, codes = safety_of(spans)
    said = [
        (str(span.attributes.get("role", "")), _chars(span.attributes.get("content")))
        for span in spans
        if span.kind == "message"
    ]
    replies = [chars for role, chars in said if role == "assistant"]
    asked = [chars for role, chars in said if role == "user"]
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
        input_chars=asked[0] if asked else _chars(rollout.input),
        output_chars=replies[-1] if replies else 0,
        spans=tuple(spans),
        metadata=rollout.metadata,
    )


def _chars(content: object) -> int:
    found = content.get("chars") if isinstance(content, Mapping) else None
    return found if isinstance(found, int) else 0
