"""How a request of openai-agents is read and changed; nothing here imports the host."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from tau_live.settings.decisions import Point
from tau_live_hooks import openai_agents_events as said
from tau_live_hooks.common_choices import Choices
from tau_live_hooks.common_text import few, printed, situation_of
from tau_live_hooks.openai_agents_requests import Request

if TYPE_CHECKING:
    from tau_live_hooks.openai_agents_run import HostRun
    from tau_live_hooks.openai_agents_steps import Steps
    from tau_live_hooks.openai_agents_watch import Host


@dataclass(frozen=True, slots=True)
class RequestSeam:
    """Reads and changes what a model is asked; nothing of the host's is written to.

    Args:
        agent: Whose request it is.
        config: The run's configuration.
        host: How the host finds models and their settings.
    """

    agent: Any
    config: Any
    host: "Host"

    def said(self, point: Point, request: Request) -> object:
        """Return what a request says at a point, as a copy that can be compared."""
        if point is Point.MODEL:
            return id(request.model)
        if point is Point.PARAMS:
            settings = request.get("model_settings")
            return {one.name: getattr(settings, one.name) for one in fields(settings)}
        if point is Point.TOOLS:
            return [*said.names_of(request.get("tools"))] or None
        return request.get("system_instructions") or ""

    def is_own(self, request: Request, model: object) -> bool:
        """Say whether an option is the model that is asked anyway."""
        if isinstance(model, str):
            asked = getattr(self.config, "model", None) or getattr(self.agent, "model", None)
            return model in {asked, said.model_name(request.model)}
        return model is request.model

    def instructions(self, request: Request) -> str:
        """Return the agent's own instructions."""
        return printed(request.get("system_instructions") or "")

    def put(self, point: Point, request: Request, value: Any) -> Request:
        """Return the request with a choice in it.

        Raises:
            TypeError: It is no model, or there is no such setting.
        """
        if point is Point.MODEL:
            return self._asked_of(value, request)
        if point is Point.PARAMS:
            return request.put("model_settings", _over(request.get("model_settings"), value))
        if point is Point.TOOLS:
            tools = [
                tool for tool in few(request.get("tools")) if getattr(tool, "name", None) in value
            ]
            return request.put("tools", tools)
        return request.put("system_instructions", value)

    def _asked_of(self, model: object, request: Request) -> Request:
        """Return the request to another model, with the settings that the host has for that one.

        What the run has changed in the settings of its own model stays changed.
        """
        if not isinstance(model, str) and not hasattr(model, "get_response"):
            raise TypeError(f"not a model of openai-agents: {type(model).__name__}")
        config = replace(self.config, model=model)
        found = self.host.model(self.agent, config)
        before = self.host.settings(self.agent, self.config)
        settings = self.host.settings(self.agent, config)
        now = request.get("model_settings")
        changed = {
            one.name: getattr(now, one.name)
            for one in fields(before)
            if getattr(now, one.name) != getattr(before, one.name)
        }
        return request._replace(model=found).put("model_settings", replace(settings, **changed))


def _over(settings: Any, given: Mapping[str, object]) -> Any:
    """Return settings with others over them; the host would drop a name that it does not know."""
    unknown = given.keys() - {one.name for one in fields(settings)}
    if unknown:
        raise TypeError(f"not model settings: {', '.join(sorted(unknown))}")
    return replace(settings, **given)


class Deciding:
    """Decides what one run asks of models, and which of its tools run.

    Args:
        run: The run.
        steps: Its steps.
        choices: What decides.
    """

    def __init__(self, run: "HostRun", steps: "Steps", choices: Choices) -> None:
        self._run = run
        self._steps = steps
        self._choices = choices

    def changed(self, seam: RequestSeam, request: Request) -> Request:
        """Return the request as it was decided to be sent, and tell what was decided."""
        given, first = request.get("input"), self._run.asked.input
        known = {
            **self._known(),
            "messages": 1 if isinstance(given, str) else len(given or ()),
            "tools": len(request.get("tools") or ()),
            "prompt_chars": len(first) if isinstance(first, str) else 0,
        }
        situation = situation_of(known, self._run.metadata)
        changed, pending = self._choices.changed(seam, request, situation)
        pending.sent(changed)  # nothing stands between this and the model
        return changed

    def vetoed(self, context: Any, tool: Any) -> str | None:
        """Return what the model is told instead of a tool's result; ``None`` to let it run."""
        name = getattr(context, "tool_name", None) or getattr(tool, "name", "tool")
        known = {**self._known(), "tool": printed(name)}
        return self._choices.vetoed(situation_of(known, self._run.metadata))

    def _known(self) -> dict[str, object]:
        return {"agent": self._steps.book.agent or "agent", "step": self._steps.requests}
