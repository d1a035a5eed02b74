"""Every scenario on the real llm, with a model of its own that a plugin registers, as authors do.

Each is played in four ways: by models or by async ones, and these asked by their own name or
through the model ``tau``, which passes on to them.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import llm
from llm.parts import StreamEvent
from llm.plugins import pm

from tau_live.testing import Scenario


class Way(StrEnum):
    """How a scenario is played."""

    SYNC = "sync"
    ASYNC = "async"
    ROUTED = "routed"
    ASYNC_ROUTED = "async_routed"

    @property
    def is_async(self) -> bool:
        return self in {Way.ASYNC, Way.ASYNC_ROUTED}

    @property
    def model(self) -> str:
        return "tau" if self in {Way.ROUTED, Way.ASYNC_ROUTED} else "player"


CANNOT: Mapping[tuple[Scenario, bool], str] = {
    **dict.fromkeys(
        [(Scenario.RETRY, False), (Scenario.RETRY, True)], "a tool cannot ask for another try"
    ),
    **dict.fromkeys(
        [(Scenario.TIMEOUT, False), (Scenario.TIMEOUT, True)], "nothing of it has a timeout"
    ),
    (Scenario.CANCELLATION, False): "what is not async cannot be cancelled",
}
"""What the host cannot be made to do, by whether its models are async, and why."""


def play(way: Way) -> Callable[[Scenario], str]:
    """Return what plays a scenario in one way."""

    def played(scenario: Scenario) -> str:
        made = _APLAYS[scenario](way.model) if way.is_async else _PLAYS[scenario](way.model)
        return str(made)

    return played


class Said(StrEnum):
    """What the player is asked to do, in its system prompt."""

    DONE = "just answer"
    BROKEN = "break in the middle"


def script(prompt: Any, response: Any) -> Iterator[str | StreamEvent]:
    """Answer as the prompt wants it: with the tools that are named in it, and then a text."""
    response.set_usage(input=len(prompt.messages), output=3, details={"cached_tokens": 1})
    names = [name for name in (prompt.prompt or "").split() if name in _TOOLS]
    if names and not prompt.tool_results:
        for place, name in enumerate(names):
            call = llm.ToolCall(name, {"place": place}, tool_call_id=f"call-{place}")
            response.add_tool_call(call)
            yield StreamEvent(type="tool_call_name", chunk=name, tool_call_id=call.tool_call_id)
            yield StreamEvent(
                type="tool_call_args",
                chunk=json.dumps(call.arguments),
                tool_call_id=call.tool_call_id,
            )
        return
    yield "one "
    yield "two "
    if prompt.system == Said.BROKEN:
        raise ConnectionError("nobody there")
    yield "three"


class _Options(llm.Options):
    temperature: float | None = None


class Player(llm.Model):
    model_id = "player"
    can_stream = True
    supports_tools = True
    supports_schema = True
    attachment_types = frozenset({"image/png"})

    class Options(_Options):
        pass

    def execute(self, prompt: Any, stream: Any, response: Any, conversation: Any) -> Any:
        yield from script(prompt, response)


class AsyncPlayer(llm.AsyncModel):
    model_id = "player"
    can_stream = True
    supports_tools = True
    supports_schema = True
    attachment_types = frozenset({"image/png"})

    class Options(_Options):
        pass

    async def execute(self, prompt: Any, stream: Any, response: Any, conversation: Any) -> Any:
        for piece in script(prompt, response):
            await asyncio.sleep(0)
            yield piece


class Plugin:
    """What its author would have made a module of its own."""

    __name__ = "llm_player"

    @llm.hookimpl
    def register_models(self, register: Any) -> None:
        register(Player(), AsyncPlayer())


def prepared(folder: Path) -> None:
    """Let llm know the player, and ``tau`` pass on to it."""
    if not pm.has_plugin("llm_player"):
        pm.register(Plugin(), name="llm_player")
    (folder / "aliases.json").write_text(json.dumps({"tau-default": "player"}))


def look(place: int) -> str:
    return f"seen {place}"


def fail(place: int) -> str:
    raise RuntimeError(f"failed at {place}")


def nest(place: int) -> str:
    return str(llm.get_model("player").prompt("for the other").text())


async def anest(place: int) -> str:
    return str(await llm.get_async_model("player").prompt("for the other").text())


_TOOLS: Mapping[str, Callable[..., Any]] = {"look": look, "fail": fail, "nest": nest}


def chain(name: str, text: str, **more: Any) -> Any:
    tools = [llm.Tool.function(_TOOLS[one], name=one) for one in ("look", "fail", "nest")]
    return llm.get_model(name).chain(text, tools=more.pop("tools", tools), **more)


def achain(name: str, text: str, **more: Any) -> Any:
    async def later(place: int) -> str:
        await asyncio.sleep(0)
        return look(place)

    tools = [
        llm.Tool.function(later, name="look"),
        llm.Tool.function(fail, name="fail"),
        llm.Tool.function(anest, name="nest"),
    ]
    return llm.get_async_model(name).chain(text, tools=more.pop("tools", tools), **more)


def shown(pieces: list[str], made: Any) -> str:
    """Say everything that somebody who made a chain or prompt can look at."""
    responses = getattr(made, "_responses", [made])
    for one in responses:
        pieces = [*pieces, f"{one.input_tokens}/{one.output_tokens}/{one.token_details}"]
        pieces += [f"{part}" for message in one._messages_now() for part in message.parts]
        pieces += [f"{part}" for message in one.prompt.messages for part in message.parts]
    return f"{pieces}"


def told(made: Any) -> str:
    pieces: list[str] = []
    try:
        pieces.extend(made)
    except Exception as error:
        pieces.append(f"{type(error).__name__}: {error}")
    return shown(pieces, made)


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
    for piece in llm.get_model(name).prompt("hello"):
        return str(piece)
    return "nothing"


def aearly_close(name: str) -> str:
    async def main() -> str:
        async for piece in llm.get_async_model(name).prompt("hello"):
            return str(piece)
        return "nothing"

    return asyncio.run(main())


def streaming(name: str) -> str:
    made = llm.get_model(name).prompt("hello")
    return str([f"{one}" for one in made.stream_events()]) + shown([made.text()], made)


def astreaming(name: str) -> str:
    async def main() -> str:
        made = llm.get_async_model(name).prompt("hello")
        events = [f"{one}" async for one in made.astream_events()]
        return str(events) + shown([await made.text()], made)

    return asyncio.run(main())


def acancellation(name: str) -> str:
    async def main() -> str:
        called = asyncio.Event()

        async def wait(place: int) -> str:
            called.set()
            await asyncio.Event().wait()
            return "never"

        tools = [llm.Tool.function(wait, name="look")]
        task = asyncio.ensure_future(heard(achain(name, "look", tools=tools)))
        await called.wait()
        task.cancel()
        return await task

    return asyncio.run(main())


def two_runs(name: str) -> str:
    both = [chain(name, "look"), chain(name, "look")]
    pieces = [f"{one}" for pair in zip(*both, strict=True) for one in pair]
    return "".join(pieces) + shown([], both[0]) + shown([], both[1])


def atwo_runs(name: str) -> str:
    async def main() -> str:
        barrier = asyncio.Barrier(2)

        async def meet(place: int) -> str:
            await barrier.wait()
            return f"met at {place}"

        tools = [llm.Tool.function(meet, name="look")]
        both = [heard(achain(name, "look", tools=tools)) for _ in range(2)]
        return " | ".join(await asyncio.gather(*both))

    return asyncio.run(main())


def in_threads(each: Callable[[], str]) -> str:
    barrier = threading.Barrier(4)
    said: dict[int, str] = {}

    def one(number: int) -> None:
        barrier.wait()
        said[number] = each()

    running = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return str(sorted(said.items()))


_PLAYS: Mapping[Scenario, Callable[[str], str]] = {
    Scenario.ONE_TURN: lambda name: told(llm.get_model(name).prompt("hello", system="Be good.")),
    Scenario.TOOL_CALL: lambda name: told(chain(name, "look")),
    Scenario.FAILING_TOOL: lambda name: told(chain(name, "fail")),
    Scenario.MODEL_ERROR: lambda name: told(chain(name, "hello", system=Said.BROKEN)),
    Scenario.PARALLEL_TOOLS: lambda name: told(chain(name, "look look")),
    Scenario.NESTED_AGENT: lambda name: told(chain(name, "nest")),
    Scenario.STREAMING: streaming,
    Scenario.EARLY_CLOSE: early_close,
    Scenario.TWO_RUNS: two_runs,
    Scenario.THREADS: lambda name: in_threads(lambda: told(chain(name, "look"))),
}

_APLAYS: Mapping[Scenario, Callable[[str], str]] = {
    Scenario.ONE_TURN: lambda name: run(lambda: llm.get_async_model(name).prompt("hello")),
    Scenario.TOOL_CALL: lambda name: run(lambda: achain(name, "look")),
    Scenario.FAILING_TOOL: lambda name: run(lambda: achain(name, "fail")),
    Scenario.MODEL_ERROR: lambda name: run(lambda: achain(name, "hello", system=Said.BROKEN)),
    Scenario.PARALLEL_TOOLS: lambda name: run(lambda: achain(name, "look look")),
    Scenario.NESTED_AGENT: lambda name: run(lambda: achain(name, "nest")),
    Scenario.STREAMING: astreaming,
    Scenario.EARLY_CLOSE: aearly_close,
    Scenario.CANCELLATION: acancellation,
    Scenario.TWO_RUNS: atwo_runs,
    Scenario.THREADS: lambda name: in_threads(lambda: run(lambda: achain(name, "look"))),
}
