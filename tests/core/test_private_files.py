"""Files for their owner's eyes alone: refused, narrowed, and made so from the first byte."""

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tau_live.core.errors import CheckpointError, SettingsError, StoreUnavailableError
from tau_live.core.files import make_folders, narrow, opened_new
from tau_live.core.settings.sources import read_toml
from tau_live.decisions.checkpoints import Checkpoint, save
from tau_live.record.recording import Recorder
from tau_live.store.checkpoints import FolderCheckpoints
from tau_live.store.sealing import MOST_KEY_BYTES, key_in
from tau_live.store.sqlite.store import SqliteStore

SOMEBODY = 12_345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_folder_that_is_made_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_folders(tmp_path / "one" / "two")
    finally:
        os.umask(before)

    assert [_mode(tmp_path / "one"), _mode(tmp_path / "one" / "two")] == [0o700, 0o700]


def test_a_wide_file_is_narrowed_once_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.touch()
    path.chmod(0o664)

    first, second = narrow(path), narrow(path)

    assert first is not None
    assert "mode 664" in first
    assert second is None
    assert _mode(path) == 0o600


def test_what_is_not_there_or_no_file_is_nobodys_concern(tmp_path: Path) -> None:
    assert narrow(tmp_path / "nothing") is None
    assert narrow(Path("/dev/null")) is None


def test_what_was_planted_in_place_of_a_new_file_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("before")
    (tmp_path / "new").symlink_to(tmp_path / "theirs")

    os.close(opened_new(tmp_path / "new"))

    assert not (tmp_path / "new").is_symlink()
    assert (tmp_path / "theirs").read_text() == "before"


def _store(path: Path) -> None:
    SqliteStore.open(path).close()


def _record(path: Path) -> None:
    Recorder(path).close()


@pytest.mark.parametrize("write", [_store, _record])
def test_a_symbolic_link_is_refused(tmp_path: Path, write: Callable[[Path], None]) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.touch()
    link.symlink_to(target)

    with pytest.raises((PermissionError, StoreUnavailableError), match="symbolic link"):
        write(link)

    assert target.read_bytes() == b""


def _looked_into(path: Path) -> None:
    SqliteStore.open(path, read_only=True).close()


def _key(path: Path) -> None:
    key_in(path)


def _made_key(path: Path) -> None:
    key_in(path, make=True)


def _settings(path: Path) -> None:
    read_toml(path)


@pytest.mark.parametrize("use", [_store, _looked_into, _record, _key, _settings])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, use: Callable[[Path], None]) -> None:
    os.mkfifo(tmp_path / "pipe", mode=0o600)

    with pytest.raises(
        (PermissionError, StoreUnavailableError, SettingsError), match=r"a pipe|not"
    ):
        use(tmp_path / "pipe")


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_link_beside_a_store_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "store.sqlite"
    _store(path)
    (tmp_path / f"store.sqlite{suffix}").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StoreUnavailableError, match="symbolic link"):
        _store(path)


@needs_root
@pytest.mark.parametrize("write", [_store, _record])
def test_somebody_elses_file_is_refused(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / "theirs"
    path.touch()
    os.chown(path, SOMEBODY, SOMEBODY)

    with pytest.raises((PermissionError, StoreUnavailableError), match="belongs to another user"):
        write(path)


@pytest.mark.parametrize("write", [_store, _record])
def test_a_wide_file_is_narrowed_with_a_warning(
    tmp_path: Path, write: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "wide"
    write(path)
    path.chmod(0o666)

    with caplog.at_level(logging.WARNING, "tau_live"):
        write(path)

    assert _mode(path) == 0o600
    assert "file_narrowed" in caplog.text


@pytest.mark.parametrize("use", [_record, _made_key])
@pytest.mark.parametrize("what", ["folder", "text", "JSON", "a store"])
def test_what_a_setting_names_by_mistake_is_left_as_it_is(
    tmp_path: Path, use: Callable[[Path], None], what: str
) -> None:
    path = tmp_path / "mistake"
    if what == "folder":
        path.mkdir()
    elif what == "a store":
        _store(path)
    else:
        path.write_text({"text": "some notes of mine\n", "JSON": '{"a": 1}\n{"b": 22222}\n'}[what])
    path.chmod(0o777)
    before = path.lstat().st_mtime_ns

    with pytest.raises((OSError, StoreUnavailableError)):
        use(path)

    assert _mode(path) == 0o777
    assert path.lstat().st_mtime_ns == before


@needs_root
@pytest.mark.parametrize("minor", [5, 9])
def test_an_endless_device_is_no_key(tmp_path: Path, minor: int) -> None:
    os.mknod(tmp_path / "device", 0o600 | stat.S_IFCHR, os.makedev(1, minor))

    with pytest.raises(StoreUnavailableError, match="is no file"):
        _made_key(tmp_path / "device")


def test_what_is_too_large_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"k" * (MOST_KEY_BYTES + 1))

    with pytest.raises(StoreUnavailableError, match="is none: it holds more"):
        _key(tmp_path / "large")


def test_a_folder_of_checkpoints_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "policies").symlink_to(tmp_path / "theirs")
    checkpoint = Checkpoint(version=1, point="p", parent=0, parent_sha256="", arrays={})

    with pytest.raises(CheckpointError, match="symbolic link"):
        save(FolderCheckpoints(tmp_path / "policies"), checkpoint)

    assert list((tmp_path / "theirs").iterdir()) == []


def test_a_file_that_is_no_store_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be taken for one " * 50)
    path.chmod(0o664)

    with pytest.raises(StoreUnavailableError):
        _store(path)

    assert _mode(path) == 0o664
