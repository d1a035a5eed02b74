"""Which run of which process began this one, as the environment carries it to children."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

from tau_live.events import Event, RunStart
from tau_live.machine.processes import this_process

E = TypeVar("E", bound=Event)

PARENT = "TAU_LIVE_PARENT"
"""Given to a child that is started inside a run: ``host:run_id`` of that run."""

ATTACHED = "TAU_LIVE_ATTACHED"
"""Names the attached process whose children are not to be attached."""

_LONGEST = 2_000


class Link(NamedTuple):
    """A run as other processes know it.

    Attributes:
        host: The framework that runs it.
        run_id: The host's own key of it.
    """

    host: str
    run_id: str


def parent_of(environ: Mapping[str, str]) -> Link | None:
    """Return the run inside which this process was started, if it was in one."""
    host, _, run_id = environ.get(PARENT, "").partition(":")
    if not host or not run_id or len(host) + len(run_id) > _LONGEST:
        return None
    return Link(host, run_id)


def carried(link: Link) -> str:
    """Return a run as the environment carries it; ``parent_of`` reads it."""
    return f"{link.host}:{link.run_id}"


def linked(event: E, link: Link | None) -> E:
    """Return an event; the start of a run without a parent as one inside the run of ``link``."""
    if link is None or not isinstance(event, RunStart) or event.parent_run_id is not None:
        return event
    if link == (event.host, event.run_id):  # another try at that run is not inside it
        return event
    host = None if link.host == event.host else link.host
    return replace(event, parent_run_id=link.run_id, parent_host=host)


def is_unwanted_child(environ: Mapping[str, str]) -> bool:
    """Say whether a process that does not want its children attached began this one."""
    attached = environ.get(ATTACHED)
    return bool(attached) and attached != this_process()
