"""Runs and steps of smolagents agents as the wrappers see them; nothing at import needs the host.

Each wrapper does the host's own step exactly once and outside of all our code, returns what it
returned, and raises what it raised.
"""

import inspect
import itertools
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial, wraps
from typing import Any, NamedTuple
from uuid import uuid4

from tau_live.core import events as ev
from tau_live.core.errors import suppress
from tau_live.core.gate import Kind
from tau_live.core.records import Reason
from tau_live.core.settings import Content
from tau_live.decisions.runs import RunHandle, error_of
from tau_live.runtime import api
from tau_live_hooks import smolagents_events
from tau_live_hooks.common import (
    Border,
    RunBook,
    Situation,
    as_text,
    content_of,
    enclosing_run,
    few,
    reset,
    situation_of,
)
from tau_live_hooks.common_choices import Choices

HOST = "smolagents"

_TOOL_ERRORS = frozenset({"AgentToolCallError", "AgentToolExecutionError", "AgentExecutionError"})


class Place(NamedTuple):
    """The place in a run where the code is.

    Attributes:
        run: The run.
        step: The id of the open model request or tool call; ``None`` in the agent's own code.
    """

    run: "HostRun"
    step: str | None = None


here: ContextVar[Place | None] = ContextVar("tau_live_smolagents", default=None)


