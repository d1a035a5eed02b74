"""Small lives on a disk that fails at one call: ``python -m tests.proof.io_lives FOLDER``.

Reads one life a line from standard input, as JSON, and prints its outcome.
"""

import json
import logging
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypedDict

import tau_live
from tau_live.core.errors import TauLiveError
from tau_live.core.records import RolloutQuery, RolloutStatus
from tau_live.core.settings import Learner, Settings
from tau_live.decisions.policies import check_policy
from tau_live.operate.trials import Order, roll_back
from tau_live.store.sqlite.store import SqliteStore
from tests.faulty_vfs import CALLS, FULL, FaultyDisk, Plan, faulty_disk

ROUNDS, RUNS = 2, 6
OPTIONS = ("a", "b", "c")
PATIENCE_S = 20.0
ENDING = ("once", "torn", "none")
"""Lives whose disk is mended after their end, not in the middle."""


class Wanted(TypedDict):
    """A life: how its disk fails, and from which call on."""

    kind: str
    at: int


def plan_of(wanted: Wanted) -> Plan:
    """Return how the disk of a life fails."""
    at = wanted["at"]
    match wanted["kind"]:
        case "once":
            return Plan(at=at)
        case "from then on":
            return Plan(at=at, lasting=True)
        case "full":
            return Plan(at=at, lasting=True, calls=("write",), error=FULL)
        case "torn":
            return Plan(at=at, calls=("write",), torn=True)
    return Plan(calls=CALLS)


@dataclass
class Life:
    """The outcome of one life.

    Attributes:
        kind: How its disk failed.
        at: The number of the first call that failed.
        failed: The number of calls that failed.
        seen: The number of calls of the planned kinds until the disk was mended.
        writes: The number of those that wrote.
        raised: The number of exceptions that reached the host.
        strange: The number of answers that were not among the options.
        decide_ms: The thread's time of each decision, in ms.
        unsaid: Whether something was missing before the disk was mended, and nothing reported it.
        recovered: Whether it went on by itself when the disk was mended.
        lost: The number of acknowledged runs that are not stored.
        unaccounted: The number of runs that are neither stored nor counted as not recorded.
        half: What is stored in part, in words.
        integrity: SQLite's check of the file.
        left: The snapshot, if it did not go on.
        started: The rollouts that were started.
        taken: Those of them that were recorded, because the gate passed.
        stored: Those of them that a flush acknowledged.
    """

    kind: str
    at: int
    failed: int = 0
    seen: int = 0
    writes: int = 0
    raised: int = 0
    strange: int = 0
    decide_ms: list[float] = field(default_factory=list, repr=False)
    unsaid: bool = False
    recovered: bool = False
    lost: int = 0
    unaccounted: int = 0
    half: list[str] = field(default_factory=list)
    integrity: str = ""
    left: dict[str, object] = field(default_factory=dict)
    started: list[str] = field(default_factory=list, repr=False)
    taken: list[str] = field(default_factory=list, repr=False)
    stored: list[str] = field(default_factory=list)


