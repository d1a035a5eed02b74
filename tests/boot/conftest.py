"""What the tests of boot and doors share."""

from pathlib import Path

import pytest

from tests.boot.hosting import AGENT, ENTRY_POINTS, HOST, PLUGIN
from tests.scratch import Scratch


@pytest.fixture
def bare(tmp_path: Path) -> Scratch:
    """Return an environment with tau-live and nothing else."""
    return Scratch(tmp_path)


@pytest.fixture
def scratch(bare: Scratch) -> Scratch:
    """Return an environment with a host, an adapter for it, and an agent that runs once."""
    bare.install("bakery", HOST)
    bare.install("bakery_hook", PLUGIN, ENTRY_POINTS)
    bare.write("agent.py", AGENT)
    return bare
