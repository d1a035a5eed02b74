"""The same recording, settings and seed make the same versions, bit for bit (law 9)."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tau_live.core.records import PolicyVersion
from tau_live.core.settings import Settings
from tau_live.record.recording import BadLine, read
from tau_live.runtime.replay import Offline
from tests.live.running import DEADLINE_S, environ, line, opened, process

QUESTIONS = 112

ASKS = f"""
from pathlib import Path
import sys
from tau_live.cli.demo.live import run_demo
from tau_live.core.settings import Settings
settings = Settings(store=Path(sys.argv[1]), record=Path(sys.argv[2]))
run_demo(settings, seed=0, training={QUESTIONS}, held_out=8, progress=lambda *_: None)
"""

REPLAYS = """
import sys
from pathlib import Path
from tau_live.runtime.replay import replay_file
from tau_live.core.settings import Settings
def progress(done, total):
    print(done * 100 // total, flush=True)
replay_file(Path(sys.argv[1]), Settings(store=Path(sys.argv[2])), progress=progress)
"""

SURROUNDINGS = [
    pytest.param({"OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}, id="one thread"),
    pytest.param({"OPENBLAS_NUM_THREADS": "2", "PYTHONHASHSEED": "1"}, id="two threads"),
    pytest.param({"OPENBLAS_NUM_THREADS": "3", "PYTHONHASHSEED": "77"}, id="three threads"),
]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of the demo: several steps a run, rewards at once, late and never."""
    folder = tmp_path_factory.mktemp("demo")
    path = folder / "recording.jsonl"
    with process(ASKS, folder / "live.sqlite", folder / "live.sqlite", path) as demo:
        assert demo.wait(4 * DEADLINE_S) == 0
    return path


@pytest.fixture(scope="module")
def expected(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> list[PolicyVersion]:
    """The versions of a replay in this process."""
    path = tmp_path_factory.mktemp("expected") / "s.sqlite"
    taken(recording, path, batch=1_000_000)
    return chain(path)


def chain(path: Path) -> list[PolicyVersion]:
    """Return every version of a store; each has the hash of its weights, and of its parent."""
    with opened(path) as store:
        found = [
            version
            for point in store.rewards.ready_points()
            for version in store.policies.versions(point)
        ]
    assert len(found) > QUESTIONS // 16
    assert len({version.sha256 for version in found}) == len(found)
    return found


def taken(recording: Path, path: Path, *, batch: int) -> None:
    """Store a recording so many events at a time, and learn from it."""
    with recording.open("rb") as file:
        events = [event for event in read(file) if not isinstance(event, BadLine)]
    offline = Offline(Settings(store=path))
    try:
        for begin in range(0, len(events), batch):
            offline.take(events[begin : begin + batch], at_once=True)
        offline.finish()
    finally:
        offline.close()


@pytest.mark.slow
@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_threads_and_hash_seeds_change_no_version(
    recording: Path, expected: list[PolicyVersion], surroundings: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "s.sqlite"

    with process(REPLAYS, path, recording, path, **surroundings) as replay:
        replay.communicate(timeout=4 * DEADLINE_S)

    assert replay.returncode == 0
    assert chain(path) == expected


@pytest.mark.slow
def test_a_replay_that_is_killed_half_way_and_resumed_makes_the_same_versions(
    recording: Path, expected: list[PolicyVersion], tmp_path: Path
) -> None:
    path = tmp_path / "s.sqlite"
    with process(REPLAYS, path, recording, path, PYTHONHASHSEED="5") as replay:
        while int(line(replay) or 100) < 50:
            pass
        os.kill(replay.pid, signal.SIGKILL)
        replay.wait(DEADLINE_S)
    with opened(path) as store:
        made = sum(len(store.policies.versions(point)) for point in store.rewards.ready_points())

    resumed = subprocess.run(
        [sys.executable, "-c", REPLAYS, recording, path],
        env=environ(path, OPENBLAS_NUM_THREADS="2", PYTHONHASHSEED="6"),
        stdout=subprocess.DEVNULL,
        timeout=4 * DEADLINE_S,
        check=True,
    )

    assert resumed.returncode == 0
    assert 0 < made < len(expected)
    assert chain(path) == expected


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 7, 64])
def test_events_in_batches_of_any_size_make_the_same_versions(
    recording: Path, expected: list[PolicyVersion], batch: int, tmp_path: Path
) -> None:
    taken(recording, tmp_path / "s.sqlite", batch=batch)

    assert chain(tmp_path / "s.sqlite") == expected
