"""What ``llm`` loads by its entry points: a plugin without hooks, which attaches."""

from tau_live.booting import boot

boot("llm")
