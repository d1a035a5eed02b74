"""Secrets in disguise: escaped, encoded, broken over lines, cut in two.

Each disguise is undone in a copy, the result is searched like any other text, and every hit is
traced back to its place in the original. Everything is linear in the length of the text.
"""

import binascii
import re
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tau_live.core.secret_kinds import is_secret_key


class Secret(NamedTuple):
    """The place of a secret in a text, and its kind."""

    start: int
    end: int
    kind: str


Search = Callable[[str], list[Secret]]
"""Returns the undisguised secrets of a text, in their order."""

DEPTH = 2
"""How many layers of encoding are undone."""

SEAM = 128
"""Characters on either side of a seam that may belong to one secret."""

_ESCAPE = re.compile(
    r"""%(?P<percent>[0-9A-Fa-f]{2})|(?<!\\)\\++(?:u(?P<unicode>[0-9A-Fa-f]{4})|x(?P<hex>[0-9A-Fa-f]{2})"""
    r"""|(?P<plain>["'/nrt]))"""
)
_INVISIBLE = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]+")
"""Invisible characters: of zero width, or for the direction of writing."""

_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}
_BREAK = re.compile(
    r"""(?<=[\w+/=.-])["']?[ \t]{0,8}[+\\]?[ \t]{0,8}\r?\n[ \t>|#*+]{0,32}["']?(?=[\w+/.-])"""
)
_BASE64 = re.compile(
    r"[A-Za-z0-9+/_-]{20,}+(?:(?:\r?\n|\\r\\n|\\n)[ \t]{0,16}[A-Za-z0-9+/_-]{8,}+)*+={0,2}+"
)
_SHORTEST_ENCODED = 20
"""Characters of the shortest text that base64 or hex may encode."""
_NOT_BASE64 = re.compile(r"\\r\\n|\\n|[^A-Za-z0-9+/]")
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2}){16,}+")
_READABLE = re.compile(rb"[\t\n\r\x20-\x7e]{12,}+")
_LIKE_WORDS = frozenset(
    {"anthropic", "openai", "gitlab", "pypi", "docker", "vault", "xai", "sendgrid", "jwt"}
)
"""Kinds whose tokens may hold hyphens, as joined words do."""
_MIXED_LEAST = 12
_MIXED_SHARE = 0.28
_NAME_CHARS = 40
_LAST_WORD = re.compile(r"\S{1,128}\Z")
_FIRST_WORD = re.compile(r"\S{1,256}")
_NOT_A_WORD = re.compile(r"[^A-Za-z]|[A-Z][a-z][A-Z]")
_OPTION = re.compile(r"--?[a-z][a-z-]*\b(?!\d)")
_STANDS_FOR = re.compile(r"\A…\[|\[redacted:[\w:]*\]\Z")
"""A placeholder: no name looks like one."""


class _View:
    """Another spelling of a text, and where each of its characters comes from."""

    def __init__(self, text: str, starts: Sequence[int], origins: Sequence[int]) -> None:
        self.text = text
        self._starts = starts
        self._origins = origins

    def origin(self, index: int) -> int:
        """Return the index in the text of a character of the view."""
        piece = bisect_right(self._starts, index) - 1
        return self._origins[piece] + index - self._starts[piece]

    def end(self, index: int) -> int:
        """Return the index in the text of an end (exclusive) in the view."""
        piece = bisect_right(self._starts, index) - 1
        if index == self._starts[piece]:  # an escape ends where the next piece begins
            return self._origins[piece]
        return self._origins[piece] + index - self._starts[piece]


def _view(text: str, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str]) -> _View:
    parts: list[str] = []
    starts, origins = [0], [0]
    length = end = 0
    for match in pattern.finditer(text):
        before, new = text[end : match.start()], replace(match)
        parts += (before, new)
        if new:
            starts.append(length + len(before))
            origins.append(match.start())
        length += len(before) + len(new)
        end = match.end()
        starts.append(length)
        origins.append(end)
    parts.append(text[end:])
    return _View("".join(parts), starts, origins)


def _unescape(match: re.Match[str]) -> str:
    if match["plain"]:
        return _CONTROL.get(match["plain"], match["plain"])
    return chr(int(match["percent"] or match["hex"] or match["unicode"], 16))


def hidden_secrets(
    text: str, search: Search, *, tokens: Search, depth: int = DEPTH
) -> list[Secret]:
    """Return the disguised secrets of a text, in no particular order; they may overlap.

    Args:
        text: The text.
        search: Finds secrets of every kind.
        tokens: Finds those that are recognised without context.
        depth: How many layers of encoding are undone.
    """
    secrets: list[Secret] = []
    if depth <= 0:
        return secrets
    spellings: list[tuple[bool, re.Pattern[str], Callable[[re.Match[str]], str]]] = [
        ("%" in text or "\\" in text, _ESCAPE, _unescape),
        (not text.isascii(), _INVISIBLE, lambda _: ""),
    ]
    for may_occur, pattern, replace in spellings:
        view = _view(text, pattern, replace) if may_occur else None
        if view is not None and len(view.text) != len(text):
            inner = search(view.text) + hidden_secrets(
                view.text, search, tokens=tokens, depth=depth - 1
            )
            secrets += (Secret(view.origin(s), view.end(e), kind) for s, e, kind in inner)
    if "\n" in text:
        secrets += _tokens_over_lines(text, tokens)
    secrets += _decode(text, search, tokens, depth)
    return secrets


