"""Whatever llm hands over, no wrapper of ours raises, waits, or changes anything."""

from pathlib import Path

import pytest

from tau_live.testing import Scenario

pytest.importorskip("llm")

from tau_live_hooks.llm import ADAPTER
from tau_live_hooks.llm_tools import Tools
from tau_live_hooks.llm_watch import Watch
from tests.hooks.conformance import llm_async_play
from tests.hooks.conformance.llm_play import CANNOT, play, routed
from tests.hooks.hostile import Fuzz, faults, wrappers

pytestmark = pytest.mark.slow

OTHER = {
    "streamed": "generator",
    "chained": "generator",
    "achained": "asyncgen",
    "aexecuted": "coroutine",
}
"""The wrappers of what yields or is awaited; the others' wrap plain functions."""

WRAPS = wrappers(Watch, Tools)


def played() -> str:
    said = [way(one) for one in Scenario if one not in CANNOT for way in (play, routed)]
    later = [llm_async_play.play(one) for one in Scenario if one not in llm_async_play.CANNOT]
    return "\n".join([*said, *later])


def test_whatever_the_host_hands_over_it_is_not_hurt(path: Path) -> None:
    names = [name for _, names in WRAPS for name in names]
    fuzz = Fuzz(5, steps={name: OTHER.get(name, "plain") for name in names})

    found = faults(ADAPTER, fuzz, *WRAPS, play=played, path=path)

    assert not found, "\n".join(found)
