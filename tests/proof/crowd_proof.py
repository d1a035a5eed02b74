"""Ten thousand runs at once, and every row of them in its own."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tau_live.core.records import RolloutQuery
from tau_live.store.sqlite.store import SqliteStore
from tests.proof.crowd_play import rollout_id
from tests.proof.figures import Figure, Progress, Tier
from tests.proof.watching import played

RUNS = {Tier.QUICK: 600, Tier.LONG: 10_000}
THREADS = {Tier.QUICK: 16, Tier.LONG: 64}
GROWTH_MB = {Tier.QUICK: 30.0, Tier.LONG: 100.0}
DROPS = ("dropped_queue_full", "dropped_closed", "dropped_unmade", "dropped_unwritten")


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Let a crowd come twice, and look at every row that it left."""
    progress(0, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        process = played(
            path,
            *(RUNS[tier], THREADS[tier]),
            module="tests.proof.crowd_play",
            deadline_s=600.0,
        )
        progress(1, 2)
        tally, counts = _tally(path, process.names("keys"))
    progress(2, 2)
    sizes = [float(size) for size in process.names("mb")] or [float("nan")] * 3
    runs = len(process.names("keys"))
    lost = sum(counts.get(name, 0) for name in DROPS)
    yield Figure(4, "runs of a crowd, open at once in one loop or in many threads", runs,
                 at_least=2 * RUNS[tier])  # fmt: skip
    ended = process.code != 0 or process.facts.get("flushed") is not True
    yield Figure(1, "crowds that hung or were not stored in time", ended, at_most=0)
    yield Figure(1, "exceptions into the crowd's host", len(process.names("raised")), at_most=0)
    yield Figure(4, "decisions and rewards of a crowd in another run than their own",
                 tally["strangers"], at_most=0)  # fmt: skip
    yield Figure(4, "runs of a crowd left open", tally["open"], at_most=0)
    offered = 9 * runs + runs  # start, end, two decisions, five rewards; one for nobody each
    stored = tally["rows"] + tally["again"]
    missing = offered - stored - max(lost, process.number("refused"))
    yield Figure(4, "events of a crowd neither stored nor counted", abs(missing), at_most=0)
    yield Figure(4, "rewards dropped whose decision was kept", tally["unrewarded"], at_most=0)
    yield Figure(1, "MB that one more crowd of the same size adds", sizes[2] - sizes[1],
                 at_most=GROWTH_MB[tier])  # fmt: skip


def _tally(path: Path, keys: list[str]) -> tuple[Counter[str], dict[str, int]]:
    """Count rows, and those that do not carry the key of the run that they are in."""
    key_of = {rollout_id(key): key for key in keys}
    tally: Counter[str] = Counter()
    store = SqliteStore.open(path)
    try:
        for rollout in store.rollouts.query(RolloutQuery(limit=None)).rollouts:
            key = key_of.get(rollout.rollout_id, "")
            decisions = store.decisions.decisions(rollout.rollout_id)
            rewards = store.rewards.rewards(rollout.rollout_id)
            names = Counter(reward.name for reward in rewards)
            tally["rows"] += 1 + (rollout.ended_at is not None) + len(decisions) + len(rewards)
            tally["again"] += names["twice"]  # the same once more adds nothing
            tally["open"] += rollout.ended_at is None
            tally["strangers"] += sum(
                option.partition("/")[0] != key for row in decisions for option in row.options
            )
            tally["strangers"] += sum(reward.comment != key for reward in rewards)
            wanted = {"early": 2, "late": 1, "twice": 1}
            tally["unrewarded"] += len(decisions) > 0 and names != wanted
        known = {row.rollout_id for row in store.rollouts.query(RolloutQuery(limit=None)).rollouts}
        for rollout_id_ in key_of.keys() - known:  # dropped whole; its rewards may find it yet
            rewards = store.rewards.rewards(rollout_id_)
            tally["rows"] += len(rewards)
            tally["again"] += sum(reward.name == "twice" for reward in rewards)
        for rollout_id_ in _nobodies(keys):
            rewards = store.rewards.rewards(rollout_id_)
            tally["rows"] += len(rewards)
            tally["strangers"] += sum(reward.name != "unknown" for reward in rewards)
        return tally, dict(store.counters.counts())
    finally:
        store.close()


def _nobodies(keys: list[str]) -> list[str]:
    each = len(keys) // 2
    return [rollout_id(f"{prefix}-nobody-{n}") for prefix in ("first", "second")
            for n in range(each)]  # fmt: skip
