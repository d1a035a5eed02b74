"""Whatever pydantic-ai hands over, no callback of ours raises, waits, or changes anything."""

from pathlib import Path
from typing import Any

import pytest

from tau_live.testing.expected import Scenario

pytest.importorskip("pydantic_ai")

from pydantic_ai.capabilities import AbstractCapability

from tau_live_hooks.pydantic_ai import ADAPTER
from tau_live_hooks.pydantic_ai_record import SharedCapability, TauCapability
from tests.hooks.conformance.pydantic_ai_play import CANNOT, play
from tests.hooks.hostile import Fuzz, callbacks, faults

pytestmark = pytest.mark.slow

HANDED = {
    "wrap_run": "coroutine",
    "wrap_model_request": "coroutine",
    "wrap_tool_execute": "coroutine",
}
"""The callbacks that are given the host's own step."""

OWN = {"before_model_request": "request_context", "prepare_model_request": "request_context"}
"""Those that are given what they have to return."""


def played() -> str:
    return "\n".join(play(one) for one in Scenario if one not in CANNOT)


@pytest.mark.parametrize(("ours", "act"), [(TauCapability, True), (SharedCapability, False)])
def test_whatever_the_host_hands_over_it_is_not_hurt(
    path: Path, ours: type[AbstractCapability[Any]], *, act: bool
) -> None:
    fuzz = Fuzz(
        5, steps=HANDED, own=OWN, raises={"on_tool_execute_error": "error"}, free={"get_ordering"}
    )

    found = faults(ADAPTER, fuzz, callbacks(ours), play=played, path=path, act=act)

    assert not found, "\n".join(found)
