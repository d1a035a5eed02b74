"""Lessons, keys and chains to test with."""

from collections.abc import Mapping, Sequence
from typing import Any

from tau_live.core.prompts import canonical_json
from tau_live.experience.records import FIRST_STAMP
from tau_live.experience.stamps import stamp
from tau_live.store.sealing import Keys

K = bytes(range(32))
KEYS = Keys(K)

BASE: Mapping[str, Any] = {
    "created_unix_ms": 1790000000001, "domain": "units", "epoch": 1, "group_id": "g-1",
    "id": "x-000001", "kind": "do", "model_id": "stub/one", "pack_digest": 64 * "a", "parents": [],
    "reward": {"gt": 1.0, "relative": 1.0}, "run_id": "tfg-demo-1", "schema_version": 1,
    "summary32": "Write the unit after every number.", "support": ["q-1"], "tool_stats": [],
    "version": 1, "when": "the question has units", "words": 6,
}  # fmt: skip

LESSONS: Sequence[Mapping[str, Any]] = (
    BASE,
    {**BASE, "id": "x-000002", "created_unix_ms": 1790000000002,
     "summary32": "Convert to one unit before adding."},
    {**BASE, "id": "x-000003", "created_unix_ms": 1790000000003,
     "summary32": "Never drop the unit of the answer.", "words": 7},
)  # fmt: skip


def chained(lessons: Sequence[Mapping[str, Any]] = LESSONS, keys: Keys = KEYS) -> list[Any]:
    """Return lessons as records of a chain."""
    records: list[Any] = []
    for lesson in lessons:
        prev = records[-1]["stamp_signature"] if records else FIRST_STAMP
        records.append(stamp(lesson, keys, prev_stamp=prev))
    return records


def texts(records: Sequence[object]) -> list[bytes]:
    """Return records as they are stored."""
    return [canonical_json(record) for record in records]
