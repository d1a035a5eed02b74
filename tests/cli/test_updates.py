from pathlib import Path

import pytest

from tests.cli.conftest import Read, Run


def test_updates_are_listed_newest_first_with_the_reason_of_those_skipped(
    filled: Path, read: Read
) -> None:
    found = read("updates", "--store", filled)

    assert isinstance(found, dict)
    assert [
        (one["update"], one["executed"], one["skipped_reason"]) for one in found["updates"]
    ] == [
        (3, False, "one_reward"),
        (2, True, None),
        (1, True, None),
    ]


def test_the_references_fields_come_first(filled: Path, read: Read) -> None:
    found = read("updates", 1, "--store", filled)

    assert isinstance(found, dict)
    assert list(found)[:7] == [
        "executed", "trajectories", "samples", "mean_total_loss", "observed_approx_kl",
        "early_stop_triggered", "skipped_reason",
    ]  # fmt: skip


@pytest.mark.parametrize("number", [1, 2, 3])
def test_one_update_is_shown_by_its_number(number: int, filled: Path, read: Read) -> None:
    found = read("updates", number, "--store", filled)

    assert isinstance(found, dict)
    assert found["update"] == number


def test_people_see_all_diagnostics_of_one(filled: Path, run: Run) -> None:
    told = run("updates", 1, "--store", filled).stdout

    assert "left out\n  no reward           1" in told
    assert "{" not in told
    assert "executed              yes" in told


@pytest.mark.parametrize("number", [4, 10**12])
def test_an_update_that_never_was_is_one_line(number: int, filled: Path, run: Run) -> None:
    result = run("updates", number, "--store", filled)

    assert (result.exit_code, result.stderr) == (1, f"tau-live: update '{number}' not found\n")


def test_a_point_without_updates_says_so(filled: Path, run: Run) -> None:
    result = run("updates", "--point", "tools", "--store", filled)

    assert result.stdout == "no updates yet\n"


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("command", [("updates",), ("policy", "list")])
def test_no_word_of_a_list_is_broken_at_any_width(
    width: int, command: tuple[str, ...], filled: Path, run: Run
) -> None:
    whole = run(*command, "--store", filled, COLUMNS="200").stdout.split()

    lines = run(*command, "--store", filled, COLUMNS=str(width)).stdout.splitlines()

    words = {word for line in lines for word in line.split()}
    assert max(map(len, lines)) <= width
    assert words - {*whole, "state"} == set()
    assert "model" in words
