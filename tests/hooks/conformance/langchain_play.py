"""Every scenario on the real langchain and langgraph, with the fake chat model that they ship."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from tau_live.testing.expected import Scenario

TOKENS = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
CANNOT: dict[Scenario, str] = {}
"""Scenarios that the host cannot have, each with the reason; there is none."""


def play(scenario: Scenario) -> str:
    """Return all that a user of the host sees: what it said, in which messages, what it raised."""
    return PLAYS[scenario]()


class Scripted(GenericFakeChatModel):
    """The host's fake, which may be given tools, and counts its tokens."""

    model_name: str = "scripted"

    def bind_tools(self, tools: Sequence[Any], **settings: Any) -> Any:
        return self.bind(tools=[one.name for one in tools], **settings)

    def _stream(self, *args: Any, **settings: Any) -> Iterator[ChatGenerationChunk]:
        yield from super()._stream(*args, **settings)
        yield ChatGenerationChunk(message=AIMessageChunk("", usage_metadata=TOKENS))


class Unreachable(Scripted):
    """A model that nobody runs."""

    def _generate(self, *args: Any, **settings: Any) -> ChatResult:
        raise ConnectionError("nobody there")


def model(*calls: str) -> Scripted:
    """A model that calls these tools, all in its first answer, and then is done."""

    def answers() -> Iterator[AIMessage]:
        if calls:
            asked = [
                {"name": name, "args": {"place": place}, "id": f"call-{place}"}
                for place, name in enumerate(calls)
            ]
            yield AIMessage("", tool_calls=asked, usage_metadata=TOKENS)
        while True:
            yield AIMessage("done it all", usage_metadata=TOKENS)

    return Scripted(messages=answers())


def agent(*calls: str, **settings: Any) -> Any:
    """An agent whose model calls these tools."""
    tries: list[int] = []

    @tool
    def look(place: int) -> str:
        """Look at a place."""
        return f"seen {place}"

    @tool
    def fail(place: int) -> str:
        """Fail at a place."""
        raise RuntimeError(f"failed at {place}")

    @tool
    def again(place: int) -> str:
        """Fail once."""
        tries.append(place)
        if len(tries) == 1:
            raise RuntimeError("once more")
        return f"seen {place} at last"

    given = {"tools": [look, fail, again], "system_prompt": "Be good.", "name": "player"}
    return create_agent(model(*calls), **{**given, **settings})


HELLO = {"messages": "hello"}


def shown(result: Any) -> str:
    said = [
        f"{one.type}={one.content!r} {getattr(one, 'tool_calls', '')} {one.usage_metadata}"
        if isinstance(one, AIMessage)
        else f"{one.type}={one.content!r}"
        for one in result.get("messages", ())
    ]
    waits = [one.value for one in result.get("__interrupt__", ())]
    return f"{said} {sorted(result)} {waits}"


def told(run: Callable[[], Any]) -> str:
    try:
        return shown(run())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


async def awaited(run: Awaitable[Any]) -> str:
    try:
        return shown(await run)
    except (Exception, asyncio.CancelledError) as error:
        return f"{type(error).__name__}: {error}"


def model_error() -> str:
    return told(lambda: create_agent(Unreachable(messages=iter(())), []).invoke(HELLO))


def retry() -> str:
    once = ToolRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False)
    return told(lambda: agent("again", middleware=[once]).invoke(HELLO))


def parallel_tools() -> str:
    """Run both on one loop, where each recording has them in the same order."""
    both = asyncio.Barrier(2)

    @tool
    async def look(place: int) -> str:
        """Look at a place, when the other does."""
        await both.wait()
        return f"seen {place}"

    made = agent("look", "look", tools=[look])
    return asyncio.run(awaited(made.ainvoke(HELLO)))


def nested_agent() -> str:
    @tool
    def ask(place: int) -> str:
        """Ask the other."""
        return shown(agent("look", name="inner").invoke({"messages": "for the other"}))

    return told(lambda: agent("ask", tools=[ask], name="outer").invoke(HELLO))


