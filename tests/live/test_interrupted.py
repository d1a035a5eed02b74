"""What a host raises in the middle of our calls passes through, and leaves nothing half done.

``TAU_LIVE_TEST_INTERRUPTIONS=2000`` interrupts each call as often as that.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tau_live.core.records import RolloutStatus
from tests.live.interrupted import MODULES
from tests.live.running import environ, rollouts

ROUNDS = int(os.environ.get("TAU_LIVE_TEST_INTERRUPTIONS", "150"))

pytestmark = pytest.mark.slow


def interrupted(path: Path, call: str, how: str, rounds: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.live.interrupted", call, how, str(rounds)]
    done = subprocess.run(
        command, env=environ(path), cwd=Path(__file__).parents[2], capture_output=True, text=True,
        timeout=600.0, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(found: dict[str, Any], path: Path) -> None:
    assert found["fired"] > 0
    assert (found["swallowed"], found["places"]) == (0, [])
    assert (found["gate"], found["streaks"], found["failures"]) == ("pass", 0, [])
    assert found["current"] == "None"
    assert (found["hangs"], found["flushed"]) == (False, True)
    unended = [one for one in rollouts(path) if one.status is RolloutStatus.RUNNING]
    assert unended == []


@pytest.mark.parametrize(
    "call",
    ["decide", "decide_inside", "reward", "run", "generator", "flush", "snapshot", "current",
     "attach", "plugin"],
)  # fmt: skip
def test_a_time_limit_of_the_host_passes_through(call: str, path: Path) -> None:
    found = interrupted(path, call, "timer", ROUNDS)

    assert found["fired"] == ROUNDS
    check(found, path)


@pytest.mark.parametrize("call", ["decide", "run", "reward", "flush", "snapshot"])
def test_so_it_does_wherever_python_may_run_a_handler(call: str, path: Path) -> None:
    check(interrupted(path, call, "everywhere", 1 if ROUNDS > 1000 else 3), path)


@pytest.mark.parametrize("call", ["decide", "run"])
def test_so_does_what_another_thread_sets(call: str, path: Path) -> None:
    check(interrupted(path, call, "thread", 4 * ROUNDS), path)


@pytest.mark.parametrize("host", MODULES)
def test_so_it_does_in_the_callbacks_of_an_adapter(host: str, path: Path) -> None:
    if find_spec(MODULES[host]) is None:
        pytest.skip(f"{host} is not installed")

    found = interrupted(path, host, "timer", max(50, ROUNDS // 10))

    assert (found["swallowed"], found["places"]) == (0, [])
    assert (found["gate"], found["failures"], found["hangs"]) == ("pass", [], False)
