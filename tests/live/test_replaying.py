"""Recordings into stores: the same everywhere, once, whatever happens on the way (laws 4 and 9)."""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tau_live.core.settings import Settings
from tau_live.learn.promotion.promoter import Promoter
from tau_live.record.recording import BadLine, read
from tau_live.runtime.ingesting import Ingested, ingest
from tau_live.runtime.replay import Replayed, replay_file
from tau_live_hooks.tau import TauStream
from tests.live.running import (
    DEADLINE_S,
    decisions,
    environ,
    exported,
    integrity,
    opened,
    process,
    rollouts,
    until,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "tau_session.jsonl"

RECORDS = """
import sys, tau_live
from contextlib import suppress
assert tau_live.attach() is not None
for at in range(int(sys.argv[1])):
    with suppress(ValueError), tau_live.run("outer", key=at) as run:
        choice = run.decide("model", ["small", "large"], context={"words": at % 5})
        with tau_live.run("inner") as inner:
            step = inner.decide("tool", {"grep": {"usd": 0.1}, "read": None})
            inner.reward(float(step.option == "grep"))
        run.reward(float(choice.option == "large"))
        if at % 7 == 3:
            raise ValueError("no")
assert tau_live.flush(60)
print("recorded", flush=True)
if len(sys.argv) > 2:
    while True:
        with tau_live.run("more") as run:
            run.decide("model", ["small", "large"])
"""

REPLAYS = """
import sys
from pathlib import Path
from tau_live.runtime.replay import replay_file
from tau_live.core.settings import Settings
print("ready", flush=True)
replay_file(Path(sys.argv[1]), Settings(store=Path(sys.argv[2])), progress=lambda done, total: None)
"""


def replayed(recording: Path, path: Path) -> Replayed:
    return replay_file(recording, Settings(store=path), progress=lambda done, total: None)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a live process with nested and failing runs."""
    folder = tmp_path_factory.mktemp("recording")
    path = folder / "recording.jsonl"
    with process(RECORDS, folder / "live.sqlite", 60, TAU_LIVE_RL_RECORD=str(path)) as host:
        out, _ = host.communicate(timeout=60)
    assert out.strip() == "recorded"
    return path


@pytest.mark.slow
def test_a_recording_makes_the_same_of_two_empty_stores(recording: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one" / "s.sqlite", tmp_path / "two" / "s.sqlite"

    first, second = replayed(recording, one), replayed(recording, two)

    assert exported(one) == exported(two)
    assert first == second
    assert (first.rollouts, first.bad_lines, first.refused) == (120, 0, {})
    assert first.updates > 3
    kinds = {(row.name, row.status) for row in rollouts(one)}
    assert kinds == {("outer", "succeeded"), ("outer", "failed"), ("inner", "succeeded")}


@pytest.mark.slow
def test_a_recording_twice_into_one_store_adds_nothing(recording: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    replayed(recording, path)
    before = exported(path)

    again = replayed(recording, path)

    assert exported(path) == before
    assert (again.rollouts, again.updates) == (0, 0)


@pytest.mark.slow
def test_the_arms_of_a_recording_are_kept_and_are_no_evidence(
    recording: Path, tmp_path: Path
) -> None:
    path = tmp_path / "s.sqlite"
    replayed(recording, path)

    with opened(path) as store:
        steps = Promoter(store, Settings(store=path), holder="test").advance(now=time.time())
        kept = [one.share for one in decisions(path, rollouts(path)[0].rollout_id)]
        counted = store.trials.points(), store.trials.trials()

    assert (steps, counted) == ([], ([], {}))
    assert kept == [1.0]


@pytest.mark.slow
def test_a_replay_that_is_killed_and_started_again_comes_to_the_same(
    recording: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole" / "s.sqlite"
    replayed(recording, whole)
    expected, rng = exported(whole), random.Random(7)

    for round_ in range(5):
        path = tmp_path / str(round_) / "s.sqlite"
        path.parent.mkdir()
        for _ in range(2):
            with process(REPLAYS, path, recording, path) as replay:
                assert replay.stdout is not None
                replay.stdout.readline()
                threading.Event().wait(rng.uniform(0.02, 0.5))
                os.kill(replay.pid, signal.SIGKILL)
        replayed(recording, path)
        assert exported(path) == expected
        assert integrity(path) == "ok"


@pytest.mark.slow
def test_bad_lines_are_listed_and_do_no_harm(recording: Path, tmp_path: Path) -> None:
    bad = [
        b"garbage",
        b"{}",
        b"\xff\xfe",
        b'{"event":"run.start"}',
        b'{"event":"other"}',
        b"[" * 99,
    ]
    spoilt, clean, path = tmp_path / "spoilt.jsonl", tmp_path / "c.sqlite", tmp_path / "s.sqlite"
    lines = recording.read_bytes().splitlines()
    spoilt.write_bytes(b"\n".join([*bad, *lines[:100], b"", *bad, *lines[100:], lines[0][:40]]))

    found = replayed(spoilt, path)
    replayed(recording, clean)

    assert found.bad_lines == 2 * len(bad) + 1
    assert [line.number for line in found.bad][:6] == [1, 2, 3, 4, 5, 6]
    assert exported(path) == exported(clean)


@pytest.mark.slow
def test_a_recording_process_that_is_killed_leaves_at_most_half_a_line(tmp_path: Path) -> None:
    path, record = tmp_path / "live.sqlite", tmp_path / "recording.jsonl"
    with process(RECORDS, path, 5, "go on", TAU_LIVE_RL_RECORD=str(record)) as host:
        assert host.stdout is not None
        assert host.stdout.readline().strip() == "recorded"
        recorded = record.stat().st_size
        until(lambda: record.stat().st_size > 2 * recorded)
        os.kill(host.pid, signal.SIGKILL)

    with record.open("rb") as file:
        found = list(read(file))
    torn = tmp_path / "torn.jsonl"
    shutil.copy(record, torn)
    with torn.open("r+b") as file:
        file.truncate(record.stat().st_size - 10)
    result = replayed(torn, tmp_path / "replayed.sqlite")
    with process(RECORDS, path, 1, TAU_LIVE_RL_RECORD=str(torn)) as host:
        host.communicate(timeout=60)
    with torn.open("rb") as file:
        again = list(read(file))

    assert sum(isinstance(line, BadLine) for line in found) <= 1
    assert result.bad_lines == 1
    assert len(again) > len(found)
    assert sum(isinstance(line, BadLine) for line in again) <= 2


def ingested(source: str, path: Path, *, stream: str | None = "one") -> Ingested:
    return ingest(
        source,
        Settings(store=path),
        translate=lambda name, clock: TauStream(name, clock=clock),
        stream=stream,
        stop=threading.Event(),
        progress=lambda done, total: None,
    )


@pytest.mark.slow
def test_a_session_of_the_reference_makes_the_same_of_two_stores(tmp_path: Path) -> None:
    one, two = tmp_path / "one" / "s.sqlite", tmp_path / "two" / "s.sqlite"

    first, second = ingested(str(GOLDEN), one), ingested(str(GOLDEN), two)
    before = exported(one)
    again = ingested(str(GOLDEN), one)

    assert exported(one) == exported(two) == before
    assert first == second
    assert (first.lines, first.refused) == (104, {})
    assert first.rollouts > 0
    assert again.rollouts == 0


@pytest.mark.slow
def test_rows_of_a_pipe_are_there_before_its_end(path: Path) -> None:
    lines = GOLDEN.read_text().splitlines()
    command = [sys.executable, "-m", "tau_live.cli", "ingest", "-", "--stream", "pipe"]

    with subprocess.Popen(
        command, env=environ(path), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as pipe:  # fmt: skip
        assert pipe.stdin is not None
        for line in lines[:20]:
            pipe.stdin.write(f"{line}\n")
        pipe.stdin.flush()
        until(path.exists)
        until(lambda: len(rollouts(path)) >= 2)
        early = [row.status for row in rollouts(path)]
        pipe.stdin.write("\n".join(lines[20:]))
        pipe.stdin.close()
        code = pipe.wait(DEADLINE_S)

    assert "succeeded" in early
    assert code == 0
    assert len(rollouts(path)) > len(early)


@pytest.mark.slow
def test_two_connections_of_a_socket_are_two_streams(path: Path) -> None:
    address = path.with_name("socket")
    stop, results = threading.Event(), []
    lines = GOLDEN.read_bytes()

    def serve() -> None:
        results.append(
            ingest(
                f"unix:{address}",
                Settings(store=path),
                stream=None,
                stop=stop,
                translate=lambda name, clock: TauStream(name, clock=clock),
                progress=lambda done, total: None,
            )
        )

    server = threading.Thread(target=serve)
    server.start()
    until(address.is_socket)
    peers = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for peer in peers:
        until(connects(peer, address))
    for start in range(0, len(lines), 4_096):
        for peer in peers:
            peer.sendall(lines[start : start + 4_096])
    for peer in peers:
        peer.close()
    until(lambda: len({row.rollout_id for row in rollouts(path) if row.ended_at}) >= 2)
    until(lambda: all(row.ended_at is not None for row in rollouts(path)))
    stop.set()
    server.join(DEADLINE_S)

    found = results[0]
    assert found.lines == 2 * 104
    assert found.rollouts == len(rollouts(path))
    assert found.rollouts % 2 == 0
    assert not address.exists()


def connects(peer: socket.socket, address: Path) -> Callable[[], bool]:
    def attempt() -> bool:
        try:
            peer.connect(str(address))
        except ConnectionError:
            return False
        return True

    return attempt
