"""A log for the scopes of every test."""

import pytest


@pytest.fixture
def log() -> list[str]:
    return []
