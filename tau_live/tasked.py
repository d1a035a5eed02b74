"""What a worker does when it takes a task: from then on it is inside the run that gave it."""

from collections.abc import MutableMapping

from tau_live import door
from tau_live.machine.lineage import PARENT


def begin(link: str, environ: MutableMapping[str, str]) -> None:
    """Be inside a run of another process, as the environment carries it; empty for none.

    What the worker was born in, or took before, is over.

    Args:
        link: The run.
        environ: What the worker's own children inherit.
    """
    if link:
        environ[PARENT] = link
    else:
        environ.pop(PARENT, None)
    if door.current() is not None:
        door.enter(None)
