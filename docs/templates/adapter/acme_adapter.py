"""Records the runs of acme: ``Agent.run`` is a run, ``Agent.ask`` a step of its model."""

import uuid
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from tau_live.runtime import api
from tau_live.runtime.adapters import Adapter, Detach, InForce
from tau_live_hooks.common import Border, RunBook, content_of
from tau_live_hooks.patches import Patches

if TYPE_CHECKING:
    from acme import Agent

    from tau_live.runtime.runtime import Runtime

Ask = Callable[..., str]
Kwargs = dict[str, object]

METHODS = ("run", "ask")
current: ContextVar["ActiveRun | None"] = ContextVar("acme_run", default=None)


def probe() -> str | None:
    """Return what is missing in the host, or ``None``."""
    import acme

    return next((f"Agent.{name}" for name in METHODS if not hasattr(acme.Agent, name)), None)


class ActiveRun:
    """One run, and its record."""

    def __init__(self, runtime: "Runtime", agent: "Agent", question: str) -> None:
        outer = api.current()
        handle = runtime.begin_run(
            agent.name,
            key=uuid.uuid4().hex,  # the host's own id of the run, where it has one
            session=None,
            metadata=None,
            parent=outer.handle if outer else None,
            host="acme",
            fields={"input": content_of(question), "agent": agent.name},
        )
        self.book = RunBook(runtime, handle, agent=agent.name)
        self._inside, self._current = api.enter(handle), current.set(self)

    def end(self, error: BaseException | None, answer: str = "") -> None:
        """Record how it ended."""
        current.reset(self._current)
        self._inside.var.reset(self._inside)
        self.book.end(error, {} if error else {"output": content_of(answer)})

    def start_model(self, agent: "Agent") -> str:
        """Record that a model is called; return the id of the step."""
        self.book.begin_turn()
        step = f"model:{self.book.turn}"
        self.book.start_model(step, {"model_requested": agent.model.__name__})
        return step

    def end_model(self, step: str, answer: str) -> None:
        """Record its answer, with the tokens and the cost that the host knows."""
        self.book.end_model(step, {}, usage={"output_tokens": float(len(answer))})


class Wraps:
    """Wrappers of the host's methods.

    Each does the host's own step exactly once, outside of all our code.
    """

    def __init__(self, in_force: InForce) -> None:
        self._in_force = in_force
        self._safely = Border(in_force).safely

    def run(self, wrapped: Ask, agent: "Agent", args: tuple[str], kwargs: Kwargs) -> str:
        """Wrap ``Agent.run``."""
        runtime = self._safely(self._in_force)
        active = runtime and self._safely(ActiveRun, runtime, agent, args[0])
        if active is None:
            return wrapped(*args, **kwargs)
        try:
            answer = wrapped(*args, **kwargs)
        except BaseException as error:
            self._safely(active.end, error)
            raise
        self._safely(active.end, None, answer)
        return answer

    def ask(self, wrapped: Ask, agent: "Agent", args: tuple[str], kwargs: Kwargs) -> str:
        """Wrap ``Agent.ask``."""
        active = current.get()
        step = self._safely(active.start_model, agent) if active else None
        if active is None or step is None:
            return wrapped(*args, **kwargs)
        try:
            answer = wrapped(*args, **kwargs)
        except BaseException as error:
            self._safely(active.book.fail_model, step, error)
            raise
        self._safely(active.end_model, step, answer)
        return answer


def attach(in_force: InForce) -> Detach:
    """Wrap the host; return a function that undoes it."""
    from acme import Agent

    with Patches() as patches:  # undone if anything here raises
        wraps = Wraps(patches.while_live(in_force))
        for name in METHODS:
            patches.wrap(Agent, name, getattr(wraps, name))
    return patches.undo


ADAPTER = Adapter(host="acme", module="acme", probe=probe, attach=attach)
