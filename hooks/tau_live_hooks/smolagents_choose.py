"""The requests to models, watched and changed by wrappers; nothing at import needs the host."""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from tau_live.core.gate import Kind
from tau_live.core.settings.tables import Point
from tau_live_hooks import smolagents_events
from tau_live_hooks.common import Border, few
from tau_live_hooks.common_choices import Pending
from tau_live_hooks.smolagents_record import HostRun, Place, Witness, at, drive, here

_POSITIONAL = ("messages", "stop_sequences", "response_format", "tools_to_call_from")
"""The arguments of ``generate`` that may be positional."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to a model.

    Attributes:
        run: The run.
        model: The model.
        method: ``generate`` or ``generate_stream``.
        args: The positional arguments.
        kwargs: The named arguments.
        instructions: The agent's own, or the chosen ones; ``None`` if this request does not contain
            them, as when it asks for a plan.
        tools: The tools that the agent may choose from; ``None`` likewise.
    """

    run: HostRun
    model: Any
    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    instructions: str | None = None
    tools: tuple[str, ...] | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments by name."""
        return {**dict(zip(_POSITIONAL, self.args, strict=False)), **self.kwargs}

    def with_argument(self, name: str, value: object) -> "Request":
        """Return the request with another argument."""
        index = _POSITIONAL.index(name)
        if index < len(self.args):
            args = (*self.args[:index], value, *self.args[index + 1 :])
            return replace(self, args=args)
        return replace(self, kwargs={**self.kwargs, name: value})


def with_prompt(request: Request) -> Request:
    """Return a request with the instructions and tools of its system prompt, if it has one."""
    if not _has_system_prompt(request):
        return request
    agent = request.run.agent
    own = agent.instructions if isinstance(agent.instructions, str) else ""
    return replace(request, instructions=own, tools=tuple(smolagents_events.tool_names(agent)))


class RequestSeam:
    """Reads and changes requests; the host's own messages, tools and memory stay as they are."""

    def __init__(self) -> None:
        self._models: dict[str, Any] = {}

    def value_at(self, point: Point, request: Request) -> object:
        """Return a request's value at a point, as a copy that can be compared."""
        if point is Point.MODEL:
            return id(request.model)
        if point is Point.PARAMS:
            return smolagents_events.params_of(request.kwargs)
        if point is Point.TOOLS:
            return list(request.tools) if request.tools else None
        return request.instructions

    def is_own(self, request: Request, model: object) -> bool:
        """Return whether an option is the request's own model."""
        own = request.model
        names = {
            smolagents_events.model_name(own),
            f"{type(own).__name__}:{smolagents_events.model_name(own)}",
        }
        return model is own or (isinstance(model, str) and model in names)

    def instructions(self, request: Request) -> str:
        """Return the agent's own instructions."""
        return request.instructions or ""

    def put(self, point: Point, request: Request, value: Any) -> Request:
        """Return the request with a choice in it.

        Raises:
            LookupError: There is no such model, or it cannot stream.
            ValueError: The model does not accept the settings, or the system prompt contains
                nothing of the choice.
        """
        if point is Point.MODEL:
            model = self._model(request.model, value)
            if not hasattr(model, request.method):
                raise LookupError(f"{smolagents_events.model_name(model)} has no {request.method}")
            return replace(request, model=model)
        if point is Point.PARAMS:
            return _with_params(request, dict(value) if isinstance(value, Mapping) else {})
        if point is Point.TOOLS:
            return _render_prompt(replace(request, tools=tuple(value)))
        return _render_prompt(replace(request, instructions=str(value)))

    def _model(self, own: Any, value: Any) -> Any:
        """Return a model: itself, ``Class:id`` of the host's, or the agent's with another id."""
        if not isinstance(value, str):
            return value
        from smolagents import models

        name, _, id_ = value.partition(":")
        kind = getattr(models, name, None)
        if id_ and isinstance(kind, type) and issubclass(kind, models.Model):
            if value not in self._models:  # it has a client of its own
                self._models[value] = kind(model_id=id_)
            return self._models[value]
        if isinstance(own, models.ApiModel):
            model = copy.copy(own)  # it shares the client, which gets the id with each request
            model.model_id = value
            return model
        raise LookupError(f"not a model: {value!r}")


def _with_params(request: Request, params: Mapping[str, Any]) -> Request:
    fixed = getattr(request.model, "kwargs", None)
    for name, value in params.items():
        if isinstance(fixed, Mapping) and fixed.get(name, value) != value:
            raise ValueError(f"the model itself says {name!r}")
    kwargs = {**request.kwargs, **params}
    try:
        inspect.signature(getattr(request.model, request.method)).bind(*request.args, **kwargs)
    except TypeError as error:
        raise ValueError(f"the model does not accept {', '.join(params)}") from error
    return replace(request, kwargs=kwargs)


def _has_system_prompt(request: Request) -> bool:
    messages = request.arguments.get("messages")
    if not isinstance(messages, list) or not messages:
        return False
    own = request.run.agent.memory.system_prompt.system_prompt
    return isinstance(own, str) and _text(messages[0]) == own


def _text(message: Any) -> str | None:
    content = getattr(message, "content", None)
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        content = content[0].get("text")
    return content if isinstance(content, str) else None


