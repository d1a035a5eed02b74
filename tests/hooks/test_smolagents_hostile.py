"""Whatever smolagents hands over, no wrap of ours raises, waits, or changes anything."""

from pathlib import Path

import pytest

from tau_live.testing.expected import Scenario

pytest.importorskip("smolagents")

from smolagents import ToolCallingAgent

from tau_live_hooks.smolagents import ADAPTER
from tau_live_hooks.smolagents_choose import Requests
from tau_live_hooks.smolagents_record import Watch
from tests.hooks.conformance.smolagents_play import (
    CANNOT,
    CODE_CANNOT,
    agent,
    play,
    play_code,
    told,
)
from tests.hooks.hostile import Fuzz, faults, wrappers

pytestmark = pytest.mark.slow

OTHER = {"watch_stream": "generator"}
"""The wrap of what yields; all others' wrap plain functions."""

OURS = {"carry_thread"}
"""What returns something around what the host's function returned."""

WRAPS = wrappers(Requests, Watch)


def played() -> str:
    by_tools = [play(one) for one in Scenario if one not in CANNOT]
    by_code = [play_code(one) for one in Scenario if one not in CODE_CANNOT]
    checked = agent(ToolCallingAgent, final_answer_checks=[lambda *_: True])
    return "\n".join([*by_tools, *by_code, told(checked)])


def test_whatever_the_host_hands_over_it_is_not_hurt(path: Path) -> None:
    names = [name for _, names in WRAPS for name in names]
    fuzz = Fuzz(5, steps={name: OTHER.get(name, "plain") for name in names}, free=OURS)

    found = faults(ADAPTER, fuzz, *WRAPS, play=played, path=path)

    assert not found, "\n".join(found)
