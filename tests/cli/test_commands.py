import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tau_live.cli import main
from tau_live.cli.commands import COMMANDS
from tau_live.cli.json_keys import KEYS
from tests.cli.conftest import Run
from tests.cli.filled import SOLVED

READING = [
    ["why", "live-1"],
    ["status"], ["gate"], ["gate", "show"], ["gate", "log"], ["rollouts"], ["show", "live-1"],
    ["alerts"], ["metrics"],
    ["updates"], ["policy", "list"], ["policy", "show", "1"], ["export"],
]  # fmt: skip
WRITING = [
    ["gate", "reset", "--reason", "why"],
    ["gate", "hold", "--reason", "why"],
    ["pause", "learning", "--reason", "why"],
    ["resume", "learning", "--reason", "why"],
    ["reward", "1", "--run", "live-1"],
    ["policy", "use", "0", "--point", "model", "--reason", "why"],
    ["policy", "rollback", "--point", "model", "--reason", "why"],
    ["gc", "--older-than", "1d"],
    ["forget", "live-1", "--reason", "why"],
]


def walked(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        with click.Context(command, info_name=path) as ctx:
            for name in command.list_commands(ctx):
                found = command.get_command(ctx, name)
                assert found is not None
                yield from walked(found, f"{path} {name}")


EVERY = dict(walked(main, "tau-live"))

WITHOUT_STORE = (
    "tau-live run", "tau-live autostart", "tau-live init", "tau-live completion", "tau-live power",
    "tau-live optimize worker", "tau-live optimize aliases", "tau-live start",
    *(f"tau-live experience {verb}" for verb in (
        "run", "eval", "quarantine", "import", "pack", "pack init", "pack stamp", "pack check",
        "demo",
    )),
    "tau-live bench suite", "tau-live store",
    *(f"tau-live bench {verb}" for verb in (
        "suite list", "suite check", "compare", "report", "summary", "repeatability", "demo",
        "drill", "ops", "gate", "template",
    )),
)  # fmt: skip
"""What one looks after no store with."""


@pytest.mark.parametrize("path", EVERY)
def test_every_command_has_help_that_ends_with_an_example(path: str, run: Run) -> None:
    result = run(*path.split()[1:], "--help")

    assert result.exit_code == 0
    _, found, example = result.output.partition("Example:\n")
    assert found
    assert path.split()[1 if " " in path else 0] in example
    assert example.strip().count("\n\n") == 0


@pytest.mark.parametrize(("group", "first"), [("gate", "show"), ("policy", "list")])
def test_a_group_by_itself_is_its_first_command(
    group: str, first: str, run: Run, filled: Path
) -> None:
    alone = run(group, "--store", filled, "--json")

    assert alone.output == run(group, first, "--store", filled, "--json").output


def test_tau_live_by_itself_is_its_help(run: Run) -> None:
    assert run().output == run("--help").output


@pytest.mark.parametrize(
    "path",
    [
        path
        for path, command in EVERY.items()
        if not isinstance(command, click.Group) and not path.startswith(WITHOUT_STORE)
    ],
)
def test_every_command_can_print_json_of_a_store_that_is_named(path: str) -> None:
    options = {option for parameter in EVERY[path].params for option in parameter.opts}

    assert {"--json", "--store"} <= options


@pytest.mark.slow
def test_the_group_lists_every_command_as_its_module_describes_it() -> None:
    with click.Context(main) as ctx:
        named = {name: main.get_command(ctx, name) for name in main.list_commands(ctx)}

    assert set(named) == set(COMMANDS)
    assert {key.split()[0] for key in KEYS} <= set(named)
    assert all(command is not None and command.name == name for name, command in named.items())


@pytest.mark.parametrize("arguments", READING + WRITING, ids=" ".join)
def test_without_a_store_it_says_so_in_one_line_and_makes_none(
    arguments: list[str], run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "new" / "store.sqlite"

    result = run(*arguments, "--store", path)

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == (
        f"tau-live: no store at {path} yet: "
        f"run your agent with TAU_LIVE_RL=1, or `tau-live demo --store {path}`\n"
    )
    assert not path.parent.exists()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_reading_leaves_the_store_as_it_was(arguments: list[str], run: Run, filled: Path) -> None:
    before = filled.read_bytes()

    run(*arguments, "--store", filled)

    assert filled.read_bytes() == before


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_reading_makes_no_store_of_an_empty_file(
    arguments: list[str], run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "store.sqlite"
    file.touch()

    result = run(*arguments, "--store", file)

    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert file.read_bytes() == b""


@pytest.mark.parametrize("arguments", READING + WRITING, ids=" ".join)
def test_another_applications_file_is_refused_in_one_line(
    arguments: list[str], run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database, but long enough to be taken for one " * 50)

    result = run(*arguments, "--store", file)

    assert result.exit_code == 1
    assert result.stderr.startswith("tau-live: store '")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bogus"], "No such command 'bogus'"),
        (["statsu"], "No such command 'statsu'; did you mean 'status'?"),
        (["--bogus"], "--bogus"),
        (["rollouts", "--limit", "0"], "--limit"),
        (["rollouts", "--since", "yesterday"], "'yesterday' is neither a time"),
        (["gc", "--older-than", "old"], "'old' is not a length of time"),
        (["gate", "reset"], "Missing option '--reason'"),
        (["gate", "reset", "--reason", "  "], "give a reason"),
        (["gate", "--json", "log"], "belong after 'log'"),
        (["reward", "1"], "--run ID, --session ID and --decision ID"),
        (["export", "--json"], "--json needs --output"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: list[str], said: str, run: Run) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
    assert "--help`" in result.stderr


def test_a_setting_that_is_wrong_is_one_line(run: Run, filled: Path) -> None:
    result = run("status", "--store", filled, TAU_LIVE_RL_UPDATE_INTERVAL="often")

    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "TAU_LIVE_RL_UPDATE_INTERVAL" in result.stderr


def test_a_doubtful_setting_is_a_warning_beside_the_data(run: Run, filled: Path) -> None:
    result = run("gate", "--store", filled, TAU_LIVE_RL_SED="1")

    assert result.exit_code == 0
    assert result.stderr.startswith("warning: TAU_LIVE_RL_SED")


def test_the_store_comes_from_the_environment(run: Run, filled: Path) -> None:
    result = run("show", SOLVED, TAU_LIVE_RL_STORE=str(filled))

    assert result.exit_code == 0
    assert SOLVED in result.stdout


COMMAND = re.compile(r"`(?:\S+=\S+ )?tau-live [^`]+`|(?:-> |then  +|next step  +)tau-live .*")


@pytest.mark.parametrize("arguments", [*READING, *WRITING, ["status", "--all"]], ids=" ".join)
def test_suggested_commands_name_the_store_that_the_user_named(
    arguments: list[str], run: Run, filled: Path
) -> None:
    file = filled.rename(filled.with_name("my store.sqlite"))
    run("gate", "hold", "--reason", "audit", "--store", file)

    result = run(*arguments, "--store", file)

    suggested = [found for found in COMMAND.findall(result.output) if "tau-live run" not in found]
    assert [found for found in suggested if f"--store '{file}'" not in found] == []


def test_commands_are_suggested_with_the_store_that_was_named_and_only_then(
    run: Run, filled: Path
) -> None:
    run("gate", "hold", "--reason", "audit", "--store", filled)

    named = run("gate", "--store", filled)
    unnamed = run("gate", TAU_LIVE_RL_STORE=str(filled))

    assert f'tau-live gate reset --reason "..." --store {filled}\n' in named.stdout
    assert 'tau-live gate reset --reason "..."\n' in unnamed.stdout


@pytest.mark.parametrize("command", ["learn", "demo"])
def test_what_acts_says_how_to_switch_it_on(command: str, run: Run, tmp_path: Path) -> None:
    result = run(command)

    assert result.exit_code == 1
    assert result.stderr == (
        f"tau-live: tau-live is off: set TAU_LIVE_RL=1 and run `tau-live {command}` again\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_ours_is_one_line_and_no_traceback(
    run: Run, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tau_live.cli.status.glance_of", _broken)

    result = run("status", "--store", filled)

    assert result.exit_code == 1
    assert result.stderr.startswith("tau-live: internal error: ZeroDivisionError: two lines (")
    assert result.stderr.count("\n") == 1


def test_verbose_says_where_an_error_of_ours_is(
    run: Run, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tau_live.cli.status.glance_of", _broken)

    result = run("--verbose", "status", "--store", filled)

    assert "_broken" in result.stderr


def test_ctrl_c_is_exit_code_130(run: Run, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tau_live.cli.status.glance_of", _interrupted)

    result = run("status", "--store", filled)

    assert result.exit_code == 130
    assert result.stderr.strip() == ""


def _broken(*_: object, **__: object) -> None:
    raise ZeroDivisionError("two\nlines")


def _interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("command", [("status",), ("doctor",), ("gate",)])
def test_a_folder_that_is_gone_is_said_in_words(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    result = run(*command)

    assert result.exit_code == 1
    assert "the current folder no longer exists" in " ".join(result.output.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("export", ("-o", "--out", "--output")),
        ("metrics", ("-o", "--out")),
        ("report", ("-o", "--out", "--html")),
    ],
)
def test_a_file_to_write_has_one_name_everywhere(
    filled: Path, tmp_path: Path, run: Run, command: str, options: tuple[str, ...]
) -> None:
    if command == "report":
        pytest.importorskip("matplotlib")
    for number, option in enumerate(options):
        run(command, option, tmp_path / f"{number}.out", "--store", filled)

    assert len({*tmp_path.glob("*.out")}) == len(options)
    assert all(one.stat().st_size for one in tmp_path.glob("*.out"))
