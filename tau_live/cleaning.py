"""Texts that any store and any encoding can hold, and that are not too long."""

import re

MARKER_ROOM = 40
"""Characters that saying how much was cut may take."""

_REPLACEMENT = "\ufffd"
_LONE = re.compile("(?<![\ud800-\udbff])[\udc00-\udfff]|[\ud800-\udbff](?![\udc00-\udfff])")


def clean(text: str) -> str:
    """Return the text without NULs and lone surrogates, which no store and no UTF-8 can hold."""
    if "\0" in text:
        text = text.replace("\0", _REPLACEMENT)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        paired = _LONE.sub(_REPLACEMENT, text)
        return paired.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    return text


def cut(text: str, limit: int) -> str:
    """Return at most ``limit`` characters of the text, cleaned; where it was cut it says so."""
    if len(text) <= limit:
        return clean(text)
    if limit < MARKER_ROOM:
        return "…"
    kept = limit - MARKER_ROOM
    return f"{clean(text[:kept])}…[{len(text) - kept} more characters]"
