"""Tells tau-live of the runs of acme: ``Agent.run`` is a run, ``Agent.ask`` a step of its model."""

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
Given = dict[str, object]

METHODS = ("run", "ask")
current: ContextVar["Told | None"] = ContextVar("acme_run", default=None)


def probe() -> str | None:
    """Say what of the host's layout is missing."""
    import acme

    return next((f"Agent.{one}" for one in METHODS if not hasattr(acme.Agent, one)), None)


class Told:
    """One run, and what is told of it."""

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

    def over(self, error: BaseException | None, answer: str = "") -> None:
        """Tell how it ended."""
        current.reset(self._current)
        self._inside.var.reset(self._inside)
        self.book.end(error, {} if error else {"output": content_of(answer)})

    def asked(self, agent: "Agent") -> str:
        """Tell that a model is asked; return the name of the step."""
        self.book.begin_turn()
        step = f"model:{self.book.turn}"
        self.book.start_model(step, {"model_requested": agent.model.__name__})
        return step

    def answered(self, step: str, answer: str) -> None:
        """Tell what it said, with what the host knows of tokens and cost."""
        self.book.end_model(step, {}, usage={"output_tokens": float(len(answer))})


class Wraps:
    """What is put around the host's methods.

    Each does the host's own step exactly once, outside of everything of ours.
    """

    def __init__(self, in_force: InForce) -> None:
        self._in_force = in_force
        self._safely = Border(in_force).safely

    def run(self, wrapped: Ask, agent: "Agent", args: tuple[str], kwargs: Given) -> str:
        """Around ``Agent.run``."""
        runtime = self._safely(self._in_force)
        told = runtime and self._safely(Told, runtime, agent, args[0])
        if told is None:
            return wrapped(*args, **kwargs)
        try:
            answer = wrapped(*args, **kwargs)
        except BaseException as error:
            self._safely(told.over, error)
            raise
        self._safely(told.over, None, answer)
        return answer

    def ask(self, wrapped: Ask, agent: "Agent", args: tuple[str], kwargs: Given) -> str:
        """Around ``Agent.ask``."""
        told = current.get()
        step = self._safely(told.asked, agent) if told else None
        if told is None or step is None:
            return wrapped(*args, **kwargs)
        try:
            answer = wrapped(*args, **kwargs)
        except BaseException as error:
            self._safely(told.book.fail_model, step, error)
            raise
        self._safely(told.answered, step, answer)
        return answer


def attach(in_force: InForce) -> Detach:
    """Wrap the host, and return what undoes it."""
    from acme import Agent

    with Patches() as patches:  # undone if anything here raises
        wraps = Wraps(patches.while_live(in_force))
        for name in METHODS:
            patches.wrap(Agent, name, getattr(wraps, name))
    return patches.undo


ADAPTER = Adapter(host="acme", module="acme", probe=probe, attach=attach)
