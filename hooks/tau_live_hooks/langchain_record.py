"""Runs of langchain's agents and their steps, as events, by the host's own callbacks.

Each graph that is an agent is a run of its own, and so is whatever nothing of the host runs around;
everything else is a step of the run around it.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, NamedTuple
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler

from tau_live.core import events as ev
from tau_live.core.errors import pass_on
from tau_live.core.records import Reason, rollout_id_of
from tau_live.core.sanitize import JsonObject
from tau_live.decisions.runs import RunHandle, ending_of, error_of
from tau_live.runtime import api
from tau_live.runtime.adapters import InForce
from tau_live_hooks import langchain_events
from tau_live_hooks.common import (
    Border,
    RunBook,
    as_text,
    content_of,
    enclosing_run,
    few,
    remember,
    since,
)
from tau_live_hooks.common_choices import Choices, Pending
from tau_live_hooks.patches import Patches

_STAGES: Mapping[str, str] = {
    "before_agent": "input",
    "before_model": "input",
    "after_model": "output",
    "after_agent": "output",
}
_GUARD_BLOCKS = frozenset({"PIIDetectionError", "GuardrailError", "ModerationError"})
_SHORTENS: Mapping[str, str] = {
    "SummarizationMiddleware": "summarise",
    "ContextEditingMiddleware": "truncate",
}


_LIMITS = frozenset(
    {"GraphRecursionError", "ModelCallLimitExceededError", "ToolCallLimitExceededError"}
)
_WAITS = frozenset({"GraphInterrupt", "NodeInterrupt"})
_DRAINS = frozenset({"GraphDrained"})


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Step:
    """One of the host's runs: a graph, a chain, a node, a model, a tool, a retriever.

    Attributes:
        id: The host's id of it.
        key: Its key among the steps that have not ended.
        parent: The step around it.
        run: The rollout's run that it belongs to.
        kind: ``run``, ``step``, ``model``, ``tool`` or ``silent``.
        name: Its name.
        call_id: The model's id of the call, of a tool.
        superstep: The superstep of the graph in which it runs; empty outside of one.
        task: The task of the graph that it is, or runs in.
        started_at: Its start, by ``time.perf_counter``.
        start: The details of its start, until that is reported.
        turn: The turn in which it started.
        children: The steps in it.
        held: Failed steps in it, not reported until it is known whether the host tries again.
        failure: Its error, the time of that in epoch seconds, and its duration in milliseconds.
        over: Whether it has ended.
        streaming: Whether its answer comes in pieces.
        pending: The decisions about a request in it, and the request, until that is sent.
        label: The name and kind under which it was reported.
    """

    id: str
    parent: "Step | None"
    run: "HostRun"
    kind: str
    name: str
    key: int | str = ""
    call_id: str | None = None
    superstep: str = ""
    task: str = ""
    started_at: float = field(default_factory=time.perf_counter)
    start: "Start | None" = None
    turn: int | None = None
    children: dict[str, "Step"] = field(default_factory=dict)
    held: list["Step"] = field(default_factory=list)
    failure: tuple[BaseException, float, float] | None = None
    over: bool = False
    streaming: bool = False
    pending: tuple[Pending[Any], Any] | None = None
    label: ev.Fields = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.parent is not None and self.parent.run is self.run:
            self.superstep, self.task = self.parent.superstep, self.parent.task

    def fail(self, error: BaseException) -> None:
        """Note that it failed just now."""
        self.over = True
        self.failure = error, time.time(), since(self.started_at)

    def raw(self) -> JsonObject:
        """Return its details that have no field of their own."""
        outer = self.outer_step()
        return {"step": outer} if outer else {}

    def outer_step(self) -> str | None:
        """Return the id of the nearest step around it that is reported as a step or a tool."""
        step = self.parent
        while step is not None and step.run is self.run:
            if step.kind in {"step", "tool"}:
                return step.id
            step = step.parent
        return None


class HostRun:
    """Reports one run, and keeps what is still open in it.

    Args:
        book: Takes its events.
        session: The id of the conversation.
        ns: The namespace in the conversation's graph, for its resumption; empty at the root.
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
        """Runs inside it that wait, and that only this run's resumption resumes."""
        self.handoff_targets: set[str] = set()
        self.metadata: JsonObject = {}
        self._turn_superstep = ""
        self._turn_tasks: set[str] = set()
        self.message_keys: OrderedDict[Hashable, None] = OrderedDict()
        self._failed_tasks: set[str] = set()

    def within(self, step: Step) -> ev.Fields:
        """Return the ids of a step: of its span, and of the turn or the step around it."""
        turn = step.turn
        if turn is None or step.kind == "step":
            return {"span_id": step.id, "turn": turn, "parent_span_id": step.outer_step()}
        return {"span_id": step.id, "turn": turn, "parent_span_id": f"turn:{turn}"}

    def start_step(
        self, step: Step, kind: str, raw: JsonObject, *, at: float | None = None
    ) -> None:
        """Report the start of a node, a link or a retriever, now or at a time in epoch seconds."""
        step.turn = self.book.turn
        step.label = {"name": step.name, "step_kind": kind}
        when = {} if at is None else {"at": at}
        self.book.tell(ev.StepStart, {**step.label, **self.within(step), "raw": raw, **when})
        if kind == "node" and step.task in self._failed_tasks:
            self._failed_tasks.discard(step.task)
            self.book.record_retry("step", reason=step.name)

    def end_step(
        self, step: Step, error: BaseException | None, status: ev.Status | None = None
    ) -> None:
        """Report the end of a node, a link or a retriever."""
        fields: dict[str, object] = {**step.label, **self.within(step)}
        fields |= outcome_of(error, status)
        if fields["status"] is ev.Status.ERROR and step.task:
            self._failed_tasks.add(step.task)
        self.book.tell(ev.StepEnd, {**fields, "duration_ms": since(step.started_at)})

    def note_guard(self, step: Step, error: BaseException | None, output: Any) -> None:
        """Report what a node of middleware did, or note that a limit of requests was reached.

        A node that jumps to the end, or raises an error of a guard, has stopped the run.
        """
        name, _, hook = step.name.rpartition(".")
        if not name:  # a node of middleware has one
            return
        stage = _STAGES.get(hook)
        changes = output if isinstance(output, Mapping) else {}
        ends, messages = changes.get("jump_to") == "end", changes.get("messages")
        blocks = error is not None and type(error).__name__ in _GUARD_BLOCKS
        rule = {"stage": stage, "rules": (name,)}
        if ends and name.startswith(("ModelCallLimitMiddleware", "ToolCallLimitMiddleware")):
            self.at_limit = True
        elif stage is not None and (blocks or ends):
            self.book.tell(ev.Policy, {**rule, "blocked": True, "mode": "block"})
        elif stage is not None and messages and name.startswith("PIIMiddleware"):
            self.book.tell(ev.Policy, {**rule, "blocked": False, "mode": "redact"})
        elif stage is not None and messages:
            op = next((op for known, op in _SHORTENS.items() if name.startswith(known)), None)
            if op is not None:
                self.book.tell(ev.Context, {"op": op, "after": len(messages)})

    def start_model(self, step: Step, fields: ev.Fields, messages: Any) -> None:
        """Report a model's request; each is a new turn, but for one that runs beside another."""
        beside = step.superstep and step.superstep == self._turn_superstep
        if not beside or step.task in self._turn_tasks or self.book.turn is None:
            self.turns += 1
            self.book.begin_turn(self.turns)
            self._turn_superstep, self._turn_tasks = step.superstep, set()
        self._turn_tasks.add(step.task)
        step.turn = self.book.turn
        self.report_messages(messages)
        self.book.start_model(step.id, {**self.within(step), **fields, "raw": step.raw()})

    def report_messages(self, messages: Any) -> None:
        """Report the messages that are new."""
        for index, message in enumerate(few(messages)):
            key = langchain_events.message_key(message)
            if key in self.message_keys:
                continue
            remember(self.message_keys, key, None, limit=2_000)
            self.book.tell(ev.Message, {**langchain_events.message_of(message), "index": index})

    def end_model(self, step: Step, response: Any) -> None:
        """Report a model's answer."""
        messages = langchain_events.messages_in(response)
        answer = langchain_events.answer_of(response, messages)
        fields = {**self.within(step), **answer, "streaming": step.streaming}
        usage = langchain_events.tokens_of(response, messages)
        self.book.end_model(step.id, fields, usage=usage)
        self.report_messages(messages)

    def start_tool(self, step: Step, args: object) -> None:
        """Report that a tool is called."""
        step.turn = self.book.turn
        fields = {"call_id": step.call_id, "args": content_of(args), **self.within(step)}
        self.book.start_tool(step.id, step.name, {**fields, "raw": step.raw()})

    def end_tool(self, step: Step, output: Any) -> None:
        """Report what a tool returned."""
        refused = getattr(output, "status", None) == "error"
        result = langchain_events.text_of(getattr(output, "content", output))
        fields = {"call_id": step.call_id, "result": result, **self.within(step)}
        if refused:
            fields |= {"is_error": True, "status": ev.Status.ERROR}
        self.book.end_tool(step.id, step.name, fields)

    def veto_tool(self, step: Step, call: Mapping[str, Any], text: str) -> None:
        """Report that a tool was not run, and the message in its place."""
        id_ = f"veto:{step.id}:{as_text(call.get('id'))}"
        fields = {"call_id": call.get("id"), "args": content_of(call.get("args")), "span_id": id_}
        self.book.start_tool(id_, as_text(call.get("name")), fields)
        result = {"call_id": call.get("id"), "result": ev.Content(text=text), "span_id": id_}
        self.book.end_tool(id_, as_text(call.get("name")), result, status=ev.Status.VETOED)

    def fail_step(self, step: Step, status: ev.Status | None = None) -> None:
        """Report that a model or a tool failed, some time ago."""
        if step.failure is None:
            return
        error, at, duration_ms = step.failure
        details = {**self.within(step), **outcome_of(error, status)}
        details |= {"at": at, "duration_ms": duration_ms}
        if step.kind == "model":
            self.book.end_model(step.id, details)
            return
        is_error = details["status"] not in {ev.Status.INTERRUPTED, ev.Status.OK}
        details |= {"call_id": step.call_id, "is_error": is_error}
        self.book.end_tool(step.id, step.name, details)

    def end(self, error: BaseException | None, output: object = None) -> None:
        """Report that the run is over, or that it waits."""
        if self.waits:
            self.book.interrupt("interrupt", resume_key=self.resume_key, payload=self.payload)
            return
        self._abandon_inner()
        fields: dict[str, object] = {
            "output": langchain_events.text_of(output) if output is not None else None
        }
        names = _names(error)
        if names & _LIMITS or (error is None and self.at_limit):
            fields |= {"status": ev.Status.LIMIT, "reason": Reason.LIMIT}
        elif "PIIDetectionError" in names:
            fields |= {"status": ev.Status.VETOED, "reason": Reason.SAFETY_BLOCKED}
        elif names & _DRAINS:
            fields |= {"status": ev.Status.INTERRUPTED, "reason": Reason.INTERRUPTED}
        elif "ParentCommand" in names:
            error = None
        self.book.end(error, fields)

    def wait(self, payload: Any) -> None:
        """Note that it waits for somebody, with its question unless it has one already."""
        self.waits = True
        if self.payload is None:
            payload = few(payload) if isinstance(payload, list | tuple) else [payload]
            self.payload = content_of([getattr(item, "value", item) for item in payload])

    def abandon(self) -> None:
        """Report that nobody resumed it: the conversation went on without it."""
        self._abandon_inner()
        self.book.handle.ended = False
        self.waits = False
        outcome = {"status": ev.Status.INTERRUPTED, "reason": Reason.INTERRUPTED}
        self.book.end(None, outcome)

    def _abandon_inner(self) -> None:
        """Abandon the runs that wait inside, because nothing resumes them without this run."""
        inner, self.inner = self.inner, []
        for run in inner:
            if run.waits:
                run.abandon()


