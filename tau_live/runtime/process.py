"""The runtime of this process: started on first use, and anew in a forked child."""

import os
import sys
import threading
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING

from tau_live.core.errors import interruption_in, release

if TYPE_CHECKING:
    from pathlib import Path

    from tau_live.decisions.runs import RunHandle
    from tau_live.runtime.runtime import Runtime
    from tau_live.store.forks import Forks

WAIT_S = 10.0
"""How long a thread or a fork waits at most for a start in another thread, which may wait for it.

After one such timeout, nothing waits for that start again.
"""

OWN_THREADS = frozenset({"tau-live-writer", "tau-live-learner", "tau-live-kill-switch"})

Inside = Callable[[], "RunHandle | None"]
"""Returns the innermost ``tau_live.run`` of the calling thread or task."""


class State:
    """The attachment of this process, and whether an attempt to attach failed."""

    lock = threading.RLock()
    pid = os.getpid()
    timed_out = False
    watched = False
    hasty: "set[int]" = set()  # noqa: RUF012  # threads whose fork did not wait for a start
    runtime: "Runtime | None" = None
    tried: bool = False
    failed: bool = False
    detached: bool = False
    forks: "Forks | None" = None
    folder: "Path | None" = None  # relative paths refer to it, also in children
    unfit: bool = False


def start_runtime(
    target: object,
    environ: MutableMapping[str, str],
    inside: Inside,
) -> "Runtime | None":
    """Start tau-live, or add another target; ``None`` if it is not to run.

    A thread of ours gets the current runtime at once, because a start in another thread may be
    waiting for it; such a call comes from a plugin's hook, say, or a handler of the host's logging.
    """
    if threading.current_thread().name in OWN_THREADS:
        return State.runtime
    _notice_fork()
    try:
        if not _acquire_lock():
            return State.runtime
        State.detached = False
        if State.unfit:
            if not State.tried:
                State.tried = State.failed = True
                sys.modules["tau_live"].say_left_alone()  # nothing may be imported any more
        elif State.runtime is None and not State.tried:
            _try_to_start(target, environ, inside)
        elif State.runtime is not None and target is not None:
            State.runtime.add_target(target)
        return State.runtime
    finally:
        release(State.lock)


def _notice_fork() -> None:
    """Reset a child that was forked before the fork handlers were registered."""
    if State.pid != os.getpid():
        _reset_child()


def _acquire_lock() -> bool:
    """Wait for a start in another thread; ``False`` if it takes too long."""
    if State.lock.acquire(timeout=0.0 if State.timed_out else WAIT_S):
        State.timed_out = False
        return True
    State.timed_out = True
    return False


def stop(timeout_s: float) -> None:
    """Stop the runtime, and start none here until the next ``start_runtime``."""
    runtime: Runtime | None = None
    _notice_fork()
    try:
        with State.lock:
            runtime = State.runtime
            State.tried = State.failed = False
            State.detached = True
            State.runtime, State.folder = None, None
        if runtime is not None:
            runtime.close(timeout_s)
    except BaseException:  # an interruption: no other code can stop it any more
        if runtime is not None and State.runtime is not runtime:
            runtime.stop(timeout_s)
        raise


def _try_to_start(target: object, environ: MutableMapping[str, str], inside: Inside) -> None:
    """Start once: after a failure only a ``detach`` or a fork allows another try."""
    State.tried = True
    try:
        if not State.watched:  # before anything slow
            State.watched = True
            import logging  # noqa: F401  # a fork takes its lock: only after it has waited for us

            os.register_at_fork(
                before=_before_fork,
                after_in_parent=_after_fork_in_parent,
                after_in_child=_reset_child,
            )
        from datetime import datetime_CAPI  # noqa: F401  # or msgspec crashes

        from tau_live.core.processes import FOLDER
        from tau_live.core.settings import folder_of
        from tau_live.runtime.runtime import start
        from tau_live.store.forks import Forks

        if State.forks is None:
            State.forks = Forks()
        if State.folder is None:
            State.folder = folder_of(environ)
        State.runtime = start(
            environ, target, inside=inside, forks=State.forks, folder=State.folder
        )
        State.failed = State.runtime is None
        if State.runtime is not None and State.folder is not None:
            environ[FOLDER] = str(State.folder)  # for children, when this one has gone elsewhere
    except BaseException as error:
        State.tried = State.failed = interruption_in(error) is None
        raise


def _before_fork() -> None:
    """Wait until nothing is being started or written.

    A module that another thread is importing at the fork can never be imported in the child: an
    import would wait for ever, even the host's own.
    """
    if threading.current_thread().name in OWN_THREADS:  # which a start waits for
        has_turn = State.lock.acquire(blocking=False)
    else:
        has_turn = _acquire_lock()
    if not has_turn:
        State.hasty.add(threading.get_ident())
    if State.forks is not None:
        State.forks.before()


def _after_fork_in_parent() -> None:
    if State.forks is not None:
        State.forks.in_parent()
    State.hasty.discard(threading.get_ident())
    release(State.lock)


def _reset_child() -> None:
    """Reset a forked child, which has none of its parent's threads and needs its own runtime."""
    hasty = threading.get_ident() in State.hasty or not State.lock.acquire(blocking=False)
    State.pid = os.getpid()
    State.runtime, State.tried, State.failed = None, False, False
    State.timed_out, State.hasty = False, set()
    State.lock = threading.RLock()  # another thread may have held it
    if State.forks is not None:
        hasty = not State.forks.in_child() or hasty
    State.unfit = State.unfit or hasty
