"""Jobs for processes that are killed: one under full load, one that rewards, one that looks."""

import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TypedDict

import tau_live
from tau_live.core.events import OWN_HOST
from tau_live.core.records import rollout_id_of
from tau_live.core.settings import Settings
from tau_live.decisions.runs import run_id_of
from tests.faults.server import tell
from tests.faults.whole import orphans, problems

THREADS = 4
OPTIONS = ["small", "large"]
PACE_S = 0.02
"""Between two runs of a thread: the queue is never full, and everything that is put is stored."""

FLUSH_S = 30.0
LATE_S = 0.02

Known = dict[str, list[int]]
"""The number of acknowledged runs of each thread, by round."""


class Look(TypedDict):
    """The findings of one check of a store."""

    opened_s: float
    attached_s: float
    lost: list[str]
    twice: list[str]
    unsaid: list[str]
    wrong: list[str]
    refused: list[str]
    orphans: list[str]
    counts: dict[str, int]


def settings(folder: str) -> Settings:
    """Return settings under which much is learned and promoted in little time."""
    return Settings(
        store=Path(folder) / "s.sqlite",
        reward_range=(0.0, 1.0),
        control_share=0.5,
        probation=16,
        keep_checkpoints=3,
        update_interval=64,
        window=64,
        decide_deadline_ms=60_000.0,
    )


def key_of(run: str, thread: int, number: int) -> str:
    """Return the key of one of the agents' runs."""
    return f"{run}-{thread}-{number}"


def id_of(key: str) -> str:
    """Return the id of the rollout of a run."""
    return rollout_id_of(OWN_HOST, run_id_of("agent", key))


def load(folder: str, run: str, early: bool) -> None:
    """Collect, decide, reward, learn and promote until it is killed.

    Reports how many runs of each thread were acknowledged: those before a ``flush`` that returned
    true. Its first report starts the time until it is killed: before or after it attaches.
    """
    if early:
        tell({"runs": [0] * THREADS})
    assert tau_live.attach(settings(folder)) is not None
    if not early:
        tell({"runs": [0] * THREADS})
    done = [0] * THREADS
    waiting: deque[tuple[float, str, str]] = deque()
    for thread in range(THREADS):
        threading.Thread(target=_agent, args=(run, thread, done, waiting), daemon=True).start()
    threading.Thread(target=_late, args=(waiting,), daemon=True).start()
    while True:
        known = list(done)
        if tau_live.flush(FLUSH_S):
            tell({"runs": known})


def _agent(run: str, thread: int, done: list[int], waiting: deque[tuple[float, str, str]]) -> None:
    rng, pause = random.Random(f"{run}-{thread}"), threading.Event()
    while True:
        key = key_of(run, thread, done[thread])
        with tau_live.run("agent", key=key) as agent_run:
            choice = agent_run.decide("model", OPTIONS, context={"words": thread}, default="small")
            agent_run.decide("depth", ["1", "2"], default="1")
            value = float(choice.option == "large")
            agent_run.reward(value, name="solved")
        tau_live.reward(value, run=agent_run.id, name="solved")  # the same once more
        waiting.append((rng.random(), agent_run.id, key))
        done[thread] += 1
        pause.wait(PACE_S)


def _late(waiting: deque[tuple[float, str, str]]) -> None:
    """Reward runs late and in another order than they ended, some of them twice."""
    pause = threading.Event()
    while True:
        pause.wait(LATE_S)
        for drawn, id_, _ in sorted(waiting.popleft() for _ in range(len(waiting))):
            for _ in range(1 + (drawn < 0.2)):
                tau_live.reward(0.5, run=id_, name="late", source="user")


def rewards(folder: str, known: Known) -> None:
    """Reward runs of other processes, in any order, until all are rewarded or it is killed.

    Reports the keys of those whose reward is acknowledged.
    """
    tell({"rewarded": []})
    assert tau_live.attach(settings(folder)) is not None
    keys = [key_of(*parts) for parts in _all(known)]
    random.Random(len(keys)).shuffle(keys)
    for first in range(0, len(keys), 16):
        some = keys[first : first + 16]
        for key in some:
            tau_live.reward(1.0, run=id_of(key), name="seen", source="user")
        if tau_live.flush(FLUSH_S):
            tell({"rewarded": some})
    tau_live.detach()


