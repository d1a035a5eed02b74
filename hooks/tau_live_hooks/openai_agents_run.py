"""One run of an agent of openai-agents: its ids, its beginning and its end.

Its steps are told by ``openai_agents_steps``. Nothing here imports the host.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from tau_live import door
from tau_live import events as ev
from tau_live.errors import suppress
from tau_live.runs.handles import RunHandle
from tau_live.runtime import Runtime
from tau_live_hooks import openai_agents_events as said
from tau_live_hooks.common_choices import Choices
from tau_live_hooks.common_run import RunBook
from tau_live_hooks.common_text import content_of, few, printed
from tau_live_hooks.openai_agents_choices import Deciding
from tau_live_hooks.openai_agents_ids import RunIds, Waiting, waiting_for
from tau_live_hooks.openai_agents_policies import Policies
from tau_live_hooks.openai_agents_steps import Steps

if TYPE_CHECKING:
    from contextvars import Token

HOST = "openai-agents"

_BLOCKED = "GuardrailTripwireTriggered"
_LATE = frozenset({"ModelTimeoutError", "ToolTimeoutError"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is known of a run when the host is asked for it.

    Attributes:
        agent: The agent that is started.
        input: What it is to work on.
        options: What else the host was told: ``run_config``, ``session``, ``conversation_id``.
        state: The host's state that it goes on with; ``None`` for a new run.
        owns_trace: Whether it makes a trace of its own.
        streamed: What the host's user reads from, where the answer is streamed.
        keeps: Whether what goes in and out may be told at all.
    """

    agent: Any
    input: Any
    options: Mapping[str, Any]
    state: Any
    owns_trace: bool
    streamed: Any
    keeps: bool


