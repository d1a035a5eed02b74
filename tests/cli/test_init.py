"""`tau-live init` proposes, shows and writes settings; it overwrites nothing, and never twice."""

import stat
import tomllib
from pathlib import Path

import pytest

from tau_live.core.settings import Settings
from tests.cli.conftest import Read, Run
from tests.cli.init.making import PYPROJECT, make_project

AGENT = (
    "from pydantic_ai import Agent\n\na = Agent('openai:gpt-5')\nb = Agent('openai:gpt-5-mini')\n"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


@pytest.mark.usefixtures("project")
def test_what_was_proposed_is_in_force_once_it_is_written(run: Run, tmp_path: Path) -> None:
    result = run("init", "--yes")

    assert result.exit_code == 0
    found = Settings.from_env({}, directory=tmp_path)
    assert found.doubts() == []
    assert [one.point for one in found.settings.decisions] == ["model"]
    assert [*found.settings.decisions[0].options] == ["openai:gpt-5-mini", "openai:gpt-5"]
    assert [(one.name, one.primary) for one in found.settings.rewards] == [("solved", True)]
    assert found.settings.store == tmp_path / ".tau/live/store.sqlite"
    assert result.stdout.endswith(
        "next: TAU_LIVE_RL=1 tau-live run -- python agent.py\n"
        "      followed by your agent's own arguments, if it takes any\n"
    )


def test_comments_layout_permissions_and_other_values_stay(project: Path, run: Run) -> None:
    file = project / "pyproject.toml"
    file.chmod(0o664)

    result = run("init", "--yes")

    after = file.read_text()
    assert [line for line in PYPROJECT.splitlines() if line not in after.splitlines()] == []
    assert tomllib.loads(after)["tool"]["tau-live"]["act"] is True
    assert "left alone: act is True already" in result.stdout
    assert stat.S_IMODE(file.stat().st_mode) == 0o664
    assert not list(project.glob(".*.part"))


def test_the_second_time_nothing_is_lacking(project: Path, run: Run) -> None:
    run("init", "--yes")
    once = (project / "pyproject.toml").read_bytes()

    result = run("init", "--yes")

    assert "no change: the settings are complete" in result.stdout
    assert (project / "pyproject.toml").read_bytes() == once


@pytest.mark.parametrize(
    ("arguments", "typed", "said"),
    [
        (["--dry-run"], "", "nothing was written"),
        ([], "n\n", "nothing was written"),
        ([], "", "nothing was written: `tau-live init --yes` writes it without a prompt"),
    ],
)
def test_nothing_is_written_that_was_not_confirmed(
    arguments: list[str], typed: str, said: str, project: Path, run: Run
) -> None:
    from click.testing import CliRunner

    from tau_live.cli import main

    result = CliRunner().invoke(main, ["init", *arguments], input=typed)

    assert said in result.output
    assert result.exit_code == (1 if "without" in said else 0)
    assert "+[tool.tau-live.decisions.model]" in result.output
    assert (project / "pyproject.toml").read_text() == PYPROJECT


def test_it_is_written_once_it_is_confirmed(project: Path) -> None:
    from click.testing import CliRunner

    from tau_live.cli import main

    result = CliRunner().invoke(main, ["init"], input="y\n")

    assert result.exit_code == 0
    assert "[tool.tau-live.decisions.model]" in (project / "pyproject.toml").read_text()


def test_json_writes_nothing_unasked(project: Path, read: Read) -> None:
    found = read("init")

    assert isinstance(found, dict)
    assert found["state"] == "proposed"
    assert tomllib.loads(found["fragment"])["tool"]["tau-live"]["decisions"]
    assert (project / "pyproject.toml").read_text() == PYPROJECT


def test_a_project_without_settings_of_its_own_gets_a_file(tmp_path: Path, run: Run) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "requirements.txt").write_text("pydantic-ai\n")

    run("init", "--yes")

    own = tomllib.loads((tmp_path / "pyproject.toml").read_text())["tool"]["tau-live"]
    assert own["act"] is False
    assert own["decisions"]["model"]["options"] == ["openai:gpt-5", "openai:gpt-5-mini"]


def test_the_file_that_the_environment_names_is_the_one_that_is_written(
    project: Path, run: Run
) -> None:
    (project / "tau.toml").write_text("# ours\nseed = 3\n\n[rewards.kept]\nweight = 2.0\n")

    result = run("init", "--yes", TAU_LIVE_RL_CONFIG="tau.toml")

    own = tomllib.loads((project / "tau.toml").read_text())
    assert (own["seed"], own["rewards"]) == (3, {"kept": {"weight": 2.0}})
    assert own["decisions"]["model"]["options"]
    assert (project / "pyproject.toml").read_text() == PYPROJECT
    assert result.exit_code == 0


