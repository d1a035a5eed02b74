"""What a span's attributes say it is, and what its scope says whose it is."""

from collections.abc import Mapping

import pytest

from tau_live.record.telemetry.semconv import Kind, host_of, kind_of


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        pytest.param({"gen_ai.operation.name": "invoke_workflow"}, Kind.RUN, id="workflow"),
        pytest.param({"gen_ai.operation.name": "create_agent"}, Kind.NOTHING, id="no run"),
        pytest.param({"mcp.method.name": "tools/call"}, Kind.TOOL, id="mcp"),
        pytest.param({"traceloop.span.kind": "workflow"}, Kind.CHAIN, id="traceloop"),
        pytest.param({"llm.request.type": "chat", "gen_ai.system": "x"}, Kind.MODEL, id="older"),
        pytest.param({"gen_ai.request.model": "m"}, Kind.MODEL, id="a model alone"),
        pytest.param({"gen_ai.operation.name": ["chat"]}, Kind.NOTHING, id="no text"),
        pytest.param({"http.request.method": "GET"}, Kind.NOTHING, id="nothing"),
    ],
)
def test_attributes_say_what_a_span_is(said: Mapping[str, object], kind: Kind) -> None:
    assert kind_of(said) is kind


@pytest.mark.parametrize(
    ("scope", "host"),
    [
        ("openinference.instrumentation.openai_agents", "openai-agents"),
        ("opentelemetry.instrumentation.openai_agents_v2", "openai-agents"),
        ("openinference.instrumentation.langchain", "langchain"),
        ("langsmith", "langchain"),
        ("pydantic-ai", "pydantic-ai"),
        ("opentelemetry.instrumentation.openai_v2", "openai"),
    ],
)
def test_a_scope_names_its_host(scope: str, host: str) -> None:
    assert host_of(scope) == host
