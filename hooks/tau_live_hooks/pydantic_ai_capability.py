"""The capability through which a pydantic-ai agent is seen, and asked; the one import of the host.

Each callback does the host's own step exactly once and outside of everything of ours, returns what
it returned, and raises what it raised. What of ours fails is told to the runtime and goes no
further.
"""

from contextvars import ContextVar, Token
from typing import Any, ClassVar, NamedTuple

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ModelRetry

from tau_live import door
from tau_live import events as ev
from tau_live.adapters import InForce
from tau_live.errors import suppress
from tau_live.gate import Kind
from tau_live.machine.context_variables import put
from tau_live.runs.handles import RunHandle, Unsettled
from tau_live_hooks import pydantic_ai_events as said
from tau_live_hooks.common_border import Border
from tau_live_hooks.common_choices import REPLACED, Choices, Pending, settle
from tau_live_hooks.common_run import RunBook
from tau_live_hooks.pydantic_ai_choices import RequestSeam, call_situation, situation
from tau_live_hooks.pydantic_ai_first import FirstChunk
from tau_live_hooks.pydantic_ai_run import HOST, HostRun

PREPARES = hasattr(AbstractCapability, "prepare_model_request")
"""Whether the host says of each attempt what is sent; an older one has no attempts."""

_around: ContextVar[HostRun | None] = ContextVar("tau_live_around", default=None)
_in_tool: ContextVar[HostRun | None] = ContextVar("tau_live_in_tool", default=None)


class _Retry(NamedTuple):
    """What lets a model try again, and the decisions for that."""

    error: ModelRetry
    unsettled: list[Unsettled]


class TauCapability(AbstractCapability[Any]):
    """Sees one run of one agent.

    Args:
        in_force: Returns the running system.
        resumes: The host's id of the run that waited and goes on with this one; ``None`` if none.

    Attributes:
        resolvers: What resolves the names of models, by the identities of its parts without ours.
    """

    prepares: ClassVar[bool] = PREPARES
    """Whether the host says of each attempt at a request what is sent."""

    def __init__(self, in_force: InForce, resumes: str | None = None) -> None:
        self._in_force = in_force
        self._border = Border(in_force)
        self._resumes = resumes
        self._run: HostRun | None = None
        self._choices: Choices | None = None
        self._pending: Pending[Any] | None = None
        self._retries: dict[int, _Retry] = {}
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
            _reset(*(tokens or ()))
            self._border.safely(self._end, ctx, result, error)
            del error, result  # an exception's frames hold the run's dependencies

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
        """See how a model request ends."""
        if not self.prepares:
            self._asked(ctx, request_context)
        first = FirstChunk(request_context)
        try:
            response = await handler(request_context)
        except BaseException as raised:
            first.over()
            self._border.safely(self._told, "refused", ctx, raised)
            self._border.safely(self._unsent, kind=Kind.DECISION)
            raise
        first.over()
        self._border.safely(self._told, "answered", ctx, response, first.after_s)
        self._border.safely(self._unsent, kind=Kind.DECISION)
        return response

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Decide what is asked of which model; the request as it is whenever in doubt."""
        changed = self._border.safely(self._decided, ctx, request_context, kind=Kind.DECISION)
        return request_context if changed is None else changed

    async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
        """See what is sent to the model, at each attempt."""
        self._asked(ctx, request_context)
        return request_context

    async def wrap_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        """See a tool's call; the one callback that pairs for every way in which it can end."""
        self._border.safely(self._told, "calls", ctx, call, tool_def)
        veto = self._border.safely(self._vetoed, ctx, call, kind=Kind.DECISION)
        if veto is not None:
            self._border.safely(self._told, "vetoed", call, veto)
            return veto
        token = put(_in_tool, self._run)
        try:
            result = await handler(args)
        except BaseException as raised:
            self._border.safely(self._retried, call, raised, kind=Kind.DECISION)
            self._border.safely(self._told, "returned", ctx, call, None, raised)
            raise
        finally:
            _reset(token)
        self._border.safely(self._retried, call, None, kind=Kind.DECISION)
        self._border.safely(self._told, "returned", ctx, call, result, None)
        return result

    async def on_tool_execute_error(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, error: Exception
    ) -> Any:
        """Let the model try again what failed, where that is decided; else fail as it did."""
        try:
            again = self._border.safely(self._again, ctx, call, error, kind=Kind.DECISION)
            if again is not None:
                raise again from error
            return await super().on_tool_execute_error(
                ctx, call=call, tool_def=tool_def, args=args, error=error
            )
        finally:
            del error  # its traceback holds this frame

    def _asked(self, ctx: Any, request: Any) -> None:
        self._border.safely(self._sent, request, kind=Kind.DECISION)
        self._border.safely(self._told, "asked", ctx, request)

    def _begin(self, ctx: Any) -> Any:
        runtime = self._in_force()
        if runtime is None:
            return None
        outer = door.current()
        told = said.start_of(ctx)
        inside = outer.handle if outer is not None else None
        name = str(told["agent"] or "agent")
        handle = runtime.begin_run(
            name,
            key=self._resumes or ctx.run_id,
            session=ctx.conversation_id,
            metadata=getattr(ctx, "metadata", None),
            parent=inside,
            host=HOST,
            told={
                **told,
                "trigger": self._trigger(inside, name),
                "aliases": () if self._resumes is None else (ctx.run_id,),
            },
            resumed=None if self._resumes is None else {"resume_key": ctx.conversation_id},
        )
        self._run = HostRun(RunBook(runtime, handle, agent=name), ctx.run_id)
        if runtime.settings.act:
            self._choices = Choices(runtime, handle)
        return door.enter(handle), put(_around, self._run)

    def _trigger(self, inside: RunHandle | None, name: str) -> str:
        """Return what began the run; whoever hands over to it is told so.

        Between a model's answer and the next request nothing but tools and the function that makes
        the output is run.
        """
        if self._resumes is not None:
            return "resume"
        if inside is None or inside.host != HOST or inside.ended:
            return "user"
        around = _around.get()
        if around is None or around.book.handle is not inside:
            return "tool"
        if _in_tool.get() is around or not around.has_answer:
            return "tool"
        giver = around.book
        giver.tell(ev.Handoff, {"from_agent": giver.agent, "to_agent": name, "reason": "output"})
        return "handoff"

    def _end(self, ctx: Any, result: Any, error: BaseException | None) -> None:
        if self._run is not None:
            self._run.ended(ctx, result, error)

    def _decided(self, ctx: Any, request: Any) -> Any:
        if not self._decides or self._choices is None:
            return None
        changed, self._pending = self._choices.changed(
            RequestSeam(), request, situation(ctx, request)
        )
        return changed

    def _vetoed(self, ctx: Any, call: Any) -> str | None:
        if not self._decides or self._choices is None:
            return None
        return self._choices.vetoed(call_situation(ctx, call))

    def _again(self, ctx: Any, call: Any, error: Exception) -> ModelRetry | None:
        """Return what lets the model try again; ``None`` to fail as the tool did.

        Nothing is decided where the host would refuse a retry: it then raises another error than
        the tool's.
        """
        if not self._decides or self._choices is None:
            return None
        if ctx.retry >= ctx.max_retries:
            return None
        retry = ModelRetry(str(error))  # first: what cannot be printed cannot be given to a model
        known = {**call_situation(ctx, call), "what": "tool", "error": type(error).__name__}
        unsettled: list[Unsettled] = []
        if not self._choices.again(known, own=False, unsettled=unsettled):
            return None
        if self._run is not None and self._run.goes_on(call):
            self._retries[id(call)] = _Retry(retry, unsettled)
        else:  # an older host asks after the call, and nobody behind us sees the retry
            settle(unsettled)
        return retry

    def _retried(self, call: Any, raised: BaseException | None) -> None:
        """Settle whether the model tries again; a capability behind us may have seen to it."""
        made = self._retries.pop(id(call), None)
        if made is not None:
            settle(made.unsettled, None if raised is made.error else REPLACED)

    @property
    def _decides(self) -> bool:
        return self._run is not None and self._in_force() is self._run.book.runtime

    def _sent(self, request: Any) -> None:
        if self._pending is not None and getattr(request, "attempt", 1) == 1:
            self._pending.sent(request)

    def _unsent(self) -> None:
        if self._pending is not None:
            self._pending.over()

    def _told(self, name: str, *args: object) -> None:
        if self._run is not None:
            getattr(self._run, name)(*args)


