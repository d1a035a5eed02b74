"""The seam of pydantic-ai's requests; nothing at import needs the host."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from tau_live.core.settings.tables import Point
from tau_live_hooks import pydantic_ai_events
from tau_live_hooks.common import Situation, as_text, few, situation_of


class RequestSeam:
    """Reads and changes the host's ``ModelRequestContext``; nothing of it is kept."""

    def value_at(self, point: Point, request: Any) -> object:
        """Return a request's value at a point, as a copy that can be compared."""
        if point is Point.MODEL:
            return id(request.model)
        if point is Point.PARAMS:
            return dict(request.model_settings or {})
        if point is Point.TOOLS:
            tools = request.model_request_parameters.function_tools
            return [tool.name for tool in few(tools)] or None
        parts = few(request.model_request_parameters.instruction_parts)
        return [part.content for part in parts]

    def is_own(self, request: Any, model: object) -> bool:
        """Return whether an option is the request's own model."""
        names = {pydantic_ai_events.model_name(request.model), getattr(request, "model_id", None)}
        return model is request.model or (isinstance(model, str) and model in names)

    def instructions(self, request: Any) -> str:
        """Return the agent's own instructions."""
        parts = few(request.model_request_parameters.instruction_parts)
        return "\n\n".join(part.content for part in parts)

    def put(self, point: Point, request: Any, value: Any) -> Any:
        """Return the request with a choice in it."""
        if point is Point.MODEL:
            return _with_model(request, _model(value))
        if point is Point.PARAMS:
            params = dict(value) if isinstance(value, Mapping) else {}
            return _with(request, model_settings={**(request.model_settings or {}), **params})
        parameters = request.model_request_parameters
        if point is Point.TOOLS:
            tools = [tool for tool in few(parameters.function_tools) if tool.name in value]
            changed = replace(parameters, function_tools=tools)
        else:
            from pydantic_ai.messages import InstructionPart

            changed = replace(parameters, instruction_parts=[InstructionPart(content=value)])
        return _with(request, model_request_parameters=changed)


def situation(ctx: Any, request: Any) -> Situation:
    """Return the situation before a request: from the request, and the run's own metadata."""
    prompt = getattr(ctx, "prompt", None)
    known = {
        **_of_run(ctx),
        "messages": len(request.messages),
        "tools": len(request.model_request_parameters.function_tools),
        "prompt_chars": len(prompt) if isinstance(prompt, str) else 0,
    }
    return situation_of(known, getattr(ctx, "metadata", None))


def call_situation(ctx: Any, call: Any) -> Situation:
    """Return the situation before a tool is run."""
    known = {**_of_run(ctx), "tool": call.tool_name, "retry": ctx.retry}
    return situation_of(known, getattr(ctx, "metadata", None))


def _of_run(ctx: Any) -> Situation:
    agent = getattr(getattr(ctx, "agent", None), "name", None)
    return {"agent": as_text(agent or "agent"), "step": ctx.run_step}


def _with(request: Any, **changes: object) -> Any:
    """Return a request with changes, and with the fields that an older host sets after ``init``."""
    changed = replace(request, **changes)
    for field in fields(request):
        if not field.init and field.name not in changes:
            setattr(changed, field.name, getattr(request, field.name))
    return changed


def _with_model(request: Any, model: Any) -> Any:
    changed = _with(request, model=model)
    changed.model_id = None  # it was selected by no name
    return changed


def _model(value: object) -> Any:
    """Return the model that an option stands for.

    Raises:
        TypeError: It stands for none.
    """
    from pydantic_ai.models import Model, infer_model

    if isinstance(value, str | Model):
        return infer_model(value)
    raise TypeError(f"not a model of pydantic-ai: {type(value).__name__}")
