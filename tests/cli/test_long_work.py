"""Replay, ingest and learn as commands; what they do has tests of its own."""

import json
from pathlib import Path

import pytest

from tau_live.core.events import Event, Reward, RunEnd, RunStart, Status, encode
from tau_live.core.records import RolloutQuery
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run

TAU_SESSION = Path(__file__).parents[1] / "golden" / "tau_session.jsonl"


def recording(path: Path) -> Path:
    events: list[Event] = []
    for n in range(3):
        run_id, at = f"run-{n}", 10.0 * n
        events += [
            RunStart(host="h", run_id=run_id, at=at, name="triage"),
            Reward(host="h", run_id=run_id, at=at + 1.0, value=1.0),
            RunEnd(host="h", run_id=run_id, at=at + 2.0, status=Status.OK),
        ]
    path.write_bytes(b"".join(encode(event) + b"\n" for event in events) + b"garbage\n")
    return path


def rollouts(path: Path) -> int:
    store = SqliteStore.open(path, read_only=True)
    found = store.rollouts.query(RolloutQuery()).total
    store.close()
    return found


def test_a_recording_becomes_rollouts_in_a_store_that_is_made_for_it(
    tmp_path: Path, read: Read
) -> None:
    done = read("replay", recording(tmp_path / "events.jsonl"), "--store", tmp_path / "new.sqlite")

    assert isinstance(done, dict)
    assert (done["events"], done["rollouts"], done["bad_lines"]) == (9, 3, 1)
    assert rollouts(tmp_path / "new.sqlite") == 3


def test_people_are_told_what_became_of_it(tmp_path: Path, run: Run) -> None:
    told = run("replay", recording(tmp_path / "events.jsonl"), "--store", tmp_path / "new.sqlite")

    assert told.exit_code == 0
    assert "rollouts   3" in told.stdout


def test_the_same_recording_into_two_stores_gives_the_same_export(tmp_path: Path, run: Run) -> None:
    file = recording(tmp_path / "events.jsonl")
    exports = []
    for name in ("one.sqlite", "two.sqlite", "two.sqlite"):
        run("replay", file, "--store", tmp_path / name)
        exports.append(run("export", "--store", tmp_path / name).stdout)

    assert exports[0] == exports[1] == exports[2]
    assert exports[0].count('"table": "rollouts"') == 3


def test_the_reference_hosts_lines_are_taken_in(tmp_path: Path, read: Read) -> None:
    done = read("ingest", TAU_SESSION, "--stream", "s", "--store", tmp_path / "new.sqlite")

    assert isinstance(done, dict)
    assert done["rollouts"] == rollouts(tmp_path / "new.sqlite") > 0


@pytest.mark.parametrize("command", ["replay", "ingest"])
@pytest.mark.parametrize(
    "content",
    [b"hello\n\nworld\n", b'{"a": 1}\n', b"PAR1\x00\xff\n\x00", b"[1]\n"],
    ids=["text", "another object", "binary", "a list"],
)
def test_a_file_of_which_nothing_is_understood_fails(
    command: str, content: bytes, tmp_path: Path, run: Run
) -> None:
    file = tmp_path / "garbage"
    file.write_bytes(content)

    result = run(command, file, "--json", "--store", tmp_path / "new.sqlite")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["events"] == 0
    assert result.stderr.count("\n") == 1
    assert str(file) in result.stderr


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path, run: Run) -> None:
    for command in ("replay", "ingest"):
        result = run(command, "nothing.jsonl", "--store", tmp_path / "new.sqlite")

        assert result.exit_code in {1, 2}
        assert result.stderr.count("\n") == 1
        assert "nothing.jsonl" in result.stderr


def test_each_update_is_a_line(filled: Path, run: Run) -> None:
    """The decision at ``tools`` is the only one that nobody has learned from yet."""
    environ = {"TAU_LIVE_RL": "1", "TAU_LIVE_RL_UPDATE_INTERVAL": "1"}

    result = run("learn", "--once", "--json", "--store", filled, **environ)

    assert result.exit_code == 0
    (line,) = map(json.loads, result.stdout.splitlines())
    assert (line["point"], line["executed"]) == ("tools", False)


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (
            None,
            (
                "at 'tools', 1 of the 8 new rollouts are ready that it takes "
                "(TAU_LIVE_RL_UPDATE_INTERVAL)"
            ),
        ),
        (["pause", "learning"], "learning is paused"),
        (["gate", "hold"], "the gate holds"),
        (["kill"], "the kill switch is on"),
    ],
)
def test_where_nothing_is_learned_it_says_why(
    filled: Path, run: Run, before: list[str] | None, why: str
) -> None:
    if before is not None:
        run(*before, "--reason", "why", "--store", filled)

    result = run("learn", "--once", "--store", filled, TAU_LIVE_RL="1")

    assert (result.exit_code, result.stdout) == (0, f"no update was made: {why}\n")


def test_in_an_empty_store_nothing_has_a_reward(tmp_path: Path, run: Run) -> None:
    result = run("learn", "--once", "--store", tmp_path / "store.sqlite", TAU_LIVE_RL="1")

    assert result.stdout == "no update was made: no new rollout has a reward\n"
