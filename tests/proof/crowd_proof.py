"""Ten thousand runs at once, and every row of them in its own."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tau_live.core.records import RolloutQuery
from tau_live.store.sqlite.store import SqliteStore
from tests.proof.crowd_play import rollout_id
from tests.proof.figures import Figure, Tier, Told
from tests.proof.watching import played

RUNS = {Tier.QUICK: 600, Tier.LONG: 10_000}
THREADS = {Tier.QUICK: 16, Tier.LONG: 64}
GROWTH_MB = {Tier.QUICK: 30.0, Tier.LONG: 100.0}
DROPS = ("dropped_queue_full", "dropped_closed", "dropped_unmade", "dropped_unwritten")


def prove(tier: Tier, told: Told) -> Iterator[Figure]:
    """Let a crowd come twice, and look at every row that it left."""
    told(0, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        seen = played(
            path,
            *(RUNS[tier], THREADS[tier]),
            module="tests.proof.crowd_play",
            deadline_s=600.0,
        )
        told(1, 2)
        found, counts = _found(path, seen.names("keys"))
    told(2, 2)
    sizes = [float(size) for size in seen.names("mb")] or [float("nan")] * 3
    runs = len(seen.names("keys"))
    lost = sum(counts.get(name, 0) for name in DROPS)
    yield Figure(4, "runs of a crowd, open at once in one loop or in many threads", runs,
                 at_least=2 * RUNS[tier])  # fmt: skip
    ended = seen.code != 0 or seen.told.get("flushed") is not True
    yield Figure(1, "crowds that hung or were not stored in time", ended, at_most=0)
    yield Figure(1, "exceptions into the crowd's host", len(seen.names("raised")), at_most=0)
    yield Figure(4, "decisions and rewards of a crowd in another run than their own",
                 found["strangers"], at_most=0)  # fmt: skip
    yield Figure(4, "runs of a crowd left open", found["open"], at_most=0)
    offered = 9 * runs + runs  # start, end, two decisions, five rewards; one for nobody each
    stored = found["rows"] + found["again"]
    yield Figure(4, "events of a crowd neither stored nor counted",
                 abs(offered - stored - max(lost, seen.number("refused"))), at_most=0)  # fmt: skip
    yield Figure(4, "rewards dropped whose decision was kept", found["unrewarded"], at_most=0)
    yield Figure(1, "MB that one more crowd of the same size adds", sizes[2] - sizes[1],
                 at_most=GROWTH_MB[tier])  # fmt: skip


def _found(path: Path, keys: list[str]) -> tuple[Counter[str], dict[str, int]]:
    """Count rows, and those that do not carry the key of the run that they are in."""
    key_of = {rollout_id(key): key for key in keys}
    found: Counter[str] = Counter()
    store = SqliteStore.open(path)
    try:
        for rollout in store.rollouts.query(RolloutQuery(limit=None)).rollouts:
            key = key_of.get(rollout.rollout_id, "")
            decisions = store.decisions.decisions(rollout.rollout_id)
            rewards = store.rewards.rewards(rollout.rollout_id)
            names = Counter(reward.name for reward in rewards)
            found["rows"] += 1 + (rollout.ended_at is not None) + len(decisions) + len(rewards)
            found["again"] += names["twice"]  # the same once more adds nothing
            found["open"] += rollout.ended_at is None
            found["strangers"] += sum(
                option.partition("/")[0] != key for row in decisions for option in row.options
            )
            found["strangers"] += sum(reward.comment != key for reward in rewards)
            wanted = {"early": 2, "late": 1, "twice": 1}
            found["unrewarded"] += len(decisions) > 0 and names != wanted
        known = {row.rollout_id for row in store.rollouts.query(RolloutQuery(limit=None)).rollouts}
        for rollout_id_ in key_of.keys() - known:  # dropped whole; its rewards may find it yet
            rewards = store.rewards.rewards(rollout_id_)
            found["rows"] += len(rewards)
            found["again"] += sum(reward.name == "twice" for reward in rewards)
        for rollout_id_ in _nobodies(keys):
            rewards = store.rewards.rewards(rollout_id_)
            found["rows"] += len(rewards)
            found["strangers"] += sum(reward.name != "unknown" for reward in rewards)
        return found, dict(store.counters.counts())
    finally:
        store.close()


def _nobodies(keys: list[str]) -> list[str]:
    each = len(keys) // 2
    return [rollout_id(f"{prefix}-nobody-{n}") for prefix in ("first", "second")
            for n in range(each)]  # fmt: skip
