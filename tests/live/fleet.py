"""Agents and commands in processes of their own, on one PostgreSQL database."""

import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import TextIO

from tests.live.running import environ


def started(
    code: str,
    address: str,
    *arguments: object,
    learner: str = "thread",
    host: str | None = None,
    stdout: "int | TextIO" = subprocess.PIPE,
    stderr: "TextIO | None" = None,
) -> "subprocess.Popen[str]":
    """Start an agent, with what belongs to the database on this machine where the test has it.

    With a name of a ``host`` it is on a machine of that name, as far as it can see.
    """
    own = {
        **environ(Path()),
        "TAU_LIVE_RL_STORE": address,
        "TAU_LIVE_RL_LEARNER": learner,
        "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
    }
    command = [*on(host), sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, env=own, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, text=True
    )


def on(host: str | None) -> list[str]:
    """Return what goes before a command that is to run on a machine of another name."""
    if host is None:
        return []
    naming = 'hostname "$0" && exec "$@"'
    rights = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *rights, "--uts", "sh", "-c", naming, host]


@cache
def why_one_host() -> str | None:
    """Return why processes cannot be on machines of different names here; ``None`` if they can."""
    if shutil.which("unshare") is None:
        return "no unshare here: install util-linux"
    done = subprocess.run([*on("other"), "true"], capture_output=True, text=True, check=False)
    return f"no names of hosts: {done.stderr.strip()}" if done.returncode else None


def command(
    address: str, *arguments: str, host: str | None = None, codes: Collection[int] = (0,)
) -> str:
    """Run a command, which ends with one of the codes; return what it prints."""
    own = {
        **environ(Path()),
        "TAU_LIVE_RL_STORE": address,
        "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
    }
    done = subprocess.run(
        [*on(host), sys.executable, "-m", "tau_live.cli", *arguments],
        env=own, capture_output=True, text=True, check=False, timeout=120.0,
    )  # fmt: skip
    assert done.returncode in codes, done.stderr
    return done.stdout