def outcome_of(error: BaseException | None, status: ev.Status | None = None) -> ev.Fields:
    """Return the status and error of a step that raised ``error``, or nothing if it is ``None``."""
    if error is None:
        return {"status": status or ev.Status.OK}
    names = _names(error)
    if status is None:
        status = ending_of(error)[0]
        if names & (_WAITS | _DRAINS):
            status = ev.Status.INTERRUPTED
        elif "ParentCommand" in names:
            status = ev.Status.OK
    fields: dict[str, object] = {"status": status}
    if status is not ev.Status.OK:
        fields["error"] = error_of(error)
    return fields


def is_wait(error: BaseException | None) -> bool:
    """Return whether an exception means that the host waits for somebody."""
    return bool(_names(error) & _WAITS)


def _names(error: BaseException | None) -> set[str]:
    return set() if error is None else {kind.__name__ for kind in type.mro(type(error))}


AGENT = "langchain_create_agent"
"""The ``ls_integration`` in the metadata of a graph that ``create_agent`` made."""

_UNNAMED = frozenset({"LangGraph", ""})


class Start(NamedTuple):
    """The start of a graph, a node, a chain or a link of one.

    Attributes:
        name: Its name.
        inputs: Its inputs.
        metadata: The metadata of its caller and the host.
        at: Epoch seconds.
        tags: The tags of its caller and the host.
        run_type: ``prompt`` or ``parser``, of those; else ``None``.
    """

    name: str
    inputs: Any
    metadata: Mapping[str, Any]
    at: float
    tags: Sequence[str] = ()
    run_type: str | None = None

    @property
    def agent(self) -> str:
        """The agent's name, or else the graph's or the chain's."""
        name = self.metadata.get("lc_agent_name")
        return as_text(name) if name and self.name in {*_UNNAMED, name} else self.name or "agent"


