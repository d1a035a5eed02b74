"""Secrets and unwanted content out of events, before anything is written."""

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import filterfalse
from operator import attrgetter
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import fields, replace

from tau_live.core import records
from tau_live.core.events import Content, Decision, ErrorInfo, Event, ToolCall
from tau_live.core.hidden_secrets import Seams, Secret, hidden_secrets
from tau_live.core.sanitize import (
    DEFAULT_LIMITS,
    INT_BITS,
    NAMES,
    SCALARS,
    Json,
    JsonObject,
    Limits,
    clean,
    plain,
    shorten,
)
from tau_live.core.secret_kinds import (
    CARD,
    CHECKS,
    KEYWORDS,
    TOKENS,
    following,
    is_card,
    is_secret_key,
    known_kinds,
)

_DERIVED = frozenset({"rollout_id", "decision_id", "parent_id"})
"""Fields of stored records, not of events, that are hashes of other ids."""

_LEFT_ALONE = frozenset({"event", "at", "v", "mono_ns", "seq", "pid", "status", "fidelity"})
_IDS = frozenset(
    {
        *("host", "run_id", "parent_run_id", "parent_host", "execution", "session_id"),
        *("span_id", "parent_span_id", "call_id", "retry_of", "response_id", "resume_key"),
        *("rollout_id", "decision_id", "key", "source", "instructions_hash"),
        *("point", "chosen", "applied", "default", "arm"),
    }
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The fields of one class of events that are searched, and how.

    Attributes:
        texts: Strings that people or programs wrote.
        ids: Strings that name something.
        others: Fields that are neither strings nor numbers.
        text_values: Returns the values of ``texts``, in one call: there are more fields than any
            event fills.
        id_values: Returns those of ``ids``.
        other_values: Returns those of ``others``.
    """

    texts: tuple[str, ...]
    ids: tuple[str, ...]
    others: tuple[str, ...]
    text_values: Callable[[object], tuple[str | None, ...]]
    id_values: Callable[[object], tuple[str | None, ...]]
    other_values: Callable[[object], tuple[object, ...]]


def plan_of(kind: type[Struct]) -> Plan:
    """Return the fields of a class of events or stored records that are searched."""
    alone = _LEFT_ALONE if issubclass(kind, Event) else _LEFT_ALONE | _DERIVED
    names = [field.name for field in fields(kind) if field.name not in alone]
    types = {field.name: field.type for field in fields(kind)}
    strings = [name for name in names if types[name] in (str, str | None)]
    kept = {"probabilities", "encoded"} if issubclass(kind, (Decision, records.Decision)) else set()
    texts = tuple(name for name in strings if name not in _IDS)
    ids = tuple(name for name in strings if name in _IDS)
    others = tuple(
        name
        for name in names
        if name not in kept and name not in strings and not _is_number(types[name])
    )
    return Plan(texts, ids, others, *map(_values_of, (texts, ids, others)))


def _values_of(names: tuple[str, ...]) -> Callable[[object], tuple[str | None, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _is_number(annotation: object) -> bool:
    numbers = (int, float, bool, int | None, float | None, bool | None)
    return any(annotation == number for number in numbers)


PAYLOAD_LIMIT = 65_536
FREE_TEXT = 64
"""A string of more characters counts as free text, which is content."""

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
_TOGETHER = 256
"""Characters of strings that are remembered together; longer ones hardly recur."""
_TUPLES_OF_IDS = frozenset({"options", "allowed", "exploit_only", "aliases"})
_SAME = object()
T = TypeVar("T", bound=Struct)
_SPLIT = "[redacted:split]"
_HEX_IDS = re.compile(r"[0-9a-f]{1,31}+(?:[-\n][0-9a-f]{1,31}+)*+")


class Redactor:
    """Removes secrets from events, and content where none may be kept.

    ``redact(redact(event)) == redact(event)``, and the given event is never changed. Ids are left
    unchanged, but for secrets and what no store can hold; names of options are ids.

    Args:
        content: ``none`` keeps the size and hash of every text and of every string of more than
            64 characters; ``redacted`` keeps them, without secrets and cut.
        payload_limit: How many characters of one text, and of the strings of one mapping, are
            kept; at least 64.
    """

    def __init__(
        self,
        content: Literal["none", "redacted"] = "none",
        payload_limit: int = PAYLOAD_LIMIT,
    ) -> None:
        self._keeps = content == "redacted"
        self._limit = payload_limit
        self._limits = Limits(
            chars=payload_limit, total_chars=max(payload_limit, DEFAULT_LIMITS.key_chars)
        )
        self._pattern, self._kinds = known_kinds()
        self._plans: dict[type, Plan] = {}
        self._harmless = lru_cache(maxsize=_NAMES_REMEMBERED)(self._are_harmless)
        self._clean_ids: set[str | None] = set(_NOTHING)
        self._clean_texts: set[str | None] = set(_NOTHING)
        self._are_clean_words = lru_cache(maxsize=_IDS_REMEMBERED)(self._keeps_words)
        self._form = lru_cache(maxsize=_NAMES_REMEMBERED)(self._form_of)

    def with_content(self) -> "Redactor":
        """Return a redactor that removes the same secrets, and keeps texts."""
        return self if self._keeps else Redactor("redacted", self._limit)

    def redact(self, event: T) -> T:
        """Return the event as it may be written; the same object if nothing is to be changed.

        Also takes stored records, whose contents nobody else holds.
        """
        kind = type(event)
        plan = self._plans.get(kind)
        if plan is None:
            plan = self._plans[kind] = plan_of(kind)
        ids, texts = plan.id_values(event), plan.text_values(event)
        others = plan.other_values(event)
        same_ids = self._clean_ids.issuperset(ids) or self._are_clean_ids(ids)
        if same_ids and self._clean_texts.issuperset(texts) and not any(others):
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
        return replace(event, **changes) if changes else event

    def leaves(self, row: JsonObject) -> bool:
        """Return whether a quick check shows a mapping to be plain data without anything to redact.

        It does for harmless names with numbers and known words, as in most decisions; ``False`` for
        anything else says nothing.
        """
        values = (*row.values(),)
        kinds = (*map(type, values),)
        if not SCALARS.issuperset(kinds) or not NAMES.issuperset(map(type, row)):
            return False
        form = self._form((*row,), kinds)
        if form is None:
            return False
        numbers, strings, name_chars = form
        for n in numbers:
            if not _is_kept(values[n]):
                return False
        texts = (*[text for n in strings if isinstance(text := values[n], str)],)
        chars = sum(map(len, texts))
        if chars > _TOGETHER or name_chars + chars > self._limits.total_chars:
            return False
        return not texts or self._are_clean_words(texts)

    def _form_of(
        self, names: tuple[str, ...], kinds: tuple[type, ...]
    ) -> tuple[list[int], list[int], int] | None:
        """Return the indices of numbers and of strings, and the length of the names together.

        ``None`` where a name is not written unchanged.
        """
        if len(names) > _ENTRIES or not self._harmless(names):
            return None
        numbers = [n for n, kind in enumerate(kinds) if kind in (float, int)]
        strings = [n for n, kind in enumerate(kinds) if kind is str]
        return numbers, strings, sum(map(len, names))

    def _are_clean_ids(self, ids: tuple[str | None, ...]) -> bool:
        """Return whether ids, of which not all are known, are written unchanged.

        All new ones are searched at once: the end of a line, or of a word, also ends a secret, and
        a match across it only means that each has to be searched by itself.
        """
        new = [*filterfalse(self._clean_ids.__contains__, ids)]
        if len(new) == 1 and new[0] is not None:
            if clean_id(new[0]) != new[0]:
                return False
            _remember(self._clean_ids, new)
            return True
        joined = "\n".join(filter(None, new))
        if _are_hex(joined):
            _remember(self._clean_ids, new)
            return True
        if len(joined) > _ID_LIMIT or not joined.isascii() or "\0" in joined:
            return False
        known = _standard()
        words = joined.replace("\n", " ")  # or every id might continue on the next line
        if known.finds(joined) or known.disguised_secrets(words):
            return False
        _remember(self._clean_ids, new)
        return True

    def _changed_texts(
        self, names: tuple[str, ...], texts: tuple[str | None, ...]
    ) -> dict[str, object]:
        changes: dict[str, object] = {}
        for name, text in zip(names, texts, strict=True):
            if text and text not in self._clean_texts:
                kept = self._line(text) if len(text) >= _SHORTEST else clean(text)
                if kept != text:
                    changes[name] = kept
                elif len(text) <= FREE_TEXT:
                    _remember(self._clean_texts, [text])
        return changes

    def scrub(self, text: str) -> str:
        """Return the text with every secret in it replaced by ``[redacted:kind]``."""
        return self._bound_text(text, len(text) + _WINDOW)

    def finds(self, text: str) -> bool:
        """Return whether a text holds an undisguised secret, or looks like it."""
        return self._pattern.search(text) is not None or CARD.search(text) is not None

    def plain_secrets(self, text: str) -> list[Secret]:
        """Return the undisguised secrets of a text."""
        secrets = []
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
                    secrets.append(Secret(secret, end, kind))
                    place = end
            match = self._pattern.search(text, place)
        cards = [Secret(*card.span(), "card") for card in CARD.finditer(text) if is_card(card[0])]
        return sorted([*secrets, *cards]) if cards else secrets

    def _tokens(self, text: str) -> list[Secret]:
        return [secret for secret in self.plain_secrets(text) if secret.kind not in KEYWORDS]

    def _scrub_once(self, text: str) -> str:
        kept: list[str] = []
        end = 0
        for start, stop, kind in self.all_secrets(text):
            if start >= end:
                kept += (text[end:start], f"[redacted:{kind}]")
            end = max(end, stop)
        return "".join([*kept, text[end:]]) if kept else text

    def disguised_secrets(self, text: str) -> list[Secret]:
        """Return the disguised secrets of a text."""
        return hidden_secrets(text, self.plain_secrets, tokens=self._tokens)

    def all_secrets(self, text: str) -> list[Secret]:
        """Return the secrets of a text in their order, disguised ones too; they may overlap."""
        secrets, hidden = self.plain_secrets(text), self.disguised_secrets(text)
        return sorted([*secrets, *hidden]) if hidden else secrets

    def _bound_text(self, text: str, limit: int) -> str:
        """Return the text scrubbed and cut; doing so again changes nothing."""
        if len(text) > limit + _WINDOW:  # the text behind the cut need not be searched
            behind = len(text) - limit - _WINDOW
            text = f"{text[:-behind]}…[{behind} more characters]"
        for _ in range(_ROUNDS):
            kept = shorten(self._scrub_once(text), limit)
            if kept == text:
                return kept
            text = kept
        return "[redacted:text]" if limit >= _SHORTEST else "…"

    def _line(self, text: str, limit: int | None = None) -> str:
        """Return the kept form of a string outside mappings, such as a reason."""
        kept = self._short(text, self._limit if limit is None else limit)
        return f"…[{len(text)} characters]" if kept is None else kept

    def _text(self, text: str, limit: int) -> Json:
        """Return the kept form of a string within a mapping."""
        kept = self._short(text, limit)
        if kept is not None:
            return kept
        return {"chars": len(text), "sha256": _sha256(text) or _UNHASHED}

    def _in_order(self, keep: Callable[[str, int], Json]) -> Callable[[str, int], Json]:
        """Return ``keep`` for consecutive strings, of which one may complete another's secret."""
        seams = Seams(self._tokens)

        def keep_in_order(text: str, limit: int) -> Json:
            result = keep(_SPLIT if seams.splits(text) else text, limit)
            if isinstance(result, str) and seams.splits_kept(result, text):
                result = keep(_SPLIT, limit)
                seams.replace(result if isinstance(result, str) else "")
            return result

        return keep_in_order

    def _short(self, text: str, limit: int) -> str | None:
        """Return the text scrubbed and cut; ``None`` if it is content that is not kept."""
        if len(text) < _SHORTEST:
            return shorten(text, limit)
        if self._keeps:
            return self._bound_text(text, limit)
        kept = self._bound_text(text, limit) if len(text) <= FREE_TEXT else None
        return None if kept is None or len(kept) > FREE_TEXT else kept  # a scrubbed text may grow

    def _other(self, name: str, value: object) -> object:
        """Return the kept form of a field that is not a string; ``_SAME`` if it is unchanged."""
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

    def _mapping(self, value: JsonObject) -> object:
        """Return the kept form of a mapping, always a copy: a host may hold the original."""
        if type(value) is dict and self.leaves(copied := value.copy()):  # the usual case
            return copied
        data = plain(
            value,
            limits=self._limits,
            text=self._in_order(self._text),
            names=self._text,
            hidden=_placeholder,
            harmless=self._harmless,
        )
        return data if isinstance(data, dict) else {"…": data}  # an equal value need not be plain

    def _are_harmless(self, names: tuple[str, ...]) -> bool:
        """Return whether names are written unchanged, and no value under them is hidden."""
        room = self._limits.key_chars
        return all(self._text(name, room) == name and not is_secret_key(name) for name in names)

    def _keeps_words(self, texts: tuple[str, ...]) -> bool:
        """Return whether consecutive strings, by themselves, are written unchanged."""
        keep = self._in_order(self._text)
        return all(keep(text, self._limit) == text for text in texts)

    def _content(self, content: Content, *, keeps: bool | None = None) -> Content:
        """Return a text as it may be kept, with its original size and hash."""
        text = content.text
        if text is None:
            return content
        first = content.chars is None
        return Content(
            text=self._bound_text(text, self._limit)
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
    """Return an id that any store can hold: of bounded length, without NULs or surrogates.

    A secret in it is replaced by its kind and hash, so that different ids stay different.
    """
    if _are_hex(id_):
        return id_
    if len(id_) <= _ID_LIMIT and id_.isascii() and "\0" not in id_:  # as most are
        known = _standard()
        if not known.finds(id_) and not known.disguised_secrets(id_):
            return id_
    kept = id_
    for _ in range(_ROUNDS):
        before, kept = kept, _bounded_id(sign_id(kept))
        if kept == before:
            return kept
    return f"…{_sha256(id_) or len(id_)}"


def _are_hex(ids: str) -> bool:
    """Return whether ids are hexadecimal, as UUIDs are: no secret is, except card numbers.

    A tenth of the time of a search. Runs as long as a digest do not count.
    """
    return len(ids) <= _ID_LIMIT and bool(_HEX_IDS.fullmatch(ids)) and CARD.search(ids) is None


def sign_id(id_: str) -> str:
    """Return an id with secrets replaced by kind and hash; no hash where it would help to guess."""
    if len(id_) < _SHORTEST:
        return id_
    known, text = _standard(), id_[:_WINDOW]
    secrets = known.all_secrets(text)
    written = set(known.plain_secrets(text)) if secrets else ()
    kept, end = "", 0
    for start, stop, kind in secrets:
        secret = id_[start:stop]
        if secret.startswith("[redacted:"):
            continue
        if start < end:  # a secret that begins within another may end behind it
            end = max(end, stop)
            continue
        is_token = kind in TOKENS or (start, stop, kind) in written  # not an encoded word
        sign = ""
        if kind == "card":  # as on receipts: a hash of sixteen digits can be reversed
            digits = "".join(filter(str.isdigit, secret))
            sign = f":{digits[:6]}-{digits[-4:]}"
        elif is_token and len(secret) >= _HARD_TO_GUESS:
            sign = f":{(_sha256(secret) or '')[:12]}"
        kept, end = f"{kept}{id_[end:start]}[redacted:{kind}{sign}]", stop
    return kept + id_[end:]


def _bounded_id(id_: str) -> str:
    if len(id_) <= _ID_LIMIT:
        return clean(id_)
    return f"{clean(id_[: _ID_LIMIT - 65])}…{_sha256(id_) or len(id_)}"


def scrub_text(text: str) -> str:
    """Return a text without secrets, for texts outside events: errors, log lines."""
    return _standard().scrub(text)


@cache
def _standard() -> Redactor:
    return Redactor("redacted")


def _placeholder(key: str, value: object) -> str | None:
    """Return the placeholder for a value under a key like ``password``; ``None`` to keep it."""
    if value is None or value is True or value is False or not is_secret_key(key):
        return None
    if key[-5:].lower() == "token" and _is_kept(value, bits=_COUNT_BITS):
        return None  # a count of tokens, as in every record of a language model
    return "[redacted:key]"


def _is_kept(number: object, *, bits: int = INT_BITS) -> bool:
    """Return whether a value is a number that is kept unchanged."""
    if type(number) is float:
        return math.isfinite(number)
    return type(number) is int and number.bit_length() <= bits


def _sha256(text: str) -> str | None:
    if len(text) > _HASH_LIMIT:
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
