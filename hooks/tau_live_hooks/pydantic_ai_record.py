"""The capability that sees and steers a pydantic-ai agent; the one import of the host.

Each callback does the host's own step exactly once and outside of all our code, returns what it
returned, and raises what it raised. A failure of ours is reported to the runtime and goes no
further.

The facts about an agent's own capabilities, and their combination with ours, are cached: combining
them anew for each run took an eighth of a trivial run's time. A run that has capabilities of its
own resolves the names of models once for the agent's and once for its own, and makes a model for
each; so names are resolved as if ours were not there.
"""

import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, CombinedCapability
from pydantic_ai.exceptions import ModelRetry

from tau_live.core import events as ev
from tau_live.core.errors import pass_on
from tau_live.core.gate import Kind
from tau_live.core.sync import set_variable
from tau_live.decisions.runs import PendingDecision, RunHandle
from tau_live.runtime import api
from tau_live.runtime.adapters import InForce
from tau_live_hooks import pydantic_ai_events
from tau_live_hooks.common import Border, RunBook, enclosing_run, reset
from tau_live_hooks.common_choices import REPLACED, Choices, Pending, settle
from tau_live_hooks.pydantic_ai_choose import RequestSeam, call_situation, situation
from tau_live_hooks.pydantic_ai_events import HOST, FirstChunk, HostRun, resumed_run

PREPARES = hasattr(AbstractCapability, "prepare_model_request")
"""Whether the host shows what is sent at each attempt; an older one has no attempts."""

_current: ContextVar[HostRun | None] = ContextVar("tau_live_current", default=None)
_in_tool: ContextVar[HostRun | None] = ContextVar("tau_live_in_tool", default=None)