def is_agent(start: Start, parent: Step) -> bool:
    """Return whether a graph that runs inside another run is an agent of its own.

    It is one if ``create_agent`` made it, if a tool runs it, or if it was given a name. A graph in
    an agent inherits that agent's metadata, so marks count only where they differ from those.
    """
    own = (start.metadata.get("ls_integration"), start.metadata.get("lc_agent_name"))
    outer = parent.run.metadata
    inherited = (outer.get("ls_integration"), outer.get("lc_agent_name"))
    if own[0] == AGENT and own != inherited:
        return True
    return start.name not in _UNNAMED or in_tool(parent)


def in_tool(parent: Step) -> bool:
    """Return whether a child of this step runs in a tool of its run."""
    step: Step | None = parent
    while step is not None and step.run is parent.run:
        if step.kind == "tool":
            return True
        step = step.parent
    return False


def hand_over(step: Step, error: BaseException) -> None:
    """Report to the run around an agent that the agent hands over to another node, if it does."""
    command = next(iter(getattr(error, "args", ())), None)
    if type(error).__name__ != "ParentCommand" or step.parent is None:
        return
    outer = step.parent.run
    for to in _targets(getattr(command, "goto", ())):
        outer.handoff_targets.add(to)
        outer.book.tell(ev.Handoff, {"from_agent": step.name, "to_agent": to})