def test_decisions_that_are_declared_already_are_left_alone(project: Path, run: Run) -> None:
    file = project / "pyproject.toml"
    file.write_text(PYPROJECT + '\n[tool.tau-live.decisions.model]\noptions = ["a", "b"]\n')

    result = run("init", "--yes")

    model = tomllib.loads(file.read_text())["tool"]["tau-live"]["decisions"]["model"]
    assert model == {"options": ["a", "b"]}
    assert "left alone: decisions.model.options is ['a', 'b'] already" in result.stdout


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "no supported host was found"),
        ({"a.py": "import llm\n"}, "next: TAU_LIVE_RL=1 tau-live run -- python a.py"),
        ({"a.py": AGENT.replace("-mini", "")}, "openai:gpt-5 is the only one"),
        ({"a.py": AGENT, "b.py": "import llm\nllm.get_model('x')\n"}, "several hosts"),
        ({"a.py": "def a(:\n"}, "1 syntax error (a.py)"),
        ({"a.py": "import pydantic_ai\n", ".git/HEAD": ""}, "add .tau/ to .gitignore"),
        (
            {"a.py": "from pydantic_ai import Agent\nMODEL = make()\nAgent(MODEL)\n"},
            "a.py:3 gets an object; options that are objects are declared in Python",
        ),
        ({"requirements.txt": "llm>=0.36"}, 'next: TAU_LIVE_RL=1 llm -m tau "..."'),
        ({"a; b.py": "import llm\n"}, "TAU_LIVE_RL=1 tau-live run -- python 'a; b.py'\n"),
        (
            {"pyproject.toml": "[tool.tau-live]\ncontrol-share = 'lots'\n"},
            "must be a number from 0 to 0.5, got 'lots': fix it, nothing starts until then",
        ),
        ({".venv/pyvenv.cfg": ""}, "has its own environment"),
        ({"x.ipynb": ""}, "notebooks are not read (1 found)"),
    ],
)
def test_each_state_of_a_project_is_said_in_a_sentence(
    files: dict[str, str], said: str, tmp_path: Path, run: Run
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    result = run("init", "--dry-run")

    assert result.exit_code == 0
    assert said in result.output


def test_a_folder_that_is_gone_is_one_line(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    result = run("init")

    assert result.exit_code == 1
    assert result.stderr.startswith("tau-live: the current folder no longer exists")


def test_who_asks_by_itself_already_is_not_told_to_begin(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.py").write_text(
        "import tau_live\nwith tau_live.run('a') as r:\n    r.decide('m', ['a', 'b'])\n"
    )

    told = run("init", "--dry-run").output

    assert "your code decides at m itself" in told
    assert "no supported host was found" not in told


def test_each_thing_is_listed_once_with_its_first_place(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.py").write_text(
        "from langchain.agents import create_agent\n"
        "from langchain_core.tools import tool\n\n\n"
        "@tool\ndef search(q: str) -> str:\n    return q\n\n\n"
        "create_agent('openai:gpt-5', tools=[search])\ncreate_agent('openai:gpt-5')\n"
    )

    told = run("init", "--dry-run").output

    assert "tools   search (a.py:6)\n" in told
    assert "models  openai:gpt-5 (a.py:10)\n" in told
    assert "agents  unnamed (a.py:10), unnamed (a.py:11)\n" in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool\n", "is not TOML"),
        ("[tool]\ntau-live = { seed = 1 }\n", "add it by hand"),
    ],
)
def test_a_settings_file_that_cannot_be_added_to_is_one_line(
    text: str, said: str, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)

    result = run("init", "--yes")

    assert result.exit_code == 1
    assert said in result.stderr.splitlines()[-1]
    assert (tmp_path / "pyproject.toml").read_text() == text


def test_settings_above_the_project_that_are_in_force_are_the_ones_that_grow(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path)
    inner = tmp_path / "agents" / "one"
    (inner / ".git").mkdir(parents=True)
    (inner / "pyproject.toml").write_text("[project]\nname = 'one'\n")
    (inner / "a.py").write_text(AGENT)
    monkeypatch.chdir(inner)

    result = run("init", "--yes")

    assert f"written: {tmp_path / 'pyproject.toml'}" in result.stdout
    assert (inner / "pyproject.toml").read_text() == "[project]\nname = 'one'\n"
    found = Settings.from_env({}, directory=inner)
    assert [one.point for one in found.settings.decisions] == ["model"]


def test_a_link_to_the_settings_stays_a_link(tmp_path: Path, run: Run) -> None:
    (tmp_path / "shared.toml").write_text("[project]\nname = 'one'\n")
    (tmp_path / "pyproject.toml").symlink_to("shared.toml")

    run("init", "--yes")

    assert (tmp_path / "pyproject.toml").is_symlink()
    assert "[tool.tau-live]" in (tmp_path / "shared.toml").read_text()


def test_yes_and_dry_run_contradict_each_other(run: Run) -> None:
    assert run("init", "--yes", "--dry-run").exit_code == 2


def test_instructions_that_a_lone_agent_chooses_between_become_options(
    tmp_path: Path, read: Read
) -> None:
    text = "from agents import Agent\nBRIEF, KIND = 1, 2\nA = 'Be brief.'\n"
    (tmp_path / "a.py").write_text(text + "Agent(name='x', instructions=A if BRIEF else 'Hi.')\n")

    found = read("init")

    assert isinstance(found, dict)
    own = tomllib.loads(found["fragment"])["tool"]["tau-live"]
    assert own["decisions"]["prompt"]["options"] == {"a": "Be brief.", "prompt-2": "Hi."}


def test_a_secret_in_a_source_is_neither_shown_nor_copied(tmp_path: Path, run: Run) -> None:
    key = "sk-" + "a1B2c3D4" * 6
    text = f"from agents import Agent\nAgent(instructions='Use {key}.' if 1 else 'Hi.')\n"
    (tmp_path / "a.py").write_text(text)

    result = run("init", "--yes")

    assert key not in result.output + run("init", "--json").output
    assert key not in (tmp_path / "pyproject.toml").read_text()
    assert "looks like a secret" in result.output


def test_the_file_is_not_written_when_somebody_was_quicker(project: Path) -> None:
    from tau_live.cli.init.writing import settings_file
    from tau_live.core.errors import SettingsError

    file = settings_file(project, {})
    (project / "pyproject.toml").write_text("[project]\nname = 'theirs'\n")

    with pytest.raises(SettingsError, match="changed meanwhile"):
        file.write(PYPROJECT + "# more\n")
