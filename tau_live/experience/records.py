"""Records of lessons: what is learned, what every attempt came to, and what changes the pool.

Each is stamped, stored once and never changed. A lesson that changes has another version.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from tau_live.core.prompts import canonical_json
from tau_live.core.sanitize import JsonObject

Chain: TypeAlias = Literal["ledger", "experiences", "operations"]

LessonId = Annotated[str, Meta(pattern="^x-[0-9]{6,12}$")]
GroupId = Annotated[str, Meta(pattern="^g-[0-9a-f]{1,16}$")]
Version = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0, le=2**53)]
Score = Annotated[float, Meta(ge=-1e12, le=1e12)]
KeyId = Annotated[str, Meta(pattern="^[0-9a-f]{12}$")]
Stamp = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
LessonVersion: TypeAlias = tuple[LessonId, Version]

FIRST_STAMP = "0" * 64
"""The stamp before the first of a chain."""

REFERENCE_NAMES: Mapping[str, str] = {
    "run_id": "runId",
    "group_id": "groupId",
    "tool_stats": "toolStats",
    "stamp_signature": "stampSignature",
    "created_unix_ms": "createdAt",
}
"""The names of the reference for some keys, in exports that ask for them."""


class ToolStat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The use of a tool in an attempt.

    Attributes:
        tool: Its name.
        calls: How often it was called.
        tokens: The tokens of these calls.
        cost_usd: US dollars; ``None`` if unknown.
        latency_ms: Milliseconds in all.
    """

    tool: str
    calls: Natural
    tokens: Natural
    cost_usd: Score | None
    latency_ms: Score


