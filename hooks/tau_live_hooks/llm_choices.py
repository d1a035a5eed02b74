"""What the models ``tau`` ask of which model; nothing here needs llm before it is called."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tau_live.errors import pass_on
from tau_live.settings.decisions import DeclaredDecision, Point
from tau_live_hooks.common_choices import Choices
from tau_live_hooks.common_text import few, situation_of
from tau_live_hooks.llm_asked import Asked, options_for
from tau_live_hooks.llm_events import model_name


class Requests:
    """How what is asked is read and changed.

    Args:
        meant: Returns the model that an option stands for, or ``None``.
    """

    def __init__(self, meant: Callable[[object], Any]) -> None:
        self._meant = meant

    def said(self, point: Point, request: Asked) -> object:
        """Return what is asked at a point."""
        if point is Point.MODEL:
            return id(request.model)
        if point is Point.PROMPT:
            return request.instructions()
        if point is Point.PARAMS:
            return request.given()
        names = [tool.name for tool in few(request.prompt.tools)]
        stay = names if request.tools is None else [n for n in names if n in request.tools]
        return stay if names else None

    def is_own(self, request: Asked, model: object) -> bool:
        """Say whether an option is the model that is asked anyway."""
        found = self._meant(model)
        return found is not None and model_name(found) == model_name(request.model)

    def put(self, point: Point, request: Asked, value: object) -> Asked:
        """Return what is asked with a choice in it.

        Raises:
            LookupError: There is no such model.
            ValueError: The model does not take these options.
        """
        if point is Point.MODEL:
            model = self._meant(value)
            if model is None:
                raise LookupError(f"unknown model {value!r}")
            return replace(request, model=model, options=options_for(request, model))
        if point is Point.PROMPT:
            return replace(request, system=str(value))
        if point is Point.PARAMS:
            over = dict(value) if isinstance(value, Mapping) else {}
            return replace(request, options=request.model.Options(**{**request.given(), **over}))
        names = value if isinstance(value, list | tuple) else ()
        return replace(request, tools=tuple(str(name) for name in names))

    def instructions(self, request: Asked) -> str:
        """Return the prompt's own instructions."""
        return request.instructions()

    def suits(self, request: Asked, value: object) -> bool:
        """Say whether a model can be asked this: it is there, has its key, and takes all of it."""
        model = self._meant(value)
        if model is None:
            return False
        try:
            options_for(request, model)
            return _takes(model, request) and _has_key(model, request)
        except Exception as error:  # noqa: BLE001  # whatever a model says then, it is not asked
            pass_on(error)
            return False


class RoutedChoices(Choices):
    """Decides one run; of the models that are declared, those are offered that can be asked."""

    _reach: tuple[Requests, Asked] | None = None

    def routed(
        self, request: Asked, meant: Callable[[object], Any], known: Mapping[str, object]
    ) -> Asked:
        """Return what is to be asked of which model, and tell that it is.

        Args:
            request: What the host would ask.
            meant: Returns the model that an option stands for, or ``None``.
            known: What is known of the run.
        """
        seam = Requests(meant)
        self._reach = (seam, request)
        changed, pending = self.changed(seam, request, _situation(request, known))
        pending.sent(changed)
        return changed

    def _declared(self, point: Point) -> DeclaredDecision | None:
        told = super()._declared(point)
        if told is None or point is not Point.MODEL or self._reach is None:
            return told
        seam, request = self._reach
        left = {name: one for name, one in told.options.items() if seam.suits(request, one)}
        never = tuple(one for one in told.never if one.option in left)
        exploit = tuple(name for name in told.exploit_only if name in left)
        return replace(told, options=left, never=never, exploit_only=exploit) if left else None


def _situation(request: Asked, known: Mapping[str, object]) -> dict[str, object]:
    """Return what is known before something is chosen."""
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


def _takes(model: Any, request: Asked) -> bool:
    """Say whether a model can do what its host would not ask it otherwise."""
    prompt = request.prompt
    was_said = any(one.role in {"assistant", "tool"} for one in few(prompt.messages))
    types = {one.resolve_type() for one in few(prompt.attachments)}
    return (
        (model.supports_schema or not prompt.schema)
        and (model.supports_tools or not any(one.implementation for one in few(prompt.tools)))
        and (model.supports_conversation or not was_said)
        and types <= {*model.attachment_types}
        and _runs_server_side(model, prompt.tools)
    )


def _runs_server_side(model: Any, tools: Any) -> bool:
    from llm.models import _partition_tools

    _partition_tools(model, tools)  # raises where it does not
    return True


def _has_key(model: Any, request: Asked) -> bool:
    if request.key is not None and model.needs_key != getattr(request.model, "needs_key", None):
        return False
    return model.needs_key is None or bool(model.get_key(request.key))