def _all(known: Known) -> Iterator[tuple[str, int, int]]:
    for run, upto in known.items():
        for thread, count in enumerate(upto):
            for number in range(count):
                yield run, thread, number


def look(folder: str, known: Known, rewarded: list[str]) -> Look:
    """Open the store that was left, compare it with the acknowledgements, and continue with it."""
    own = settings(folder)
    began = time.perf_counter()
    wrong = problems(own)
    opened_s = time.perf_counter() - began
    lost, twice, unsaid = _rows(own.store, known, rewarded)

    began = time.perf_counter()
    assert tau_live.attach(own) is not None
    attached_s = time.perf_counter() - began
    wrong += [] if tau_live.flush(FLUSH_S) else ["it could not go on"]
    snapshot = tau_live.snapshot()
    tau_live.detach()

    wrong += [f"going on: {problem}" for problem in problems(own)]
    gate, serves = snapshot["gate"], snapshot["policies_in_service"]
    assert isinstance(gate, dict)
    wrong += [] if gate["state"] == "pass" else [f"the gate holds: {gate['detail']}"]
    with closing(sqlite3.connect(own.store)) as database:
        stored = dict(database.execute("select point, version from in_service where version > 0"))
        refused = [] if stored == serves else [f"{serves} serves instead of {stored}"]
        counts = _counts(database)
    return Look(
        opened_s=opened_s, attached_s=attached_s, lost=lost, twice=twice, unsaid=unsaid,
        wrong=wrong, refused=refused, orphans=orphans(own), counts=counts,
    )  # fmt: skip


def _rows(store: Path, known: Known, rewarded: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Return acknowledged rows that are missing, rows that are stored twice, and updates that
    learned from decisions without a stored propensity."""
    with closing(sqlite3.connect(store)) as database:
        if not database.execute("select 1 from sqlite_master where name = 'rollouts'").fetchall():
            return (["the store"] if any(map(sum, known.values())) else []), [], []
        ended = {
            id_ for (id_,) in database.execute(
                "select rollout_id from rollouts where status = 'succeeded'"
            )
        }  # fmt: skip
        decided = dict(database.execute(DECIDED))
        reward_names = set(
            database.execute("select rollout_id, name from rewards where value is not null")
        )
        lost = []
        for parts in _all(known):
            id_ = id_of(key_of(*parts))
            if id_ not in ended or decided.get(id_) != 2 or (id_, "solved") not in reward_names:
                lost.append(key_of(*parts))
        lost += [f"reward of {key}" for key in rewarded if (id_of(key), "seen") not in reward_names]
        twice = [f"{table}: {row}" for table, sql in TWICE.items() for row in database.execute(sql)]
        unsaid = [str(row) for row in database.execute(UNSAID)]
    return lost, twice, unsaid


def _counts(database: sqlite3.Connection) -> dict[str, int]:
    return {name: database.execute(sql).fetchone()[0] for name, sql in COUNTS.items()}


DECIDED = """
select rollout_id, count(*) from decisions join rollouts on rollouts.seq = rollout_seq
where propensity is not null or source = 'default' group by rollout_seq
"""

TWICE = {
    "rollouts": "select run_id from rollouts group by host, run_id having count(*) > 1",
    "decisions": """
        select rollout_seq, ordinal from decisions
        group by rollout_seq, attempt, ordinal having count(*) > 1
    """,
    "rewards": """
        select rollout_id, name from rewards
        group by rollout_id, decision_id, name, source, key having count(*) > 1
    """,
    "places": "select ready_seq from rollouts where ready_seq group by 1 having count(*) > 1",
    "learned": """
        select one.number, other.number from updates one join updates other
        on one.point = other.point and one.number < other.number
        and one.executed and other.executed and other.first_ready <= one.last_ready
    """,
}
"""Statements that find duplicates of rows that must be unique."""

UNSAID = """
select number, point, samples, (
    select count(*) from decisions join rollouts on rollouts.seq = decisions.rollout_seq
    where decisions.point = updates.point and propensity is not null
    and ready_seq between first_ready and last_ready
) as said
from updates where executed and samples > said
"""
"""Updates that have learned from more decisions than there are with a propensity."""

COUNTS = {
    "rollouts": "select count(*) from rollouts",
    "decisions": "select count(*) from decisions",
    "rewards": "select count(*) from rewards",
    "updates": "select count(*) from updates where executed",
    "steps": "select count(*) from audit",
}
