"""The one runtime of this process: made on first use, and again in a forked child."""

import os
import threading
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING

from tau_live.errors import is_interruption, release

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
    """What is attached in this process, and whether it was tried to attach and failed."""

    lock = threading.RLock()
    runtime: "Runtime | None" = None
    tried: bool = False
    failed: bool = False
    detached: bool = False
    forks: "Forks | None" = None
    unfit: bool = False


def started(target: object, environ: MutableMapping[str, str], inside: Inside) -> "Runtime | None":
    """Start tau-live, or let another target take part; ``None`` if that is not to be.

    A thread of ours asks in vain while another one starts it and waits for that thread: by a hook
    of a plugin, say, or a handler of the host's logging.
    """
    if threading.current_thread().name in OWN_THREADS:
        return State.runtime
    try:
        if not State.lock.acquire(timeout=WAIT_S):
            return State.runtime
        State.detached = False
        if State.unfit:
            _say_unfit()
        elif State.runtime is None and not State.tried:
            _try_to_start(target, environ, inside)
        elif State.runtime is not None and target is not None:
            State.runtime.add_target(target)
        return State.runtime
    finally:
        release(State.lock)


def stop(timeout_s: float) -> None:
    """Stop what runs, and let nothing run here until the next ``started``."""
    runtime: Runtime | None = None
    try:
        with State.lock:
            runtime = State.runtime
            State.tried = State.failed = False
            State.detached = True
            State.runtime = None
        if runtime is not None:
            runtime.close(timeout_s)
    except BaseException:  # an interruption: nobody else can stop it any more
        if runtime is not None and State.runtime is not runtime:
            runtime.stop(timeout_s)
        raise


def _try_to_start(target: object, environ: MutableMapping[str, str], inside: Inside) -> None:
    """Start once: what failed is not tried again before a ``detach``, or in a child."""
    State.tried = True
    try:
        _start(target, environ, inside)
        State.failed = State.runtime is None
    except BaseException as error:
        State.tried = State.failed = True
        if is_interruption(error):
            State.tried = State.failed = False
        raise


def _start(target: object, environ: MutableMapping[str, str], inside: Inside) -> None:
    from tau_live.store.forking import Forks
    from tau_live.system import start

    if State.forks is None:
        State.forks = Forks()
        os.register_at_fork(before=_forking, after_in_parent=_fork_made, after_in_child=_forked)
    State.runtime = start(environ, target, inside=inside, forks=State.forks)


def _say_unfit() -> None:
    if not State.tried:
        from tau_live.guard import logger

        State.tried = State.failed = True
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
    State.runtime, State.tried, State.failed = None, False, False
    State.lock = threading.RLock()  # another thread may have held it
    if State.forks is not None:
        State.unfit = not State.forks.in_child() or State.unfit
