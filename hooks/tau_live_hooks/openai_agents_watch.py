"""What watches openai-agents in one process: its runs, its spans, its hooks and its models.

Each wrapper does the host's own step exactly once and outside of everything of ours, returns what
it returned, and raises what it raised. What of ours fails is told to the runtime and goes no
further.
"""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

from tau_live.adapters import InForce
from tau_live.errors import suppress
from tau_live.gate import Kind
from tau_live_hooks.common_border import Border
from tau_live_hooks.openai_agents_choices import RequestSeam
from tau_live_hooks.openai_agents_ids import RunIds
from tau_live_hooks.openai_agents_model import SeenHooks, SeenModel
from tau_live_hooks.openai_agents_requests import Call, Request
from tau_live_hooks.openai_agents_run import Asked, HostRun
from tau_live_hooks.openai_agents_steps import Steps

ENDING = frozenset({"turn", "function", "handoff", "guardrail"})
"""Spans that are told when they end."""

OPEN_SPANS = 50_000
"""So many of them are waited for."""

MODELS = frozenset({"generation", "response"})


class Host(NamedTuple):
    """What is used of the host besides what is wrapped.

    Attributes:
        trace: Returns the current trace.
        span: Returns the current span.
        hooks: Makes hooks that do nothing.
        is_hooks: Says whether something is hooks of a run.
        is_state: Says whether an input is a state to go on with.
        keeps: Says whether a run's inputs and outputs may be told.
        is_traced: Says whether the host tells what it does in spans, as far as it is known.
        model: Returns the model of an agent, as the host does.
        settings: Returns its settings, as the host does.
    """

    trace: Callable[[], Any]
    span: Callable[[], Any]
    hooks: Callable[[], Any]
    is_hooks: Callable[[Any], bool]
    is_state: Callable[[Any], bool]
    keeps: Callable[[Any], bool]
    is_traced: Callable[[Any], bool]
    model: Callable[[Any, Any], Any]
    settings: Callable[[Any, Any], Any]


