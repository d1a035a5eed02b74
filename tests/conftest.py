"""What every test is given: a process that no earlier test has configured."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _unconfigured_logging() -> Iterator[None]:
    """The command line configures structlog for the whole process; a host's is left alone."""
    yield
    structlog.reset_defaults()
