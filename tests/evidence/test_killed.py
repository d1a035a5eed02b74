"""Every command of evidence is killed at random moments, and called again."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tau_live.evidence.artifacts import Names
from tests.evidence.projects import RIGHT, smaller

pytestmark = pytest.mark.slow

RUN, DRILL = "m24-killed-1", "m24-recovery-7"
NAMES = Names(RUN)
STORE = ("--store", "store.sqlite")
LATE = "2099-01-01T00:00:00Z"
"""After every report is due to be archived; `purge` is no command of this test."""

KILLS = 2
OWN = Path(__file__).parents[2]

COMMANDS: dict[str, list[str]] = {
    "freeze": ["freeze", "--suite", "smaller.json", "--baseline", "host", "--trained", RIGHT,
               "--seeds", "1,2,3", "--run-id", RUN, *STORE],
    "run": ["run", "--run-id", RUN, "--resume", "--workers", "2", *STORE],
    "compare": ["compare", "--run-id", RUN],
    "prove": ["prove", "--run-id", RUN, *STORE],
    "report": ["report", "--run-id", RUN],
    "publish": ["publish", NAMES.report("significance"), *STORE],
    "index": ["index", "--rebuild", *STORE],
    "archive": ["archive", "--now", LATE, *STORE],
}  # fmt: skip
"""In the order in which they are called."""

DRILLS = ["drill", "--run-id", DRILL]


def started(folder: Path, words: list[str]) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(OWN), str(OWN / "hooks")])
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tau_live.cli", "bench", *words],
        cwd=folder, env={"PATH": os.defpath, "PYTHONPATH": path, "HOME": str(folder)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(folder: Path, words: list[str]) -> tuple[int, str]:
    process = started(folder, words)
    output, errors = process.communicate()
    return process.returncode, output + errors


def project(folder: Path) -> Path:
    """Return a folder with a suite of forty cases, of which everything can be proven."""
    folder.mkdir()
    smaller(folder, 40)
    return folder


def left(folder: Path) -> dict[str, object]:
    """Return what a project holds, without times and ids of processes."""
    records = {
        path.name: sorted(json.loads(line)["episode"] for line in path.read_text().splitlines())
        for path in folder.glob("tasks/reports/*.jsonl")
        if "-records-" in path.name
    }
    files = {
        path.relative_to(folder).as_posix()
        for top in ("tasks", ".tau/reports")
        for path in (folder / top).rglob("*")
    }
    return {"records": records, "files": sorted(files)}


MOST_TRIES = 12


def test_a_command_that_was_killed_is_called_again_and_nothing_is_lost_or_double(
    tmp_path: Path,
) -> None:
    clean, own = project(tmp_path / "clean"), project(tmp_path / "killed")
    rng, killed = random.Random(11), dict.fromkeys(COMMANDS, 0)

    for name, words in COMMANDS.items():
        began = time.monotonic()
        code, output = ended(clean, words)
        took_s = time.monotonic() - began
        assert code == 0, output
        for _ in range(MOST_TRIES):
            process = started(own, words)
            threading.Event().wait(rng.uniform(0.1 * took_s, 0.95 * took_s))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            if process.returncode == -signal.SIGKILL:
                killed[name] += 1
            else:  # it was quicker than the first one, which found nothing in memory
                took_s *= 0.7
            if killed[name] == KILLS:
                break
        code, output = ended(own, words)
        assert code == 0 or "never change" in output or "is there already" in output, output

    assert all(killed.values()), killed
    assert left(own) == left(clean)
    for path in (NAMES.inputs, NAMES.proof):
        code, output = ended(own, ["validate", *STORE, path])
        assert code == 0, output


def drilling(folder: Path) -> subprocess.Popen[str]:
    """Return a drill that has begun to record."""
    process = started(folder, DRILLS)
    while not (folder / ".tau/drills" / DRILL / "recording.jsonl").exists():
        assert process.poll() is None
        threading.Event().wait(0.02)
    return process


def test_a_second_drill_of_a_name_is_refused_and_one_that_was_killed_starts_over(
    tmp_path: Path,
) -> None:
    clean, own = tmp_path / "clean", tmp_path / "killed"
    clean.mkdir()
    own.mkdir()
    began = time.monotonic()
    first = drilling(clean)

    refused, why = ended(clean, DRILLS)
    first.communicate()
    took_s = time.monotonic() - began
    for wait_s in (0.0, random.Random(11).uniform(0.1 * took_s, 0.6 * took_s)):
        killed = drilling(own)
        threading.Event().wait(wait_s)
        killed.kill()
        killed.communicate()
        assert killed.returncode == -signal.SIGKILL
    code, output = ended(own, DRILLS)

    assert (refused, first.returncode) == (1, 0)
    assert f"another process works in .tau/drills/{DRILL}" in why
    assert code == 0, output
    assert left(own) == left(clean)
    code, output = ended(own, ["validate", *STORE, Names(DRILL).drill])
    assert code == 0, output


def test_a_check_whose_command_was_killed_ends_with_it(tmp_path: Path) -> None:
    words = ["ops", "--run-id", "m24-ops-1", "--proof", "missing.json"]
    command, place = started(tmp_path, words), tmp_path / ".tau/ops/m24-ops-1/safety_gate/tasks"
    while not (place / "suites").exists():
        assert command.poll() is None
        threading.Event().wait(0.01)
    command.kill()
    command.communicate()

    threading.Event().wait(3.0)  # in which it would write its reports

    assert not [*place.glob("reports/*safety-regression*")]
