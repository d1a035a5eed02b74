"""How models that know no messages are asked, where the host awaits its callbacks.

The host's async manager of callbacks calls, for those models alone, either the callbacks that run
inline or the others, never both; and ours runs inline. So it is asked without ours, as it would be
if we were not there, and ours is told afterwards, before the model is asked.
"""

import copy
import functools
from typing import Any

from tau_live.adapters import Detach
from tau_live.errors import suppress
from tau_live_hooks.langchain_handler import TauHandler
from tau_live_hooks.langchain_patches import replaced


def of_managers(module: Any) -> Detach | None:
    """Let the host's own callbacks be called whether or not ours is among them."""
    manager = getattr(module, "AsyncCallbackManager", None)
    original = vars(manager).get("on_llm_start") if manager is not None else None
    if original is None:
        return None

    @functools.wraps(original)
    async def on_llm_start(self: Any, serialized: Any, prompts: Any, *args: Any, **kw: Any) -> Any:
        ours, others = _without_ours(self)
        if ours is None:
            return await original(self, serialized, prompts, *args, **kw)
        runs = await original(others, serialized, prompts, *args, **kw)
        with suppress(Exception):  # the border to the host
            _tell(ours, self, serialized, prompts=prompts, runs=runs, kw=kw)
        return runs

    return replaced(manager, {"on_llm_start": on_llm_start})


def _without_ours(manager: Any) -> tuple[TauHandler | None, Any]:
    """Return our callback, if the manager has it, and the manager without it."""
    with suppress(Exception):  # the border to the host
        ours = next((one for one in manager.handlers if isinstance(one, TauHandler)), None)
        if ours is not None:
            others = copy.copy(manager)
            others.handlers = [one for one in manager.handlers if one is not ours]
            return ours, others
    return None, manager


def _tell(
    ours: TauHandler, manager: Any, serialized: Any, *, prompts: Any, runs: Any, kw: dict[str, Any]
) -> None:
    """Tell ours which models are asked, and let it see how each ends."""
    told = {name: value for name, value in kw.items() if name != "run_id"}
    for prompt, run in zip(prompts, runs, strict=True):
        run.handlers = manager.handlers
        ours.on_llm_start(
            serialized,
            [prompt],
            run_id=run.run_id,
            parent_run_id=manager.parent_run_id,
            tags=manager.tags,
            metadata=manager.metadata,
            **told,
        )
