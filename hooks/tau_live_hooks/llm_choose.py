"""The choice of model and request of the models ``tau``; nothing needs llm before it is called."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tau_live.core.errors import pass_on
from tau_live.core.settings.tables import DeclaredDecision, Point
from tau_live_hooks.common import Situation, few, situation_of
from tau_live_hooks.common_choices import Choices
from tau_live_hooks.llm_events import model_name
from tau_live_hooks.llm_models import RoutedRequest, options_for


class Requests:
    """Reads and changes the requests of the models ``tau``.

    Args:
        model_for: Returns the model that an option stands for, or ``None``.
    """

    def __init__(self, model_for: Callable[[object], Any]) -> None:
        self._model_for = model_for

    def value_at(self, point: Point, request: RoutedRequest) -> object:
        """Return a request's value at a point."""
        if point is Point.MODEL:
            return id(request.model)
        if point is Point.PROMPT:
            return request.instructions()
        if point is Point.PARAMS:
            return request.options_set()
        names = [tool.name for tool in few(request.prompt.tools)]
        stay = names if request.tools is None else [n for n in names if n in request.tools]
        return stay if names else None

    def is_own(self, request: RoutedRequest, model: object) -> bool:
        """Return whether an option is the request's own model."""
        model_of_option = self._model_for(model)
        return model_of_option is not None and model_name(model_of_option) == model_name(
            request.model
        )

    def put(self, point: Point, request: RoutedRequest, value: object) -> RoutedRequest:
        """Return the request with a choice in it.

        Raises:
            LookupError: There is no such model.
            ValueError: The model does not take these options.
        """
        if point is Point.MODEL:
            model = self._model_for(value)
            if model is None:
                raise LookupError(f"unknown model {value!r}")
            return replace(request, model=model, options=options_for(request, model))
        if point is Point.PROMPT:
            return replace(request, system=str(value))
        if point is Point.PARAMS:
            params = dict(value) if isinstance(value, Mapping) else {}
            return replace(
                request, options=request.model.Options(**{**request.options_set(), **params})
            )
        names = value if isinstance(value, list | tuple) else ()
        return replace(request, tools=tuple(str(name) for name in names))

    def instructions(self, request: RoutedRequest) -> str:
        """Return the prompt's own instructions."""
        return request.instructions()

    def suits(self, request: RoutedRequest, value: object) -> bool:
        """Return whether a model can answer a request: it exists, has its key, and supports it."""
        model = self._model_for(value)
        if model is None:
            return False
        try:
            options_for(request, model)
            return _supports(model, request) and _has_key(model, request)
        except Exception as error:  # noqa: BLE001  # whatever a model raises then, it is left out
            pass_on(error)
            return False


class RoutedChoices(Choices):
    """Decides one run; of the declared models it offers those that can answer."""

    _routed: tuple[Requests, RoutedRequest] | None = None

    def route(
        self,
        request: RoutedRequest,
        model_for: Callable[[object], Any],
        known: Situation,
    ) -> RoutedRequest:
        """Return the request with the choices in it, and report that it is sent.

        Args:
            request: The host's own.
            model_for: Returns the model that an option stands for, or ``None``.
            known: The situation of the run.
        """
        seam = Requests(model_for)
        self._routed = (seam, request)
        changed, pending = self.change_request(seam, request, _situation(request, known))
        pending.settle_sent(changed)
        return changed

    def _declaration(self, point: Point) -> DeclaredDecision | None:
        declared = super()._declaration(point)
        if declared is None or point is not Point.MODEL or self._routed is None:
            return declared
        seam, request = self._routed
        options = {
            name: model for name, model in declared.options.items() if seam.suits(request, model)
        }
        if not options:
            return None
        never = tuple(rule for rule in declared.never if rule.option in options)
        exploit = tuple(name for name in declared.exploit_only if name in options)
        return replace(declared, options=options, never=never, exploit_only=exploit)


def _situation(request: RoutedRequest, known: Situation) -> Situation:
    """Return the situation before a request is sent."""
    prompt = request.prompt
    return situation_of(
        {
            **known,
            "model": model_name(request.model) or "",
            "messages": len(prompt.messages),
            "tools": len(prompt.tools),
            "prompt_chars": len(prompt.prompt or ""),
            "attachments": len(prompt.attachments),
            "schema": bool(prompt.schema),
        }
    )


def _supports(model: Any, request: RoutedRequest) -> bool:
    """Return whether a model supports everything that a request contains."""
    from llm.models import _partition_tools

    prompt = request.prompt
    goes_on = any(item.role in {"assistant", "tool"} for item in few(prompt.messages))
    types = {item.resolve_type() for item in few(prompt.attachments)}
    _partition_tools(model, prompt.tools)  # raises where it does not run them
    return (
        (model.supports_schema or not prompt.schema)
        and (model.supports_tools or not any(item.implementation for item in few(prompt.tools)))
        and (model.supports_conversation or not goes_on)
        and types <= {*model.attachment_types}
    )


def _has_key(model: Any, request: RoutedRequest) -> bool:
    if request.key is not None and model.needs_key != getattr(request.model, "needs_key", None):
        return False
    return model.needs_key is None or bool(model.get_key(request.key))
