"""Adapters: one module for each agent host, each turning its callbacks into our events."""

from collections.abc import Mapping

HOSTS: Mapping[str, tuple[str, str]] = {
    "langchain": ("langchain", "langchain_core"),
    "llm": ("llm", "llm"),
    "openai_agents": ("openai-agents", "agents.run"),
    "opentelemetry": ("opentelemetry", "opentelemetry.sdk.trace"),
    "pydantic_ai": ("pydantic-ai", "pydantic_ai"),
    "smolagents": ("smolagents", "smolagents"),
}
"""By adapter module: its ``ADAPTER``'s host and the import that makes it attach.

Told here once more so that no adapter is imported before its host is.
"""
