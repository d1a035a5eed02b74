"""The file that stops everything, whatever it holds and whatever is in its place."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tau_live.core.errors import TauLiveError
from tau_live.operate.stops import (
    KillWatch,
    Stop,
    kill,
    kill_file,
    kill_state,
    now_killed,
    unkill,
)
from tau_live.store.sqlite.store import SqliteStore

FULL = """
import resource, sys
from pathlib import Path
from tau_live.operate.stops import kill
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
found = kill(Path(sys.argv[1]), "nonsense", who="me", at=5.0)
sys.exit(0 if found is None else 3)
"""


@pytest.fixture
def switch(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite.off"


def test_it_stands_by_the_store_or_where_a_setting_says(tmp_path: Path, switch: Path) -> None:
    assert kill_file(tmp_path / "store.sqlite", None) == switch
    assert kill_file(tmp_path / "store.sqlite", tmp_path / "off") == tmp_path / "off"


def test_it_says_who_and_why_until_it_is_taken_away(switch: Path) -> None:
    before = kill(switch, "nonsense", who="me", at=5.0)
    found = kill_state(switch)
    removed = unkill(switch)

    assert before is None
    assert found == removed == Stop("nonsense", "me", 5.0)
    assert kill_state(switch) is None
    assert unkill(switch) is None


def test_the_first_reason_stays(switch: Path) -> None:
    kill(switch, "first", who="me", at=5.0)

    before = kill(switch, "second", who="you", at=6.0)

    assert before == kill_state(switch) == Stop("first", "me", 5.0)


def test_only_its_owner_may_read_it(switch: Path) -> None:
    kill(switch, "nonsense", who="me", at=5.0)

    assert switch.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "store.sqlite.off exists", id="empty"),
        pytest.param(b"prompt leak, call Ada\n", "prompt leak, call Ada", id="words"),
        pytest.param(b"\xff\xfe", "\ufffd\ufffd", id="not UTF-8"),
        pytest.param(b"[1]", "[1]", id="another JSON"),
        pytest.param(b'{"reason": "half', '{"reason": "half', id="cut off"),
        pytest.param(b'{"reason": "x", "who": "y", "at": NaN}', "x", id="no time"),
        pytest.param(b'{"reason": "x", "who": "y", "at": 1e999}', "x", id="endless time"),
        pytest.param(b"[" * 4000, "[" * 200, id="nested"),
        pytest.param(b"7" * 9000, "7" * 200, id="long"),
    ],
)
def test_whatever_it_holds_it_counts(switch: Path, content: bytes, reason: str) -> None:
    switch.write_bytes(content)

    found = kill_state(switch)

    assert found is not None
    assert found.reason == reason
    assert found == kill_state(switch)


@pytest.mark.parametrize("what", ["folder", "pipe", "dangling link", "unreadable"])
def test_whatever_stands_there_it_counts(switch: Path, what: str) -> None:
    if what == "folder":
        switch.mkdir()
    elif what == "pipe":
        os.mkfifo(switch)
    elif what == "dangling link":
        switch.symlink_to(switch.parent / "nowhere")
    else:
        switch.touch(mode=0)

    assert kill_state(switch) is not None


@pytest.mark.parametrize("what", ["store", "store by our name", "words", "folder", "pipe", "link"])
def test_what_is_no_kill_file_stops_everything_and_is_left_as_it_is(
    tmp_path: Path, what: str
) -> None:
    path = tmp_path / ("named.off" if what == "store by our name" else "named")
    if what.startswith("store"):
        SqliteStore.open(path).close()
    elif what == "words":
        path.write_text("[project]\nname = 'agent'\n")
    elif what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path)
    before = path.lstat()[:7]  # but the times

    with pytest.raises(TauLiveError, match=r"stays on: .* not a kill file, and was left as it is"):
        unkill(path)

    assert path.lstat()[:7] == before
    assert kill_state(path) is not None
    assert "agent" not in str(kill_state(path))


@pytest.mark.parametrize("content", [b"", b'{"reason": "x", "who": "y", "at": 1.0}\n'])
def test_a_named_file_that_is_ours_is_taken_away(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "named"
    path.write_bytes(content)

    assert unkill(path) is not None

    assert not path.exists()


def test_on_a_full_disk_it_is_empty_and_counts(switch: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FULL, str(switch)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )

    assert done.returncode == 0
    assert switch.read_bytes() == b""
    assert kill_state(switch) is not None
    assert [path.name for path in switch.parent.iterdir()] == [switch.name]


def test_a_folder_that_is_not_there_kills_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert kill_state(tmp_path / "nowhere" / "off") is None
    assert kill_state(tmp_path / "file" / "off") is None


def test_where_it_cannot_be_told_commands_take_it_for_on_and_a_watch_keeps_what_it_knew(
    tmp_path: Path,
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    heard: list[Stop | None] = []
    watch = KillWatch(loop / "off", stop_reason=lambda: None, changed=heard.append)

    watch.check()

    found = now_killed(loop / "off")
    assert found is not None
    assert "cannot be accessed" in found.reason
    assert heard == []


def test_a_watch_tells_each_change_once(switch: Path) -> None:
    heard: list[Stop | None] = []
    watch = KillWatch(switch, stop_reason=lambda: None, changed=heard.append)

    watch.check()
    switch.write_text(json.dumps({"reason": "x", "who": "y", "at": 1.0}))
    watch.check()
    watch.check()
    switch.unlink()
    watch.check()

    assert heard == [Stop("x", "y", 1.0), None]


def test_what_a_link_leads_to_is_read_to_nobody(switch: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the password")
    switch.symlink_to(secret)

    found = kill_state(switch)

    assert found is not None
    assert found.reason == "store.sqlite.off exists"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_makes_belongs_to_whoever_has_the_folder(switch: Path) -> None:
    os.chown(switch.parent, 1500, 1501)

    kill(switch, "nonsense", who="root", at=5.0)

    assert (switch.stat().st_uid, switch.stat().st_gid) == (1500, 1501)


def test_a_watch_hears_what_the_environment_says(switch: Path) -> None:
    said: list[str] = ["TAU_LIVE_RL_KILL is set"]
    heard: list[Stop | None] = []
    began = time.time()
    watch = KillWatch(switch, stop_reason=lambda: said[-1] if said else None, changed=heard.append)

    watch.check()
    watch.check()
    said.clear()
    watch.check()

    assert [one and (one.reason, one.who) for one in heard] == [
        ("TAU_LIVE_RL_KILL is set", ""), None
    ]  # fmt: skip
    assert heard[0] is not None
    assert began <= heard[0].at <= time.time()
