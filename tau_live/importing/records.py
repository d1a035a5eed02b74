"""What is stored of a log: features as the live path encodes them, and no secrets."""

from functools import lru_cache

from tau_live.handed.plain import Limits, plain
from tau_live.importing.logged import Logged
from tau_live.importing.values import Features
from tau_live.machine.quick import quick
from tau_live.privacy.redaction import Redactor, clean_id
from tau_live.rl.features import encode, pack
from tau_live.rl.shapes import Shapes
from tau_live.rollouts import (
    IMPORTED,
    Decision,
    Reward,
    Rollout,
    decision_id_of,
)

HOST = "import"
SOURCE = IMPORTED
"""Who says so: in the arm and the source of decisions, and in the source of rewards."""


class Records:
    """Makes decisions, rewards and rollouts.

    Args:
        width: How wide the policy's features are.
        limits: Bounds of what is taken over, as of what a host hands over.
        redactor: Takes secrets out.
        reward: How rewards are called.
    """

    def __init__(self, *, width: int, limits: Limits, redactor: Redactor, reward: str) -> None:
        self._width = width
        self._shapes = Shapes(width)
        self._limits = limits
        self._redactor = redactor
        self._named = redactor.redact(Reward(rollout_id="", name=reward, at=0.0)).name
        self._decision, self._reward = quick(Decision), quick(Reward)

    def decision_of(self, logged: Logged, *, rollout_id: str, ordinal: int, at: float) -> Decision:
        """Return what is stored of a decision.

        Without a propensity it was the host's own choice, which is recorded as such and never
        learned from as if it had one.
        """
        names = logged.options.names
        is_clean = self._redactor.leaves(logged.context)
        context = logged.context if is_clean else self._plain(logged.context)
        if any(logged.options.features):
            is_clean = False
            given = [of and self._plain(of) for of in logged.options.features]
            offered = [*zip(names, given, strict=True)]
            encoded = pack(encode(context, offered, width=self._width))
        else:
            offered = []
            encoded = self._shapes.packed(context, names)
        own = logged.option if logged.propensity is None else None
        chosen, default = logged.chosen or logged.option, logged.default or own
        decision = self._decision(
            rollout_id=rollout_id,
            attempt=1,
            ordinal=ordinal,
            point=logged.point,
            options=names,
            chosen=chosen,
            applied=logged.option,
            default=default,
            source=SOURCE,
            propensity=logged.propensity,
            probabilities=logged.probabilities,
            arm=SOURCE,
            at=at,
            context=context,
            features={name: of for name, of in offered if of},
            encoded=encoded,
        )
        if is_clean and _are_clean(logged.point, chosen, default, names):
            return decision
        return self._redactor.redact(decision)

    def reward_of(
        self, value: float, *, rollout_id: str, decision: int | None, at: float
    ) -> Reward:
        """Return what is stored of a reward, for a decision of a run or for the run itself."""
        return self._reward(
            rollout_id=rollout_id,
            decision_id=decision and decision_id_of(rollout_id, 1, decision),
            name=self._named,
            value=value,
            source=SOURCE,
            at=at,
        )

    def clean(self, rollout: Rollout) -> Rollout:
        """Return a rollout, whose own id has no secrets any more, without any."""
        named = rollout.name or rollout.session_id
        return self._redactor.redact(rollout) if named else rollout

    def _plain(self, found: Features) -> Features:
        kept = plain(found, limits=self._limits)
        return {**kept} if isinstance(kept, dict) else {}


@lru_cache(maxsize=1_024)
def _are_clean(point: str, chosen: str, default: str | None, names: tuple[str, ...]) -> bool:
    """Say whether names are written as they are; what was applied is one of the last."""
    return all(clean_id(name) == name for name in (point, chosen, default or "", *names))
