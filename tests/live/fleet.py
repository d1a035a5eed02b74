"""Agents and commands in processes of their own, on one PostgreSQL database."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO

from tests.live.running import environ


def started(
    code: str,
    address: str,
    *arguments: object,
    learner: str = "thread",
    stdout: "int | TextIO" = subprocess.PIPE,
    stderr: "TextIO | None" = None,
) -> "subprocess.Popen[str]":
    """Start an agent, with what belongs to the database on this machine where the test has it."""
    own = {
        **environ(Path()),
        "TAU_LIVE_RL_STORE": address,
        "TAU_LIVE_RL_LEARNER": learner,
        "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
    }
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, env=own, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, text=True
    )


def command(address: str, *arguments: str) -> str:
    """Run a command and return what it prints."""
    own = {
        **environ(Path()),
        "TAU_LIVE_RL_STORE": address,
        "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
    }
    done = subprocess.run(
        [sys.executable, "-m", "tau_live.cli", *arguments],
        env=own, capture_output=True, text=True, check=False, timeout=120.0,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
