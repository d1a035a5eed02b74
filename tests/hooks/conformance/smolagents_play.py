"""Every scenario on the real smolagents, with offline models of its own kind."""

import json
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from smolagents import (
    ChatMessage,
    CodeAgent,
    LogLevel,
    MessageRole,
    Model,
    MultiStepAgent,
    TokenUsage,
    Tool,
    ToolCallingAgent,
    tool,
)
from smolagents.models import (
    ChatMessageStreamDelta,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    ChatMessageToolCallStreamDelta,
)

from tau_live.testing.expected import Scenario

CANNOT = {
    Scenario.HANDOFF: "an agent calls another as it calls a tool, and goes on afterwards",
    Scenario.TIMEOUT: "the host ends no run; code that took too long is an error to be corrected",
}
"""What the host does not have, and why."""

CODE_CANNOT = {
    **CANNOT,
    Scenario.RETRY: "code calls functions, which nobody checks before; what fails is the code",
    Scenario.CANCELLATION: "code runs in a thread of its own, which the host lets finish",
}
"""The same of agents that write code."""

Kind = type[ToolCallingAgent] | type[CodeAgent]


def play(scenario: Scenario) -> str:
    """Return all that a user of the host sees: answers, memory, what was yielded and raised."""
    return _PLAYS[scenario](ToolCallingAgent)


def play_code(scenario: Scenario) -> str:
    """Do likewise with an agent that writes code."""
    return _PLAYS[scenario](CodeAgent)


class Scripted(Model):
    """Calls these tools in its first answer, and is done in its second.

    Args:
        calls: The tools; what is done with one is its number.
        code: Whether it writes code.
    """

    def __init__(self, *calls: str, code: bool) -> None:
        super().__init__(model_id="scripted")
        self._calls = calls
        self._code = code

    def generate(
        self,
        messages: list[Any],
        stop_sequences: list[str] | None = None,
        response_format: Any = None,
        tools_to_call_from: list[Tool] | None = None,
        **kwargs: Any,
    ) -> ChatMessage:
        said = str(messages[1:])
        asked_again = "should be" in said
        wanted: Sequence[tuple[str, Any]] = [("final_answer", {"answer": "done"})]
        if self._calls and "Observation" not in said and not ("Error:" in said and not asked_again):
            wanted = [
                (name, {"place": "one" if name == "again" and not asked_again else number})
                for number, name in enumerate(self._calls)
            ]
        content = f"Thought: go on\n<code>\n{_code(wanted)}\n</code>" if self._code else "go on"
        calls = [
            ChatMessageToolCall(
                id=f"call-{number}",
                type="function",
                function=ChatMessageToolCallFunction(name=name, arguments=given),
            )
            for number, (name, given) in enumerate(wanted)
        ]
        return ChatMessage(
            role=MessageRole.ASSISTANT,
            content=content,
            tool_calls=None if self._code else calls,
            token_usage=TokenUsage(input_tokens=len(said), output_tokens=len(content)),
        )

    def generate_stream(self, messages: list[Any], **kwargs: Any) -> Iterator[Any]:
        whole = self.generate(messages, **kwargs)
        for word in re.findall(r"\s*\S+", whole.content):
            yield ChatMessageStreamDelta(content=word)
        for index, call in enumerate(whole.tool_calls or ()):
            given = ChatMessageToolCallFunction(
                name=call.function.name, arguments=json.dumps(call.function.arguments)
            )
            asked = ChatMessageToolCallStreamDelta(
                index=index, id=call.id, type=call.type, function=given
            )
            yield ChatMessageStreamDelta(tool_calls=[asked])
        yield ChatMessageStreamDelta(token_usage=whole.token_usage)


def _code(wanted: Sequence[tuple[str, Any]]) -> str:
    lines = [
        f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"
        for name, given in wanted
    ]
    return "\n".join(line if line.startswith("final") else f"print({line})" for line in lines)


@tool
def look(place: int) -> str:
    """Look somewhere.

    Args:
        place: Where.
    """
    return f"seen {place}"


@tool
def fail(place: int) -> str:
    """Fail somewhere.

    Args:
        place: Where.
    """
    raise RuntimeError(f"failed at {place}")


@tool
def again(place: int) -> str:
    """Look where it is a number.

    Args:
        place: Where.
    """
    return f"seen {place} at last"


@tool
def cancel(place: int) -> str:
    """Be cancelled, as by Ctrl-C.

    Args:
        place: Where.
    """
    main = threading.main_thread()
    while threading.current_thread() is not main and not waits_for_code(main):
        pass
    signal.raise_signal(signal.SIGINT)
    return "never"


def waits_for_code(thread: threading.Thread) -> bool:
    """Return whether a thread waits for what an agent wrote, which runs in one of its own."""
    frames = traceback.walk_stack(sys._current_frames()[thread.ident or 0])
    return any(frame.f_code is Future.result.__code__ for frame, _ in frames)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise, also in a process that was started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


BRIEF = """{%- for tool in tools.values() -%}
{{ tool.to_code_prompt() }}
{% endfor %}
{{- custom_instructions -}}"""
"""A system prompt for recordings that can be read; the host's own has ten thousand characters."""


