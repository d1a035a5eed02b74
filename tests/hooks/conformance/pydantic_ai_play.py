"""Every scenario on the real pydantic-ai, with its own offline models."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tau_live.testing.expected import Scenario

CANNOT: dict[Scenario, str] = (
    {}
    if "timeout" in inspect.signature(Agent.run).parameters
    else {Scenario.TIMEOUT: "this version ends no run because of its time"}
)
"""What the host cannot be made to do, and why."""


def play(scenario: Scenario) -> str:
    """Return all that a user of the host sees: what it said, in which messages, what it raised."""
    return _PLAYS[scenario]()


def shown(result: Any) -> str:
    parts = [
        f"{part.part_kind}={getattr(part, 'content', None) or getattr(part, 'args', None)}"
        for message in result.all_messages()
        for part in message.parts
    ]
    return f"{result.output!r} after {parts} for {result.usage}"


def model(*calls: str) -> FunctionModel:
    """A model that calls these tools, all in its first answer, and then is done."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = messages[-1].parts[-1]
        asked_again = "retr" in f"{last.part_kind} {getattr(last, 'outcome', '')}"
        if calls and (len(messages) == 1 or asked_again):
            ids = [f"call-{n}-{len(messages)}" for n in range(len(calls))]
            return ModelResponse(
                parts=[
                    ToolCallPart(name, {"place": n}, tool_call_id=id_)
                    for n, (name, id_) in enumerate(zip(calls, ids, strict=True))
                ]
            )
        return ModelResponse(parts=[TextPart("done")])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for piece in ("one ", "two ", "three"):
            yield piece

    return FunctionModel(answer, stream_function=stream)


def agent(*calls: str, **settings: Any) -> Agent[Any, Any]:
    made: Agent[Any, Any] = Agent(
        model(*calls), name="player", instructions="Be good.", retries=2, **settings
    )
    tries: list[int] = []

    @made.tool_plain
    def look(place: int) -> str:
        return f"seen {place}"

    @made.tool_plain
    def fail(place: int) -> str:
        raise RuntimeError(f"failed at {place}")

    @made.tool_plain
    def again(place: int) -> str:
        tries.append(place)
        if len(tries) == 1:
            raise ModelRetry("once more")
        return f"seen {place} at last"

    return made


def told(run: Callable[[], Any]) -> str:
    """Run without a loop of ours; the host would leave the one that it makes open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return shown(run())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        loop.close()


async def awaited(run: Awaitable[Any]) -> str:
    try:
        return shown(await run)
    except (Exception, asyncio.CancelledError) as error:
        return f"{type(error).__name__}: {error}"


def model_error() -> str:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ConnectionError("nobody there")

    return told(lambda: Agent(FunctionModel(answer)).run_sync("hello"))


def nested_agent() -> str:
    outer: Agent[Any, Any] = Agent(model("ask"), name="outer")

    @outer.tool_plain
    async def ask(place: int) -> str:
        return shown(await agent("look").run("for the other"))

    return told(lambda: outer.run_sync("hello"))


def streaming() -> str:
    async def main() -> str:
        async with agent().run_stream("hello") as result:
            pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
            return f"{pieces} {await result.get_output()} {result.usage}"

    return asyncio.run(main())


def early_close() -> str:
    async def main() -> str:
        async with agent().run_stream("hello") as result:
            async for piece in result.stream_text(delta=True, debounce_by=None):
                return str(piece)
        return "nothing"

    return asyncio.run(main())


def handoff() -> str:
    async def deliver(city: str) -> str:
        """Let another agent say it."""
        return shown(await agent("look").run(f"the way to {city}"))

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        [tool] = info.output_tools
        return ModelResponse(parts=[ToolCallPart(tool.name, {"city": "Rome"}, tool_call_id="out")])

    giver: Agent[Any, Any] = Agent(FunctionModel(answer), name="giver", output_type=deliver)
    return told(lambda: giver.run_sync("hello"))


def interrupt_resume() -> str:
    made: Agent[Any, Any] = Agent(
        model("pay"), name="player", output_type=[str, DeferredToolRequests]
    )

    @made.tool_plain(requires_approval=True)
    def pay(place: int) -> str:
        return f"paid for {place}"

    async def main() -> str:
        asked = await made.run("hello")
        approvals = {call.tool_call_id: True for call in asked.output.approvals}
        answer = DeferredToolResults(approvals=approvals)
        history = asked.all_messages()
        return shown(await made.run(message_history=history, deferred_tool_results=answer))

    return asyncio.run(main())


def waiting() -> tuple[Agent[Any, Any], asyncio.Event]:
    """An agent whose tool never returns, and what says that it was called."""
    made: Agent[Any, Any] = Agent(model("wait"), name="player")
    called = asyncio.Event()

    @made.tool_plain
    async def wait(place: int) -> str:
        called.set()
        await asyncio.Event().wait()
        return "never"

    return made, called


def cancellation() -> str:
    async def main() -> str:
        made, called = waiting()
        task = asyncio.ensure_future(made.run("hello"))
        await called.wait()
        task.cancel()
        return await awaited(task)

    return asyncio.run(main())


def timeout() -> str:
    async def main() -> str:
        made, _ = waiting()
        return await awaited(made.run("hello", timeout=0.5))

    return asyncio.run(main())


def two_runs() -> str:
    async def main() -> str:
        both = asyncio.Barrier(2)
        made: Agent[Any, Any] = Agent(model("meet"), name="player")

        @made.tool_plain
        async def meet(place: int) -> str:
            await both.wait()
            return f"met at {place}"

        return " | ".join(
            await asyncio.gather(awaited(made.run("first")), awaited(made.run("second")))
        )

    return asyncio.run(main())


def threads() -> str:
    barrier = threading.Barrier(4)
    said: dict[int, str] = {}

    def run(number: int) -> None:
        barrier.wait()
        said[number] = told(lambda: agent("look").run_sync(f"hello {number}"))

    running = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return str(sorted(said.items()))


_PLAYS: dict[Scenario, Callable[[], str]] = {
    Scenario.ONE_TURN: lambda: told(lambda: agent().run_sync("hello")),
    Scenario.TOOL_CALL: lambda: told(lambda: agent("look").run_sync("hello")),
    Scenario.FAILING_TOOL: lambda: told(lambda: agent("fail").run_sync("hello")),
    Scenario.MODEL_ERROR: model_error,
    Scenario.RETRY: lambda: told(lambda: agent("again").run_sync("hello")),
    Scenario.PARALLEL_TOOLS: lambda: told(lambda: agent("look", "look").run_sync("hello")),
    Scenario.NESTED_AGENT: nested_agent,
    Scenario.STREAMING: streaming,
    Scenario.EARLY_CLOSE: early_close,
    Scenario.CANCELLATION: cancellation,
    Scenario.TIMEOUT: timeout,
    Scenario.TWO_RUNS: two_runs,
    Scenario.THREADS: threads,
    Scenario.HANDOFF: handoff,
    Scenario.INTERRUPT_RESUME: interrupt_resume,
}
