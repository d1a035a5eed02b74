"""Autostart writes one line into a real site-packages, and takes it away again."""

import hashlib
import json
import os
import stat
import threading
from pathlib import Path

import pytest

from tau_live.boot.autostart import (
    PTH,
    START,
    AutostartState,
    contents,
    disable,
    enable,
    files,
    state_of,
)
from tau_live.core.errors import AutostartError
from tests.boot.test_doors import runs
from tests.scratch import Scratch


def state(folder: Path, version: tuple[int, int] = (3, 11)) -> AutostartState:
    return state_of(files(folder, contents(version)))


@pytest.mark.slow
def test_an_unchanged_agent_is_attached_while_it_is_enabled(scratch: Scratch) -> None:
    scratch.cli("autostart", "enable")
    scratch.said("agent.py", "with")
    scratch.cli("autostart", "disable")
    scratch.said("agent.py", "without")

    assert runs(scratch) == [("bakery", "with")]


@pytest.mark.slow
def test_status_and_doctor_show_the_line_that_is_there_by_its_hash(scratch: Scratch) -> None:
    scratch.cli("autostart", "enable")
    written = scratch.site / PTH

    told = json.loads(scratch.cli("autostart", "status", "--json"))

    line = written.read_bytes()
    sha256 = hashlib.sha256(line).hexdigest()
    assert line.count(b"\n") == 1
    assert line.startswith(b"import os;")
    assert told == {
        "state": "enabled",
        "files": [{"path": str(written), "sha256": sha256, "expected": sha256}],
    }
    assert sha256 in scratch.cli("doctor")
    assert line.decode().strip() in scratch.cli("autostart", "status", environ=wide(scratch))


@pytest.mark.slow
def test_doctor_warns_of_a_line_that_is_not_ours(scratch: Scratch) -> None:
    (scratch.site / PTH).write_text("import os; os.getpid()\n")

    told = json.loads(scratch.cli("doctor", "--json"))

    check = next(one for one in told["checks"] if one["check"] == "autostart")
    assert check["state"] == "warn"
    assert check["found"].startswith("changed; ")


@pytest.mark.slow
def test_it_is_silent_once_tau_live_has_been_uninstalled(scratch: Scratch) -> None:
    scratch.cli("autostart", "enable")
    (scratch.site / "_ours.pth").unlink()

    done = scratch.run("agent.py", "rye")

    assert (done.stdout, done.stderr, done.returncode) == ("ran rye\n", "", 0)


@pytest.mark.slow
def test_what_cannot_be_written_is_told_in_one_line(scratch: Scratch) -> None:
    (scratch.site / PTH).mkdir()

    done = scratch.run("-m", "tau_live.cli", "autostart", "enable")

    assert done.returncode == 1
    assert done.stderr.startswith(f"tau-live: {scratch.site}: cannot be written")
    assert done.stderr.count("\n") == 1


def wide(scratch: Scratch) -> dict[str, str]:
    return scratch.environ(COLUMNS="400")


def test_enabling_twice_is_as_once_and_disabling_leaves_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        enable(tmp_path, contents((3, 11)))
    enabled = sorted(path.name for path in tmp_path.iterdir())

    removed = [disable(tmp_path), disable(tmp_path)]

    assert enabled == [PTH]
    assert removed == [True, False]
    assert list(tmp_path.iterdir()) == []


def test_others_may_read_what_is_written_and_only_its_owner_may_change_it(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        enable(tmp_path, contents((3, 11)))
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / PTH).stat().st_mode) == 0o644


def test_newer_pythons_get_the_twin_which_names_something_callable(tmp_path: Path) -> None:
    from pkgutil import resolve_name

    enable(tmp_path, contents((3, 15)))

    entry = (tmp_path / START).read_text()
    assert entry.count("\n") == 1
    assert callable(resolve_name(entry.strip()))
    assert state(tmp_path, (3, 15)) is AutostartState.ENABLED
    assert disable(tmp_path)
    assert list(tmp_path.iterdir()) == []


SITE = """
import pkgutil
from pathlib import Path

for file in sorted(Path(__file__).parent.glob("*.start")):
    for line in file.read_text("utf-8-sig").splitlines():
        if line.strip() and not line.startswith("#"):
            pkgutil.resolve_name(line.strip())()
"""
"""What ``site`` of Python 3.15 does with start files (PEP 829), for the Pythons of today."""


@pytest.fixture
def newer(scratch: Scratch) -> Scratch:
    """Return an environment that reads the twin, and not the line that it replaces."""
    enable(scratch.site, contents((3, 15)))
    (scratch.site / PTH).unlink()
    (scratch.site / "sitecustomize.py").write_text(SITE)
    return scratch


@pytest.mark.slow
def test_the_twin_attaches_to_an_unchanged_agent(newer: Scratch) -> None:
    said = newer.said("agent.py", "rye")

    assert said == "ran rye\n"
    assert runs(newer) == [("bakery", "rye")]


@pytest.mark.slow
@pytest.mark.parametrize("switch", [None, "", "0"])
def test_the_twin_does_nothing_while_we_are_off(newer: Scratch, switch: str | None) -> None:
    newer.write(
        "look.py",
        "import sys, bakery\n"
        "print(bakery.call('rye'), sorted(n for n in sys.modules if n.startswith('tau_live')))\n",
    )

    said = newer.said("look.py", environ=newer.environ(switch))

    light = {"tau_live", "tau_live.core", "tau_live.core.errors", "tau_live.core.switch",
             "tau_live.startup"}  # fmt: skip
    assert said == f"ran rye {sorted(light)}\n"
    assert not (newer.folder / ".tau").exists()


def test_half_of_it_is_told_as_changed(tmp_path: Path) -> None:
    enable(tmp_path, contents((3, 11)))

    assert state(tmp_path, (3, 15)) is AutostartState.CHANGED


@pytest.mark.slow
def test_who_reads_while_it_is_written_finds_a_whole_line_or_none(tmp_path: Path) -> None:
    wanted = contents((3, 11))
    begun, over = threading.Barrier(2, timeout=30), threading.Event()
    seen: list[str] = []

    def read() -> None:
        begun.wait()
        while not over.is_set():
            if (tmp_path / PTH).exists():
                seen.append((tmp_path / PTH).read_text())

    reader = threading.Thread(target=read)
    reader.start()
    begun.wait()
    while len(seen) < 50 and reader.is_alive():
        enable(tmp_path, wanted)
    over.set()
    reader.join(30)

    assert set(seen) == {wanted[PTH]}


def test_a_folder_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(AutostartError, match="nowhere"):
        enable(tmp_path / "nowhere", contents((3, 11)))
