"""Requests of models as the wraps see them, and change them; nothing at import needs the host."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tau_live.gate import Kind
from tau_live_hooks import smolagents_events as said
from tau_live_hooks.common_border import Border
from tau_live_hooks.smolagents_choices import Request, RequestSeam, with_prompt
from tau_live_hooks.smolagents_driving import driven
from tau_live_hooks.smolagents_places import at
from tau_live_hooks.smolagents_run import Place, here
from tau_live_hooks.smolagents_witnesses import ModelStream

if TYPE_CHECKING:
    from tau_live_hooks.common_choices import Pending


class _Asked(NamedTuple):
    """One request that goes on.

    Attributes:
        place: Where it is made.
        request: What is sent.
        host: What was to be sent by the host, and is if it is the same.
        span: The id of its step.
    """

    place: Place
    request: Request
    host: Request
    span: str

    def send(self, wrapped: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Ask the model that is to be asked."""
        if self.request is self.host:
            return wrapped(*args, **kwargs)
        if self.request.model is self.host.model:
            return wrapped(*self.request.args, **self.request.kwargs)
        method = getattr(self.request.model, self.request.method)
        return method(*self.request.args, **self.request.kwargs)


class Requests:
    """Sees what models are asked, and decides it.

    Args:
        border: What every step of ours passes.
    """

    def __init__(self, border: Border) -> None:
        self._border = border
        self._safely = border.safely
        self._seam = RequestSeam()

    def generated(self, wrapped: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        """See a request that is answered at once."""
        asked = self._safely(self._asked, model, "generate", args, kwargs)
        if asked is None:
            return wrapped(*args, **kwargs)
        try:
            with at(asked.place):
                answer = asked.send(wrapped, args, kwargs)
        except BaseException as error:
            self._safely(asked.place.run.book.refused, asked.span, error)
            raise
        self._safely(self._answered, asked, answer)
        return answer

    def streamed(self, wrapped: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        """See a request whose answer comes in pieces."""
        asked = self._safely(self._asked, model, "generate_stream", args, kwargs)
        if asked is None:
            return wrapped(*args, **kwargs)
        book = asked.place.run.book
        try:
            with at(asked.place):
                pieces = asked.send(wrapped, args, kwargs)
        except BaseException as error:
            self._safely(book.refused, asked.span, error)
            raise
        witness = ModelStream(
            asked.place,
            answered=lambda answer: self._answered(asked, answer),
            refused=lambda error: book.refused(asked.span, error),
            heard=lambda: book.heard(asked.span),
            safely=self._safely,
        )
        stream = self._safely(driven, pieces, witness)
        return pieces if stream is None else stream

    def _asked(self, model: Any, method: str, args: Any, kwargs: Any) -> _Asked | None:
        place = here.get()
        if place is None or (place.step or "").startswith("model:"):
            return None  # outside of every run, or a model inside the one that is asked
        run = place.run
        host = with_prompt(Request(run=run, model=model, method=method, args=args, kwargs=kwargs))
        request, pending = host, None
        if place.step is None and model is run.agent.model:
            decided = self._safely(self._decided, host, kind=Kind.DECISION)
            request, pending = decided or (host, None)
        told = said.request_of(request.model, request.named, streaming=method != "generate")
        if request.tools is not None and not told["tools_offered"]:
            told["tools_offered"] = request.tools
        span = run.asked(told, inside=place.step)
        if pending is not None:
            self._safely(pending.sent, request, kind=Kind.DECISION)
        return _Asked(place._replace(step=span), request, host, span)

    def _decided(self, host: Request) -> "tuple[Request, Pending[Request]] | None":
        run = host.run
        if run.choices is None or self._border.in_force() is not run.book.runtime:
            return None
        known = run.situation(messages=len(host.named.get("messages") or ()))
        return run.choices.changed(self._seam, host, known)

    def _answered(self, asked: _Asked, answer: Any) -> None:
        usage, model = said.usage_of(answer), asked.request.model
        asked.place.run.book.answered(asked.span, said.response_of(answer, model), usage=usage)
