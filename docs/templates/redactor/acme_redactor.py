"""Takes the numbers of orders out of every step, before it is written."""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from tau_live.hookspecs import hookimpl
from tau_live.rollouts import Span

ORDER = re.compile(r"\bAC-[0-9]{6}\b")
HIDDEN = "[order]"


@hookimpl
def redact(span: Span) -> Span | None:
    """Return the span without order numbers; ``None`` where it has none."""
    name, attributes = ORDER.sub(HIDDEN, span.name), hidden(span.attributes)
    if name == span.name and attributes == span.attributes:
        return None
    return replace(span, name=name, attributes=attributes)


def hidden(value: object) -> object:
    """Return plain data without order numbers, in its keys neither."""
    if isinstance(value, str):
        return ORDER.sub(HIDDEN, value)
    if isinstance(value, Mapping):
        return {str(hidden(key)): hidden(of) for key, of in value.items()}
    if isinstance(value, list | tuple):
        return [hidden(one) for one in value]
    return value
