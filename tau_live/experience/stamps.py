"""Stamps and chains: who does not hold the key can change no lesson without being noticed.

A stamp is an HMAC of its record, which holds the stamp before it. Stamps guard against others who
can write to the files; not against a process that holds the key.

Source: Bellare, Canetti and Krawczyk 1996, "Keying hash functions for message authentication"; the
chain as Schneier and Kelsey 1999, "Secure audit logs to support computer forensics", section 3.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tau_live.core.prompts import canonical_json
from tau_live.core.sanitize import JsonObject
from tau_live.experience.records import FIRST_STAMP, KINDS, Chain, Experience, Record
from tau_live.experience.words import count_words, text_problem
from tau_live.store.sealing import Keys

RECORD_DOMAIN = b"tfgrpo.exp.v1\0"
SIGNATURE = "stamp_signature"
MAX_WORDS = 32
"""The most words of a lesson and of a summary, whatever the settings."""

MOST_WHEN_WORDS = 16


class Head(msgspec.Struct, frozen=True):
    """The end of a chain; kept elsewhere, it shows a later one that was cut off.

    Attributes:
        chain: The chain.
        count: How many records it has that can be used.
        last_stamp: The stamp of the last.
        key_id: The key of that; empty for an empty chain.
    """

    chain: Chain
    count: int
    last_stamp: str
    key_id: str


def stamp(record: JsonObject, keys: Keys, *, prev_stamp: str) -> JsonObject:
    """Return a record with its stamp, the newest key and the stamp before it."""
    body = {**record, "key_id": keys.key_id, "prev_stamp": prev_stamp}
    body.pop(SIGNATURE, None)
    return {**body, SIGNATURE: keys.sign(RECORD_DOMAIN + canonical_json(body))}


class Checked(NamedTuple):
    """A record that was checked.

    Attributes:
        record: The record; ``None`` if it cannot be used.
        fault: Why not: ``schema_invalid``, ``stamp_missing``, ``unknown_key``, ``stamp_mismatch``,
            ``too_many_words``, ``unsafe_text`` with its kinds, ``chain_broken`` or
            ``duplicate_id``; ``None`` if it can.
    """

    record: Record | None
    fault: str | None


def check_record(data: object, chain: Chain, keys: Keys) -> Checked:
    """Check a record by itself.

    Args:
        data: The record, as JSON data.
        chain: Its chain.
        keys: The stamping keys.
    """
    if isinstance(data, dict) and not data.get(SIGNATURE):
        return Checked(None, "stamp_missing")
    try:
        record = msgspec.convert(data, KINDS[chain])
        body = {key: value for key, value in dict(data).items() if key != SIGNATURE}  # type: ignore[call-overload]  # it is an object
        content = RECORD_DOMAIN + canonical_json(body)
    except (msgspec.ValidationError, ValueError, RecursionError):
        return Checked(None, "schema_invalid")
    if record.key_id not in keys:
        return Checked(None, "unknown_key")
    if not keys.is_signed(content, record.stamp_signature):
        return Checked(None, "stamp_mismatch")
    fault = _text_fault(record)
    return Checked(record if fault is None else None, fault)


def _text_fault(record: Record) -> str | None:
    """Return what is wrong with the words of a record, whoever stamped it."""
    if isinstance(record, Experience):
        if record.words != count_words(record.summary32):
            return "too_many_words"
        when, limit = record.when, MOST_WHEN_WORDS  # the tools that may be named are the prompt's
        if when and (problem := text_problem(when, max_words=limit, tools=None)):
            return problem
        return text_problem(record.summary32, max_words=MAX_WORDS, tools=None)
    text = getattr(record, "summary32", None)
    return "too_many_words" if text and count_words(text) > MAX_WORDS else None


class ChainCheck:
    """Checks a chain record by record, in bounded memory but for the names of its records.

    Args:
        chain: The chain.
        keys: The stamping keys.
        kept: An earlier head, which has to be part of it.

    Attributes:
        head: The end of what was checked so far.
        is_whole: Whether the head that was kept was seen.
    """

    def __init__(self, chain: Chain, keys: Keys, *, kept: Head | None = None) -> None:
        self.head = Head(chain, 0, FIRST_STAMP, "")
        self.is_whole = kept is None or kept.last_stamp == FIRST_STAMP
        self._keys = keys
        self._kept = kept
        self._names: set[object] = set()
        self._links = {FIRST_STAMP}
        self._is_broken = False

    def check(self, text: str | bytes) -> Checked:
        """Check the next record, which is JSON text."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        checked = check_record(data, self.head.chain, self._keys)
        known: Mapping[str, object] = data if isinstance(data, dict) else {}
        own, fault = str(known.get(SIGNATURE)), checked.fault
        self.is_whole |= self._kept is not None and own == self._kept.last_stamp
        if known.get("prev_stamp") not in self._links and fault not in FOREIGN:
            self._is_broken = True  # a stamped record stands where it does not belong
        self._links = {own} if fault is None else {*self._links, own}
        if self._is_broken:
            return Checked(None, "chain_broken")
        if checked.record is None:
            return checked
        name = _name(known)
        if name in self._names:
            return Checked(None, "duplicate_id")
        self._names.add(name)
        self.head = Head(self.head.chain, self.head.count + 1, own, checked.record.key_id)
        return checked


FOREIGN = frozenset({"stamp_missing", "stamp_mismatch", "schema_invalid"})
"""The faults of what others write between the records of a chain."""


def _name(record: Mapping[str, object]) -> object:
    """Return what no two records of a chain share."""
    if "seq" in record:
        return record["seq"]
    return (record["id"], record.get("version"))
