"""Fields of our events from smolagents' objects; nothing here imports the host.

Everything is read by name and may be missing: an older or newer host then reports less.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tau_live.core import events as ev
from tau_live.core.sanitize import plain
from tau_live_hooks.common import Situation, as_text, content_of, few, positive_counts, tool_call

ANSWER = "final_answer"
"""The host's tool by which a model gives its final answer."""

_NOT_PARAMS = ("messages", "stop_sequences", "response_format", "tools_to_call_from")
"""The arguments of ``Model.generate`` that are no settings of the model."""

_PROVIDERS: Mapping[str, str] = {"OpenAIModel": "openai", "AzureOpenAIModel": "azure"}


def agent_name(agent: Any) -> str:
    """Return an agent's name; its class's where it has none."""
    return as_text(getattr(agent, "name", None) or type(agent).__name__)


def model_name(model: Any) -> str:
    """Return the name of a model; its class's where it has none."""
    name = getattr(model, "model_id", None)
    return name if isinstance(name, str) and name else type(model).__name__


def tool_names(agent: Any) -> list[str]:
    """Return the tools that an agent may choose from, other agents among them."""
    own = [*few(getattr(agent, "tools", ())), *few(getattr(agent, "managed_agents", ()))]
    return [as_text(name) for name in own if name != ANSWER]


def names_of(tools: Any) -> list[str]:
    """Return the names of tools as they are listed to a model."""
    names = [getattr(tool, "name", None) for tool in few(tools)]
    return [name for name in names if isinstance(name, str) and name != ANSWER]


def is_answer(tool: Any) -> bool:
    """Return whether a tool is the host's own for the final answer, which returns its argument."""
    kind = type(tool)
    return kind.__name__ == "FinalAnswerTool" and kind.__module__.partition(".")[0] == "smolagents"


def tool_kind(tool: Any) -> str:
    """Return the kind of a tool: ``agent``, ``mcp`` for one of a server, or ``function``."""
    if hasattr(tool, "execute_tool_call") or hasattr(tool, "managed_agents"):
        return "agent"
    return "mcp" if "mcpadapt" in type(tool).__module__ else "function"


def params_of(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the model that are given with a request."""
    return {name: value for name, value in kwargs.items() if name not in _NOT_PARAMS}


def request_of(model: Any, kwargs: Mapping[str, Any], *, streaming: bool) -> ev.Fields:
    """Return the fields of a model request's start."""
    own = getattr(model, "kwargs", None)
    settings = {**params_of(kwargs), **(own if isinstance(own, Mapping) else {})}
    raw: dict[str, object] = {"class": type(model).__name__}
    if isinstance(kwargs.get("messages"), list):
        raw["messages"] = len(kwargs["messages"])
    if kwargs.get("stop_sequences"):
        raw["stop_sequences"] = plain(kwargs["stop_sequences"])
    if kwargs.get("response_format"):
        raw["response_format"] = True
    return {
        "model_requested": model_name(model),
        "provider": provider_of(model),
        "params": plain(settings),
        "tools_offered": tuple(names_of(kwargs.get("tools_to_call_from"))),
        "streaming": streaming,
        "raw": raw,
    }


def provider_of(model: Any) -> str | None:
    """Return the provider of a model, if known."""
    client = getattr(model, "client_kwargs", None)
    provider = client.get("provider") if isinstance(client, Mapping) else None
    return provider if isinstance(provider, str) else _PROVIDERS.get(type(model).__name__)


def response_of(message: Any, model: Any) -> ev.Fields:
    """Return the fields of a model request's end."""
    raw = getattr(message, "raw", None)
    used, id_ = getattr(raw, "model", None), getattr(raw, "id", None)
    choices = few(getattr(raw, "choices", None))
    reasons = [getattr(choice, "finish_reason", None) for choice in choices]
    calls = few(getattr(message, "tool_calls", None))
    return {
        "model_used": str.__str__(used) if isinstance(used, str) else model_name(model),
        "response_id": str.__str__(id_) if isinstance(id_, str) else None,
        "finish_reasons": tuple(
            str.__str__(reason) for reason in reasons if isinstance(reason, str)
        ),
        "tool_calls": tuple(
            tool_call(call.id, call.function.name, call.function.arguments) for call in calls
        ),
        "output": content_of(getattr(message, "content", None) or None),
    }


def usage_of(message: Any) -> dict[str, float]:
    """Return the tokens of a request or step by the host's own names, without those that are 0."""
    usage = getattr(message, "token_usage", None)
    return positive_counts(
        {name: getattr(usage, name, None) for name in ("input_tokens", "output_tokens")}
    )


def arguments_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the arguments of a tool's call, as one value."""
    named = {name: value for name, value in kwargs.items() if name != "sanitize_inputs_outputs"}
    if not args:
        return named
    return args[0] if len(args) == 1 and not named else [*args, *([named] if named else [])]


def messages_of(step: Any) -> Iterator[ev.Fields]:
    """Yield the fields of each message that a step of the host's memory adds."""
    for role, name in (
        ("system", "system_prompt"),
        ("user", "task"),
        ("assistant", "plan"),
        ("assistant", "model_output"),
        ("tool", "observations"),
    ):
        content = getattr(step, name, None)
        if content is not None:
            yield {"role": role, "content": content_of(content), "raw": {"part": name}}
    error = getattr(step, "error", None)
    if error is not None:
        raw = {"part": "error", "type": type(error).__name__}
        yield {"role": "tool", "content": content_of(str(error)), "raw": raw}


def known_of(arguments: object, *, texts: bool) -> Situation:
    """Return those of a run's ``additional_args`` that its situation may contain.

    They are part of the prompt, so texts among them are only taken where texts are stored.
    """
    pairs: Iterable[tuple[Any, Any]] = arguments.items() if isinstance(arguments, Mapping) else ()
    kinds = (str, bool, int, float) if texts else (bool, int, float)
    return {name: value for name, value in pairs if isinstance(value, kinds)}
