"""Logs in files, and stores that they are imported into."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tau_live.core.settings import Settings
from tau_live.runtime.importing.log import Imported, LogSource, import_log
from tau_live.runtime.importing.rows import parse_map

Import = Callable[..., Imported]


def written(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    """Write rows as JSON Lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def imported(store: Path) -> Import:
    """Import a log into the test's store, or another; ``map_`` as on the command line."""

    def into(path: Path, *, map_: str = "", to: Path | None = None, **more: object) -> Imported:
        source = LogSource(path=str(path), places=parse_map(map_), point="model")
        source = replace(source, **more)  # type: ignore[arg-type]  # a test names real fields
        settings = Settings(store=to or store)
        found = import_log(source, settings, progress=lambda done, total: None)
        return replace(found, lines_per_s=0.0)

    return into
