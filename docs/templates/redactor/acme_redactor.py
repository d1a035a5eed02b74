"""Takes the numbers of orders out of every text, before it is written."""

import re

from tau_live.core.hookspecs import Text, hookimpl

ORDER = re.compile(r"\bAC-[0-9]{6}\b")
HIDDEN = "[order]"


@hookimpl
def redact_text(text: Text) -> str | None:
    """Return the text without order numbers; ``None`` where it has none."""
    kept = ORDER.sub(HIDDEN, text.text)
    return None if kept == text.text else kept
