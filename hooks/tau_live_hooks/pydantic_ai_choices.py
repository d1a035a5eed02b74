"""What is chosen before a model of pydantic-ai is asked; nothing at import needs the host.

Each choice is put into the host's own request. What is sent is compared with it at the last moment,
and only then is the decision told: as applied, or why not.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tau_live.handles import RunHandle
from tau_live.offered import declared
from tau_live.runtime import Runtime
from tau_live.settings.decisions import DeclaredDecision, Every, Point
from tau_live_hooks import pydantic_ai_events as said

if TYPE_CHECKING:
    from tau_live.handles import Unsettled

OWN = "own"
"""The name of what the host does by itself, where none of the options is that."""

INSTRUCTIONS = "{instructions}"
"""Stands in a prompt for the agent's own instructions."""

REPLACED = "replaced"
"""Why a choice was not applied: something behind us chose otherwise."""

NOT_ASKED = "not_asked"
"""Why a choice was not applied: the model was not asked after all."""

_TEXT = 64
_KNOWN = 32


class _Chosen(NamedTuple):
    """A choice of a run at a point: which value, and under which name."""

    name: str
    value: object


class Choices:
    """Decides one run's requests.

    Args:
        runtime: Who decides.
        handle: The run.
    """

    def __init__(self, runtime: Runtime, handle: RunHandle) -> None:
        self._runtime = runtime
        self._handle = handle
        self._kept: dict[str, _Chosen] = {}
        self._open: list[tuple[Unsettled, Callable[[Any], bool]]] = []

    def changed(self, ctx: Any, request: Any) -> Any:
        """Return the request as it was decided to be sent."""
        known = situation(ctx, request)
        for point in Point:
            told = declared(point, self._runtime.settings.decisions)
            if told is not None and told.options:
                request = self._changed(told, request, known)
        return request

    def sent(self, request: Any) -> None:
        """Tell the decisions of a request that is sent now: applied, or replaced behind us."""
        waiting, self._open = self._open, []
        for unsettled, is_applied in waiting:
            unsettled.settle(None if is_applied(request) else REPLACED)

    def over(self) -> None:
        """Tell the decisions of a request that was never sent."""
        waiting, self._open = self._open, []
        for unsettled, _ in waiting:
            unsettled.settle(NOT_ASKED)

    def _changed(self, told: DeclaredDecision, request: Any, known: Mapping[str, object]) -> Any:
        own = _own_name(told, request)
        kept = self._kept.get(told.point) if told.every is Every.RUN else None
        if kept is not None:
            return request if kept.name == own else _applied(told.point, request, kept.value)[0]
        names = [*told.options, *([own] if own not in told.options else [])]
        unsettled: list[Unsettled] = []
        choice = self._runtime.decide(
            self._handle,
            told.point,
            options=names,
            context=known,
            default=own,
            allowed={*told.allowed(known), own},
            exploit_only=told.exploit_only or None,
            ladder=True,
            unsettled=unsettled,
        )
        name = str(choice.option)
        changed, is_applied = request, _same(told.point, request)
        try:
            if name != own:
                changed, is_applied = _applied(told.point, request, told.options[name])
        except Exception as error:
            for one in unsettled:
                one.settle(f"error: {type(error).__name__}")
            raise
        self._open += [(one, is_applied) for one in unsettled]
        self._kept[told.point] = _Chosen(name, told.options.get(name))
        return changed


def situation(ctx: Any, request: Any) -> dict[str, object]:
    """Return what is known before a model is asked: of the request, and the run's own metadata."""
    prompt = getattr(ctx, "prompt", None)
    found: dict[str, object] = {
        "agent": str(getattr(getattr(ctx, "agent", None), "name", None) or "agent"),
        "step": ctx.run_step,
        "messages": len(request.messages),
        "tools": len(request.model_request_parameters.function_tools),
        "prompt_chars": len(prompt) if isinstance(prompt, str) else 0,
    }
    metadata = getattr(ctx, "metadata", None)
    given = list(metadata.items())[:_KNOWN] if isinstance(metadata, Mapping) else []
    for name, value in given:
        short = isinstance(value, str) and len(value) <= _TEXT
        if isinstance(name, str) and (short or isinstance(value, bool | int | float)):
            found[name] = value
    return found


def _own_name(told: DeclaredDecision, request: Any) -> str:
    """Return the name of what the host does by itself."""
    if told.point == Point.MODEL:
        model = request.model
        names = {said.model_name(model), getattr(request, "model_id", None)}
        for name, value in told.options.items():
            if value is model or (isinstance(value, str) and value in names):
                return name
    return OWN


def _applied(point: str, request: Any, value: object) -> tuple[Any, Callable[[Any], bool]]:
    """Return the request with a choice in it, and what says whether it is still in one."""
    if point == Point.MODEL:
        changed = replace(request, model=_model(value), model_id=None)
    elif point == Point.PROMPT:
        changed = _instructed(request, str(value))
    else:
        given = dict(value) if isinstance(value, Mapping) else {}
        changed = replace(request, model_settings={**(request.model_settings or {}), **given})
    return changed, _same(point, changed)


def _same(point: str, ours: Any) -> Callable[[Any], bool]:
    """Return what says whether a request says at a point what ours says now."""

    def said_of(request: Any) -> object:
        if point == Point.MODEL:
            return id(request.model)
        if point == Point.PARAMS:
            return dict(request.model_settings or {})
        parts = request.model_request_parameters.instruction_parts or ()
        return [part.content for part in parts]

    expected = said_of(ours)  # whoever comes after us may write to it
    return lambda request: said_of(request) == expected


def _model(value: object) -> Any:
    if not isinstance(value, str):
        return value
    from pydantic_ai.models import infer_model

    return infer_model(value)


def _instructed(request: Any, text: str) -> Any:
    from pydantic_ai.messages import InstructionPart

    parameters = request.model_request_parameters
    own = "\n\n".join(part.content for part in parameters.instruction_parts or ())
    part = InstructionPart(content=text.replace(INSTRUCTIONS, own))
    return replace(request, model_request_parameters=replace(parameters, instruction_parts=[part]))
