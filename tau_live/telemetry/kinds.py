"""What a span is of: a run, an answer of a model, a tool's call; read off its attributes alone.

Source:
    OpenTelemetry semantic conventions for generative AI 1.38 and for MCP; OpenInference's semantic
    conventions 0.1.42; OpenLLMetry's ``traceloop.*``.
"""

from collections.abc import Mapping
from enum import Enum, auto
from functools import lru_cache

from tau_live.telemetry.spans import Attributes


class Kind(Enum):
    """What a span is of.

    ``CHAIN`` is a run where nothing of an agent is around it, and else nothing. ``RETRIEVAL`` is a
    tool's call without a call, ``EMBEDDING`` a model's answer that is no turn.
    """

    RUN = auto()
    CHAIN = auto()
    MODEL = auto()
    EMBEDDING = auto()
    TOOL = auto()
    RETRIEVAL = auto()
    POLICY = auto()
    EVALUATION = auto()
    NOTHING = auto()


STEPS = frozenset({Kind.MODEL, Kind.EMBEDDING, Kind.TOOL, Kind.RETRIEVAL, Kind.POLICY})

_BY_ATTRIBUTE: Mapping[str, Mapping[str, Kind]] = {
    "gen_ai.operation.name": {
        "chat": Kind.MODEL,
        "generate_content": Kind.MODEL,
        "text_completion": Kind.MODEL,
        "call_llm": Kind.MODEL,
        "embeddings": Kind.EMBEDDING,
        "retrieval": Kind.RETRIEVAL,
        "execute_tool": Kind.TOOL,
        "invoke_agent": Kind.RUN,
        "invoke_workflow": Kind.RUN,
        "create_agent": Kind.NOTHING,
    },
    "openinference.span.kind": {
        "AGENT": Kind.RUN,
        "CHAIN": Kind.CHAIN,
        "LLM": Kind.MODEL,
        "EMBEDDING": Kind.EMBEDDING,
        "TOOL": Kind.TOOL,
        "RETRIEVER": Kind.RETRIEVAL,
        "RERANKER": Kind.RETRIEVAL,
        "GUARDRAIL": Kind.POLICY,
        "EVALUATOR": Kind.EVALUATION,
        "PROMPT": Kind.NOTHING,
    },
    "traceloop.span.kind": {
        "workflow": Kind.CHAIN,
        "agent": Kind.RUN,
        "tool": Kind.TOOL,
        "task": Kind.NOTHING,
    },
    "mcp.method.name": {"tools/call": Kind.TOOL},
    "llm.request.type": {
        "chat": Kind.MODEL,
        "completion": Kind.MODEL,
        "embedding": Kind.EMBEDDING,
        "rerank": Kind.RETRIEVAL,
    },
}
"""By the attribute that says it, the most telling first."""

_BY_PRESENCE: Mapping[str, Kind] = {
    "gen_ai.tool.name": Kind.TOOL,
    "gen_ai.response.model": Kind.MODEL,
    "gen_ai.request.model": Kind.MODEL,
}
"""What a span of an older convention is that has such an attribute."""


def kind_of(said: Attributes, *, ended: bool = True) -> Kind | None:
    """Return what a span is of; ``None`` for one that goes on and does not say so yet."""
    for name, kinds in _BY_ATTRIBUTE.items():
        value = said.get(name)
        if isinstance(value, str) and value in kinds:
            return kinds[value]
    if not ended:
        return None
    for name, kind in _BY_PRESENCE.items():
        if name in said:
            return kind
    return Kind.NOTHING


_HOSTS: Mapping[str, str] = {"langsmith": "langchain", "langgraph": "langchain"}
"""The host whose spans are made under a scope that does not end in the host's name."""

_REWRITTEN = str.maketrans("_ ", "--")


@lru_cache(maxsize=256)
def host_of(scope: str) -> str:
    """Return the host that an instrumentation is for: ``openai-agents``, ``langchain``.

    It is the last part of the scope's name: ``openinference.instrumentation.openai_agents``.
    """
    last = scope.rpartition(".")[2].lower().translate(_REWRITTEN).removesuffix("-v2")
    return _HOSTS.get(last, last)