def _render_prompt(request: Request) -> Request:
    """Return the request with a system prompt of its own instructions and tools.

    Raises:
        ValueError: The system prompt contains nothing of them.
    """
    run, names = request.run, request.tools or ()
    key = (request.instructions or "", names)
    if key not in run.rendered:
        run.rendered[key] = _prompt(run.agent, *key)
    messages = request.arguments["messages"]
    own = run.agent.memory.system_prompt.system_prompt
    offered = request.arguments.get("tools_to_call_from")
    dropped = {*smolagents_events.names_of(offered)} - {*names}
    if run.rendered[key] == own and not dropped:
        raise ValueError("the system prompt contains nothing of it")
    system = [{"type": "text", "text": run.rendered[key]}]
    changed = request.with_argument(
        "messages", [replace(messages[0], content=system), *messages[1:]]
    )
    if not dropped:
        return changed
    tools = [tool for tool in few(offered) if tool.name not in dropped]
    return changed.with_argument("tools_to_call_from", tools)


def _prompt(agent: Any, instructions: str, names: tuple[str, ...]) -> str:
    other = copy.copy(agent)
    other.instructions = instructions or None
    kept = {*names, smolagents_events.ANSWER}
    other.tools = {name: tool for name, tool in agent.tools.items() if name in kept}
    other.managed_agents = {n: managed for n, managed in agent.managed_agents.items() if n in kept}
    return str(other.initialize_system_prompt())


class _OpenRequest(NamedTuple):
    """One open request.

    Attributes:
        place: The place where it is made.
        request: The request that is sent.
        host: The host's own; the same object if nothing was changed.
        span: The id of its span.
    """

    place: Place
    request: Request
    host: Request
    span: str

    def send(self, wrapped: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Send the request to the chosen model."""
        if self.request is self.host:
            return wrapped(*args, **kwargs)
        if self.request.model is self.host.model:
            return wrapped(*self.request.args, **self.request.kwargs)
        method = getattr(self.request.model, self.request.method)
        return method(*self.request.args, **self.request.kwargs)


class Requests:
    """Sees the requests to models, and decides them.

    Args:
        border: The guard around every step of ours.
    """

    def __init__(self, border: Border) -> None:
        self._border = border
        self._safely = border.safely
        self._seam = RequestSeam()

    def watch_answer(self, wrapped: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        """See a request that is answered at once."""
        request = self._safely(self._open_request, model, "generate", args, kwargs)
        if request is None:
            return wrapped(*args, **kwargs)
        try:
            with at(request.place):
                answer = request.send(wrapped, args, kwargs)
        except BaseException as error:
            self._safely(request.place.run.book.fail_model, request.span, error)
            raise
        self._safely(self._end, request, answer)
        return answer

    def watch_stream(self, wrapped: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        """See a request whose answer comes in pieces."""
        request = self._safely(self._open_request, model, "generate_stream", args, kwargs)
        if request is None:
            return wrapped(*args, **kwargs)
        book = request.place.run.book
        try:
            with at(request.place):
                pieces = request.send(wrapped, args, kwargs)
        except BaseException as error:
            self._safely(book.fail_model, request.span, error)
            raise
        read_pieces: list[Any] = []

        def take(piece: object) -> None:
            if not read_pieces:
                self._safely(book.note_token, request.span)
            read_pieces.append(piece)

        def over(error: BaseException | None, _result: object) -> None:
            if error is None:
                self._safely(self._end_stream, request, read_pieces)
            else:
                self._safely(book.fail_model, request.span, error)

        # while a piece is made, a model inside of this one is not another request
        stream = self._safely(drive, pieces, Witness(partial(at, request.place), take, over))
        return pieces if stream is None else stream

    def _open_request(self, model: Any, method: str, args: Any, kwargs: Any) -> _OpenRequest | None:
        place = here.get()
        if place is None or (place.step or "").startswith("model:"):
            return None  # outside of every run, or a model within the requested one
        run = place.run
        host = with_prompt(Request(run=run, model=model, method=method, args=args, kwargs=kwargs))
        request, pending = host, None
        if place.step is None and model is run.agent.model:
            decided = self._safely(self._change_request, host, kind=Kind.DECISION)
            request, pending = decided or (host, None)
        fields = smolagents_events.request_of(
            request.model, request.arguments, streaming=method != "generate"
        )
        if request.tools is not None and not fields["tools_offered"]:
            fields = {**fields, "tools_offered": request.tools}
        span = run.start_model(fields, inside=place.step)
        if pending is not None:
            self._safely(pending.settle_sent, request, kind=Kind.DECISION)
        return _OpenRequest(place._replace(step=span), request, host, span)

    def _change_request(self, host: Request) -> tuple[Request, Pending[Request]] | None:
        run = host.run
        if run.choices is None or self._border.in_force() is not run.book.runtime:
            return None
        known = run.situation(messages=len(host.arguments.get("messages") or ()))
        return run.choices.change_request(self._seam, host, known)

    def _end_stream(self, request: _OpenRequest, pieces: list[Any]) -> None:
        from smolagents.models import agglomerate_stream_deltas

        self._end(request, agglomerate_stream_deltas(pieces))

    def _end(self, request: _OpenRequest, answer: Any) -> None:
        usage, model = smolagents_events.usage_of(answer), request.request.model
        request.place.run.book.end_model(
            request.span, smolagents_events.response_of(answer, model), usage=usage
        )
