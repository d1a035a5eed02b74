"""The page about Datasette: its facets and queries fit the views, which it really reads."""

import importlib.util
import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.filled import fill
from tests.docs.blocks import blocks
from tests.docs.conftest import ROOT
from tests.viewed import VIEWED

PAGE = ROOT / "docs/howto/datasette.md"


def metadata() -> dict[str, dict[str, dict[str, object]]]:
    [text] = [one.text for one in blocks(PAGE.read_text()) if one.language == "json"]
    found: dict[str, dict[str, dict[str, object]]] = json.loads(text)["databases"]["store"]
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shown") / "store.sqlite"
    fill(path)
    return path


def test_every_view_is_shown_with_facets_that_it_has() -> None:
    tables = metadata()["tables"]

    assert set(tables) == set(VIEWED)
    for view, how in tables.items():
        facets = how["facets"]
        assert isinstance(facets, list)
        assert set(facets) <= set(VIEWED[view][1])


def test_every_query_gives_rows(store: Path) -> None:
    with closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as database:
        for name, query in metadata()["queries"].items():
            assert database.execute(str(query["sql"])).fetchall(), name


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("datasette") is None, reason="pip install datasette")
def test_datasette_shows_a_view(store: Path, tmp_path: Path) -> None:
    text = re.search(r"```json file=metadata.json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert text is not None
    (tmp_path / "metadata.json").write_text(text[1])

    told = subprocess.run(
        [sys.executable, "-m", "datasette", str(store), "--metadata",
         str(tmp_path / "metadata.json"), "--get", "/store/decisions_in_words.json?_shape=array"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    rows = json.loads(told.stdout)
    assert rows[0]["options_and_probabilities"] == "small 25 %, large 75 %"
