"""Pause, resume, and a gate that is held by hand: words, exit codes, and what is written down."""

from pathlib import Path

import pytest

from tau_live.core.reasons import Part
from tau_live.core.records import AuditEntry
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.filled import hold


def resting(path: Path) -> dict[str, str]:
    """Return what rests, and why."""
    store = SqliteStore.open(path, read_only=True)
    found = {part.value: pause.reason for part, pause in store.pauses.pauses().items()}
    store.close()
    return found


def last_entry(path: Path) -> AuditEntry:
    store = SqliteStore.open(path, read_only=True)
    found = store.audit.entries(limit=1)[0]
    store.close()
    return found


@pytest.mark.parametrize("part", [part.value for part in Part])
def test_each_part_is_paused_apart_and_goes_on_again(filled: Path, run: Run, part: str) -> None:
    paused = run("pause", part, "--reason", "odd", "--store", filled)
    between = resting(filled)
    resumed = run("resume", part, "--reason", "mended", "--store", filled)

    assert (paused.exit_code, resumed.exit_code) == (0, 0)
    assert paused.stdout.startswith(f"{part} is paused: ")
    assert resumed.stdout == f"{part} is resumed\n"
    assert between == {part: "odd"}
    assert resting(filled) == {}


def test_what_is_paused_already_keeps_its_reason_and_both_are_written_down(
    filled: Path, run: Run
) -> None:
    run("pause", "learning", "--reason", "first", "--store", filled)
    before = last_entry(filled)

    again = run("pause", "learning", "--reason", "second", "--store", filled)

    assert again.exit_code == 0
    assert again.stdout.startswith("no change: learning was already paused, since ")
    assert again.stdout.endswith(": first\n")
    assert resting(filled) == {"learning": "first"}
    after = last_entry(filled)
    assert (before.action, before.reason, before.details["idempotent"]) == ("pause", "first", False)
    assert (after.action, after.reason, after.details["idempotent"]) == ("pause", "second", True)
    assert after.who == before.who


def test_resuming_without_a_part_resumes_all_that_rests(filled: Path, run: Run) -> None:
    run("pause", "learning", "deciding", "--reason", "load test", "--store", filled)

    result = run("resume", "--reason", "over", "--store", filled)

    assert result.stdout == "deciding is resumed\nlearning is resumed\n"
    assert resting(filled) == {}
    assert last_entry(filled).details == {"parts": ["deciding", "learning"], "idempotent": False}


def test_resuming_a_part_that_does_not_rest_is_said_and_no_failure(filled: Path, run: Run) -> None:
    result = run("resume", "learning", "--reason", "to be sure", "--store", filled)

    assert result.exit_code == 0
    assert result.stdout == "learning was not paused\n"
    assert last_entry(filled).details["idempotent"] is True


def test_where_nothing_rests_it_is_said_what_stops_tau_live_instead(filled: Path, run: Run) -> None:
    hold(filled)

    result = run("resume", "--reason", "why", "--store", filled)

    assert result.exit_code == 1
    assert "nothing is paused, so there is nothing to resume; the gate holds: " in result.stderr
    assert f"`tau-live gate reset --reason ... --store {filled}`" in result.stderr


def test_a_change_that_will_not_show_says_so(filled: Path, run: Run) -> None:
    run("pause", "deciding", "--reason", "odd", "--store", filled)

    result = run("policy", "pin", "model", "--reason", "why", "--store", filled)

    assert result.exit_code == 0
    ended_by = f"`tau-live resume deciding --reason ... --store {filled}`"
    assert result.stderr == f"note: deciding is paused: odd: {ended_by}\n"


@pytest.mark.parametrize(
    "command", [["pause", "learning"], ["resume"], ["kill"], ["unkill"], ["gate", "hold"]]
)
def test_each_needs_a_reason(filled: Path, run: Run, command: list[str]) -> None:
    missing = run(*command, "--store", filled)
    blank = run(*command, "--reason", " ", "--store", filled)

    assert (missing.exit_code, blank.exit_code) == (2, 2)
    assert "--reason" in missing.stderr


def test_no_other_part_can_be_paused(filled: Path, run: Run) -> None:
    result = run("pause", "everything", "--reason", "why", "--store", filled)

    assert result.exit_code == 2
    assert "'everything' is not one of 'collection', 'learning', 'deciding'" in result.stderr


def test_status_and_doctor_say_what_rests_and_how_it_goes_on(filled: Path, run: Run) -> None:
    run("pause", "collection", "--reason", "load test", "--store", filled)

    status = run("status", "--store", filled, COLUMNS="200").stdout
    doctor = run("doctor", "--store", filled, COLUMNS="200").stdout

    assert "collection" in status
    assert ": load test" in status
    for told in (status, doctor):
        assert 'tau-live resume collection --reason "..."' in told


def test_a_gate_is_held_by_hand_and_reset(filled: Path, run: Run, read: Read) -> None:
    held = run("gate", "hold", "--reason", "audit", "--store", filled)
    shown = run("gate", "--store", filled)
    entry = last_entry(filled)
    again = run("gate", "hold", "--reason", "once more", "--store", filled)
    reset = run("gate", "reset", "--reason", "over", "--store", filled)

    assert (held.exit_code, shown.exit_code, again.exit_code, reset.exit_code) == (0, 3, 0, 0)
    assert "reason             operator\n" in shown.stdout
    assert "last error         audit\n" in shown.stdout
    assert (entry.action, entry.reason, entry.details["idempotent"]) == (
        "gate_hold",
        "audit",
        False,
    )
    assert again.stdout.startswith("no change: the gate already held, since ")
    assert again.stdout.endswith(": operator: audit\n")


def test_a_gate_that_holds_by_itself_keeps_its_own_reason(filled: Path, read: Read) -> None:
    hold(filled)

    found = read("gate", "hold", "--reason", "mine", "--store", filled)

    assert isinstance(found, dict)
    assert (found["was"], found["reason"]) == ("hold", "collection_failures")
