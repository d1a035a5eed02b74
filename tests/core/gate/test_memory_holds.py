import os
import stat
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tau_live.core.memory_holds import MemoryHold, MemoryHoldSign, memory_holds
from tests.core.gate.holding import holding


@pytest.mark.slow
def test_others_see_who_holds_why_and_since_when(tmp_path: Path) -> None:
    store = tmp_path / "live.db"

    with holding(store, since=1_700_000_000.9) as one, holding(store, since=1_800_000_000.0) as two:
        found = memory_holds(store)
        two.kill()
        one.kill()

    assert found == [
        MemoryHold(one.pid, "store_unavailable", 1_700_000_000.0),
        MemoryHold(two.pid, "store_unavailable", 1_800_000_000.0),
    ]


@pytest.mark.slow
def test_a_process_that_was_killed_holds_no_more(tmp_path: Path) -> None:
    store = tmp_path / "live.db"
    with holding(store) as process:
        assert len(memory_holds(store)) == 1

        process.kill()
        process.wait()

        assert memory_holds(store) == []


@pytest.mark.slow
def test_many_are_all_seen_in_a_moment(tmp_path: Path) -> None:
    store = tmp_path / "live.db"
    children = []
    read, write = os.pipe()
    for number in range(64):
        child = os.fork()
        if child == 0:
            sign = MemoryHoldSign(store)
            sign.show(("store_unavailable", 1_000.0 + number % 3))
            os.write(write, b".")
            time.sleep(60)
            os._exit(0)
        children.append(child)
    try:
        assert sum(len(os.read(read, 1)) for _ in children) == 64

        began = time.thread_time()
        found = memory_holds(store)
        took_s = time.thread_time() - began
    finally:
        for child in children:
            os.kill(child, 9)
            os.waitpid(child, 0)

    assert {hold.pid for hold in found} == set(children)
    assert took_s < 0.1


@pytest.mark.slow
def test_a_hold_that_is_over_or_another_is_seen(tmp_path: Path) -> None:
    store = tmp_path / "live.db"
    to_child, to_parent = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        sign = MemoryHoldSign(store)
        for held in [("store_unavailable", 5.0), ("their own", 7.0), None]:
            sign.show(held)
            sign.show(held)
            os.write(to_parent[1], b".")
            os.read(to_child[0], 1)
        os._exit(0)

    seen = []
    for _ in range(3):
        os.read(to_parent[0], 1)
        seen.append([(hold.reason, hold.since) for hold in memory_holds(store)])
        os.write(to_child[1], b".")
    os.waitpid(child, 0)

    assert seen == [[("store_unavailable", 5.0)], [("another reason", 7.0)], []]


def test_the_file_is_empty_and_for_its_owner_alone(tmp_path: Path) -> None:
    sign = MemoryHoldSign(tmp_path / "live.db")

    sign.prepare()
    sign.show(("store_unavailable", time.time()))

    found = (tmp_path / "live.db.held").stat()
    assert (found.st_size, stat.S_IMODE(found.st_mode)) == (0, 0o600)


def descriptor_of(path: Path) -> int:
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing itself
            if link.readlink() == path:
                return int(link.name)
    raise AssertionError(f"{path} is not open")


def test_a_descriptor_that_the_host_has_closed_and_uses_itself_is_left_alone(
    tmp_path: Path,
) -> None:
    sign = MemoryHoldSign(tmp_path / "live.db")
    sign.show(("store_unavailable", 5.0))
    ours = descriptor_of(tmp_path / "live.db.held")
    os.close(ours)
    theirs = os.open(tmp_path / "theirs", os.O_RDWR | os.O_CREAT)
    assert theirs == ours

    sign.show(None)

    assert os.fstat(ours).st_ino == (tmp_path / "theirs").stat().st_ino
    os.close(ours)


def test_without_the_file_or_with_a_link_in_its_place_nobody_holds(tmp_path: Path) -> None:
    assert memory_holds(tmp_path / "none") == []
    (tmp_path / "live.db.held").symlink_to(tmp_path / "elsewhere")

    MemoryHoldSign(tmp_path / "live.db").show(("store_unavailable", 5.0))

    assert memory_holds(tmp_path / "live.db") == []
    assert not (tmp_path / "elsewhere").exists()
