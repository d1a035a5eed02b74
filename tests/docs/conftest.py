"""What the tests of the documentation share."""

import os
from pathlib import Path

import pytest

from tests.scratch import Scratch

ROOT = Path(__file__).parents[2]


@pytest.fixture
def root() -> Path:
    """Return the repository's root."""
    return ROOT


@pytest.fixture
def reader(tmp_path: Path) -> dict[str, str]:
    """Return the environment of somebody who reads the documentation and tries what it says."""
    python = Scratch(tmp_path).python  # a page may change its environment
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, module in {
        "tau-live": "-m tau_live.cli",
        "llm": "-m llm",
        "python": "",
        "python3": "",
    }.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{python}" {module} "$@"\n')
        program.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    return {
        "PATH": os.pathsep.join([str(programs), "/usr/bin", "/bin"]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "hooks")]),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TAU_LIVE_RL_DECIDE_DEADLINE_MS": "5000",  # others may keep this machine busy
        "COLUMNS": "120",
        "OMP_NUM_THREADS": "1",
    }
