"""Agents and models of the runner's tests: small, offline, and seen by what they leave in a folder.

The folder is named by an environment variable, as they also run in processes of their own. A row's
prompt is its set and its number, such as ``val 3``; a prompt is right with the rule in it.
"""

import asyncio
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from email.message import Message
from pathlib import Path
from socket import gaierror
from urllib.error import HTTPError, URLError

from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage

from tau_live.prompts.items import Item
from tau_live.prompts.rows import Row

HERE = "tests.prompts.agents"
FOLDER = "TAU_TEST_FOLDER"
HELPER = "TAU_TEST_HELPER"
"""Variable of a process that works on a run that another leads."""

RULE = "Answer with the number."
GATED_ROW = 2
"""The row at which a gate stops: some of its phase are done by then."""


class ProviderError(Exception):
    """What a provider answers instead of a completion."""

    def __init__(self, status_code: int, retry_after: object = None) -> None:
        super().__init__(f"HTTP {status_code}")
        self.status_code = status_code
        self.retry_after = retry_after


def folder() -> Path:
    return Path(os.environ[FOLDER])


def note(name: str, line: str) -> None:
    """Add a line to a file of the folder, whole, also with others who write."""
    with (folder() / name).open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def notes(name: str) -> list[str]:
    path = folder() / name
    return path.read_text().splitlines() if path.exists() else []


def gate(name: str) -> None:
    """Wait for ever where a file of the folder says so, and say that it is so."""
    if (folder() / f"gate-{name}").exists():
        note("at", name)
        while (folder() / f"gate-{name}").exists():
            time.sleep(0.005)


def texts_of(messages: list[ModelMessage]) -> tuple[str, str]:
    parts = [part for message in messages for part in message.parts]
    system = "".join(str(part.content) for part in parts if part.part_kind == "system-prompt")
    return system, "".join(str(part.content) for part in parts if part.part_kind == "user-prompt")


def answer(text: str) -> ModelResponse:
    usage = RequestUsage(input_tokens=10, output_tokens=5)
    return ModelResponse(parts=[TextPart(text)], usage=usage, finish_reason="stop")


def number_of(prompt: str, system: str) -> str:
    """Return the right answer of most rows with the rule, and of every fifth without it."""
    number = int(prompt.split()[1])
    return str(number) if RULE in system or number % 5 == 0 else "unknown"


# Models


def task_model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    system, user = texts_of(messages)
    note("calls", user)
    return answer(number_of(user, system))


def slow_model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    system, user = texts_of(messages)
    note("calls", user)
    time.sleep(0.02)
    return answer(number_of(user, system))


