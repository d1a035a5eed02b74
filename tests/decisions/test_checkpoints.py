"""Checkpoints: what is read is what was written, or an error."""

import os
import resource
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pytest

from tau_live.core.errors import CheckpointError, StoreUnavailableError
from tau_live.core.files import write_whole
from tau_live.decisions.checkpoints import Checkpoint
from tau_live.rl.policy import PolicyConfig
from tau_live.rl.state import LearnerState
from tau_live.store.checkpoints import name_of
from tests.decisions.paths import load, load_some, prune, save

Arrays = dict[str, npt.NDArray[np.generic]]

NAN = np.array([0x7FF8DEADBEEF0001, 0xFFF0000000000000, 1 << 63], dtype=np.uint64).view("f8")
ARRAYS: Arrays = {
    "weights": np.arange(12, dtype=np.float64).reshape(3, 4) / 7.0,
    "half": np.array([1.5, -0.0], dtype=np.float32),
    "counts": np.array([-(2**63), 2**63 - 1], dtype=np.int64),
    "mask": np.array([True, False, True]),
    "bytes": np.frombuffer(bytes(range(256)), dtype=np.uint8),
    "step": np.array(7, dtype=np.int64),
    "rate": np.array(0.1),
    "empty": np.zeros((0, 3), dtype=np.float32),
    "nan": NAN,
    "names": np.array(["a", "ü"]),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": np.arange(10, dtype=np.int32)[::3],
    "with/slash and space": np.array([1], dtype=np.int16),
}
GOOD = Checkpoint(
    version=7,
    point="model",
    parent=6,
    parent_sha256="ab" * 32,
    arrays=ARRAYS,
    metadata={"algorithm": "ppo", "seed": 3},
)


def test_what_was_saved_is_loaded_bit_by_bit(tmp_path: Path) -> None:
    path = save(tmp_path / "policies", GOOD)

    found = load(path, sha256=GOOD.sha256)

    assert path.name == f"000000007-{GOOD.sha256[:16]}.npz"
    assert (found.version, found.point, found.parent) == (7, "model", 6)
    assert found.parent_sha256 == GOOD.parent_sha256
    assert found.metadata == {"algorithm": "ppo", "seed": 3, "numpy": np.__version__}
    assert set(found.arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert (found.arrays[name].dtype, found.arrays[name].shape) == (array.dtype, array.shape)
        assert found.arrays[name].tobytes() == array.tobytes(), name


def test_a_learners_state_is_loaded_as_it_was(tmp_path: Path) -> None:
    arrays = LearnerState.initial(PolicyConfig()).arrays()
    checkpoint = replace(GOOD, arrays=arrays)

    found = load(save(tmp_path, checkpoint))

    again = LearnerState.from_arrays(found.arrays).arrays()
    assert {name: array.tobytes() for name, array in again.items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }
    assert found.sha256 == checkpoint.sha256


def test_some_arrays_are_read_without_the_others(tmp_path: Path) -> None:
    path = save(tmp_path, GOOD)
    content = path.read_bytes()
    elsewhere = ARRAYS["counts"].tobytes()
    assert content.count(elsewhere) == 1
    path.write_bytes(content.replace(elsewhere, bytes(len(elsewhere))))

    found = load_some(path, ["weights", "names", "not there"], sha256=GOOD.sha256)

    assert {name: array.tolist() for name, array in found.items()} == {
        name: ARRAYS[name].tolist() for name in ("weights", "names")
    }
    with pytest.raises(CheckpointError, match="damaged"):
        load(path)
    with pytest.raises(CheckpointError):
        load_some(path, ["counts"])


@pytest.mark.slow
def test_some_arrays_of_a_file_with_any_byte_flipped_are_right_or_refused(tmp_path: Path) -> None:
    path = save(tmp_path, GOOD)
    good, random = path.read_bytes(), Random(2)
    places = {*range(80), *range(len(good) - 200, len(good))}
    places |= {random.randrange(len(good)) for _ in range(400)}
    refused = 0

    for place in sorted(places):
        broken = bytearray(good)
        broken[place] ^= 1 << random.randrange(8)
        path.write_bytes(broken)
        try:
            found = load_some(path, ["weights"], sha256=GOOD.sha256)
        except CheckpointError:
            refused += 1
        else:
            assert found["weights"].tobytes() == ARRAYS["weights"].tobytes()

    assert 50 < refused < len(places)


def test_some_arrays_of_another_checkpoint_than_the_stores_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path, GOOD)

    with pytest.raises(CheckpointError, match="not the one recorded in the store"):
        load_some(path, ["weights"], sha256="0" * 64)


