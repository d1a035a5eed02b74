from pathlib import Path

from tau_live.store.sqlite import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.filled import hold


def test_a_gate_that_passes_is_exit_code_0(filled: Path, run: Run) -> None:
    result = run("gate", "--store", filled)

    assert result.exit_code == 0
    assert "pass" in result.stdout


def test_a_gate_that_holds_is_exit_code_3_and_says_why(filled: Path, run: Run) -> None:
    hold(filled)

    result = run("gate", "show", "--store", filled)

    assert result.exit_code == 3
    assert "because            collection_failures\n" in result.stdout
    assert "last error         disk full\n" in result.stdout
    assert "tau-live gate reset --reason" in result.stdout


def test_its_json_has_the_same_exit_code(filled: Path, run: Run) -> None:
    hold(filled)

    result = run("gate", "--json", "--store", filled)

    assert result.exit_code == 3
    assert '"state": "hold"' in result.stdout


def test_a_reset_is_seen_by_a_store_that_is_open_elsewhere(filled: Path, run: Run) -> None:
    hold(filled)
    elsewhere = SqliteStore.open(filled)
    assert elsewhere.gate.load().state == "hold"
    elsewhere.changed()

    result = run("gate", "reset", "--reason", "new disk", "--store", filled)

    assert result.exit_code == 0
    assert elsewhere.changed()
    row = elsewhere.gate.load()
    assert (row.state, sum(row.streaks.values())) == ("pass", 0)
    elsewhere.close()


def test_a_reset_writes_down_who_and_why_twice(filled: Path, read: Read) -> None:
    hold(filled)

    done = read("gate", "reset", "--reason", "new disk", "--store", filled)

    assert isinstance(done, dict)
    assert done["was"] == "hold"
    store = SqliteStore.open(filled, read_only=True)
    line, entry = store.gate.log(limit=1)[0], store.audit.entries(limit=1)[0]
    store.close()
    assert (line.event, line.reason, line.who) == ("reset", "new disk", done["who"])
    assert (entry.action, entry.reason, entry.who) == ("gate_reset", "new disk", done["who"])
    assert dict(entry.details) == {"was": "hold", "idempotent": False}


def test_a_gate_that_passes_may_be_reset_too(filled: Path, read: Read) -> None:
    done = read("gate", "reset", "--reason", "to be sure", "--store", filled)

    assert isinstance(done, dict)
    assert (done["was"], done["state"]) == ("pass", "pass")


def test_the_log_shows_the_newest_first(filled: Path, run: Run, read: Read) -> None:
    run("gate", "reset", "--reason", "again", "--store", filled)

    found = read("gate", "log", "--limit", "1", "--store", filled)

    assert isinstance(found, dict)
    assert [entry["reason"] for entry in found["entries"]] == ["again"]
