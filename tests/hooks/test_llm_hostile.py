"""Whatever llm hands over, no wrapper of ours raises, waits, or changes anything."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tau_live.testing.expected import Scenario

pytest.importorskip("llm")

import llm

from tau_live_hooks.llm import ADAPTER
from tau_live_hooks.llm_record import Watch
from tests.hooks.conformance import llm_async_play
from tests.hooks.conformance.llm_play import CANNOT, play, routed
from tests.hooks.hostile import Fuzz, faults, wrappers
from tests.hooks.hostile_values import BadValues, spoiled

pytestmark = pytest.mark.slow

OTHER = {
    "watch_events": "generator",
    "watch_chain": "generator",
    "watch_chain_async": "asyncgen",
    "watch_calls_async": "coroutine",
}
"""The wrappers of what yields or is awaited; the others' wrap plain functions."""

THEIRS = ("before_call", "after_call")
TOOL = llm.Tool(name="look")
CALL = llm.ToolCall("look", {"place": 1}, tool_call_id="call-1")
RESULT = llm.ToolResult(name="look", output="seen", tool_call_id="call-1")
WRAPS = wrappers(Watch)


def called(values: BadValues, named: Mapping[str, Any]) -> None:
    """Call tools, as the host does, with what is wrapped around the user's own callbacks."""
    for _ in range(2):
        tool, call, result = (spoiled(values, one) for one in (TOOL, CALL, RESULT))
        for name, told in (("before_call", (tool, call)), ("after_call", (tool, call, result))):
            if getattr(named.get(name), "__module__", "") == Watch.__module__:
                named[name](*told)


def played() -> str:
    said = [way(one) for one in Scenario if one not in CANNOT for way in (play, routed)]
    later = [llm_async_play.play(one) for one in Scenario if one not in llm_async_play.CANNOT]
    return "\n".join([*said, *later])


def test_whatever_the_host_hands_over_it_is_not_hurt(path: Path) -> None:
    names = [name for _, names in WRAPS for name in names]
    fuzz = Fuzz(
        5, steps={name: OTHER.get(name, "plain") for name in names}, meanwhile=called, kept=THEIRS
    )

    found = faults(ADAPTER, fuzz, *WRAPS, play=played, path=path)

    assert not found, "\n".join(found)
