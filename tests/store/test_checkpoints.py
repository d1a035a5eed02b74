"""Checkpoints in a folder: the files that stores have had from the beginning."""

import os
import resource
import stat
from pathlib import Path

import pytest

from tau_live.core.errors import CheckpointError, StoreFilesError
from tau_live.store.checkpoints import FolderCheckpoints, name_of
from tau_live.store.opening import open_at

NAME = name_of(7, "0123456789abcdef" * 4)


def test_a_stores_checkpoints_are_private_files_in_the_folder_beside_it(tmp_path: Path) -> None:
    store = open_at(tmp_path / "live.db")
    store.checkpoints.put(NAME, b"content")
    store.checkpoints.of_run("opt-1").put(NAME, b"the run's")
    store.close()

    folder = tmp_path / "live-policies"
    path = folder / "000000007-0123456789abcdef.npz"
    assert path.read_bytes() == b"content"
    assert (folder / "opt-1" / path.name).read_bytes() == b"the run's"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {stat.S_IMODE(each.stat().st_mode) for each in (folder, folder / "opt-1")} == {0o700}


def test_a_folder_that_others_could_use_is_narrowed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    FolderCheckpoints(tmp_path).put(NAME, b"content")

    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_other_files_in_the_folder_are_no_checkpoints(tmp_path: Path) -> None:
    begun = f".{NAME}.{os.getpid()}-1.part"
    for name in ("000000001.npz", NAME, begun, "notes.txt", "1x.npz", "999-ABCDEF0123456789.npz"):
        (tmp_path / name).touch()
    checkpoints = FolderCheckpoints(tmp_path)

    swept = checkpoints.sweep()

    assert checkpoints.names() == ["000000001.npz", NAME]
    assert swept == []
    assert (tmp_path / begun).exists()


def test_a_file_in_the_place_of_the_folder_holds_none_and_takes_none(tmp_path: Path) -> None:
    (tmp_path / "policies").touch()
    checkpoints = FolderCheckpoints(tmp_path / "policies")

    with pytest.raises(CheckpointError, match="cannot write checkpoint"):
        checkpoints.put(NAME, b"content")

    assert checkpoints.names() == []


def test_a_folder_that_cannot_be_read_now_is_not_called_empty(tmp_path: Path) -> None:
    checkpoints = FolderCheckpoints(tmp_path)
    checkpoints.put(NAME, b"content")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))

    try:
        with pytest.raises(StoreFilesError, match="cannot list the checkpoints"):
            checkpoints.names()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_link_to_a_file_is_read_and_replaced_without_following_it(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"theirs")
    checkpoints = FolderCheckpoints(tmp_path / "policies")
    checkpoints.put(NAME, b"before")
    path = tmp_path / "policies" / NAME
    path.unlink()
    path.symlink_to(theirs)

    checkpoints.put(NAME, b"after")

    assert (theirs.read_bytes(), path.read_bytes()) == (b"theirs", b"after")
    assert not path.is_symlink()
