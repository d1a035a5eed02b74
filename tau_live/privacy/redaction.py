"""Secrets and unwanted content out of events, before anything is written."""

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import filterfalse
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from tau_live.envelope import Content, ErrorInfo, Event, ToolCall
from tau_live.handed.cleaning import clean, cut
from tau_live.handed.plain import DEFAULT_LIMITS, Json, Limits, plain
from tau_live.machine.quick import changed
from tau_live.privacy.hidden_secrets import Found, Seams, hidden_secrets
from tau_live.privacy.plans import Plan, plan_of
from tau_live.privacy.secret_kinds import (
    CARD,
    CHECKS,
    KEYWORDS,
    TOKENS,
    alternation,
    following,
    is_card,
    is_secret_key,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

PAYLOAD_LIMIT = 65_536
FREE_TEXT = 64
"""A string of more characters is taken for free text, which is content."""

_HASH_LIMIT = 16 * 2**20
_UNHASHED = "0" * 64
_WINDOW = 4_096
_ROUNDS = 4
_SHORTEST = 7
_ID_LIMIT = 512
_ENTRIES = 256
_USAGE = Limits(depth=1, items=_ENTRIES, key_chars=FREE_TEXT)
_COUNT_BITS = 53
_NAMES_REMEMBERED = 512
_IDS_REMEMBERED = 4_096
_HARD_TO_GUESS = 20
_NOTHING = (None, "")
_NAMES = frozenset({str})
_SCALARS = frozenset({float, int, bool, str, type(None)})
_INT_BITS = 63
_TOGETHER = 256
"""Strings that are longer together hardly come together again."""
_TUPLES_OF_IDS = frozenset({"options", "allowed", "exploit_only", "aliases"})
_SAME = object()
T = TypeVar("T", bound="DataclassInstance")
_SPLIT = "[redacted:split]"
_DRAWN = re.compile(r"[0-9a-f]{1,31}+(?:[-\n][0-9a-f]{1,31}+)*+")


class _Form(NamedTuple):
    """Where in a mapping stands what has to be looked at, and how long its names are together."""

    numbers: Sequence[int]
    texts: Sequence[int]
    chars: int


class Redactor:
    """Takes secrets out of events, and content out of those that may not keep it.

    ``redact(redact(event)) == redact(event)``, and the event that comes in is never changed.
    Ids are left as they are, but for secrets and what no store can hold; what is chosen and offered
    is an id.

    Args:
        content: ``none`` keeps the size and hash of every text and of every string of more than
            64 characters; ``redacted`` keeps them, without secrets and cut.
        payload_limit: How many characters of one text, and of the strings of one mapping, are
            kept; at least 64.
        extra: More shapes of secrets: a pattern by the name of its kind.

    Raises:
        ValueError: ``payload_limit`` is too small.
        SettingsError: A pattern in ``extra`` is malformed.
    """

    def __init__(
        self,
        content: Literal["none", "redacted"] = "none",
        payload_limit: int = PAYLOAD_LIMIT,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        if payload_limit < FREE_TEXT:
            raise ValueError(f"payload_limit must be at least {FREE_TEXT}, got {payload_limit!r}")
        self._keeps = content == "redacted"
        self._limit = payload_limit
        self._extra = extra
        self._limits = Limits(
            chars=payload_limit, total_chars=max(payload_limit, DEFAULT_LIMITS.key_chars)
        )
        self._pattern, self._kinds = alternation(extra or {})
        self._plans: dict[type, Plan] = {}
        self._harmless = lru_cache(maxsize=_NAMES_REMEMBERED)(self._are_harmless)
        self._same_ids: set[str | None] = set(_NOTHING)
        self._same_texts: set[str | None] = set(_NOTHING)
        self._same_words = lru_cache(maxsize=_IDS_REMEMBERED)(self._are_same_words)
        self._form = lru_cache(maxsize=_NAMES_REMEMBERED)(self._form_of)

    def keeping(self) -> "Redactor":
        """Return one that takes out the same secrets, and leaves texts in."""
        return self if self._keeps else Redactor("redacted", self._limit, self._extra)

    def redact(self, event: T) -> T:
        """Return the event as it may be written; the same object if nothing is to be changed.

        What is stored of events may come in the place of one: nobody else has what is in it.
        """
        kind = type(event)
        plan = self._plans.get(kind)
        if plan is None:
            plan = self._plans[kind] = plan_of(kind)
        ids, texts = plan.id_values(event), plan.text_values(event)
        others = plan.other_values(event)
        same_ids = self._same_ids.issuperset(ids) or self._are_same_ids(ids)
        if same_ids and self._same_texts.issuperset(texts) and not any(others):
            return event  # as most are
        changes = self._changed_texts(plan.texts, texts)
        is_event = isinstance(event, Event)
        for name, value in zip(plan.others, others, strict=True):
            if value:
                kept = self._other(name, value)
                if kept is not _SAME and (is_event or kept != value):
                    changes[name] = kept
        if not same_ids:
            changes |= _changed_ids(plan.ids, ids)
        return changed(event, **changes) if changes else event

    def leaves(self, row: dict[str, object]) -> bool:
        """Say whether a mapping is seen at once to be plain data that is written as it is.

        That is so of harmless names with numbers and known words, as most decisions have them; of
        anything else it is not said.
        """
        values = (*row.values(),)
        kinds = (*map(type, values),)
        if not _SCALARS.issuperset(kinds) or not _NAMES.issuperset(map(type, row)):
            return False
        form = self._form((*row,), kinds)
        if form is None:
            return False
        for n in form.numbers:
            if not _is_kept(values[n]):
                return False
        texts = (*[text for n in form.texts if isinstance(text := values[n], str)],)
        chars = sum(map(len, texts))
        if chars > _TOGETHER or form.chars + chars > self._limits.total_chars:
            return False
        return not texts or self._same_words(texts)

    def _form_of(self, names: tuple[str, ...], kinds: tuple[type, ...]) -> _Form | None:
        """Return where numbers and strings stand; ``None`` where a name is not written as it is."""
        if len(names) > _ENTRIES or not self._harmless(names):
            return None
        return _Form(
            [n for n, kind in enumerate(kinds) if kind in (float, int)],
            [n for n, kind in enumerate(kinds) if kind is str],
            sum(map(len, names)),
        )

    def _are_same_ids(self, ids: tuple[str | None, ...]) -> bool:
        """Say whether ids, of which not all are known, are written as they are.

        All that are new are searched at once: what ends a line, or a word, also ends a secret, and
        what seems to go on behind it only means that each has to be looked at.
        """
        new = [*filterfalse(self._same_ids.__contains__, ids)]
        if len(new) == 1 and new[0] is not None:
            if clean_id(new[0]) != new[0]:
                return False
            _remember(self._same_ids, new)
            return True
        joined = "\n".join(filter(None, new))
        if _is_drawn(joined):
            _remember(self._same_ids, new)
            return True
        if len(joined) > _ID_LIMIT or not joined.isascii() or "\0" in joined:
            return False
        known = _standard()
        words = joined.replace("\n", " ")  # or every id might go on in the next line
        if known.finds(joined) or known.hides(words):
            return False
        _remember(self._same_ids, new)
        return True

    def _changed_texts(
        self, names: tuple[str, ...], texts: tuple[str | None, ...]
    ) -> dict[str, object]:
        changes: dict[str, object] = {}
        for name, text in zip(names, texts, strict=True):
            if text and text not in self._same_texts:
                kept = self._line(text) if len(text) >= _SHORTEST else clean(text)
                if kept != text:
                    changes[name] = kept
                elif len(text) <= FREE_TEXT:
                    _remember(self._same_texts, [text])
        return changes

    def scrub(self, text: str) -> str:
        """Return the text with every secret in it replaced by ``[redacted:kind]``."""
        return self._bounded(text, len(text) + _WINDOW)

    def finds(self, text: str) -> bool:
        """Say whether a secret stands in a text as it is."""
        return self._pattern.search(text) is not None or CARD.search(text) is not None

    def written(self, text: str) -> list[Found]:
        """Return the secrets that stand in a text as they are."""
        found = []
        match = self._pattern.search(text)
        while match is not None:
            kind, before, after = self._kinds[match.lastindex or 0]
            place, first = match.start() + 1, match.start() - before
            if after is not None:
                match = following(after).match(text, match.end())
            if match is not None:
                start, end = match.start(match.lastindex or 0), match.end()
                secret = start if start < end else first
                if kind not in CHECKS or CHECKS[kind](text[secret:end]):
                    found.append(Found(secret, end, kind))
                    place = end
            match = self._pattern.search(text, place)
        cards = [Found(*card.span(), "card") for card in CARD.finditer(text) if is_card(card[0])]
        return sorted([*found, *cards]) if cards else found

    def _tokens(self, text: str) -> list[Found]:
        return [found for found in self.written(text) if found.kind not in KEYWORDS]

    def _once(self, text: str) -> str:
        kept: list[str] = []
        end = 0
        for start, stop, kind in self.everything(text):
            if start >= end:
                kept += (text[end:start], f"[redacted:{kind}]")
            end = max(end, stop)
        return "".join([*kept, text[end:]]) if kept else text

    def hides(self, text: str) -> list[Found]:
        """Return the secrets that do not stand in a text as they are."""
        return hidden_secrets(text, self.written, tokens=self._tokens)

    def everything(self, text: str) -> list[Found]:
        """Return the secrets of a text in their order, hidden ones too; they may overlap."""
        found, hidden = self.written(text), self.hides(text)
        return sorted([*found, *hidden]) if hidden else found

    def _bounded(self, text: str, limit: int) -> str:
        """Return the text scrubbed and cut, such that doing so again changes nothing."""
        if len(text) > limit + _WINDOW:  # what is behind the cut need not be looked at
            behind = len(text) - limit - _WINDOW
            text = f"{text[:-behind]}…[{behind} more characters]"
        for _ in range(_ROUNDS):
            kept = cut(self._once(text), limit)
            if kept == text:
                return kept
            text = kept
        return "[redacted:text]" if limit >= _SHORTEST else "…"

    def _line(self, text: str, limit: int | None = None) -> str:
        """Return what is kept of a string that stands for itself, such as a reason."""
        kept = self._short(text, self._limit if limit is None else limit)
        return f"…[{len(text)} characters]" if kept is None else kept

    def _text(self, text: str, limit: int) -> Json:
        """Return what is kept of a string within a mapping."""
        kept = self._short(text, limit)
        if kept is not None:
            return kept
        return {"chars": len(text), "sha256": _sha256(text) or _UNHASHED}

    def _in_order(self, keep: Callable[[str, int], Json]) -> Callable[[str, int], Json]:
        """Return ``keep`` for strings that follow each other: one may end another's secret."""
        seams = Seams(self._tokens)

        def kept(text: str, limit: int) -> Json:
            found = keep(_SPLIT if seams.splits(text) else text, limit)
            if isinstance(found, str) and seams.splits_kept(found, text):
                found = keep(_SPLIT, limit)
                seams.replace(found if isinstance(found, str) else "")
            return found

        return kept

    def _short(self, text: str, limit: int) -> str | None:
        """Return the text scrubbed and cut; ``None`` where it is content that is not kept."""
        if len(text) < _SHORTEST:
            return cut(text, limit)
        if self._keeps:
            return self._bounded(text, limit)
        kept = self._bounded(text, limit) if len(text) <= FREE_TEXT else None
        return None if kept is None or len(kept) > FREE_TEXT else kept  # a scrubbed text may grow

    def _other(self, name: str, value: object) -> object:
        """Return what becomes of a field that is not a string; ``_SAME`` if it stays."""
        if isinstance(value, Content):
            kept: object = self._content(value, keeps=self._keeps or name == "comment")
        elif isinstance(value, ErrorInfo):
            kept = self._error(value)
        elif name in _TUPLES_OF_IDS and isinstance(value, tuple):
            kept = _clean_ids(value)
        elif name == "tool_calls" and isinstance(value, tuple):
            kept = tuple(map(self._tool_call, value[:_ENTRIES]))
        elif name == "usage" and isinstance(value, Mapping):
            kept = self._finite(value)
        elif isinstance(value, tuple):
            kept = self._lines(value)
        elif isinstance(value, Mapping):
            return self._mapping(value)
        else:
            return _SAME
        return _SAME if kept == value else kept

    def _mapping(self, value: Mapping[str, object]) -> object:
        """Return what becomes of a mapping, which is always another one: a host may have it."""
        if type(value) is dict and self.leaves(copied := value.copy()):  # as most
            return copied
        found = plain(
            value,
            limits=self._limits,
            text=self._in_order(self._text),
            names=self._text,
            hidden=_hidden,
            harmless=self._harmless,
            same=self._same_words,
        )
        return found if isinstance(found, dict) else {"…": found}  # equal is not yet plain

    def _are_harmless(self, names: tuple[str, ...]) -> bool:
        """Tell whether names are written as they are, and no number under them is hidden."""
        room = self._limits.key_chars
        return all(self._text(name, room) == name and not is_secret_key(name) for name in names)

    def _are_same_words(self, texts: tuple[str, ...]) -> bool:
        """Tell whether strings that follow each other, alone, are written as they are."""
        keep = self._in_order(self._text)
        return all(keep(text, self._limit) == text for text in texts)

    def _content(self, content: Content, *, keeps: bool | None = None) -> Content:
        """Return a text as it may be kept; what somebody says of a run is said to be kept."""
        text = content.text
        if text is None:
            return content
        first = content.chars is None
        return Content(
            text=self._bounded(text, self._limit)
            if (self._keeps if keeps is None else keeps)
            else None,
            chars=len(text) if first else content.chars,
            sha256=content.sha256 or (_sha256(text) if first else None),
        )

    def _error(self, error: ErrorInfo) -> ErrorInfo:
        type_, message = self._line(error.type), self._line(error.message)
        if type_ == error.type and message == error.message:
            return error
        return ErrorInfo(type=type_, message=message, fatal=error.fatal)

    def _tool_call(self, call: ToolCall) -> ToolCall:
        return ToolCall(
            id=clean_id(call.id),
            name=self._line(call.name),
            args=None if call.args is None else self._content(call.args),
        )

    def _finite(self, usage: Mapping[str, float]) -> dict[str, float]:
        kept = plain(usage, limits=_USAGE, names=self._text, harmless=self._harmless)
        if not isinstance(kept, dict):
            return {}
        return {
            key: value
            for key, value in kept.items()
            if isinstance(value, (int, float)) and math.isfinite(value)
        }

    def _lines(self, values: tuple[object, ...]) -> tuple[object, ...]:
        kept = self._in_order(self._line)
        return tuple(
            kept(value, self._limit) if isinstance(value, str) else value
            for value in values[:_ENTRIES]
        )


@lru_cache(maxsize=_NAMES_REMEMBERED)
def _clean_ids(ids: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(clean_id, ids))


def _changed_ids(names: tuple[str, ...], ids: tuple[str | None, ...]) -> dict[str, str]:
    cleaned = [(name, id_, clean_id(id_)) for name, id_ in zip(names, ids, strict=True) if id_]
    return {name: kept for name, id_, kept in cleaned if kept != id_}


def _remember(known: set[str | None], new: Iterable[str | None]) -> None:
    if len(known) >= _IDS_REMEMBERED:
        known.clear()
        known.update(_NOTHING)
    known.update(new)


@lru_cache(maxsize=_IDS_REMEMBERED)
def clean_id(id_: str) -> str:
    """Return an id that any store can hold: of bounded length, without NULs and surrogates.

    A secret in it is replaced by its kind and hash, so that different ids stay different.
    """
    if _is_drawn(id_):
        return id_
    if len(id_) <= _ID_LIMIT and id_.isascii() and "\0" not in id_:  # as most are
        known = _standard()
        if not known.finds(id_) and not known.hides(id_):
            return id_
    kept = id_
    for _ in range(_ROUNDS):
        before, kept = kept, _bounded_id(signed(kept))
        if kept == before:
            return kept
    return f"…{_sha256(id_) or len(id_)}"


def _is_drawn(ids: str) -> bool:
    """Say whether ids are hexadecimal, as UUIDs are: no secret looks so, but for numbers of cards.

    A tenth of the time of searching them. What may be a digest is searched all the same.
    """
    return len(ids) <= _ID_LIMIT and bool(_DRAWN.fullmatch(ids)) and CARD.search(ids) is None


def signed(id_: str) -> str:
    """Return an id with kinds and hashes for secrets; no hash where it would help to guess one."""
    if len(id_) < _SHORTEST:
        return id_
    known, text = _standard(), id_[:_WINDOW]
    found = known.everything(text)
    written = set(known.written(text)) if found else ()
    kept, end = "", 0
    for start, stop, kind in found:
        secret = id_[start:stop]
        if secret.startswith("[redacted:"):
            continue
        if start < end:  # what begins within another may end behind it
            end = max(end, stop)
            continue
        is_drawn = kind in TOKENS or (start, stop, kind) in written  # not a word, encoded
        sign = ""
        if kind == "card":  # as receipts show it: a hash of sixteen digits can be undone
            digits = "".join(filter(str.isdigit, secret))
            sign = f":{digits[:6]}-{digits[-4:]}"
        elif is_drawn and len(secret) >= _HARD_TO_GUESS:
            sign = f":{(_sha256(secret) or '')[:12]}"
        kept, end = f"{kept}{id_[end:start]}[redacted:{kind}{sign}]", stop
    return kept + id_[end:]


def _bounded_id(id_: str) -> str:
    if len(id_) <= _ID_LIMIT:
        return clean(id_)
    return f"{clean(id_[: _ID_LIMIT - 65])}…{_sha256(id_) or len(id_)}"


def scrubbed(text: str) -> str:
    """Return a text without secrets, for what does not come as an event: errors, log lines."""
    return _standard().scrub(text)


@cache
def _standard() -> Redactor:
    return Redactor("redacted")


def _hidden(key: str, value: object) -> str | None:
    """Return what stands instead of a value under a key like ``password``."""
    if value is None or value is True or value is False or not is_secret_key(key):
        return None
    if key[-5:].lower() == "token" and _is_small_number(value):
        return None  # the number of a token, as in every record of a language model
    return "[redacted:key]"


def _is_kept(number: object) -> bool:
    """Say whether a number is plain data as it is."""
    if type(number) is float:
        return math.isfinite(number)
    return type(number) is int and number.bit_length() <= _INT_BITS


def _is_small_number(value: object) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is int and value.bit_length() <= _COUNT_BITS


def _sha256(text: str) -> str | None:
    if len(text) > _HASH_LIMIT:
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
