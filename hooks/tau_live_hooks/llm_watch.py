"""How llm's responses and chains are driven: seen from outside, step by step, changing nothing.

Each wrapper does the host's own step exactly once, hands on what it gave, and raises what it
raised. What of ours fails is told to the runtime and goes no further.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Any

from tau_live.adapters import InForce
from tau_live_hooks.common_border import Border
from tau_live_hooks.common_text import is_a
from tau_live_hooks.llm_run import HostRun, belongs, enter, leave, run_of

chain_here: ContextVar[HostRun | None] = ContextVar("tau_live_llm_chain", default=None)
"""The chain that makes its next response here."""

Wrapped = Callable[..., Any]


class Watch:
    """Wraps the methods by which models are asked.

    Args:
        in_force: Returns the running system.
    """

    def __init__(self, in_force: InForce) -> None:
        self._border = Border(in_force)

    def streamed(self, wrapped: Wrapped, response: Any, args: Any, kwargs: Any) -> Any:
        """See what a model answers: for ``Response._iter_events``, which drives it once."""
        step = self._border.safely(self._asked, response)
        made = wrapped(*args, **kwargs)
        return made if step is None else self._pieces(step, made)

    def opened(self, wrapped: Wrapped, response: Any, args: Any, kwargs: Any) -> Any:
        """See what a model answers: for ``AsyncResponse._ensure_async_generator``."""
        step = self._border.safely(self._opens, response)
        if step is None:
            return wrapped(*args, **kwargs)
        token = self._border.safely(enter, step.run)
        try:
            done = wrapped(*args, **kwargs)
        except BaseException as error:
            self._border.safely(step.refused, error)
            raise
        finally:
            leave(token)
        self._border.safely(self._follow, step, response)
        return done

    def chained(self, wrapped: Wrapped, chain: Any, args: Any, kwargs: Any) -> Any:
        """See a chain from its first response to its last: for ``ChainResponse.responses``."""
        made = wrapped(*args, **kwargs)
        run = self._border.safely(self._chain, chain)
        return made if run is None else self._links(run, made)

    def achained(self, wrapped: Wrapped, chain: Any, args: Any, kwargs: Any) -> Any:
        """See a chain from its first response to its last: for its async twin."""
        made = wrapped(*args, **kwargs)
        run = self._border.safely(self._chain, chain)
        return made if run is None else self._alinks(run, made)

    def _pieces(self, step: "_Step", made: Iterator[Any]) -> Iterator[Any]:
        try:
            while True:
                token = self._border.safely(enter, step.run)
                try:
                    piece = next(made)
                except StopIteration:
                    break
                finally:
                    leave(token)
                if not step.is_heard:
                    self._border.safely(step.heard)
                yield piece
        except BaseException as error:
            self._border.safely(step.refused, error)
            raise
        self._border.safely(step.answered)

    async def _apieces(self, step: "_Step", made: Any) -> AsyncIterator[Any]:
        try:
            while True:
                token = self._border.safely(enter, step.run)
                try:
                    piece = await made.__anext__()
                except StopAsyncIteration:
                    break
                finally:
                    leave(token)
                if not step.is_heard:
                    self._border.safely(step.heard)
                yield piece
        except BaseException as error:
            self._border.safely(step.refused, error)
            if is_a(error, GeneratorExit) and hasattr(made, "aclose"):
                await made.aclose()
            raise
        self._border.safely(step.answered)

    def _links(self, run: HostRun, made: Iterator[Any]) -> Iterator[Any]:
        try:
            while True:
                token = chain_here.set(run)
                try:
                    response = next(made)
                except StopIteration:
                    break
                finally:
                    leave(token)
                self._border.safely(self._linked, run, response)
                yield response
        except BaseException as error:
            self._border.safely(run.end, error)
            raise
        self._border.safely(run.end, None)

    async def _alinks(self, run: HostRun, made: Any) -> AsyncIterator[Any]:
        try:
            while True:
                token = chain_here.set(run)
                try:
                    response = await made.__anext__()
                except StopAsyncIteration:
                    break
                finally:
                    leave(token)
                self._border.safely(self._linked, run, response)
                yield response
        except BaseException as error:
            self._border.safely(run.end, error)
            if is_a(error, GeneratorExit) and hasattr(made, "aclose"):
                await made.aclose()
            raise
        self._border.safely(run.end, None)

    def _opens(self, response: Any) -> "_Step | None":
        return None if hasattr(response, "_generator") else self._asked(response)

    def _follow(self, step: "_Step", response: Any) -> None:
        response._generator = self._apieces(step, response._generator)  # noqa: SLF001  # as it does

    def _chain(self, chain: Any) -> HostRun | None:
        return (
            None
            if self._border.in_force() is None
            else HostRun(self._border.in_force, "chain", chain)
        )

    def _linked(self, run: HostRun, response: Any) -> None:
        belongs(response, run)
        run.begin(response.id)

    def _asked(self, response: Any) -> "_Step | None":
        if self._border.in_force() is None:
            return None
        run = run_of(response)
        if run is None:
            run = HostRun(self._border.in_force, "prompt", response)
            belongs(response, run)
        if run.begin(response.id) is None:
            return None
        return _Step(run, response, run.ask(response))


class _Step:
    """One time that a response asks its model.

    Args:
        run: What it belongs to.
        response: Who asks.
        span_id: The step's id.

    Attributes:
        run: The same.
        is_heard: Whether a piece of the answer has come.
    """

    def __init__(self, run: HostRun, response: Any, span_id: str) -> None:
        self.run = run
        self._response = response
        self._span_id = span_id
        self.is_heard = False

    def heard(self) -> None:
        """Know that a piece of the answer came."""
        self.is_heard = True
        if self.run.book is not None:
            self.run.book.heard(self._span_id)

    def answered(self) -> None:
        """Tell that the model has answered."""
        self.run.answer(self._response, self._span_id)

    def refused(self, error: BaseException) -> None:
        """Tell that it did not, or that nobody reads on."""
        self.run.refuse(self._span_id, error)
