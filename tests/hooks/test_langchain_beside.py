"""What hosts, users and a second attaching notice of us beside chains and graphs: nothing."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.core.records import RolloutStatus
from tau_live.testing.expected import Recorded
from tests.live.running import environ

pytest.importorskip("langchain")

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers import context

from tau_live_hooks.langchain import ADAPTER
from tests.hooks.langchain_agents import HELLO, agent, seeing, stored

pytestmark = pytest.mark.slow


def names(one: Recorded, kind: str) -> list[str]:
    return [span.name for span in one.of(kind)]


MODES = ["values", "updates", "messages", "custom", "tasks", ["values", "messages"]]


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_stream_brings_the_same_pieces(
    path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    def pieces() -> int:
        return len([*agent().stream({"messages": "look"}, stream_mode=mode)])

    expected = pieces()

    with seeing(path, monkeypatch) as wanted:
        found = pieces()
        [one] = stored(wanted)

    assert found == expected
    assert one.rollout.status is RolloutStatus.SUCCEEDED


def test_the_users_callbacks_and_events_are_what_they_were(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Theirs(BaseCallbackHandler):
        def __init__(self) -> None:
            self.told: list[str] = []

        def on_chain_start(self, serialized: Any, inputs: Any, **more: Any) -> None:
            self.told.append(f"{more.get('name')} begins")

        def on_tool_end(self, output: Any, **more: Any) -> None:
            self.told.append(str(output.content))

        def on_chain_end(self, outputs: Any, **more: Any) -> None:
            self.told.append("ends")

    async def events() -> list[str]:
        stream = agent().astream_events({"messages": "look"}, version="v2")
        return [f"{one['event']} {one['name']}" async for one in stream]

    def seen() -> list[str]:
        theirs = Theirs()
        agent().invoke({"messages": "look"}, {"callbacks": [theirs]})
        return [*theirs.told, *asyncio.run(events())]

    expected = seen()

    with seeing(path, monkeypatch):
        assert seen() == expected


def test_attaching_twice_records_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with seeing(path, monkeypatch) as wanted:
        runtime = tau_live.attach()
        second = ADAPTER.attach(lambda: runtime)
        agent().invoke(HELLO)
        second()

        assert len(stored(wanted)) == 1


def test_detaching_leaves_nothing_behind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import langchain_core.runnables.config as core
    from langchain.agents import factory
    from langchain_core.language_models import BaseChatModel
    from langgraph._internal import _runnable
    from langgraph.prebuilt import ToolNode
    from langgraph.pregel import main

    def there() -> list[Any]:
        owners = [vars(one) for one in (core, factory, _runnable, ToolNode, main, BaseChatModel)]
        return [[*context._configure_hooks], [{n: id(v) for n, v in one.items()} for one in owners]]

    expected = there()

    with seeing(path, monkeypatch):
        assert there() != expected

    assert there() == expected


@pytest.mark.parametrize(
    "first", ["langchain.agents", "langgraph.graph", "langgraph.prebuilt", "langchain_core"]
)
def test_it_attaches_whatever_is_imported_first(path: Path, first: str) -> None:
    code = f"""
import tau_live.auto
import {first}
from langchain.agents import factory
from langgraph.pregel import main
from langgraph.prebuilt import ToolNode
there = [factory.ModelRequest, vars(ToolNode)["_execute_tool_sync"],
         main.get_sync_graph_callback_manager_for_config]
print({{type(one).__name__ for one in there}})
"""

    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environ(path),
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "{'FunctionWrapper'}\n"
