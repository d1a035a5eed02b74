"""The reference's guess of what a run was worth, used only where nothing better is known.

It measures form: a reply, few turns, no failed tools. It is one reward, ``inferred``; its parts
explain it and are no rewards of their own, because they would be added to it.
"""

from dataclasses import dataclass
from typing import NamedTuple

NAME = "inferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is known of a run that is over.

    Attributes:
        has_reply: Whether the assistant answered.
        completed: Whether the run ended by itself.
        tool_errors: How many tools failed.
        safety_blocked: Whether a safety rule blocked anything.
        turns: How many turns it took.
        input_chars: Length of the user's message.
        output_chars: Length of the answer.
    """

    has_reply: bool
    completed: bool
    tool_errors: int = 0
    safety_blocked: bool = False
    turns: int = 0
    input_chars: int = 0
    output_chars: int = 0

    def __post_init__(self) -> None:
        for name in ("tool_errors", "turns", "input_chars", "output_chars"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)!r}")


class Inference(NamedTuple):
    """What a run is guessed to be worth, and why.

    Attributes:
        composite: The reward, in [-1, 1].
        completion: 0.5 for a reply.
        session_completion: -0.25 if it did not end by itself.
        reliability: -0.25 for each failed tool, at most two of them.
        efficiency: 0.5 for at most two turns, 0.25 for at most four.
        token_efficiency: From 0.25, for an answer no longer than the question, down to -0.25, for
            one three times as long or longer; 0 if either is empty.
        safety: -1 if a safety rule blocked anything; then that alone is the reward.
        confidence: How sure the guess is, in [0, 1]; no part of the reward.
    """

    composite: float
    completion: float
    session_completion: float
    reliability: float
    efficiency: float
    token_efficiency: float
    safety: float
    confidence: float

    def parts(self) -> dict[str, float]:
        """Return everything but the composite by name."""
        found = self._asdict()
        del found["composite"]
        return found


def infer(summary: Summary) -> Inference:
    """Return what a run is guessed to be worth.

    ``composite = clip(completion + session_completion + reliability + efficiency +
    token_efficiency, -1, 1)``, or exactly -1 if a safety rule blocked anything: safety comes last,
    and nothing is added after it.

    Source:
        The reference's live reward inference, RI1 to RI4 in its contract.
    """
    completion = 0.5 if summary.has_reply else 0.0
    session_completion = 0.0 if summary.completed else -0.25
    reliability = 0.0 - 0.25 * min(summary.tool_errors, 2)  # never -0.0
    efficiency = 0.5 if summary.turns <= 2 else 0.25 if summary.turns <= 4 else 0.0
    token_efficiency = _token_efficiency(summary.input_chars, summary.output_chars)
    total = completion + session_completion + reliability + efficiency + token_efficiency
    confidence = 0.5 + 0.25 * (summary.has_reply + (summary.turns > 0) - (not summary.completed))
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
