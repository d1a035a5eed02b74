"""One run of langchain and the steps in it, as they are told; nothing here imports the host."""

import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tau_live import events as ev
from tau_live.runs.raised import ending_of, error_of
from tau_live_hooks import langchain_events as said
from tau_live_hooks.common_run import RunBook, since
from tau_live_hooks.common_text import content_of, few, printed
from tau_live_hooks.langchain_guards import at_limit, guarded

if TYPE_CHECKING:
    from tau_live_hooks.common_choices import Choices, Pending
    from tau_live_hooks.langchain_begun import Begun

MESSAGES_KNOWN = 2_000
_NOTHING: Mapping[str, object] = MappingProxyType({})
_LIMITS = frozenset(
    {"GraphRecursionError", "ModelCallLimitExceededError", "ToolCallLimitExceededError"}
)
_WAITS = frozenset({"GraphInterrupt", "NodeInterrupt"})
_BLOCKS = frozenset({"PIIDetectionError"})
_DRAINS = frozenset({"GraphDrained"})


class Held(NamedTuple):
    """A failure of a step that is told once it is known whether the host tries again."""

    step: "Step"
    name: str
    error: BaseException
    at: float
    took_ms: float


class Waiting(NamedTuple):
    """A run that waits for somebody."""

    run: "HostRun"
    resume_key: str | None


class Step:
    """One of the host's runs: a graph, a chain, a node, a model, a tool, a retriever.

    Attributes:
        id: The host's id of it.
        key: By what it is known while it goes on.
        parent: The step around it.
        run: The rollout's run that it belongs to.
        kind: ``run``, ``step``, ``model``, ``tool`` or ``silent``.
        name: Its name.
        call_id: The model's id of the call, of a tool.
        place: The superstep of the graph in which it runs; empty outside of one.
        task: The task of the graph that it is, or runs in.
        began: When, by ``time.perf_counter``.
        begun: How it began, until that is told.
        turn: The turn in which it began.
        children: What runs in it.
        held: Failures in it that are not told yet.
        over: Whether it has ended.
        pending: What was decided of a request in it, and the request, until that is sent.
        told: The name and kind under which it was told.
    """

    __slots__ = (
        "began",
        "begun",
        "call_id",
        "children",
        "held",
        "id",
        "key",
        "kind",
        "name",
        "over",
        "parent",
        "pending",
        "place",
        "run",
        "streaming",
        "task",
        "told",
        "turn",
    )

    def __init__(
        self, id_: str, parent: "Step | None", *, run: "HostRun", kind: str, name: str
    ) -> None:
        self.id = id_
        self.key: int | str = ""
        self.parent = parent
        self.run = run
        self.kind = kind
        self.name = name
        self.call_id: str | None = None
        around = parent if parent is not None and parent.run is run else None
        self.place: str = around.place if around is not None else ""
        self.task: str = around.task if around is not None else ""
        self.began = time.perf_counter()
        self.turn: int | None = None
        self.children: dict[str, Step] = {}
        self.held: list[Held] = []
        self.begun: Begun | None = None
        self.pending: tuple[Pending[Any], Any] | None = None
        self.over = False
        self.streaming = False
        self.told: dict[str, object] = {}

    def around(self) -> str | None:
        """Return the id of the nearest step around it that is told as a step or a tool."""
        found = self.parent
        while found is not None and found.run is self.run:
            if found.kind in {"step", "tool"}:
                return found.id
            found = found.parent
        return None


