"""Texts that a model wrote as prompts: what refuses them, and how untrusted text is quoted."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from tau_live.core.prompts import canonical_json
from tau_live.core.redaction import scrub_text
from tau_live.prompts.rows import Row

LEAKED_WORDS = 8
"""So many consecutive words of a row are no accident."""

FEWEST_WORDS = 3
"""All words of a shorter row, if it has so many, are no accident either."""

LEAKED_CHARS = 12
"""So many characters of an expected answer are none either."""

_URL = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,15}://\S+|\bwww\.\S+|\b(?:data|javascript|mailto|vbscript):\S+"
    r"|\b(?:[a-z0-9-]{1,63}\.){1,8}(?:app|biz|cn|com|dev|info|io|me|net|org|ru|sh|xyz)\b"
    r"|\b(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}(?:/|:[0-9]{2,5}/|:[0-9]{4,5}\b)\S*"
    r"|\blocalhost(?::[0-9]|/)\S*|\b[a-z][a-z0-9-]{0,62}:[0-9]{4,5}/[a-z]\S*"  # no 10/s, no 120/80
    r"|\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?::[0-9]{1,5}|/)"
    r"|\[[0-9a-f]{0,4}:[0-9a-f]{0,4}:[0-9a-f:.]{0,39}\]:[0-9]{1,5}",
    re.IGNORECASE,
)
_ROLES = "system|user|assistant|human|developer|tool|function|ai"
_LINE = r"^[ \t>*_#+\u2022-]*(?:\(?(?:[0-9]{1,3}[.)]|[a-z]\))[ \t*_]*){0,3}"
"""The beginning of a line: quotes, bullets, and numbers of a list."""
_ROLE = re.compile(
    r"<\|.{1,40}?\|>|\[/?INST\]|<</?SYS>>|</?s>|<(?:start|end)_of_turn>"
    r"|</?(?:system|user|assistant|human|developer|tool|function|data)\b[^>\n]{0,80}>"
    rf"|{_LINE}(?:{_ROLES})(?: (?:prompt|message|role))?[ \t*_]{{0,8}}:"
    rf"|{_LINE}\[/?(?:{_ROLES})(?: (?:prompt|message|role))?\]"
    rf"|\brole\\?[\"']?\s{{0,8}}[:=]\s{{0,8}}\\?[\"'](?:{_ROLES}|model)\\?[\"']"
    r"|^#{1,6}[ \t]*(?:system|user|assistant|human|instruction|response)s?[ \t]*(?::|$)",
    re.IGNORECASE | re.MULTILINE,
)
_BASE64 = re.compile(r"[A-Za-z0-9+/=_-]{65,}")
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][\w.]*\}")
_BIDIRECTIONAL = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
_LAYOUT = frozenset("\n\r\t")
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
)


def refusal(edit: str, parent: str, *, max_chars: int) -> str | None:
    """Return why an edit of a prompt is refused; ``None`` if it may be executed.

    What its parent holds as often is no reason: an operator's prompt may name a URL. A secret
    always is.

    Args:
        edit: The new prompt, as a model wrote it.
        parent: The prompt that it was made from.
        max_chars: The largest number of characters.

    Returns:
        ``empty``, ``too_long``, or ``unsafe_edit:`` and the kind: ``control``, ``bidirectional``,
        ``zero_width``, ``url``, ``role_marker``, ``base64``, ``secret`` or ``placeholder``.
    """
    if not edit.strip():
        return "empty"
    if len(edit) > max_chars:
        return "too_long"
    for kind, suspects in _SUSPECTS.items():
        if Counter(suspects(edit)) - Counter(suspects(parent)):
            return f"unsafe_edit:{kind}"
    if scrub_text(edit) != edit:
        return "unsafe_edit:secret"
    if {*_PLACEHOLDER.findall(parent)} - {*_PLACEHOLDER.findall(edit)}:
        return "unsafe_edit:placeholder"
    return None


def _controls(text: str) -> list[str]:
    kinds = {"Cc", "Co", "Cs", "Zl", "Zp"}
    return [c for c in text if unicodedata.category(c) in kinds and c not in _LAYOUT]


def _bidirectional(text: str) -> list[str]:
    return [c for c in text if c in _BIDIRECTIONAL]


def _zero_width(text: str) -> list[str]:
    return [c for c in text if c not in _BIDIRECTIONAL and _is_zero_width(c)]


def _is_zero_width(char: str) -> bool:
    return (
        char in _INVISIBLE
        or unicodedata.category(char) == "Cf"
        or "\ufe00" <= char <= "\ufe0e"  # the last selector, of emoji, is in everybody's texts
        or "\U000e0100" <= char <= "\U000e01ef"
    )


def _urls(text: str) -> list[str]:
    return _URL.findall(unicodedata.normalize("NFKC", text))


def _roles(text: str) -> list[str]:
    return _ROLE.findall(unicodedata.normalize("NFKC", text))


def _base64_runs(text: str) -> list[str]:
    return [run for run in _BASE64.findall(text) if not _is_ruler(run)]


def _is_ruler(run: str) -> bool:
    """Return whether a run is one or two characters over and over, or has no letter or digit."""
    return run[2:] == run[:-2] or not any(char.isalnum() for char in run)


_SUSPECTS: Mapping[str, Callable[[str], list[str]]] = {
    "control": _controls,
    "bidirectional": _bidirectional,
    "zero_width": _zero_width,
    "url": _urls,
    "role_marker": _roles,
    "base64": _base64_runs,
}


def leaks(
    text: str, rows: Iterable[Row], *, incumbent: str = "", searched: Iterable[Row] = ()
) -> str | None:
    """Return what a prompt gives away of held-out rows; ``None`` if nothing.

    That is eight consecutive words of a row, all words of a shorter one that has at least three and
    twelve characters, or its expected answer of twelve or more, whatever their case and the space
    between them. What the search could read anyway is no leak:
    the words of the incumbent, and answers that rows of the search have too, such as labels.

    Args:
        text: The prompt.
        rows: The held-out rows.
        incumbent: The prompt in force.
        searched: The rows that the search reads.
    """
    known, joined = {*_runs(_words(text))} - {*_runs(_words(incumbent))}, _normalise(text)
    worded, before = _spaced_words(text), _spaced_words(incumbent)
    shared = {_normalise(_expected_of(row)) for row in searched}
    for row in rows:
        expected = _expected_of(row)
        answer = _normalise(expected)
        if len(answer) >= LEAKED_CHARS and answer in joined and answer not in shared:
            return f"the expected answer of row {row.digest[:12]}"
        for part in (*_strings(row.input), expected):
            if not known.isdisjoint(_runs(_words(part))):
                return f"{LEAKED_WORDS} consecutive words of row {row.digest[:12]}"
        for part in _strings(row.input):
            words = _spaced_words(part)
            is_short = FEWEST_WORDS <= words.count(" ") - 1 < LEAKED_WORDS
            if is_short and len(words) >= LEAKED_CHARS and words in worded and words not in before:
                return f"all words of row {row.digest[:12]}"
    return None


def _runs(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(words[n : n + LEAKED_WORDS]) for n in range(len(words) - LEAKED_WORDS + 1))


def _words(text: str) -> list[str]:
    """Return the words of a text; each character is one in Chinese, Japanese and Korean."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _spaced_words(text: str) -> str:
    """Return the words of a text, each between two spaces."""
    return f" {' '.join(_words(text))} "


def _normalise(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _expected_of(row: Row) -> str:
    return "" if row.expected is msgspec.UNSET else _text_of(row.expected)


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else canonical_json(value).decode()


def quote(value: object) -> str:
    """Return an untrusted text, or other JSON, as JSON between the markers ``<<<`` and ``>>>``.

    It cannot hold a marker, a line break or an invisible character: these are escaped.
    """
    text = json.dumps(value, ensure_ascii=False)
    return f"<<<\n{''.join(map(_escape, text))}\n>>>"


def _escape(char: str) -> str:
    if char in "<>":
        return f"\\u{ord(char):04x}"
    return char if char.isprintable() else json.dumps(char)[1:-1]
