"""The callbacks of langchain, each of which tells the tree; the one import of the host's core.

The host swallows what a callback raises, but it logs that; so nothing of ours is raised to it.
"""

import time
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler

from tau_live.adapters import InForce
from tau_live_hooks import langchain_events as said
from tau_live_hooks.common_border import Border
from tau_live_hooks.common_text import few, printed
from tau_live_hooks.langchain_begun import Begun
from tau_live_hooks.langchain_tree import Tree


class TauHandler(BaseCallbackHandler):
    """Sees every run of the host in this process; there is one.

    It is called in the thread or task in which things happen, so that their order is theirs.

    Args:
        in_force: Returns the running system.
        tree: What is told.
    """

    raise_error = True
    run_inline = True

    def __init__(self, in_force: InForce, tree: Tree) -> None:
        self._border = Border(in_force)
        self.tree = tree

    def __copy__(self) -> "TauHandler":
        return self

    def __deepcopy__(self, memo: Any) -> "TauHandler":
        return self

    def on_chain_start(self, serialized: Any, inputs: Any, **told: Any) -> None:
        """Take the start of a graph, a node, a chain or a link of one."""
        self._border.safely(self._chain_start, serialized, inputs, told)

    def _chain_start(self, serialized: Any, inputs: Any, told: dict[str, Any]) -> None:
        begun = Begun(
            name=_name(serialized, told) or "chain",
            inputs=inputs,
            metadata=told.get("metadata") or {},
            at=time.time(),
            tags=few(told.get("tags")),
            run_type=told.get("run_type"),
        )
        self.tree.chain_started(told["run_id"], told.get("parent_run_id"), begun)

    def on_chain_end(self, outputs: Any, **told: Any) -> None:
        """Take the end of a graph, a node, a chain or a link of one."""
        self._border.safely(self.tree.chain_ended, told.get("run_id"), outputs)

    def on_chain_error(self, error: BaseException, **told: Any) -> None:
        """Take that a graph, a node, a chain or a link of one raised."""
        self._border.safely(self.tree.chain_failed, told.get("run_id"), error)

    def on_chat_model_start(self, serialized: Any, messages: Any, **told: Any) -> None:
        """Take that a model is asked."""
        self._border.safely(self._chat_start, serialized, messages, told)

    def _chat_start(self, serialized: Any, messages: Any, told: dict[str, Any]) -> None:
        self._model_start(serialized, [one for many in few(messages) for one in few(many)], told)

    def on_llm_start(self, serialized: Any, prompts: Any, **told: Any) -> None:
        """Take that a model that knows no messages is asked."""
        self._border.safely(self._model_start, serialized, prompts, told)

    def _model_start(self, serialized: Any, messages: Any, told: dict[str, Any]) -> None:
        metadata = told.get("metadata") or {}
        params = told.get("invocation_params") or {}
        self.tree.model_started(
            told["run_id"],
            told.get("parent_run_id"),
            fields=said.request_of(serialized, params, metadata),
            messages=messages,
            metadata=metadata,
        )

    def on_llm_new_token(self, token: Any = None, **told: Any) -> None:
        """Take that a piece of an answer came."""
        self._border.safely(self.tree.token_came, told.get("run_id"))

    def on_stream_event(self, event: Any = None, **told: Any) -> None:
        """Take that a piece of an answer came, from a host that streams by events."""
        self._border.safely(self.tree.token_came, told.get("run_id"))

    def on_llm_end(self, response: Any, **told: Any) -> None:
        """Take what a model answered."""
        self._border.safely(self.tree.model_ended, told.get("run_id"), response)

    def on_llm_error(self, error: BaseException, **told: Any) -> None:
        """Take that a model did not answer."""
        self._border.safely(self.tree.model_failed, told.get("run_id"), error)

    def on_tool_start(self, serialized: Any, input_str: Any, **told: Any) -> None:
        """Take that a tool is called."""
        self._border.safely(self._tool_start, serialized, input_str, told)

    def _tool_start(self, serialized: Any, input_str: Any, told: dict[str, Any]) -> None:
        inputs = told.get("inputs")
        self.tree.tool_started(
            told["run_id"],
            told.get("parent_run_id"),
            name=_name(serialized, told) or "tool",
            call_id=told.get("tool_call_id"),
            args=input_str if inputs is None else inputs,
        )

    def on_tool_end(self, output: Any, **told: Any) -> None:
        """Take what a tool returned."""
        self._border.safely(self.tree.tool_ended, told.get("run_id"), output)

    def on_tool_error(self, error: BaseException, **told: Any) -> None:
        """Take that a tool raised."""
        self._border.safely(self.tree.tool_failed, told.get("run_id"), error)

    def on_retriever_start(self, serialized: Any, query: Any, **told: Any) -> None:
        """Take that a retriever is asked."""
        self._border.safely(self._retriever_start, serialized, told)

    def _retriever_start(self, serialized: Any, told: dict[str, Any]) -> None:
        name = _name(serialized, told) or "retriever"
        self.tree.retriever_started(told.get("run_id"), told.get("parent_run_id"), name)

    def on_retriever_end(self, documents: Any, **told: Any) -> None:
        """Take what a retriever found."""
        self._border.safely(self.tree.chain_ended, told.get("run_id"), None)

    def on_retriever_error(self, error: BaseException, **told: Any) -> None:
        """Take that a retriever raised."""
        self._border.safely(self.tree.chain_failed, told.get("run_id"), error)


def _name(serialized: Any, told: dict[str, Any]) -> str | None:
    """Return the name of what begins, as the host's own tracers have it."""
    if told.get("name"):
        return printed(told["name"])
    if not serialized:
        return None
    found = serialized.get("name") or (serialized.get("id") or [None])[-1]
    return None if found is None else printed(found)