class Watch:
    """Sees every run of a process.

    Args:
        in_force: Returns the running system.
        host: What is used of the host.

    Attributes:
        attached: Whether it sees what begins.
    """

    def __init__(self, in_force: InForce, host: Host) -> None:
        self.attached = True
        self._in_force = in_force
        self._safely = Border(in_force).safely
        self._host = host
        self._ids = RunIds()
        self._spans: dict[str, Steps] = {}
        self._current: ContextVar[HostRun | None] = ContextVar("tau_live_openai", default=None)
        self._asking: ContextVar[Call | None] = ContextVar("tau_live_openai_asked", default=None)

    async def run(
        self,
        wrapped: Callable[..., Awaitable[Any]],
        _runner: object,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """See a run from its beginning to its end."""
        run = self._safely(self._asked, args, named)
        if run is None:
            return await wrapped(*args, **named)
        token = self._current.set(run)
        result: Any = None
        error: BaseException | None = None
        hooked = self._safely(self._hooked, run, named.get("hooks"))
        try:
            result = await wrapped(*args, **(named if hooked is None else hooked(named)))
            return result
        except BaseException as raised:
            error = raised
            raise
        finally:
            with suppress(ValueError):
                self._current.reset(token)
            self._safely(run.leave)
            self._safely(run.end, result, error)
            del error, result  # an exception's frames hold the run's inputs

    async def stream(
        self,
        wrapped: Callable[..., Awaitable[Any]],
        _module: object,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """See a streamed run, which goes on in a task of its own."""
        run = self._safely(self._streamed, args, named)
        if run is None:
            return await wrapped(*args, **named)
        token = self._current.set(run)
        error: BaseException | None = None
        hooked = self._safely(self._hooked, run, named.get("hooks"))
        try:
            return await wrapped(*args, **(named if hooked is None else hooked(named)))
        except BaseException as raised:
            error = raised
            raise
        finally:
            with suppress(ValueError):
                self._current.reset(token)
            self._safely(run.leave)
            self._safely(run.end, run.asked.streamed, error)
            del error

    def model(
        self,
        wrapped: Callable[..., Any],
        _module: object,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """Return the model that a run asks next, seen."""
        model = wrapped(*args, **named)
        run = self._current.get()
        if run is None:
            return model
        seen = self._safely(self._seen, run, model, args, named)
        return model if seen is None else seen

    async def guarded(
        self,
        wrapped: Callable[..., Awaitable[Any]],
        _module: object,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """Decide whether a tool runs that the host's own guardrails let run."""
        rejected = await wrapped(*args, **named)
        run = self._current.get()
        if rejected is not None or run is None:
            return rejected
        return self._safely(self._vetoed, run, named, kind=Kind.DECISION)

    async def failed(
        self,
        wrapped: Callable[..., Awaitable[Any]],
        _module: object,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """See why a tool failed, before its model is told so."""
        self._safely(self._tool_failed, named.get("context"), named.get("error"))
        return await wrapped(*args, **named)

    async def invoked(
        self,
        wrapped: Callable[..., Awaitable[Any]],
        _module: object,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """See that a tool took too long, where its model is told so."""
        result = await wrapped(*args, **named)
        self._safely(self._tool_late, named.get("context"), result)
        return result

    def span_began(
        self,
        wrapped: Callable[..., Any],
        _processors: object,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """See a span that begins, before those whom the host tells."""
        run = self._current.get()
        if run is not None:
            self._safely(partial(self._span_began, run, *args, **named))
        return wrapped(*args, **named)

    def span_ended(
        self,
        wrapped: Callable[..., Any],
        _processors: object,
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """See a span that ends, maybe after its run."""
        if self._spans:
            self._safely(partial(self._span_ended, *args, **named))
        return wrapped(*args, **named)

    def _asked(self, args: tuple[Any, ...], named: dict[str, Any]) -> HostRun | None:
        agent = args[0] if args else named.get("starting_agent")
        given = args[1] if len(args) > 1 else named.get("input")
        state = given if self._host.is_state(given) else None
        return self._new(agent, given, named, state=state, owns=self._host.trace() is None)

    def _streamed(self, args: tuple[Any, ...], named: dict[str, Any]) -> HostRun | None:
        if args:  # another layout than was probed
            return None
        streamed = named["streamed_result"]
        state = named.get("run_state") if named.get("is_resumed_state") else None
        owns = getattr(streamed, "trace", None) is not None or self._host.trace() is None
        agent, given = named["starting_agent"], named["starting_input"]
        return self._new(agent, given, named, state=state, owns=owns, streamed=streamed)

    def _new(  # what is known of a run
        self,
        agent: Any,
        given: Any,
        options: dict[str, Any],
        *,
        state: Any,
        owns: bool,
        streamed: Any = None,
    ) -> HostRun | None:
        runtime = self._in_force() if self.attached else None
        if runtime is None:
            return None
        asked = Asked(
            agent=agent,
            input=given,
            options=options,
            state=state,
            owns_trace=owns,
            streamed=streamed,
            keeps=self._host.keeps(options.get("run_config")),
        )
        run = HostRun(runtime, asked, ids=self._ids, trace=self._host.trace)
        if not self._host.is_traced(options.get("run_config")):
            run.begin()
        return run

    def _hooked(self, run: HostRun, hooks: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """Return what puts our hooks before the user's; the host refuses what are none."""
        theirs = self._host.hooks() if hooks is None else hooks
        if not self._host.is_hooks(theirs):
            return dict

        def told(name: str, *args: Any, **named: Any) -> None:
            self._told(run, name, *args, **named)

        ours = SeenHooks(theirs, told, self._safely)
        return lambda options: {**options, "hooks": ours}

    def _told(self, run: HostRun, name: str, *args: Any, **named: Any) -> None:
        steps = run.begin()
        if steps is None:
            return
        if name == "agent_start":
            steps.agent_began(getattr(args[1], "name", None))
        elif name == "tool_start":
            context, _agent, tool = args
            steps.tool_began(context, tool, self._host.span())
        elif name == "tool_end":
            context, _agent, tool, result = args
            steps.tool_returned(context, tool, result, self._host.span())
        elif not steps.native:
            steps.handed_over(named["from_agent"].name, named["to_agent"].name)

    def _tool_late(self, context: Any, result: Any) -> None:
        if getattr(result, "is_sdk_generated_error", False) is True:
            self._tool_failed(context, None)

    def _tool_failed(self, context: Any, error: BaseException | None) -> None:
        run = self._current.get()
        if run is not None and run.steps is not None:
            run.steps.tool_failed(context, error)

    def _seen(self, run: HostRun, model: Any, args: Any, named: Any) -> Any:
        steps = run.begin()
        if steps is None:
            return None
        agent = args[0] if args else named["agent"]
        config = args[1] if len(args) > 1 else named["run_config"]
        seam = RequestSeam(agent, config, self._host)
        run.enter()
        steps.request_began()

        def began(request: Request, streaming: bool) -> Call:  # as it is called
            return self._began(run, steps, seam, request, streaming=streaming)

        return SeenModel(model, began, self._safely, self._asking)

    def _began(
        self,
        run: HostRun,
        steps: Steps,
        seam: RequestSeam,
        request: Request,
        *,
        streaming: bool,
    ) -> Call:
        steps.sent(request, None if run.asked.state is not None else run.asked.input)
        span_id = steps.asked_anew()
        if self._decides(run) and run.deciding is not None:
            changed = self._safely(run.deciding.changed, seam, request, kind=Kind.DECISION)
            request = request if changed is None else changed
        call = Call(steps, request, span_id=span_id, streaming=streaming)
        if not steps.native:
            call.began()
        return call

    def _vetoed(self, run: HostRun, named: dict[str, Any]) -> str | None:
        if not self._decides(run) or run.deciding is None:
            return None
        return run.deciding.vetoed(named.get("tool_context"), named.get("func_tool"))

    def _decides(self, run: HostRun) -> bool:
        return run.deciding is not None and self._in_force() is run.runtime

    def _span_began(self, run: HostRun, span: Any) -> None:
        steps = run.begin(span)
        if steps is None:
            return
        kind = span.span_data.type
        if kind in ENDING:
            self._keep(span.span_id, steps)
        if kind == "agent":
            steps.agent_began(span.span_data.name)
        elif kind == "turn":
            steps.turn_began(span)
        elif kind == "function":
            steps.function_began(span)
        elif kind == "guardrail":
            steps.guards[span.span_id] = run.stage_of(span.span_data.name)
        elif kind in MODELS and (call := self._asking.get()) is not None:
            call.began(span)

    def _keep(self, span_id: str, steps: Steps) -> None:
        self._spans[span_id] = steps
        if len(self._spans) > OPEN_SPANS:  # the host never ended the oldest
            self._spans.pop(next(iter(self._spans)), None)

    def _span_ended(self, span: Any) -> None:
        steps = self._spans.pop(span.span_id, None)
        if steps is None:
            return
        data = span.span_data
        if data.type == "turn":
            steps.turn_ended(span)
        elif data.type == "function":
            steps.function_ended(span)
        elif data.type == "handoff":
            steps.handed_over(data.from_agent, data.to_agent, span.span_id)
        else:
            steps.guarded(span, steps.guards.pop(span.span_id, "output"))
