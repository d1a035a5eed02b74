"""One prompt or chain of llm, reported to the runtime; nothing here imports the host.

A run is looked up by the response that belongs to it, as long as its host keeps that.

Each wrapper does the host's own step exactly once, returns what it returned, and raises what it
raised. A failure of ours is reported to the runtime and goes no further.

A call that is vetoed, one of a tool that does not exist, and one that pauses the chain reach no
callback at their end; those are reported from what the host returns or raises.
"""

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextvars import ContextVar, Token
from functools import partial
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from tau_live.core import events as ev
from tau_live.core.errors import suppress
from tau_live.core.gate import Kind
from tau_live.core.records import Reason
from tau_live.runtime import api
from tau_live.runtime.adapters import InForce
from tau_live_hooks import llm_events
from tau_live_hooks.common import (
    Border,
    RunBook,
    Situation,
    as_text,
    content_of,
    enclosing_run,
    few,
    is_a,
    remember,
    report_failure,
    reset,
    situation_of,
)
from tau_live_hooks.llm_choose import RoutedChoices

HOST = "llm"

_runs: WeakKeyDictionary[Any, "HostRun"] = WeakKeyDictionary()
"""The runs of this process, by response."""

_paused: OrderedDict[tuple[str, str], str] = OrderedDict()
"""The keys of runs that wait, by id and name of the call that they wait in; only the newest."""

_lock = Lock()


class HostRun:
    """A prompt or chain, through all of its runs.

    Args:
        in_force: Returns the running system.
        kind: ``prompt`` or ``chain``.
        source: The host's response, or its chain.
    """

    def __init__(self, in_force: InForce, kind: str, source: Any) -> None:
        self._in_force = in_force
        self._kind = kind
        self._prompt = source.prompt
        self._model = source.model
        self._session = getattr(source.conversation, "id", None)
        self._limit = getattr(source, "chain_limit", None)
        self._requests: Counter[str] = Counter()
        self._key: str | None = None
        self._messages = 0
        self._output: str | None = None
        self.book: RunBook | None = None
        self.choices: RoutedChoices | None = None

    @property
    def is_chain(self) -> bool:
        """True if more than one response may belong to it."""
        return self._kind == "chain"

    def situation(self) -> Situation:
        """Return the situation of the run before a choice."""
        turn = None if self.book is None else self.book.turn
        model = llm_events.model_name(self._model) or ""
        return {"model": model, "kind": self._kind, "step": turn or 0}

    def begin(self, key: str, *, pending: Sequence[Any] = ()) -> RunBook | None:
        """Return the book of the run, after starting it if it is not running.

        Args:
            key: The host's id of it, used the first time.
            pending: The tool calls that were left when it was paused before.
        """
        runtime = self._in_force()
        if runtime is None:
            return None
        book = self.book
        if book is not None and book.runtime is runtime and not book.handle.ended:
            return book
        resumed, parent = _take_paused(pending), enclosing_run()
        self._key = self._key or (resumed[0] if resumed else key)
        nested = parent is not None and parent.host == HOST
        trigger = "resume" if pending else "tool" if nested else "user"
        handle = runtime.begin_run(
            self._kind,
            key=self._key,
            session=self._session,
            metadata=None,
            parent=parent,
            host=HOST,
            fields={**llm_events.start_of(self._prompt, self._model), "trigger": trigger},
            resumed={"resume_key": resumed[1]} if resumed else None,
        )
        self.book = RunBook(runtime, handle)
        self.choices = RoutedChoices(runtime, handle) if runtime.settings.act else None
        self._messages = llm_events.first_new(self._prompt.messages)
        return self.book

    def report_failure(self, error: Exception) -> None:
        """Report a failure to choose its model."""
        with suppress(Exception):
            if self.book is not None:
                report_failure(self.book.runtime, Kind.DECISION, error)

    def start_model(self, response: Any) -> str:
        """Report the request of a response; return the id of its span."""
        book = self._open_book()
        self._requests[response.id] += 1
        attempt = self._requests[response.id]
        span_id = as_text(response.id) + (f"#{attempt}" if attempt > 1 else "")
        messages = response.prompt.messages
        book.begin_turn()
        self._report_messages(messages)
        book.start_model(span_id, llm_events.request_of(response, messages))
        return span_id

    def end_model(self, response: Any, span_id: str, error: BaseException | None) -> None:
        """Report that its model has answered, that it did not, or that nobody reads on."""
        book = self._open_book()
        if error is None:
            usage = llm_events.usage_of(response)
            book.end_model(span_id, llm_events.answer_of(response), usage=usage)
            self._output = llm_events.text_of(response)
        else:
            book.fail_model(span_id, error)
        # a chain goes on after an answer, and notices itself when nobody reads on
        if not self.is_chain or not (error is None or isinstance(error, GeneratorExit)):
            self.end(error)

    def end(self, error: BaseException | None) -> None:
        """Report that the run is over."""
        if self.book is None or self.book.handle.ended:
            return
        fields: ev.Fields = {}
        if error is None:
            if self._output:
                message = {"role": "assistant", "content": content_of(self._output)}
                details = {"index": self._messages, "raw": {"part": "text"}}
                self.book.tell(ev.Message, {**message, **details})
            fields = {"output": content_of(self._output)}
        elif self._is_limit(error):
            fields = {"status": ev.Status.LIMIT, "reason": Reason.LIMIT}
        self.book.end(error, fields)

    def pause(self, error: Any) -> None:
        """Report that a chain waits for somebody, in one of its tools."""
        call = error.tool_call
        if self.book is None or self.book.handle.ended or not self.is_chain or self._key is None:
            return
        key = _paused_key(call)
        with _lock:
            remember(_paused, key, self._key, limit=1_000)
        self.book.interrupt(
            str(error) or "paused", resume_key=key[0], payload=content_of(call.arguments)
        )

    def _is_limit(self, error: BaseException) -> bool:
        message = f"Chain limit of {as_text(self._limit)} exceeded."
        return self.is_chain and isinstance(error, ValueError) and str(error) == message

    def _report_messages(self, messages: Sequence[Any]) -> None:
        """Report the new messages; older ones were other runs'."""
        book = self._open_book()
        for index in range(self._messages, len(messages)):
            for fields in llm_events.messages_of(messages[index]):
                book.tell(ev.Message, {**fields, "index": index})
        self._messages = max(self._messages, len(messages))

    def _open_book(self) -> RunBook:
        if self.book is None:
            raise RuntimeError("the run did not start")
        return self.book


