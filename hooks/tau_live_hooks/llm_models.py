"""The models ``tau`` of llm: each passes on to another model, which the policy may choose.

They can do what their own model can, the one that is asked where nothing is chosen. With tau-live
off, absent, or in doubt they are nothing but another name for it.
"""

import sys
from typing import Any, ClassVar

import llm

from tau_live.errors import pass_on
from tau_live_hooks.llm_asked import Asked

_RUNS = "tau_live_hooks.llm_run"
"""Where the adapter keeps what it sees; imported by it alone, because much comes with it."""

MODEL_ID = "tau"
DEFAULT_ALIAS = "tau-default"
"""The alias of the model that is asked where nothing is chosen; without it llm's default is."""


class _Routing:
    """What both kinds of routing models share.

    What llm asks of a model before it is used is answered by the model that it passes on to.
    """

    kinds: ClassVar[tuple[type, ...]] = ()
    _found: dict[str, Any] | None = None
    _own: Any = None
    needs_key = None
    key = None
    key_env_var = None

    def _known(self) -> dict[str, Any]:
        raise NotImplementedError

    def models(self) -> dict[str, Any]:
        """Return every other model of its kind by name and alias, as they were at first."""
        if self._found is None:
            found = self._known()
            self._found = {
                name: one for name, one in found.items() if not isinstance(one, _Routing)
            }
        return self._found

    def meant(self, value: object) -> Any:
        """Return the model that an option stands for; ``None`` if there is none of this kind."""
        if isinstance(value, self.kinds) and not isinstance(value, _Routing):
            return value
        name = value if isinstance(value, str) else getattr(value, "model_id", None)
        return self.models().get(str(name))

    def own(self) -> Any:
        """Return the model that is asked where nothing is chosen.

        Raises:
            llm.UnknownModelError: There is none.
        """
        if self._own is None:
            self._own = self._asked_by_itself()
        return self._own

    def _asked_by_itself(self) -> Any:
        known = self.models()
        default = llm.get_default_model()
        for name in (DEFAULT_ALIAS, default, llm.DEFAULT_MODEL):
            if name in known:
                return known[name]
        missing = llm.DEFAULT_MODEL if default == MODEL_ID else default
        raise llm.UnknownModelError(
            f"tau has no model to use, neither {missing} nor one of the alias {DEFAULT_ALIAS}"
        )

    def _of_own(self, name: str, otherwise: object) -> Any:
        """Return what the own model says; where there is none, ``otherwise``."""
        try:
            return getattr(self.own(), name, otherwise)
        except Exception as error:  # noqa: BLE001  # listing models must not fail for one of them
            pass_on(error)
            return otherwise

    @property
    def Options(self) -> Any:  # noqa: N802  # the host's name of it
        """The options that it takes."""
        return self._of_own("Options", llm.Options)

    @property
    def can_stream(self) -> bool:
        """Whether it answers in pieces."""
        return bool(self._of_own("can_stream", otherwise=False))

    @property
    def supports_schema(self) -> bool:
        """Whether it keeps to a schema."""
        return bool(self._of_own("supports_schema", otherwise=False))

    @property
    def supports_tools(self) -> bool:
        """Whether it asks for tools."""
        return bool(self._of_own("supports_tools", otherwise=False))

    @property
    def supports_conversation(self) -> bool:
        """Whether it takes what was said before."""
        return bool(self._of_own("supports_conversation", otherwise=True))

    @property
    def attachment_types(self) -> Any:
        """What may be attached."""
        return self._of_own("attachment_types", frozenset())

    @property
    def supported_server_side_tools(self) -> Any:
        """The tools that its provider runs."""
        return self._of_own("supported_server_side_tools", ())

    def get_key(self, explicit_key: str | None = None) -> str | None:
        """Return a key that was given with the call; others are those of the model asked."""
        return explicit_key

    def execute(  # noqa: PLR0917  # the host's own; not a generator, so that what is returned is the other model's own
        self, prompt: Any, stream: Any, response: Any, conversation: Any, key: str | None = None
    ) -> Any:
        """Return the answer of the model that was chosen, or else of the own."""
        own = Asked(model=self.own(), prompt=prompt, key=key)
        asked = self._chosen(own, response)
        response.set_resolved_model(asked.model.model_id)
        given = asked.passed_on()
        if isinstance(asked.model, llm.KeyModel | llm.AsyncKeyModel):
            return asked.model.execute(
                given, stream, response, conversation, asked.model.get_key(asked.key)
            )
        return asked.model.execute(given, stream, response, conversation)

    def _chosen(self, own: Asked, response: Any) -> Any:
        """Return what is asked of which model; the host's own whenever in doubt."""
        adapter = sys.modules.get(_RUNS)
        run = None
        try:
            run = None if adapter is None else adapter.run_of(response)
            if run is None or run.choices is None:
                return own
            return run.choices.routed(own, self.meant, run.known())
        except Exception as error:  # noqa: BLE001  # the border to the host
            pass_on(error)
            if run is not None:
                run.undecided(error)
            return own


class Tau(_Routing, llm.KeyModel):
    """The model ``tau``."""

    model_id = MODEL_ID
    kinds = (llm.Model, llm.KeyModel)

    def _known(self) -> dict[str, Any]:
        return dict(llm.get_model_aliases())


class AsyncTau(_Routing, llm.AsyncKeyModel):
    """The async model ``tau``."""

    model_id = MODEL_ID
    kinds = (llm.AsyncModel, llm.AsyncKeyModel)

    def _known(self) -> dict[str, Any]:
        return dict(llm.get_async_model_aliases())
