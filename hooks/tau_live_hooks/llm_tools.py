"""How llm executes tools: seen through its own callbacks, before and after the user's.

A call that is vetoed, one of a tool that does not exist, and one that pauses the chain reach no
callback at their end; those are told from what the host returns or raises.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tau_live import events as ev
from tau_live.adapters import InForce
from tau_live.gate import Kind
from tau_live_hooks.common_border import Border
from tau_live_hooks.common_text import content_of, few, is_a, printed, situation_of
from tau_live_hooks.llm_run import HostRun, belongs, enter, leave, run_of
from tau_live_hooks.llm_watch import chain_here


class Tools:
    """Wraps ``execute_tool_calls`` of both kinds of responses.

    Args:
        in_force: Returns the running system.
    """

    def __init__(self, in_force: InForce) -> None:
        self._border = Border(in_force)

    def executed(self, wrapped: Callable[..., Any], response: Any, args: Any, kwargs: Any) -> Any:
        """See tools that a response asked for."""
        calls = self._border.safely(self._calls, response, kwargs)
        if calls is None:
            return wrapped(*args, **kwargs)
        token = chain_here.set(None)  # what a tool asks is not the chain's
        try:
            results = wrapped(*args, **calls.told_of(kwargs))
        except BaseException as error:
            calls.failed(error)
            raise
        finally:
            leave(token)
            calls.left()
        calls.over(results)
        return results

    async def aexecuted(
        self, wrapped: Callable[..., Any], response: Any, args: Any, kwargs: Any
    ) -> Any:
        """See tools that an async response asked for."""
        calls = self._border.safely(self._calls, response, kwargs)
        if calls is None:
            return await wrapped(*args, **kwargs)
        token = chain_here.set(None)
        try:
            results = await wrapped(*args, **calls.told_of(kwargs))
        except BaseException as error:
            calls.failed(error)
            raise
        finally:
            leave(token)
            calls.left()
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
        response: Who asked for them; it may not have been driven yet.
        chain: The chain that executes them, if one does.
        pending: Those that are given by hand.
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

    def left(self) -> None:
        """Let what was the innermost run before be that again."""
        for token in reversed(self._tokens):
            leave(token)

    def told_of(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the host's arguments, with callbacks that call ours and then the user's."""
        theirs_before, theirs_after = kwargs.get("before_call"), kwargs.get("after_call")

        def before(tool: Any, call: Any) -> Any:
            told = self._border.safely(self._called, tool, call, kind=Kind.DECISION)
            if told is not None:
                raise _host().CancelToolCall(told)
            return theirs_before(tool, call) if theirs_before else None

        def after(tool: Any, call: Any, result: Any) -> Any:
            self._border.safely(self._returned, call, result)
            return theirs_after(tool, call, result) if theirs_after else None

        return {**kwargs, "before_call": before, "after_call": after}

    def over(self, results: Sequence[Any]) -> None:
        """Tell the ends that no callback told: of what was vetoed, or does not exist."""
        self._border.safely(self._rest, results)
        if self._ends and self._run is not None:
            self._border.safely(self._run.end, None)

    def failed(self, error: BaseException) -> None:
        """Tell the ends of what was still going on, and whether the chain waits."""
        self._border.safely(self._stopped, error)
        if self._run is None:
            return
        if is_a(error, _host().PauseChain):
            self._border.safely(self._run.pause, error)
        if self._ends:
            self._border.safely(self._run.end, error)

    def _begun(self) -> HostRun | None:
        """Return the run that the calls belong to; it goes on, or did until now."""
        if self._run is not None:
            return self._run
        run = run_of(self._response)
        if run is None and self._chain is not None:  # it had stopped, and goes on with its tools
            run = self._chain
            run.begin(self._response.id, pending=self._pending)
        elif run is None:  # the response comes from a store
            run = HostRun(self._border.in_force, "prompt", self._response)
            belongs(self._response, run)
            run.begin(self._response.id, pending=self._pending or self._response._tool_calls)  # noqa: SLF001
            self._ends = True
        self._run = run
        return run

    def _called(self, tool: Any, call: Any) -> str | None:
        """Tell that a tool is called; return what the model is told instead, if it is not run."""
        run = self._begun()
        book = None if run is None else run.book
        if run is None or book is None:
            return None
        self._tokens.append(enter(run))
        self._open[id(call)] = call
        plugin = getattr(tool, "plugin", None)
        told: dict[str, object] = {"args": content_of(call.arguments)}
        if plugin:
            told["raw"] = {"plugin": printed(plugin)}
        book.called(_id(call), printed(call.name), told)
        choices = run.choices
        if choices is None or tool is None or self._border.in_force() is not book.runtime:
            return None
        return choices.vetoed(situation_of({**run.known(), "tool": printed(call.name)}))

    def _returned(self, call: Any, result: Any) -> None:
        if self._open.pop(id(call), None) is None:
            return
        is_vetoed = isinstance(result.exception, _host().CancelToolCall)
        self._ended(
            call,
            result.exception,
            {"result": content_of(result.output)},
            status=ev.Status.VETOED if is_vetoed else None,
        )

    def _ended(
        self,
        call: Any,
        error: BaseException | None,
        fields: Mapping[str, object],
        *,
        status: ev.Status | None,
    ) -> None:
        if self._run is not None and self._run.book is not None:
            book = self._run.book
            book.returned(_id(call), printed(call.name), fields, error=error, status=status)

    def _rest(self, results: Sequence[Any]) -> None:
        waiting = list(self._open.values())
        for result in few(results):
            meant = (result.tool_call_id, result.name)
            for call in waiting:
                if (call.tool_call_id, call.name) == meant:
                    waiting.remove(call)
                    self._returned(call, result)
                    break

    def _stopped(self, error: BaseException) -> None:
        paused = is_a(error, _host().PauseChain)
        self._rest(getattr(error, "tool_results", None) or () if paused else ())
        for call in list(self._open.values()):
            waits = paused and call is getattr(error, "tool_call", None)
            del self._open[id(call)]
            self._ended(call, error, {}, status=ev.Status.INTERRUPTED if waits else None)


def _host() -> Any:
    """Return the host as it is now: one that was imported anew has other exceptions."""
    import llm

    return llm


def _id(call: Any) -> str:
    return printed(call.tool_call_id or f"{printed(call.name)}#{id(call):x}")
