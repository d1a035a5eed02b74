"""What stands where openai-agents expects a model, and where it expects hooks: theirs, seen.

Both are proxies, so that whatever the host or anybody else asks of them is answered by theirs, in
this version of the host and in later ones. What of ours fails goes no further.
"""

from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import wrapt

from tau_live.errors import suppress
from tau_live_hooks.openai_agents_requests import Call, Request

Safely = Callable[..., Any]
"""Returns what a step of ours returns, or ``None`` if it fails."""

Asking = ContextVar[Call | None]
"""The request that goes on, by which the span that the model opens for it is known."""


class SeenModel(wrapt.ObjectProxy):  # type: ignore[type-arg]  # older ones take none
    """A model whose requests are told, and decided where they may be.

    Args:
        model: The host's.
        begin: Returns the call that a request begins, as it was decided; may fail.
        safely: Calls what is ours.
        asking: The request that goes on.
    """

    def __init__(
        self, model: Any, begin: Callable[..., Call | None], safely: Safely, asking: Asking
    ) -> None:
        super().__init__(model)
        self._self_begin = begin
        self._self_safely = safely
        self._self_asking = asking
        self._self_others: list[Any] = []
        self._self_asked = model

    async def get_response(self, *args: Any, **named: Any) -> Any:
        """Ask, and see how that ends."""
        call = self._self_called(args, named, streaming=False)
        if call is None:
            return await self.__wrapped__.get_response(*args, **named)
        token = self._self_asking.set(call)
        request = call.request
        try:
            response = await request.model.get_response(*request.args, **request.named)
        except BaseException as raised:
            self._self_safely(call.refused, raised)
            raise
        finally:
            self._self_reset(token)
        self._self_safely(call.answered, response)
        return response

    def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        """Ask for an answer in pieces, and see how that ends."""
        call = self._self_called(args, named, streaming=True)
        if call is None:
            theirs: AsyncIterator[Any] = self.__wrapped__.stream_response(*args, **named)
            return theirs
        request = call.request
        inner = request.model.stream_response(*request.args, **request.named)
        return self._self_pieces(inner, call)

    def get_retry_advice(self, request: Any) -> Any:
        """Ask the model that failed."""
        return self._self_asked.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        """Clean up after every model that was asked in this one's place, too."""
        for other in self._self_others:
            with suppress(Exception):
                await other._cleanup_on_run_end(owner)  # noqa: SLF001  # as the host does
        await self.__wrapped__._cleanup_on_run_end(owner)  # noqa: SLF001

    def _self_called(self, args: Any, named: Any, *, streaming: bool) -> Call | None:
        request = Request(self.__wrapped__, args, named)
        call: Call | None = self._self_safely(self._self_begin, request, streaming)
        self._self_asked = self.__wrapped__ if call is None else call.request.model
        if self._self_asked is not self.__wrapped__ and not any(
            self._self_asked is other for other in self._self_others
        ):
            self._self_others.append(self._self_asked)
        return call

    async def _self_pieces(self, inner: AsyncIterator[Any], call: Call) -> AsyncIterator[Any]:
        error: BaseException | None = None
        try:
            while True:
                token = self._self_asking.set(call)
                try:
                    piece = await inner.__anext__()
                except StopAsyncIteration:
                    return
                finally:
                    self._self_reset(token)
                self._self_safely(call.came, piece)
                yield piece
        except BaseException as raised:
            error = raised
            raise
        finally:
            try:
                await _closed(inner)
            finally:
                self._self_safely(call.stopped, error)
                del error

    def _self_reset(self, token: Any) -> None:
        with suppress(ValueError):  # it goes on in another context than it began in
            self._self_asking.reset(token)


async def _closed(stream: AsyncIterator[Any]) -> None:
    """Close a stream as its host would: without a word."""
    with suppress(Exception):
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


class SeenHooks(wrapt.ObjectProxy):  # type: ignore[type-arg]  # older ones take none
    """Hooks of a run, ours before theirs.

    Args:
        hooks: The user's, or the host's that do nothing.
        told: Takes the name of a callback and what it is given.
        safely: Calls what is ours.
    """

    def __init__(self, hooks: Any, told: Callable[..., None], safely: Safely) -> None:
        super().__init__(hooks)
        self._self_told = told
        self._self_safely = safely

    async def on_agent_start(self, *args: Any, **named: Any) -> None:
        """See that an agent begins."""
        self._self_tell("agent_start", args, named)
        await self.__wrapped__.on_agent_start(*args, **named)

    async def on_tool_start(self, *args: Any, **named: Any) -> None:
        """See that a tool is called."""
        self._self_tell("tool_start", args, named)
        await self.__wrapped__.on_tool_start(*args, **named)

    async def on_tool_end(self, *args: Any, **named: Any) -> None:
        """See what it returned."""
        self._self_tell("tool_end", args, named)
        await self.__wrapped__.on_tool_end(*args, **named)

    async def on_handoff(self, *args: Any, **named: Any) -> None:
        """See that another agent takes over."""
        self._self_tell("handoff", args, named)
        await self.__wrapped__.on_handoff(*args, **named)

    def _self_tell(self, name: str, args: Any, named: Any) -> None:
        self._self_safely(partial(self._self_told, name, *args, **named))