class TauCapability(AbstractCapability[Any]):
    """Sees one run of one agent.

    Args:
        in_force: Returns the running system.
        resumes: The host's id of the run that waited and goes on with this one; ``None`` if none.

    Attributes:
        resolvers: The capabilities that resolve names of models, by the identities of their parts
            without ours.
    """

    prepares: ClassVar[bool] = PREPARES
    """Whether the host shows what is sent at each attempt at a request."""

    def __init__(self, in_force: InForce, resumes: str | None = None) -> None:
        self._in_force = in_force
        self._border = Border(in_force)
        self._resumes = resumes
        self._run: HostRun | None = None
        self._choices: Choices | None = None
        self._pending: Pending[Any] | None = None
        self._retries: dict[int, tuple[ModelRetry, list[PendingDecision]]] = {}
        self.resolvers: dict[frozenset[int], Any] = {}

    def get_ordering(self) -> CapabilityOrdering:
        """Be outermost, so that what other capabilities do is seen."""
        return CapabilityOrdering(position="outermost")

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        """See a run from its beginning to its end."""
        tokens = self._border.safely(self._begin, ctx)
        result: Any = None
        error: BaseException | None = None
        try:
            result = await handler()
            return result
        except BaseException as raised:
            error = raised
            raise
        finally:
            reset(*(tokens or ()))
            self._border.safely(self._call_run, "end", ctx, result, error)
            del error, result  # an exception's frames hold the run's dependencies

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
        """See how a model request ends."""
        if not self.prepares:
            self._note_request(ctx, request_context)
        first = FirstChunk(request_context)
        try:
            response = await handler(request_context)
        except BaseException as raised:
            first.close()
            self._border.safely(self._call_run, "fail_model", ctx, raised)
            self._border.safely(self._settle_unsent, kind=Kind.DECISION)
            raise
        first.close()
        self._border.safely(self._call_run, "end_model", ctx, response, first.after_s)
        self._border.safely(self._settle_unsent, kind=Kind.DECISION)
        return response

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Decide the request and its model; return it unchanged whenever in doubt."""
        changed = self._border.safely(
            self._change_request, ctx, request_context, kind=Kind.DECISION
        )
        return request_context if changed is None else changed

    async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
        """See what is sent to the model, at each attempt."""
        self._note_request(ctx, request_context)
        return request_context

    async def wrap_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        """See a tool's call; the one callback that pairs for every way in which it can end."""
        self._border.safely(self._call_run, "start_tool", ctx, call, tool_def)
        veto = self._border.safely(self._veto, ctx, call, kind=Kind.DECISION)
        if veto is not None:
            self._border.safely(self._call_run, "veto_tool", call, veto)
            return veto
        token = set_variable(_in_tool, self._run)
        try:
            result = await handler(args)
        except BaseException as raised:
            self._border.safely(self._settle_retry, call, raised, kind=Kind.DECISION)
            self._border.safely(self._call_run, "end_tool", ctx, call, None, raised)
            raise
        finally:
            reset(token)
        self._border.safely(self._settle_retry, call, None, kind=Kind.DECISION)
        self._border.safely(self._call_run, "end_tool", ctx, call, result)
        return result

    async def on_tool_execute_error(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, error: Exception
    ) -> Any:
        """Let the model try again what failed, where that is decided; else fail as it did."""
        try:
            retry = self._border.safely(self._retry, ctx, call, error, kind=Kind.DECISION)
            if retry is not None:
                raise retry from error
            return await super().on_tool_execute_error(
                ctx, call=call, tool_def=tool_def, args=args, error=error
            )
        finally:
            del error  # its traceback holds this frame

    def _note_request(self, ctx: Any, request: Any) -> None:
        self._border.safely(self._settle_sent, request, kind=Kind.DECISION)
        self._border.safely(self._call_run, "start_model", ctx, request)

    def _begin(self, ctx: Any) -> Any:
        runtime = self._in_force()
        if runtime is None:
            return None
        fields, parent = pydantic_ai_events.start_of(ctx), enclosing_run()
        name = str(fields["agent"] or "agent")
        handle = runtime.begin_run(
            name,
            key=self._resumes or ctx.run_id,
            session=ctx.conversation_id,
            metadata=getattr(ctx, "metadata", None),
            parent=parent,
            host=HOST,
            fields={
                **fields,
                "trigger": self._trigger(parent, name),
                "aliases": () if self._resumes is None else (ctx.run_id,),
            },
            resumed=None if self._resumes is None else {"resume_key": ctx.conversation_id},
        )
        self._run = HostRun(RunBook(runtime, handle, agent=name), ctx.run_id)
        if runtime.settings.act:
            self._choices = Choices(runtime, handle)
        return api.enter(handle), set_variable(_current, self._run)

    def _trigger(self, parent: RunHandle | None, name: str) -> str:
        """Return the trigger of the run, and report a handoff to it.

        Between a model's answer and the next request nothing but tools and the function that makes
        the output is run.
        """
        if self._resumes is not None:
            return "resume"
        if parent is None or parent.host != HOST or parent.ended:
            return "user"
        outer = _current.get()
        if outer is None or outer.book.handle is not parent:
            return "tool"
        if _in_tool.get() is outer or not outer.has_answer:
            return "tool"
        book = outer.book
        book.tell(ev.Handoff, {"from_agent": book.agent, "to_agent": name, "reason": "output"})
        return "handoff"

    def _change_request(self, ctx: Any, request: Any) -> Any:
        choices = self._active_choices
        if choices is None:
            return None
        known = situation(ctx, request)
        changed, self._pending = choices.change_request(RequestSeam(), request, known)
        return changed

    def _veto(self, ctx: Any, call: Any) -> str | None:
        choices = self._active_choices
        return None if choices is None else choices.veto(call_situation(ctx, call))

    def _retry(self, ctx: Any, call: Any, error: Exception) -> ModelRetry | None:
        """Return the exception that lets the model try again; ``None`` to fail as the tool did.

        Nothing is decided where the host would refuse a retry: it then raises another error than
        the tool's.
        """
        choices = self._active_choices
        if choices is None or ctx.retry >= ctx.max_retries:
            return None
        retry = ModelRetry(str(error))  # first: what cannot be printed cannot be given to a model
        known = {**call_situation(ctx, call), "what": "tool", "error": type(error).__name__}
        unsettled: list[PendingDecision] = []
        if not choices.should_retry(known, own=False, unsettled=unsettled):
            return None
        if self._run is not None and self._run.is_open(call):
            self._retries[id(call)] = (retry, unsettled)
        else:  # an older host asks after the call, and no code after ours sees the retry
            settle(unsettled)
        return retry

    def _settle_retry(self, call: Any, raised: BaseException | None) -> None:
        """Settle whether the model tries again; a capability after ours may have prevented it."""
        retry, unsettled = self._retries.pop(id(call), (None, ()))
        settle(unsettled, None if raised is retry else REPLACED)

    @property
    def _active_choices(self) -> Choices | None:
        """The choices of its run; ``None`` if another runtime is in force by now."""
        decides = self._run is not None and self._in_force() is self._run.book.runtime
        return self._choices if decides else None

    def _settle_sent(self, request: Any) -> None:
        if self._pending is not None and getattr(request, "attempt", 1) == 1:
            self._pending.settle_sent(request)

    def _settle_unsent(self) -> None:
        if self._pending is not None:
            self._pending.settle_unsent()

    def _call_run(self, name: str, *args: object) -> None:
        if self._run is not None:
            getattr(self._run, name)(*args)


