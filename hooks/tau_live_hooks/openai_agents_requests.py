"""One request of a model of openai-agents: read, changed where so decided, and told.

Nothing here imports the host. A request is told to begin when the model opens the host's span of
it, so that it has that id; a model that opens none is told when it first answers.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tau_live import events as ev
from tau_live.envelope import ErrorInfo
from tau_live_hooks import openai_agents_events as said
from tau_live_hooks.common_text import few, printed

if TYPE_CHECKING:
    from tau_live_hooks.openai_agents_steps import Steps

NAMES = (
    "system_instructions",
    "input",
    "model_settings",
    "tools",
    "output_schema",
    "handoffs",
    "tracing",
)
"""What models are given by place."""

_FAILED = frozenset({"response.failed", "response.incomplete", "error", "response.error"})


class Request(NamedTuple):
    """What a model is asked: the model, and what it is given, by place and by name."""

    model: Any
    args: tuple[Any, ...]
    named: Mapping[str, Any]

    def get(self, name: str) -> Any:
        """Return what the model is given under a name."""
        place = NAMES.index(name) if name in NAMES else len(self.args)
        return self.args[place] if place < len(self.args) else self.named.get(name)

    def put(self, name: str, value: object) -> "Request":
        """Return the request with something else under a name."""
        place = NAMES.index(name)
        if place < len(self.args):
            args = (*self.args[:place], value, *self.args[place + 1 :])
            return self._replace(args=args)
        return self._replace(named={**self.named, name: value})


class Call:
    """A request while it goes on, told to the run that makes it.

    Args:
        steps: The run's.
        request: What is asked, of which model.
        span_id: Ours of it, until the host opens one.
        streaming: Whether the answer comes in pieces.
    """

    def __init__(self, steps: "Steps", request: Request, *, span_id: str, streaming: bool) -> None:
        self.request = request
        self._steps = steps
        self._streaming = streaming
        self._span_id = span_id
        self._parent = steps.book.turn_span
        self._began = False
        self._span: Any = None
        self._completed: Any = None
        self._failed: Any = None
        self._over = False

    def began(self, span: Any = None) -> None:
        """Tell that the model is asked, once."""
        if self._began:
            return
        self._began, self._span = True, span
        if span is not None:
            self._span_id = span.span_id
        steps, request = self._steps, self.request
        instructions = request.get("system_instructions") if steps.keeps else None
        raw: dict[str, object] = {"handoffs": _handoffs(request.get("handoffs"))}
        if isinstance(instructions, str):
            raw["instructions"] = [instructions]
        fields = {
            "model_requested": said.model_name(request.model),
            "provider": said.provider_of(request.model),
            "params": said.params_of(request.get("model_settings")),
            "tools_offered": said.names_of(request.get("tools")),
            "streaming": self._streaming,
            "parent_span_id": self._parent,
            "raw": {name: value for name, value in raw.items() if value},
        }
        steps.book.asked(self._span_id, fields)

    def came(self, event: Any) -> None:
        """Know a piece of the answer."""
        self.began()
        kind = printed(getattr(event, "type", ""))
        if kind.endswith(".delta"):
            self._steps.book.heard(self._span_id)
        elif kind == "response.completed":
            self._completed = getattr(event, "response", None)
        elif kind in _FAILED:
            self._failed = kind

    def answered(self, response: Any) -> None:
        """Tell what the model answered."""
        self.began()
        if self._over:
            return
        self._over = True
        output = few(getattr(response, "output", None))
        model = self._model(response)
        usage = said.usage_of(getattr(response, "usage", None))
        fields = {
            "model_used": model,
            "response_id": getattr(response, "response_id", None) or getattr(response, "id", None),
            "parent_span_id": self._parent,
            **said.answer_of(output, keeps=self._steps.keeps),
        }
        self._steps.book.answered(self._span_id, fields, usage=usage)
        self._steps.answered(output)

    def stopped(self, error: BaseException | None) -> None:
        """Tell how a streamed answer ended: as a whole, failed, or because nobody reads it."""
        if self._completed is not None and not isinstance(error, Exception):
            self.answered(self._completed)
        elif self._failed is not None and not isinstance(error, Exception):
            self.began()
            told = {"status": ev.Status.ERROR, "error": ErrorInfo(type=self._failed)}
            self._over = True
            self._steps.book.answered(self._span_id, {**told, "parent_span_id": self._parent})
        elif error is not None:
            self.refused(error)

    def refused(self, error: BaseException) -> None:
        """Tell that the model did not answer."""
        self.began()
        if self._over:
            return
        self._over = True
        late = type(error).__name__ == "ModelTimeoutError"
        self._steps.book.refused(self._span_id, error, status=ev.Status.ERROR if late else None)

    def _model(self, response: Any) -> str | None:
        """Return the model that answered: as the provider says, or as it was asked."""
        data = getattr(self._span, "span_data", None)
        answered = getattr(getattr(data, "response", None), "model", None)
        told = getattr(response, "model", None) or answered or getattr(data, "model", None)
        return told if isinstance(told, str) else said.model_name(self.request.model)


def _handoffs(handoffs: Any) -> list[str]:
    return [
        name for one in few(handoffs) if isinstance(name := getattr(one, "tool_name", None), str)
    ]