def _targets(goto: Any) -> Iterator[str]:
    for target in few(goto) if isinstance(goto, list | tuple) else [goto]:
        name = target if isinstance(target, str) else getattr(target, "node", None)
        if name:
            yield as_text(name)


def fail_or_hold(step: Step, error: BaseException) -> None:
    """Report that a model or a tool failed, or hold that until the step around it ends."""
    step.fail(error)
    is_plain = isinstance(error, Exception) and "GraphBubbleUp" not in _names(error)
    if step.parent is None or not is_plain:
        step.run.fail_step(step)
    else:  # the host may try again
        step.parent.held.append(step)


def report_retries(parent: Step, step: Step) -> None:
    """Report the held failures that a new step in the same parent retries."""
    for held in [*parent.held]:
        is_same = held.kind == step.kind and held.call_id == step.call_id
        if is_same and (step.kind == "model" or held.name == step.name):
            parent.held.remove(held)
            step.run.fail_step(held, ev.Status.RETRY)
            step.run.book.record_retry(step.kind, reason=step.name)


def release_failures(step: Step) -> None:
    """Report the held failures in a step that is over: nothing retries them."""
    held, step.held = step.held, []
    for failed in held:
        failed.run.fail_step(failed)


HOST = "langchain"


KNOWN_LIMIT = 10_000
"""The most interrupted runs that are kept, to be resumed in this process, and the most others."""

_PARTS = frozenset({"prompt", "parser"})


def _key_of(run_id: object) -> int | str:
    """Return the key of a run of the host; not its UUID, which is hashed in Python."""
    if type(run_id) is UUID:
        return run_id.int
    text = as_text(run_id)
    try:
        return UUID(text).int
    except ValueError as error:
        pass_on(error)  # a time limit of the host may be one
        return text


def callback(step: Callable[..., object]) -> Callable[..., None]:
    """Return a method that the host may call: its failures are reported, and go no further."""

    @wraps(step)
    def method(self: "TauHandler", *args: Any, **details: Any) -> None:
        self.border.safely(partial(step, self, *args, **details))

    return method