def _tokens_over_lines(text: str, tokens: Search) -> Iterator[Secret]:
    """Yield tokens that are broken over two lines or more."""
    view = _view(text, _BREAK, lambda _: "")
    for start, end, kind in tokens(view.text) if len(view.text) != len(text) else ():
        first, last = view.origin(start), view.end(end)
        if last - first != end - start and is_credible(kind, view.text[start:end]):
            yield Secret(first, last, kind)
    for gap in _BREAK.finditer(text):
        before = _LAST_WORD.search(text, max(0, gap.start() - SEAM), gap.start())
        after = _FIRST_WORD.match(text, gap.end())
        if before is not None and after is not None:
            for start, end, kind in _tokens_across(before[0], after[0], tokens):
                yield Secret(before.start() + start, gap.end() + end - len(before[0]), kind)


def _tokens_across(before: str, after: str, tokens: Search) -> Iterator[Secret]:
    """Yield the tokens that reach from one word into the next."""
    whole, seam = before + after, len(before)
    if seam < 2 or len(after) < 2 or (not any(map(str.isdigit, whole)) and whole.islower()):
        return
    for start, end, kind in tokens(whole):
        if start < seam < end and is_credible(kind, whole[start:end]):
            yield Secret(start, end, kind)


def _decode(text: str, search: Search, tokens: Search, depth: int) -> Iterator[Secret]:
    if len(text) < _SHORTEST_ENCODED:  # as most ids are
        return
    for pattern, decodings in ((_HEX, _from_hex), (_BASE64, _from_base64)):
        for match in pattern.finditer(text):
            kinds = (_kind_in(run, search, tokens, depth) for run in decodings(match[0]))
            kind = next(filter(None, kinds), None)
            if kind is not None:
                yield Secret(match.start(), match.end(), kind)


def _kind_in(plain: str, search: Search, tokens: Search, depth: int) -> str | None:
    secrets = search(plain) or hidden_secrets(plain, search, tokens=tokens, depth=depth - 1)
    return secrets[0].kind if secrets else None


def _from_hex(digits: str) -> Iterator[str]:
    yield from _readable(binascii.unhexlify(digits))


def _from_base64(letters: str) -> Iterator[str]:
    """Yield the readable text that letters encode, for each offset of the first group."""
    if letters.islower():  # as ids and hashes are; encoded text is in both cases
        return
    pure = _NOT_BASE64.sub("", letters.replace("-", "+").replace("_", "/").rstrip("="))
    for offset in range(4):
        whole = pure[offset:]
        if len(whole) % 4 == 1:
            whole = whole[:-1]
        yield from _readable(b64decode(whole + "=" * (-len(whole) % 4)))


def _readable(decoded: bytes) -> Iterator[str]:
    """Yield the readable runs in some bytes; noise has none of that length."""
    for run in _READABLE.finditer(decoded.replace(b"\0", b"")):  # as in UTF-16
        yield run[0].decode("ascii")


def is_credible(kind: str, token: str) -> bool:
    """Return whether a joined token is one, and not just two words."""
    return kind not in _LIKE_WORDS or _is_mixed(token)


def _is_mixed(token: str) -> bool:
    """Return whether a token looks random: its characters change their class often."""
    letters = [c for c in token if c.isalnum()]
    if len(letters) < _MIXED_LEAST or not any(c.isdigit() for c in letters):
        return False
    classes = [c.isdigit() + 2 * c.isupper() for c in letters]
    changes = sum(a != b for a, b in pairwise(classes))
    return changes >= _MIXED_SHARE * len(letters)


class Seams:
    """Watches consecutive strings for a secret that is split between two of them.

    They are judged as they come in, and again as they are kept: the rest of one may form a secret
    with the rest of the next, and would when the result is read again.

    Args:
        tokens: Finds secrets that are recognised without context.
    """

    def __init__(self, tokens: Search) -> None:
        self._tokens = tokens
        self._original = self._kept = ""
        self._is_unchanged = True

    def splits(self, text: str) -> bool:
        """Return whether a string completes a secret of the one before, or is one that it names."""
        before, self._original = self._original, text[-SEAM:]
        self._is_unchanged = before is self._kept
        return bool(before and text) and (_names_secret(before, text) or self._ends(before, text))

    def splits_kept(self, kept: str, text: str) -> bool:
        """As ``splits``, for the kept part of that string next to the kept part before it."""
        before, self._kept = self._kept, self._original if kept is text else kept[-SEAM:]
        if self._is_unchanged and kept is text:
            return False  # nothing was changed: the first answer stands
        return bool(before and kept) and (_names_secret(before, kept) or self._ends(before, kept))

    def replace(self, kept: str) -> None:
        """Note that something else is kept of that string."""
        self._kept = kept[-SEAM:]

    def _ends(self, before: str, text: str) -> bool:
        last, first = _LAST_WORD.search(before), _FIRST_WORD.match(text)
        if last is None or first is None:
            return False
        return any(_tokens_across(last[0], first[0], self._tokens))


def _names_secret(before: str, text: str) -> bool:
    """Return whether a string like ``--password`` or ``api_key`` stands before its value."""
    name = before.strip("-:=\"' ")
    if not 2 < len(name) <= _NAME_CHARS or any(c.isspace() for c in name):
        return False
    if " " in text or len(text) < 6 or not is_secret_key(name):
        return False
    if text.startswith(("[redacted", "…")) or _OPTION.fullmatch(text) is not None:
        return False
    if _STANDS_FOR.search(name) is not None:
        return False
    return before.startswith("--") or _NOT_A_WORD.search(text) is not None