class HostRun:
    """What has been told of one run, and what is still to be told.

    Args:
        book: Where it is told.
        session: The conversation.
        ns: The place in the conversation's graph, by which it is found again; empty at its root.
    """

    def __init__(self, book: RunBook, *, session: str | None, ns: str) -> None:
        self.book = book
        self.session = session
        self.ns = ns
        self.choices: Choices | None = None
        self.turns = 0
        self.resume_key: str | None = None
        self.payload: ev.Content | None = None
        self.waits = False
        self.at_limit = False
        self.inner: list[HostRun] = []
        """What ran inside and waits, which only this run's resumption resumes."""
        self.handed: set[str] = set()
        self.metadata: Mapping[str, object] = _NOTHING
        self._turn_place = ""
        self._turn_tasks: set[str] = set()
        self._heard: OrderedDict[Hashable, None] = OrderedDict()
        self._failed: set[str] = set()

    def went_on_from(self, waited: "HostRun") -> None:
        """Know what was told of the attempt before this one."""
        self.turns = waited.turns
        self._heard = waited._heard  # noqa: SLF001  # it is one conversation
        self.inner, waited.waits = waited.inner, False

    def within(self, step: Step) -> dict[str, object]:
        """Return where a step stands: in the turn in which it began, or in the step around it."""
        turn = step.turn
        if turn is None or step.kind == "step":
            return {"span_id": step.id, "turn": turn, "parent_span_id": step.around()}
        return {"span_id": step.id, "turn": turn, "parent_span_id": f"turn:{turn}"}

    def step_began(
        self, step: Step, kind: str, raw: Mapping[str, object], *, at: float | None = None
    ) -> None:
        """Tell that a node, a link or a retriever begins, or began some time ago."""
        step.turn = self.book.turn
        step.told = {"name": step.name, "step_kind": kind}
        when = {} if at is None else {"at": at}
        self.book.tell(ev.StepStart, {**step.told, **self.within(step), "raw": raw, **when})
        if kind == "node" and step.task in self._failed:
            self._failed.discard(step.task)
            self.book.retried("step", reason=step.name)

    def step_ended(
        self, step: Step, error: BaseException | None, status: ev.Status | None = None
    ) -> None:
        """Tell that a node, a link or a retriever is over."""
        fields: dict[str, object] = {**step.told, **self.within(step)}
        fields |= ended_with(error, status)
        if fields["status"] is ev.Status.ERROR and step.task:
            self._failed.add(step.task)
        self.book.tell(ev.StepEnd, {**fields, "duration_ms": since(step.began)})

    def passed(self, step: Step, error: BaseException | None, output: Any) -> None:
        """Tell what a node did that is a guardrail, or know that it was one limit too many."""
        if "." not in step.name:  # as none of middleware
            return
        if at_limit(step.name, output):
            self.at_limit = True
            return
        for kind, fields in guarded(step.name, output, error):
            self.book.tell(kind, fields)

    def asked(self, step: Step, fields: Mapping[str, object], messages: Any) -> None:
        """Tell that a model is asked; each time is a new turn, but for what runs beside another."""
        beside = step.place and step.place == self._turn_place
        if not beside or step.task in self._turn_tasks or self.book.turn is None:
            self.turns += 1
            self.book.begin_turn(self.turns)
            self._turn_place, self._turn_tasks = step.place, set()
        self._turn_tasks.add(step.task)
        step.turn = self.book.turn
        self.listen(messages)
        around = step.around()
        raw = {"step": around} if around else {}
        self.book.asked(step.id, {**self.within(step), **fields, "raw": raw})

    def listen(self, messages: Any) -> None:
        """Tell the messages that were not told yet."""
        for place, message in enumerate(few(messages)):
            key = said.message_key(message)
            if key in self._heard:
                continue
            self._heard[key] = None
            if len(self._heard) > MESSAGES_KNOWN:
                self._heard.popitem(last=False)
            self.book.tell(ev.Message, {**said.message_of(message), "index": place})

    def answered(self, step: Step, response: Any) -> None:
        """Tell what a model answered."""
        answer = said.Answer(response)
        told = {**self.within(step), **answer.fields(), "streaming": step.streaming}
        self.book.answered(step.id, told, usage=answer.usage())
        self.listen(answer.messages)

    def called(self, step: Step, args: object) -> None:
        """Tell that a tool is called."""
        step.turn = self.book.turn
        told = {"call_id": step.call_id, "args": content_of(args), **self.within(step)}
        around = step.around()
        self.book.called(step.id, step.name, {**told, "raw": {"step": around} if around else {}})

    def returned(self, step: Step, output: Any) -> None:
        """Tell what a tool returned."""
        refused = getattr(output, "status", None) == "error"
        result = said.text_of(getattr(output, "content", output))
        told = {"call_id": step.call_id, "result": result, **self.within(step)}
        if refused:
            told |= {"is_error": True, "status": ev.Status.ERROR}
        self.book.returned(step.id, step.name, told)

    def vetoed(self, step: Step, call: Mapping[str, Any], text: str) -> None:
        """Tell that a tool was not run, and what the model is told instead."""
        id_ = f"veto:{step.id}:{printed(call.get('id'))}"
        told = {"call_id": call.get("id"), "args": content_of(call.get("args")), "span_id": id_}
        self.book.called(id_, printed(call.get("name")), told)
        result = {"call_id": call.get("id"), "result": ev.Content(text=text), "span_id": id_}
        self.book.returned(id_, printed(call.get("name")), result, status=ev.Status.VETOED)

    def failed(self, held: Held, status: ev.Status | None = None) -> None:
        """Tell that a model or a tool failed, some time ago."""
        step = held.step
        fields = ended_with(held.error, status)
        when = {"at": held.at, "duration_ms": held.took_ms}
        told = {**self.within(step), **fields, **when}
        if step.kind == "model":
            self.book.answered(step.id, told)
            return
        meant = fields["status"] in {ev.Status.INTERRUPTED, ev.Status.OK}
        told |= {"call_id": step.call_id, "is_error": not meant}
        self.book.returned(step.id, step.name, told)

    def ended(self, error: BaseException | None, output: object = None) -> None:
        """Tell that the run is over, or that it waits."""
        if self.waits:
            self.book.interrupt("interrupt", resume_key=self.resume_key, payload=self.payload)
            return
        self._leave()
        found: dict[str, object] = {"output": said.text_of(output) if output is not None else None}
        names = _names(error)
        if names & _LIMITS or (error is None and self.at_limit):
            found |= {"status": ev.Status.LIMIT, "reason": ev.Reason.LIMIT}
        elif names & _BLOCKS:
            found |= {"status": ev.Status.VETOED, "reason": ev.Reason.SAFETY_BLOCKED}
        elif names & _DRAINS:
            found |= {"status": ev.Status.INTERRUPTED, "reason": ev.Reason.INTERRUPTED}
        elif "ParentCommand" in names:
            error = None
        self.book.end(error, found)

    def given_up(self) -> None:
        """Tell that nobody resumed it: the conversation went on without."""
        self._leave()
        self.book.handle.ended = False
        self.waits = False
        over = {"status": ev.Status.INTERRUPTED, "reason": ev.Reason.INTERRUPTED}
        self.book.end(None, over)

    def _leave(self) -> None:
        """Give up what still waits inside, as nothing resumes it without this run."""
        inner, self.inner = self.inner, []
        for one in inner:
            if one.waits:
                one.given_up()


def ended_with(error: BaseException | None, status: ev.Status | None = None) -> dict[str, object]:
    """Return how a step ended that raised ``error``, or nothing."""
    if error is None:
        return {"status": status or ev.Status.OK}
    names = _names(error)
    if status is None:
        status = ending_of(error)[0]
        if names & (_WAITS | _DRAINS):
            status = ev.Status.INTERRUPTED
        elif "ParentCommand" in names:
            status = ev.Status.OK
    found: dict[str, object] = {"status": status}
    if status is not ev.Status.OK:
        found["error"] = error_of(error)
    return found


def is_wait(error: BaseException | None) -> bool:
    """Say whether an exception says that the host waits for somebody."""
    return bool(_names(error) & _WAITS)


def is_plain_failure(error: BaseException) -> bool:
    """Say whether an exception is a failure after which the host may try again."""
    return isinstance(error, Exception) and "GraphBubbleUp" not in _names(error)


def _names(error: BaseException | None) -> set[str]:
    return set() if error is None else {kind.__name__ for kind in type.mro(type(error))}
