"""The checkpoints of a store: bytes by name, each of them whole, in a place of the store's own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread

import numpy as np
import pytest

from tau_live.core.errors import CheckpointError
from tau_live.decisions.checkpoints import Checkpoint, load, load_some, prune, save
from tau_live.store.checkpoints import name_of
from tau_live.store.roles import Checkpoints, Store

OpenStore = Callable[[], Store]

FIRST, SECOND = name_of(1, "a" * 64), name_of(2, "b" * 64)
POLICY = Checkpoint(
    version=2,
    point="model",
    parent=1,
    parent_sha256="ab" * 32,
    arrays={"weights": np.arange(6.0), "adam": np.ones(3)},
)


def content_of(checkpoints: Checkpoints, name: str) -> bytes:
    with checkpoints.open(name) as file:
        return file.read()


def test_no_checkpoint_is_stored_at_first(store: Store) -> None:
    assert store.checkpoints.names() == []
    assert store.checkpoints.sweep() == []
    assert store.checkpoints.delete(FIRST)
    with pytest.raises(CheckpointError, match="cannot read checkpoint") as raised:
        store.checkpoints.open(FIRST)
    assert store.checkpoints.address(FIRST) in str(raised.value)


def test_a_checkpoint_is_read_by_others_as_it_was_put(store: Store, opened: OpenStore) -> None:
    content = bytes(range(256)) * 1000

    store.checkpoints.put(FIRST, content)

    assert content_of(store.checkpoints, FIRST) == content
    assert content_of(opened().checkpoints, FIRST) == content


def test_a_part_of_a_checkpoint_can_be_read(store: Store) -> None:
    store.checkpoints.put(FIRST, b"begin, middle, end")

    with store.checkpoints.open(FIRST) as file:
        file.seek(-3, 2)
        end = file.read()
        file.seek(7)
        middle = file.read(6)

    assert (middle, end) == (b"middle", b"end")


def test_a_checkpoint_is_replaced_as_a_whole_beside_a_reader(store: Store) -> None:
    store.checkpoints.put(FIRST, b"before" * 100_000)

    with store.checkpoints.open(FIRST) as file:
        store.checkpoints.put(FIRST, b"after")
        before = file.read()

    assert before == b"before" * 100_000
    assert content_of(store.checkpoints, FIRST) == b"after"


def test_two_that_put_one_name_at_once_leave_one_whole_checkpoint(opened: OpenStore) -> None:
    contents, barrier = [b"a" * 100_000, b"b" * 100_000], Barrier(2)
    put: list[bytes] = []

    def work(content: bytes) -> None:
        own = opened().checkpoints
        barrier.wait()
        own.put(FIRST, content)
        put.append(content)

    threads = [Thread(target=work, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(put) == contents
    assert content_of(opened().checkpoints, FIRST) in contents
    assert opened().checkpoints.names() == [FIRST]


def test_names_are_sorted_and_those_that_are_gone_are_not_among_them(store: Store) -> None:
    third = name_of(3)
    for name in (third, SECOND, FIRST):
        store.checkpoints.put(name, name.encode())

    assert store.checkpoints.names() == [FIRST, SECOND, third]
    assert store.checkpoints.delete(SECOND)
    assert store.checkpoints.names() == [FIRST, third]
    assert content_of(store.checkpoints, FIRST) == FIRST.encode()
    with pytest.raises(CheckpointError):
        store.checkpoints.open(SECOND)


def test_the_checkpoints_of_a_run_are_its_own(store: Store, opened: OpenStore) -> None:
    run, other = store.checkpoints.of_run("opt-1"), store.checkpoints.of_run("opt-2")
    store.checkpoints.put(FIRST, b"the store's")
    run.put(FIRST, b"the run's")
    run.put(SECOND, b"the run's")

    assert store.checkpoints.delete(FIRST)

    assert (store.checkpoints.names(), other.names()) == ([], [])
    assert opened().checkpoints.of_run("opt-1").names() == [FIRST, SECOND]
    assert content_of(run, FIRST) == b"the run's"


def test_another_store_has_checkpoints_of_its_own(store: Store, elsewhere: OpenStore) -> None:
    store.checkpoints.put(FIRST, b"here")

    assert elsewhere().checkpoints.names() == []


@pytest.mark.parametrize("name", ["", "../beside", "a/b", "/beside", "null\0"])
def test_a_name_is_no_path(store: Store, tmp_path: Path, name: str) -> None:
    beside = tmp_path / "one" / "beside"
    beside.parent.mkdir(exist_ok=True)
    beside.write_bytes(b"somebody's")
    name = str(beside) if name == "/beside" else name

    with pytest.raises(CheckpointError):
        store.checkpoints.put(name, b"ours")
    with pytest.raises(CheckpointError):
        store.checkpoints.open(name)
    store.checkpoints.delete(name)

    assert beside.read_bytes() == b"somebody's"
    assert store.checkpoints.names() == []


def test_a_policy_is_saved_and_verified_by_its_digest(store: Store, opened: OpenStore) -> None:
    name = save(store.checkpoints, POLICY)

    found = load(opened().checkpoints, name, sha256=POLICY.sha256)

    assert name == name_of(2, POLICY.sha256)
    assert found.sha256 == POLICY.sha256
    assert list(load_some(store.checkpoints, name, ["weights"])) == ["weights"]


def test_other_content_under_a_name_is_refused(store: Store) -> None:
    name = save(store.checkpoints, POLICY)
    other = save(store.checkpoints, replace(POLICY, arrays={}))
    store.checkpoints.put(name, content_of(store.checkpoints, other))

    with pytest.raises(CheckpointError, match="not the one recorded in the store") as raised:
        load(store.checkpoints, name, sha256=POLICY.sha256)

    assert store.checkpoints.address(name) in str(raised.value)


def test_the_newest_and_those_that_are_needed_stay(store: Store) -> None:
    names = [
        save(store.checkpoints, replace(POLICY, version=version, parent=version - 1))
        for version in (1, 2, 3, 4)
    ]

    gone = prune(store.checkpoints, keep=1, needed=frozenset({2}))

    assert gone == [1, 3]
    assert store.checkpoints.names() == [names[1], names[3]]
