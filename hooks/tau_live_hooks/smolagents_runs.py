"""Runs and steps of smolagents agents as the wraps see them; nothing at import needs the host.

Each wrap does the host's own step exactly once and outside of everything of ours, returns what it
returned, and raises what it raised.
"""

import inspect
import itertools
import os
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

from tau_live import door
from tau_live.errors import suppress
from tau_live_hooks import smolagents_events as said
from tau_live_hooks.common_border import Border
from tau_live_hooks.common_choices import Choices
from tau_live_hooks.common_run import RunBook
from tau_live_hooks.common_text import content_of
from tau_live_hooks.smolagents_driving import driven
from tau_live_hooks.smolagents_places import within
from tau_live_hooks.smolagents_run import HOST, HostRun, Place, here
from tau_live_hooks.smolagents_witnesses import RunStream, is_streaming


class _Memory(NamedTuple):
    """What an agent's memory holds: a conversation, and a run that was interrupted in it."""

    session: str
    waiting: str | None = None
    attempts: int = 0


class _Sessions:
    """Names conversations, which the host does not; without a system call for each.

    Such a call lets go of the interpreter, and in a busy process it takes milliseconds until it is
    had again.
    """

    def __init__(self) -> None:
        self._process = 0
        self._prefix = ""
        self._numbers = itertools.count(1)

    def new(self) -> str:
        """Return a name that no other process has, a forked child neither."""
        process = os.getpid()
        if process != self._process:
            self._process, self._prefix = process, uuid4().hex
        return f"{self._prefix}-{next(self._numbers)}"


class Runs:
    """Sees the runs of all agents.

    Args:
        border: What every step of ours passes.
        watch: Is told the agent of each run, before it begins.
    """

    def __init__(self, border: Border, watch: Callable[[Any], None]) -> None:
        self._border = border
        self._safely = border.safely
        self._watch = watch
        self._sessions = _Sessions()
        self._memories: weakref.WeakKeyDictionary[Any, _Memory] = weakref.WeakKeyDictionary()

    def ran(self, wrapped: Callable[..., Any], agent: Any, args: Any, kwargs: Any) -> Any:
        """See ``run`` of an agent from its beginning to its end."""
        run = self._safely(self._begun, wrapped, agent, args, kwargs)
        if run is None:
            return wrapped(*args, **kwargs)
        try:
            with within(Place(run)):
                result = wrapped(*args, **kwargs)
        except BaseException as error:
            self._safely(self._ended, run, None, error)
            raise
        if not is_streaming(result, run.given):
            self._safely(self._ended, run, result, None)
            return result
        streamed = self._safely(self._streamed, run, result)
        return result if streamed is None else streamed

    def stepped(self, wrapped: Callable[..., Any], agent: Any, args: Any, kwargs: Any) -> Any:
        """See that a step of the host is over."""
        try:
            return wrapped(*args, **kwargs)
        finally:
            self._safely(self._told, agent, "stepped", args, kwargs)

    def checked(self, wrapped: Callable[..., Any], agent: Any, args: Any, kwargs: Any) -> Any:
        """See what an agent's own checks make of its answer."""
        try:
            result = wrapped(*args, **kwargs)
        except BaseException as error:
            self._safely(self._told, agent, "checked", (error,), {})
            raise
        self._safely(self._told, agent, "checked", (None,), {})
        return result

    def wanted(self, wrapped: Callable[..., Any], agent: Any, args: Any, kwargs: Any) -> Any:
        """See which tools a model asked for."""
        self._safely(self._told, agent, "wants", args, kwargs)
        return wrapped(*args, **kwargs)

    def _begun(self, wrapped: Any, agent: Any, args: Any, kwargs: Any) -> HostRun | None:
        runtime = self._border.in_force()
        if runtime is None:
            return None
        given = _given(wrapped, args, kwargs)
        outer = door.current()
        inside = outer.handle if outer is not None else None
        nested = inside is not None and inside.host == HOST and not inside.ended
        memory = self._memory(agent, goes_on=not given.get("reset", True) and not nested)
        name = said.agent_name(agent)
        told = {
            "input": content_of(given.get("task")),
            "model": said.model_name(agent.model),
            "tools": tuple(said.tool_names(agent)),
            "agent": name,
            "trigger": "tool" if nested else "resume" if memory.waiting else "user",
        }
        handle = runtime.begin_run(
            name,
            key=memory.waiting,
            session=None if nested else memory.session,
            metadata=None,
            parent=inside,
            host=HOST,
            told=told,
            resumed={"reason": "run"} if memory.waiting else None,
        )
        handle.attempt = max(handle.attempt, memory.attempts + 1)
        choices = Choices(runtime, handle) if runtime.settings.act else None
        self._safely(self._watch, agent)
        return HostRun(RunBook(runtime, handle, agent=name), agent, given, choices=choices)

    def _memory(self, agent: Any, *, goes_on: bool) -> _Memory:
        """Return what an agent remembers as its run begins; what waited there goes on by that."""
        fresh = _Memory(self._sessions.new())
        with suppress(TypeError):  # an agent of a class that cannot be a key
            memory = (self._memories.get(agent) if goes_on else None) or fresh
            self._memories[agent] = _Memory(memory.session)
            return memory
        return fresh

    def _streamed(self, run: HostRun, steps: Any) -> Any:
        ended = partial(self._safely, self._ended, run)
        stream = driven(steps, RunStream(run, ended))
        unread = weakref.finalize(stream, ended, None, GeneratorExit())
        unread.atexit = False
        return stream

    def _ended(self, run: HostRun, result: Any, error: BaseException | None) -> None:
        if error is not None and run.is_interrupted(error):
            self._safely(self._wait, run)
        run.ended(result, error)

    def _wait(self, run: HostRun) -> None:
        """Know that a run was interrupted, so that the agent's next one may go on with it."""
        handle, known = run.book.handle, self._memories.get(run.agent)
        if known is not None and handle.parent is None:
            self._memories[run.agent] = _Memory(known.session, handle.run_id, handle.attempt)

    def _told(self, agent: Any, name: str, args: Any, kwargs: Mapping[str, Any]) -> None:
        place = here.get()
        if place is not None and place.run.agent is agent:
            getattr(place.run, name)(*[*args, *kwargs.values()][:1])


def _given(run: Callable[..., Any], args: Any, kwargs: Any) -> Mapping[str, Any]:
    """Return the arguments of a run by name; one with others is the host's to refuse."""
    try:
        return dict(inspect.signature(run).bind(*args, **kwargs).arguments)
    except TypeError:
        return dict(kwargs)
