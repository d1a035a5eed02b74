"""The adapter of OpenTelemetry: spans of any framework's agents are seen as they end.

It sets no provider, and adds a processor of ours to those that the program has or makes. That
processor only reads: it changes no span, and raises nothing into the code that ends one.

An agent framework makes its spans with the API alone, which does nothing with them until the
program sets a provider of the SDK. So ``Unseen`` watches the API, and never imports the SDK.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tau_live.core.errors import suppress
from tau_live.record.telemetry.semconv import host_of, kind_of
from tau_live.runtime.adapters import Adapter, Detach, InForce
from tau_live_hooks.patches import Patches

MODULE = "opentelemetry.sdk.trace"


def probe() -> str | None:
    """Return what is missing of the host's layout; ``None`` if nothing is."""
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
    """Let the spans of every provider be seen, of existing ones and those to come."""
    from opentelemetry.sdk.trace import TracerProvider

    from tau_live_hooks.opentelemetry_record import LOGS, Providers, TauProcessor

    with Patches() as patches:
        processor = TauProcessor(in_force)
        patches.add(processor.close)
        Providers(processor, "add_span_processor").watch(TracerProvider, patches)
        evaluations = Providers(processor, "add_log_record_processor")

        def watch_logs(module: Any) -> None:
            if hasattr(getattr(module, "LoggerProvider", None), "add_log_record_processor"):
                evaluations.watch(module.LoggerProvider, patches)

        patches.when(LOGS, watch_logs)
    return patches.undo


ADAPTER = Adapter(host="opentelemetry", module=MODULE, probe=probe, attach=attach)


PROBLEM = (
    "agents create spans, but no TracerProvider is set: their runs are not recorded; "
    "`trace.set_tracer_provider(TracerProvider())` of opentelemetry-sdk records them"
)

STARTS = ("start_span", "start_as_current_span")
"""The methods by which the API's tracer starts a span."""

NAMED = frozenset({"invoke_agent", "invoke_workflow", "execute_tool", "chat", "generate_content"})
"""The first words of the names of spans that have no telling attribute yet when they start."""


class Unseen:
    """Watches the spans that tracers of the API start, until one of them has a provider.

    Args:
        api: The module ``opentelemetry.trace``.
        doubt: Called once with the problem, and with ``None`` when it is gone.
        native: Returns whether an adapter of its own sees a host's runs.
    """

    def __init__(
        self,
        api: Any,
        *,
        doubt: Callable[[str | None], None],
        native: Callable[[str], bool],
    ) -> None:
        self._tracer = api.ProxyTracer
        self._doubt = doubt
        self._native = native
        self._doubted = False
        self._patches = Patches()

    def watch(self) -> None:
        """Watch the spans that start from now on."""
        for name in STARTS:  # again: another boot has another doubt
            self._patches.wrap(self._tracer, name, self._watch_start, again=True)

    def _watch_start(
        self, wrapped: Callable[..., Any], tracer: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        with suppress(Exception):  # the border to the host
            self._check(tracer, *args[:1], **kwargs)
        return wrapped(*args, **kwargs)

    def _check(
        self, tracer: Any, name: str = "", attributes: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        if tracer._tracer is not tracer._noop_tracer:  # noqa: SLF001  # nothing public shows it
            self._patches.undo()
            if self._doubted:
                self._doubt(None)
        elif not self._doubted and self._is_agents(tracer, name, attributes or {}):
            self._doubted = True
            self._doubt(PROBLEM)

    def _is_agents(self, tracer: Any, name: str, attributes: Mapping[str, Any]) -> bool:
        known = name.partition(" ")[0] in NAMED or kind_of(attributes, ended=False) is not None
        return known and not self._native(host_of(tracer._instrumenting_module_name))  # noqa: SLF001
