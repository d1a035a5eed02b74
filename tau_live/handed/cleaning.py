"""Texts that any store and any encoding can hold, and that are not too long."""

import re

MARKER_ROOM = 40
"""Characters that saying how much was cut may take."""

_REPLACEMENT = "\ufffd"
_WORD_CHARS = 128
_LAST_PART = re.compile(rf"""(?<![^\s"'<>/:=,;&?])[^\s"'<>/:=,;&?]{{1,{_WORD_CHARS}}}\Z""")
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
    kept = beginning(text, limit - MARKER_ROOM)
    return f"{clean(kept)}…[{len(text) - len(kept)} more characters]"


def beginning(text: str, limit: int) -> str:
    """Return at most ``limit`` characters of the text, without the part of a word at their end.

    Half a secret is not recognised, and may be almost the whole of it. What is longer than 128
    characters is taken for no word.
    """
    found = _LAST_PART.search(text, max(0, limit - _WORD_CHARS - 1), max(0, limit))
    return text[:limit] if found is None or limit >= len(text) else text[: found.start()]
