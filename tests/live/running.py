"""Real processes and a real store, and waiting for them with a deadline."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import tau_live
from tau_live.core.records import Decision, Reward, Rollout, RolloutQuery
from tau_live.store.sqlite.store import SqliteStore

DEADLINE_S = 30.0

LIFE_S = 10 * DEADLINE_S
"""So long a process lives at most, so that nobody waits for its next line for ever."""


def until(found: Callable[[], object], *, deadline_s: float = DEADLINE_S) -> None:
    """Wait until something is true, and fail when it does not become so."""
    end = time.monotonic() + deadline_s
    pause = threading.Event()
    while not found():
        assert time.monotonic() < end, "it did not happen in time"
        pause.wait(0.01)


def environ(store: Path, **more: str) -> dict[str, str]:
    """Return the environment of a process that runs tau-live on a store."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TAU_LIVE")}
    roots = os.pathsep.join(path for path in sys.path if path)
    return {
        **own,
        "PYTHONPATH": roots,
        "TAU_LIVE_RL": "1",
        "TAU_LIVE_RL_STORE": str(store),
        **more,
    }


@contextmanager
def process(
    code: str, store: Path, *arguments: object, **more: str
) -> Iterator[subprocess.Popen[str]]:
    """Run Python code in a process of its own, which is killed at the end, or after ``LIFE_S``."""
    started = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        env=environ(store, **more),
        cwd=store.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = threading.Timer(LIFE_S, started.kill)
    deadline.daemon = True
    deadline.start()
    with started:
        try:
            yield started
        finally:
            deadline.cancel()
            if started.poll() is None:
                started.kill()


def line(of: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints."""
    assert of.stdout is not None
    return of.stdout.readline().strip()


def said(of: subprocess.Popen[str]) -> dict[str, object]:
    """Return the JSON object that a process prints next."""
    text = line(of)
    assert text, f"it ended with {of.wait(DEADLINE_S)}"
    found: dict[str, object] = json.loads(text)
    return found


def go(to: subprocess.Popen[str], word: str = "go") -> None:
    """Give a process a line."""
    assert to.stdin is not None
    to.stdin.write(f"{word}\n")
    to.stdin.flush()


def done(of: subprocess.Popen[str]) -> str:
    """Return what a process prints until it ends well."""
    out, _ = of.communicate(timeout=2 * DEADLINE_S)
    assert of.returncode == 0, (of.returncode, out)
    return out


@contextmanager
def opened(path: Path) -> Iterator[SqliteStore]:
    """Open a store for a moment."""
    store = SqliteStore.open(path)
    try:
        yield store
    finally:
        store.close()


def rollouts(path: Path) -> list[Rollout]:
    """Return every rollout of a store in the order of arrival."""
    with opened(path) as store:
        found = store.rollouts.query(RolloutQuery(limit=None)).rollouts
    return sorted(found, key=lambda rollout: rollout.seq)


def rollout(path: Path, rollout_id: str) -> Rollout:
    """Return one rollout."""
    with opened(path) as store:
        return store.rollouts.rollout(rollout_id)


def rewards(path: Path, rollout_id: str) -> list[Reward]:
    """Return the rewards of a rollout."""
    with opened(path) as store:
        return store.rewards.rewards(rollout_id)


def decisions(path: Path, rollout_id: str) -> list[Decision]:
    """Return the decisions of a rollout."""
    with opened(path) as store:
        return store.decisions.decisions(rollout_id)


def counters(path: Path) -> Mapping[str, int]:
    """Return the counters of a store."""
    with opened(path) as store:
        return store.counters.counts()


def integrity(path: Path) -> str:
    """Return what SQLite says of its own file."""
    with opened(path) as store:
        return str(next(iter(store._connection.rows("pragma integrity_check")))[0])


def exported(path: Path) -> list[str]:
    """Return the export of a store, a line a row."""
    with opened(path) as store:
        return [json.dumps(row, sort_keys=True) for row in store.export()]


def rounds(number: int, *, start: int = 0, name: str = "triage") -> list[str]:
    """Run so many agents, whose reward is 1 for the large model; return the rollouts' ids."""
    ids = []
    for at in range(start, start + number):
        with tau_live.run(name, key=at) as run:
            choice = run.decide("model", ["small", "large"], context={"words": at % 5})
            run.reward(float(choice.option == "large"))
        ids.append(run.id)
    return ids


def gate() -> dict[str, object]:
    """Return the gate as this process sees it."""
    found = tau_live.snapshot()["gate"]
    assert isinstance(found, dict)
    return found


def throw(error: BaseException | None) -> None:
    """Raise an error, if there is one."""
    if error is not None:
        raise error


@contextmanager
def ended_by(error: BaseException | None) -> Iterator[None]:
    """Expect that what is inside passes on the very same error."""
    try:
        yield
    except BaseException as caught:  # cancellations too
        assert caught is error
    else:
        assert error is None
