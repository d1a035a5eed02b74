"""Whatever langchain and langgraph hand over, no callback of ours raises, waits, or changes it."""

from pathlib import Path

import pytest

from tau_live.testing import Scenario

pytest.importorskip("langchain_core")
pytest.importorskip("langgraph")

from tau_live_hooks.langchain import ADAPTER
from tau_live_hooks.langchain_acting import Acting
from tau_live_hooks.langchain_graphs import TauGraphHandler
from tau_live_hooks.langchain_handler import TauHandler
from tests.hooks.conformance.langchain_play import CANNOT, play
from tests.hooks.hostile import Fuzz, callbacks, faults, wrappers

pytestmark = pytest.mark.slow

LATER = {"_executed_later": "coroutine"}
"""The wrappers of coroutines; the others' wrap plain functions."""

WRAPS = wrappers(Acting, but=())


def played() -> str:
    return "\n".join(play(one) for one in Scenario if one not in CANNOT)


def test_whatever_the_host_hands_over_it_is_not_hurt(path: Path) -> None:
    fuzz = Fuzz(5, steps={name: LATER.get(name, "plain") for name in WRAPS[0][1]})
    told = callbacks(TauHandler, "on_"), callbacks(TauGraphHandler, "on_")

    found = faults(ADAPTER, fuzz, *WRAPS, *told, play=played, path=path)

    assert not found, "\n".join(found)
