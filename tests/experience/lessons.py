"""Lessons, keys and chains to test with."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tau_live.core.prompts import canonical_json
from tau_live.experience.log import Change, Log, Place
from tau_live.experience.operations import ship
from tau_live.experience.records import FIRST_STAMP
from tau_live.experience.stamps import stamp
from tau_live.store.records import Optimization, StepRow
from tau_live.store.roles import Store
from tau_live.store.sealing import Keys

K = bytes(range(32))
KEYS = Keys(K)
MODEL = "stub/one"
LINE = "- Write the unit after every number. (when the question has units)"

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


def shipped(store: Store, keys: Keys, *, first: int = 0) -> str:
    """Put a pool into service that a run has proven, and return its version."""
    lesson = {**LESSONS[first], "model_id": MODEL}
    log = Log(store, keys)
    with store.begin():
        log.learn([lesson])
        log.change([Change("ADD", "new", "model", {"id": lesson["id"], "version": 1})], Place())
    run = store.optimizations.create(
        Optimization(
            run_id="", kind="experience", config_digest="ab" * 32, config_path="/", config={},
            model_ref=MODEL, store_path="s", created_at=time.time(), incumbent="E-0",
            report={"inputs": {"packs": [{"domain": "units", "digest": "a" * 64}]}},
        )
    )  # fmt: skip
    injected = [[id_, version] for id_, version in sorted(log.pool.lessons.items())]
    content: dict[str, Any] = {
        "ship": "shipped", "version": log.pool.version, "injected": {"units": injected},
        "blocks": {"units": LINE}, "row": {"verdict": None},
    }  # fmt: skip
    store.experience.keep_step(run.run_id, StepRow("test", 0, 0, content))
    assert ship(store, keys, run, reason="proven", who="ada") == ["experience.units"]
    return log.pool.version
