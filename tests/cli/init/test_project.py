"""A project is read, never run, within bounds, and what was not read is said."""

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tau_live.cli.init.findings import FindingKind, Reading
from tau_live.cli.init.frameworks import FRAMEWORKS
from tau_live.cli.init.project import inspect_project
from tau_live.core.entry_points import host_of, is_ours, read_entry_points
from tests.cli.init.making import make_project
from tests.scratch import ROOT

# ruff: noqa: ISC004 - a source of several lines
PLACES: dict[str, tuple[str, dict[FindingKind, list[str]]]] = {
    "pydantic-ai": (
        "import pydantic_ai as p\nBIG = 'gpt-5'\na = p.Agent(BIG, name='x', system_prompt='Hi')\n"
        "a.run_sync('q', model='gpt-5-mini')\n",
        {
            FindingKind.AGENT: ["x"],
            FindingKind.MODEL: ["gpt-5", "gpt-5-mini"],
            FindingKind.PROMPT: ["Hi"],
        },
    ),
    "openai-agents": (
        "from agents import Agent, function_tool as ft, RunConfig\n@ft\ndef look(): ...\n"
        "a = Agent(name='x', model='gpt-5', instructions='Hi' if 1 else 'Ho', tools=[look])\n",
        {
            FindingKind.AGENT: ["x"],
            FindingKind.MODEL: ["gpt-5"],
            FindingKind.PROMPT: ["Hi", "Ho"],
            FindingKind.TOOL: ["look"],
        },
    ),
    "langchain": (
        "from langchain.agents import create_agent\nfrom langchain_openai import ChatOpenAI\n"
        "m = ChatOpenAI(model='gpt-5')\na = create_agent('gpt-5-mini', system_prompt='Hi')\n",
        {FindingKind.MODEL: ["gpt-5", "gpt-5-mini"], FindingKind.PROMPT: ["Hi"]},
    ),
    "llm": (
        "import llm\nm = llm.get_model('gpt-5')\nm.prompt('x', system='Hi')\n",
        {FindingKind.MODEL: ["gpt-5"]},
    ),
    "smolagents": (
        "from smolagents import CodeAgent, InferenceClientModel as M\n"
        "a = CodeAgent(tools=[], model=M('Qwen/Qwen3'), name='x')\n",
        {FindingKind.AGENT: ["x"], FindingKind.MODEL: ["Qwen/Qwen3"]},
    ),
    "opentelemetry": ("from opentelemetry.sdk.trace import TracerProvider\n", {}),
}


@pytest.mark.parametrize("host", PLACES)
def test_what_a_host_is_given_is_found(host: str, tmp_path: Path) -> None:
    text, expected = PLACES[host]
    (tmp_path / "agent.py").write_text(text)

    project = inspect_project(Reading(tmp_path))

    assert [one.host for one in project.hosts if one.imported] == [host]
    kinds = (FindingKind.AGENT, FindingKind.MODEL, FindingKind.PROMPT, FindingKind.TOOL)
    assert {kind: project.texts(kind) for kind in kinds if project.texts(kind)} == expected


def test_every_adapter_of_ours_is_known_with_the_points_that_its_page_describes() -> None:
    ours = {host_of(point)[0] for point in read_entry_points().adapters if is_ours(point)}
    assert set(PLACES) == set(FRAMEWORKS) == ours
    for name, host in FRAMEWORKS.items():
        page = (ROOT / f"docs/howto/{name}.md").read_text()
        told = {word for line in re.findall(r"^([a-z_, ]+)\n: ", page, re.MULTILINE)
                for word in line.split(", ")}  # fmt: skip
        assert {*host.points} <= told or not host.points
        assert told & {"model", "prompt", "params", "tools", "tool_gate", "retry"} == {*host.points}


def test_nothing_is_imported_or_run(tmp_path: Path) -> None:
    make_project(tmp_path)
    (tmp_path / "agent.py").write_text("import pydantic_ai\nraise SystemExit('it was run')\n")
    before = set(sys.modules)

    inspect_project(Reading(tmp_path))

    assert {one.partition(".")[0] for one in set(sys.modules) - before} <= {"tau_live"}