def test_the_same_checkpoint_is_the_same_file(tmp_path: Path) -> None:
    reordered = replace(GOOD, arrays=dict(reversed(ARRAYS.items())))

    first, second = save(tmp_path / "a", GOOD), save(tmp_path / "b", reordered)

    assert first.read_bytes() == second.read_bytes()


def test_the_checksum_does_not_depend_on_the_order_of_arrays() -> None:
    assert replace(GOOD, arrays=dict(reversed(ARRAYS.items()))).sha256 == GOOD.sha256


def test_the_checksum_does_not_depend_on_the_machines_byte_order() -> None:
    swapped: Arrays = {
        name: array.astype(array.dtype.newbyteorder(">")) for name, array in ARRAYS.items()
    }

    assert replace(GOOD, arrays=swapped).sha256 == GOOD.sha256


@pytest.mark.parametrize(
    "change",
    [
        {"version": 8},
        {"point": "tools"},
        {"parent": 5},
        {"parent_sha256": ""},
        {"arrays": ARRAYS | {"step": np.array(8, dtype=np.int64)}},
        {"arrays": ARRAYS | {"step": np.array([7], dtype=np.int64)}},
        {"arrays": ARRAYS | {"step": np.array(7, dtype=np.int32)}},
        {"arrays": {name: a for name, a in ARRAYS.items() if name != "step"}},
        {"arrays": ARRAYS | {"more": np.array(0)}},
    ],
)
def test_the_checksum_depends_on_every_array_and_on_the_lineage(change: dict[str, object]) -> None:
    assert replace(GOOD, **change).sha256 != GOOD.sha256  # type: ignore[arg-type]  # a field of it


def test_what_numpy_wrote_is_readable_by_numpy(tmp_path: Path) -> None:
    path = save(tmp_path, GOOD)

    with np.load(path, allow_pickle=False) as archive:
        found = archive["a.weights"]

    np.testing.assert_array_equal(found, ARRAYS["weights"])


def test_a_checkpoint_is_its_owners_alone(tmp_path: Path) -> None:
    path = save(tmp_path / "policies", GOOD)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_another_checkpoint_than_the_stores_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, GOOD)

    with pytest.raises(CheckpointError, match="not the one recorded in the store"):
        load(path, sha256="0" * 64)


@pytest.mark.slow
def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    path = save(tmp_path, GOOD)
    good = path.read_bytes()
    random = Random(1)
    places = {*range(80), *range(len(good) - 200, len(good))}
    places |= {random.randrange(len(good)) for _ in range(400)}

    for place in sorted(places):
        broken = bytearray(good)
        broken[place] ^= 1 << random.randrange(8)
        path.write_bytes(broken)
        with pytest.raises(CheckpointError):
            load(path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_found(tmp_path: Path, share: float) -> None:
    path = save(tmp_path, GOOD)
    good = path.read_bytes()
    path.write_bytes(good[: int(share * len(good))])

    with pytest.raises(CheckpointError, match="cannot read checkpoint"):
        load(path)


@pytest.mark.parametrize("more", [b"\0", b"x" * 64])
def test_what_was_appended_is_found(tmp_path: Path, more: bytes) -> None:
    path = save(tmp_path, GOOD)
    path.write_bytes(path.read_bytes() + more)

    with pytest.raises(CheckpointError):
        load(path)


def test_a_missing_file_and_a_folder_are_checkpoint_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "none.npz", tmp_path):
        with pytest.raises(CheckpointError, match="cannot read checkpoint"):
            load(path)


@pytest.mark.parametrize(
    "broken",
    [
        replace(GOOD, arrays={"x": np.array([{}], dtype=object)}),
        replace(GOOD, metadata={"x": object()}),
        replace(GOOD, metadata={"x": float("nan")}),
    ],
    ids=["objects", "metadata that is no JSON", "metadata with NaN"],
)
def test_what_could_only_be_pickled_is_not_written(tmp_path: Path, broken: Checkpoint) -> None:
    with pytest.raises(CheckpointError, match="cannot write checkpoint"):
        save(tmp_path, broken)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_a_checkpoint_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(CheckpointError, match="cannot write checkpoint"):
        save(tmp_path / "file" / "policies", GOOD)


