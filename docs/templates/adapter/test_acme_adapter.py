"""The adapter hurts no run of its host, whatever happens to it, and tells what there is to tell."""

from pathlib import Path

import pytest
from acme import Agent
from acme_adapter import ADAPTER

from tau_live.testing import Scenario, faults


def well(question: str) -> str:
    """Answer."""
    return f"asked {question}"


def down(_: str) -> str:
    """Fail."""
    raise ConnectionError("nobody there")


PLAYS = {Scenario.ONE_TURN: well, Scenario.MODEL_ERROR: down}
"""Add a play for each scenario that your host can do; `Scenario` lists them all."""


def play(scenario: Scenario) -> str:
    """Return all that the user of the host would see."""
    try:
        return Agent("clerk", PLAYS[scenario]).run("why")
    except ConnectionError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("scenario", PLAYS)
def test_the_adapter_conforms(scenario: Scenario, tmp_path: Path) -> None:
    assert faults(ADAPTER, play, scenario, folder=tmp_path) == []
