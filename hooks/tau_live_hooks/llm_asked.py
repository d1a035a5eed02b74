"""What the models ``tau`` pass on; needs nothing of ours, because they do so while we are off."""

import copy
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A prompt for a model, with what was chosen over what the host would ask.

    Attributes:
        model: Who is asked.
        prompt: The host's own prompt, which stays as it is.
        key: A key that was given with the call.
        options: The options of the model; ``None`` leaves the prompt's.
        system: The instructions; ``None`` leaves the prompt's.
        tools: The names of the tools that stay; ``None`` leaves all.
    """

    model: Any
    prompt: Any
    key: str | None = None
    options: Any = None
    system: str | None = None
    tools: tuple[str, ...] | None = None

    def given(self) -> dict[str, object]:
        """Return the options as they were given."""
        options = self.prompt.options if self.options is None else self.options
        return dict(options.model_dump(exclude_unset=True, exclude_none=True))

    def instructions(self) -> str:
        """Return the instructions, also where only the messages have them."""
        if self.system is not None:
            return self.system
        first = next((one for one in self.prompt.messages if one.role == "system"), None)
        told = "\n".join(getattr(part, "text", "") for part in first.parts) if first else ""
        return str(self.prompt.system or told)

    def passed_on(self) -> Any:
        """Return the prompt for the model; a copy, because the host logs its own."""
        prompt = copy.copy(self.prompt)
        prompt.model = self.model
        if self.options is not None:
            prompt.options = self.options
        if self.system is not None:
            _instruct(prompt, self.system)
        if self.tools is not None:
            prompt.tools = [tool for tool in prompt.tools if tool.name in self.tools]
        return prompt


def options_for(request: Asked, model: Any) -> Any:
    """Return the options of what is asked, as another model takes them."""
    options = request.prompt.options if request.options is None else request.options
    same = isinstance(options, model.Options)
    return request.options if same else model.Options(**request.given())


def _instruct(prompt: Any, text: str) -> None:
    """Put other instructions into a prompt, and into its messages where it has them."""
    from llm import Message
    from llm.parts import TextPart

    if prompt._explicit_messages is not None:  # noqa: SLF001  # the host has no other way to it
        rest = [one for one in prompt.messages if one.role != "system"]
        prompt._explicit_messages = [  # noqa: SLF001
            Message(role="system", parts=[TextPart(text=text)]),
            *rest,
        ]
    prompt._system = text  # noqa: SLF001
    prompt.system_fragments = []
