"""The reference's checkpoints: read as it reads them, refused in its own words (CK1 to CK4)."""

import json
from pathlib import Path

import pytest

from tau_live.errors import CheckpointError
from tau_live.policies.reference_checkpoints import read_reference, resume_reference

GOOD: dict[str, object] = {
    "checkpoint_version": 1,
    "run_id": "run-1",
    "policy_state": {"weights": [0.5]},
    "optimizer_state": {},
    "global_step": 7,
    "optimizer_step": 3,
    "saved_at_unix_seconds": 1_700_000_000,
}


def written(path: Path, found: object) -> Path:
    path.write_text(json.dumps(found))
    return path


def test_a_checkpoint_of_the_reference_is_read(tmp_path: Path) -> None:
    found = read_reference(written(tmp_path / "c.json", GOOD))

    assert (found.run_id, found.policy_state) == ("run-1", {"weights": [0.5]})
    assert (found.global_step, found.optimizer_step) == (7, 3)
    assert found.saved_at_unix_seconds == 1_700_000_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"checkpoint_version": 2}, "unsupported checkpoint_version 2; expected 1"),
        ({"run_id": " "}, "checkpoint field `run_id` must not be empty"),
        ({"policy_state": []}, "`policy_state` must be a JSON object"),
        ({"optimizer_state": None}, "`optimizer_state` must be a JSON object"),
        ({"run_id": 1}, "missing required checkpoint field `run_id`"),
        ({"global_step": True}, "missing required checkpoint field `global_step`"),
        ({"global_step": -1}, "missing required checkpoint field `global_step`"),
        ({"global_step": 2**64}, "missing required checkpoint field `global_step`"),
        ({"optimizer_step": 1.5}, "missing required checkpoint field `optimizer_step`"),
        ({"checkpoint_version": True}, "missing required checkpoint field `checkpoint_version`"),
    ],
)
def test_a_field_that_does_not_fit_is_refused_in_the_references_words(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = written(tmp_path / "c.json", GOOD | change)

    with pytest.raises(CheckpointError) as caught:
        read_reference(path)

    assert str(caught.value) == message


@pytest.mark.parametrize("name", GOOD)
def test_a_missing_field_is_named(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "c.json", {key: value for key, value in GOOD.items() if key != name})

    with pytest.raises(CheckpointError) as caught:
        read_reference(path)

    assert str(caught.value) == f"missing required checkpoint field `{name}`"


@pytest.mark.parametrize("payload", [[], 1, "x", None])
def test_what_is_no_object_is_refused(tmp_path: Path, payload: object) -> None:
    path = written(tmp_path / "c.json", payload)

    with pytest.raises(CheckpointError, match="checkpoint payload must be a JSON object"):
        read_reference(path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"global_step": NaN}'], ids=range(5)
)
def test_what_is_no_json_is_refused_with_the_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(content)

    with pytest.raises(CheckpointError) as caught:
        read_reference(path)

    assert str(caught.value).startswith(f"parse checkpoint JSON {path}: ")


def test_what_cannot_be_read_is_refused_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_reference(tmp_path)

    assert str(caught.value).startswith(f"read checkpoint {tmp_path}: ")


def test_the_primary_is_taken_where_it_is_good(tmp_path: Path) -> None:
    primary = written(tmp_path / "primary.json", GOOD)

    found = resume_reference(primary, tmp_path / "none.json")

    assert (found.source, found.diagnostics) == ("primary", [])


def test_the_fallback_is_taken_where_the_primary_is_bad(tmp_path: Path) -> None:
    primary = written(tmp_path / "primary.json", [])
    fallback = written(tmp_path / "fallback.json", GOOD | {"run_id": "earlier"})

    found = resume_reference(primary, fallback)

    assert (found.source, found.checkpoint.run_id) == ("fallback", "earlier")
    assert found.diagnostics == [
        "primary checkpoint load failed: checkpoint payload must be a JSON object"
    ]


def test_both_are_told_where_both_are_bad(tmp_path: Path) -> None:
    primary = written(tmp_path / "primary.json", [])
    fallback = written(tmp_path / "fallback.json", GOOD | {"checkpoint_version": 3})

    with pytest.raises(CheckpointError) as caught:
        resume_reference(primary, fallback)

    assert str(caught.value) == (
        "primary checkpoint load failed: checkpoint payload must be a JSON object; "
        "fallback checkpoint load failed: unsupported checkpoint_version 3; expected 1"
    )