class HostRun:
    """Reports one run, and keeps what is still open in it.

    Args:
        book: Keeps its turns and counts.
        agent: The host's agent.
        given: The arguments of ``run``, by name.
        choices: Decides it; ``None`` where nothing is decided.

    Attributes:
        rendered: The agent's system prompt by instructions and tools.
        unnamed: Numbers the calls to which the model gave no id.
    """

    def __init__(
        self, book: RunBook, agent: Any, given: Mapping[str, Any], *, choices: Choices | None
    ) -> None:
        self.book = book
        self.agent = agent
        self.given = given
        self.choices = choices
        self.rendered: dict[tuple[str, tuple[str, ...]], str] = {}
        self._lock = threading.Lock()
        self._spans: Counter[str] = Counter()
        self._announced: list[Any] = []
        self._requests = itertools.count(1)
        self.unnamed = itertools.count(1)
        self._has_request = False
        self._failures = 0
        self._failed: tuple[str, str] | None = None
        self._has_first_messages = False
        self._is_limited = False
        self._over = False

    def span_of(self, call_id: str) -> str:
        """Return an id for a tool's call: models give the same id to calls of different turns."""
        with self._lock:
            self._spans[call_id] += 1
            count = self._spans[call_id]
        return f"tool:{call_id}" if count == 1 else f"tool:{call_id}#{count}"

    def start_model(self, request: ev.Fields, *, inside: str | None) -> str:
        """Report a request, and a turn if none is open; return the id of the request's span."""
        if self.book.turn is None:
            self._begin_turn()
        self._report_first_messages()
        self._has_request = True
        span = f"model:{next(self._requests)}"
        self.book.start_model(
            span, request if inside is None else {**request, "parent_span_id": inside}
        )
        return span

    def note_calls(self, message: Any) -> None:
        """Remember the tool calls of an answer, so that they are reported under its ids."""
        with self._lock:
            self._announced = few(getattr(message, "tool_calls", None))

    def call_id(self, tool: str, arguments: Any) -> str | None:
        """Return the model's id of a call that starts now; ``None`` if it gave none."""
        with self._lock:
            calls = [call for call in self._announced if call.function.name == tool]
            same = [call for call in calls if call.function.arguments is arguments]
            equal = [call for call in calls if (call.function.arguments or {}) == arguments]
            match = next(iter([*same, *equal]), None)
            if match is None:
                return None
            self._announced = [call for call in self._announced if call is not match]
        return as_text(match.id)

    def situation(self, **more: object) -> Situation:
        """Return the situation before a choice."""
        agent, task = self.agent, self.given.get("task")
        known = {
            "agent": self.book.agent or "agent",
            "step": agent.step_number,
            "tools": len(smolagents_events.tool_names(agent)),
            "prompt_chars": len(task) if isinstance(task, str) else 0,
            **more,
        }
        texts = self.book.runtime.settings.content is not Content.NONE
        return situation_of(
            known, smolagents_events.known_of(self.given.get("additional_args"), texts=texts)
        )

    def note_check(self, error: BaseException | None) -> None:
        """Report the result of the agent's own checks of its answer."""
        names = [
            getattr(check, "__name__", "check") for check in few(self.agent.final_answer_checks)
        ]
        fields = {"stage": "output", "mode": "block", "blocked": error is not None}
        failed = [name for name in names if str(error).startswith(f"Check {as_text(name)} failed")]
        rules = () if error is None else tuple(failed[:1])
        self.book.tell(ev.Policy, {**fields, "rules": rules, "raw": {"checks": names}})

    def note_step(self, step: Any) -> None:
        """Report the messages of a step of the host's memory, and that a turn is over."""
        kind = type(step).__name__
        if kind == "FinalAnswerStep":
            return
        if self.book.turn is None:
            self._begin_turn()
        self._report_first_messages()
        if not self._has_request:
            self._infer_request(step)
        self._has_request = False
        self._report_messages(step, len(self.agent.memory.steps) + 1)
        if kind == "ActionStep":
            self._end_turn(step)

    def end(self, result: Any, error: BaseException | None) -> None:
        """Report that the run is over; nothing the second time."""
        with self._lock:
            was_over, self._over = self._over, True
        if was_over:
            return
        fields: dict[str, object] = {}
        try:
            if self._is_limited:
                fields |= {"status": ev.Status.LIMIT, "reason": Reason.LIMIT}
            if error is None:
                fields["output"] = content_of(getattr(result, "output", result))
            elif self.is_interrupted(error):
                self.book.tell(ev.RunInterrupt, {"reason": "interrupt"})
                fields |= {"status": ev.Status.INTERRUPTED, "reason": Reason.INTERRUPTED}
        finally:  # a run whose end cannot be reported in full still ends
            self.book.end(error, fields)

    def is_interrupted(self, error: BaseException) -> bool:
        """Return whether somebody called ``interrupt`` of the agent, and that ended the run."""
        own = type(error).__name__ == "AgentError" and type(error).__module__.startswith(HOST)
        return own and bool(getattr(self.agent, "interrupt_switch", False))

    def _begin_turn(self) -> None:
        self.book.begin_turn()
        failed, self._failed = self._failed, None
        limit = int(self.given.get("max_steps") or self.agent.max_steps)
        if failed is not None and self.agent.step_number <= limit:
            what, reason = failed
            self.book.record_retry(what, number=self._failures + 1, reason=reason)

    def _end_turn(self, step: Any) -> None:
        error = step.error
        fields: dict[str, object] = {"raw": {"step_number": step.step_number}}
        self._is_limited = type(error).__name__ == "AgentMaxStepsError"
        if error is not None:
            fields |= {"status": ev.Status.ERROR, "error": error_of(error)}
        if self._is_limited:
            fields["status"] = ev.Status.LIMIT
        elif error is None:
            self._failures = 0
        else:
            self._failures += 1
            what = "tool" if type(error).__name__ in _TOOL_ERRORS else "output"
            self._failed = (what, type(error).__name__)
        self.book.end_turn(fields)

    def _report_first_messages(self) -> None:
        """Report the messages with which the run starts."""
        if self._has_first_messages:
            return
        self._has_first_messages = True
        memory = self.agent.memory
        if self.given.get("reset", True):
            self._report_messages(memory.system_prompt, 0)
        for index, step in enumerate(few(memory.steps), start=1):
            if index == len(memory.steps):  # earlier steps are other runs'
                self._report_messages(step, index)

    def _report_messages(self, step: Any, index: int) -> None:
        for fields in smolagents_events.messages_of(step):
            self.book.tell(ev.Message, {**fields, "index": index})

    def _infer_request(self, step: Any) -> None:
        """Report a request that was not seen: the model is an object that cannot be wrapped."""
        message = getattr(step, "model_output_message", None)
        if message is None:
            return
        model, inferred = self.agent.model, {"fidelity": ev.Fidelity.END_ONLY}
        span = self.start_model(
            {**smolagents_events.request_of(model, {}, streaming=False), **inferred}, inside=None
        )
        fields = {**smolagents_events.response_of(message, model), **inferred}
        self.book.end_model(span, fields, usage=smolagents_events.usage_of(step))


@contextmanager
def at(place: Place | None) -> Iterator[None]:
    """Make a place in a run the current one."""
    token = here.set(place)
    try:
        yield
    finally:
        reset(token)


