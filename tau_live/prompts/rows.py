"""Rows of a prompt optimization, and the ids and digests that name them."""

from collections.abc import Mapping
from hashlib import sha256
from uuid import uuid5

import msgspec

from tau_live.core.prompts import canonical_json
from tau_live.core.records import NAMESPACE, RolloutMode
from tau_live.core.redaction import scrub_text
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings.kinds import as_number

KEYS = ("prompt", "input", "expected", "id", "weight", "metadata")
"""The keys of a row; the last three are not part of the task."""

LARGEST_WEIGHT = 1_000_000_000
"""Of a row or a scorer: sums of larger ones overflow, and their means are no numbers."""

_SHAPE = "rollout input must be a string or object with a string 'prompt' field"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a prompt optimization.

    Attributes:
        index: Its place among the rows of its set as written, from 0.
        prompt: The user's message; ``None`` for a row with another ``input``.
        input: Any JSON; ``{"prompt": ...}`` for a row with a prompt.
        expected: The expected output, any JSON; ``msgspec.UNSET`` if none was given.
        id: The user's own name for it.
        weight: Its weight in a score, above 0 and at most ``LARGEST_WEIGHT``.
        metadata: Open-ended JSON data.
        digest: SHA-256 of the task, which is the row without id, weight and metadata.
    """

    index: int
    prompt: str | None
    input: object
    expected: object
    id: str | None
    weight: float
    metadata: JsonObject
    digest: str


class Problem(msgspec.Struct, frozen=True):
    """A violation of the form of a row.

    Attributes:
        key: The key that has it; empty for the row itself.
        what: What is wrong.
        value: The value given.
    """

    key: str
    what: str
    value: object


def row_problems(raw: object) -> list[Problem]:
    """Return what is wrong with a row as written; empty if ``row_of`` takes it."""
    if isinstance(raw, str):
        return []
    if not isinstance(raw, dict) or not {"prompt", "input"} & raw.keys():
        return [Problem("", _SHAPE, raw)]
    problems = [Problem(key, "is not a key of a row", raw[key]) for key in raw.keys() - {*KEYS}]
    if not isinstance(raw.get("prompt", ""), str):
        problems.append(Problem("prompt", _SHAPE, raw["prompt"]))
    elif {"prompt", "input"} <= raw.keys():
        problems.append(Problem("", "cannot have both a 'prompt' and an 'input'", raw))
    if not isinstance(raw.get("id", ""), str):
        problems.append(Problem("id", "must be a string", raw["id"]))
    if not _is_weight(raw.get("weight", 1)):
        problem = f"must be a number above 0 and at most {LARGEST_WEIGHT}"
        problems.append(Problem("weight", problem, raw["weight"]))
    if not isinstance(raw.get("metadata", {}), dict):
        problems.append(Problem("metadata", "must be an object", raw["metadata"]))
    return problems


def _is_weight(value: object) -> bool:
    weight = None if isinstance(value, str) else as_number(value)
    return weight is not None and 0.0 < weight <= LARGEST_WEIGHT


def row_of(raw: object, index: int) -> Row:
    """Return a row as written in a config, which has no problems."""
    written: JsonObject = raw if isinstance(raw, dict) else {"prompt": raw}
    task = {key: written[key] for key in KEYS[:3] if key in written}
    prompt = {key: task[key] for key in ("prompt",) if key in task}
    return msgspec.convert(
        {
            "weight": 1.0,
            "metadata": {},
            "id": None,
            **written,
            "index": index,
            "prompt": prompt.get("prompt"),
            "input": prompt or task.get("input"),
            "expected": task.get("expected", msgspec.UNSET),
            "digest": row_digest(written),
        },
        Row,
    )


def without_secrets(value: object) -> object:
    """Return a JSON value whose texts hold no secrets."""
    if isinstance(value, str):
        return scrub_text(value)
    if isinstance(value, Mapping):
        return {scrub_text(str(key)): without_secrets(part) for key, part in value.items()}
    if isinstance(value, list):
        return [without_secrets(part) for part in value]
    return value


def row_digest(row: JsonObject) -> str:
    """Return the SHA-256 of a row's task, in hexadecimal."""
    return sha256(canonical_json({key: row[key] for key in KEYS[:3] if key in row})).hexdigest()


def config_digest(config: JsonObject) -> str:
    """Return the SHA-256 of a config as written, its deprecated keys renamed, in hexadecimal."""
    return sha256(canonical_json({"config": config, "format": 1})).hexdigest()


def rollout_id(run_id: str, row: Row, *, mode: RolloutMode, version: str, repeat: int) -> str:
    """Return the id of an item, one execution of a prompt version on a row.

    Args:
        run_id: The run of the optimization.
        row: The row.
        mode: The set of the row.
        version: The version of the prompt.
        repeat: The number of the execution, from 0.
    """
    name = canonical_json([run_id, mode, version, row.digest, row.index, repeat])
    return f"opt-{uuid5(NAMESPACE, name.decode())}"
