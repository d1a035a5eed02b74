from pathlib import Path

import pytest

from tau_live.core.processes import PARENT, Link, link_text
from tau_live.core.records import Amendment, Reward, rollout_id_of
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.filled import CHILD, EARLY, OPEN, SOLVED
from tests.writes import writes

DECISION = f"{SOLVED}:attempt-1:decision-2"


def stored(path: Path, rollout_id: str) -> list[Reward]:
    store = SqliteStore.open(path, read_only=True)
    found = store.rewards.rewards(rollout_id)
    store.close()
    return found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["1"], (1.0, None)),
        (["-0.25"], (-0.25, None)),
        (["1e-3"], (0.001, None)),
        (["true"], (1.0, "true")),
        (["False"], (0.0, "false")),
        (["--comment", "too slow"], (None, None)),
    ],
)
def test_a_value_may_be_a_number_a_word_or_a_mere_comment(
    given: list[str], expected: tuple[float | None, str | None], filled: Path, run: Run
) -> None:
    result = run("reward", *given, "--run", OPEN, "--store", filled)

    assert result.exit_code == 0
    assert [(one.value, one.label) for one in stored(filled, OPEN)] == [expected]


def test_everything_that_is_said_is_stored(filled: Path, read: Read) -> None:
    said = ["--name", "solved", "--source", "judge", "--key", "k", "--comment", "fine"]

    done = read("reward", "0.5", "--decision", DECISION, *said, "--store", filled)

    one = stored(filled, SOLVED)[-1]
    assert isinstance(done, dict)
    assert (one.decision_id, one.name, one.value, one.source, one.key, one.comment, one.at) == (
        DECISION, "solved", 0.5, "judge", "k", "fine", done["at"],
    )  # fmt: skip


def test_a_rollout_that_waited_becomes_ready(filled: Path, read: Read) -> None:
    done = read("reward", "0.5", "--run", CHILD, "--store", filled)

    assert isinstance(done, dict)
    assert (done["outcome"], done["ready"], done["total_reward"]) == ("new", True, 0.5)
    store = SqliteStore.open(filled, read_only=True)
    assert store.rollouts.rollout(CHILD).ready_seq is not None
    assert store.rewards.waiting() == 0
    store.close()


def test_the_same_again_is_nothing_new_and_another_value_replaces_it(
    filled: Path, read: Read
) -> None:
    outcomes = [
        read("reward", value, "--run", CHILD, "--store", filled) for value in ("1", "1", "0")
    ]

    found = [(one["outcome"], one["total_reward"]) for one in outcomes if isinstance(one, dict)]
    assert found == [("new", 1.0), ("same", 1.0), ("replaced", 0.0)]


