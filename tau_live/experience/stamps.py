"""Stamps and chains: who does not hold the key can change no lesson without being noticed.

A stamp is an HMAC of its record, which holds the stamp before it. Stamps guard against others who
can write to the files; not against a process that holds the key.

Source: Bellare, Canetti and Krawczyk 1996, "Keying hash functions for message authentication"; the
chain as Schneier and Kelsey 1999, "Secure audit logs to support computer forensics", section 3.
"""

import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from tau_live.core.errors import ConfigError
from tau_live.core.prompts import canonical_json
from tau_live.core.sanitize import JsonObject
from tau_live.experience.records import FIRST_STAMP, KINDS, Chain, Experience, Record
from tau_live.experience.words import count_words, text_problem
from tau_live.store.sealing import Sealer, key_in

RECORD_DOMAIN = b"tfgrpo.exp.v1\0"
SIGNATURE = "stamp_signature"
MAX_WORDS = 32
"""The most words of a lesson and of a summary, whatever the settings."""

MOST_WHEN_WORDS = 16

NO_KEY = "TF-GRPO needs a stamping key: set TAU_LIVE_RL_AUDIT_KEY_FILE."


class Keys:
    """The stamping keys: the newest stamps, all of them verify.

    Args:
        newest: The key of new records, 16 to 64 bytes.
        earlier: Those before it.

    Attributes:
        key_id: The name of the newest; it reveals nothing of the key.
    """

    def __init__(self, newest: bytes, earlier: Iterable[bytes] = ()) -> None:
        self._newest = newest
        self.key_id = Sealer(newest).key_id
        self._known = {Sealer(key).key_id: key for key in (*earlier, newest)}

    def __repr__(self) -> str:
        return f"Keys({self.key_id})"

    @classmethod
    def read(cls, path: Path | None) -> "Keys":
        """Return the key of a file, and those before it in ``<file>.d/*.key``.

        Raises:
            ConfigError: No file is set.
            StoreUnavailableError: A file is no key, or cannot be read.
        """
        if path is None:
            raise ConfigError([NO_KEY])
        earlier = sorted(path.with_name(f"{path.name}.d").glob("*.key"))
        return cls(key_in(path), map(key_in, earlier))

    def sign(self, content: bytes) -> str:
        """Return the HMAC-SHA-256 of some bytes with the newest key, in hex."""
        return hmac.new(self._newest, content, sha256).hexdigest()

    def is_signed(self, content: bytes, signature: str) -> bool:
        """Return whether a signature is that of any of the keys."""
        return any(
            hmac.compare_digest(hmac.new(key, content, sha256).hexdigest(), signature)
            for key in self._known.values()
        )

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._known


class Head(msgspec.Struct, frozen=True):
    """The end of a chain; kept elsewhere, it shows a later one that was cut off.

    Attributes:
        chain: The chain.
        count: How many records it has.
        last_stamp: The stamp of the last.
        key_id: The key of that; empty for an empty chain.
    """

    chain: Chain
    count: int
    last_stamp: str
    key_id: str


class ChainFault(NamedTuple):
    """A record that is not to be used.

    Attributes:
        place: Its place in the chain, from 1; 0 for a chain that is shorter than a head says.
        reason: Why, such as ``stamp_mismatch``.
    """

    place: int
    reason: str


def stamp(record: JsonObject, keys: Keys, *, prev_stamp: str) -> JsonObject:
    """Return a record with its stamp, the newest key and the stamp before it."""
    body = {**record, "key_id": keys.key_id, "prev_stamp": prev_stamp}
    body.pop(SIGNATURE, None)
    return {**body, SIGNATURE: keys.sign(RECORD_DOMAIN + canonical_json(body))}


def record_fault(record: object, chain: Chain, keys: Keys) -> str | None:
    """Return why a record cannot be used; ``None`` if it can.

    Args:
        record: The record, as JSON data.
        chain: Its chain.
        keys: The stamping keys.

    Returns:
        ``schema_invalid``, ``stamp_missing``, ``unknown_key``, ``stamp_mismatch``,
        ``too_many_words``, or ``unsafe_text`` with its kinds.
    """
    if isinstance(record, dict) and not record.get(SIGNATURE):
        return "stamp_missing"
    try:
        known = msgspec.convert(record, KINDS[chain])
        body = {key: value for key, value in dict(record).items() if key != SIGNATURE}  # type: ignore[call-overload]  # it is an object
        content = RECORD_DOMAIN + canonical_json(body)
    except (msgspec.ValidationError, ValueError):
        return "schema_invalid"
    if known.key_id not in keys:
        return "unknown_key"
    if not keys.is_signed(content, known.stamp_signature):
        return "stamp_mismatch"
    return _text_fault(known)


def _text_fault(record: Record) -> str | None:
    """Return what is wrong with the words of a record, whoever stamped it."""
    if isinstance(record, Experience):
        if record.words != count_words(record.summary32):
            return "too_many_words"
        if record.when and (problem := text_problem(record.when, max_words=MOST_WHEN_WORDS)):
            return problem
        return text_problem(record.summary32, max_words=MAX_WORDS)
    text = getattr(record, "summary32", None)
    return "too_many_words" if text and count_words(text) > MAX_WORDS else None


class ChainCheck:
    """Checks a chain record by record, in bounded memory but for the names of its records.

    Args:
        chain: The chain.
        keys: The stamping keys.
        kept: An earlier head, which has to be part of it.
    """

    def __init__(self, chain: Chain, keys: Keys, *, kept: Head | None = None) -> None:
        self._chain = chain
        self._keys = keys
        self._kept = kept
        self._names: set[object] = set()
        self._links = {FIRST_STAMP}
        self._is_broken = False
        self.head = Head(chain, 0, FIRST_STAMP, "")

    def faults(self, records: Iterable[str | bytes]) -> Iterator[ChainFault]:
        """Yield each record that cannot be used, in order.

        Args:
            records: All records, from the first, as JSON text.
        """
        place = 0
        for place, text in enumerate(records, start=1):
            reason = self._fault(text, place)
            if reason is not None:
                yield ChainFault(place, reason)
        if self._kept is not None and place < self._kept.count:
            yield ChainFault(0, "chain_broken")

    def _fault(self, text: str | bytes, place: int) -> str | None:
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        data: Mapping[str, object] = record if isinstance(record, dict) else {}
        own, prev = str(data.get(SIGNATURE)), data.get("prev_stamp")
        reason = record_fault(record, self._chain, self._keys)
        if prev not in self._links or (
            self._kept is not None and place == self._kept.count and own != self._kept.last_stamp
        ):
            # what stands where it does not belong may be stamped all the same: a deleted row
            self._is_broken |= reason not in {"stamp_missing", "stamp_mismatch", "schema_invalid"}
        self._links = {own} if reason is None else {*self._links, own}
        if self._is_broken:
            return "chain_broken"
        if reason is not None:
            return reason
        name = _name(data)
        if name in self._names:
            return "duplicate_id"
        self._names.add(name)
        self.head = Head(self._chain, place, own, str(data["key_id"]))
        return None


def _name(record: Mapping[str, object]) -> object:
    """Return what no two records of a chain share."""
    if "seq" in record:
        return record["seq"]
    return (record["id"], record.get("version"))
