"""The published schemas are those of the code, and what commands print is as they say."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Run
from tests.cli.filled import hold
from tests.cli.test_keys import CALLS, WITHOUT_STORE, make_inputs
from tests.schemas import FOLDER, Schema, schema_of, schemas, text_of, untyped

jsonschema = pytest.importorskip("jsonschema", reason="pip install '.[test]'")

LEARNING = {"TAU_LIVE_RL": "1", "TAU_LIVE_RL_UPDATE_INTERVAL": "1"}
LOOKS = {
    name: call
    for name, call in CALLS.items()
    if name in {"status", "gate show", "gate log", "rollouts", "updates", "policy list",
                "alerts list", "metrics", "verify", "doctor", "gc"}
}  # fmt: skip


def faults(command: str, printed: object) -> list[str]:
    validator = jsonschema.Draft202012Validator(schema_of(command))
    return [f"{one.json_path}: {one.message[:60]}" for one in validator.iter_errors(printed)]


def test_what_is_published_is_what_the_code_says() -> None:
    published = {file.name: file.read_text() for file in FOLDER.glob("*.json")}

    assert published == {name: text_of(schema) for name, schema in schemas().items()}, (
        "run `poe generate`"
    )


@pytest.mark.parametrize("name", schemas())
def test_a_schema_is_one_of_its_draft(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads((FOLDER / name).read_text()))


def test_every_key_has_a_type() -> None:
    assert untyped() == []


@pytest.mark.slow
@pytest.mark.parametrize("command", CALLS)
def test_what_a_command_prints_is_as_its_schema_says(command: str, filled: Path, run: Run) -> None:
    make_inputs(Path.cwd())
    store = () if command in WITHOUT_STORE else ("--store", filled)

    result = run(*CALLS[command], *store, "--json", **LEARNING)

    assert faults(command, json.loads(result.stdout)) == []


@pytest.mark.slow
@pytest.mark.parametrize("command", LOOKS)
def test_it_is_so_for_a_store_that_is_empty_or_held(
    command: str, filled: Path, run: Run, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.sqlite"
    SqliteStore.open(empty).close()
    hold(filled)

    printed = [
        json.loads(run(*LOOKS[command], "--json", "--store", path).stdout)
        for path in (empty, filled)
    ]

    assert [faults(command, one) for one in printed] == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["report", "status", "updates", "policy list", "rollouts"])
def test_it_is_so_for_a_store_that_has_learned(command: str, lived: Path, run: Run) -> None:
    result = run(*command.split(), "--json", "--store", lived)

    assert faults(command, json.loads(result.stdout)) == []


def test_top_prints_as_its_schema_says_where_there_is_no_store(run: Run, tmp_path: Path) -> None:
    result = run("top", "--frames", "1", "--json", "--store", tmp_path / "none.sqlite")

    assert faults("top", json.loads(result.stdout)) == []


def test_what_is_missing_or_of_another_type_is_found() -> None:
    wrong = {"state": 5, "reason": None, "detail": None, "since": 1.0, "streaks": {"update": "x"}}

    found = faults("gate show", wrong)

    assert len(found) == 4  # two keys are not there


def test_a_key_that_is_new_is_no_fault() -> None:
    assert faults("restore", dict.fromkeys([*_required("restore"), "new"], 1)) == []


def _required(command: str) -> Iterator[str]:
    schema: Schema = schema_of(command)
    required = schema["required"]
    assert isinstance(required, list)
    yield from required


def test_an_evaluation_without_whole_rollouts_fits_its_schema() -> None:
    found = schema_of("evaluate")["properties"]

    assert isinstance(found, dict)
    assert found["rollouts"]["type"] == ["object", "null"]