class WatchingCapability(TauCapability):
    """Sees one run in which nothing is decided, and no request is tried again.

    The host prepares nothing for a callback that is not overridden; for ``prepare_model_request``
    it would copy every tool's definition, which takes a fifth of a trivial run's time.
    """

    prepares = False
    before_model_request = AbstractCapability.before_model_request
    on_tool_execute_error = AbstractCapability.on_tool_execute_error
    if PREPARES:
        prepare_model_request = AbstractCapability.prepare_model_request


class SharedCapability(AbstractCapability[Any]):
    """Sees all runs of all agents in which nothing is decided, and no request is tried again.

    Args:
        in_force: Returns the running system.
    """

    def __init__(self, in_force: InForce) -> None:
        self._in_force = in_force
        self._border = Border(in_force)
        self._runs: dict[str, WatchingCapability] = {}

    def get_ordering(self) -> CapabilityOrdering:
        """Be outermost, so that what other capabilities do is seen."""
        return CapabilityOrdering(position="outermost")

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        """See a run from its beginning to its end."""
        run_id = self._border.safely(self._add, ctx)
        if run_id is None:
            return await handler()
        try:
            return await self._runs[run_id].wrap_run(ctx, handler=handler)
        finally:
            self._runs.pop(run_id, None)

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
        """See what is sent to a model, and how that ends."""
        run = self._border.safely(self._of, ctx)
        if run is None:
            return await handler(request_context)
        return await run.wrap_model_request(ctx, request_context=request_context, handler=handler)

    async def wrap_tool_execute(self, ctx: Any, *, args: Any, handler: Any, **details: Any) -> Any:
        """See a tool's call."""
        run = self._border.safely(self._of, ctx)
        if run is None:
            return await handler(args)
        return await run.wrap_tool_execute(ctx, args=args, handler=handler, **details)

    def _add(self, ctx: Any) -> str:
        run_id: str = ctx.run_id
        self._runs[run_id] = WatchingCapability(self._in_force)
        return run_id

    def _of(self, ctx: Any) -> WatchingCapability | None:
        return self._runs.get(ctx.run_id)


RETRYING = ("prepare_model_request", "on_model_request_error", "after_model_request",
            "wrap_model_request")  # fmt: skip
"""The callbacks in which a capability may ask for another attempt at a request."""


def may_retry(capability: object) -> bool:
    """Return whether a capability may retry a model's request; a function of a run may be any."""
    kind = type(capability)
    if not isinstance(capability, AbstractCapability) or "Dynamic" in kind.__name__:
        return True
    return any(
        getattr(kind, name, None) is not getattr(AbstractCapability, name, None)
        for name in RETRYING
    )


_DURABLE = "in_durable_context"

_joins: ContextVar[bool] = ContextVar("tau_live_joins", default=False)
"""Whether our capability is joined to the agent's for the run that is prepared here."""


class _OwnCapabilities:
    """The facts about an agent's own capabilities.

    Args:
        root: The capability that holds them.
        gone: Called when that is garbage-collected.

    Attributes:
        joined: Theirs and ours combined; ``None`` until a run has both.
        retries: Whether one may retry a request.
        durable: Those that tell whether a run begins in a durable context, where ours must not be.
    """

    __slots__ = ("_root", "durable", "joined", "retries")

    def __init__(self, root: Any, gone: Callable[[Any], object]) -> None:
        parts = _parts_of(root)
        self._root = (lambda: None) if root is None else weakref.ref(root, gone)
        self.joined: Any = None
        self.retries = any(map(may_retry, parts))
        self.durable = [part for part in parts if hasattr(part, _DURABLE)]

    def is_of(self, root: object) -> bool:
        """Return whether these are the facts about this root."""
        return self._root() is root


