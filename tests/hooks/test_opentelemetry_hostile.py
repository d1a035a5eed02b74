"""Whatever OpenTelemetry hands over, no processor of ours raises, waits, or changes anything."""

from pathlib import Path

import pytest

from tau_live.testing import Scenario

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("pydantic_ai")

from tau_live_hooks.opentelemetry import ADAPTER
from tau_live_hooks.opentelemetry_logs import Evaluations
from tau_live_hooks.opentelemetry_processor import TauSpanProcessor
from tau_live_hooks.opentelemetry_providers import Providers
from tests.hooks.conformance.opentelemetry_play import CANNOT, play
from tests.hooks.hostile import Fuzz, callbacks, faults, wrappers

pytestmark = pytest.mark.slow

ANSWERS = {"force_flush", "enabled"}
"""What is asked of us, and answered with a truth."""

SPANS = callbacks(TauSpanProcessor, "")
LOGS = callbacks(Evaluations)
WRAPS = wrappers(Providers, but=())


def played() -> str:
    return "\n".join(play(one) for one in Scenario if one not in CANNOT)


def test_whatever_the_host_hands_over_it_is_not_hurt(path: Path) -> None:
    fuzz = Fuzz(5, steps={name: "plain" for name in WRAPS[0][1]}, free=ANSWERS)

    found = faults(ADAPTER, fuzz, SPANS, LOGS, *WRAPS, play=played, path=path)

    assert not found, "\n".join(found)
