"""What was forgotten is in no byte of the store: not in free pages, not in the log."""

import random
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as changed

from tau_live.core.records import Amendment, RolloutQuery, RolloutStatus
from tau_live.store.sqlite.connection import connect
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import attempt, begun, decision, reward, rollout, span
from tests.writes import forget_old, writes

ROLLOUTS = 120


def marker(number: int) -> str:
    return f"secret-of-{number:06d}-end"


def bytes_of(path: Path) -> bytes:
    files = [path, *path.parent.glob(f"{path.name}-*")]
    return b"".join(file.read_bytes() for file in files)


def free_bytes_of(path: Path) -> bytes:
    """Return every free page, found as SQLite finds them."""
    data = path.read_bytes()
    size = int.from_bytes(data[16:18], "big")

    def words(page: int) -> list[int]:
        begin = (page - 1) * size
        return [int.from_bytes(data[n : n + 4], "big") for n in range(begin, begin + size, 4)]

    found = []
    trunk = int.from_bytes(data[32:36], "big")
    while trunk:
        following, count, *leaves = words(trunk)
        for page in (trunk, *leaves[:count]):
            begin = (page - 1) * size + (8 + 4 * count if page == trunk else 0)
            found.append(data[begin : page * size])
        trunk = following
    return b"".join(found)


def seen(found: bytes) -> set[int]:
    return {n for n in range(ROLLOUTS) if marker(n).encode() in found}


def fill(store: SqliteStore, rng: random.Random) -> None:
    """Write runs at once, so that pages are shared, split, and written to again and again."""
    numbers = list(range(ROLLOUTS))
    for n in numbers:
        row = rollout(f"live-{marker(n)}")
        writes(store).begin_rollout(
            replace(row, session_id=f"s-{marker(n)}", parent_id=f"p-{marker(n)}")
        )
        writes(store).begin_attempt(attempt(row.rollout_id))
        writes(store).add_name(f"also-{marker(n)}", row.rollout_id)
    for step in range(4):
        rng.shuffle(numbers)
        for n in numbers:
            rollout_id, text = f"live-{marker(n)}", marker(n) * rng.choice([1, 9, 400])
            writes(store).add_span(
                span(f"{step}-{marker(n)}", rollout_id, attributes={"text": text})
            )
            writes(store).add_decision(
                replace(decision(step + 1, rollout_id), context={"text": text})
            )
            writes(store).amend_rollout(
                rollout_id, Amendment(metadata={f"step {step}": text}, later=True)
            )
            writes(store).add_reward(replace(reward(1.0, rollout_id, name=f"{step}"), comment=text))
        for n in numbers:
            ended = span(f"{step}-{marker(n)}", f"live-{marker(n)}", ended_at=9.0, status="ok")
            writes(store).add_span(changed(ended, attributes={"more": marker(n) * 3}))
    for n in numbers:
        writes(store).set_status(f"live-{marker(n)}", RolloutStatus.FAILED, at=float(n % 3))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_fault_18_what_was_forgotten_is_in_no_free_page_and_no_log(
    tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "store.sqlite"
    store = SqliteStore.open(path)
    with store.begin():
        fill(store, random.Random(seed))
    before = seen(bytes_of(path))

    gone = forget_old(store, before=1.5, limit=ROLLOUTS)
    emptied = store.retention.empty_log()

    kept = {n for n in range(ROLLOUTS) if n % 3 == 2}
    assert before == set(range(ROLLOUTS))
    assert (gone, emptied) == (ROLLOUTS - len(kept), True)
    assert store.retention.size().free_bytes > 0
    free = free_bytes_of(path)
    assert len(free) > 100_000
    assert free.count(0) == len(free)
    assert path.with_name("store.sqlite-wal").stat().st_size == 0
    assert len(seen(bytes_of(path)) - kept) <= 0.1 * gone  # where SQLite has split a page
    assert store.rollouts.query(RolloutQuery(limit=0)).total == len(kept)
    store.close()


@pytest.mark.slow
def test_a_file_that_was_written_anew_holds_no_byte_of_it(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = SqliteStore.open(path)
    with store.begin():
        fill(store, random.Random(1))

    forget_old(store, before=1.5, limit=ROLLOUTS)
    store.retention.rewrite()

    assert seen(bytes_of(path)) == {n for n in range(ROLLOUTS) if n % 3 == 2}
    store.close()


@pytest.mark.slow
def test_a_reader_keeps_the_log_until_it_has_gone(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = SqliteStore.open(path)
    with store.begin():
        fill(store, random.Random(0))
    reading = connect(path, busy_timeout_s=1.0, read_only=True)
    reading.change("begin")
    reading.count("select count(*) from gate")
    forget_old(store, before=99.0, limit=ROLLOUTS)

    while_read = store.retention.empty_log()
    reading.close()
    afterwards = store.retention.empty_log()

    assert (while_read, afterwards) == (False, True)
    assert seen(path.with_name("store.sqlite-wal").read_bytes()) == set()
    store.close()


def test_the_size_is_what_is_in_use(tmp_path: Path) -> None:
    with closing(SqliteStore.open(tmp_path / "store.sqlite")) as store:
        for number in range(40):
            rollout_id = f"live-{number}"
            begun(store, rollout_id)
            writes(store).amend_rollout(rollout_id, Amendment(metadata={"text": "x" * 5000}))
            writes(store).set_status(rollout_id, RolloutStatus.FAILED, at=5.0)
        before = store.retention.size()

        forget_old(store, before=50.0, limit=30)
        after = store.retention.size()
        store.retention.vacuum()

        assert (before.rollouts, after.rollouts) == (40, 10)
        assert after.used_bytes < before.used_bytes - 100_000
        assert after.free_bytes > 100_000
        assert store.retention.size().free_bytes == 0