class TauHandler(BaseCallbackHandler):
    """Sees every run of the host in this process, and follows how they nest; there is one.

    The host calls it in the thread or task in which things happen, and so in their order.

    Args:
        in_force: Returns the running system.

    Attributes:
        border: The guard around every callback.
    """

    raise_error = True
    run_inline = True

    def __init__(self, in_force: InForce) -> None:
        self.border = Border(in_force)
        self._in_force = in_force
        self._lock = threading.Lock()
        self._steps: OrderedDict[int | str, Step] = OrderedDict()
        self._runs: OrderedDict[str, str] = OrderedDict()
        self._waiting: OrderedDict[tuple[str | None, str, str], HostRun] = OrderedDict()

    def __copy__(self) -> "TauHandler":
        return self

    def __deepcopy__(self, memo: Any) -> "TauHandler":
        return self

    def step(self, run_id: object) -> Step | None:
        """Return an open run of the host; ``None`` if it is unknown, or of another runtime."""
        step = self._steps.get(_key_of(run_id))
        if step is None or step.over:
            return None
        return step if step.run.book.runtime is self._in_force() else None

    @callback
    def on_chain_start(self, serialized: Any, inputs: Any, **details: Any) -> None:
        """Take the start of a graph, a node, a chain or a link of one.

        Its first child shows whether it is a graph, so it is reported only then.
        """
        run_id = details["run_id"]
        start = Start(
            name=_name(serialized, details) or "chain",
            inputs=inputs,
            metadata=details.get("metadata") or {},
            at=time.time(),
            tags=few(details.get("tags")),
            run_type=details.get("run_type"),
        )
        is_node = any(tag.startswith("graph:step:") for tag in start.tags)
        parent = self._parent(details.get("parent_run_id"), of_node=is_node)
        if parent is None:
            if start.run_type not in _PARTS:
                self._begin_run(run_id, None, start)
            return
        step = self._add(run_id, parent, parent.run, kind="step", name=start.name)
        if "langsmith:hidden" in start.tags:  # the host hides it from observers
            step.kind = "silent"
        elif is_node:
            known = start.metadata
            step.task = ns = as_text(known.get("langgraph_checkpoint_ns") or "")
            step.superstep = f"{ns.rpartition('|')[0]}/{as_text(known.get('langgraph_step'))}"
            names = [
                name for name in ("langgraph_step", "langgraph_checkpoint_ns") if name in known
            ]
            step.run.start_step(step, "node", {name: as_text(known[name]) for name in names})
        else:
            step.start = start

    @callback
    def on_chain_end(self, outputs: Any, **details: Any) -> None:
        """Take the end of a graph, a node, a chain or a link of one."""
        self._end_chain(details.get("run_id"), outputs)

    @callback
    def on_chain_error(self, error: BaseException, **details: Any) -> None:
        """Take the error of a graph, a node, a chain or a link of one."""
        step = self._close(details.get("run_id"))
        if step is None:
            return
        for child in [*step.children.values()]:
            self._end_orphan(child, error)
        if is_wait(error):
            step.run.wait(next(iter(getattr(error, "args", ())), ()))
        if step.kind == "run":
            hand_over(step, error)
            self._end_run(step, error, None)
        elif step.kind == "step":
            step.run.end_step(step, error)
            step.run.note_guard(step, error, None)
        self._forget(step)

    @callback
    def on_chat_model_start(self, serialized: Any, messages: Any, **details: Any) -> None:
        """Take a model's request."""
        flat = [message for batch in few(messages) for message in few(batch)]
        self._start_model(serialized, flat, details)

    @callback
    def on_llm_start(self, serialized: Any, prompts: Any, **details: Any) -> None:
        """Take the request of a model of plain text, without messages."""
        self._start_model(serialized, prompts, details)

    def _start_model(self, serialized: Any, messages: Any, details: dict[str, Any]) -> None:
        """Report a model's request; one outside of any run is a run of one turn."""
        run_id, metadata = details["run_id"], details.get("metadata") or {}
        params = details.get("invocation_params") or {}
        fields = langchain_events.request_of(serialized, params, metadata)
        name = as_text(fields.get("model_requested") or "model")
        parent = self._parent(details.get("parent_run_id"))
        if parent is None:
            start = Start(name, messages, metadata, time.time())
            parent = self._begin_run(run_id, None, start)
            if parent is None:
                return
            step = Step(
                id=f"model:{parent.id}", parent=parent, run=parent.run, kind="model", name=name
            )
            parent.children[step.id] = step  # the run has its own id
        else:
            step = self._add(run_id, parent, parent.run, kind="model", name=name)
        report_retries(parent, step)
        if parent.pending is not None:
            parent.pending[0].settle_sent(parent.pending[1])
            parent.pending = None
        step.run.start_model(step, fields, messages)

    @callback
    def on_llm_new_token(self, _token: Any = None, **details: Any) -> None:
        """Take a piece of an answer."""
        step = self._model(details.get("run_id"))
        if step is not None and not step.streaming:
            step.streaming = True
            step.run.book.note_token(step.id)

    on_stream_event = on_llm_new_token
    """The same of a host that streams by events."""

    @callback
    def on_llm_end(self, response: Any, **details: Any) -> None:
        """Take the answer of a model."""
        step = self._model(details.get("run_id"))
        if step is not None:
            step.over = True
            step.run.end_model(step, response)
            self._end_alone(step, None, response)

    @callback
    def on_llm_error(self, error: BaseException, **details: Any) -> None:
        """Take the error of a model."""
        step = self._model(details.get("run_id"))
        if step is not None:
            fail_or_hold(step, error)
            self._end_alone(step, error, None)

    @callback
    def on_tool_start(self, serialized: Any, input_str: Any, **details: Any) -> None:
        """Take the call of a tool; one outside of any run is left out."""
        name, inputs = _name(serialized, details) or "tool", details.get("inputs")
        parent = self._parent(details.get("parent_run_id"))
        if parent is not None:
            step = self._add(details["run_id"], parent, parent.run, kind="tool", name=name)
            step.call_id = details.get("tool_call_id")
            report_retries(parent, step)
            step.run.start_tool(step, input_str if inputs is None else inputs)

    def note_retry(self, node: Step, call: Mapping[str, Any]) -> None:
        """Report that the model gets a tool's failure, so that it tries again."""
        name = as_text(call.get("name"))
        retry = Step(
            id="", parent=node, run=node.run, kind="tool", name=name, call_id=call.get("id")
        )
        report_retries(node, retry)

    @callback
    def on_tool_end(self, output: Any, **details: Any) -> None:
        """Take the result of a tool."""
        step = self._close(details.get("run_id"))
        if step is not None:
            step.run.end_tool(step, output)

    @callback
    def on_tool_error(self, error: BaseException, **details: Any) -> None:
        """Take the error of a tool."""
        step = self._close(details.get("run_id"))
        if step is not None:
            fail_or_hold(step, error)

    @callback
    def on_retriever_start(self, serialized: Any, _query: Any, **details: Any) -> None:
        """Take the query of a retriever; one outside of any run is left out."""
        parent = self._parent(details.get("parent_run_id"))
        if parent is not None:
            name = _name(serialized, details) or "retriever"
            step = self._add(details["run_id"], parent, parent.run, kind="step", name=name)
            step.run.start_step(step, "retriever", {})

    @callback
    def on_retriever_end(self, _documents: Any, **details: Any) -> None:
        """Take the end of a retriever."""
        self._end_chain(details.get("run_id"), None)

    on_retriever_error = on_chain_error

    def interrupt(self, run_id: object, checkpoint_id: str, payloads: Sequence[Any]) -> None:
        """Note that a graph waits for somebody, with its question."""
        step = self.step(run_id)
        if step is None or step.kind != "run":
            return
        step.run.resume_key = f"{step.run.session or ''}/{checkpoint_id}"
        step.run.payload = None
        step.run.wait(few(payloads))

    def handle_of(self, run_id: object) -> RunHandle | None:
        """Return the run that a run of the host belongs to."""
        step = self.step(run_id)
        return None if step is None else step.run.book.handle

    def rollout_of(self, run_id: object) -> str | None:
        """Return the rollout of a run of the host, also after its end."""
        step = self.step(run_id)
        if step is not None:
            return step.run.book.handle.rollout_id
        known = self._runs.get(as_text(run_id))
        return None if known is None else rollout_id_of(HOST, known)

    def _end_chain(self, run_id: object, output: Any) -> None:
        step = self._close(run_id)
        if step is None:
            return
        if step.kind == "run":
            self._end_run(step, None, output)
        elif step.kind == "step":
            step.run.end_step(step, None)
            step.run.note_guard(step, None, output)
        self._forget(step)

    def _parent(self, run_id: object, *, of_node: bool = False) -> Step | None:
        """Return the step around one that starts now, and report what that shows it to be."""
        parent = self._steps.get(_key_of(run_id))
        while parent is not None and parent.over:  # its children go on without it
            parent = parent.parent
        if parent is None or parent.run.book.runtime is not self._in_force():
            return None
        self._settle(parent, has_node=of_node)
        return parent

    def _settle(self, step: Step, *, has_node: bool) -> None:
        """Report the start of a step: as a run if it is an agent's graph, else as a step."""
        start, step.start = step.start, None
        if start is None:
            return
        parent = step.parent
        if has_node and parent is not None and is_agent(start, parent):
            self._become_run(step, parent, start)
        else:
            step.run.start_step(step, start.run_type or "chain", {}, at=start.at)

    def _begin_run(self, run_id: object, parent: Step | None, start: Start) -> Step | None:
        run = self._new_run(run_id, parent, start)
        if run is None:
            return None
        return self._add(run_id, parent, run, kind="run", name=start.agent)

    def _become_run(self, step: Step, parent: Step, start: Start) -> None:
        """Make a step a run of its own."""
        run = self._new_run(step.id, parent, start)
        if run is not None:
            step.run, step.kind, step.name = run, "run", start.agent
            step.superstep = step.task = ""

    def _new_run(self, run_id: object, parent: Step | None, start: Start) -> HostRun | None:
        if (runtime := self._in_force()) is None:
            return None
        session = langchain_events.session_of(start.metadata)
        ns = as_text(start.metadata.get("langgraph_checkpoint_ns") or "") if parent else ""
        waited = self._take_waiting((session, ns, start.agent), start.inputs, nested=bool(parent))
        outer = enclosing_run()
        if parent is not None:
            outer, trigger = parent.run.book.handle, "tool" if in_tool(parent) else None
            if trigger is None and start.agent in parent.run.handoff_targets:
                trigger = "handoff"
        else:
            outer, trigger = None if outer is None or outer.ended else outer, "user"
        own_id, resumed = as_text(run_id), None
        if waited is not None:
            answer = getattr(start.inputs, "resume", None)
            payload = None if answer is None else langchain_events.text_of(answer)
            resumed = {"reason": "resume", "resume_key": waited.resume_key, "payload": payload}
        handle = runtime.begin_run(
            start.agent,
            key=own_id if waited is None else waited.book.handle.run_id,
            session=session,
            metadata=langchain_events.own_metadata(start.metadata),
            parent=outer,
            host=HOST,
            fields={
                "at": start.at,
                "input": langchain_events.text_of(start.inputs),
                "agent": start.agent,
                "trigger": trigger if waited is None else "resume",
                "aliases": (own_id,) if waited else (),
            },
            resumed=resumed,
        )
        with self._lock:
            remember(self._runs, own_id, handle.run_id, limit=KNOWN_LIMIT)
        run = HostRun(RunBook(runtime, handle, agent=start.agent), session=session, ns=ns)
        run.metadata = start.metadata
        if waited is not None:  # continue the counts of the attempt before this one
            run.turns = waited.turns
            run.message_keys = waited.message_keys  # it is one conversation
            run.inner, waited.waits = waited.inner, False
        if runtime.settings.act:
            run.choices = Choices(runtime, handle)
        return run

    def _take_waiting(
        self, key: tuple[str | None, str, str], inputs: Any, *, nested: bool
    ) -> HostRun | None:
        """Return the run that waited here; abandon it if this does not resume it."""
        with self._lock:
            waiting = self._waiting.pop(key, None)
        if waiting is None or not waiting.waits:
            return None
        if nested or inputs is None or getattr(inputs, "resume", None) is not None:
            return waiting
        waiting.abandon()
        return None

    def _end_run(self, step: Step, error: BaseException | None, output: Any) -> None:
        run = step.run
        run.waits = run.waits and run.session is not None and (error is None or is_wait(error))
        for child in [*step.children.values()]:
            if child.kind != "run":
                self._end_orphan(child, error)
        run.end(error, output)
        if run.waits:
            with self._lock:
                remember(self._waiting, (run.session, run.ns, step.name), run, limit=KNOWN_LIMIT)
            if step.parent is not None:
                step.parent.run.inner.append(run)

    def _end_alone(self, step: Step, error: BaseException | None, response: Any) -> None:
        """End the run of a model's request outside of any other run."""
        parent = step.parent
        if parent is None or parent.children.get(f"model:{parent.id}") is not step:
            return
        parent.over = True
        messages = langchain_events.messages_in(response) if response is not None else None
        release_failures(parent)
        self._end_run(parent, error, messages)
        self._forget(parent)

    def _end_orphan(self, step: Step, error: BaseException | None) -> None:
        """End a step that its host never ends, because a step around it is over."""
        was_over, step.over = step.over, True
        for child in [*step.children.values()]:
            self._end_orphan(child, error)
        if was_over:
            return
        self._settle(step, has_node=False)
        release_failures(step)
        status = ev.Status.UNKNOWN if error is None else ending_of(error)[0]
        if step.kind == "run":
            self._end_run(step, error, None)
        elif step.kind in {"tool", "model"}:
            step.fail(error or RuntimeError("it did not end"))
            step.run.fail_step(step, status)
        elif step.kind == "step":
            step.run.end_step(step, error, status)
        self._forget(step)

    def _model(self, run_id: object) -> Step | None:
        step = self.step(run_id)
        if step is not None and step.kind == "run":
            return step.children.get(f"model:{as_text(run_id)}")
        return step

    def _close(self, run_id: object) -> Step | None:
        """Return a step that is over now, with nothing of it left to report but its end."""
        step = self.step(run_id)
        if step is not None:
            step.over = True
            if step.pending is not None:
                step.pending[0].settle_unsent()
            self._settle(step, has_node=False)
            release_failures(step)
        return step

    def _add(
        self, run_id: object, parent: Step | None, run: HostRun, *, kind: str, name: str
    ) -> Step:
        """Return a step that starts now."""
        step = Step(
            id=as_text(run_id), key=_key_of(run_id), parent=parent, run=run, kind=kind, name=name
        )
        with self._lock:
            remember(self._steps, step.key, step, limit=50_000)  # the oldest are forgotten
        if parent is not None:
            parent.children[step.id] = step
        return step

    def _forget(self, step: Step) -> None:
        """Forget a run that is over, with all of its steps: nothing starts in them any more."""
        if step.kind != "run":
            return
        with self._lock:
            self._drop(step)
        if step.parent is not None:
            step.parent.children.pop(step.id, None)

    def _drop(self, step: Step) -> None:
        self._steps.pop(step.key, None)
        for child in step.children.values():
            if child.kind != "run":
                self._drop(child)


