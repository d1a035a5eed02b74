"""A store in a notebook: its tables are those of the export, and nothing is written."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.core.errors import StoreUnavailableError, TauLiveError
from tau_live.core.sanitize import JsonObject
from tau_live.store.opening import open_at
from tests.cli.conftest import Read, Run
from tests.cli.filled import SOLVED

pytest.importorskip("pyarrow")

NOTEBOOK = Path(__file__).parents[2] / "docs/examples/store.ipynb"
TABLES = ("rollouts", "attempts", "spans", "decisions", "rewards", "updates")


def exported(run: Run, store: Path) -> Iterator[JsonObject]:
    return (json.loads(line) for line in run("export", "--store", store).stdout.splitlines())


def test_each_table_has_the_rows_of_the_export(filled: Path, run: Run) -> None:
    log, rows = tau_live.open(filled), [*exported(run, filled)]

    for name in TABLES:
        table = getattr(log, name)()
        expected = [row for row in rows if row["table"] == name]
        assert table.num_rows == len(expected) > 0
        for found, of in zip(table.to_pylist(), expected, strict=True):
            assert found.keys() == of.keys() - {"table"}
            for key, value in found.items():
                assert plain(key, value, of[key]) == of[key], (name, key)


def plain(key: str, value: Any, exported: object) -> object:
    if isinstance(value, datetime):
        assert value.tzinfo is not None
        assert isinstance(exported, (int, float))
        assert value.timestamp() == pytest.approx(exported, abs=1e-6)
        return exported
    if isinstance(value, bytes):
        return exported
    if isinstance(value, str) and not isinstance(exported, str):
        decoded = json.loads(value)
        return exported if key == "report" else decoded  # without durations there
    return value


def test_types_depend_on_names_alone(tmp_path: Path, filled: Path) -> None:
    empty = tmp_path / "empty.sqlite"
    open_at(empty).close()

    for name in TABLES:
        assert (
            getattr(tau_live.open(empty), name)().schema
            == getattr(tau_live.open(filled), name)().schema
        )


def test_it_evaluates_as_the_command_does(lived: Path, read: Read) -> None:
    found = tau_live.open(lived).evaluate("uniform", point="model")

    assert found == read("evaluate", "--policy", "uniform", "--point", "model", "--store", lived)


def test_nothing_is_written(filled: Path) -> None:
    before = filled.read_bytes()

    log = tau_live.open(filled)
    assert log.decisions().num_rows
    assert str(filled) in repr(log)
    assert filled.read_bytes() == before


def test_a_damaged_list_is_null(filled: Path) -> None:
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute("update decisions set options = '{' where seq = 1")

    options = tau_live.open(filled).decisions()["options"].to_pylist()

    assert options.count(None) == 1


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="no store at"):
        tau_live.open(tmp_path / "none.sqlite")
    (tmp_path / "text.sqlite").write_text("no database " * 100)
    with pytest.raises(TauLiveError):
        tau_live.open(tmp_path / "text.sqlite").rollouts()


def test_a_store_that_lacks_a_table_is_refused(filled: Path) -> None:
    with closing(sqlite3.connect(filled)) as db:
        db.execute("drop table rewards")

    with pytest.raises(StoreUnavailableError, match="rewards"):
        tau_live.open(filled).rewards()


def test_times_are_in_utc(filled: Path) -> None:
    [started] = [
        row["started_at"]
        for row in tau_live.open(filled).rollouts().to_pylist()
        if row["rollout_id"] == SOLVED
    ]

    assert started.tzinfo is not None
    assert started.astimezone(UTC) == started


def test_pandas_polars_and_duckdb_read_it(lived: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    log = tau_live.open(lived)
    decisions, rollouts = log.decisions(), log.rollouts()
    means = pandas.merge(decisions.to_pandas(), rollouts.to_pandas(), on="rollout_id")
    expected = dict(means.groupby("arm")["total_reward"].mean())

    joined = polars.from_arrow(decisions).join(polars.from_arrow(rollouts), on="rollout_id")
    of_polars = dict(joined.group_by("arm").agg(polars.col("total_reward").mean()).iter_rows())
    query = (
        "select arm, avg(total_reward) from decisions join rollouts using (rollout_id) group by 1"
    )
    of_duckdb = dict(duckdb.sql(query).fetchall())

    assert of_polars == pytest.approx(expected)
    assert of_duckdb == pytest.approx(expected)


@pytest.mark.slow
def test_the_notebook_of_the_documentation_runs(tmp_path: Path) -> None:
    for name in ("ipykernel", "pandas", "duckdb", "matplotlib"):
        pytest.importorskip(name)
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)

    nbclient.NotebookClient(notebook, timeout=300).execute(cwd=tmp_path)

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert [output for output in outputs if output["output_type"] == "error"] == []
    assert any("image/png" in output.get("data", {}) for output in outputs)
    texts = [
        "".join(output["data"].get("text/plain", "")) for output in outputs if "data" in output
    ]
    assert any("plus_minus" in text for text in texts)
    assert any("constant:large" in text for text in texts)