class AttemptReward(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reward of an attempt.

    Attributes:
        gt: Its ground-truth score, in ``[0, 1]``; ``None`` if unknown.
        relative: Its rank in its group, in ``[0, 1]``; ``None`` where there is no other.
        advantage: How many standard deviations it is above its group; ``None`` likewise.
    """

    gt: Score | None
    relative: Score | None
    advantage: Score | None


class LessonReward(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reward of the attempt that a lesson is supported by.

    Attributes:
        gt: Its ground-truth score, in ``[0, 1]``.
        relative: Its rank in its group, in ``[0, 1]``.
    """

    gt: Score
    relative: Score


class Experience(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version of a lesson.

    Attributes:
        schema_version: 1.
        id: The lesson: given once, never renumbered.
        version: From 1.
        run_id: The run that it comes from.
        epoch: Its epoch.
        group_id: The group of the first support.
        domain: The domain of its pack.
        kind: Whether to do it or to avoid it.
        when: The condition, in at most 16 words.
        summary32: The lesson, in at most 32 words.
        words: How many words it has.
        reward: Of the best supporting attempt; of the worst for ``avoid``.
        tool_stats: The tools of that attempt.
        support: The tasks that support it, sorted.
        parents: The versions that it was made from.
        pack_digest: The pack that it was learned with.
        model_id: The model that it was learned with.
        created_unix_ms: When it was made.
        key_id: The key of its stamp.
        prev_stamp: The stamp before it in its chain.
        stamp_signature: Its stamp.
    """

    schema_version: Literal[1] = 1
    id: LessonId
    version: Version
    run_id: str
    epoch: Natural
    group_id: GroupId
    domain: str
    kind: Literal["do", "avoid"]
    when: str
    summary32: str
    words: Version
    reward: LessonReward
    tool_stats: list[ToolStat]
    support: Annotated[list[str], Meta(min_length=1)]
    parents: list[LessonVersion]
    pack_digest: str
    model_id: str
    created_unix_ms: Natural
    key_id: KeyId
    prev_stamp: Stamp
    stamp_signature: Stamp


class LedgerRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An attempt, with or without a lesson.

    Attributes:
        schema_version: 1.
        kind: ``trajectory``.
        id: ``t-`` and hexadecimal digits.
        run_id: The run.
        epoch: From 1.
        step: From 0.
        group_id: Its group.
        member: Its number in the group, from 0.
        query_id: The task.
        domain: The domain of the pack.
        status: ``invalid`` where the surroundings failed.
        summary32: The attempt in at most 32 words.
        words: How many words that has.
        summary_source: Whether a model wrote it.
        reward: Its reward.
        tool_stats: Its tools.
        pool_version: The pool in force.
        injected: The lessons in its prompt.
        withheld: The lessons that were left out to measure them.
        pack_digest: The pack.
        model_id: The model.
        rollout_id: The rollout in the store.
        evidence_path: The file with the checks; ``None`` if there is none.
        created_unix_ms: When it was made.
        key_id: The key of its stamp.
        prev_stamp: The stamp before it in its chain.
        stamp_signature: Its stamp.
    """

    schema_version: Literal[1] = 1
    kind: Literal["trajectory"] = "trajectory"
    id: Annotated[str, Meta(pattern="^t-[0-9a-f]{16}$")]
    run_id: str
    epoch: Natural
    step: Natural
    group_id: GroupId
    member: Natural
    query_id: str
    domain: str
    status: Literal["valid", "invalid"]
    summary32: str
    words: Natural
    summary_source: Literal["model", "template"]
    reward: AttemptReward
    tool_stats: list[ToolStat]
    pool_version: str
    injected: list[LessonVersion]
    withheld: list[LessonVersion]
    pack_digest: str
    model_id: str
    rollout_id: str
    evidence_path: str | None
    created_unix_ms: Natural
    key_id: KeyId
    prev_stamp: Stamp
    stamp_signature: Stamp


OperationName: TypeAlias = Literal[
    "ADD", "UPDATE", "MERGE", "DELETE", "KEEP", "PRUNE", "QUARANTINE", "ACCEPT", "ROLLBACK"
]


class Operation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of the pool.

    Attributes:
        schema_version: 1.
        seq: Its place among all operations, from 1.
        run_id: The run.
        epoch: Its epoch.
        step: Its step.
        op: What is done.
        id: The lesson that enters, changes or leaves.
        version: Its version before: of an ADD and a MERGE the new one.
        ids: The lessons that a MERGE joins.
        parents: The versions that a new one is made from.
        pool_before: The version of the pool before.
        pool_after: The version of the pool after it.
        evidence: The groups that it rests on.
        reason: Why.
        by: Who decided it.
        created_unix_ms: When it was made.
        key_id: The key of its stamp.
        prev_stamp: The stamp before it in its chain.
        stamp_signature: Its stamp.
    """

    schema_version: Literal[1] = 1
    seq: Version
    run_id: str
    epoch: Natural
    step: Natural
    op: OperationName
    id: LessonId | None = None
    version: Version | None = None
    ids: list[LessonId] | None = None
    parents: list[LessonVersion] | None = None
    pool_before: str
    pool_after: str
    evidence: list[GroupId]
    reason: str
    by: Literal["model", "system", "operator"]
    created_unix_ms: Natural
    key_id: KeyId
    prev_stamp: Stamp
    stamp_signature: Stamp


Record: TypeAlias = Experience | LedgerRecord | Operation
RecordKind = TypeVar("RecordKind", Experience, LedgerRecord, Operation)

KINDS: Mapping[Chain, type[Record]] = {
    "ledger": LedgerRecord,
    "experiences": Experience,
    "operations": Operation,
}
"""The record of each chain."""


def to_json(record: Record) -> JsonObject:
    """Return a record as JSON data; keys that may be left out are, where there is nothing."""
    data: JsonObject = msgspec.to_builtins(record)
    optional = {"id", "version", "ids", "parents"} if isinstance(record, Operation) else set()
    return {key: value for key, value in data.items() if value is not None or key not in optional}


def line_of(record: JsonObject, *, reference_names: bool = False) -> bytes:
    """Return a record as a line of JSON Lines, canonical, with a newline."""
    names = REFERENCE_NAMES if reference_names else {}
    return canonical_json({names.get(key, key): value for key, value in record.items()}) + b"\n"
