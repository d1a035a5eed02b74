"""Every scenario on the real llm's async models; the rest is as in ``llm_play``."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import llm

from tau_live.testing.expected import Scenario
from tests.hooks.conformance.llm_play import CANNOT as SYNC_CANNOT
from tests.hooks.conformance.llm_play import Said, at_home, fail, in_threads, look, shown

CANNOT: Mapping[Scenario, str] = {
    scenario: why for scenario, why in SYNC_CANNOT.items() if scenario != Scenario.CANCELLATION
}
"""What the host cannot be made to do, and why."""


def play(scenario: Scenario) -> str:
    """Return all that a user of the host sees, by the player's own name."""
    with at_home():
        return _PLAYS[scenario]("player")


def routed(scenario: Scenario) -> str:
    """Return the same, through the model ``tau``."""
    with at_home():
        return _PLAYS[scenario]("tau")


async def nest(place: int) -> str:
    return str(await llm.get_async_model("player").prompt("for the other").text())


async def later(place: int) -> str:
    await asyncio.sleep(0)
    return look(place)


def chain(name: str, text: str, **more: Any) -> Any:
    tools = [
        llm.Tool.function(later, name="look"),
        llm.Tool.function(fail, name="fail"),
        llm.Tool.function(nest, name="nest"),
    ]
    return llm.get_async_model(name).chain(text, tools=more.pop("tools", tools), **more)


async def heard(made: Any) -> str:
    pieces: list[str] = []
    try:
        pieces.extend([piece async for piece in made])
    except (Exception, asyncio.CancelledError) as error:
        pieces.append(f"{type(error).__name__}: {error}")
    return shown(pieces, made)


def run(made: Callable[[], Any]) -> str:
    async def main() -> str:
        return await heard(made())

    return asyncio.run(main())


def early_close(name: str) -> str:
    async def main() -> str:
        async for piece in llm.get_async_model(name).prompt("hello"):
            return str(piece)
        return "nothing"

    return asyncio.run(main())


def streaming(name: str) -> str:
    async def main() -> str:
        made = llm.get_async_model(name).prompt("hello")
        events = [f"{one}" async for one in made.astream_events()]
        return str(events) + shown([await made.text()], made)

    return asyncio.run(main())


def cancellation(name: str) -> str:
    async def main() -> str:
        called = asyncio.Event()

        async def wait(place: int) -> str:
            called.set()
            await asyncio.Event().wait()
            return "never"

        tools = [llm.Tool.function(wait, name="look")]
        task = asyncio.ensure_future(heard(chain(name, "look", tools=tools)))
        await called.wait()
        task.cancel()
        return await task

    return asyncio.run(main())


def two_runs(name: str) -> str:
    async def main() -> str:
        barrier = asyncio.Barrier(2)

        async def meet(place: int) -> str:
            await barrier.wait()
            return f"met at {place}"

        tools = [llm.Tool.function(meet, name="look")]
        both = [heard(chain(name, "look", tools=tools)) for _ in range(2)]
        return " | ".join(await asyncio.gather(*both))

    return asyncio.run(main())


def interrupt_resume(name: str) -> str:
    async def main() -> str:
        approved = False

        async def wait(place: int) -> str:
            if not approved:
                raise llm.PauseChain("approve of it")
            return look(place)

        tools = [llm.Tool.function(wait, name="look")]
        first = chain(name, "look", tools=tools)
        said = await heard(first)
        left = first._responses[-1]
        approved = True
        messages = [*left.prompt.messages, *await left.messages()]
        again = llm.get_async_model(name).chain(tools=tools, messages=messages)
        return said + await heard(again)

    return asyncio.run(main())


_PLAYS: Mapping[Scenario, Callable[[str], str]] = {
    Scenario.ONE_TURN: lambda name: run(lambda: llm.get_async_model(name).prompt("hello")),
    Scenario.TOOL_CALL: lambda name: run(lambda: chain(name, "look")),
    Scenario.FAILING_TOOL: lambda name: run(lambda: chain(name, "fail")),
    Scenario.MODEL_ERROR: lambda name: run(lambda: chain(name, "hello", system=Said.BROKEN)),
    Scenario.PARALLEL_TOOLS: lambda name: run(lambda: chain(name, "look look")),
    Scenario.NESTED_AGENT: lambda name: run(lambda: chain(name, "nest")),
    Scenario.STREAMING: streaming,
    Scenario.EARLY_CLOSE: early_close,
    Scenario.CANCELLATION: cancellation,
    Scenario.TWO_RUNS: two_runs,
    Scenario.INTERRUPT_RESUME: interrupt_resume,
    Scenario.THREADS: lambda name: in_threads(lambda: run(lambda: chain(name, "look"))),
}
