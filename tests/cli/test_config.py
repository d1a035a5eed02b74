from pathlib import Path

import pytest

from tau_live.core.settings import SETTINGS
from tests.cli.conftest import Read, Run


def test_every_setting_is_listed_with_its_source(read: Read) -> None:
    found = read("config", TAU_LIVE_RL_SEED="7", TAU_LIVE_RL="1")

    assert isinstance(found, dict)
    by_name = {one["name"]: one for one in found["settings"]}
    assert list(by_name) == [row.name for row in SETTINGS]
    assert (by_name["seed"]["value"], by_name["seed"]["source"]) == ("7", "environment")
    assert by_name["update_interval"]["source"] == "default"
    assert found["enabled"]


def test_a_store_on_the_command_line_goes_before_all_others(read: Read) -> None:
    found = read("config", "--store", "mine.sqlite", TAU_LIVE_RL_STORE="theirs.sqlite")

    assert isinstance(found, dict)
    store = next(one for one in found["settings"] if one["name"] == "store")
    assert (store["value"], store["source"]) == ("mine.sqlite", "command line")


def test_the_project_file_is_named_as_a_source(read: Read, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.tau-live]\nseed = 5\n")

    found = read("config")

    assert isinstance(found, dict)
    seed = next(one for one in found["settings"] if one["name"] == "seed")
    assert seed["source"] == str(tmp_path / "pyproject.toml")


def test_warnings_are_data_in_json_and_on_standard_error_for_people(run: Run, read: Read) -> None:
    found = read("config", TAU_LIVE_RL_SED="7")

    result = run("config", TAU_LIVE_RL_SED="7")

    assert isinstance(found, dict)
    assert "TAU_LIVE_RL_SED" in found["warnings"][0]
    assert result.stderr.startswith("warning: TAU_LIVE_RL_SED")
    assert "TAU_LIVE_RL_SEED" in result.stdout


def test_it_needs_no_store_and_makes_none(run: Run, tmp_path: Path) -> None:
    result = run("config", TAU_LIVE_RL="1")

    assert result.exit_code == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_no_secret_in_a_command_is_shown(more: list[str], run: Run) -> None:
    token, word = "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "hunter2secret"
    command = f'curl -H "Authorization: Bearer {token}" https://ada:{word}@hooks.example.com/x'

    result = run("config", *more, TAU_LIVE_RL_ALERT_COMMAND=command)

    assert "hooks.example.com" in result.stdout
    assert token not in result.stdout
    assert word not in result.stdout
