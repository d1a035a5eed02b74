"""What guardrails of openai-agents say of a run; nothing here imports the host.

Those of input and output have spans while the run is traced. Those of tools, and all of them where
it is not, are read off what the run returned or raised.
"""

from typing import TYPE_CHECKING, Any

from tau_live import events as ev
from tau_live_hooks import openai_agents_events as said
from tau_live_hooks.common_run import RunBook
from tau_live_hooks.common_text import few

if TYPE_CHECKING:
    from tau_live_hooks.openai_agents_run import Asked

_LISTS = {
    "input_guardrail_results": "input",
    "output_guardrail_results": "output",
    "tool_input_guardrail_results": "tool",
    "tool_output_guardrail_results": "tool",
}
"""Where the host keeps what guardrails said, and what they looked at."""


class Policies:
    """Tells what guardrails of a run said that has not been told yet.

    Args:
        book: Who is told.
        state: What the run goes on with, whose guardrails another attempt has told.
        native: Whether the run is traced.

    Attributes:
        tripped: Whether a guardrail ended the run without an error that says so.
    """

    def __init__(self, book: RunBook, state: Any, *, native: bool) -> None:
        self._book = book
        self._native = native
        self._before = {name: len(_listed(state, f"_{name}")) for name in _LISTS}
        self.tripped = False

    def told(self, result: Any, error: BaseException | None) -> None:
        """Tell what is known when the run is over."""
        source = result if error is None else getattr(error, "run_data", None) or result
        seen: list[Any] = []
        for name, stage in _LISTS.items():
            for one in _listed(source, name)[self._before[name] :]:
                seen.append(said.of(one, "output"))
                self._one(one, stage)
        if error is not None and type(error).__name__.startswith("Tool"):
            output = getattr(error, "output", None)
            if output is not None and not any(one is output for one in seen):
                self._one(error, "tool")

    def stage_of(self, name: str, asked: "Asked") -> str:
        """Return what a guardrail of this name looks at: ``input`` or ``output``."""
        config = asked.options.get("run_config")
        owners = [asked.agent, config]
        lists = [few(getattr(owner, "input_guardrails", None)) for owner in owners]
        names = {said.guardrail_name(one) for one in [*lists[0], *lists[1]]}
        return "input" if name in names else "output"

    def _one(self, result: Any, stage: str) -> None:
        output = said.of(result, "output")
        if stage == "tool":
            found = said.rejection_of(result)
            name = said.guardrail_name(said.of(result, "guardrail"))
            self._tell(stage, name, blocked=found is not None)
            return
        blocked = bool(said.of(output, "tripwire_triggered"))
        self.tripped |= blocked
        if not self._native:
            self._tell(stage, said.guardrail_name(said.of(result, "guardrail")), blocked=blocked)

    def _tell(self, stage: str, name: str, *, blocked: bool) -> None:
        self._book.tell(ev.Policy, policy_of(stage, name, blocked=blocked))


def policy_of(stage: str, name: str, *, blocked: bool) -> dict[str, object]:
    """Return the fields of what a guardrail said."""
    found = (name,) if blocked else ()
    return {
        "stage": stage,
        "mode": "block",
        "rules": found,
        "blocked": blocked,
        "reason_codes": found,
        "raw": {"guardrail": name},
    }


def _listed(source: Any, name: str) -> list[Any]:
    return few(getattr(source, name, None))
