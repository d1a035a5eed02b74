"""Commands that installed plugins add, found as a real installation offers them."""

import re
import sys
from pathlib import Path

import click
import pytest

from tau_live.cli import main
from tau_live.cli.commands import Commands
from tests.cli.conftest import Read, Run

PLUGIN = '''
import click
from tau_live.core.hookspecs import hookimpl

@hookimpl
def {hook}(cli):
    @cli.command("greet")
    def greet():
        """Say hello."""
        click.echo("hello")
    cli.add_command(greet, "status")
'''


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no plugin outlive its test."""
    assert isinstance(main, Commands)
    monkeypatch.setattr(main, "commands", dict[str, click.Command]())
    monkeypatch.setattr(main, "_has_plugins", False)
    monkeypatch.delitem(sys.modules, "greeting_plugin", raising=False)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a plugin that adds a command, as pip would have installed it."""
    info = tmp_path / "site" / "greeting-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tau_live]\ngreeting = greeting_plugin\n")
    module = tmp_path / "site" / "greeting_plugin.py"
    module.write_text(PLUGIN.format(hook="register_commands"))
    monkeypatch.syspath_prepend(tmp_path / "site")
    return module


@pytest.mark.usefixtures("installed")
def test_a_plugin_adds_a_command(run: Run) -> None:
    assert run("greet").stdout == "hello\n"


@pytest.mark.usefixtures("installed")
def test_it_is_listed_in_the_help_behind_ours(run: Run) -> None:
    told = run("--help").stdout

    assert re.search(r"(?s)doctor.*greet +Say hello\.", told)


@pytest.mark.usefixtures("installed")
def test_it_cannot_take_the_place_of_a_command_of_ours(filled: Path, read: Read) -> None:
    found = read("status", "--store", filled)

    assert isinstance(found, dict)
    assert "gate" in found


@pytest.mark.usefixtures("installed")
def test_a_plugin_that_is_switched_off_adds_nothing(run: Run) -> None:
    result = run("greet", TAU_LIVE_RL_PLUGINS_OFF="greeting")

    assert result.exit_code == 2


def test_a_misspelt_hook_is_an_error_in_one_line(installed: Path, run: Run) -> None:
    installed.write_text(PLUGIN.format(hook="register_comands"))

    result = run("greet")

    assert result.exit_code == 1
    assert "register_comands" in result.stderr.splitlines()[-1]


def test_a_plugin_that_cannot_be_imported_is_seen_by_the_doctor(installed: Path, run: Run) -> None:
    installed.write_text("import nothing_of_that_name\n")

    result = run("doctor")

    assert result.exit_code == 0
    assert "nothing_of_that_name" in result.stdout
    assert "TAU_LIVE_RL_PLUGINS_OFF" in result.stdout
