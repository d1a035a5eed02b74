"""Whatever OpenTelemetry hands over, no processor of ours raises, waits, or changes anything."""

from pathlib import Path

import pytest

from tau_live.testing.expected import Scenario

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("pydantic_ai")

from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import TracerProvider

from tau_live.record.telemetry.semconv import RESULT
from tau_live_hooks.opentelemetry import ADAPTER
from tau_live_hooks.opentelemetry_record import Providers, TauProcessor
from tests.hooks.conformance.opentelemetry_play import CANNOT, play
from tests.hooks.hostile import Fuzz, callbacks, faults, wrappers

pytestmark = pytest.mark.slow

NAME = "gen_ai.evaluation.name"
ANSWERS = {"force_flush", "enabled", "_watch_new"}
"""What is asked of us, and answered with a truth; and what makes a provider, which is no answer."""

SEEN = callbacks(TauProcessor, but=("close",))
WRAPS = wrappers(Providers, but=())


def played() -> str:
    said = [play(one) for one in Scenario if one not in CANNOT]
    provider = LoggerProvider(shutdown_on_exit=False)
    logger = provider.get_logger("judge")
    for name in (RESULT, "other"):
        record = LogRecord(event_name=name, trace_id=7, span_id=7, attributes={NAME: "tone"})
        if logger.enabled(event_name=name) if hasattr(logger, "enabled") else True:
            logger.emit(record)
    said.append(f"{provider.force_flush()}")
    provider.shutdown()
    spans = TracerProvider(shutdown_on_exit=False)
    with spans.get_tracer("acme").start_as_current_span("invoke_agent"):
        pass
    return "\n".join([*said, f"{spans.force_flush()}"])


def test_whatever_the_host_hands_over_it_is_not_hurt(path: Path) -> None:
    fuzz = Fuzz(5, steps=dict.fromkeys(WRAPS[0][1], "plain"), free=ANSWERS)

    found = faults(ADAPTER, fuzz, SEEN, *WRAPS, play=played, path=path)

    assert not found, "\n".join(found)
