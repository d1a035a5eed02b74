"""Stub models of optimizations: functions of the texts that they are sent, and nothing else.

A task is ``plain 7``, which any prompt gets right, or ``marked 7``, for which it must hold the rule
that no model is told. A critic repeats the tasks that it is shown; each editor is wrong, or right,
in its own way. ``REF`` and a name refer to one.
"""

import json
import re
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage

REF = f"function/{__name__}:"
RULE = "Put every marked number into brackets."
BROKEN = "Never answer with a number."
PROMPT = "You are a clerk. Answer with the number alone."
LEAK = "one two three four five six seven eight"


def plain(number: int) -> dict[str, Any]:
    return {"prompt": f"plain {number}", "expected": str(number)}


def marked(number: int) -> dict[str, Any]:
    return {"prompt": f"marked {number}", "expected": f"[{number}]"}


def rows(start: int, count: int, *, marked_of_5: int = 3) -> list[dict[str, Any]]:
    """Return tasks that no other start has; of each five in a row, the last are marked."""
    numbers = range(start, start + count)
    return [marked(n) if n % 5 >= 5 - marked_of_5 else plain(n) for n in numbers]


def answer(prompt: str, task: str) -> str:
    """Return what the task model makes of a task."""
    kind, _, number = task.partition(" ")
    if kind == "down":
        raise ConnectionError("nobody listens")
    if BROKEN in prompt:
        return "none"
    knows = RULE in prompt or f"Number {number} is marked." in prompt
    return f"[{number}]" if kind == "marked" and knows else number


def task_model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    prompt, task = read(messages)
    words = 100 if RULE in prompt else 10
    return response(answer(prompt, task), output_tokens=words)


def seed_agent(row: Any, resources: Any, item: Any) -> str:
    return str(item.seed)


def failing_agent(row: Any, resources: Any, item: Any) -> str:
    raise KeyError("customer")


def bracket_cost(output: str, row: Any) -> float:
    return float("[" in output)


def critic(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    _, examples = blocks(read(messages)[1])
    return response("\n".join(each["input"] for each in examples if each["score"] < 1.0))


def rule_editor(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return response(f"{blocks(read(messages)[1])[0]}\n{RULE}")


def broken_editor(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return response(f"{blocks(read(messages)[1])[0]}\n{BROKEN}")


def same_editor(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return response(f"```\n{blocks(read(messages)[1])[0]}\n```")


def rote_editor(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Learn the failing tasks by rote."""
    prompt, critique = blocks(read(messages)[1])
    known = [f"Number {number} is marked." for number in re.findall(r"marked (\d+)", critique)]
    return response("\n".join([prompt, *known]))


def leaking_editor(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return response(f"{blocks(read(messages)[1])[0]}\n{RULE} {LEAK}")


def failing_editor(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    raise ValueError("filtered")


def parrot_editor(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Repeat the prompt, and the tasks that the critic repeats."""
    return response("\n".join(blocks(read(messages)[1])))


def read(messages: list[ModelMessage]) -> tuple[str, str]:
    """Return the system prompt and the message of a request."""
    parts = [part for message in messages for part in message.parts]
    texts = {part.part_kind: str(part.content) for part in parts if hasattr(part, "content")}
    return texts.get("system-prompt", ""), texts["user-prompt"]


def blocks(message: str) -> list[Any]:
    """Return what stands between markers."""
    return [json.loads(block) for block in re.findall(r"<<<\n(.*?)\n>>>", message, re.DOTALL)]


def response(text: str, *, output_tokens: int = 10) -> ModelResponse:
    usage = RequestUsage(input_tokens=10, output_tokens=output_tokens)
    return ModelResponse(parts=[TextPart(text)], usage=usage, finish_reason="stop")
