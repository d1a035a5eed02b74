"""The one runtime of this process: made on first use, and anew in a forked child."""

import os
import threading
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tau_live.runs.handles import RunHandle
    from tau_live.runtime import Runtime
    from tau_live.store.forking import Forks

WAIT_S = 10.0
"""How long a thread waits at most for another that starts tau-live; that may wait for it."""

OWN_THREADS = frozenset({"tau-live-writer", "tau-live-learner", "tau-live-kill-switch"})

Inside = Callable[[], "RunHandle | None"]
"""Returns the innermost ``tau_live.run`` of the calling thread or task."""


class State:
    """What is attached in this process."""

    lock = threading.RLock()
    runtime: "Runtime | None" = None
    tried: bool = False
    detached: bool = False
    forks: "Forks | None" = None
    unfit: bool = False


def started(target: object, environ: MutableMapping[str, str], inside: Inside) -> "Runtime | None":
    """Start tau-live, or let another target take part; ``None`` if that is not to be.

    A thread of ours asks in vain while another one starts it and waits for that thread: by a hook
    of a plugin, say, or a handler of the host's logging.
    """
    own = threading.current_thread().name in OWN_THREADS
    if own or not State.lock.acquire(timeout=WAIT_S):
        return State.runtime
    try:
        State.detached = False
        if State.unfit:
            _say_unfit()
        elif State.runtime is None and not State.tried:
            _start(target, environ, inside)
        elif State.runtime is not None and target is not None:
            State.runtime.add_target(target)
        return State.runtime
    finally:
        State.lock.release()


def taken() -> "Runtime | None":
    """Return what runs, and let nothing run here until the next ``started``."""
    with State.lock:
        runtime, State.runtime, State.tried = State.runtime, None, False
        State.detached = True
    return runtime


def _start(target: object, environ: MutableMapping[str, str], inside: Inside) -> None:
    from tau_live.store.forking import Forks
    from tau_live.system import start

    State.tried = True
    if State.forks is None:
        State.forks = Forks()
        os.register_at_fork(before=_forking, after_in_parent=_fork_made, after_in_child=_forked)
    State.runtime = start(environ, target, inside=inside, forks=State.forks)


def _say_unfit() -> None:
    if not State.tried:
        from tau_live.guard import logger

        State.tried = True
        logger().warning(
            "fork_left_alone",
            effect="tau-live stays off in this process",
            cause="its parent's store was busy when it was forked",
        )


def _forking() -> None:
    if State.forks is not None:
        State.forks.before()


def _fork_made() -> None:
    if State.forks is not None:
        State.forks.in_parent()


def _forked() -> None:
    """Let a forked child begin with a runtime of its own: it has none of its parent's threads."""
    State.runtime, State.tried = None, False
    State.lock = threading.RLock()  # another thread may have held it
    if State.forks is not None:
        State.unfit = not State.forks.in_child() or State.unfit
