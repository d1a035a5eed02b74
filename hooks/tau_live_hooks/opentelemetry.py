"""The adapter of OpenTelemetry: spans of any framework's agents are seen as they end.

It sets no provider, and adds a processor of ours to those that the program has or makes. That
processor only looks: it changes no span, and raises nothing into the code that ends one.
"""

from tau_live.adapters import Adapter, Detach, InForce

MODULE = "opentelemetry.sdk.trace"


def probe() -> str | None:
    """Say what of the host's layout is missing, or ``None`` if all is there."""
    from opentelemetry.sdk import trace

    provider = getattr(trace, "TracerProvider", None)
    if not callable(getattr(provider, "add_span_processor", None)):
        return "sdk.trace.TracerProvider.add_span_processor"
    readable = getattr(trace, "ReadableSpan", None)
    wanted = ("context", "parent", "name", "attributes", "events", "links", "status", "start_time",
              "end_time", "instrumentation_scope", "resource")  # fmt: skip
    missing = [name for name in wanted if not hasattr(readable, name)]
    return f"sdk.trace.ReadableSpan.{missing[0]}" if missing else None


def attach(in_force: InForce) -> Detach:
    """Let the spans of every provider be seen, of those there are and those to come."""
    from opentelemetry.sdk.trace import TracerProvider

    from tau_live_hooks.opentelemetry_logs import Evaluations, watch_logs
    from tau_live_hooks.opentelemetry_processor import TauSpanProcessor
    from tau_live_hooks.opentelemetry_providers import Providers

    processor = TauSpanProcessor(in_force)
    providers = Providers(TracerProvider, processor, add="add_span_processor")
    providers.watch()
    unwatch_logs = watch_logs(Evaluations(processor))

    def detach() -> None:
        providers.unwatch()
        unwatch_logs()
        processor.close()

    return detach


ADAPTER = Adapter(host="opentelemetry", module=MODULE, probe=probe, attach=attach)
