from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tau_live.store.files import policies_of
from tau_live.store.records import Topic
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.filled import version_in_service
from tests.contracts.making import policy, update

USE = ["policy", "use", "--point", "model", "--reason", "better"]
ROLLBACK = ["policy", "rollback", "--point", "model", "--reason", "worse"]


def test_versions_are_listed_with_what_serves(filled: Path, read: Read) -> None:
    found = read("policy", "list", "--store", filled)

    assert isinstance(found, dict)
    assert [(one["version"], one["parent"], one["in_service"]) for one in found["versions"]] == [
        (1, 0, False),
        (2, 1, True),
    ]
    assert found["in_service"]["model"]["version"] == 2


def test_the_champion_is_named_and_a_file_that_is_gone(filled: Path, run: Run, read: Read) -> None:
    with closing(SqliteStore.open(filled)) as store:
        trial = store.trials.trial("model")
        store.trials.save(replace(trial, champion=1, revision=trial.revision + 1))
        file = store.policies.version(2).file
    (policies_of(filled) / file).unlink()

    found, shown = read("policy", "show", 1, "--store", filled), run("status", "--store", filled)
    listed = run("policy", "list", "--store", filled).stdout

    assert isinstance(found, dict)
    assert (found["role"], found["has_file"]) == ("champion", True)
    assert "serves, file deleted" in listed
    assert "champion" in listed
    assert "champion: version 1" in shown.stdout


def test_of_many_versions_the_newest_and_those_in_use_are_listed(filled: Path, run: Run) -> None:
    with closing(SqliteStore.open(filled)) as store:
        for version in range(3, 21):
            row = replace(update(version + 20), version=version, parent=2)
            store.policies.add_update(row, policy(version, parent=2))
        store.policies.put_in_service("model", 2, pinned=True, at=9.0)

    some = run("policy", "list", "--store", filled)
    every = run("policy", "list", "--all", "--store", filled)

    def numbers(text: str) -> list[int]:
        starts = (line.split()[0] for line in text.splitlines() if line.strip())
        return [int(word) for word in starts if word.isdecimal() and word != "0"]

    assert numbers(some.stdout) == [1, 2, *range(11, 21)]  # the champion, and what serves
    assert f"8 older ones: tau-live policy list --all --store {filled}" in some.stderr
    assert numbers(every.stdout) == [*range(1, 21)]


def test_a_version_shows_what_it_came_from_and_that_its_file_is_whole(
    filled: Path, read: Read
) -> None:
    found = read("policy", "show", 2, "--store", filled)

    assert isinstance(found, dict)
    assert found["lineage"] == [2, 1, 0]
    assert found["checkpoint"]["ok"]


def test_a_version_without_a_role_shows_none(filled: Path, run: Run) -> None:
    result = run("policy", "show", 2, "--store", filled)

    assert "None" not in result.stdout
    assert "\nrole" not in result.stdout


def test_the_help_of_use_shows_what_a_version_and_a_point_look_like(run: Run) -> None:
    text = " ".join(run("policy", "use", "--help").stdout.split())

    assert "VERSION is a number that `policy list` shows, such as 3" in text
    assert "--point POINT" in text
    assert "POINT is the name under which the agent decides, such as model" in text


def test_a_damaged_file_is_seen(filled: Path, read: Read) -> None:
    _damage(filled, 2)

    found = read("policy", "show", 2, "--store", filled)

    assert isinstance(found, dict)
    assert not found["checkpoint"]["ok"]
    assert "000000002-" in found["checkpoint"]["problem"]


def test_rollback_puts_the_parent_into_service_and_then_the_untrained_policy(
    filled: Path, run: Run
) -> None:
    served = []
    for _ in range(2):
        assert run(*ROLLBACK, "--store", filled).exit_code == 0
        served.append(version_in_service(filled))

    result = run(*ROLLBACK, "--store", filled)

    at = f"--store {filled}"
    assert served == [1, 0]
    assert result.exit_code == 1
    assert result.stderr == (
        "tau-live: point 'model' runs the untrained policy: nothing to go back to; "
        f"`tau-live policy stop model --reason ... {at}` lets the host decide, "
        f"`tau-live policy undo model --reason ... {at}` reverts the last command\n"
    )


def test_a_running_process_sees_the_change(filled: Path, run: Run) -> None:
    elsewhere = SqliteStore.open(filled)
    before = elsewhere.policies.in_service()["model"].revision
    elsewhere.changes()

    run(*USE, "1", "--pin", "--store", filled)

    assert Topic.POLICIES in elsewhere.changes()
    now = elsewhere.policies.in_service()["model"]
    assert (now.version, now.pinned) == (1, True)
    assert now.revision > before
    elsewhere.close()


@pytest.mark.parametrize(
    ("command", "action"), [([*USE, "1"], "policy_use"), (ROLLBACK, "policy_rollback")]
)
def test_each_change_is_written_down_with_who_and_why(
    command: list[str], action: str, filled: Path, read: Read
) -> None:
    done = read(*command, "--store", filled)

    assert isinstance(done, dict)
    store = SqliteStore.open(filled, read_only=True)
    entry = store.audit.entries(limit=1)[0]
    store.close()
    assert (entry.action, entry.who, entry.reason) == (action, done["who"], done["reason"])
    expected = {"point": "model", "version": 1, "was": 2, "pinned": False}
    assert {name: entry.details[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["7", "--point", "model"], "policy '7' not found"),
        (["1", "--point", "tools"], "version 1 is for point 'model', not for 'tools'"),
        (["0", "--point", "tols"], "no policy decides at point 'tols'; known points: 'model'"),
    ],
)
def test_what_cannot_serve_is_refused_and_changes_nothing(
    asked: list[str], said: str, filled: Path, run: Run
) -> None:
    result = run("policy", "use", *asked, "--reason", "why", "--store", filled)

    assert result.exit_code == 1
    assert said in result.stderr
    assert version_in_service(filled) == 2


def test_a_version_whose_file_is_damaged_is_not_put_into_service(filled: Path, run: Run) -> None:
    _damage(filled, 1)

    result = run(*ROLLBACK, "--store", filled)

    assert result.exit_code == 1
    assert "000000001-" in result.stderr
    assert version_in_service(filled) == 2


def test_a_version_whose_file_was_pruned_is_said_to_be(filled: Path, run: Run) -> None:
    (file,) = policies_of(filled).glob("000000001-*.npz")
    file.unlink()

    result = run(*USE, "1", "--store", filled)

    assert result.exit_code == 1
    assert f"the checkpoint of version 1 is not at {file}: it was pruned" in result.stderr
    assert version_in_service(filled) == 2


def _damage(store: Path, version: int) -> None:
    (file,) = policies_of(store).glob(f"{version:09d}-*.npz")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


def test_the_list_says_where_the_untrained_policy_serves(filled: Path, run: Run) -> None:
    run(
        "policy",
        "use",
        "0",
        "--point",
        "model",
        "--reason",
        "start over",
        "--pin",
        "--store",
        filled,
    )

    result = run("policy", "list", "--store", filled)

    assert "serves, pinned" in result.stdout
