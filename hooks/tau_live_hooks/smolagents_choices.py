"""How a request of smolagents is read and changed; nothing at import needs the host."""

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tau_live.settings.decisions import Point
from tau_live_hooks import smolagents_events as said
from tau_live_hooks.common_text import few
from tau_live_hooks.smolagents_run import HostRun

_PLACES = ("messages", "stop_sequences", "response_format", "tools_to_call_from")
"""The arguments of ``generate`` that may be given by their place."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a model is asked.

    Attributes:
        run: The run.
        model: The model.
        method: ``generate`` or ``generate_stream``.
        args: The arguments given by place.
        kwargs: Those given by name.
        instructions: The agent's own, or those that were chosen; ``None`` where they do not stand
            in this request, as when a plan is asked for.
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
    def named(self) -> dict[str, Any]:
        """All arguments by name."""
        return {**dict(zip(_PLACES, self.args, strict=False)), **self.kwargs}

    def given(self, name: str, value: object) -> "Request":
        """Return the request with another argument."""
        place = _PLACES.index(name)
        if place < len(self.args):
            args = (*self.args[:place], value, *self.args[place + 1 :])
            return replace(self, args=args)
        return replace(self, kwargs={**self.kwargs, name: value})


def with_prompt(request: Request) -> Request:
    """Return a request with the instructions and tools that stand in its system prompt."""
    if not _has_system_prompt(request):
        return request
    agent = request.run.agent
    own = agent.instructions if isinstance(agent.instructions, str) else ""
    return replace(request, instructions=own, tools=tuple(said.tool_names(agent)))


class RequestSeam:
    """Reads and changes requests; the host's own messages, tools and memory stay as they are."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def said(self, point: Point, request: Request) -> object:
        """Return what a request says at a point, as a copy that can be compared."""
        if point is Point.MODEL:
            return id(request.model)
        if point is Point.PARAMS:
            return said.params_of(request.kwargs)
        if point is Point.TOOLS:
            return list(request.tools) if request.tools else None
        return request.instructions

    def is_own(self, request: Request, model: object) -> bool:
        """Say whether an option is the model that is asked anyway."""
        own = request.model
        names = {said.model_name(own), f"{type(own).__name__}:{said.model_name(own)}"}
        return model is own or (isinstance(model, str) and model in names)

    def instructions(self, request: Request) -> str:
        """Return the agent's own instructions."""
        return request.instructions or ""

    def put(self, point: Point, request: Request, value: Any) -> Request:
        """Return the request with a choice in it.

        Raises:
            LookupError: There is no such model, or it cannot stream.
            ValueError: The model would not take the settings, or nothing of the choice would
                stand in the system prompt.
        """
        if point is Point.MODEL:
            model = self._model(request.model, value)
            if not hasattr(model, request.method):
                raise LookupError(f"{said.model_name(model)} has no {request.method}")
            return replace(request, model=model)
        if point is Point.PARAMS:
            return _with_params(request, dict(value) if isinstance(value, Mapping) else {})
        if point is Point.TOOLS:
            return _rendered(replace(request, tools=tuple(value)))
        return _rendered(replace(request, instructions=str(value)))

    def _model(self, own: Any, value: Any) -> Any:
        """Return a model: itself, ``Class:id`` of the host's, or the agent's with another id."""
        if not isinstance(value, str):
            return value
        from smolagents import models

        name, _, id_ = value.partition(":")
        kind = getattr(models, name, None)
        if id_ and isinstance(kind, type) and issubclass(kind, models.Model):
            if value not in self._made:  # with a client of its own
                self._made[value] = kind(model_id=id_)
            return self._made[value]
        if isinstance(own, models.ApiModel):
            model = copy.copy(own)  # it shares its client, which takes the id with each request
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
    messages = request.named.get("messages")
    if not isinstance(messages, list) or not messages:
        return False
    own = request.run.agent.memory.system_prompt.system_prompt
    return isinstance(own, str) and _text(messages[0]) == own


def _text(message: Any) -> str | None:
    content = getattr(message, "content", None)
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        content = content[0].get("text")
    return content if isinstance(content, str) else None


def _rendered(request: Request) -> Request:
    """Return the request with the agent's system prompt as its instructions and tools make it."""
    run, kept = request.run, request.tools or ()
    key = (request.instructions or "", kept)
    if key not in run.rendered:
        run.rendered[key] = _prompt(run.agent, *key)
    messages = request.named["messages"]
    own = run.agent.memory.system_prompt.system_prompt
    offered = request.named.get("tools_to_call_from")
    dropped = {*said.names_of(offered)} - {*kept}
    if run.rendered[key] == own and not dropped:
        raise ValueError("nothing of it stands in the system prompt")
    system = [{"type": "text", "text": run.rendered[key]}]
    changed = request.given("messages", [replace(messages[0], content=system), *messages[1:]])
    if not dropped:
        return changed
    stay = [tool for tool in few(offered) if tool.name not in dropped]
    return changed.given("tools_to_call_from", stay)


def _prompt(agent: Any, instructions: str, kept: tuple[str, ...]) -> str:
    other = copy.copy(agent)
    other.instructions = instructions or None
    stay = {*kept, said.ANSWER}
    other.tools = {name: tool for name, tool in agent.tools.items() if name in stay}
    other.managed_agents = {n: one for n, one in agent.managed_agents.items() if n in stay}
    return str(other.initialize_system_prompt())
