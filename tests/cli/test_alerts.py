import json
import shlex
from pathlib import Path

from tau_live.store.records import AlertRow
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run


def fill(path: Path) -> None:
    store = SqliteStore.open(path)
    for at in (5.0, 6.0):
        row = AlertRow(
            kind="gate-hold", severity="critical", sentence="It holds.", todo="tau-live gate",
            at=at, owner="me",
        )  # fmt: skip
        store.alerts.add(row)
    store.close()


def test_the_last_alerts_are_listed_newest_first(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "store.sqlite"
    fill(path)
    run("gate", "hold", "--reason", "audit", "--store", path)

    result = run("alerts", "--store", path)

    newest, what, todo, older, *_ = result.stdout.splitlines()
    assert newest.split()[1:4] == ["00:00:06", "critical", "gate-hold"]
    assert (what, todo) == ("  It holds.", f"  -> tau-live gate --store {path}")
    assert older.split()[1:4] == ["00:00:05", "over", "gate-hold"]


def test_they_are_sorted_by_the_time_that_is_shown(tmp_path: Path, read: Read) -> None:
    store = SqliteStore.open(tmp_path / "store.sqlite")
    for at in (6.0, 9.0, 7.0):  # raised in another order than they happened in
        row = AlertRow(
            kind="gate-reset", severity="info", sentence="It passes.", todo="tau-live gate log",
            at=at, owner="me",
        )  # fmt: skip
        store.alerts.add(row)
    store.close()

    listed = read("alerts", "--store", tmp_path / "store.sqlite")

    assert isinstance(listed, dict)
    assert [row["at"] for row in listed["alerts"]] == [9.0, 7.0, 6.0]


def test_alerts_about_conditions_that_are_over_say_so(tmp_path: Path, run: Run, read: Read) -> None:
    path = tmp_path / "store.sqlite"
    fill(path)
    run("gate", "hold", "--reason", "audit", "--store", path)

    during = run("alerts", "--store", path).stdout.splitlines()
    run("gate", "reset", "--reason", "done", "--store", path)
    after = run("alerts", "--store", path).stdout.splitlines()
    listed = read("alerts", "--store", path)

    assert [line.split()[2] for line in during if "gate-hold" in line] == ["critical", "over"]
    assert [line.split()[2] for line in after if "gate-hold" in line] == ["over", "over"]
    assert [line for line in after if line.startswith("  ->")] == []
    assert isinstance(listed, dict)
    assert [row["over"] for row in listed["alerts"]] == [True, True]


def test_without_alerts_it_says_so(tmp_path: Path, run: Run) -> None:
    SqliteStore.open(tmp_path / "store.sqlite").close()

    assert run("alerts", "--store", tmp_path / "store.sqlite").stdout == "no alert yet\n"


def test_a_trial_alert_goes_the_configured_way(tmp_path: Path, run: Run) -> None:
    got = tmp_path / "got"
    command = f"sh -c {shlex.quote(f'cat > {shlex.quote(str(got))}')}"

    result = run("alerts", "test", TAU_LIVE_RL_ALERT_COMMAND=command)

    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["alert-log", "delivered"], ["alert-command", "delivered"],
    ]  # fmt: skip
    told = json.loads(got.read_text())
    assert (told["kind"], told["test"]) == ("test", True)
    assert list(tmp_path.iterdir()) == [got]  # no store was made for it


def test_a_trial_alert_that_does_not_arrive_is_said_and_fails(run: Run) -> None:
    result = run("alerts", "test", TAU_LIVE_RL_ALERT_COMMAND="sh -c 'exit 7'")

    assert result.exit_code == 1
    assert "ended with exit code 7" in result.stdout
