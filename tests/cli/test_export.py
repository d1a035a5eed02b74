import gzip
import json
import stat
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tau_live.evidence.payloads import Bundle
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.filled import fill
from tests.contracts.making import begun, decision
from tests.schemas import FOLDER
from tests.writes import writes


@pytest.mark.slow
def test_equal_stores_give_equal_bytes(tmp_path: Path, run: Run) -> None:
    for name in ("one", "two"):
        fill(tmp_path / name / "store.sqlite")

    exports = [
        run("export", "--store", tmp_path / name / "store.sqlite") for name in ("one", "two")
    ]

    assert exports[0].stdout_bytes == exports[1].stdout_bytes
    assert exports[0].stdout.count("\n") > 10


def test_each_line_is_a_row_of_the_stores_export(filled: Path, run: Run) -> None:
    lines = run("export", "--store", filled).stdout.splitlines()

    store = SqliteStore.open(filled, read_only=True)
    expected = list(store.export())
    store.close()
    assert [json.loads(line) for line in lines] == expected


def test_a_file_is_written_whole_and_privately(filled: Path, run: Run, read: Read) -> None:
    done = read("export", "-o", "out.jsonl", "--store", filled)

    file = Path("out.jsonl")
    assert isinstance(done, dict)
    assert file.read_text() == run("export", "--store", filled).stdout
    assert sum(done["rows"].values()) == len(file.read_text().splitlines())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in Path().iterdir() if "out" in path.name] == ["out.jsonl"]


def test_a_name_that_says_packed_is_packed(filled: Path, run: Run) -> None:
    for name in ("one.jsonl.gz", "two.jsonl.gz"):
        assert run("export", "-o", name, "--store", filled).exit_code == 0

    one, two = (Path(name).read_bytes() for name in ("one.jsonl.gz", "two.jsonl.gz"))
    assert gzip.decompress(one).decode() == run("export", "--store", filled).stdout
    assert one == two


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_a_name_that_says_something_else_is_refused(name: str, filled: Path, run: Run) -> None:
    result = run("export", "-o", name, "--store", filled)

    assert result.exit_code == 2
    assert "would hold JSON Lines" in result.stderr
    assert not Path(name).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["export", "-o"],
        ["export", "--format", "parquet", "-o"],
        ["metrics", "--out"],
        ["gc", "--keep", "1", "--archive"],
        ["report", "--html"],
    ],
)
@pytest.mark.parametrize("end", ["", "-wal"])
def test_no_output_is_written_over_the_store(
    command: list[str], end: str, filled: Path, run: Run
) -> None:
    before = run("rollouts", "--json", "--store", filled).stdout

    result = run(*command, f"{filled}{end}", "--store", filled)

    assert result.exit_code == 2
    assert "is the store itself" in result.stderr
    assert run("rollouts", "--json", "--store", filled).stdout == before


def test_a_folder_that_is_not_there_is_one_line(filled: Path, run: Run) -> None:
    result = run("export", "-o", "no/such/out.jsonl", "--store", filled)

    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "No such file or directory" in result.stderr


def test_without_pyarrow_it_says_what_to_install(
    filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "tau_live.cli.arrow", raising=False)

    result = run("export", "--format", "parquet", "-o", "out", "--store", filled)

    assert result.exit_code == 1
    assert result.stderr.endswith("pip install 'pyarrow>=17'\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.slow
def test_parquet_has_every_row_of_every_table(filled: Path, run: Run) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    lines = [json.loads(line) for line in run("export", "--store", filled).stdout.splitlines()]

    result = run("export", "--format", "parquet", "-o", "out", "--store", filled)

    assert result.exit_code == 0
    for table in {line["table"] for line in lines}:
        expected = [line for line in lines if line["table"] == table]
        found = parquet.read_table(f"out/{table}.parquet").to_pylist()
        assert [_as_stored(line) for line in expected] == found


@pytest.mark.slow
def test_a_run_that_only_decides_has_its_spans_in_every_format(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "store.sqlite"
    with closing(SqliteStore.open(file)) as store:
        begun(store)
        writes(store).add_decision(decision())

    lines = [json.loads(line) for line in run("export", "--store", file).stdout.splitlines()]

    assert [(line["kind"], line["span_id"]) for line in lines if line["table"] == "spans"] == [
        ("run", "live-1:attempt-1"),
        ("decision", "live-1:attempt-1:decision-1"),
    ]
    parquet = pytest.importorskip("pyarrow.parquet")
    run("export", "--format", "parquet", "-o", "out", "--store", file)
    kinds = parquet.read_table("out/spans.parquet").column("kind").to_pylist()
    assert kinds == ["run", "decision"]


@pytest.mark.slow
def test_a_number_stays_a_number_in_parquet(filled: Path, run: Run) -> None:
    """A column that the exporter does not know would become text without anybody noticing."""
    parquet = pytest.importorskip("pyarrow.parquet")
    lines = [json.loads(line) for line in run("export", "--store", filled).stdout.splitlines()]

    run("export", "--format", "parquet", "-o", "out", "--store", filled)

    for line in lines:
        schema = parquet.read_schema(f"out/{line['table']}.parquet")
        for name, value in line.items():
            if isinstance(value, int | float):
                assert str(schema.field(name).type) in {"int64", "double", "bool"}, name


def _as_stored(line: dict[str, object]) -> dict[str, object]:
    return {
        name: json.dumps(value) if isinstance(value, dict | list) else value
        for name, value in line.items()
        if name != "table"
    }


@pytest.mark.slow
def test_each_line_of_trajectories_is_a_bundle_as_its_schema_says(
    lived: Path, run: Run, read: Read
) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="pip install '.[test]'")
    validator = jsonschema.Draft202012Validator(json.loads((FOLDER / "bundle.json").read_text()))

    done = read("export", "--format", "trajectories", "-o", "out.jsonl", "--store", lived)

    lines = Path("out.jsonl").read_bytes().splitlines()
    assert done == {
        "format": "trajectories", "output": "out.jsonl", "rows": {"bundles": len(lines)},
    }  # fmt: skip
    assert len(lines) > 100
    for line in lines:
        assert list(validator.iter_errors(json.loads(line))) == []
        assert msgspec.json.decode(line, type=Bundle).checkpoint.algorithm == "ppo"


@pytest.mark.slow
def test_trajectories_are_the_same_bytes_again(lived: Path, run: Run) -> None:
    exports = [run("export", "--format", "trajectories", "--store", lived) for _ in range(2)]

    assert exports[0].exit_code == 0
    assert exports[0].stdout_bytes == exports[1].stdout_bytes


def test_where_nothing_was_learned_there_is_no_bundle(tmp_path: Path, read: Read) -> None:
    file = tmp_path / "store.sqlite"
    SqliteStore.open(file).close()

    done = read("export", "--format", "trajectories", "-o", "out.jsonl", "--store", file)

    assert done == {"format": "trajectories", "output": "out.jsonl", "rows": {}}
    assert Path("out.jsonl").read_bytes() == b""


def test_trajectories_in_a_file_that_says_something_else_are_refused(
    filled: Path, run: Run
) -> None:
    result = run("export", "--format", "trajectories", "-o", "out.json", "--store", filled)

    assert result.exit_code == 2
    assert "would hold JSON Lines" in result.stderr
