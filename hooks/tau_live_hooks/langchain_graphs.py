"""The callbacks of langgraph's own, which show interruptions; the one import of that host."""

from typing import Any

from langgraph.callbacks import GraphCallbackHandler

from tau_live.core.errors import suppress
from tau_live_hooks.common import as_text
from tau_live_hooks.langchain_record import TauHandler


class TauGraphHandler(GraphCallbackHandler):
    """Sees when a graph is interrupted; everything else is seen by ``TauHandler``.

    Args:
        handler: Follows the host's runs.
    """

    raise_error = True
    run_inline = True
    ignore_llm = ignore_chain = ignore_agent = ignore_retriever = True
    ignore_chat_model = ignore_retry = ignore_custom_event = True

    def __init__(self, handler: TauHandler) -> None:
        self._handler = handler

    def __copy__(self) -> "TauGraphHandler":
        return self

    def __deepcopy__(self, memo: Any) -> "TauGraphHandler":
        return self

    def on_interrupt(self, event: Any) -> None:
        """Take the interruption of a graph, with its question."""
        with suppress(Exception):
            self._handler.interrupt(event.run_id, as_text(event.checkpoint_id), event.interrupts)
