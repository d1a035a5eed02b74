"""Spans as an instrumentation would make them, without any."""

from collections.abc import Mapping
from dataclasses import dataclass

from tau_live.core import events as ev
from tau_live.record.telemetry.runs import Runs
from tau_live.record.telemetry.semconv import Around, SpanEnd, SpanEvent, SpanStart

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "anna"}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "large",
        "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 3}  # fmt: skip
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
CHAIN = {"openinference.span.kind": "CHAIN"}
HTTP = {"http.request.method": "GET"}
SCOPE = "their.instrumentation"


@dataclass
class Door:
    """A run of another adapter, or of the public door, around a span."""

    host: str = "pydantic-ai"
    run_id: str = "theirs"
    execution: str = "once"
    session_id: str | None = None


class Told:
    """Tells spans to ``Runs`` at its own time and keeps what they become."""

    def __init__(self, *native: str) -> None:
        self.runs = Runs(native=lambda host: host in native)
        self.events: list[ev.Event] = []
        self.now = 1_000.0
        self._begun: dict[str, SpanStart] = {}

    def begin(
        self,
        id_: str,
        said: Mapping[str, object],
        *,
        inside: str | None = None,
        trace: str = "t1",
        scope: str = SCOPE,
        around: Around | None = None,
    ) -> None:
        self.now += 1.0
        attributes = dict(said)
        begun = SpanStart(trace, id_, inside, id_, scope, self.now, attributes)
        self._begun[id_] = begun
        self.events += self.runs.start_span(begun, around=around, now=self.now)

    def end(
        self,
        id_: str,
        said: Mapping[str, object] | None = None,
        *,
        failed: bool = False,
        happened: tuple[SpanEvent, ...] = (),
        linked: tuple[tuple[str, str], ...] = (),
        raised: str | None = None,
    ) -> None:
        self.now += 1.0
        begun = self._begun[id_]
        whole = begun._replace(attributes={**begun.attributes, **(said or {})})
        ended = SpanEnd(whole, self.now, failed, "", happened, linked, raised)
        self.events += self.runs.end_span(ended, around=None, now=self.now)

    def say(self, id_: str, said: Mapping[str, object]) -> None:
        """Let a span that goes on say something."""
        self._begun[id_].attributes.update(said)  # type: ignore[attr-defined]  # that of ``begin``

    def span(self, id_: str, said: Mapping[str, object], **how: object) -> None:
        """Tell a span that begins and ends at once."""
        self.begin(id_, said, **how)  # type: ignore[arg-type]  # passed on as it came
        self.end(id_)

    def of(self, kind: type[ev.Event]) -> list[ev.Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def ends(self) -> list[tuple[str, str]]:
        """Return the key and the status of every run that ended, in their order."""
        return [(event.run_id, str(event.status)) for event in self.of(ev.RunEnd)]

    def models(self) -> list[tuple[str, str | None]]:
        """Return the run and the span of every model's answer."""
        return [(event.run_id, event.span_id) for event in self.of(ev.ModelEnd)]