def _paused_key(call: Any) -> tuple[str, str]:
    return as_text(call.tool_call_id), as_text(call.name)


def _take_paused(pending: Sequence[Any]) -> tuple[str, str] | None:
    """Return the key of the run that waited in one of these calls, and that call's id."""
    with _lock:
        for call in few(pending):
            key = _paused.pop(_paused_key(call), None)
            if key is not None:
                return key, as_text(call.tool_call_id)
    return None


def run_of(response: Any) -> HostRun | None:
    """Return the run that a response belongs to; ``None`` if it was not seen."""
    return _runs.get(response)


def enter(run: HostRun) -> "Token[api.Run | None] | None":
    """Make a run the innermost one here, for a step of its host."""
    return None if run.book is None else api.enter(run.book.handle)


chain_here: ContextVar[HostRun | None] = ContextVar("tau_live_llm_chain", default=None)
"""The chain that makes its next response here."""

Wrapped = Callable[..., Any]


class _Reading(NamedTuple):
    """The steps around reading the pieces of an answer, or the responses of a chain.

    Attributes:
        enter: Called before the host makes the next one; returns the token that undoes it.
        take: Called with that one.
        over: Called at the end, with the error if there is one, such as that of an early close.
    """

    enter: Callable[[], "Token[Any] | None"]
    take: Callable[[Any], object]
    over: Callable[[BaseException | None], object]


