"""One run of a smolagents agent, as it is told to the runtime; nothing here imports the host."""

import itertools
import threading
from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from tau_live import events as ev
from tau_live.runs.raised import error_of
from tau_live.settings import Content
from tau_live_hooks import smolagents_events as said
from tau_live_hooks.common_choices import Choices
from tau_live_hooks.common_run import RunBook
from tau_live_hooks.common_text import content_of, few, printed, situation_of

HOST = "smolagents"

_REFUSED = frozenset({"AgentToolCallError"})
_TOOL_ERRORS = frozenset({"AgentToolCallError", "AgentToolExecutionError", "AgentExecutionError"})


class Place(NamedTuple):
    """Where in a run the code is.

    Attributes:
        run: The run.
        step: The model request or tool call that goes on; ``None`` in the agent's own code.
    """

    run: "HostRun"
    step: str | None = None


here: ContextVar[Place | None] = ContextVar("tau_live_smolagents", default=None)


class HostRun:
    """What has been told of one run, and what is still to be told.

    Args:
        book: Keeps its turns and counts.
        agent: The host's agent.
        given: The arguments of ``run``, by name.
        choices: What decides; ``None`` where nothing is decided.

    Attributes:
        rendered: The agent's system prompt with other instructions and tools, by both.
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
        self._wanted: list[Any] = []
        self._requests = itertools.count(1)
        self._unnamed = itertools.count(1)
        self._was_asked = False
        self._failures = 0
        self._failed: tuple[str, str] | None = None
        self._has_listened = False
        self._limited = False
        self._over = False

    @property
    def max_steps(self) -> int:
        """After how many steps the host asks for an answer without tools."""
        return int(self.given.get("max_steps") or self.agent.max_steps)

    def span_of(self, call_id: str) -> str:
        """Return an id for a tool's call: models give the same id to calls of different turns."""
        with self._lock:
            self._spans[call_id] += 1
            count = self._spans[call_id]
        return f"tool:{call_id}" if count == 1 else f"tool:{call_id}#{count}"

    def asked(self, request: Mapping[str, object], *, inside: str | None) -> str:
        """Tell that a model is asked, which begins a turn where none goes on; return its id."""
        if self.book.turn is None:
            self._begin_turn()
        self._listen_first()
        self._was_asked = True
        span = f"model:{next(self._requests)}"
        self.book.asked(span, {**request, **_within(inside)})
        return span

    def wants(self, message: Any) -> None:
        """Know which tools a model asked for, so that they are told under its ids."""
        with self._lock:
            self._wanted = few(getattr(message, "tool_calls", None))

    def call_id(self, tool: str, arguments: Any) -> str | None:
        """Return the model's id of a call that begins now; ``None`` where it gave none."""
        with self._lock:
            mine = [call for call in self._wanted if call.function.name == tool]
            same = [call for call in mine if call.function.arguments is arguments]
            like = [call for call in mine if (call.function.arguments or {}) == arguments]
            found = next(iter([*same, *like]), None)
            if found is None:
                return None
            self._wanted = [call for call in self._wanted if call is not found]
        return printed(found.id)

    def unnamed_call(self) -> str:
        """Return an id for a call to which the model gave none."""
        return f"unnamed-{next(self._unnamed)}"

    def situation(self, **more: object) -> dict[str, object]:
        """Return what is known before something is chosen."""
        agent, task = self.agent, self.given.get("task")
        known = {
            "agent": self.book.agent or "agent",
            "step": agent.step_number,
            "tools": len(said.tool_names(agent)),
            "prompt_chars": len(task) if isinstance(task, str) else 0,
            **more,
        }
        texts = self.book.runtime.settings.content is not Content.NONE
        return situation_of(known, said.known_of(self.given.get("additional_args"), texts=texts))

    def checked(self, error: BaseException | None) -> None:
        """Tell what the agent's own checks made of its answer."""
        names = [
            getattr(check, "__name__", "check") for check in few(self.agent.final_answer_checks)
        ]
        told = {"stage": "output", "mode": "block", "blocked": error is not None}
        failed = [name for name in names if str(error).startswith(f"Check {printed(name)} failed")]
        rules = () if error is None else tuple(failed[:1])
        self.book.tell(ev.Policy, {**told, "rules": rules, "raw": {"checks": names}})

    def stepped(self, step: Any) -> None:
        """Tell what a step of the host's memory adds, and that a turn is over."""
        kind = type(step).__name__
        if kind == "FinalAnswerStep":
            return
        if self.book.turn is None:
            self._begin_turn()
        self._listen_first()
        if not self._was_asked:
            self._infer_request(step)
        self._was_asked = False
        self._listen(step, len(self.agent.memory.steps) + 1)
        if kind == "ActionStep":
            self._end_turn(step)

    def ended(self, result: Any, error: BaseException | None) -> None:
        """Tell that the run is over; nothing the second time."""
        with self._lock:
            over, self._over = self._over, True
        if over:
            return
        found: dict[str, object] = {}
        try:
            if self._limited:
                found |= {"status": ev.Status.LIMIT, "reason": ev.Reason.LIMIT}
            if error is None:
                found["output"] = content_of(getattr(result, "output", result))
            elif self.is_interrupted(error):
                self.book.tell(ev.RunInterrupt, {"reason": "interrupt"})
                found |= {"status": ev.Status.INTERRUPTED, "reason": ev.Reason.INTERRUPTED}
        finally:  # a run whose end cannot be told in full still ends
            self.book.end(error, found)

    def is_interrupted(self, error: BaseException) -> bool:
        """Say whether somebody called ``interrupt`` of the agent, and that ended the run."""
        own = type(error).__name__ == "AgentError" and type(error).__module__.startswith(HOST)
        return own and bool(getattr(self.agent, "interrupt_switch", False))

    def _begin_turn(self) -> None:
        self.book.begin_turn()
        failed, self._failed = self._failed, None
        if failed is not None and self.agent.step_number <= self.max_steps:
            what, reason = failed
            self.book.retried(what, number=self._failures + 1, reason=reason)

    def _end_turn(self, step: Any) -> None:
        error = step.error
        told: dict[str, object] = {"raw": {"step_number": step.step_number}}
        self._limited = type(error).__name__ == "AgentMaxStepsError"
        if error is not None:
            told |= {"status": ev.Status.ERROR, "error": error_of(error)}
        if self._limited:
            told["status"] = ev.Status.LIMIT
        elif error is None:
            self._failures = 0
        else:
            self._failures += 1
            what = "tool" if type(error).__name__ in _TOOL_ERRORS else "output"
            self._failed = (what, type(error).__name__)
        self.book.end_turn(told)

    def _listen_first(self) -> None:
        """Tell the messages with which the run begins."""
        if self._has_listened:
            return
        self._has_listened = True
        memory = self.agent.memory
        if self.given.get("reset", True):
            self._listen(memory.system_prompt, 0)
        for place, step in enumerate(few(memory.steps), start=1):
            if place == len(memory.steps):  # what was before is other runs'
                self._listen(step, place)

    def _listen(self, step: Any, place: int) -> None:
        for fields in said.messages_of(step):
            self.book.tell(ev.Message, {**fields, "index": place})

    def _infer_request(self, step: Any) -> None:
        """Tell a request that was not seen: the model is an object that cannot be wrapped."""
        message = getattr(step, "model_output_message", None)
        if message is None:
            return
        model, inferred = self.agent.model, {"fidelity": ev.Fidelity.END_ONLY}
        span = self.asked({**said.request_of(model, {}, streaming=False), **inferred}, inside=None)
        fields = {**said.response_of(message, model), **inferred}
        self.book.answered(span, fields, usage=said.usage_of(step))


def tool_status(error: BaseException) -> ev.Status | None:
    """Return how a call ended that the host refused; ``None`` where it is the tool that failed."""
    unknown = type(error).__name__ == "AgentToolExecutionError" and error.__cause__ is None
    return ev.Status.RETRY if unknown or type(error).__name__ in _REFUSED else None


def _within(inside: str | None) -> dict[str, object]:
    return {} if inside is None else {"parent_span_id": inside}
