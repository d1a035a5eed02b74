"""What a payload refuses, and the lineage of checkpoints."""

import json
import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from tau_live.evidence.payloads import Bundle, Checkpoint, Step, lineage

AT = "2026-11-22T07:30:00Z"

STEP = {"observation": {}, "action": "a", "metadata": {}}
BUNDLE: dict[str, Any] = {
    "schema_version": 1,
    "trajectory": {
        "trajectory_id": "t",
        "steps": [
            STEP | {"step_index": 0, "reward": 0.1, "done": False, "logprob": -0.5},
            STEP | {"step_index": 1, "reward": 0.2, "done": True, "value_estimate": 0.3},
        ],
        "discount_factor": 0.99,
        "total_return": 0.3,
        "created_at": AT,
        "metadata": {},
    },
    "advantages": {
        "batch_id": "b",
        "trajectory_id": "t",
        "advantages": [0.5, -0.5],
        "returns": [0.3, 0.2],
        "value_targets": [0.3, 0.2],
        "normalized": False,
        "created_at": AT,
        "metadata": {},
    },
    "checkpoint": {
        "checkpoint_id": "c",
        "algorithm": "ppo",
        "policy_version": "1",
        "global_step": 2,
        "episode_count": 1,
        "created_at": AT,
        "metadata": {},
    },
}


def read(document: object) -> Bundle:
    return msgspec.json.decode(json.dumps(document), type=Bundle)


def checkpoint(name: str, parent: str | None = None) -> Checkpoint:
    document = BUNDLE["checkpoint"] | {
        "checkpoint_id": name,
        "metadata": {"parent_checkpoint_id": parent},
    }
    return msgspec.convert(document, Checkpoint)


def test_what_is_written_is_read_again() -> None:
    bundle = read(BUNDLE)

    assert msgspec.json.decode(msgspec.json.encode(bundle), type=Bundle) == bundle


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(
            lambda b: b["trajectory"].update(steps=[]), "length >= 1", id="no step at all"
        ),
        pytest.param(
            lambda b: b["trajectory"]["steps"].reverse(),
            "expected step_index=0 but found step_index=1 at position 0",
            id="a step that is elsewhere",
        ),
        pytest.param(
            lambda b: b["trajectory"].update(discount_factor=1.01),
            "<= 1.0",
            id="a discount above 1",
        ),
        pytest.param(
            lambda b: b["trajectory"].update(total_return=0.3 + 2e-9),
            "'total_return' must be the sum of its rewards",
            id="a total that is no sum",
        ),
        pytest.param(
            lambda b: b["trajectory"]["steps"][0].update(reward=10**400),
            "out of range",
            id="no finite reward",
        ),
        pytest.param(
            lambda b: b["advantages"]["returns"].pop(),
            "length mismatch: advantages=2 returns=1 value_targets=2",
            id="a return too few",
        ),
        pytest.param(
            lambda b: b["advantages"].update(trajectory_id="u"),
            "trajectory_id mismatch: trajectory='t' advantages='u'",
            id="advantages of another trajectory",
        ),
        pytest.param(
            lambda b: b["advantages"].update(advantages=[1.0], returns=[1.0], value_targets=[1.0]),
            "trajectory/advantage length mismatch: trajectory.steps=2 advantages=1",
            id="an advantage too few",
        ),
        pytest.param(
            lambda b: b["checkpoint"].update(global_step=1),
            "checkpoint progression mismatch: checkpoint.global_step=1 trajectory.steps=2",
            id="a checkpoint before its steps",
        ),
        pytest.param(
            lambda b: b["checkpoint"].update(policy_version=" "), "regex", id="a blank version"
        ),
        pytest.param(
            lambda b: b["checkpoint"].update(created_at="yesterday"), "regex", id="no time"
        ),
        pytest.param(lambda b: b.update(schema_version=2), "enum value 2", id="another version"),
        pytest.param(
            lambda b: b["trajectory"].update(more=1), "unknown field `more`", id="a field too many"
        ),
        pytest.param(lambda b: b["checkpoint"].pop("global_step"), "missing", id="a field too few"),
    ],
)
def test_what_does_not_fit_is_refused(
    change: Callable[[dict[str, Any]], object], problem: str
) -> None:
    document = deepcopy(BUNDLE)
    change(document)

    with pytest.raises(msgspec.ValidationError, match=problem):
        read(document)


def test_a_total_may_differ_by_rounding() -> None:
    document = deepcopy(BUNDLE)
    document["trajectory"]["total_return"] += 9e-10

    assert read(document).trajectory.total_return != 0.3


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["reward", "logprob", "value_estimate"])
def test_a_step_made_here_holds_finite_numbers_too(field: str, number: float) -> None:
    numbers = {"reward": 0.0, field: number}

    with pytest.raises(ValueError, match=f"Step field '{field}' must be a finite number"):
        Step(step_index=0, observation=None, action=None, done=True, metadata={}, **numbers)


def test_a_lineage_goes_from_the_root_to_the_leaf() -> None:
    known = [checkpoint("leaf", "middle"), checkpoint("root", "  "), checkpoint("middle", " root ")]

    path = lineage([*known, checkpoint("other", "gone")], "leaf")

    assert [one.checkpoint_id for one in path] == ["root", "middle", "leaf"]


@pytest.mark.parametrize(
    ("known", "problem"),
    [
        ([checkpoint("leaf"), checkpoint("leaf")], "duplicate checkpoint_id: 'leaf'"),
        ([checkpoint("other")], "unknown leaf checkpoint: 'leaf'"),
        ([checkpoint("leaf", "gone")], "missing parent checkpoint: 'gone' of 'leaf'"),
        ([checkpoint("leaf", "a"), checkpoint("a", "leaf")], "lineage cycle detected: 'leaf'"),
        ([checkpoint("leaf", "leaf")], "lineage cycle detected: 'leaf'"),
    ],
)
def test_a_lineage_that_does_not_resolve_is_refused(known: list[Checkpoint], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        lineage(known, "leaf")