def critic(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
    gate("critic")
    note("critic", "called")
    return answer("It does not say what to answer with.")


def editor(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    gate("editor")
    count = texts_of(messages)[1].count(RULE)
    return answer(f"Be brief. {RULE}" + f" {RULE}" * count)


def rejecting_model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    note("calls", texts_of(messages)[1])
    raise ProviderError(401)


def failing_model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    note("calls", texts_of(messages)[1])
    raise ProviderError(503, retry_after=0.0)


def patchy_model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if texts_of(messages)[1] == "val 1":
        raise ConnectionResetError("reset by peer")
    return task_model(messages, info)


def limited_model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Refuse each row twice, then answer."""
    system, user = texts_of(messages)
    note("calls", user)
    if notes("calls").count(user) <= 2:
        raise ProviderError(429, retry_after="0.01")
    return answer(number_of(user, system))


def endless_model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    if texts_of(messages)[1] == "val 1":
        note("calls", "endless")
        threading.Event().wait(20.0)
    return task_model(messages, _)


# Agents


def counted(row: Row, resources: Mapping[str, object], item: Item) -> str:
    """Ask no model, and say which items were executed."""
    prompt = str(resources["system_prompt"])
    set_, number = str(row.prompt).split()
    if int(number) == GATED_ROW:
        gate(f"{set_}-{'new' if RULE in prompt else 'old'}")
    note("executed", item.rollout_id)
    return number_of(str(row.prompt), prompt)


async def awaited(row: Row, resources: Mapping[str, object], item: Item) -> Mapping[str, object]:
    await asyncio.sleep(0)
    output = await asyncio.to_thread(item.model, str(row.prompt))
    return {"output": output, "scores": {"neat": 1.0}}


def raising(row: Row, resources: Mapping[str, object], item: Item) -> str:
    note("executed", item.rollout_id)
    if row.prompt == "val 1":
        raise ValueError("cannot answer")
    return number_of(str(row.prompt), item.prompt)


class HostileError(Exception):
    """Raises wherever anybody looks at it."""

    def __str__(self) -> str:
        raise ValueError("no text")

    @property
    def response(self) -> object:
        raise ValueError("no response")


class HostileText(str):
    """A text whose methods raise."""

    __slots__ = ()

    def strip(self, chars: object = None) -> str:
        raise ValueError("no strip")

    def __eq__(self, other: object) -> bool:
        raise ValueError("no comparison")

    __hash__ = str.__hash__


def hostile(row: Row, resources: Mapping[str, object], item: Item) -> object:
    """Return, on each row, something else that nobody expects."""
    match row.prompt:
        case "val 1":
            raise HostileError
        case "val 2":
            return HostileText("2")
        case "val 3":
            return {"output": "3", "blocked_events": 10**400}
        case "val 4":
            return "x" * 1_000_001
        case "val 5":
            return {"output": "5", "scores": {"sk-proj-" + "a1B2" * 12: "sk-proj-" + "c3D4" * 12}}
        case _:
            return number_of(str(row.prompt), item.prompt)


def spoiling(row: Row, resources: Mapping[str, object], item: Item) -> str:
    """Change everything that it is given."""
    number = str(row.input.pop("n"))  # type: ignore[attr-defined]
    resources["rules"].append(number)  # type: ignore[attr-defined]
    row.metadata.clear()  # type: ignore[attr-defined]
    return number if resources["rules"] == [number] else "spoilt"


def exiting_score(output: str, row: object) -> float:
    sys.exit(3)


def blocking_score(output: str, row: Row) -> float:
    time.sleep(60.0 if row.prompt == "val 1" else 0.0)
    return 1.0


def huge_score(output: str, row: object) -> float:
    return 10**400


def unreachable(row: Row, resources: Mapping[str, object], item: Item) -> str:
    """Fail at first as a network fails, in another way on each row."""
    number = int(str(row.prompt).split()[-1])
    if item.attempt_id.endswith("-1"):
        raise (
            URLError(ConnectionRefusedError(111, "refused")),
            gaierror(-2, "Name or service not known"),
            ExceptionGroup("calls", [ConnectionResetError("reset")]),
            OSError(errno.ENETUNREACH, "Network is unreachable"),
            HTTPError("http://localhost", 503, "busy", Message(), None),
        )[number % 5]
    return str(number)


class UserError(Exception):
    """An error of an agent's own tool; a provider's has this name too."""


class ToolError(RuntimeError):
    """A page of the web that an agent's own tool did not find."""

    status_code = 404


def mistaken(row: Row, resources: Mapping[str, object], item: Item) -> str:
    """Raise errors of its own that look like those of a provider."""
    raise {"val 1": UserError("bad id"), "val 2": ToolError("no page")}.get(
        str(row.prompt), UnexpectedModelBehavior("no JSON")
    )


def careless(row: Row, resources: Mapping[str, object], item: Item) -> str:
    """Hide that the model refused."""
    try:
        return item.model(str(row.prompt))
    except Exception:  # as such agents do
        return "sorry"


def exiting(row: Row, resources: Mapping[str, object], item: Item) -> str:
    note("executed", item.attempt_id)
    if row.prompt == "val 1":
        sys.exit("enough")
    return number_of(str(row.prompt), item.prompt)


def paired(row: Row, resources: Mapping[str, object], item: Item) -> str:
    """Wait where the process is to be: each of the two that work on a run in its first item."""
    gate("helper" if HELPER in os.environ else "leader")
    return counted(row, resources, item)


def killing(row: Row, resources: Mapping[str, object], item: Item) -> str:
    """Kill the process at a row, unless it is the one that leads."""
    if HELPER not in os.environ:
        gate("leader")
    elif row.prompt == "train 1":
        os.kill(os.getpid(), signal.SIGKILL)
    return number_of(str(row.prompt), item.prompt)


def blocking(row: Row, resources: Mapping[str, object], item: Item) -> str:
    note("executed", item.attempt_id)
    if row.prompt == "val 1":
        threading.Event().wait(20.0)
    return number_of(str(row.prompt), item.prompt)


def steady(row: Row, resources: Mapping[str, object], item: Item) -> str:
    """Ask the model slowly, so that a run takes a while."""
    note("executed", item.attempt_id)
    time.sleep(0.02)
    return item.model(str(row.prompt))


def limited_critic(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask to wait for longer than anybody would."""
    note("critic", "called")
    raise ProviderError(429, retry_after=25)


def failing_score(output: str, row: object) -> float:
    raise ValueError("no idea")