@contextmanager
def within(place: Place, handle: RunHandle | None) -> Iterator[None]:
    """Make a place and a run the current ones, for child runs and rewards."""
    token = None
    with suppress(Exception):
        token = None if handle is None else api.enter(handle)
    try:
        with at(place):
            yield
    finally:
        reset(token)


def carry(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that has the caller's place and run, in whatever thread it runs.

    No other context is carried over: the host's tools see there what they see without us.
    """
    place, handle = here.get(), enclosing_run()
    if place is None:
        return function

    @wraps(function)
    def in_place(*args: Any, **kwargs: Any) -> Any:
        with within(place, handle):
            return function(*args, **kwargs)

    return in_place


def is_streaming(result: object, given: Any) -> bool:
    """Return whether a run returned its steps to be read: an answer may be a generator too."""
    with suppress(Exception):
        return bool(given.get("stream")) and inspect.isgenerator(result)
    return False


class Witness(NamedTuple):
    """The callbacks while a generator is read; none of them may raise.

    Attributes:
        step: Returns the context in which the host does each piece of its work.
        take: Takes each item.
        over: Takes the error, if any, and the returned value.
    """

    step: Callable[[], AbstractContextManager[None]]
    take: Callable[[Any], object]
    over: Callable[[BaseException | None, Any], object]


def drive(inner: Iterable[Any], witness: Witness) -> Generator[Any, Any, Any]:
    """Return a generator that does what ``inner`` does, and reports it to a witness.

    Whatever is sent or thrown into it is passed on, ``close`` too: a generator of the host that
    yields once more when it is closed does so here, and can be used in the same way afterwards.
    """
    source = inner if isinstance(inner, Generator) else (item for item in inner)
    driver = _drive(source, witness)
    for name in ("__name__", "__qualname__"):  # they are printed, as when it will not be closed
        setattr(driver, name, getattr(source, name))
    return driver


def _drive(inner: Generator[Any, Any, Any], witness: Witness) -> Generator[Any, Any, Any]:
    step: partial[Any] = partial(next, inner)
    closed: GeneratorExit | None = None
    try:
        while True:
            with witness.step():
                item = step()
            if closed is None:
                witness.take(item)
            else:
                witness.over(closed, None)
            try:
                step = partial(inner.send, (yield item))
            except BaseException as error:  # noqa: BLE001  # whatever is thrown in is passed on
                closed = error if isinstance(error, GeneratorExit) else closed
                step = partial(inner.throw, error)
    except StopIteration as stop:
        witness.over(closed, stop.value)
        return stop.value
    except BaseException as error:
        witness.over(error, None)
        raise


class _Memory(NamedTuple):
    """The content of an agent's memory: a conversation, and a run that was interrupted in it."""

    session: str
    waiting: str | None = None
    attempts: int = 0


@lru_cache(maxsize=1)
def _prefix(_process: int) -> str:
    """Return a prefix for the names of sessions that no other process has, not even a forked child.

    It is made once, because a system call for each run releases the interpreter's lock, and in a
    busy process it takes milliseconds to get that back.
    """
    return uuid4().hex


class _Call(NamedTuple):
    """One call of a tool.

    Attributes:
        place: The place where it is called.
        id: The model's id of it, or one made for it.
        span: The id of its step.
        name: The tool.
        started: The fields of its start.
        is_answer: Whether it is the host's own way of ending a run; reported only if it fails.
    """

    place: Place
    id: str
    span: str
    name: str
    started: ev.Fields
    is_answer: bool


class Watch:
    """Sees the runs of all agents, and the calls of tools.

    Args:
        border: The guard around every step of ours.
        watch: Called with the agent of each run, before it starts.
    """

    def __init__(self, border: Border, watch: Callable[[Any], None]) -> None:
        self._border = border
        self._safely = border.safely
        self._watch = watch
        self._sessions = itertools.count(1)
        self._memories: weakref.WeakKeyDictionary[Any, _Memory] = weakref.WeakKeyDictionary()

    def watch_run(self, wrapped: Callable[..., Any], agent: Any, args: Any, kwargs: Any) -> Any:
        """See ``run`` of an agent from its beginning to its end."""
        run = self._safely(self._begin_run, wrapped, agent, args, kwargs)
        if run is None:
            return wrapped(*args, **kwargs)
        try:
            with within(Place(run), run.book.handle):
                result = wrapped(*args, **kwargs)
        except BaseException as error:
            self._safely(self._end_run, run, None, error)
            raise
        if not is_streaming(result, run.given):
            self._safely(self._end_run, run, result, None)
            return result
        streamed = self._safely(self._watch_steps, run, result)
        return result if streamed is None else streamed

    def watch_step(self, wrapped: Callable[..., Any], agent: Any, args: Any, kwargs: Any) -> Any:
        """See that a step of the host is over."""
        try:
            return wrapped(*args, **kwargs)
        finally:
            self._safely(self._call_run, agent, "note_step", args, kwargs)

    def watch_checks(self, wrapped: Callable[..., Any], agent: Any, args: Any, kwargs: Any) -> Any:
        """See the result of an agent's own checks of its answer."""
        try:
            result = wrapped(*args, **kwargs)
        except BaseException as error:
            self._safely(self._call_run, agent, "note_check", (error,), {})
            raise
        self._safely(self._call_run, agent, "note_check", (None,), {})
        return result

    def watch_calls(self, wrapped: Callable[..., Any], agent: Any, args: Any, kwargs: Any) -> Any:
        """See the tool calls of an answer."""
        self._safely(self._call_run, agent, "note_calls", args, kwargs)
        return wrapped(*args, **kwargs)

    def _begin_run(self, wrapped: Any, agent: Any, args: Any, kwargs: Any) -> HostRun | None:
        runtime = self._border.in_force()
        if runtime is None:
            return None
        given = _arguments(wrapped, args, kwargs)
        outer = enclosing_run()
        nested = outer is not None and outer.host == HOST and not outer.ended
        memory = self._memory(agent, continues=not given.get("reset", True) and not nested)
        name = smolagents_events.agent_name(agent)
        fields = {
            "input": content_of(given.get("task")),
            "model": smolagents_events.model_name(agent.model),
            "tools": tuple(smolagents_events.tool_names(agent)),
            "agent": name,
            "trigger": "tool" if nested else "resume" if memory.waiting else "user",
        }
        handle = runtime.begin_run(
            name,
            key=memory.waiting,
            session=None if nested else memory.session,
            metadata=None,
            parent=outer,
            host=HOST,
            fields=fields,
            resumed={"reason": "run"} if memory.waiting else None,
        )
        handle.attempt = max(handle.attempt, memory.attempts + 1)
        choices = Choices(runtime, handle) if runtime.settings.act else None
        self._safely(self._watch, agent)
        return HostRun(RunBook(runtime, handle, agent=name), agent, given, choices=choices)

    def _memory(self, agent: Any, *, continues: bool) -> _Memory:
        """Return the memory of an agent as its run starts, and take a waiting run out of it."""
        fresh = _Memory(f"{_prefix(os.getpid())}-{next(self._sessions)}")
        with suppress(TypeError):  # an agent of a class that cannot be a key
            memory = (self._memories.get(agent) if continues else None) or fresh
            self._memories[agent] = _Memory(memory.session)
            return memory
        return fresh

    def _watch_steps(self, run: HostRun, steps: Any) -> Any:
        answers: list[Any] = []

        def take(item: object) -> None:
            if type(item).__name__ == "FinalAnswerStep":  # which comes last
                answers[:] = [item]

        def over(error: BaseException | None, result: object) -> None:
            answer = next(iter(answers), None)
            self._safely(self._end_run, run, getattr(answer, "output", result), error)

        step = partial(within, Place(run), run.book.handle)
        stream = drive(steps, Witness(step, take, over))
        unread = weakref.finalize(
            stream, self._safely, self._end_run, run, None, GeneratorExit()
        )  # cancelled if nobody reads it to its end
        unread.atexit = False
        return stream

    def _end_run(self, run: HostRun, result: Any, error: BaseException | None) -> None:
        if error is not None and run.is_interrupted(error):
            self._safely(self._wait, run)
        run.end(result, error)

    def _wait(self, run: HostRun) -> None:
        """Note that a run was interrupted, so that the agent's next one may go on with it."""
        handle, known = run.book.handle, self._memories.get(run.agent)
        if known is not None and handle.parent is None:
            self._memories[run.agent] = _Memory(known.session, handle.run_id, handle.attempt)

    def _call_run(self, agent: Any, name: str, args: Any, kwargs: Mapping[str, Any]) -> None:
        place = here.get()
        if place is not None and place.run.agent is agent:
            getattr(place.run, name)(*[*args, *kwargs.values()][:1])

    def watch_call(self, wrapped: Callable[..., Any], agent: Any, args: Any, kwargs: Any) -> Any:
        """See a call by an agent that calls tools; a veto is the model's text instead."""
        call = self._safely(self._execution, agent, args, kwargs)
        if call is None:
            return wrapped(*args, **kwargs)
        veto = self._safely(self._veto, call, kind=Kind.DECISION)
        return self._run_call(call, wrapped, args, kwargs) if veto is None else veto

    def watch_code_call(
        self, wrapped: Callable[..., Any], tool: Any, args: Any, kwargs: Any
    ) -> Any:
        """See a call by code that an agent wrote; a veto is an error of that code."""
        call = self._safely(self._call, tool, args, kwargs)
        if call is None:
            return wrapped(*args, **kwargs)
        veto = self._safely(self._veto, call, kind=Kind.DECISION)
        if veto is not None:
            raise PermissionError(veto)
        return self._run_call(call, wrapped, args, kwargs)

    def carry_thread(self, wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        """Keep the place of an agent's code when it runs in a thread of its own."""
        decorate = wrapped(*args, **kwargs)
        return lambda function: decorate(self._safely(carry, function) or function)

    def _run_call(self, call: _Call, wrapped: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._safely(self._start, call)
        try:
            with at(call.place._replace(step=call.span)):
                result = wrapped(*args, **kwargs)
        except BaseException as error:
            self._safely(self._fail, call, error)
            raise
        self._safely(self._end, call, result)
        return result

    def _execution(self, agent: Any, args: Any, kwargs: Any) -> _Call | None:
        place = here.get()
        if place is None or place.step is not None or place.run.agent is not agent:
            return None
        name, arguments = [*args, *kwargs.values()][:2]
        tool = agent.tools.get(name) or agent.managed_agents.get(name)
        call_id = place.run.call_id(name, arguments)
        return _call_of(place, tool, (as_text(name), arguments), call_id)

    def _call(self, tool: Any, args: Any, kwargs: Any) -> _Call | None:
        place = here.get()
        if place is None or place.step is not None:
            return None
        name = as_text(getattr(tool, "name", None) or type(tool).__name__)
        return _call_of(place, tool, (name, smolagents_events.arguments_of(args, kwargs)), None)

    def _veto(self, call: _Call) -> str | None:
        run = call.place.run
        decides = run.choices is not None and self._border.in_force() is run.book.runtime
        if run.choices is None or not decides or call.name == smolagents_events.ANSWER:
            return None
        veto = run.choices.veto(run.situation(tool=call.name))
        if veto is not None:
            self._start(call)
            fields = {"span_id": call.span, "result": content_of(veto)}
            run.book.end_tool(call.id, call.name, fields, status=ev.Status.VETOED)
        return veto

    def _start(self, call: _Call) -> None:
        if not call.is_answer:
            call.place.run.book.start_tool(call.id, call.name, call.started)

    def _end(self, call: _Call, result: Any) -> None:
        if not call.is_answer:
            fields = {"span_id": call.span, "result": content_of(result)}
            call.place.run.book.end_tool(call.id, call.name, fields)

    def _fail(self, call: _Call, error: BaseException) -> None:
        if call.is_answer:
            self._start(call._replace(is_answer=False))
        cause = error.__cause__ if type(error).__module__.startswith(HOST) else None
        name = type(error).__name__
        unknown = name == "AgentToolExecutionError" and error.__cause__ is None
        refused = unknown or name == "AgentToolCallError"
        call.place.run.book.end_tool(
            call.id,
            call.name,
            {"span_id": call.span},
            error=cause or error,
            status=ev.Status.RETRY if refused else None,
        )


def _call_of(place: Place, tool: Any, request: tuple[str, Any], call_id: str | None) -> _Call:
    run, (name, arguments) = place.run, request
    id_ = call_id or f"unnamed-{next(run.unnamed)}"
    span = run.span_of(id_)
    started: dict[str, object] = {
        "span_id": span,
        "args": content_of(arguments),
        "tool_kind": smolagents_events.tool_kind(tool),
    }
    if call_id is None:
        started["fidelity"] = ev.Fidelity.INFERRED
    return _Call(place, id_, span, name, started, smolagents_events.is_answer(tool))


def _arguments(run: Callable[..., Any], args: Any, kwargs: Any) -> Mapping[str, Any]:
    """Return the arguments of a run by name; wrong ones are the host's to refuse."""
    try:
        return dict(inspect.signature(run).bind(*args, **kwargs).arguments)
    except TypeError:
        return dict(kwargs)
