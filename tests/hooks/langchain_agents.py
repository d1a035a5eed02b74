"""Agents of langchain for tests: a model that tells what it was asked, and attaching to act."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

import tau_live
from tau_live.core.hookspecs import Answer, DecisionRequest, hookimpl
from tau_live.core.settings import Learner, Settings
from tau_live.core.settings.tables import DeclaredDecision, DeclaredReward
from tau_live.operate.trials import Order, expose
from tau_live.testing.expected import Recorded, recorded_in
from tau_live_hooks.langchain import ADAPTER
from tests.live.running import opened

HELLO = {"messages": "hello"}
THREAD: Any = {"configurable": {"thread_id": "thread-1"}}


class Mirror(BaseChatModel):
    """Answers with what it was asked; first it calls the tools that are named in its question."""

    model_name: str = "mirror"
    says: str = ""

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Sequence[Any], **settings: Any) -> Any:
        return self.bind(tools=[one.name for one in tools], **settings)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **settings: Any,
    ) -> ChatResult:
        tools = settings.get("tools") or []
        question = next(str(one.content) for one in messages if one.type == "human")
        wanted = [name for name in ("look", "fail") if name in question.split()]
        if wanted and messages[-1].type == "human" and tools:
            calls = [{"name": one, "args": {"place": 1}, "id": f"call-{one}"} for one in wanted]
            said = AIMessage("", tool_calls=calls)
        else:
            system = [str(one.content) for one in messages if one.type == "system"]
            heard = [str(one.content) for one in messages if one.type == "tool"]
            told = f"{system} at {settings.get('temperature')} with {tools}: {heard}"
            said = AIMessage(self.says or told)
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool
def look(place: int) -> str:
    """Look at a place."""
    return f"seen {place}"


@tool
def fail(place: int) -> str:
    """Fail at a place."""
    raise RuntimeError(f"failed at {place}")


class Forced:
    """Answers every decision with the same option."""

    def __init__(self, option: str) -> None:
        self._option = option

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer | None:
        known = self._option in request.options
        return Answer(option=self._option, probability=1.0) if known else None


def agent(**more: Any) -> Any:
    given = {"model": Mirror(), "tools": [look, fail], "system_prompt": "Be good.", "name": "asker"}
    return create_agent(**{**given, **more})


def ask(question: str = "hello", *, made: Any = None, config: Any = None) -> str:
    """Ask an agent one question; return what it says last."""
    found = (made or agent()).invoke({"messages": question}, config)
    return str(found["messages"][-1].content)


def settings(path: Path, *told: DeclaredDecision, **more: Any) -> Settings:
    given: dict[str, Any] = {"store": path, "act": True, "decisions": told, **more}
    return Settings(
        learner=Learner.FLUSH,
        decide_deadline_ms=given.pop("decide_deadline_ms", 60_000.0),
        rewards=(DeclaredReward(name="good", default=1.0),),
        **given,
    )


@contextmanager
def attached(
    wanted: Settings,
    monkeypatch: pytest.MonkeyPatch,
    *points: str,
    forced: str = "",
    asking: Callable[[], Any] = ask,
) -> Iterator[None]:
    """Attach, and let the learner decide everything at these points, beyond its shadow."""
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    runtime = tau_live.attach(wanted)
    assert runtime is not None
    detach = ADAPTER.attach(lambda: runtime)
    try:
        for point in points:
            asking()
            assert tau_live.flush()
            with opened(wanted.store) as store:
                expose(store, wanted, Order("test", point, "because", "anna", 1.0), share=1.0)
        if points:
            tau_live.detach()
            detach()
            runtime = tau_live.attach(wanted)
            detach = ADAPTER.attach(lambda: runtime)
        if forced and runtime is not None:
            runtime.plugins.register(Forced(forced), name="forced")
        yield
    finally:
        detach()
        tau_live.detach()


def stored(wanted: Settings) -> list[Recorded]:
    assert tau_live.flush()
    return recorded_in(wanted)


@contextmanager
def seeing(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Attach to see, and not to act."""
    wanted = settings(path, act=False)
    with attached(wanted, monkeypatch):
        yield wanted
