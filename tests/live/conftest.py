"""A store of its own for every test, and tau-live switched on in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import tau_live
from tau_live.core.settings import Settings


@pytest.fixture
def settings(path: Path) -> Settings:
    return Settings(store=path, decide_deadline_ms=60_000.0)


@pytest.fixture
def live(path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Attach to a store of the test's own; a slow machine makes no decision late."""
    tau_live.detach()
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    assert tau_live.attach(settings) is not None
    yield path
    tau_live.detach()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which this machine keeps what belongs to a database."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path
