"""Processes that share the updates learn from each rollout once, whichever of them dies."""

import os
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tau_live.core.records import LearnableRollout, Update
from tau_live.core.settings import Settings
from tau_live.learn.learner import LEASE, Learner
from tau_live.store.files import policies_of
from tau_live.store.roles import Store
from tests.decisions.paths import load
from tests.live.learned import LEARNS, due, updates, versions
from tests.live.running import done, go, integrity, line, opened, process, until
from tests.live.test_poison import add, worth

ROUNDS = """
import sys, tau_live
from tests.live.running import rounds
assert tau_live.attach() is not None
print("ready", flush=True)
sys.stdin.readline()
first, number = int(sys.argv[1]), int(sys.argv[2])
for at in range(first, first + number, 4):
    rounds(4, start=at)
    tau_live.flush(0.05)
assert tau_live.flush(60), tau_live.snapshot()
print(tau_live.snapshot()["gate"]["state"], flush=True)
"""

UPDATES = """
import sys, time
from pathlib import Path
from tau_live.learn.learner import Learner
from tau_live.core.processes import this_process
from tau_live.core.settings import Settings
from tau_live.store.sqlite.store import SqliteStore
store = SqliteStore.open(sys.argv[1])
settings = Settings(store=Path(sys.argv[1]), update_interval=4, max_rollouts_per_update=4)
learner = Learner(store, settings, holder=this_process())
print("ready", flush=True)
sys.stdin.readline()
made = 0
while learner.due():
    if learner.run_next(now=1.0) is not None:
        made += 1
    time.sleep(0.005)  # let others have their turn
print(made, flush=True)
"""


def taken(path: Path) -> Counter[int]:
    """Return how often each ready rollout was learned from by an update that was executed."""
    found: Counter[int] = Counter()
    with opened(path) as store:
        for update in store.policies.updates():
            if update.executed:
                found.update(ready_between(store, update))
    return found


def ready_between(store: Store, update: Update) -> list[int]:
    page: list[LearnableRollout] = store.rewards.ready_rollouts(
        update.point, after=update.first_ready - 1, upto=update.last_ready, limit=10_000
    )
    return [ready.rollout.ready_seq or 0 for ready in page]


def check(path: Path, settings: Settings) -> None:
    """Check that all versions are unique, whole, and grew out of each other."""
    rows, found = updates(path), versions(path)
    by_point: dict[str, int] = {}
    for update in rows:
        assert update.last_ready > by_point.get(update.point, 0)
        by_point[update.point] = update.last_ready
    made = [update.version for update in rows if update.executed]
    assert made == sorted(set(made), key=lambda version: version or 0)
    assert [row.version for row in found] == made
    assert set(taken(path).values()) <= {1}
    for row in found[-settings.keep_checkpoints :]:
        load(policies_of(settings.store) / row.file, sha256=row.sha256)
    assert integrity(path) == "ok"


@pytest.mark.slow
def test_four_processes_learn_from_every_rollout_exactly_once(path: Path) -> None:
    settings = Settings(store=path)
    with ExitStack() as stack:
        workers = [stack.enter_context(process(ROUNDS, path, 1_000 * n, 80)) for n in range(4)]
        assert [line(worker) for worker in workers] == ["ready"] * 4
        for worker in workers:
            go(worker)
        ends = [done(worker).strip() for worker in workers]

    assert ends == ["pass"] * 4
    check(path, settings)
    with opened(path) as store:
        assert store.rewards.ready_count("model", after=0) == 320
        assert 320 - store.policies.watermark("model") < settings.update_interval


@pytest.mark.slow
def test_learners_that_start_at_once_share_the_updates(path: Path) -> None:
    settings = Settings(store=path)
    with opened(path) as store, store.begin():
        for number in range(320):
            add(store, number, total=worth(number))

    with ExitStack() as stack:
        workers = [stack.enter_context(process(UPDATES, path, path)) for _ in range(4)]
        assert [line(worker) for worker in workers] == ["ready"] * 4
        for worker in workers:
            go(worker)
        made = [int(done(worker)) for worker in workers]

    check(path, settings)
    assert sum(made) == len(updates(path)) == 20
    assert sum(number > 0 for number in made) > 1, made


@pytest.mark.slow
def test_killed_in_the_middle_of_updates_again_and_again_nothing_is_lost(path: Path) -> None:
    settings = Settings(store=path)
    with opened(path) as store, store.begin():
        for number in range(4_800):
            add(store, number, total=worth(number))
    folder = policies_of(settings.store)

    for round_ in range(10):
        before = len(updates(path))
        with process(LEARNS, path, path) as learner:
            assert line(learner) == "ready"
            if round_ % 2:  # while the file is being written
                until(lambda seen=before: len(updates(path)) > seen or not due(path))  # type: ignore[misc]
                until(lambda: any(folder.glob(".*")) or not due(path))
            else:
                until(lambda: held(path) or not due(path))
            os.kill(learner.pid, signal.SIGKILL)
            learner.wait()
        check(path, settings)

    with process(UPDATES, path, path) as last:
        assert line(last) == "ready"
        go(last)
        done(last)
    check(path, settings)
    assert not due(path)
    assert sum(taken(path).values()) <= 4_800


def held(path: Path) -> bool:
    with opened(path) as store:
        return bool(store.leases.all(LEASE))


def test_the_lease_of_a_dead_process_blocks_nobody(path: Path) -> None:
    settings = Settings(store=path)
    with process("from tau_live.core.processes import this_process as p; print(p())", path) as dead:
        name = done(dead).strip()
    with opened(path) as store:
        for number in range(8):
            add(store, number, total=worth(number))
        assert store.leases.acquire(f"{LEASE}model", name, ttl_s=3_600.0)

        learned = Learner(store, settings, holder="test").run_next(now=2.0)

    assert learned is not None


def test_the_lease_of_another_machine_blocks_until_it_runs_out(path: Path) -> None:
    with opened(path) as store:
        for number in range(8):
            add(store, number, total=worth(number))
        store.clock = lambda: 1.0
        store.leases.acquire(f"{LEASE}model", "elsewhere:1:2", ttl_s=30.0)
        learner = Learner(store, Settings(store=path), holder="test")

        early = learner.run_next(now=2.0)
        store.clock = lambda: 31.5
        late = learner.run_next(now=2.0)

    assert early is None
    assert late is not None


def test_an_update_that_outlived_its_lease_is_given_up_and_no_file_overwritten(path: Path) -> None:
    settings = Settings(store=path)
    with opened(path) as store, opened(path) as others:
        for number in range(8):
            add(store, number, total=worth(number))
        times = iter([1.0, 100.0, 100.0, 100.0])

        def clock() -> float:
            """Return a time; at the second look another learner has been at work meanwhile."""
            now = next(times)
            if now > 1.0 and not others.policies.updates():
                others.clock = lambda: now
                other = Learner(others, settings, holder="elsewhere:1:2")
                assert other.run_next(now=3.0) is not None
                assert others.leases.acquire(f"{LEASE}model", "elsewhere:1:2", ttl_s=30.0)
            return now

        store.clock = clock
        slow = Learner(store, settings, holder="slow")
        slow.due()
        learned = slow.run_next(now=2.0)

    assert learned is None
    assert [update.at for update in updates(path)] == [3.0]
    check(path, settings)
