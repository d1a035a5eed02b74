"""What a node of a graph asks of a model by itself, as a request that can be decided.

It has the attributes of the request of ``create_agent``, so that it is read and changed alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tau_live_hooks.common_text import few

GRAPH = "langgraph"
"""What ``ls_integration`` is in the metadata of a graph that its author drew."""

WAYS = ("invoke", "ainvoke", "stream", "astream")
"""How a model is asked, as methods of the host's ``BaseChatModel``."""

_BOUND = frozenset({"tools", "tool_choice", "stop", "response_format", "config"})
_SHAPES = ("tool_choice", "response_format", "ls_structured_output_format")


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A call of a model.

    Attributes:
        model: Which one.
        asked: What it is asked.
        given: With which named arguments.
    """

    model: Any
    asked: Any
    given: Mapping[str, Any]

    @property
    def messages(self) -> list[Any]:
        """The messages, where it is asked with a list of them."""
        return self.asked if isinstance(self.asked, list) else []

    @property
    def system_message(self) -> Any:
        """The first message, if it is the system's."""
        first = next(iter(self.messages), None)
        return first if getattr(first, "type", None) == "system" else None

    @property
    def has_prompt(self) -> bool:
        """Whether its instructions can be other ones."""
        return bool(self.messages)

    @property
    def tools(self) -> list[Any]:
        """The tools it may ask for, unless its answer has to have the shape of one."""
        shaped = any(self.given.get(name) for name in _SHAPES)
        return [] if shaped else few(self.given.get("tools"))

    @property
    def model_settings(self) -> dict[str, Any]:
        """What it is asked with besides."""
        return {name: one for name, one in self.given.items() if name not in _BOUND}

    def override(self, **changed: Any) -> "RawRequest":
        """Return the request with something else in it.

        Raises:
            TypeError: What is bound to the model is written for models of its own class.
        """
        if "model" in changed:
            other = changed["model"]
            bound = any(self.given.get(name) for name in ("tools", *_SHAPES))
            if bound and type(other) is not type(self.model):
                raise TypeError(f"its tools are written for {type(self.model).__name__}")
            return replace(self, model=other)
        if "model_settings" in changed:
            return replace(self, given={**self.given, **changed["model_settings"]})
        if "tools" in changed:
            return replace(self, given={**self.given, "tools": changed["tools"]})
        rest = self.messages[1:] if self.system_message is not None else self.messages
        return replace(self, asked=[changed["system_message"], *rest])
