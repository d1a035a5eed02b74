"""The one runtime of this process: made on first use, and again in a forked child."""

import os
import sys
import threading
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING

from tau_live.core.errors import interruption_in, release

if TYPE_CHECKING:
    from tau_live.decisions.runs import RunHandle
    from tau_live.runtime.runtime import Runtime
    from tau_live.store.forks import Forks

WAIT_S = 10.0
"""How long a thread or a fork waits at most for a start in another thread, which may wait for it.

Once this was in vain, nobody waits for that start again.
"""

OWN_THREADS = frozenset({"tau-live-writer", "tau-live-learner", "tau-live-kill-switch"})

Inside = Callable[[], "RunHandle | None"]
"""Returns the innermost ``tau_live.run`` of the calling thread or task."""


class State:
    """The attachment of this process, and whether an attempt to attach failed."""

    lock = threading.RLock()
    pid = os.getpid()
    in_vain = False
    watched = False
    hasty: "set[int]" = set()  # noqa: RUF012  # threads whose fork did not wait for a start
    runtime: "Runtime | None" = None
    tried: bool = False
    failed: bool = False
    detached: bool = False
    forks: "Forks | None" = None
    unfit: bool = False


def start_runtime(
    target: object,
    environ: MutableMapping[str, str],
    inside: Inside,
) -> "Runtime | None":
    """Start tau-live, or let another target take part; ``None`` if that is not to be.

    A thread of ours asks in vain while another one starts it and waits for that thread: by a hook
    of a plugin, say, or a handler of the host's logging.
    """
    if threading.current_thread().name in OWN_THREADS:
        return State.runtime
    _notice_fork()
    try:
        if not _has_turn():
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
    """Begin anew in a child that was forked before anybody watched for it."""
    if State.pid != os.getpid():
        _reset_child()


def _has_turn() -> bool:
    """Wait for a start in another thread; ``False`` if it takes too long."""
    if State.lock.acquire(timeout=0.0 if State.in_vain else WAIT_S):
        State.in_vain = False
        return True
    State.in_vain = True
    return False


def stop(timeout_s: float) -> None:
    """Stop what runs, and let nothing run here until the next ``started``."""
    runtime: Runtime | None = None
    _notice_fork()
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
        if not State.watched:  # before all that takes long
            State.watched = True
            import logging  # noqa: F401  # whose lock a fork takes: only after it has waited for us

            os.register_at_fork(
                before=_forking, after_in_parent=_fork_made, after_in_child=_reset_child
            )
        from datetime import datetime_CAPI  # noqa: F401  # or msgspec crashes

        from tau_live.runtime.runtime import start
        from tau_live.store.forks import Forks

        if State.forks is None:
            State.forks = Forks()
        State.runtime = start(environ, target, inside=inside, forks=State.forks)
        State.failed = State.runtime is None
    except BaseException as error:
        State.tried = State.failed = interruption_in(error) is None
        raise


def _forking() -> None:
    """Wait until nothing is being started, or written.

    What a thread is importing when its process is forked nobody can import in the child: it would
    wait for ever, and so would the host, if it needs the same.
    """
    if threading.current_thread().name in OWN_THREADS:  # which a start waits for
        has_turn = State.lock.acquire(blocking=False)
    else:
        has_turn = _has_turn()
    if not has_turn:
        State.hasty.add(threading.get_ident())
    if State.forks is not None:
        State.forks.before()


def _fork_made() -> None:
    if State.forks is not None:
        State.forks.in_parent()
    State.hasty.discard(threading.get_ident())
    release(State.lock)


def _reset_child() -> None:
    """Let a forked child begin with a runtime of its own: it has none of its parent's threads."""
    hasty = threading.get_ident() in State.hasty or not State.lock.acquire(blocking=False)
    State.pid = os.getpid()
    State.runtime, State.tried, State.failed = None, False, False
    State.in_vain, State.hasty = False, set()
    State.lock = threading.RLock()  # another thread may have held it
    if State.forks is not None:
        hasty = not State.forks.in_child() or hasty
    State.unfit = State.unfit or hasty
