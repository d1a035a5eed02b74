"""Prompt versions: their names, and the share of rollouts that each is offered to."""

import json
import unicodedata
from hashlib import sha256
from typing import NamedTuple

POOL = "experience-"
"""What the version of a prompt begins with that is a pool of lessons."""

INSTRUCTIONS = "{instructions}"
"""Stands in a prompt for the agent's own instructions."""

META = "_meta."
"""Begins the name of the resource that says where a prompt comes from."""

TRIAL = "prompt@"
"""Begins the name of the trial of a prompt version, where others have a decision point."""

FIRST_SHARE = 0.05
"""The share of rollouts that a freshly adopted prompt is offered to."""

DIGITS = 13
"""Hexadecimal digits of a hash that make a number in ``[0, 1)``; a float holds them exactly."""


class PromptOffer(NamedTuple):
    """A prompt version that a running process may offer.

    Attributes:
        version: Its version.
        text: Its text.
        share: The share of rollouts that it is offered to, in ``(0, 1]``.
    """

    version: str
    text: str
    share: float


def canonical_json(value: object) -> bytes:
    """Return a JSON value as canonical JSON: sorted keys, no spaces, UTF-8, shortest floats.

    Raises:
        ValueError: It holds a NaN, an infinity, or text that UTF-8 cannot encode.
    """
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def prompt_version(text: str) -> str:
    """Return the version of a prompt, which is the same wherever its text is.

    Neither outer whitespace nor the form in which Unicode composes its characters matters.
    """
    stripped = unicodedata.normalize("NFC", text).strip()
    return f"p-{sha256(stripped.encode()).hexdigest()[:12]}"


def exposure_draw(seed: int, rollout_id: str, version: str) -> float:
    """Return a number in ``[0, 1)``; a prompt is offered to the rollouts below its share."""
    digest = sha256(canonical_json([seed, rollout_id, version])).hexdigest()
    return float(int(digest[:DIGITS], 16) / 16**DIGITS)


def trial_of_prompt(version: str) -> str:
    """Return the name of a prompt version's trial."""
    return f"{TRIAL}{version}"


def prompt_of_trial(point: str) -> str | None:
    """Return the prompt version of a trial; ``None`` for that of a decision point."""
    version = point.removeprefix(TRIAL)
    return version if point.startswith((f"{TRIAL}p-", f"{TRIAL}{POOL}")) else None


def fill_prompt(text: str, own: str) -> str:
    """Return a prompt with the agent's own instructions where it wants them.

    Never raises, whatever the methods of a subclass of ``str`` do: the prompt is chosen already.
    """
    own = str.__str__(own)
    filled = text.replace(INSTRUCTIONS, own)
    return filled if own else filled.strip()
