"""The models ``tau`` of llm: each passes prompts on to another model, which the policy may choose.

They can do what their own model can, the one that answers where nothing is chosen. With tau-live
off, absent, or in doubt they are nothing but another name for it.
"""

import copy
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import llm

from tau_live.core.errors import pass_on


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedRequest:
    """A prompt for a model, with the choices in place of the host's own.

    Attributes:
        model: The model that answers.
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

    def options_set(self) -> dict[str, object]:
        """Return the options as they were given."""
        options = self.prompt.options if self.options is None else self.options
        return dict(options.model_dump(exclude_unset=True, exclude_none=True))

    def instructions(self) -> str:
        """Return the instructions, also where only the messages have them."""
        if self.system is not None:
            return self.system
        first = next(
            (message for message in self.prompt.messages if message.role == "system"), None
        )
        text = "\n".join(getattr(part, "text", "") for part in first.parts) if first else ""
        return str(self.prompt.system or text)

    def to_prompt(self) -> Any:
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


def options_for(request: RoutedRequest, model: Any) -> Any:
    """Return the options of the request, as another model takes them."""
    options = request.prompt.options if request.options is None else request.options
    same = isinstance(options, model.Options)
    return request.options if same else model.Options(**request.options_set())


def _instruct(prompt: Any, text: str) -> None:
    """Put other instructions into a prompt, and into its messages where it has them."""
    from llm import Message
    from llm.parts import TextPart

    if prompt._explicit_messages is not None:  # noqa: SLF001  # the host has no other way to it
        rest = [message for message in prompt.messages if message.role != "system"]
        prompt._explicit_messages = [  # noqa: SLF001
            Message(role="system", parts=[TextPart(text=text)]),
            *rest,
        ]
    prompt._system = text  # noqa: SLF001
    prompt.system_fragments = []


_RUNS = "tau_live_hooks.llm_record"
"""The module in which the adapter keeps its runs; only the adapter imports it: it costs much."""

MODEL_ID = "tau"
DEFAULT_ALIAS = "tau-default"
"""The alias of the model that answers where nothing is chosen; without it llm's default does."""


def _of_own(name: str, default: object) -> Any:
    """Return a property that reads the own model's attribute; ``default`` where there is none."""

    def read(routing: "_Routing") -> Any:
        try:
            return getattr(routing.own(), name, default)
        except Exception as error:  # noqa: BLE001  # listing models must not fail for one of them
            pass_on(error)
            return default

    return property(read)


class _Routing:
    """The common part of both kinds of routing models.

    The attributes that llm reads of a model before using it are those of its own model.
    """

    kinds: ClassVar[tuple[type, ...]] = ()
    _others: dict[str, Any] | None = None
    _own: Any = None
    needs_key = None
    key = None
    key_env_var = None

    def _registered_models(self) -> dict[str, Any]:
        raise NotImplementedError

    def models(self) -> dict[str, Any]:
        """Return every other model of its kind by name and alias, as first listed."""
        if self._others is None:
            known = self._registered_models()
            self._others = {
                name: model for name, model in known.items() if not isinstance(model, _Routing)
            }
        return self._others

    def model_for(self, value: object) -> Any:
        """Return the model that an option stands for; ``None`` if there is none of this kind."""
        if isinstance(value, self.kinds) and not isinstance(value, _Routing):
            return value
        name = value if isinstance(value, str) else getattr(value, "model_id", None)
        return self.models().get(str(name))

    def own(self) -> Any:
        """Return the model that answers where nothing is chosen.

        Raises:
            llm.UnknownModelError: There is none.
        """
        if self._own is None:
            self._own = self._default_model()
        return self._own

    def _default_model(self) -> Any:
        known = self.models()
        default = llm.get_default_model()
        for name in (DEFAULT_ALIAS, default, llm.DEFAULT_MODEL):
            if name in known:
                return known[name]
        missing = llm.DEFAULT_MODEL if default == MODEL_ID else default
        raise llm.UnknownModelError(
            f"tau has no model to use, neither {missing} nor one of the alias {DEFAULT_ALIAS}"
        )

    Options = _of_own("Options", llm.Options)
    can_stream = _of_own("can_stream", default=False)
    supports_schema = _of_own("supports_schema", default=False)
    supports_tools = _of_own("supports_tools", default=False)
    supports_conversation = _of_own("supports_conversation", default=True)
    attachment_types = _of_own("attachment_types", frozenset())
    supported_server_side_tools = _of_own("supported_server_side_tools", ())

    def get_key(self, explicit_key: str | None = None) -> str | None:
        """Return a key that was given with the call; others are those of the model that answers."""
        return explicit_key

    def execute(  # noqa: PLR0917  # the host's own; not a generator, so that what is returned is the other model's own
        self, prompt: Any, stream: Any, response: Any, conversation: Any, key: str | None = None
    ) -> Any:
        """Return the answer of the model that was chosen, or else of the own."""
        own = RoutedRequest(model=self.own(), prompt=prompt, key=key)
        request = self._choose(own, response)
        response.set_resolved_model(request.model.model_id)
        routed = request.to_prompt()
        if isinstance(request.model, llm.KeyModel | llm.AsyncKeyModel):
            return request.model.execute(
                routed, stream, response, conversation, request.model.get_key(request.key)
            )
        return request.model.execute(routed, stream, response, conversation)

    def _choose(self, own: RoutedRequest, response: Any) -> Any:
        """Return the chosen request; the host's own whenever in doubt."""
        adapter = sys.modules.get(_RUNS)
        run = None
        try:
            run = None if adapter is None else adapter.run_of(response)
            if run is None or run.choices is None:
                return own
            return run.choices.route(own, self.model_for, run.situation())
        except Exception as error:  # noqa: BLE001  # the border to the host
            pass_on(error)
            if run is not None:
                run.report_failure(error)
            return own


class Tau(_Routing, llm.KeyModel):
    """The model ``tau``."""

    model_id = MODEL_ID
    kinds = (llm.Model, llm.KeyModel)

    def _registered_models(self) -> dict[str, Any]:
        return dict(llm.get_model_aliases())


class AsyncTau(_Routing, llm.AsyncKeyModel):
    """The async model ``tau``."""

    model_id = MODEL_ID
    kinds = (llm.AsyncModel, llm.AsyncKeyModel)

    def _registered_models(self) -> dict[str, Any]:
        return dict(llm.get_async_model_aliases())
