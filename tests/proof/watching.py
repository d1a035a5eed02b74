"""Processes of the proofs, watched: their output, how they ended, how long it took."""

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
        lines: The lines that it wrote, as JSON objects.
        errors: Its standard error.
        left_s: How long it took to end after its last line.
    """

    code: int | None
    lines: list[dict[str, object]] = field(default_factory=list)
    errors: str = ""
    left_s: float = 0.0

    @property
    def facts(self) -> dict[str, object]:
        """All facts in its lines, the last of each name."""
        return {name: fact for line in self.lines for name, fact in line.items()}

    def names(self, name: str) -> list[str]:
        """Return all texts in its lines under a name."""
        values = [line[name] for line in self.lines if name in line]
        return [str(item) for many in values if isinstance(many, list) for item in many]

    def number(self, name: str) -> float:
        """Return a number in its lines; NaN if there is none."""
        value = self.facts.get(name)
        return float(value) if isinstance(value, int | float) else float("nan")

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
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    at = [line["at"] for line in lines if "at" in line]
    return Watched(started.returncode, lines, errors, ended - at[-1] if at else 0.0)


@dataclass(frozen=True, slots=True)
class Kept:
    """The contents of a store.

    Attributes:
        whole: The number of complete rollouts: with start, decision, reward and end.
        halves: The number of rollouts that lack a part, and ended as if they were complete.
        open: The number of rollouts that have not ended.
        strangers: The number of decisions and rewards that carry the key of another rollout.
        ids: The ids of all rollouts.
        rows: The number of starts, decisions, rewards and ends; also rewards of dropped rollouts.
        counts: The counters.
        integrity: SQLite's check of the file.
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
        rollouts = store.rollouts.query(RolloutQuery(limit=None)).rollouts
        tally: Counter[str] = Counter()
        for rollout in rollouts:
            tally["open"] += rollout.ended_at is None
            decisions = store.decisions.decisions(rollout.rollout_id)
            rewards = store.rewards.rewards(rollout.rollout_id)
            tally["rows"] += 1 + len(decisions) + len(rewards) + (rollout.ended_at is not None)
            if rollout.name != name:
                continue
            key = rollout.run_id.partition("/")[2]
            tally["strangers"] += sum(option.partition("/")[0] != key for row in decisions
                                      for option in row.options)  # fmt: skip
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
            frozenset(rollout.rollout_id for rollout in rollouts),
            tally["rows"],
            dict(store.counters.counts()),
            integrity,
        )
    finally:
        store.close()
