"""A project with an agent, as somebody has one who begins with tau-live."""

from pathlib import Path

AGENT = '''
"""Answers questions about places."""

import os
import sys

import tau_live
from pydantic_ai import Agent

SMALL = "openai:gpt-5-mini"
agent = Agent(os.environ.get("MODEL", SMALL), name="geographer", instructions="One word.")
judge = Agent("openai:gpt-5", name="judge")


@agent.tool_plain
def search(place):
    return place


if __name__ == "__main__":
    sys.exit("an agent must never be run to be looked at")
    with tau_live.run("answer") as run:
        choice = run.decide("depth", ["shallow", "deep"], default="shallow")
        tau_live.reward(1.0, name="solved")
'''

PYPROJECT = """\
# of the bakery
[project]
name = "bakery"   # ours
dependencies = [
  "pydantic-ai-slim>=2.16",  # the host
]

[tool.tau-live]
act = true  # since March
"""


def make_project(folder: Path) -> Path:
    """Write a project that has of everything something, and return its folder."""
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "agent.py").write_text(AGENT)
    (folder / "broken.py").write_text("def broken(:\n")
    (folder / "notes.ipynb").write_text("{}")
    return folder
