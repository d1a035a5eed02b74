"""A stand-in for the host, by which the adapter is tested; yours is installed instead."""

from collections.abc import Callable


class Agent:
    """An agent that asks its model once for each run."""

    def __init__(self, name: str, model: Callable[[str], str]) -> None:
        self.name = name
        self.model = model

    def run(self, question: str) -> str:
        """Return an answer; raises what the model does."""
        return self.ask(question)

    def ask(self, question: str) -> str:
        """Return what the model says."""
        return self.model(question)
