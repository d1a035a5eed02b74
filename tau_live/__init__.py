"""tau-live: lets an LLM agent you already run learn from its own decisions."""

__version__ = "0.1.0"
