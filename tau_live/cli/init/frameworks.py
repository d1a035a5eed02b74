"""The hosts that `tau-live init` knows: their packages, constructors and decision points."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tau_live.core.settings.tables import Point

_MOST = (Point.MODEL, Point.PROMPT, Point.PARAMS, Point.TOOLS, Point.TOOL_GATE)
_ALL = (*_MOST, Point.RETRY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A host as its users' sources show it.

    Attributes:
        host: Its name.
        packages: Its packages, any of which is enough; ``oldest`` is of the first.
        oldest: The oldest version that its adapter is tested with.
        modules: The beginnings of its imports; ``langchain_`` also means ``langchain_openai``.
        points: The decision points of its adapter.
        agents: The names of functions and classes that make an agent.
        models: Those that make a model, with its name as the first argument or a keyword.
        prompts: The keyword arguments for instructions.
        qualified: Whether an option has to name the class of a model where there are several.
    """

    host: str
    packages: tuple[str, ...]
    oldest: str
    modules: tuple[str, ...]
    points: tuple[Point, ...] = ()
    agents: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    prompts: frozenset[str] = frozenset({"instructions", "system_prompt"})
    qualified: bool = False

    def imports(self, module: str) -> bool:
        """Return whether an import is one of this host."""
        top = module.partition(".")[0]
        return any(
            top.startswith(prefix)
            if prefix.endswith("_")
            else top == prefix or module.startswith(f"{prefix}.")
            for prefix in self.modules
        )


_KNOWN = (
    Framework(
        host="langchain",
        packages=("langchain", "langchain-core", "langgraph"),
        oldest="1.4.7",
        modules=("langchain", "langgraph", "langchain_"),
        points=_ALL,
        agents=frozenset({"create_agent", "create_react_agent", "StateGraph"}),
        models=frozenset({"init_chat_model", "ChatOpenAI", "ChatAnthropic", "ChatOllama"}),
        prompts=frozenset({"system_prompt", "prompt"}),
    ),
    Framework(
        host="llm",
        packages=("llm",),
        oldest="0.36",
        modules=("llm",),
        points=_MOST,
        models=frozenset({"get_model", "get_async_model"}),
        prompts=frozenset({"system"}),
    ),
    Framework(
        host="openai-agents",
        packages=("openai-agents",),
        oldest="0.24",
        modules=("agents",),
        points=_MOST,
        agents=frozenset({"Agent"}),
        models=frozenset({"OpenAIChatCompletionsModel", "OpenAIResponsesModel", "LitellmModel"}),
    ),
    Framework(
        host="opentelemetry",
        packages=("opentelemetry-sdk",),
        oldest="1.20",
        modules=("opentelemetry.sdk",),
    ),
    Framework(
        host="pydantic-ai",
        packages=("pydantic-ai-slim", "pydantic-ai"),
        oldest="2.16",
        modules=("pydantic_ai",),
        points=_ALL,
        agents=frozenset({"Agent"}),
    ),
    Framework(
        host="smolagents",
        packages=("smolagents",),
        oldest="1.24",
        modules=("smolagents",),
        points=_MOST,
        agents=frozenset({"CodeAgent", "ToolCallingAgent"}),
        models=frozenset(
            {
                "AzureOpenAIModel", "InferenceClientModel", "LiteLLMModel", "MLXModel",
                "OpenAIModel", "OpenAIServerModel", "TransformersModel", "VLLMModel",
            }
        ),
        qualified=True,
    ),
)  # fmt: skip

FRAMEWORKS: Mapping[str, Framework] = MappingProxyType(
    {framework.host: framework for framework in _KNOWN}
)
"""The frameworks by host."""


def older(version: str | None, oldest: str | None) -> bool:
    """Return whether a version is before another, by its leading numbers alone."""
    numbers = _numbers(version or "")
    return oldest is not None and bool(numbers) and numbers < _numbers(oldest)


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
