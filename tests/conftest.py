"""What every test may be given: a store of its own, and an unconfigured process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tau_live.core.guard import Log
from tau_live.store.sqlite.store import SqliteStore

settings.register_profile(
    "on any machine",  # how long an example takes says how busy it is
    settings(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("on any machine")


@pytest.fixture(autouse=True)
def _unconfigured_logging() -> Iterator[None]:
    """The command line configures structlog for the whole process; a host's is left alone."""
    yield
    structlog.reset_defaults()
    Log.prepare = None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(path)
    yield opened
    opened.close()