def handoff() -> str:
    @tool
    def look(place: int) -> Command[Any]:
        """Hand over to the other."""
        over = ToolMessage("over to you", tool_call_id=f"call-{place}")
        return Command(goto="second", graph=Command.PARENT, update={"messages": [over]})

    graph: Any = StateGraph(MessagesState)
    first = agent("look", tools=[look], name="first")
    graph.add_node("first", first, destinations=["second"])
    graph.add_node("second", agent(name="second"))
    graph.add_edge(START, "first")
    return told(lambda: graph.compile(name="both").invoke(HELLO))


def interrupt_resume() -> str:
    @tool
    def look(place: int) -> str:
        """Ask somebody."""
        return f"somebody says {interrupt({'at': place})}"

    made = agent("look", tools=[look], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "thread-1"}}
    first = told(lambda: made.invoke(HELLO, config))
    return f"{first} | {told(lambda: made.invoke(Command(resume='yes'), config))}"


def streaming() -> str:
    async def main() -> str:
        pieces: list[BaseMessage] = [
            piece async for piece, _ in agent().astream(HELLO, stream_mode="messages")
        ]
        return f"{[(piece.type, piece.content) for piece in pieces]}"

    return asyncio.run(main())


def early_close() -> str:
    async def main() -> str:
        pieces: AsyncIterator[Any] = agent().astream(HELLO, stream_mode="messages")
        async for piece, _ in pieces:
            await pieces.aclose()  # type: ignore[attr-defined]  # it is a generator
            return str(piece.content)
        return "nothing"

    return asyncio.run(main())


def waiting(**settings: Any) -> tuple[Any, asyncio.Event]:
    """An agent whose tool never returns, and what says that it was called."""
    called = asyncio.Event()

    @tool
    async def wait(place: int) -> str:
        """Wait for ever."""
        called.set()
        await asyncio.Event().wait()
        return "never"

    return agent("wait", tools=[wait], **settings), called


def cancellation() -> str:
    async def main() -> str:
        made, called = waiting()
        task = asyncio.ensure_future(made.ainvoke(HELLO))
        await called.wait()
        task.cancel()
        return await awaited(task)

    return asyncio.run(main())


def timeout() -> str:
    async def main() -> str:
        made, _ = waiting()
        made.step_timeout = 1.0  # long enough for the steps before it
        return await awaited(made.ainvoke(HELLO))

    return asyncio.run(main())


def two_runs() -> str:
    async def main() -> str:
        both = asyncio.Barrier(2)

        @tool
        async def meet(place: int) -> str:
            """Meet the other run."""
            await both.wait()
            return f"met at {place}"

        made = [agent("meet", tools=[meet]) for _ in range(2)]
        return " | ".join(await asyncio.gather(*(awaited(one.ainvoke(HELLO)) for one in made)))

    return asyncio.run(main())


def threads() -> str:
    barrier = threading.Barrier(4)
    said: dict[int, str] = {}

    def run(number: int) -> None:
        barrier.wait()
        said[number] = told(lambda: agent("look").invoke({"messages": f"hello {number}"}))

    running = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return str(sorted(said.items()))


PLAYS: dict[Scenario, Callable[[], str]] = {
    Scenario.ONE_TURN: lambda: told(lambda: agent().invoke(HELLO)),
    Scenario.TOOL_CALL: lambda: told(lambda: agent("look").invoke(HELLO)),
    Scenario.FAILING_TOOL: lambda: told(lambda: agent("fail").invoke(HELLO)),
    Scenario.MODEL_ERROR: model_error,
    Scenario.RETRY: retry,
    Scenario.PARALLEL_TOOLS: parallel_tools,
    Scenario.NESTED_AGENT: nested_agent,
    Scenario.HANDOFF: handoff,
    Scenario.INTERRUPT_RESUME: interrupt_resume,
    Scenario.STREAMING: streaming,
    Scenario.EARLY_CLOSE: early_close,
    Scenario.CANCELLATION: cancellation,
    Scenario.TIMEOUT: timeout,
    Scenario.TWO_RUNS: two_runs,
    Scenario.THREADS: threads,
}
