"""The callbacks of langgraph's own: what waits for somebody; the one import of that host."""

from typing import Any

from langgraph.callbacks import GraphCallbackHandler

from tau_live.errors import suppress
from tau_live_hooks.common_text import printed
from tau_live_hooks.langchain_tree import Tree


class TauGraphHandler(GraphCallbackHandler):
    """Sees when a graph is interrupted; everything else is seen by ``TauHandler``.

    Args:
        tree: What is told.
    """

    raise_error = True
    run_inline = True
    ignore_llm = ignore_chain = ignore_agent = ignore_retriever = True
    ignore_chat_model = ignore_retry = ignore_custom_event = True

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def __copy__(self) -> "TauGraphHandler":
        return self

    def __deepcopy__(self, memo: Any) -> "TauGraphHandler":
        return self

    def on_interrupt(self, event: Any) -> None:
        """Take that a graph waits, with what it asks."""
        with suppress(Exception):
            self._tree.interrupted(event.run_id, printed(event.checkpoint_id), event.interrupts)
