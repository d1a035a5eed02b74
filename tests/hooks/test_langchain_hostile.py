"""Whatever langchain and langgraph hand over, no callback of ours raises, waits, or changes it."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tau_live.testing.expected import Scenario

pytest.importorskip("langchain_core")
pytest.importorskip("langgraph")

from langchain.agents.middleware import AgentMiddleware
from langchain_core.documents import Document
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.retrievers import BaseRetriever
from langsmith import schemas

from tau_live_hooks.langchain import ADAPTER
from tau_live_hooks.langchain_choose import Acting
from tau_live_hooks.langchain_graphs import TauGraphHandler
from tau_live_hooks.langchain_record import Feedback, TauHandler
from tests.hooks.conformance.langchain_play import CANNOT, play
from tests.hooks.hostile import Fuzz, callbacks, faults, wrappers
from tests.hooks.langchain_agents import agent, ask

pytestmark = pytest.mark.slow

LATER = {"_run_tool_later": "coroutine"}
"""The wrappers of coroutines; the others' wrap plain functions."""

OURS = {"_chain"}
"""What returns something around what the host's function returned."""

WRAPS = wrappers(Acting, Feedback, but=())


class Passing(AgentMiddleware[Any, Any, Any]):
    """Is around the asking of a model, and changes nothing."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request)


class Shelf(BaseRetriever):
    """Finds one document, or nothing at all."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        if query == "nothing":
            raise LookupError(query)
        return [Document(page_content=f"of {query}")]


def played() -> str:
    said = [play(one) for one in Scenario if one not in CANNOT]
    said += [ask(made=agent(middleware=[Passing()])), *map(found, ("books", "nothing"))]
    texts = FakeListLLM(responses=["yes", "no"])
    said += [texts.invoke("one"), asyncio.run(texts.ainvoke("another"))]
    model = GenericFakeChatModel(messages=iter([AIMessage("one two three")]))
    if hasattr(TauHandler.__base__, "on_stream_event"):
        said += [str([one["event"] for one in model.stream_events("hello", version="v3")])]
    run, source = UUID(int=7), schemas.APIFeedbackSource()
    schemas.FeedbackCreate(
        id=run, run_id=run, trace_id=run, key="good", score=1.0, feedback_source=source
    )
    return "\n".join(said)


def found(query: str) -> str:
    try:
        return str(Shelf().invoke(query))
    except LookupError as error:
        return f"{error!r}"


def test_whatever_the_host_hands_over_it_is_not_hurt(path: Path) -> None:
    names = [name for _, names in WRAPS for name in names]
    fuzz = Fuzz(5, steps={name: LATER.get(name, "plain") for name in names}, free=OURS)
    told = callbacks(TauHandler, "on_"), callbacks(TauGraphHandler, "on_")

    found = faults(ADAPTER, fuzz, *WRAPS, *told, play=played, path=path)

    assert not found, "\n".join(found)
