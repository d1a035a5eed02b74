"""Rows, and the ids and digests of a prompt optimization."""

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.prompts import canonical_json, prompt_version
from tau_live.core.records import RolloutMode
from tau_live.prompts.rows import (
    config_digest,
    rollout_id,
    row_of,
    row_problems,
)

ROW = {"prompt": "What is 2 + 2?", "expected": "4"}
CONFIG = {
    "optimize": [ROW],
    "validate": [{"prompt": "What is 3 + 3?", "expected": "6"}],
    "resources": {"system_prompt": "You are a concise assistant."},
    "worker_count": 2,
}
VERSION = "p-fa07597c3d9b"
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=8,
)  # fmt: skip


def test_vectors_of_the_contract() -> None:
    row = row_of(ROW, 0)

    assert canonical_json(ROW) == b'{"expected":"4","prompt":"What is 2 + 2?"}'
    assert row.digest == "ae51f90d4592da350f45f38187cf54830f7bb4ae6fdd72b5fe507aa8e5c58f90"
    assert config_digest(CONFIG) == (
        "aef0db2e52d69d4c453ef89264d57de8d6f29f3d26d15bd3260ce42d016f0a93"
    )
    assert prompt_version("You are a concise assistant.") == VERSION


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("opt-aef0db2e52d6-1", "opt-f2142b0b-69df-5250-b97c-441b57ae5e62"),
        ("opt-aef0db2e52d6-2", "opt-dfb16786-08ec-5ca0-8319-b1e4ff7df2b9"),
    ],
)
def test_an_item_is_named_by_its_run_and_task(run: str, expected: str) -> None:
    item = rollout_id(run, row_of(ROW, 0), mode=RolloutMode.TRAIN, version=VERSION, repeat=0)

    assert item == expected


def test_every_part_of_an_item_changes_its_id() -> None:
    first, second, other = row_of(ROW, 0), row_of(ROW, 1), row_of("another", 0)
    train, val = RolloutMode.TRAIN, RolloutMode.VAL

    ids = {
        rollout_id("run", first, mode=train, version="p-1", repeat=0),
        rollout_id("run 2", first, mode=train, version="p-1", repeat=0),
        rollout_id("run", second, mode=train, version="p-1", repeat=0),
        rollout_id("run", other, mode=train, version="p-1", repeat=0),
        rollout_id("run", first, mode=val, version="p-1", repeat=0),
        rollout_id("run", first, mode=train, version="p-2", repeat=0),
        rollout_id("run", first, mode=train, version="p-1", repeat=1),
    }

    assert len(ids) == 7


@pytest.mark.slow
@given(DATA)
def test_canonical_json_reads_back_as_it_was(value: object) -> None:
    assert json.loads(canonical_json(value)) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, "1.0"),
        (1, "1"),
        (0.1, "0.1"),
        ("ü在", '"ü在"'),
        ({"b": 1, "a": [None, True]}, '{"a":[null,true],"b":1}'),
        ({"\U00010000": 1, "\ufb01": 2}, '{"\ufb01":2,"\U00010000":1}'),
    ],
)
def test_canonical_json(value: object, expected: str) -> None:
    assert canonical_json(value).decode() == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, "\ud800"])
def test_what_is_no_json_has_no_canonical_form(value: object) -> None:
    with pytest.raises(ValueError, match=r"JSON|surrogates"):
        canonical_json([value])


@pytest.mark.parametrize(
    "text", ["You are a concise assistant.", " \n You are a concise assistant.\t\n"]
)
def test_outer_whitespace_makes_no_version(text: str) -> None:
    assert prompt_version(text) == VERSION


def test_the_composition_of_characters_makes_no_version() -> None:
    assert prompt_version("caf\u00e9") == prompt_version("cafe\u0301")


def test_a_text_is_a_row_with_a_prompt() -> None:
    row = row_of("What is 2 + 2?", 3)

    assert (row.index, row.prompt, row.input) == (3, "What is 2 + 2?", {"prompt": "What is 2 + 2?"})
    assert (row.expected, row.weight, row.id) == (msgspec.UNSET, 1.0, None)
    assert row.digest == row_of({"prompt": "What is 2 + 2?"}, 0).digest


def test_a_row_may_have_any_input() -> None:
    row = row_of({"input": [1, {"a": None}], "expected": None, "weight": 2}, 0)

    assert (row.prompt, row.input, row.expected) == (None, [1, {"a": None}], None)
    assert row.weight == 2.0


def test_id_weight_and_metadata_are_no_part_of_the_task() -> None:
    named = row_of({**ROW, "id": "sum", "weight": 3, "metadata": {"from": "a book"}}, 0)

    assert named.digest == row_of(ROW, 0).digest
    assert (named.id, named.weight, named.metadata) == ("sum", 3.0, {"from": "a book"})


SHAPE = "rollout input must be a string or object with a string 'prompt' field"
WEIGHT = "must be a number above 0 and at most 1000000000"


@pytest.mark.parametrize(
    ("raw", "key", "what"),
    [
        (1, "", SHAPE),
        (None, "", SHAPE),
        ([], "", SHAPE),
        ({}, "", SHAPE),
        ({"expected": "4"}, "", SHAPE),
        ({"prompt": 1}, "prompt", SHAPE),
        ({"prompt": "a", "input": 1}, "", "cannot have both a 'prompt' and an 'input'"),
        ({"prompt": "a", "id": 1}, "id", "must be a string"),
        ({"prompt": "a", "weight": 0}, "weight", WEIGHT),
        ({"prompt": "a", "weight": "1"}, "weight", WEIGHT),
        ({"prompt": "a", "weight": True}, "weight", WEIGHT),
        ({"prompt": "a", "weight": 10**400}, "weight", WEIGHT),
        ({"prompt": "a", "weight": 1e308}, "weight", WEIGHT),
        ({"prompt": "a", "weight": 1_000_000_001}, "weight", WEIGHT),
        ({"prompt": "a", "metadata": []}, "metadata", "must be an object"),
        ({"prompt": "a", "expect": "b"}, "expect", "is not a key of a row"),
    ],
)
def test_a_row_of_another_form_is_a_problem(raw: object, key: str, what: str) -> None:
    [problem] = row_problems(raw)

    assert (problem.key, problem.what) == (key, what)


@pytest.mark.parametrize(
    "raw",
    ["", "text", ROW, {"input": None}, {"prompt": "a", "weight": 1}, {"input": 1, "weight": 1e9}],
)
def test_a_row_without_problems(raw: object) -> None:
    assert row_problems(raw) == []