DIES = """
import os, signal, sys
from pathlib import Path
from tau_live.core.files import write_whole
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
write_whole(Path(sys.argv[1]), b"new")
"""


def test_a_process_that_dies_before_the_rename_leaves_what_was_there(tmp_path: Path) -> None:
    path = save(tmp_path, GOOD)

    died = subprocess.run(
        [sys.executable, "-c", DIES, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )

    assert died.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    assert load(path).sha256 == GOOD.sha256
    assert prune(tmp_path, keep=1, needed=frozenset()) == []
    assert list(tmp_path.iterdir()) == [path]


def test_a_rename_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "inside").touch()

    with pytest.raises(OSError, match="taken"):
        write_whole(taken, b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_file_is_replaced_whole_and_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    path.write_bytes(b"old and longer")
    path.chmod(0o644)

    write_whole(path, b"new")

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_that_somebody_put_there_is_not_followed(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "status.json"
    target.write_bytes(b"theirs")
    path.symlink_to(target)

    write_whole(path, b"new")

    assert (target.read_bytes(), path.read_bytes()) == (b"theirs", b"new")


def saved(folder: Path, versions: list[int]) -> None:
    for version in versions:
        save(folder, replace(GOOD, version=version, arrays={}))


def kept(folder: Path) -> list[int]:
    return sorted(int(path.stem[:9]) for path in folder.glob("*.npz"))


@pytest.mark.parametrize(
    ("keep", "needed", "expected"),
    [
        (2, {1}, [1, 4, 5]),
        (2, set(), [4, 5]),
        (9, set(), [1, 2, 3, 4, 5]),
        (0, {3}, [3]),
        (0, set(), []),
        (1, {5, 77}, [5]),
    ],
)
def test_the_newest_and_those_that_are_needed_stay(
    tmp_path: Path, keep: int, needed: set[int], expected: list[int]
) -> None:
    saved(tmp_path, [1, 2, 3, 4, 5])

    gone = prune(tmp_path, keep=keep, needed=frozenset(needed))

    assert kept(tmp_path) == expected
    assert sorted({1, 2, 3, 4, 5} - set(expected)) == gone


def test_versions_are_counted_and_not_spelt(tmp_path: Path) -> None:
    saved(tmp_path, [999_999_999, 1_000_000_000])

    gone = prune(tmp_path, keep=1, needed=frozenset())

    assert gone == [999_999_999]


def test_what_is_no_checkpoint_stays(tmp_path: Path) -> None:
    saved(tmp_path, [1, 2])
    newest = next(tmp_path.glob("000000002*"))
    names = ["1x.npz", "notes.txt", ".hidden", f".000000003.npz.{os.getpid()}-1.part"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / f".000000003.npz.{ended()}-1.part").touch()
    forgotten = tmp_path / f".000000003.npz.{os.getpid()}-2.part"
    forgotten.touch()
    os.utime(forgotten, (1.0, 1.0))

    prune(tmp_path, keep=1, needed=frozenset())

    assert {path.name for path in tmp_path.iterdir()} == {newest.name, *names}


def ended() -> int:
    """Return the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_nothing_is_pruned_where_there_is_nothing(tmp_path: Path) -> None:
    assert prune(tmp_path / "none", keep=1, needed=frozenset()) == []


def test_a_file_that_cannot_be_deleted_stays(tmp_path: Path) -> None:
    saved(tmp_path, [2])
    (tmp_path / name_of(1)).mkdir()

    assert prune(tmp_path, keep=0, needed=frozenset()) == [2]


def test_a_process_without_descriptors_does_not_call_a_version_damaged(tmp_path: Path) -> None:
    path = save(tmp_path / "policies", GOOD)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))

    try:
        with pytest.raises(StoreUnavailableError, match="this process cannot read"):
            load_some(path, ARRAYS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


ENDING = """
import sys, threading
from pathlib import Path
from tau_live.core.errors import TauLiveError
from tests.decisions.paths import load

def last():
    threading.main_thread().join()
    try:
        load(Path(sys.argv[1]))
    except TauLiveError as error:
        print(type(error).__name__)

threading.Thread(target=last).start()
"""


def test_a_process_that_ends_does_not_call_a_version_damaged(tmp_path: Path) -> None:
    path = save(tmp_path / "policies", GOOD)
    path.write_bytes(path.read_bytes()[:100])

    done = subprocess.run(
        [sys.executable, "-c", ENDING, str(path)], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "StoreUnavailableError"
