"""Which of langchain's runs goes on inside which, and which of them are runs of an agent.

Each graph that is an agent is a run of its own, and so is whatever nothing of the host runs around;
everything else is a step of the run around it. Nothing here imports the host.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from tau_live import events as ev
from tau_live.adapters import InForce
from tau_live.rollouts import rollout_id_of
from tau_live.runs.handles import RunHandle
from tau_live.runs.raised import ending_of
from tau_live_hooks import langchain_events as said
from tau_live_hooks.common_choices import Choices
from tau_live_hooks.common_run import RunBook, since
from tau_live_hooks.common_text import content_of, few, printed
from tau_live_hooks.langchain_begun import (
    Begun,
    handed_over,
    inside,
    is_agent,
    remember,
    resumption,
    trigger_in,
    wait_in,
)
from tau_live_hooks.langchain_failures import failed, released, tried_again
from tau_live_hooks.langchain_run import Held, HostRun, Step, Waiting, is_wait

HOST = "langchain"

OPEN_LIMIT = 50_000
"""So many of the host's runs are known at once; the oldest are forgotten."""

KNOWN_LIMIT = 10_000
"""So many interrupted runs are known, which may be resumed in this process, and so many others."""

_PARTS = frozenset({"prompt", "parser"})


class Tree:
    """Follows the host's runs; its methods are what the host's callbacks tell.

    Args:
        in_force: Returns the running system.
    """

    def __init__(self, in_force: InForce) -> None:
        self._in_force = in_force
        self._lock = threading.Lock()
        self._steps: OrderedDict[int | str, Step] = OrderedDict()
        self._runs: OrderedDict[str, str] = OrderedDict()
        self._waiting: OrderedDict[tuple[str | None, str, str], Waiting] = OrderedDict()

    def step(self, run_id: object) -> Step | None:
        """Return a run of the host that goes on; ``None`` if it is not known, or not ours now."""
        found = self._steps.get(_key_of(run_id))
        if found is None or found.over:
            return None
        return found if found.run.book.runtime is self._in_force() else None

    def chain_started(self, run_id: object, parent_id: object, begun: Begun) -> None:
        """Take the start of a graph, a node, a chain or a link of one.

        Whether it is a graph is known from what begins in it first, so it is told only then.
        """
        is_node = begun.is_node
        parent = self._parent(parent_id, of_node=is_node)
        if parent is None:
            if begun.run_type not in _PARTS:
                self._began(run_id, None, begun)
            return
        step = Step(printed(run_id), parent, run=parent.run, kind="step", name=begun.name)
        if begun.is_hidden:
            step.kind = "silent"
        elif is_node:
            step.task = ns = printed(begun.metadata.get("langgraph_checkpoint_ns") or "")
            step.place = f"{ns.rpartition('|')[0]}/{printed(begun.metadata.get('langgraph_step'))}"
            step.run.step_began(step, "node", begun.raw)
        else:
            step.begun = begun
        self._add(run_id, step)

    def chain_ended(self, run_id: object, output: Any) -> None:
        """Take the end of a graph, a node, a chain or a link of one."""
        step = self._over(run_id)
        if step is None:
            return
        self._settle(step, has_node=False)
        released(step)
        if step.kind == "run":
            self._run_over(step, None, output)
        elif step.kind == "step":
            step.run.step_ended(step, None)
            step.run.passed(step, None, output)
        self._forget(step)

    def chain_failed(self, run_id: object, error: BaseException) -> None:
        """Take that a graph, a node, a chain or a link of one raised."""
        step = self._over(run_id)
        if step is None:
            return
        self._settle(step, has_node=False)
        released(step)
        for child in [*step.children.values()]:
            self._orphaned(child, error)
        if is_wait(error):
            wait_in(step.run, error)
        if step.kind == "run":
            handed_over(step, error)
            self._run_over(step, error, None)
        elif step.kind == "step":
            step.run.step_ended(step, error)
            step.run.passed(step, error, None)
        self._forget(step)

    def model_started(
        self,
        run_id: object,
        parent_id: object,
        *,
        fields: Mapping[str, object],
        messages: Sequence[Any],
        metadata: Mapping[str, Any],
    ) -> None:
        """Take that a model is asked; one that nothing runs around is a run of one turn."""
        name = printed(fields.get("model_requested") or "model")
        parent = self._parent(parent_id)
        if parent is None:
            begun = Begun(name, messages, metadata, time.time())
            parent = self._began(run_id, None, begun)
            if parent is None:
                return
        step = Step(printed(run_id), parent, run=parent.run, kind="model", name=name)
        if parent.id == step.id:
            step.id = f"model:{printed(run_id)}"  # the run has its own id
            parent.children[step.id] = step
        else:
            self._add(run_id, step)
        tried_again(parent, "model", step)
        if parent.pending is not None:
            parent.pending[0].sent(parent.pending[1])
            parent.pending = None
        step.run.asked(step, fields, messages)

    def token_came(self, run_id: object) -> None:
        """Take that a piece of a model's answer came."""
        step = self._model(run_id)
        if step is not None and not step.streaming:
            step.streaming = True
            step.run.book.heard(step.id)

    def model_ended(self, run_id: object, response: Any) -> None:
        """Take what a model answered."""
        step = self._model(run_id)
        if step is None:
            return
        step.over = True
        step.run.answered(step, response)
        self._alone(run_id, step, None, response)
        self._forget(step)

    def model_failed(self, run_id: object, error: BaseException) -> None:
        """Take that a model did not answer."""
        step = self._model(run_id)
        if step is None:
            return
        failed(step, error)
        self._alone(run_id, step, error, None)
        self._forget(step)

    def tool_started(
        self, run_id: object, parent_id: object, *, name: str, call_id: str | None, args: Any
    ) -> None:
        """Take that a tool is called; one that nothing runs around is not told."""
        parent = self._parent(parent_id)
        if parent is None:
            return
        step = Step(printed(run_id), parent, run=parent.run, kind="tool", name=name)
        step.call_id = call_id
        self._add(run_id, step)
        tried_again(parent, "tool", step)
        step.run.called(step, args)

    def tried_again(self, node: Step, call: Mapping[str, Any]) -> None:
        """Take that the model is told of a tool's failure, so that it tries again."""
        again = Step("", node, run=node.run, kind="tool", name=printed(call.get("name")))
        again.call_id = call.get("id")
        tried_again(node, "tool", again)

    def tool_ended(self, run_id: object, output: Any) -> None:
        """Take what a tool returned."""
        step = self._over(run_id)
        if step is not None:
            released(step)
            step.run.returned(step, output)
            self._forget(step)

    def tool_failed(self, run_id: object, error: BaseException) -> None:
        """Take that a tool raised."""
        step = self._over(run_id)
        if step is not None:
            released(step)
            failed(step, error)
            self._forget(step)

    def retriever_started(self, run_id: object, parent_id: object, name: str) -> None:
        """Take that a retriever is asked; one that nothing runs around is not told."""
        parent = self._parent(parent_id)
        if parent is not None:
            step = Step(printed(run_id), parent, run=parent.run, kind="step", name=name)
            self._add(run_id, step)
            step.run.step_began(step, "retriever", {})

    def interrupted(self, run_id: object, checkpoint_id: str, payloads: Sequence[Any]) -> None:
        """Take that a graph waits for somebody, with what it asks."""
        step = self.step(run_id)
        if step is None or step.kind != "run":
            return
        step.run.waits = True
        step.run.resume_key = f"{step.run.session or ''}/{checkpoint_id}"
        step.run.payload = content_of([getattr(one, "value", one) for one in few(payloads)])

    def handle_of(self, run_id: object) -> RunHandle | None:
        """Return the run that a run of the host belongs to."""
        step = self.step(run_id)
        return None if step is None else step.run.book.handle

    def rollout_of(self, run_id: object) -> str | None:
        """Return the rollout that a run of the host was told as, also after its end."""
        step = self.step(run_id)
        if step is not None:
            return step.run.book.handle.rollout_id
        known = self._runs.get(printed(run_id))
        return None if known is None else rollout_id_of(HOST, known)

    def _parent(self, run_id: object, *, of_node: bool = False) -> Step | None:
        """Return the run around one that begins now, which says what that one is."""
        found = self._steps.get(_key_of(run_id))
        while found is not None and found.over:  # what it began goes on without it
            found = found.parent
        if found is None or found.run.book.runtime is not self._in_force():
            return None
        self._settle(found, has_node=of_node)
        return found

    def _settle(self, step: Step, *, has_node: bool) -> None:
        """Tell what began as a run, if it is an agent's graph, and as a step if it is not."""
        begun, step.begun = step.begun, None
        if begun is None:
            return
        parent = step.parent
        if has_node and parent is not None and is_agent(begun, parent):
            self._begun(step, parent, begun)
        else:
            step.run.step_began(step, begun.run_type or "chain", {}, at=begun.at)

    def _began(self, run_id: object, parent: Step | None, begun: Begun) -> Step | None:
        run = self._run(run_id, parent, begun)
        if run is None:
            return None
        step = Step(printed(run_id), parent, run=run, kind="run", name=begun.agent)
        self._add(run_id, step)
        return step

    def _begun(self, step: Step, parent: Step, begun: Begun) -> None:
        """Let a step be a run of its own."""
        run = self._run(step.id, parent, begun)
        if run is not None:
            step.run, step.kind, step.name = run, "run", begun.agent
            step.place = step.task = ""

    def _run(self, run_id: object, parent: Step | None, begun: Begun) -> HostRun | None:
        if (runtime := self._in_force()) is None:
            return None
        session = said.session_of(begun.metadata)
        ns = printed(begun.metadata.get("langgraph_checkpoint_ns") or "") if parent else ""
        waited = self._resumed((session, ns, begun.agent), begun.inputs, nested=parent is not None)
        trigger = "user" if parent is None else trigger_in(parent, begun.agent)
        handle = runtime.begin_run(
            begun.agent,
            key=printed(run_id) if waited is None else waited.run.book.handle.run_id,
            session=session,
            metadata=said.own_metadata(begun.metadata),
            parent=inside() if parent is None else parent.run.book.handle,
            host=HOST,
            told={
                "at": begun.at,
                "input": said.text_of(begun.inputs),
                "agent": begun.agent,
                "trigger": trigger if waited is None else "resume",
                "aliases": (printed(run_id),) if waited else (),
            },
            resumed=None if waited is None else resumption(waited, begun.inputs),
        )
        with self._lock:
            remember(self._runs, printed(run_id), handle.run_id, limit=KNOWN_LIMIT)
        book = RunBook(runtime, handle, agent=begun.agent)
        run = HostRun(book, session=session, ns=ns)
        run.metadata = begun.metadata
        if waited is not None:
            run.went_on_from(waited.run)
        if runtime.settings.act:
            run.choices = Choices(runtime, handle)
        return run

    def _resumed(
        self, key: tuple[str | None, str, str], inputs: Any, *, nested: bool
    ) -> Waiting | None:
        """Return the run that waited here; one that is not resumed is over."""
        with self._lock:
            found = self._waiting.pop(key, None)
        if found is None or not found.run.waits:
            return None
        if nested or inputs is None or getattr(inputs, "resume", None) is not None:
            return found
        found.run.given_up()
        return None

    def _run_over(self, step: Step, error: BaseException | None, output: Any) -> None:
        run = step.run
        run.waits = run.waits and run.session is not None and (error is None or is_wait(error))
        for child in [*step.children.values()]:
            if child.kind != "run":
                self._orphaned(child, error)
        run.ended(error, output)
        if run.waits and run.session is not None:
            waiting = Waiting(run, run.resume_key)
            with self._lock:
                key = (run.session, run.ns, step.name)
                remember(self._waiting, key, waiting, limit=KNOWN_LIMIT)
            if step.parent is not None:
                step.parent.run.inner.append(run)

    def _alone(
        self, run_id: object, step: Step, error: BaseException | None, response: Any
    ) -> None:
        """End the run of a model that nothing ran around."""
        if step.id == printed(run_id) or step.parent is None:
            return
        step.parent.over = True
        answered = said.Answer(response).messages if response is not None else None
        released(step.parent)
        self._run_over(step.parent, error, answered)
        self._forget(step.parent)

    def _orphaned(self, step: Step, error: BaseException | None) -> None:
        """End what its host never ends, because something around it is over."""
        was_over, step.over = step.over, True
        for child in [*step.children.values()]:
            self._orphaned(child, error)
        if was_over:
            return
        self._settle(step, has_node=False)
        released(step)
        status = ev.Status.UNKNOWN if error is None else ending_of(error)[0]
        if step.kind == "run":
            self._run_over(step, error, None)
        elif step.kind in {"tool", "model"}:
            told = error or RuntimeError("it did not end")
            step.run.failed(Held(step, step.name, told, time.time(), since(step.began)), status)
        elif step.kind == "step":
            step.run.step_ended(step, error, status)
        self._forget(step)

    def _model(self, run_id: object) -> Step | None:
        step = self.step(run_id)
        if step is not None and step.kind == "run":
            return step.children.get(f"model:{printed(run_id)}")
        return step

    def _over(self, run_id: object) -> Step | None:
        step = self.step(run_id)
        if step is not None:
            step.over = True
            if step.pending is not None:
                step.pending[0].over()
        return step

    def _add(self, run_id: object, step: Step) -> None:
        with self._lock:
            step.key = _key_of(run_id)
            remember(self._steps, step.key, step, limit=OPEN_LIMIT)
        if step.parent is not None:
            step.parent.children[step.id] = step

    def _forget(self, step: Step) -> None:
        """Forget a run that is over with all of its steps, inside which nothing begins any more."""
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


def _key_of(run_id: object) -> int | str:
    """Return by what a run of the host is known; a UUID hashes itself in Python."""
    if type(run_id) is UUID:
        return run_id.int
    text = printed(run_id)
    try:
        return UUID(text).int
    except ValueError:
        return text
