"""Agents whose spans go nowhere because the program has no provider of OpenTelemetry.

An agent framework makes its spans with the API alone, which does nothing with them until the
program sets a provider of the SDK. So here the API is looked at, and the SDK is never imported.
"""

from collections.abc import Callable, Mapping
from typing import Any

import wrapt

from tau_live.errors import suppress
from tau_live.telemetry.kinds import host_of, kind_of

PROBLEM = (
    "agents create spans, but no TracerProvider is set: their runs are not recorded; "
    "`trace.set_tracer_provider(TracerProvider())` of opentelemetry-sdk records them"
)

STARTS = ("start_span", "start_as_current_span")
"""The methods by which the API's tracer begins a span."""

NAMED = frozenset({"invoke_agent", "invoke_workflow", "execute_tool", "chat", "generate_content"})
"""How spans begin their names that say what they are in no attribute yet."""


class Unseen:
    """Looks at the spans that tracers of the API begin until one of them has a provider.

    Args:
        api: The module ``opentelemetry.trace``.
        doubt: Called with what is wrong, once, and with ``None`` when it no longer is.
        native: Says of a host whether an adapter of its own sees its runs.
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
        self._originals = {name: self._tracer.__dict__[name] for name in STARTS}
        self._ours = {
            name: wrapt.FunctionWrapper(original, self._begun)
            for name, original in self._originals.items()
        }

    def watch(self) -> None:
        """Look at the spans that begin from now on."""
        for name, ours in self._ours.items():
            setattr(self._tracer, name, ours)

    def unwatch(self) -> None:
        """Look at none any more."""
        for name, ours in self._ours.items():
            if self._tracer.__dict__.get(name) is ours:
                setattr(self._tracer, name, self._originals[name])

    def _begun(
        self, wrapped: Callable[..., Any], tracer: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        with suppress(Exception):  # the border to the host
            self._look(tracer, *args[:1], **kwargs)
        return wrapped(*args, **kwargs)

    def _look(
        self, tracer: Any, name: str = "", attributes: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        if tracer._tracer is not tracer._noop_tracer:  # noqa: SLF001  # nothing else tells
            self.unwatch()
            if self._doubted:
                self._doubt(None)
        elif not self._doubted and self._is_agents(tracer, name, attributes or {}):
            self._doubted = True
            self._doubt(PROBLEM)

    def _is_agents(self, tracer: Any, name: str, attributes: Mapping[str, Any]) -> bool:
        said = name.partition(" ")[0] in NAMED or kind_of(attributes, ended=False) is not None
        return said and not self._native(host_of(tracer._instrumenting_module_name))  # noqa: SLF001
