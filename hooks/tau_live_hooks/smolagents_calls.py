"""Calls of tools and managed agents as the wraps see them; nothing at import needs the host."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tau_live import events as ev
from tau_live.gate import Kind
from tau_live_hooks import smolagents_events as said
from tau_live_hooks.common_border import Border
from tau_live_hooks.common_text import content_of, printed
from tau_live_hooks.smolagents_places import at, carried
from tau_live_hooks.smolagents_run import Place, here, tool_status


class _Call(NamedTuple):
    """One call of a tool.

    Attributes:
        place: Where it is called.
        id: The model's id of it, or one made for it.
        span: The id of its step.
        name: The tool.
        started: What is told of its start.
        is_answer: Whether it is the host's own way of ending a run; told only if it fails.
    """

    place: Place
    id: str
    span: str
    name: str
    started: dict[str, object]
    is_answer: bool


class Calls:
    """Sees the calls of tools.

    Args:
        border: What every step of ours passes.
    """

    def __init__(self, border: Border) -> None:
        self._border = border
        self._safely = border.safely

    def executed(self, wrapped: Callable[..., Any], agent: Any, args: Any, kwargs: Any) -> Any:
        """See a call by an agent that calls tools; a veto is what the model is told instead."""
        call = self._safely(self._execution, agent, args, kwargs)
        if call is None:
            return wrapped(*args, **kwargs)
        veto = self._safely(self._vetoed, call, kind=Kind.DECISION)
        return self._done(call, wrapped, args, kwargs) if veto is None else veto

    def called(self, wrapped: Callable[..., Any], tool: Any, args: Any, kwargs: Any) -> Any:
        """See a call by code that an agent wrote; a veto is an error of that code."""
        call = self._safely(self._call, tool, args, kwargs)
        if call is None:
            return wrapped(*args, **kwargs)
        veto = self._safely(self._vetoed, call, kind=Kind.DECISION)
        if veto is not None:
            raise PermissionError(veto)
        return self._done(call, wrapped, args, kwargs)

    def timed(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        """Let what an agent wrote run, in a thread of its own, where it was written."""
        decorate = wrapped(*args, **kwargs)
        return lambda function: decorate(self._safely(carried, function) or function)

    def _done(self, call: _Call, wrapped: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._safely(self._start, call)
        try:
            with at(call.place._replace(step=call.span)):
                result = wrapped(*args, **kwargs)
        except BaseException as error:
            self._safely(self._raised, call, error)
            raise
        self._safely(self._returned, call, result)
        return result

    def _execution(self, agent: Any, args: Any, kwargs: Any) -> _Call | None:
        place = here.get()
        if place is None or place.step is not None or place.run.agent is not agent:
            return None
        name, arguments = [*args, *kwargs.values()][:2]
        tool = agent.tools.get(name) or agent.managed_agents.get(name)
        call_id = place.run.call_id(name, arguments)
        return _made(place, tool, (printed(name), arguments), call_id)

    def _call(self, tool: Any, args: Any, kwargs: Any) -> _Call | None:
        place = here.get()
        if place is None or place.step is not None:
            return None
        name = printed(getattr(tool, "name", None) or type(tool).__name__)
        return _made(place, tool, (name, said.called_with(args, kwargs)), None)

    def _vetoed(self, call: _Call) -> str | None:
        run = call.place.run
        decides = run.choices is not None and self._border.in_force() is run.book.runtime
        if run.choices is None or not decides or call.name == said.ANSWER:
            return None
        veto = run.choices.vetoed(run.situation(tool=call.name))
        if veto is not None:
            self._start(call)
            told = {"span_id": call.span, "result": content_of(veto)}
            run.book.returned(call.id, call.name, told, status=ev.Status.VETOED)
        return veto

    def _start(self, call: _Call) -> None:
        if not call.is_answer:
            call.place.run.book.called(call.id, call.name, call.started)

    def _returned(self, call: _Call, result: Any) -> None:
        if not call.is_answer:
            told = {"span_id": call.span, "result": content_of(result)}
            call.place.run.book.returned(call.id, call.name, told)

    def _raised(self, call: _Call, error: BaseException) -> None:
        if call.is_answer:
            self._start(call._replace(is_answer=False))
        cause = error.__cause__ if type(error).__module__.startswith("smolagents") else None
        call.place.run.book.returned(
            call.id,
            call.name,
            {"span_id": call.span},
            error=cause or error,
            status=tool_status(error),
        )


def _made(place: Place, tool: Any, asked: tuple[str, Any], call_id: str | None) -> _Call:
    run, (name, arguments) = place.run, asked
    id_ = call_id or run.unnamed_call()
    span = run.span_of(id_)
    started: dict[str, object] = {
        "span_id": span,
        "args": content_of(arguments),
        "tool_kind": said.tool_kind(tool),
    }
    if call_id is None:
        started["fidelity"] = ev.Fidelity.INFERRED
    return _Call(place, id_, span, name, started, said.is_answer(tool))
