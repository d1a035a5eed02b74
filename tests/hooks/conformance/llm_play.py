"""Every scenario on the real llm, with a model of its own that a plugin registers, as authors do.

It is asked by its own name, and through the model ``tau``, which passes on to it.
"""

import asyncio
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import llm
from llm.parts import StreamEvent
from llm.plugins import pm

from tau_live.testing.expected import Scenario

CANNOT: Mapping[Scenario, str] = {
    Scenario.RETRY: "a tool cannot ask for another try",
    Scenario.TIMEOUT: "nothing of it has a timeout",
    Scenario.CANCELLATION: "what is not async cannot be cancelled",
    Scenario.HANDOFF: "one model answers, and none hands over to another",
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


@contextmanager
def at_home() -> Iterator[None]:
    """Let llm know the player, and ``tau`` pass on to it, in a folder of its own."""
    if not pm.has_plugin("llm_player"):
        pm.register(Plugin(), name="llm_player")
    before = os.environ.get("LLM_USER_PATH")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "aliases.json").write_text(json.dumps({"tau-default": "player"}))
        os.environ["LLM_USER_PATH"] = folder
        try:
            yield
        finally:
            os.environ.pop("LLM_USER_PATH")
            if before is not None:
                os.environ["LLM_USER_PATH"] = before


def look(place: int) -> str:
    return f"seen {place}"


def fail(place: int) -> str:
    raise RuntimeError(f"failed at {place}")


def nest(place: int) -> str:
    return str(llm.get_model("player").prompt("for the other").text())


_TOOLS: Mapping[str, Callable[..., Any]] = {"look": look, "fail": fail, "nest": nest}


def chain(name: str, text: str, **more: Any) -> Any:
    tools = [llm.Tool.function(_TOOLS[one], name=one) for one in ("look", "fail", "nest")]
    return llm.get_model(name).chain(text, tools=more.pop("tools", tools), **more)


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


def early_close(name: str) -> str:
    for piece in llm.get_model(name).prompt("hello"):
        return str(piece)
    return "nothing"


def streaming(name: str) -> str:
    made = llm.get_model(name).prompt("hello")
    return str([f"{one}" for one in made.stream_events()]) + shown([made.text()], made)


def two_runs(name: str) -> str:
    both = [chain(name, "look"), chain(name, "look")]
    pieces = [f"{one}" for pair in zip(*both, strict=True) for one in pair]
    return "".join(pieces) + shown([], both[0]) + shown([], both[1])


class Approval:
    """A tool that waits until somebody approves of it."""

    def __init__(self) -> None:
        self.given = False

    def look(self, place: int) -> str:
        if not self.given:
            raise llm.PauseChain("approve of it")
        return look(place)


def interrupt_resume(name: str) -> str:
    approval = Approval()
    tools = [llm.Tool.function(approval.look, name="look")]
    first = chain(name, "look", tools=tools)
    said = told(first)
    left = first._responses[-1]
    approval.given = True
    again = llm.get_model(name).chain(
        tools=tools, messages=[*left.prompt.messages, *left.messages()]
    )
    return said + told(again)


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
    Scenario.INTERRUPT_RESUME: interrupt_resume,
    Scenario.THREADS: lambda name: in_threads(lambda: told(chain(name, "look"))),
}
