"""The learner's own thread: checks whether an update is due, runs it, and puts it into service."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from tau_live.core.guard import logger
from tau_live.core.sync import Latch, Throttle
from tau_live.learn.learner import Learner, UpdateResult
from tau_live.rl.throttle import giving_way
from tau_live.store.roles import Store

POLL_S = 1.0
"""How often to check for updates that other processes made due."""

RECHECK_S = 5.0
"""How often to check where nothing was written: the deadline of a reward may have passed."""

WAIT_S = 0.05
"""How often to check whether another process has finished an update."""


BREAK_S = 1.0
"""How long to wait for an aborted update to end."""

MAY_NOT_LEARN = (
    "grant tau_live_learner to its login and start it again, or set TAU_LIVE_RL_LEARNER=off and "
    "run `tau-live learn`"
)
"""What to do about a process whose login may not learn."""


class _Abort(BaseException):
    """Raised in the thread to abort the running update, because the process ends."""


class Updater:
    """Runs due updates in a thread of its own.

    Args:
        make: Opens a store and a learner on it; called in the thread, again after a failure.
        may_run: Whether the gate lets updates and trials run now.
        is_paused: Whether updates are paused; trials are weighed all the same.
        on_update: Called in the thread with the store and each update.
        on_failure: Called in the thread with each error.
        weigh: Brings the evidence of trials up to date after the updates; called in the thread.
        on_idle: Called in the thread with the store when ``run_due`` has nothing left to run.
        automatic: Whether updates run as soon as they are due, or only inside ``run_due``.
        runs_updates: Whether updates run here at all, if the login of the store may; if not,
            ``run_due`` waits for another process.
    """

    def __init__(  # noqa: PLR0913  # its callbacks, all keyword-only
        self,
        *,
        make: Callable[[], tuple[Store, Learner]],
        may_run: Callable[[], bool],
        is_paused: Callable[[], bool] = lambda: False,
        on_update: Callable[[Store, UpdateResult], None],
        on_failure: Callable[[Exception], None],
        weigh: Callable[[Store], None],
        on_idle: Callable[[Store], None],
        automatic: bool,
        runs_updates: bool = True,
    ) -> None:
        self._make = make
        self._may_run = may_run
        self._is_paused = is_paused
        self._on_update = on_update
        self._on_failure = on_failure
        self._weigh = weigh
        self._on_idle = on_idle
        self._automatic = automatic
        self._runs_updates = runs_updates
        self._store: Store | None = None
        self._learner: Learner | None = None
        self._lock = threading.RLock()
        # no Condition: hosts' threads wake the learner, and may be interrupted
        self._wake = Latch()
        self._waiting: list[tuple[int, Latch]] = []
        self._ended = Latch()
        self._requests = 0
        self._done = 0
        self._succeeded = 0
        self._until = self._checked_at = float("-inf")
        self._idle_stamp: object = None  # of the store when nothing was left to do
        self._served_stamp: object = None  # of the store at the last ``on_idle``
        self._woken = False
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="tau-live-learner", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Make the thread check soon: a rollout has become ready."""
        with self._lock:
            self._woken = True
            self._wake.set()

    def run_due(self, timeout_s: float) -> bool:
        """Run every update that is due now; ``False`` if that failed or took longer.

        Updates that become due meanwhile are not waited for: under load there always are some.

        Args:
            timeout_s: How long to wait, in seconds.
        """
        if (
            self._thread.ident is None
            or self._ended.is_set
            or threading.current_thread() is self._thread
        ):
            return False
        done = Latch()
        with self._lock:
            if self._stopping:
                return False
            self._requests += 1
            request = self._requests
            self._waiting.append((request, done))
            self._until = max(self._until, time.monotonic() + timeout_s)
            self._wake.set()
        done.wait(timeout_s)
        return self._succeeded >= request

    def stop(self) -> None:
        """Stop after the running update, without waiting for it."""
        with self._lock:
            self._stopping = True
            self._wake.set()
        self._release_waiters()

    def close(self, timeout_s: float, *, break_off: bool = False) -> bool:
        """Stop after the running update; ``False`` if that takes longer than ``timeout_s``.

        Args:
            timeout_s: How long to wait for it, in seconds.
            break_off: Whether to abort it then, because the process ends; nothing of it is kept.
        """
        self.stop()
        if threading.current_thread() is self._thread:
            return False
        if self._thread.ident is None:
            return True
        if not self._ended.wait(timeout_s) and break_off:
            self._break_off()
        return self._ended.is_set

    def _release_waiters(self) -> None:
        """Release the callers of ``run_due`` whose request is done, or all when stopping."""
        with self._lock:
            for number, done in self._waiting:
                if self._done >= number or self._stopping:
                    done.set()
            self._waiting = [waiter for waiter in self._waiting if not waiter[1].is_set]

    def _break_off(self) -> None:
        """Abort the running update.

        A thread inside numpy when the interpreter ends takes the process down, with "terminate
        called without an active exception".
        """
        with suppress(ImportError, AttributeError):  # not CPython
            import ctypes

            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(_Abort)
            )
            self._ended.wait(BREAK_S)

    def _loop(self) -> None:
        try:
            with suppress(_Abort), giving_way(Throttle()):
                self._work()
            if self._store is not None:
                self._store.close()
        finally:
            self._ended.set()

    def _work(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001  # the thread must survive
                self._ended.wait(WAIT_S)  # the error may recur each time
                with suppress(Exception):
                    self._on_failure(error)

    def _turn(self) -> None:
        """Wait until there may be work, and do it."""
        if not (self._stopping or self._woken or self._requests > self._done):
            self._wake.wait(POLL_S)
        with self._lock:
            self._wake = Latch()
            if self._stopping:
                return
            requests = self._requests
            self._woken = self._automatic and requests > self._done  # then check once more
            wanted = self._automatic or requests > self._done
        succeeded = self._run_all(requested=requests > self._done) if wanted else False
        with self._lock:
            if succeeded:
                self._succeeded = max(self._succeeded, requests)
            self._done = max(self._done, requests)
        self._release_waiters()

    def _wait_to_stop(self, timeout_s: float) -> None:
        """Wait for ``stop``, ignoring other wake-ups."""
        until = time.monotonic() + timeout_s
        while not self._stopping and (left_s := until - time.monotonic()) > 0.0:
            self._wake.wait(left_s)
            with self._lock:
                self._wake = Latch()

    def _run_all(self, *, requested: bool) -> bool:
        """Run the updates that are due, or were when requested; ``True`` if none is left."""
        try:
            if self._store is not None and not self._store.is_there():
                self._store.set_leftovers_aside()  # or a new file would take them for its own
                self._close_store()
            if self._learner is None:
                self._store, self._learner = self._make()
                self._check_rights(self._store)
                if self._runs_updates:
                    self._learner.sweep()
            store, learner = self._store, self._learner
            if store is None:
                return False
            return self._check(store, learner, requested=requested)
        except Exception as error:  # noqa: BLE001  # the gate counts it; the host never sees it
            with suppress(Exception):  # must not block the callers of ``run_due``
                self._on_failure(error)
            self._close_store()
            return False

    def _check_rights(self, store: Store) -> None:
        """Leave updates to other processes from now on if the login of this one may not learn."""
        if self._runs_updates and not store.may_learn():
            self._runs_updates = self._automatic = False
            logger().warning("may_not_learn", store=store.address, todo=MAY_NOT_LEARN)

    def _check(self, store: Store, learner: Learner, *, requested: bool) -> bool:
        """Run updates and weigh trials, unless the store is unchanged since nothing was left."""
        stamp, now = store.stamp(), time.monotonic()
        done = stamp == self._idle_stamp and now - self._checked_at < RECHECK_S
        if not done:
            self._idle_stamp, self._checked_at = None, now
            done = self._drain(store, learner, upto=learner.horizon() if requested else None)
            may_run = self._may_run()
            if self._runs_updates and may_run:
                self._weigh(store)
            if done and (may_run or not self._runs_updates):
                self._idle_stamp = stamp
        if requested and (stamp := store.stamp()) != self._served_stamp:  # others write meanwhile
            self._on_idle(store)
            self._served_stamp = stamp
        return done

    def _drain(self, store: Store, learner: Learner, *, upto: int | None) -> bool:
        """Run updates, or wait for another learner, until none is due; ``False`` if one remains.

        Under steady load there always is one: without a request that ``upto`` bounds, it returns
        after a while or at the next request, and continues afterwards.
        """
        until = time.monotonic() + POLL_S
        while learner.due(upto=upto):
            late = not self._runs_updates and time.monotonic() > self._until
            if late or self._stopping or self._is_paused() or not self._may_run():
                return False
            if upto is None and (self._requests > self._done or time.monotonic() > until):
                self.wake()
                return False
            result = learner.run_next(now=time.time(), upto=upto) if self._runs_updates else None
            if result is not None:
                self._on_update(store, result)
                continue
            self._wait_to_stop(WAIT_S)
        return True

    def _close_store(self) -> None:
        store, self._store, self._learner = self._store, None, None
        self._idle_stamp = self._served_stamp = None
        if store is not None:
            store.close()