def _name(serialized: Any, details: dict[str, Any]) -> str | None:
    """Return the name of a step that starts, as the host's own tracers have it."""
    if details.get("name"):
        return as_text(details["name"])
    if not serialized:
        return None
    name = serialized.get("name") or (serialized.get("id") or [None])[-1]
    return None if name is None else as_text(name)


SOURCE = "langsmith"
"""The source of such a reward."""


class Feedback:
    """Takes the feedback that is given to LangSmith as a reward too.

    Args:
        in_force: Returns the running system.
        handler: Knows the rollout of each run of the host.
    """

    def __init__(self, in_force: InForce, handler: TauHandler) -> None:
        self._border = Border(in_force)
        self._handler = handler

    def wrap_schemas(self, patches: Patches, module: Any) -> None:
        """Take the feedback of any LangSmith client, where it writes it to be sent."""
        if hasattr(module, "FeedbackCreate"):
            patches.wrap(module, "FeedbackCreate", self._write)

    def _write(self, write: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        feedback = write(*args, **kwargs)
        self._border.safely(self._reward, feedback)
        return feedback

    def _reward(self, feedback: Any) -> None:
        value = feedback.value if feedback.score is None else feedback.score
        if self._border.in_force() is None or not isinstance(value, bool | int | float):
            return
        run_id, root = feedback.run_id or feedback.trace_id, feedback.trace_id or feedback.run_id
        if run_id is None:
            return
        known = self._handler.rollout_of(run_id) or self._handler.rollout_of(root)
        api.reward(
            value,
            run=known or rollout_id_of(HOST, as_text(root)),
            name=as_text(feedback.key),
            source=SOURCE,
            key=as_text(feedback.id),
            comment=feedback.comment,
        )