class Watch:
    """Wraps the methods that send requests, and those that execute tools.

    Args:
        in_force: Returns the running system.
    """

    def __init__(self, in_force: InForce) -> None:
        self._border = Border(in_force)

    def watch_events(self, wrapped: Wrapped, response: Any, args: Any, kwargs: Any) -> Any:
        """See the answer of a model: for ``Response._iter_events``, which drives it once."""
        pieces = self._border.safely(self._pieces, response)
        events = wrapped(*args, **kwargs)
        return events if pieces is None else self._read(events, pieces)

    def watch_stream(self, wrapped: Wrapped, response: Any, args: Any, kwargs: Any) -> Any:
        """See the answer of a model: for ``AsyncResponse._ensure_async_generator``."""
        pieces = None
        if self._border.safely(hasattr, response, "_generator") is False:
            pieces = self._border.safely(self._pieces, response)
        if pieces is None:
            return wrapped(*args, **kwargs)
        token = pieces.enter()
        try:
            result = wrapped(*args, **kwargs)
        except BaseException as error:
            pieces.over(error)
            raise
        finally:
            reset(token)
        self._border.safely(self._follow, pieces, response)
        return result

    def watch_chain(self, wrapped: Wrapped, chain: Any, args: Any, kwargs: Any) -> Any:
        """See a chain from its first response to its last: for ``ChainResponse.responses``."""
        responses = wrapped(*args, **kwargs)
        run = self._border.safely(self._chain, chain)
        return responses if run is None else self._read(responses, self._links(run))

    def watch_chain_async(self, wrapped: Wrapped, chain: Any, args: Any, kwargs: Any) -> Any:
        """See a chain from its first response to its last: for its async twin."""
        responses = wrapped(*args, **kwargs)
        run = self._border.safely(self._chain, chain)
        return responses if run is None else self._read_async(responses, self._links(run))

    def _pieces(self, response: Any) -> _Reading | None:
        if self._border.in_force() is None:
            return None
        run = run_of(response)
        if run is None:
            run = _runs[response] = HostRun(self._border.in_force, "prompt", response)
        book = run.begin(response.id)
        if book is None:
            return None
        span_id, safely = run.start_model(response), self._border.safely
        return _Reading(
            enter=partial(safely, enter, run),
            take=lambda _piece: safely(book.note_token, span_id),
            over=partial(safely, run.end_model, response, span_id),
        )

    def _links(self, run: HostRun) -> _Reading:
        safely = self._border.safely
        return _Reading(
            enter=partial(chain_here.set, run),
            take=partial(safely, self._link, run),
            over=partial(safely, run.end),
        )

    @staticmethod
    def _read(source: Iterator[Any], reading: _Reading) -> Iterator[Any]:
        try:
            while True:
                token = reading.enter()
                try:
                    item = next(source)
                except StopIteration:
                    break
                finally:
                    reset(token)
                reading.take(item)
                yield item
        except BaseException as error:
            reading.over(error)
            raise
        reading.over(None)

    @staticmethod
    async def _read_async(source: Any, reading: _Reading) -> AsyncIterator[Any]:
        try:
            while True:
                token = reading.enter()
                try:
                    item = await source.__anext__()
                except StopAsyncIteration:
                    break
                finally:
                    reset(token)
                reading.take(item)
                yield item
        except BaseException as error:
            reading.over(error)
            if is_a(error, GeneratorExit) and hasattr(source, "aclose"):
                await source.aclose()
            raise
        reading.over(None)

    def _follow(self, pieces: _Reading, response: Any) -> None:
        source = response._generator  # noqa: SLF001  # as it does
        response._generator = self._read_async(source, pieces)  # noqa: SLF001

    def _chain(self, chain: Any) -> HostRun | None:
        in_force = self._border.in_force
        return None if in_force() is None else HostRun(in_force, "chain", chain)

    def _link(self, run: HostRun, response: Any) -> None:
        _runs[response] = run
        run.begin(response.id)

    def watch_calls(self, wrapped: Wrapped, response: Any, args: Any, kwargs: Any) -> Any:
        """See the tool calls of a response."""
        calls = self._border.safely(self._calls, response, kwargs)
        if calls is None:
            return wrapped(*args, **kwargs)
        with calls:
            results = wrapped(*args, **calls.with_callbacks(kwargs))
        calls.over(results)
        return results

    async def watch_calls_async(
        self, wrapped: Wrapped, response: Any, args: Any, kwargs: Any
    ) -> Any:
        """See the tool calls of an async response."""
        calls = self._border.safely(self._calls, response, kwargs)
        if calls is None:
            return await wrapped(*args, **kwargs)
        with calls:
            results = await wrapped(*args, **calls.with_callbacks(kwargs))
        calls.over(results)
        return results

    def _calls(self, response: Any, kwargs: Any) -> "_Calls | None":
        if self._border.in_force() is None:
            return None
        pending = kwargs.get("tool_calls_list") or ()
        return _Calls(self._border.in_force, response, chain=chain_here.get(), pending=pending)


