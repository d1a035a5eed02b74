"""Processes of the proofs, watched: what they said, how they ended, how long it took."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tau_live.core.records import RolloutQuery, RolloutStatus, rollout_id_of
from tau_live.store.sqlite.store import SqliteStore
from tests.live.running import environ

DEADLINE_S = 60.0
QUIET = {
    "TAU_LIVE_RL_UPDATE_INTERVAL": "1000000",
    "TAU_LIVE_RL_MAX_ROLLOUTS_PER_UPDATE": "1000000",
    "TAU_LIVE_RL_DECIDE_DEADLINE_MS": "60000",
    "OMP_NUM_THREADS": "1",
}
"""No updates, which have plays of their own."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A process that is over.

    Attributes:
        code: Its exit code; ``None`` if it hung and was killed.
        said: The lines that it told, as JSON objects.
        errors: What it wrote to the standard error.
        left_s: How long it took to end after it had said the last line.
    """

    code: int | None
    said: list[dict[str, object]] = field(default_factory=list)
    errors: str = ""
    left_s: float = 0.0

    @property
    def told(self) -> dict[str, object]:
        """All that it told, the last of each name."""
        return {name: fact for line in self.said for name, fact in line.items()}

    def names(self, name: str) -> list[str]:
        """Return all texts that it told under a name."""
        found = [line[name] for line in self.said if name in line]
        return [str(one) for many in found if isinstance(many, list) for one in many]

    def number(self, name: str) -> float:
        """Return a number that it told; not a number if it did not."""
        found = self.told.get(name)
        return float(found) if isinstance(found, int | float) else float("nan")

    def failures(self) -> int:
        """Return how many of its children did not end well."""
        return sum(code != "0" for code in self.names("codes"))


def played(
    store: Path,
    *arguments: object,
    module: str = "tests.proof.process_plays",
    deadline_s: float = DEADLINE_S,
    **more: str,
) -> Watched:
    """Run a play in a process of its own until it ends, or has hung for too long."""
    started = subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        env=environ(store, **{**QUIET, **more}),
        cwd=store.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = started.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, 9)
        return Watched(None, [], started.communicate()[1])
    ended = time.monotonic()
    said = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    at = [line["at"] for line in said if "at" in line]
    return Watched(started.returncode, said, errors, ended - at[-1] if at else 0.0)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is in a store, by what its rows say of themselves.

    Attributes:
        whole: Rollouts that have all that was given: start, decision, reward, end.
        halves: Rollouts that have a part of it, and ended as if it were all.
        open: Rollouts that have not ended.
        strangers: Decisions and rewards that carry the key of another rollout.
        ids: Of all rollouts.
        rows: Starts, decisions, rewards and ends; rewards also of rollouts that were dropped.
        counts: The counters.
        integrity: What SQLite says.
    """

    whole: int
    halves: int
    open: int
    strangers: int
    ids: frozenset[str]
    rows: int
    counts: dict[str, int]
    integrity: str

    def missing(self, keys: Iterable[str], *, name: str = "proof") -> int:
        """Return how many runs of these keys are not stored."""
        ids = {rollout_id_of("tau_live", f"{name}/{key}") for key in keys}
        return len(ids - self.ids)


def kept(path: Path, *, name: str = "proof") -> Kept:
    """Look at all that the plays ``work`` stored."""
    store = SqliteStore.open(path)
    try:
        found = store.rollouts.query(RolloutQuery(limit=None)).rollouts
        tally: Counter[str] = Counter()
        for rollout in found:
            tally["open"] += rollout.ended_at is None
            decisions = store.decisions.decisions(rollout.rollout_id)
            rewards = store.rewards.rewards(rollout.rollout_id)
            tally["rows"] += 1 + len(decisions) + len(rewards) + (rollout.ended_at is not None)
            if rollout.name != name:
                continue
            key = rollout.run_id.partition("/")[2]
            tally["strangers"] += sum(one.partition("/")[0] != key for row in decisions
                                      for one in row.options)  # fmt: skip
            tally["strangers"] += sum(row.comment not in {key, None} for row in rewards)
            ok = rollout.status is RolloutStatus.SUCCEEDED
            tally["whole"] += ok and len(decisions) == len(rewards) == 1
            tally["halves"] += ok and not len(decisions) == len(rewards) == 1
        early = (
            "select count(*) from rewards where rollout_id not in (select rollout_id from rollouts)"
        )
        tally["rows"] += int(next(iter(store._connection.rows(early)))[0])
        integrity = str(next(iter(store._connection.rows("pragma integrity_check")))[0])
        return Kept(
            tally["whole"],
            tally["halves"],
            tally["open"],
            tally["strangers"],
            frozenset(rollout.rollout_id for rollout in found),
            tally["rows"],
            dict(store.counters.counts()),
            integrity,
        )
    finally:
        store.close()