class WatchingCapability(TauCapability):
    """Sees one run in which nothing is decided, and no request is tried again.

    What it does not override the host does not prepare: for ``prepare_model_request`` it copies
    every tool's definition, which takes a fifth of a trivial run's time.
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
        run = self._border.safely(self._begun, ctx)
        if run is None:
            return await handler()
        try:
            return await run.wrap_run(ctx, handler=handler)
        finally:
            self._runs.pop(run.run_id, None)

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
        """See what is sent to a model, and how that ends."""
        run = self._border.safely(self._of, ctx)
        if run is None:
            return await handler(request_context)
        return await run.wrap_model_request(ctx, request_context=request_context, handler=handler)

    async def wrap_tool_execute(self, ctx: Any, *, args: Any, handler: Any, **told: Any) -> Any:
        """See a tool's call."""
        run = self._border.safely(self._of, ctx)
        if run is None:
            return await handler(args)
        return await run.wrap_tool_execute(ctx, args=args, handler=handler, **told)

    def _begun(self, ctx: Any) -> "_Run":
        run = self._runs[ctx.run_id] = _Run(self._in_force, ctx.run_id)
        return run

    def _of(self, ctx: Any) -> "_Run | None":
        return self._runs.get(ctx.run_id)


class _Run(WatchingCapability):
    """One run among those that have the same capability.

    Attributes:
        run_id: The host's id of it.
    """

    def __init__(self, in_force: InForce, run_id: str) -> None:
        super().__init__(in_force)
        self.run_id = run_id


def _reset(*tokens: Token[Any]) -> None:
    for token in tokens:
        with suppress(ValueError):  # it ends in another context than it began in
            token.var.reset(token)


RETRYING = ("prepare_model_request", "on_model_request_error", "after_model_request",
            "wrap_model_request")  # fmt: skip
"""The callbacks in which a capability may ask for another attempt at a request."""


def may_retry(capability: object) -> bool:
    """Say whether a capability may let a model's request be tried again; a function may be any."""
    kind = type(capability)
    if not isinstance(capability, AbstractCapability) or "Dynamic" in kind.__name__:
        return True
    return any(
        getattr(kind, name, None) is not getattr(AbstractCapability, name, None)
        for name in RETRYING
    )
