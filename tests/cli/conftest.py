"""A store with one of everything, and a way to call commands on it."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tau_live.cli import main
from tests.cli.filled import fill
from tests.cli.lived import live

Run = Callable[..., Result]
Read = Callable[..., object]


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no setting and no store of the surroundings reach a test."""
    for name in os.environ:
        if name.startswith("TAU_LIVE") or name in {"COLUMNS", "NO_COLOR", "FORCE_COLOR"}:
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    fill(folder / "store.sqlite")
    return folder


@pytest.fixture
def filled(original: Path, tmp_path: Path) -> Path:
    """The path of a store of its own with one of everything in it."""
    for source in original.rglob("*"):
        if source.is_file():
            target = tmp_path / "live" / source.relative_to(original)
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            target.write_bytes(source.read_bytes())
            target.chmod(0o600)
    return tmp_path / "live" / "store.sqlite"


@pytest.fixture
def run() -> Run:
    """Call the command line as a shell would."""

    def called(*arguments: object, **environ: str) -> Result:
        return CliRunner().invoke(main, [str(one) for one in arguments], env=environ)

    return called


@pytest.fixture
def read(run: Run) -> Read:
    """Call a command with ``--json`` and return what it printed."""

    def parsed(*arguments: object, **environ: str) -> object:
        result = run(*arguments, "--json", **environ)
        assert result.stderr == ""
        assert result.stdout.count("\n") == 1
        return json.loads(result.stdout)

    return parsed


@pytest.fixture(scope="session")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a store that has learned; nobody writes to it."""
    path = tmp_path_factory.mktemp("lived") / "store.sqlite"
    live(path)
    return path
