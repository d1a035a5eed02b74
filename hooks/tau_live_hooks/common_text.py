"""What hosts' objects say, as plain data: texts, and what is known before something is chosen."""

import json
from collections.abc import Mapping
from math import isfinite

from tau_live.envelope import Content
from tau_live.plain import plain

TEXT_LIMIT = 64
"""A text of more characters says too much to be known of a situation."""

KNOWN_LIMIT = 32
"""So many names of a run's own metadata are known of a situation."""


def content_of(value: object) -> Content | None:
    """Return a text as it is, and anything else as the JSON of what can be read of it.

    A host's own kind of text becomes a plain one: no encoder takes another.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return Content(text=str.__str__(value))
    shown = vars(value) if hasattr(type(value), "model_fields") else value
    return Content(text=json.dumps(plain(shown), ensure_ascii=False))


def situation_of(known: Mapping[str, object], metadata: object = None) -> dict[str, object]:
    """Return what is known before something is chosen, of which ``never`` and the policy may go by.

    Args:
        known: What the adapter knows: the agent, the step, how many messages and tools.
        metadata: The run's own, as its host was told it; of it the names are taken that stand for
            a number, a truth or a short text.
    """
    found = dict(known)
    given = list(metadata.items())[:KNOWN_LIMIT] if isinstance(metadata, Mapping) else []
    for name, value in given:
        short = isinstance(value, str) and len(value) <= TEXT_LIMIT
        if isinstance(name, str) and (short or isinstance(value, bool | int | float)):
            found[name] = value
    return found


def counted(numbers: Mapping[str, object]) -> dict[str, float]:
    """Return the finite numbers above 0, such as the tokens of a request by kind."""
    return {
        str(name): float(number)
        for name, number in numbers.items()
        if isinstance(number, int | float) and number > 0 and isfinite(number)
    }
