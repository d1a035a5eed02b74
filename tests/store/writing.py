"""What each of many concurrent writers does: ``python -m tests.store.writing PATH NAME ROUNDS``.

As a program it says ``ready`` when it is, and starts when it is told to: the barrier of processes.
"""

import sys

from tau_live.core.records import RolloutStatus
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import begun, decision, reward, span
from tests.writes import writes


def write(store: SqliteStore, name: str, *, rounds: int) -> int:
    """Store whole rollouts, read in between, claim from the queue; return how many were claimed."""
    claimed = 0
    for number in range(rounds):
        rollout_id = f"{name}-{number}"
        with store.begin():
            begun(store, rollout_id, owner=name)
            status = store.rollouts.rollout(rollout_id).status
            writes(store).add_spans([span(f"s-{n}", rollout_id) for n in range(3)])
            writes(store).add_decision(decision(rollout_id=rollout_id))
        writes(store).add_reward(reward(1.0, rollout_id))
        store.counters.add({"rounds": 1})
        writes(store).set_status(
            rollout_id,
            RolloutStatus.SUCCEEDED if status == "running" else RolloutStatus.FAILED,
            at=9.0,
        )
        writes(store).mark_ready(rollout_id, total_reward=1.0)
        claimed += store.queue.claim(name, at=10.0) is not None
    return claimed


def main() -> None:
    path, name, rounds = sys.argv[1:]
    store = SqliteStore.open(path)
    print("ready", flush=True)
    sys.stdin.readline()
    print(write(store, name, rounds=int(rounds)), flush=True)
    store.close()


if __name__ == "__main__":
    main()
