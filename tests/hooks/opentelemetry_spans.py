"""Spans of the conventions, and what is stored of those that were told."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.core.records import Rollout, Span
from tau_live.core.settings import Learner, Settings
from tests.contracts.making import steps
from tests.live.running import opened, rollouts

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tau_live_hooks.opentelemetry import ADAPTER

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "anna"}
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "acme",
    "gen_ai.request.model": "large",
    "gen_ai.request.temperature": 0.5,
    "gen_ai.tool.definitions": '[{"type": "function", "name": "look"}]',
    "gen_ai.response.model": "large-2",
    "gen_ai.response.id": "r-1",
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.usage.input_tokens": 7,
    "gen_ai.usage.output_tokens": 3,
    "gen_ai.usage.cache_read.input_tokens": 2,
    "gen_ai.output.messages": json.dumps(
        [
            {
                "role": "assistant",
                "parts": [
                    {"type": "text", "content": "Hello."},
                    {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"at": 1}},
                ],
            }
        ]
    ),
    "acme.region": "north",
}
LLM = {
    "openinference.span.kind": "LLM",
    "llm.provider": "acme",
    "llm.model_name": "large-2",
    "llm.invocation_parameters": '{"temperature": 0.5}',
    "llm.tools.0.tool.json_schema": '{"type": "function", "function": {"name": "look"}}',
    "llm.token_count.prompt": 7,
    "llm.token_count.completion": 3,
    "llm.token_count.total": 10,
    "llm.token_count.prompt_details.cache_read": 2,
    "llm.finish_reason": "stop",
    "llm.output_messages.0.message.content": "Hello.",
    "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "look",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"at":1}',
}
TOOL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "look",
    "gen_ai.tool.call.id": "c1",
    "gen_ai.tool.call.arguments": '{"at": 1}',
    "gen_ai.tool.call.result": "seen",
}


@contextmanager
def attached(path: Path) -> Iterator[Any]:
    """Attach the adapter to a system of its own."""
    tau_live.detach()
    runtime = tau_live.attach(Settings(store=path, learner=Learner.FLUSH))
    assert runtime is not None
    detach = ADAPTER.attach(tau_live.runtime.api.in_force)
    try:
        yield runtime
    finally:
        detach()
        tau_live.detach()


def made(**how: Any) -> tuple[TracerProvider, InMemorySpanExporter]:
    """Return a provider as a program makes it, and what its exporter got."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False, **how)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def tracer(scope: str = "acme", **how: Any) -> Any:
    return made(**how)[0].get_tracer(scope)


def stored(path: Path) -> dict[str, tuple[Rollout, list[Span]]]:
    """Return the rollouts by the host's key, with their spans."""
    assert tau_live.flush()
    with opened(path) as store:
        return {one.run_id: (one, steps(store, one.rollout_id)) for one in rollouts(path)}


def key(span: Any) -> str:
    return f"{span.get_span_context().trace_id:032x}"


def id_(span: Any) -> str:
    return f"{span.get_span_context().span_id:016x}"
