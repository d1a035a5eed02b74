"""Every scenario on the real OpenTelemetry, told by pydantic-ai's own instrumentation of it.

Its adapter is not attached here, so all that is known is what its spans say.
"""

from collections.abc import Mapping
from importlib import metadata

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent
from pydantic_ai.models.instrumented import InstrumentationSettings

from tau_live.testing.expected import Scenario
from tests.hooks.conformance import pydantic_ai_play

CANNOT: Mapping[Scenario, str] = {
    Scenario.TIMEOUT: "the host cancels its own run, and no span of it says that time was over",
    Scenario.HANDOFF: "the conventions know no handoff; one agent is told inside of the other",
    Scenario.INTERRUPT_RESUME: "no span says that a run waits; what goes on is another trace",
}
"""What spans do not tell, and why."""


def versions() -> str:
    """Return whose spans these are."""
    made_by = ("opentelemetry-sdk", "pydantic-ai-slim")
    return ", ".join(f"{name} {metadata.version(name)}" for name in made_by)


def play(scenario: Scenario) -> str:
    """Return what a user sees, and what the exporter of the user's own got."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    try:
        shown = pydantic_ai_play.play(scenario)
    finally:
        Agent.instrument_all(False)
        provider.shutdown()
    spans = sorted(
        f"{span.name} {span.status.status_code.name} {sorted(span.attributes or {})}"
        for span in exporter.get_finished_spans()
    )
    return f"{shown} in {spans}"
