"""How a run of langchain begins, and what that says of it; nothing here imports the host."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tau_live import door
from tau_live import events as ev
from tau_live.runs.handles import RunHandle
from tau_live_hooks import langchain_events as said
from tau_live_hooks.common_text import content_of, few, printed
from tau_live_hooks.langchain_run import HostRun, Step, Waiting

K = TypeVar("K")
V = TypeVar("V")

AGENT = "langchain_create_agent"
"""What ``ls_integration`` is in the metadata of a graph that ``create_agent`` made."""

_UNNAMED = frozenset({"LangGraph", ""})
_HIDDEN = "langsmith:hidden"
_NODE = "graph:step:"
_RAW = ("langgraph_step", "langgraph_checkpoint_ns")


class Begun(NamedTuple):
    """What the host tells of the start of a graph, a node, a chain or a link of one.

    Attributes:
        name: Its name.
        inputs: What it is given.
        metadata: What its caller and the host say of it.
        at: When, in epoch seconds.
        tags: What its caller and the host say of it, too.
        run_type: ``prompt`` or ``parser``, of those.
    """

    name: str
    inputs: Any
    metadata: Mapping[str, Any]
    at: float
    tags: Sequence[str] = ()
    run_type: str | None = None

    @property
    def agent(self) -> str:
        """The agent's name, or else that of the graph or chain."""
        told = self.metadata.get("lc_agent_name")
        return printed(told) if told and self.name in {*_UNNAMED, told} else self.name or "agent"

    @property
    def is_node(self) -> bool:
        """Whether it is a node of the graph around it."""
        return any(tag.startswith(_NODE) for tag in self.tags)

    @property
    def is_hidden(self) -> bool:
        """Whether the host itself hides it from those who look on."""
        return _HIDDEN in self.tags

    @property
    def raw(self) -> dict[str, object]:
        """What the host says of a node besides its name."""
        return {name: printed(self.metadata[name]) for name in _RAW if name in self.metadata}


def is_agent(begun: Begun, parent: Step) -> bool:
    """Say whether a graph that runs inside another run is an agent of its own.

    It is one if ``create_agent`` made it, if a tool runs it, or if it was given a name. What runs
    in an agent has that agent's metadata, so a mark counts only where it is another one.
    """
    own = (begun.metadata.get("ls_integration"), begun.metadata.get("lc_agent_name"))
    around = parent.run.metadata
    theirs = (around.get("ls_integration"), around.get("lc_agent_name"))
    if own[0] == AGENT and own != theirs:
        return True
    return begun.name not in _UNNAMED or in_tool(parent)


def trigger_in(parent: Step, name: str) -> str | None:
    """Return what began a run inside another one."""
    if in_tool(parent):
        return "tool"
    return "handoff" if name in parent.run.handed else None


def in_tool(parent: Step) -> bool:
    """Say whether something runs in a tool of its run."""
    found: Step | None = parent
    while found is not None and found.run is parent.run:
        if found.kind == "tool":
            return True
        found = found.parent
    return False


def inside() -> RunHandle | None:
    """Return the run of a host or of the door that goes on here."""
    outer = door.current()
    handle = outer.handle if outer is not None else None
    return None if handle is None or handle.ended else handle


def resumption(waited: Waiting, inputs: Any) -> dict[str, object]:
    """Return the fields of a resumption."""
    answer = getattr(inputs, "resume", None)
    payload = None if answer is None else said.text_of(answer)
    return {"reason": "resume", "resume_key": waited.resume_key, "payload": payload}


def wait_in(run: HostRun, error: BaseException) -> None:
    """Know that a run waits for somebody, and what it asks."""
    run.waits = True
    if run.payload is None:
        asked = next(iter(getattr(error, "args", ())), ())
        asked = few(asked) if isinstance(asked, list | tuple) else [asked]
        run.payload = content_of([getattr(one, "value", one) for one in asked])


def remember(known: OrderedDict[K, V], key: K, value: V, *, limit: int) -> None:
    """Know something from now on, in place of the oldest where it is too much."""
    known[key] = value
    if len(known) > limit:
        known.popitem(last=False)


def handed_over(step: Step, error: BaseException) -> None:
    """Tell the run around an agent that it hands over to another node, if it does."""
    command = next(iter(getattr(error, "args", ())), None)
    if type(error).__name__ != "ParentCommand" or step.parent is None:
        return
    around = step.parent.run
    for to in _targets(getattr(command, "goto", ())):
        around.handed.add(to)
        around.book.tell(ev.Handoff, {"from_agent": step.name, "to_agent": to})


def _targets(goto: Any) -> Iterator[str]:
    for one in few(goto) if isinstance(goto, list | tuple) else [goto]:
        name = one if isinstance(one, str) else getattr(one, "node", None)
        if name:
            yield printed(name)
