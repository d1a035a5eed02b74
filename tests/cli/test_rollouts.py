from contextlib import closing
from pathlib import Path

import pytest

from tau_live.core.records import Amendment, RolloutStatus
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.filled import CHILD, FAILED, OPEN, QUEUED, SOLVED
from tests.contracts.making import attempt, reward, rollout
from tests.writes import writes


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], [QUEUED, OPEN, CHILD, FAILED, SOLVED]),
        (["--ascending"], [SOLVED, FAILED, CHILD, OPEN, QUEUED]),
        (["--status", "failed", "--status", "cancelled"], [CHILD, FAILED]),
        (["--host", "queue"], [QUEUED]),
        (["--name", "triage"], [FAILED, SOLVED]),
        (["--session", "anna"], [SOLVED]),
        (["--mode", "train"], [QUEUED]),
        (["--parent", SOLVED], [CHILD]),
        (["--since", "2023-11-14T22:15:00"], [OPEN, FAILED]),
        (["--until", "2023-11-14T22:13:20.2+00:00"], [SOLVED]),
        (["--since", "1h"], []),
        (["--sort", "total_reward", "--limit", "1"], [SOLVED]),
        (["--name", "nobody's"], []),
    ],
)
def test_filters_and_orders_choose_rollouts(
    filters: list[str], expected: list[str], filled: Path, read: Read
) -> None:
    found = read("rollouts", *filters, "--store", filled)

    assert isinstance(found, dict)
    assert [one["rollout_id"] for one in found["rollouts"]] == expected


def test_pages_have_the_total_of_all(filled: Path, read: Read) -> None:
    pages = [read("rollouts", "--limit", 2, "--page", n, "--store", filled) for n in (1, 2, 3, 4)]

    assert all(isinstance(page, dict) and page["total"] == 5 for page in pages)
    ids = [[one["rollout_id"] for one in page["rollouts"]] for page in pages]  # type: ignore[index]  # checked above
    assert ids == [[QUEUED, OPEN], [CHILD, FAILED], [SOLVED], []]


def test_a_page_beyond_the_last_is_an_error_that_says_how_many_there_are(
    filled: Path, run: Run
) -> None:
    result = run("rollouts", "--limit", 2, "--page", 99, "--store", filled)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "Invalid value for --page: there are 3, with 5 rollouts" in result.stderr


def test_people_are_told_which_page_it_is(filled: Path, run: Run) -> None:
    result = run("rollouts", "--limit", 2, "--page", 2, "--store", filled)

    assert result.stdout.splitlines()[-1] == "page 2 of 3, 5 rollouts in all"


def test_a_pipe_shows_every_column_and_cuts_nothing(filled: Path, run: Run) -> None:
    lines = run("rollouts", "--store", filled).stdout.splitlines()

    solved = next(line for line in lines if line.startswith(SOLVED))
    for told in ("succeeded", "triage", "2023-11-14 22:13:20", "2.5 s", "tests", "anna"):
        assert told in solved


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_a_narrow_terminal_shows_what_matters_most(width: int, filled: Path, run: Run) -> None:
    lines = run("rollouts", "--store", filled, COLUMNS=str(width)).stdout.splitlines()

    assert max(map(len, lines)) <= width
    assert "live-bb0d7f0e" in "".join(line.split(" ")[0] for line in lines)
    if width >= 40:
        solved = next(line for line in lines if "succeeded" in line)
        assert solved.startswith("live-5f0d7f0e")
        assert ("2023-11-14 22:13:20" in solved) == (width >= 80)


def test_names_cannot_steer_the_terminal(filled: Path, run: Run) -> None:
    store = SqliteStore.open(filled)
    evil = "\x1b]0;gone\x07\x1b[2J\u202e\x9b1m[bold]"
    writes(store).begin_rollout(rollout("live-\x1b[31mred"))
    writes(store).amend_rollout("live-\x1b[31mred", Amendment(name=evil))
    store.close()

    result = run("rollouts", "--store", filled)

    assert r"live-\x1b[31mred" in result.stdout
    assert r"\x1b]0;gone\x07\x1b[2J\u202e\x9b1m[bold]" in result.stdout
    assert all(character.isprintable() for character in result.stdout.replace("\n", ""))


def test_a_reward_that_nobody_gave_is_marked(filled: Path, run: Run, read: Read) -> None:
    with closing(SqliteStore.open(filled)) as store:
        for name, source in (("guessed", "inferred"), ("given", "user"), ("missed", "default")):
            writes(store).begin_rollout(rollout(f"live-{name}"))
            writes(store).begin_attempt(attempt(f"live-{name}"))
            writes(store).add_reward(reward(0.25, f"live-{name}", source=source))
            writes(store).set_status(f"live-{name}", RolloutStatus.SUCCEEDED, at=9.0)
            writes(store).mark_ready(f"live-{name}", total_reward=0.25)

    told = run("rollouts", "--store", filled).stdout
    found = read("rollouts", "--store", filled)
    shown = run("show", "live-guessed", "--store", filled).stdout

    lines = {line.split()[0]: line for line in told.splitlines() if line.strip()}
    assert "0.25 (inferred)" in lines["live-guessed"]
    assert "0.25 (default)" in lines["live-missed"]
    assert "0.25 (" not in lines["live-given"]
    assert "reward 0.25 (inferred)" in shown
    assert isinstance(found, dict)
    marked = {one["rollout_id"]: one["reward_made_up"] for one in found["rollouts"]}
    assert (marked["live-guessed"], marked["live-given"]) == ("inferred", None)