def test_a_package_of_the_project_that_is_named_like_a_host_is_not_that_host(
    tmp_path: Path,
) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "main.py").write_text("from agents import Agent\nAgent(name='mine')\n")

    project = inspect_project(Reading(tmp_path))

    assert not [one for one in project.hosts if one.imported]
    assert not project.of(FindingKind.AGENT)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("requirements.txt", "Pydantic_AI.slim[openai]>=2 # it\n"),
        ("requirements-dev.txt", "tau-live[pydantic-ai]\n"),
        ("pyproject.toml", "[project]\ndependencies = ['pydantic-ai']\n"),
        ("pyproject.toml", "[project.optional-dependencies]\nx = ['pydantic-ai']\n"),
        ("pyproject.toml", "[dependency-groups]\nx = ['pydantic-ai', {include-group = 'y'}]\n"),
        ("pyproject.toml", "[tool.poetry.group.x.dependencies]\npydantic-ai = '*'\n"),
    ],
)
def test_a_host_that_is_declared_is_found(file: str, line: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(line)

    project = inspect_project(Reading(tmp_path))

    assert [one.host for one in project.hosts if one.declared] == ["pydantic-ai"]


def test_what_cannot_be_read_is_said_by_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def broken(:\n")
    (tmp_path / "deep.py").write_text("x = " + "(" * 5000 + ")" * 5000)
    (tmp_path / "nul.py").write_bytes(b"x = 1\0")
    (tmp_path / "huge.py").write_text("#" * 200)
    (tmp_path / "gone.py").symlink_to("nowhere.py")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "agent.py").write_text("x = 1\n")

    project = inspect_project(Reading(tmp_path, file_bytes=150))

    told = {name: why for why, names in project.unread.items() for name in names}
    assert project.read == 1
    assert told.keys() == {"broken.py", "deep.py", "nul.py", "huge.py", "gone.py", "pipe.py"}
    assert told["huge.py"] == "larger than 0.00015 MB"
    assert (told["pipe.py"], told["gone.py"]) == ("not a file", "cannot be read")


@pytest.mark.parametrize(
    ("reading", "said"),
    [
        (Reading(Path(), files=3), "more than 3 Python files"),
        (Reading(Path(), entries=5), "more than 5 files"),
        (Reading(Path(), seconds=0.0), "longer than 0 s"),
    ],
)
def test_a_large_tree_is_not_read_to_its_end(reading: Reading, said: str, tmp_path: Path) -> None:
    for place in range(4):
        (tmp_path / f"part{place}").mkdir()
        for name in range(4):
            (tmp_path / f"part{place}" / f"{name}.py").write_text("")

    project = inspect_project(replace(reading, folder=tmp_path))

    assert project.read < 16
    assert said in " ".join(project.doubts)


def test_a_tree_without_a_python_file_is_not_walked_for_longer_either(tmp_path: Path) -> None:
    for place in range(4):
        (tmp_path / f"part{place}").mkdir()

    assert "longer than 0 s" in " ".join(inspect_project(Reading(tmp_path, seconds=0.0)).doubts)


@pytest.mark.parametrize(
    "deep",
    [
        pytest.param(f"if {'1 + ' * 1_500}1:\n    pass\n", id="a sum"),
        pytest.param(f"Agent('gpt-5', tools=[look{'()' * 1_500}])\n", id="calls of calls"),
    ],
)
def test_what_is_nested_deeply_is_read_all_the_same(deep: str, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(f"from agents import Agent\n{deep}Agent(name='x')\n")

    project = inspect_project(Reading(tmp_path))

    assert (project.read, project.unread) == (1, {})
    assert "x" in project.texts(FindingKind.AGENT)


def test_environments_and_hidden_folders_are_left_out(tmp_path: Path) -> None:
    for name in (".venv", "theirs", "node_modules", ".git", "__pycache__"):
        (tmp_path / name / "lib").mkdir(parents=True)
        (tmp_path / name / "lib" / "agent.py").write_text("import pydantic_ai\n")
    (tmp_path / "theirs" / "pyvenv.cfg").touch()

    project = inspect_project(Reading(tmp_path))

    assert project.read == 0
