"""The kill switch at the command line, also where the store does not work."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tau_live.core.processes import this_process
from tau_live.operate.stops import Notices, Stop, kill_file, now_killed
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run


def audited(path: Path) -> list[tuple[str, str]]:
    store = SqliteStore.open(path, read_only=True)
    found = [(entry.action, entry.reason) for entry in store.audit.entries()]
    store.close()
    return found[::-1]


def switch_of(path: Path) -> Path:
    return kill_file(path, None)


def test_it_is_switched_on_and_off_and_written_down(filled: Path, run: Run) -> None:
    before = len(audited(filled))

    on = run("kill", "--reason", "nonsense", "--store", filled)
    between = now_killed(switch_of(filled))
    off = run("unkill", "--reason", "mended", "--store", filled)

    assert (on.exit_code, off.exit_code) == (0, 0)
    assert (on.stderr, off.stderr) == ("", "")
    assert between is not None
    assert between.reason == "nonsense"
    assert between.who
    assert now_killed(switch_of(filled)) is None
    assert audited(filled)[before:] == [("kill", "nonsense"), ("unkill", "mended")]


def test_again_it_keeps_its_first_reason(filled: Path, run: Run) -> None:
    run("kill", "--reason", "first", "--store", filled)

    again = run("kill", "--reason", "second", "--store", filled)

    assert again.exit_code == 0
    assert again.stdout.startswith("no change: the kill switch was already on, since ")
    assert json.loads(switch_of(filled).read_bytes())["reason"] == "first"
    assert audited(filled)[-1] == ("kill", "second")


def test_what_is_off_is_switched_off_without_a_failure(filled: Path, run: Run) -> None:
    result = run("unkill", "--reason", "to be sure", "--store", filled)

    assert result.exit_code == 0
    assert result.stdout.startswith("no change: the kill switch was off (")


def test_status_doctor_and_gate_say_so(filled: Path, run: Run) -> None:
    run("kill", "--reason", "nonsense", "--store", filled)

    told = [run(name, "--store", filled, COLUMNS="200") for name in ("status", "doctor", "gate")]

    assert all("nonsense" in one.stdout for one in told)
    assert all('tau-live unkill --reason "..."' in one.stdout for one in told)
    assert [one.exit_code for one in told] == [0, 1, 3]


def test_a_file_that_anybody_has_touched_is_as_good(filled: Path, run: Run) -> None:
    switch_of(filled).touch()

    result = run("gate", "--store", filled)

    assert result.exit_code == 3
    assert "store.sqlite.off exists" in result.stdout


@pytest.mark.parametrize("state", ["gone", "damaged", "a folder", "nowhere"])
def test_it_works_where_the_store_does_not_and_the_audit_waits_beside_it(
    filled: Path, run: Run, state: str
) -> None:
    whole = filled.rename(filled.parent / "whole")
    store = filled
    if state == "damaged":
        filled.write_bytes(b"nonsense" * 1000)
    elif state == "a folder":
        filled.mkdir()
    elif state == "nowhere":
        store = filled.parent / "not" / "yet" / "store.sqlite"

    on = run("kill", "--reason", "nonsense", TAU_LIVE_RL_STORE=str(store))

    assert on.exit_code == 0
    assert now_killed(switch_of(store)) is not None
    assert "it waits in " in on.stderr
    waiting = [
        json.loads(line) for line in Path(f"{switch_of(store)}.log").read_text().splitlines()
    ]
    assert [(one["action"], one["reason"]) for one in waiting] == [("kill", "nonsense")]
    if state == "gone":
        whole.rename(filled)
        off = run("unkill", "--reason", "mended", "--store", filled)
        assert off.stderr == ""
        assert audited(filled)[-2:] == [("kill", "nonsense"), ("unkill", "mended")]
        assert not Path(f"{switch_of(filled)}.log").exists()


@pytest.mark.slow
def test_a_store_that_is_locked_is_not_waited_for(filled: Path, run: Run) -> None:
    with closing(sqlite3.connect(filled)) as other:
        other.execute("begin immediate")

        result = run("kill", "--reason", "nonsense", "--store", filled)

    assert result.exit_code == 0
    assert now_killed(switch_of(filled)) is not None
    assert "the store cannot record its audit entry yet" in result.stderr


def test_it_may_be_somewhere_else_by_a_setting(filled: Path, run: Run, tmp_path: Path) -> None:
    elsewhere = tmp_path / "run" / "off"

    result = run("kill", "--reason", "why", "--store", filled, TAU_LIVE_RL_KILL_FILE=str(elsewhere))

    assert result.exit_code == 0
    assert elsewhere.is_file()
    assert not switch_of(filled).exists()


def test_where_the_file_cannot_be_made_it_is_said_in_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    result = run("kill", "--reason", "why", "--store", tmp_path / "file" / "store.sqlite")

    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1


def test_while_it_is_on_nothing_is_ingested(filled: Path, run: Run, tmp_path: Path) -> None:
    run("kill", "--reason", "nonsense", "--store", filled)
    events = tmp_path / "events.jsonl"
    events.touch()

    result = run("ingest", events, "--store", filled)

    assert result.exit_code == 1
    assert "the kill switch is on: nonsense (" in result.stderr
    assert f"`tau-live unkill --reason ... --store {filled}`" in result.stderr


def test_json_says_what_it_was(filled: Path, read: Read) -> None:
    on = read("kill", "--reason", "nonsense", "--store", filled)
    off = read("unkill", "--reason", "mended", "--store", filled)

    assert isinstance(on, dict)
    assert isinstance(off, dict)
    assert (on["changed"], off["changed"], on["audit"]) == (True, True, None)
    assert on["kill_switch"] == off["was"]


def test_a_line_that_was_cut_off_keeps_no_other_from_the_audit(filled: Path, run: Run) -> None:
    store = filled.rename(filled.parent / "whole")
    run("kill", "--reason", "nonsense", "--store", filled)
    log = Path(f"{switch_of(filled)}.log")
    log.write_bytes(b'{"at": 1.0, "wh\n' + log.read_bytes())
    store.rename(filled)

    result = run("unkill", "--reason", "mended", "--store", filled)

    assert result.exit_code == 0
    assert audited(filled)[-2:] == [("kill", "nonsense"), ("unkill", "mended")]


def test_in_a_folder_without_a_store_it_says_where_the_file_is_and_that_no_store_is_there(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = run("kill", "--reason", "x")

    store = tmp_path / ".tau/live/store.sqlite"
    assert result.stdout == (
        f"created {store}.off, but no store is at {store}: this stops only processes that use that "
        "very path\n"
    )
    assert Path(f"{store}.off").is_file()
    assert "if your agents use another, set --store" in result.stderr


def test_a_setting_that_is_wrong_refuses_it_and_says_what_works(filled: Path, run: Run) -> None:
    result = run("kill", "--reason", "x", TAU_LIVE_RL_STORE=str(filled), TAU_LIVE_RL_SEED="abc")

    assert result.exit_code == 1
    assert "TAU_LIVE_RL_SEED must be" in result.stderr
    assert "`touch` on the store's name with .off behind it" in result.stderr
    assert not switch_of(filled).exists()


def test_with_the_store_named_it_works_whatever_the_settings_are(
    filled: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.tau-live\n")

    result = run("kill", "--reason", "x", "--store", filled)

    assert result.exit_code == 0
    assert "warning: no setting is read, a kill-file among them: " in result.stderr
    assert switch_of(filled).exists()


def test_and_makes_the_file_that_the_environment_names(
    filled: Path, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "stop-all"

    result = run(
        "kill", "--reason", "x", "--store", filled,
        TAU_LIVE_RL_SEED="abc", TAU_LIVE_RL_KILL_FILE=str(file),
    )  # fmt: skip

    assert result.exit_code == 0
    assert file.exists()
    assert not switch_of(filled).exists()


def test_what_cannot_be_taken_away_is_said_with_what_does(filled: Path, run: Run) -> None:
    switch_of(filled).mkdir()

    result = run("unkill", "--reason", "x", "--store", filled)

    assert result.exit_code == 1
    assert "the kill switch stays on" in result.stderr
    assert "`rmdir`" in result.stderr


def test_a_variable_inside_a_process_is_seen_from_outside(filled: Path, run: Run) -> None:
    store = SqliteStore.open(filled)
    word = Stop("TAU_LIVE_RL_KILL is '1'", "", time.time())
    Notices(this_process()).publish(store.leases, word, now=time.time())
    store.close()

    gate = run("gate", "--store", filled)
    status = run("status", "--store", filled)
    doctor = run("doctor", "--store", filled)

    assert gate.exit_code == 3
    for said in (gate, status, doctor):
        assert "TAU_LIVE_RL_KILL is set inside 1 of " in " ".join(said.stdout.split())
        assert "unset TAU_LIVE_RL_KILL there" in " ".join(said.stdout.split())


@pytest.mark.slow
def test_no_secret_in_the_name_of_a_user_is_kept(filled: Path) -> None:
    token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    environ = {**os.environ, "LOGNAME": token, "USER": token}
    script = "from tau_live.lean import main; main()"

    subprocess.run(
        [sys.executable, "-c", script, "kill", "--reason", "nonsense", "--store", filled],
        env=environ,
        check=True,
    )

    assert token.encode() not in switch_of(filled).read_bytes()
    with closing(SqliteStore.open(filled, read_only=True)) as store:
        [entry] = store.audit.entries(limit=1)
    assert entry.reason == "nonsense"
    assert token not in entry.who
