"""Whatever openai-agents hands over, no callback of ours raises, waits, or changes anything."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tau_live.testing.expected import Scenario

pytest.importorskip("agents")

from tau_live_hooks.openai_agents import ADAPTER
from tau_live_hooks.openai_agents_record import Watch, WatchedHooks, WatchedModel
from tests.hooks.conformance.openai_agents_play import CANNOT, play
from tests.hooks.hostile import Fuzz, callbacks, faults, wrappers
from tests.hooks.hostile_steps import Step

pytestmark = pytest.mark.slow

KINDS = {"get_response": "coroutine", "stream_response": "asyncgen", "get_retry_advice": "plain"}
"""What a model is asked, and how it answers; everything else is awaited."""

WATCHED = ("model", "watch_span_start", "watch_span_end")
"""Wrappers of plain functions; the others' are coroutines."""


def played() -> str:
    return "\n".join(play(one) for one in Scenario if one not in CANNOT)


def around(own: Any, step: Step) -> Any:
    """Return a proxy as the adapter makes it, around a model or hooks whose every step is bad."""
    theirs = SimpleNamespace(**dict.fromkeys(STEPS, step))
    if isinstance(own, WatchedModel):
        return WatchedModel(theirs, own._self_begin, own._self_safely)
    return WatchedHooks(theirs, own._self_run, own._self_safely)


def inside(found: Any) -> Any:
    return found.__wrapped__ if type(found) is WatchedModel else found


WRAPS = wrappers(Watch)
MODEL = callbacks(WatchedModel, but=("_self_",), private=True)
HOOKS = callbacks(WatchedHooks, but=("_self_",), private=True)
STEPS = [*MODEL[1], *HOOKS[1]]


def test_whatever_the_host_hands_over_it_is_not_hurt(path: Path) -> None:
    kinds = {name: "plain" if name in WATCHED else "coroutine" for name in WRAPS[0][1]}
    kinds |= {name: KINDS.get(name, "coroutine") for name in STEPS}
    fuzz = Fuzz(
        5, steps=kinds, free=[*HOOKS[1], "_cleanup_on_run_end"], around=around, inside=inside
    )

    found = faults(ADAPTER, fuzz, *WRAPS, MODEL, HOOKS, play=played, path=path)

    assert not found, "\n".join(found)