class Roots:
    """Adds ours to the capabilities of runs.

    Args:
        in_force: Returns the running system.
    """

    def __init__(self, in_force: InForce) -> None:
        self._in_force = in_force
        self._border = Border(in_force)
        self._shared = SharedCapability(in_force)
        self._facts: dict[int, _OwnCapabilities] = {}

    def iterate(
        self, wrapped: Callable[..., Any], agent: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Add ours to the capabilities of a call."""
        return wrapped(*args, **(self._arguments(kwargs, agent, joins=False) or kwargs))

    async def prepare(
        self, wrapped: Callable[..., Any], agent: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Add ours to the capabilities of a call, unless it may be among those of the agent."""
        arguments = self._arguments(kwargs, agent, joins=True)
        if arguments is not None:
            return await wrapped(*args, **arguments)
        token = set_variable(_joins, True)
        try:
            return await wrapped(*args, **kwargs)
        finally:
            _joins.reset(token)

    def join_base(
        self, wrapped: Callable[..., Any], _agent: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Add ours to the capabilities of an agent, for the run that is prepared."""
        base = wrapped(*args, **kwargs)
        if not _joins.get():
            return base
        set_variable(_joins, False)  # a run that its capabilities start is another one
        return self._border.safely(self._join, *base) or base

    def resolve(
        self, wrapped: Callable[..., Any], agent: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Resolve the name of a model as if ours were not there."""
        named = isinstance(args[0] if args else kwargs.get("selection"), str)
        return wrapped(*args, **(_without_ours(kwargs, agent) if named else kwargs))

    def _arguments(
        self, kwargs: dict[str, Any], agent: object, *, joins: bool
    ) -> Mapping[str, Any] | None:
        """Return the arguments of a run with ours among its capabilities, or as they are.

        ``None`` where ours may be among its agent's, if it ``joins`` them.
        """
        try:
            runtime = self._in_force()
            facts = self._facts_of(_root_of(agent))
            if runtime is None or any(getattr(part, _DURABLE) for part in facts.durable):
                return kwargs
            theirs = list(kwargs.get("capabilities") or ())
            if any(isinstance(part, TauCapability) for part in theirs):
                return kwargs
            watches = not (runtime.settings.act or facts.retries or any(map(may_retry, theirs)))
            deferred = kwargs.get("deferred_tool_results") is not None
            if watches and joins and not deferred:
                return None
            resumes = resumed_run(kwargs.get("message_history") or ()) if deferred else None
            capability = WatchingCapability if watches else TauCapability
            return {**kwargs, "capabilities": [capability(self._in_force, resumes), *theirs]}
        except Exception as error:  # noqa: BLE001  # the border to the host
            pass_on(error)
            return kwargs

    def _join(self, base: Any, *more: object) -> tuple[object, ...]:
        facts = self._facts.get(id(base))
        if facts is None or not facts.is_of(base):  # the host has made it for this run
            return CombinedCapability([base, self._shared]), *more
        if facts.joined is None:
            facts.joined = CombinedCapability([base, self._shared])
        return facts.joined, *more

    def _facts_of(self, root: Any) -> _OwnCapabilities:
        key = id(root)
        facts = self._facts.get(key)
        if facts is None or not facts.is_of(root):
            # no line of Python, in which an interruption would be lost: it is called by a weak
            # reference, which becomes the default of ``pop``
            facts = _OwnCapabilities(root, partial(self._facts.pop, key))
            self._facts[key] = facts
            if len(self._facts) > 1_000:  # agents whose facts are kept at once
                self._facts.pop(next(iter(self._facts)), None)
        return facts


def _without_ours(kwargs: dict[str, Any], agent: object) -> Mapping[str, Any]:
    """Return the arguments of a resolution with the capability that there would be without ours.

    The host caches a resolved name by the identity of the capability that resolved it. Ours
    resolves none.
    """
    try:
        capability: Any = kwargs.get("capability")
        parts = _parts_of(capability)
        ours = next((part for part in parts if isinstance(part, TauCapability)), None)
        if ours is None:
            return kwargs
        own = _root_of(agent)
        if not ours.resolvers and own is not None:
            ours.resolvers[frozenset(map(id, _parts_of(own)))] = own
        others = frozenset(id(part) for part in parts if part is not ours)
        return {**kwargs, "capability": ours.resolvers.setdefault(others, capability)}
    except Exception:  # noqa: BLE001  # the border to the host
        return kwargs


def _root_of(agent: object) -> Any:
    """Return the capability that holds an agent's, which ``Agent.override`` may replace."""
    effective = getattr(agent, "_effective_root_capability", None)
    return effective() if callable(effective) else getattr(agent, "_root_capability", None)


def _parts_of(capability: Any) -> list[object]:
    """Return the parts of a capability; none of ``None``."""
    parts: list[object] = []
    if capability is not None:
        capability.apply(parts.append)
    return parts
