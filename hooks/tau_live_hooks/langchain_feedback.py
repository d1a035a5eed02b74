"""What LangSmith is told of a run is a reward for its rollout; nothing at import needs the host.

People, evaluators and judges value a run by ``create_feedback``, with the id that langchain gave
it.
"""

from typing import Any

import wrapt

from tau_live import door
from tau_live.adapters import Detach, InForce
from tau_live.rollouts import rollout_id_of
from tau_live_hooks.common_border import Border
from tau_live_hooks.common_text import printed
from tau_live_hooks.langchain_patches import replaced
from tau_live_hooks.langchain_tree import HOST, Tree

SOURCE = "langsmith"
"""Who says so, of such a reward."""


class Feedback:
    """Lets the feedback that LangSmith is given be a reward too.

    Args:
        in_force: Returns the running system.
        tree: Knows which rollout a run of the host belongs to.
    """

    def __init__(self, in_force: InForce, tree: Tree) -> None:
        self._border = Border(in_force)
        self._tree = tree

    def of_schemas(self, module: Any) -> Detach | None:
        """Take what any client of LangSmith is told, where it writes that down to be sent."""
        written = getattr(module, "FeedbackCreate", None)
        if written is None:
            return None
        return replaced(module, {"FeedbackCreate": wrapt.FunctionWrapper(written, self._told)})

    def _told(self, write: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        found = write(*args, **kwargs)
        self._border.safely(self._rewarded, found)
        return found

    def _rewarded(self, told: Any) -> None:
        value = told.value if told.score is None else told.score
        if self._border.in_force() is None or not isinstance(value, bool | int | float):
            return
        run_id, root = told.run_id or told.trace_id, told.trace_id or told.run_id
        if run_id is None:
            return
        known = self._tree.rollout_of(run_id) or self._tree.rollout_of(root)
        door.reward(
            value,
            run=known or rollout_id_of(HOST, printed(root)),
            name=printed(told.key),
            source=SOURCE,
            key=printed(told.id),
            comment=told.comment,
        )