def agent(
    kind: Kind, *calls: str, tools: Sequence[Tool] = (), brief: bool = True, **more: Any
) -> MultiStepAgent:
    made = kind(
        tools=[look, fail, again, cancel, *tools],
        model=more.pop("model", None) or Scripted(*calls, code=kind is CodeAgent),
        verbosity_level=LogLevel.OFF,
        **more,
    )
    if brief:
        made.prompt_templates["system_prompt"] = BRIEF
    return made


def shown(made: MultiStepAgent, result: object) -> str:
    """Return an answer and the agent's memory, without its times and addresses."""
    steps = json.dumps(made.memory.get_full_steps(), default=str)
    timeless = re.sub(r'"(start_time|end_time|duration)": [0-9.e+-]+', r'"\1": 0', steps)
    counts = made.monitor.get_total_token_counts()
    return f"{result!r} after {timeless} from {made.memory.system_prompt} for {counts}"


def told(made: MultiStepAgent, task: str = "hello", **more: Any) -> str:
    try:
        result: object = made.run(task, **more)
    except (Exception, KeyboardInterrupt) as error:
        result = f"{type(error).__name__}: {error}"
    return shown(made, result)


def model_error(kind: Kind) -> str:
    class Nobody(Model):
        def generate(self, messages: list[Any], **kwargs: Any) -> ChatMessage:
            raise ConnectionError("nobody there")

    return told(agent(kind, model=Nobody()))


def nested_agent(kind: Kind) -> str:
    class Caller(Scripted):
        def generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatMessage:
            answer = super().generate(messages, *args, **kwargs)
            for call in answer.tool_calls or ():
                call.function.arguments = {
                    "task" if name == "place" else name: str(value)
                    for name, value in call.function.arguments.items()
                }
            answer.content = answer.content.replace("place=0", "task='0'")
            return answer

    inner = agent(kind, "look", name="inner", description="It looks.")
    caller = Caller("inner", code=kind is CodeAgent)
    outer = agent(kind, model=caller, managed_agents=[inner], name="outer")
    return f"{told(outer)} with {shown(inner, None)}"


def streaming(kind: Kind) -> str:
    made = agent(kind, stream_outputs=True)
    yielded = [re.sub(r"\d+\.\d+", "0", repr(step)) for step in made.run("hello", stream=True)]
    return f"{yielded} {shown(made, None)}"


def early_close(kind: Kind) -> str:
    made = agent(kind, "look", stream_outputs=True)
    steps: Any = made.run("hello", stream=True)
    first = next(steps)
    try:
        steps.close()
        closed = "closed"
    except RuntimeError as error:  # the host yields once more
        closed = str(error)
    return f"{type(steps)} {steps.__qualname__} {first} {closed} {shown(made, None)}"


def two_runs(kind: Kind) -> str:
    both = [agent(kind, "look"), agent(kind, "look")]
    runs: list[Any] = [made.run(f"hello {n}", stream=True) for n, made in enumerate(both)]
    seen: list[str] = []
    while runs:
        for run in list(runs):
            with suppress(StopIteration):
                seen.append(type(next(run)).__name__)
                continue
            runs.remove(run)
    return f"{seen} {[shown(made, None) for made in both]}"


def interrupt_resume(kind: Kind) -> str:
    @tool
    def stop(place: int) -> str:
        """Stop after this step.

        Args:
            place: Where.
        """
        made.interrupt()
        return "stopping"

    made = agent(kind, "stop", tools=[stop])
    return f"{told(made)} and then {told(made, 'go on', reset=False)}"


def cancellation(kind: Kind) -> str:
    with interruptible():
        return told(agent(kind, "cancel"))


def threads(kind: Kind) -> str:
    barrier = threading.Barrier(4)
    said: dict[int, str] = {}

    class Meeting(Scripted):
        begun: threading.Event

        def generate(self, *args: Any, **kwargs: Any) -> ChatMessage:
            if not self.begun.is_set():
                self.begun.set()
                barrier.wait()
            return super().generate(*args, **kwargs)

    def run(number: int, model: Meeting) -> None:
        said[number] = told(agent(kind, model=model), f"hello {number}")

    running = []
    for number in range(4):
        model = Meeting("look", code=kind is CodeAgent)
        model.begun = threading.Event()
        running.append(threading.Thread(target=run, args=(number, model)))
        running[-1].start()
        model.begun.wait()  # they begin in order, and then all wait for each other
    for thread in running:
        thread.join()
    return str(sorted(said.items()))


_PLAYS: dict[Scenario, Callable[[Kind], str]] = {
    Scenario.ONE_TURN: lambda kind: told(agent(kind)),
    Scenario.TOOL_CALL: lambda kind: told(agent(kind, "look")),
    Scenario.FAILING_TOOL: lambda kind: told(agent(kind, "fail")),
    Scenario.MODEL_ERROR: model_error,
    Scenario.RETRY: lambda kind: told(agent(kind, "again")),
    Scenario.PARALLEL_TOOLS: lambda kind: told(agent(kind, "look", "look")),
    Scenario.NESTED_AGENT: nested_agent,
    Scenario.STREAMING: streaming,
    Scenario.EARLY_CLOSE: early_close,
    Scenario.CANCELLATION: cancellation,
    Scenario.TWO_RUNS: two_runs,
    Scenario.THREADS: threads,
    Scenario.INTERRUPT_RESUME: interrupt_resume,
}
