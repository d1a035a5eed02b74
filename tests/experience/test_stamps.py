import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tau_live.core.errors import ConfigError
from tau_live.experience.records import Experience, line_of, to_json
from tau_live.experience.stamps import ChainCheck, Head, check_record, stamp
from tau_live.store.sealing import NO_KEY, Keys
from tests.experience.lessons import BASE, KEYS, LESSONS, K, chained, texts

STAMPS = [
    "cfe8701ab65ec3eddafeac09a45dafb958f0ea7f895fdd6ac1dacf094d9242f9",
    "e1a99602bd0a99db99fa074e649c8e30469eb9774872143c4545114d580b8189",
    "faf9314f9200a4504d2739704146a9516f03a950a2530c3a488639945cee2217",
]
Change = Callable[[list[Any]], list[Any]]


def checked(records: Sequence[object], keys: Keys = KEYS) -> tuple[ChainCheck, dict[int, str]]:
    check, faults = ChainCheck("experiences", keys), {}
    for place, text in enumerate(texts(records), start=1):
        if (fault := check.check(text).fault) is not None:
            faults[place] = fault
    return check, faults


def faults(records: list[Any], keys: Keys = KEYS) -> dict[int, str]:
    return checked(records, keys)[1]


def head_of(records: list[Any]) -> Head:
    return checked(records)[0].head


def is_whole(records: list[Any], kept: Head) -> bool:
    check = ChainCheck("experiences", KEYS, kept=kept)
    for text in texts(records):
        check.check(text)
    return check.is_whole


def test_stamps_are_those_of_the_vector() -> None:
    records = chained()

    assert KEYS.key_id == "6c3cf83052ef"
    assert [record["stamp_signature"] for record in records] == STAMPS
    assert faults(records) == {}
    assert head_of(records) == Head("experiences", 3, STAMPS[2], "6c3cf83052ef")


def inserted(records: list[Any]) -> list[Any]:
    """A row that somebody wrote by hand, with 64 hexadecimal digits as its stamp."""
    own = {**records[0], "id": "x-000009", "stamp_signature": 64 * "b"}
    return [records[0], own, *records[1:]]


def copied(records: list[Any]) -> list[Any]:
    """A stamp that belongs to another lesson."""
    forged = {**records[1], "summary32": "Never write any unit of anything."}
    return [records[0], {**forged, "stamp_signature": records[0]["stamp_signature"]}, records[2]]


def edited(records: list[Any]) -> list[Any]:
    return [
        records[0],
        {**records[1], "summary32": "Convert to two unit before adding."},
        records[2],
    ]


def unstamped(records: list[Any]) -> list[Any]:
    own = {key: value for key, value in records[1].items() if key != "stamp_signature"}
    return [records[0], own, records[2]]


def swapped(records: list[Any]) -> list[Any]:
    return [records[1], records[0], records[2]]


def shortened(records: list[Any]) -> list[Any]:
    return [records[0], records[2]]


def repeated(records: list[Any]) -> list[Any]:
    again = stamp(records[0], KEYS, prev_stamp=records[2]["stamp_signature"])
    return [*records, again]


def of_another_key(records: list[Any]) -> list[Any]:
    own = {**BASE, "id": "x-000004"}
    return [*records, stamp(own, Keys(64 * b"k"), prev_stamp=records[2]["stamp_signature"])]


def wordy(records: list[Any]) -> list[Any]:
    own = {**BASE, "id": "x-000004", "summary32": "word " * 32 + "word", "words": 33}
    return [*records, stamp(own, KEYS, prev_stamp=records[2]["stamp_signature"])]


def miscounted(records: list[Any]) -> list[Any]:
    own = {**BASE, "id": "x-000004", "words": 5}
    return [*records, stamp(own, KEYS, prev_stamp=records[2]["stamp_signature"])]


def unsafe(records: list[Any]) -> list[Any]:
    own = {
        **BASE,
        "id": "x-000004",
        "summary32": "See https://evil.example now please.",
        "words": 4,
    }
    return [*records, stamp(own, KEYS, prev_stamp=records[2]["stamp_signature"])]


def closed(records: list[Any]) -> list[Any]:
    return [*records, stamp({**BASE, "more": 1}, KEYS, prev_stamp=records[2]["stamp_signature"])]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (inserted, {2: "stamp_mismatch"}),
        (copied, {2: "stamp_mismatch", 3: "chain_broken"}),
        (edited, {2: "stamp_mismatch"}),
        (unstamped, {2: "stamp_missing", 3: "chain_broken"}),
        (swapped, {1: "chain_broken", 2: "chain_broken", 3: "chain_broken"}),
        (shortened, {2: "chain_broken"}),
        (repeated, {4: "duplicate_id"}),
        (of_another_key, {4: "unknown_key"}),
        (wordy, {4: "too_many_words"}),
        (miscounted, {4: "too_many_words"}),
        (unsafe, {4: "unsafe_text: url"}),
        (closed, {4: "schema_invalid"}),
    ],
)
def test_whatever_is_changed_is_not_used(change: Change, expected: dict[int, str]) -> None:
    assert faults(change(chained())) == expected


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"1", b"{", b"null", b'{"stamp_signature": NaN}', b"[" * 10**6]
)
def test_what_is_no_record_is_not_used(text: bytes) -> None:
    fault = ChainCheck("experiences", KEYS).check(text).fault

    assert fault in {"schema_invalid", "stamp_missing"}


def test_a_cut_end_is_noticed_by_a_head_that_was_kept() -> None:
    records = chained()
    kept = head_of(records)

    assert faults(records[:2]) == {}
    assert not is_whole(records[:2], kept)
    assert is_whole(records, head_of(records[:2]))
    assert is_whole(edited(records), kept)


def test_another_past_is_noticed_by_a_head_that_was_kept() -> None:
    kept = head_of(chained())

    assert not is_whole(chained([*LESSONS[:2], {**BASE, "id": "x-000007"}]), kept)


def test_an_earlier_key_verifies_and_a_new_one_stamps(tmp_path: Path) -> None:
    path = tmp_path / "audit.key"
    path.write_bytes(b"o" * 40)
    before = Keys.read(path)
    old = chained(keys=before)
    (tmp_path / "audit.key.d").mkdir()
    path.rename(tmp_path / "audit.key.d/2026.key")
    path.write_bytes(b"n" * 40)

    keys = Keys.read(path)

    assert faults(old, keys) == {}
    assert stamp(BASE, keys, prev_stamp=64 * "0")["key_id"] == keys.key_id != before.key_id


def test_without_a_key_there_are_no_stamps() -> None:
    with pytest.raises(ConfigError) as raised:
        Keys.read(None)

    assert str(raised.value) == NO_KEY


def test_no_key_is_ever_shown() -> None:
    assert K.hex() not in repr(KEYS)
    assert repr(KEYS) == "Keys(6c3cf83052ef)"


def test_a_record_reads_back_as_it_was_written() -> None:
    (record, *_) = chained()

    known = msgspec.convert(record, Experience)

    assert to_json(known) == record
    assert check_record(json.loads(line_of(to_json(known))), "experiences", KEYS).record == known
    assert b'"stampSignature"' in line_of(record, reference_names=True)