def test_a_reward_may_come_before_its_rollout(filled: Path, run: Run) -> None:
    result = run("reward", "1", "--run", EARLY, "--store", filled)

    assert result.exit_code == 0
    assert "is stored yet; the reward waits for it" in result.stderr
    assert [one.value for one in stored(filled, EARLY)] == [1.0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nan", "--run", "a"],
        ["inf", "--run", "a"],
        ["good", "--run", "a"],
        ["--run", "a"],
        ["1"],
        ["1", "--run", "a", "--decision", DECISION],
        ["1", "--run", "a", "--session", "s"],
        ["1", "--decision", DECISION, "--host", "tests"],
        ["1", "--host", "tests"],
        ["1", "--decision", SOLVED],
        ["1", "--run", "a", "--nmae", "typo"],
        ["1", "2", "--run", "a"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_refused(arguments: list[str], filled: Path, run: Run) -> None:
    before = filled.read_bytes()

    result = run("reward", *arguments, "--store", filled)

    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert filled.read_bytes() == before


def test_a_reward_for_nobody_is_refused_and_stored_for_nobody(filled: Path, run: Run) -> None:
    result = run("reward", "1", "--run", "ticket-17", "--store", filled)

    assert result.exit_code == 1
    assert "ticket-17" in result.stderr
    assert stored(filled, "ticket-17") == []


def test_a_reward_may_name_the_beginning_of_an_id(filled: Path, read: Read) -> None:
    found = read("reward", "0.75", "--run", CHILD[:-4], "--name", "begun", "--store", filled)

    assert isinstance(found, dict)
    assert found["rollout_id"] == CHILD
    assert [one.value for one in stored(filled, CHILD) if one.name == "begun"] == [0.75]


def named(path: Path) -> None:
    """Give two rollouts a session, one of them another id, and both a third."""
    store = SqliteStore.open(path)
    with store.begin():
        for rollout_id in (OPEN, CHILD):
            writes(store).amend_rollout(rollout_id, Amendment(session_id="user-1"))
            writes(store).add_name(rollout_id_of("tests", "shared"), rollout_id)
        writes(store).add_name(rollout_id_of("tests", "response-1"), OPEN)
    store.close()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--host", "tests", "--run", "response-1"], OPEN),
        (["--host", "tests", "--run", "to-come"], rollout_id_of("tests", "to-come")),
        (["--session", "user-1"], OPEN),
        (["--session", "user-1", "--host", "tests"], OPEN),
    ],
    ids=" ".join,
)
def test_a_rollout_is_named_by_a_hosts_id_or_a_session(
    given: list[str], expected: str, filled: Path, read: Read
) -> None:
    named(filled)

    done = read("reward", "1", *given, "--name", "named", "--store", filled)

    assert isinstance(done, dict)
    assert done["rollout_id"] == expected
    assert [one.value for one in stored(filled, expected) if one.name == "named"] == [1.0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--host", "tests", "--run", "shared"], "several runs have this id"),
        (["--session", "user-2"], "session 'user-2' not found"),
        (["--session", "user-1", "--host", "nobody"], "session 'user-1' not found"),
    ],
    ids=["an id of two", "no such session", "of another host"],
)
def test_a_name_that_is_none_of_one_rollout_is_an_error(
    given: list[str], said: str, filled: Path, run: Run
) -> None:
    named(filled)

    result = run("reward", "1", *given, "--store", filled)

    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert said in result.stderr


def test_a_source_that_is_not_listed_is_refused(filled: Path, run: Run) -> None:
    found = run(
        *("reward", "1", "--run", SOLVED, "--source", "agent", "--store", filled),
        TAU_LIVE_RL_REWARD_SOURCES="user",
    )

    assert found.exit_code == 1
    assert "'agent' may not give 'reward', only user may" in found.stderr


def test_a_process_inside_a_run_cannot_value_it(filled: Path, run: Run) -> None:
    link = Link("tau_live", "triage/17")

    found = run(
        *("reward", "1", "--run", rollout_id_of(*link), "--store", filled),
        **{PARENT: link_text(link), "TAU_LIVE_RL_SELF_REWARDS": "0"},
    )

    assert found.exit_code == 1
    assert "may not give itself" in found.stderr


DECLARED = {"TAU_LIVE_RL_REWARDS": '{"solved": {"range": [0, 1]}, "stars": {}}'}


@pytest.mark.parametrize(
    ("name", "hint"),
    [("sovled", "did you mean 'solved'?"), ("reward", "declared are solved, stars")],
)
def test_a_name_that_is_not_declared_is_refused_with_the_nearest(
    name: str, hint: str, filled: Path, run: Run
) -> None:
    before = stored(filled, OPEN)

    refused = run("reward", "1", "--run", OPEN, "--name", name, "--store", filled, **DECLARED)
    comment = run(
        "reward", "--comment", "slow", "--run", OPEN, "--name", name, "--store", filled, **DECLARED
    )

    assert (refused.exit_code, comment.exit_code) == (1, 0)
    assert f"no reward {name!r} is declared, so it would not count; {hint}" in refused.stderr
    assert [one.value for one in stored(filled, OPEN)[len(before) :]] == [None]


def test_a_value_outside_its_range_is_stored_and_what_follows_is_printed(
    filled: Path, run: Run
) -> None:
    result = run("reward", "7", "--run", OPEN, "--name", "solved", "--store", filled, **DECLARED)

    assert result.exit_code == 0
    assert result.stderr == "solved 7 is outside its range from 0 to 1, so its run is left out\n"
    assert [one.value for one in stored(filled, OPEN)] == [7.0]