class LogLines(logging.Handler):
    """Keeps the lines of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def lived(path: Path, disk: FaultyDisk, wanted: Wanted, log_lines: LogLines) -> Life:
    """Open, collect, decide, reward, update, promote and close on a disk that fails."""
    life = Life(wanted["kind"], wanted["at"])
    log_lines.lines.clear()
    disk.fail(plan_of(wanted))
    try:
        _live(path, life)
        complete = len(life.stored) == ROUNDS * RUNS
        counted = 0
        if wanted["kind"] in ENDING:  # also the calls that closing makes
            counted = _count("runs_not_recorded_while_held")
            tau_live.detach()
        life.failed, life.seen, life.writes = disk.failed, disk.seen, disk.counts["write"]
        life.unsaid = not complete and not log_lines.lines
        disk.heal()
        tau_live.attach(_settings(path))
        life.recovered = _goes_on(life)
        if not life.recovered:
            snapshot = tau_live.snapshot()
            life.left = {name: snapshot.get(name) for name in ("gate", "store_trouble", "backlog")}
        counted += _count("runs_not_recorded_while_held")
        tau_live.detach()
    except Exception as error:
        life.raised += 1
        life.half.append(repr(error))
        disk.heal()
        tau_live.detach()
        return life
    _judge(path, life, counted)
    return life


def _settings(path: Path) -> Settings:
    return Settings(
        store=path, learner=Learner.FLUSH, decide_deadline_ms=60_000.0, update_interval=4
    )


def _live(path: Path, life: Life) -> None:
    tau_live.attach(_settings(path))
    for round_ in range(ROUNDS):
        for number in range(RUNS):
            _run_once(life, f"{round_}-{number}", float(number % 2))
        if tau_live.flush(5.0):
            life.stored = list(life.taken)
    if life.at % 2:
        _operate(path)


def _run_once(life: Life, key: str, value: float) -> None:
    with tau_live.run("job", key=key) as run:
        began = time.thread_time()
        choice = run.decide("model", OPTIONS, default="b")
        life.decide_ms.append((time.thread_time() - began) * 1e3)
        run.reward(value)
    life.strange += choice.option not in OPTIONS
    life.started.append(run.id)
    if run.handle is not None and run.handle.recorded:
        life.taken.append(run.id)


def _operate(path: Path) -> None:
    """Do what an operator does; it may be refused."""
    try:
        store = SqliteStore.open(path, busy_timeout_s=1.0)
    except TauLiveError:
        return
    try:
        order = Order("policy_rollback", "model", "proof", "tests", time.time())
        roll_back(store, _settings(path), order, pin=False)
    except TauLiveError:
        pass
    finally:
        store.close()


def _count(name: str) -> int:
    refused = tau_live.snapshot()["refused"]
    return int(refused.get(name, 0)) if isinstance(refused, dict) else 0


def _passes() -> bool:
    gate = tau_live.snapshot()["gate"]
    return isinstance(gate, dict) and gate["state"] == "pass"


def _goes_on(life: Life) -> bool:
    """Return whether it records and decides again by itself, soon after the disk was mended."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if _passes() and tau_live.flush(1.0):
            break
        time.sleep(0.02)
    _run_once(life, "after", 1.0)
    done = tau_live.flush(PATIENCE_S) and _passes()
    if done:
        life.stored = list(life.taken)
    return done


def _judge(path: Path, life: Life, counted: int) -> None:
    """Open the store once more, on a good disk, and look whether anything of it is half."""
    store = SqliteStore.open(path)
    try:
        rows = store._connection.rows("pragma integrity_check")
        life.integrity = str(rows[0][0])
        life.half += [str(tuple(row)) for row in store._connection.rows("pragma foreign_key_check")]
        rollouts = store.rollouts.query(RolloutQuery(limit=None)).rollouts
        there = {row.rollout_id for row in rollouts}
        life.lost = len(set(life.stored) - there)
        life.unaccounted = abs(len(life.started) - len(there) - counted)
        for row in rollouts:
            decisions = len(store.decisions.decisions(row.rollout_id))
            rewards = len(store.rewards.rewards(row.rollout_id))
            if row.status is RolloutStatus.SUCCEEDED and (decisions, rewards) != (1, 1):
                life.half.append(f"{row.run_id}: {decisions} decisions, {rewards} rewards")
            if row.ended_at is None:
                life.half.append(f"{row.run_id} is {row.status}")
        updates = store.policies.updates()
        versions_made = {update.version for update in updates if update.version is not None}
        versions = {row.version: row for row in store.policies.versions()}
        if versions_made != set(versions):
            life.half.append(f"updates made {versions_made}, versions are {sorted(versions)}")
        for version in versions.values():
            check_policy(store.checkpoints, version)
    except TauLiveError as error:
        life.half.append(str(error))
    finally:
        store.close()


def main() -> None:
    """Live each life of standard input."""
    folder = Path(sys.argv[1])
    os.environ["TAU_LIVE_RL"] = "1"
    log_lines = LogLines()
    log = logging.getLogger("tau_live")
    log.addHandler(log_lines)
    log.propagate = False
    with faulty_disk() as disk:
        for number, line in enumerate(sys.stdin):
            wanted: Wanted = json.loads(line)
            path = folder / str(number) / "store.sqlite"
            path.parent.mkdir(parents=True)
            print(json.dumps(asdict(lived(path, disk, wanted, log_lines))), flush=True)


if __name__ == "__main__":
    main()
