"""Every scenario on the real openai-agents, with its own offline model."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from agents import (
    Agent,
    RunConfig,
    Runner,
    RunResult,
    Tool,
    Usage,
    function_tool,
    set_trace_processors,
)
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from tau_live.testing.expected import Scenario

CANNOT: dict[Scenario, str] = {
    Scenario.RETRY: "the host calls no tool again: its model is told what failed, and may ask anew",
}
"""What the host does not do, and why."""


def play(scenario: Scenario) -> str:
    """Return all that a user of the host sees: what it said, in which items, what it raised."""
    set_trace_processors([])  # its own would send what they see to its maker
    return _PLAYS[scenario]()


def shown(result: Any) -> str:
    items = [
        f"{item.type}={getattr(item, 'output', None) or item.raw_item}" for item in result.new_items
    ]
    usage = result.context_wrapper.usage
    return f"{result.final_output!r} after {items} for {usage} with {result.interruptions}"


def model(*calls: str, traced: bool = True) -> ScriptedModel:
    """A model that calls these tools, all in its first answer, and then is done."""
    asked = [
        function_call(name, {"place": place}, call_id=f"call-{place}", item_id=f"item-{place}")
        for place, name in enumerate(calls)
    ]
    answers: list[Any] = [*([asked] if asked else []), [assistant_message("done")]]
    usage = Usage(requests=1, input_tokens=5, output_tokens=2, total_tokens=7)
    return ScriptedModel(answers, emit_traces=traced, default_usage=usage)


def agent(*calls: str, name: str = "player", **more: Any) -> Agent[Any]:
    @function_tool
    def look(place: int) -> str:
        return f"seen {place}"

    @function_tool
    def fail(place: int) -> str:
        raise RuntimeError(f"failed at {place}")

    @function_tool(needs_approval=True)
    def pay(place: int) -> str:
        return f"paid {place}"

    own: list[Tool] = [look, fail, pay]
    given = {"model": model(*calls), "tools": own, **more}
    return Agent(name=name, instructions="Be good.", **given)


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
    broken = ScriptedModel(
        [ModelStep.raise_error(ConnectionError("nobody there"))], emit_traces=True
    )
    return told(lambda: Runner.run_sync(agent(model=broken), "hello"))


def nested_agent() -> str:
    inner = agent("look", name="inner")
    asks = ScriptedModel(
        [[function_call("ask", {"input": "for the other"}, call_id="ask-1")],
         [assistant_message("done")]],
        emit_traces=True,
    )  # fmt: skip
    outer = agent(name="outer", model=asks, tools=[inner.as_tool("ask", "Ask the other.")])
    return told(lambda: Runner.run_sync(outer, "hello"))


def streaming() -> str:
    async def main() -> str:
        result = Runner.run_streamed(agent(), "hello")
        kinds = [
            getattr(event, "name", None) or getattr(event, "data", event).type
            async for event in result.stream_events()
        ]
        return f"{kinds} {shown(result)}"

    return asyncio.run(main())


def early_close() -> str:
    async def main() -> str:
        result = Runner.run_streamed(agent(), "hello")
        events = result.stream_events()
        async for event in events:
            if getattr(event, "data", event).type.endswith(".delta"):
                break
        await events.aclose()
        return f"{event.type} {result.is_complete}"

    return asyncio.run(main())


def waiting(**more: Any) -> tuple[Agent[Any], asyncio.Event]:
    """An agent whose tool never returns, and what says that it was called."""
    called = asyncio.Event()

    @function_tool(**more)
    async def wait(place: int) -> str:
        called.set()
        await asyncio.Event().wait()
        return "never"

    return agent("wait", tools=[wait]), called


def cancellation() -> str:
    async def main() -> str:
        made, called = waiting()
        task = asyncio.ensure_future(Runner.run(made, "hello"))
        await called.wait()
        task.cancel()
        return await awaited(task)

    return asyncio.run(main())


def timeout() -> str:
    async def main() -> str:
        made, _ = waiting(timeout=0.05, timeout_behavior="raise_exception")
        return await awaited(Runner.run(made, "hello"))

    return asyncio.run(main())


def two_runs() -> str:
    async def main() -> str:
        both = asyncio.Barrier(2)

        @function_tool
        async def meet(place: int) -> str:
            await both.wait()
            return f"met at {place}"

        runs = [Runner.run(agent("meet", tools=[meet]), text) for text in ("first", "second")]
        return " | ".join(await asyncio.gather(*map(awaited, runs)))

    return asyncio.run(main())


def threads() -> str:
    barrier = threading.Barrier(4)
    said: dict[int, str] = {}

    def run(number: int) -> None:
        barrier.wait()
        said[number] = told(lambda: Runner.run_sync(agent("look"), f"hello {number}"))

    running = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return str(sorted(said.items()))


def handoff() -> str:
    asks = ScriptedModel(
        [[function_call("transfer_to_other", {}, call_id="over-1")]], emit_traces=True
    )
    first = agent(name="first", model=asks, handoffs=[agent(name="other")])
    return told(lambda: Runner.run_sync(first, "hello"))


def interrupt_resume() -> str:
    made = agent("pay")

    async def main() -> RunResult:
        config = RunConfig(group_id="a conversation")
        first = await Runner.run(made, "hello", run_config=config)
        state = first.to_state()
        state.approve(state.get_interruptions()[0])
        return await Runner.run(made, state, run_config=config)

    return told(lambda: asyncio.get_event_loop().run_until_complete(main()))


_PLAYS: dict[str, Callable[[], str]] = {
    "one_turn": lambda: told(lambda: Runner.run_sync(agent(), "hello")),
    "tool_call": lambda: told(lambda: Runner.run_sync(agent("look"), "hello")),
    "failing_tool": lambda: told(lambda: Runner.run_sync(agent("fail"), "hello")),
    "model_error": model_error,
    "parallel_tools": lambda: told(lambda: Runner.run_sync(agent("look", "look"), "hello")),
    "nested_agent": nested_agent,
    "streaming": streaming,
    "early_close": early_close,
    "cancellation": cancellation,
    "timeout": timeout,
    "two_runs": two_runs,
    "threads": threads,
    "handoff": handoff,
    "interrupt_resume": interrupt_resume,
}