class HostRun:
    """What is told of one run; it begins with the first thing that the host does in it.

    Args:
        runtime: Who is told.
        asked: What is known before.
        ids: Names it.
        trace: Returns the host's current trace.

    Attributes:
        book: What tells its steps; ``None`` until it begins.
        steps: The same, by what the host calls them.
        deciding: Decides it; ``None`` where nothing is to be decided.
    """

    def __init__(
        self, runtime: Runtime, asked: Asked, *, ids: RunIds, trace: Callable[[], Any]
    ) -> None:
        self.runtime = runtime
        self.asked = asked
        self.book: RunBook | None = None
        self.steps: Steps | None = None
        self.deciding: Deciding | None = None
        self.metadata: Mapping[str, object] = {}
        self._ids = ids
        self._trace = trace
        self._trace_id: str | None = None
        self._policies: Policies | None = None
        self._outer = door.current()
        self._token: Token[Any] | None = None

    def begin(self, span: Any = None) -> Steps | None:
        """Begin, if it has not yet, with the span that the host told first; ``None`` for none."""
        if self.book is not None:
            return self.steps
        trace = self._trace()
        self._trace_id = said.known_id(getattr(trace, "trace_id", None))
        native = span is not None
        fidelity = ev.Fidelity.NATIVE if native else ev.Fidelity.HOOKS
        handle = self._handle(trace if native else None, span, fidelity)
        agent = printed(getattr(self.asked.agent, "name", None) or "agent")
        self.book = RunBook(self.runtime, handle, agent=agent, fidelity=fidelity)
        self.steps = Steps(self.book, keeps=self.asked.keeps, native=native)
        if self.asked.state is not None:
            waited = self.asked.state.get_interruptions()
            self.steps.waits = {said.call_id_of(one): said.tool_name_of(one) for one in few(waited)}
        self._policies = Policies(self.book, self.asked.state, native=native)
        if self.runtime.settings.act:
            self.deciding = Deciding(self, self.steps, Choices(self.runtime, handle))
        self._token = self.enter()
        return self.steps

    def enter(self) -> "Token[Any] | None":
        """Make it the current run here, unless it is; it may have begun in another context."""
        inside = door.current()
        if self.book is None or (inside is not None and inside.handle is self.book.handle):
            return None
        return door.enter(self.book.handle)

    def leave(self) -> None:
        """Make the run outside of it the current one again."""
        if self._token is not None:
            with suppress(ValueError):  # it ends in another context than it began in
                self._token.var.reset(self._token)

    def end(self, result: Any, error: BaseException | None) -> None:
        """Tell how it ended; what failed before the host did anything begins only here."""
        self.begin()
        if self.book is None:
            return
        found: dict[str, object] = {}
        try:
            if self._policies is not None:
                self._policies.told(result, error)
            waiting = self._waiting(result) if error is None else None
            if waiting is not None:
                self._ids.waits(self.book.handle.run_id, waiting)
                self.book.interrupt("approval", resume_key=",".join(waiting.call_ids))
                return
            found = self._ending(result, error)
            if not isinstance(error, Exception):  # what failed may be tried again
                self._ids.done(self.book.handle.run_id)
        finally:  # a run whose end cannot be told in full still ends
            self.book.end(error, found)

    def stage_of(self, name: str) -> str:
        """Return what a guardrail of this name looks at."""
        return "" if self._policies is None else self._policies.stage_of(name, self.asked)

    def _handle(self, trace: Any, span: Any, fidelity: ev.Fidelity) -> RunHandle:
        asked, outer = self.asked, self._outer
        inside = outer.handle if outer is not None else None
        nested = inside is not None and inside.host == HOST and not inside.ended
        resumed = asked.state is not None
        task = getattr(span, "span_id", None)
        chosen = said.known_id(said.of(asked.options.get("run_config"), "trace_id"))
        own = (self._trace_id or chosen) if asked.owns_trace else None
        run_id = self._ids.named(own_trace=own, span_id=task, waited=self._waited())
        self.metadata = self._metadata(trace, task)
        told = {
            "input": content_of(asked.input) if asked.keeps and not resumed else None,
            "model": said.model_name(getattr(asked.agent, "model", None)),
            "agent": getattr(asked.agent, "name", None),
            "tools": said.names_of(getattr(asked.agent, "tools", ())),
            "instructions_hash": _hash(getattr(asked.agent, "instructions", None)),
            "trigger": "resume" if resumed else "tool" if nested else "user",
            "fidelity": fidelity,
        }
        aliases = {task, None if nested else self._trace_id} - {None, run_id}
        told["aliases"] = tuple(sorted(printed(one) for one in aliases))
        return self.runtime.begin_run(
            told["agent"] or "agent",
            key=run_id,
            session=self._session(trace, inside if nested else None),
            metadata=self.metadata,
            parent=inside,
            host=HOST,
            told=told,
            resumed={"reason": "approval"} if resumed else None,
        )

    def _session(self, trace: Any, inside: RunHandle | None) -> str | None:
        """Return what runs of one conversation share: its group, session or conversation."""
        options = self.asked.options
        group = said.of(options.get("run_config"), "group_id") or getattr(trace, "group_id", None)
        session = None
        with suppress(Exception):  # a session that the service keeps has no id before its first use
            session = getattr(options.get("session"), "session_id", None)
        found = group or session or options.get("conversation_id")
        return found or (inside.session_id if inside is not None else None)

    def _metadata(self, trace: Any, task: str | None) -> dict[str, object]:
        config = self.asked.options.get("run_config")
        given = getattr(trace, "metadata", None) or said.of(config, "trace_metadata")
        own = {
            "trace_id": self._trace_id,
            "task_span_id": task,
            "workflow_name": getattr(trace, "name", None) or said.of(config, "workflow_name"),
        }
        known = {name: value for name, value in own.items() if isinstance(value, str)}
        return {**known, **(given if isinstance(given, Mapping) else {})}

    def _waited(self) -> Waiting | None:
        state = self.asked.state
        if state is None:
            return None
        trace_id = said.known_id(getattr(getattr(state, "_trace_state", None), "trace_id", None))
        return waiting_for(trace_id, self._agent, _calls(state.get_interruptions()))

    def _waiting(self, result: Any) -> Waiting | None:
        waiting = getattr(result, "interruptions", None) or ()
        return waiting_for(self._trace_id, self._agent, _calls(waiting))

    @property
    def _agent(self) -> str:
        return printed(getattr(self.asked.agent, "name", None))

    def _ending(self, result: Any, error: BaseException | None) -> dict[str, object]:
        name = type(error).__name__
        if name.endswith(_BLOCKED) or (self._policies is not None and self._policies.tripped):
            return {"status": ev.Status.VETOED, "reason": ev.Reason.SAFETY_BLOCKED}
        if name == "MaxTurnsExceeded":
            return {"status": ev.Status.LIMIT, "reason": ev.Reason.LIMIT}
        if name in _LATE:
            return {"status": ev.Status.ERROR, "reason": ev.Reason.TIMEOUT}
        if error is not None:
            return {}
        output = getattr(result, "final_output", None)
        if output is None and getattr(self.asked.streamed, "_cancel_mode", "none") != "none":
            return {"status": ev.Status.CANCELLED, "reason": ev.Reason.CANCELLED}
        return {"output": content_of(output) if self.asked.keeps else None}


def _calls(interruptions: Iterable[Any]) -> list[str]:
    return [said.call_id_of(item) for item in few(interruptions)]


def _hash(instructions: object) -> str | None:
    if not isinstance(instructions, str):
        return None
    return sha256(instructions.encode("utf-8", "replace")).hexdigest()
