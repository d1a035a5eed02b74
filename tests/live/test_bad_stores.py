"""A store that cannot be used: attaching returns, the gate holds and says so, the host decides."""

import os
import sqlite3
from pathlib import Path

import pytest

import tau_live
from tau_live.core.settings import Settings
from tau_live.store.sqlite.store import SqliteStore
from tests.live.running import done, gate, process

READ_ONLY = """
import os, tau_live
from pathlib import Path
from tau_live.core.settings import Settings
assert tau_live.attach(Settings(store=Path(os.environ["SCRATCH"]))) is not None
tau_live.decide("model", ["a", "b"])
tau_live.flush(30)
tau_live.detach()  # by now everything is imported: nobody else may read this interpreter's files
if os.getuid() == 0:
    os.setuid(65534)
assert tau_live.attach() is not None
with tau_live.run("one") as run:
    print(run.decide("model", ["a", "b"], default="b").source)
print(tau_live.snapshot()["gate"]["state"], tau_live.snapshot()["gate"]["reason"])
"""


def a_folder(path: Path) -> None:
    path.mkdir()


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(8_192))


def newer(path: Path) -> None:
    SqliteStore.open(path).close()
    with sqlite3.connect(path) as database:
        database.execute("pragma user_version = 999")
    database.close()


def under_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("a file where the folder should be")


@pytest.mark.parametrize("spoil", [a_folder, garbage, newer, under_a_file])
def test_a_store_that_cannot_be_used_holds_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: object
) -> None:
    path = tmp_path / "inside" / "store.sqlite"
    path.parent.mkdir()
    assert callable(spoil)
    spoil(path)
    monkeypatch.setenv("TAU_LIVE_RL", "1")

    runtime = tau_live.attach(Settings(store=path))
    with tau_live.run("one", key=1) as run:
        choice = run.decide("model", ["a", "b"], default="b")
        taken = run.reward(1.0)
    flushed = tau_live.flush(0.2)
    found = tau_live.snapshot()
    tau_live.detach()

    assert runtime is not None
    assert (choice.option, choice.source, taken, flushed) == ("b", "default", False, False)
    held = found["gate"]
    assert isinstance(held, dict)
    assert (held["state"], held["reason"]) == ("hold", "store_unavailable")
    assert str(path) in held["detail"]
    assert found["enabled"] is True


@pytest.mark.slow
def test_a_store_that_may_only_be_read_holds_the_gate(path: Path) -> None:
    SqliteStore.open(path).close()
    path.chmod(0o444)
    for folder in path.parents:
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)

    try:
        with process(READ_ONLY, path, SCRATCH=str(path.with_name("scratch"))) as host:
            found = done(host).split()
    finally:
        path.parent.chmod(0o755)

    assert found == ["default", "hold", "store_unavailable"]


def test_a_store_that_is_busy_for_a_while_is_waited_for(
    path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    busy = SqliteStore.open(path)
    with busy.begin():
        monkeypatch.setattr("tau_live.runtime.runtime.START_S", 0.1)
        assert tau_live.attach(settings) is not None
        with tau_live.run("one", key=1) as run:
            choice = run.decide("model", ["a", "b"])
    flushed = tau_live.flush(30)
    state = gate()["state"]
    tau_live.detach()
    busy.close()

    assert (choice.source, choice.run, flushed, state) == ("policy", run.id, True, "pass")