class _Calls:
    """The calls of one ``execute_tool_calls``, by the objects that the host makes of them.

    Args:
        in_force: Returns the running system.
        response: The response with the calls; it may not have been driven yet.
        chain: The chain that executes them, if one does.
        pending: The calls that were passed explicitly.
    """

    def __init__(
        self, in_force: InForce, response: Any, *, chain: HostRun | None, pending: Sequence[Any]
    ) -> None:
        self._border = Border(in_force)
        self._response = response
        self._chain = chain
        self._pending = pending
        self._run: HostRun | None = None
        self._ends = False
        self._open: dict[int, Any] = {}
        self._tokens: list[Any] = []

    def __enter__(self) -> None:
        self._tokens.append(chain_here.set(None))  # a request of a tool is not the chain's

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        try:
            if error is not None:
                self._fail(error)
        finally:
            reset(*reversed(self._tokens))

    def with_callbacks(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the host's arguments, with callbacks that call ours and then the user's."""
        theirs_before, theirs_after = kwargs.get("before_call"), kwargs.get("after_call")

        def before(tool: Any, call: Any) -> Any:
            veto = self._border.safely(self._start, tool, call, kind=Kind.DECISION)
            if veto is not None:
                raise _host().CancelToolCall(veto)
            return theirs_before(tool, call) if theirs_before else None

        def after(tool: Any, call: Any, result: Any) -> Any:
            self._border.safely(self._end_result, call, result)
            return theirs_after(tool, call, result) if theirs_after else None

        return {**kwargs, "before_call": before, "after_call": after}

    def over(self, results: Sequence[Any]) -> None:
        """Report the ends without a callback: of calls that were vetoed, or of unknown tools."""
        self._border.safely(self._end_open_results, results)
        if self._ends and self._run is not None:
            self._border.safely(self._run.end, None)

    def _fail(self, error: BaseException) -> None:
        """Report the ends of the calls still open, and whether the chain waits."""
        self._border.safely(self._end_open, error)
        if self._run is None:
            return
        if is_a(error, _host().PauseChain):
            self._border.safely(self._run.pause, error)
        if self._ends:
            self._border.safely(self._run.end, error)

    def _run_of_calls(self) -> HostRun | None:
        """Return the run that the calls belong to; it is running, or was until now."""
        if self._run is not None:
            return self._run
        run = run_of(self._response)
        if run is None and self._chain is not None:  # it was paused, and goes on with its tools
            run = self._chain
            run.begin(self._response.id, pending=self._pending)
        elif run is None:  # the response comes from a store
            run = HostRun(self._border.in_force, "prompt", self._response)
            _runs[self._response] = run
            run.begin(self._response.id, pending=self._pending or self._response._tool_calls)  # noqa: SLF001
            self._ends = True
        self._run = run
        return run

    def _start(self, tool: Any, call: Any) -> str | None:
        """Report a tool's call; return the text in its place, if it is not run."""
        run = self._run_of_calls()
        book = None if run is None else run.book
        if run is None or book is None:
            return None
        self._tokens.append(enter(run))
        self._open[id(call)] = call
        plugin = getattr(tool, "plugin", None)
        fields: dict[str, object] = {"args": content_of(call.arguments)}
        if plugin:
            fields["raw"] = {"plugin": as_text(plugin)}
        book.start_tool(_id(call), as_text(call.name), fields)
        choices = run.choices
        if choices is None or tool is None or self._border.in_force() is not book.runtime:
            return None
        return choices.veto(situation_of({**run.situation(), "tool": as_text(call.name)}))

    def _end_result(self, call: Any, result: Any) -> None:
        if self._open.pop(id(call), None) is None:
            return
        is_vetoed = isinstance(result.exception, _host().CancelToolCall)
        self._end_call(
            call,
            result.exception,
            {"result": content_of(result.output)},
            status=ev.Status.VETOED if is_vetoed else None,
        )

    def _end_call(
        self,
        call: Any,
        error: BaseException | None,
        fields: ev.Fields,
        *,
        status: ev.Status | None,
    ) -> None:
        if self._run is not None and self._run.book is not None:
            book = self._run.book
            book.end_tool(_id(call), as_text(call.name), fields, error=error, status=status)

    def _end_open_results(self, results: Sequence[Any]) -> None:
        open_calls = list(self._open.values())
        for result in few(results):
            key = (result.tool_call_id, result.name)
            for call in open_calls:
                if (call.tool_call_id, call.name) == key:
                    open_calls.remove(call)
                    self._end_result(call, result)
                    break

    def _end_open(self, error: BaseException) -> None:
        paused = is_a(error, _host().PauseChain)
        self._end_open_results(getattr(error, "tool_results", None) or () if paused else ())
        for call in list(self._open.values()):
            waits = paused and call is getattr(error, "tool_call", None)
            del self._open[id(call)]
            self._end_call(call, error, {}, status=ev.Status.INTERRUPTED if waits else None)


def _host() -> Any:
    """Return the host's module as it is now: after a reload it has other exceptions."""
    import llm

    return llm


def _id(call: Any) -> str:
    return as_text(call.tool_call_id or f"{as_text(call.name)}#{id(call):x}")
