"""The learner's own thread: looks whether an update is due, runs it, and puts it into service."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from tau_live.core.sync import Latch
from tau_live.core.throttle import Throttle
from tau_live.learn.learner import Learned, Learner
from tau_live.rl.throttle import giving_way
from tau_live.store.roles import Store

POLL_S = 1.0
"""How often updates are looked for that other processes made due."""

RECHECK_S = 5.0
"""How often it is looked where nothing was written: rewards may be waited for no longer."""

WAIT_S = 0.05
"""How often it is looked whether another process has finished an update."""


BREAK_S = 1.0
"""How long an update that is broken off takes at most to be over."""


class _BrokenOff(BaseException):
    """The process ends, and the update that is running with it."""


class Updater:
    """Runs due updates in a thread of its own.

    Args:
        make: Opens a store and a learner on it; called in the thread, again after a failure.
        may: Whether anything may be done now.
        rests: Whether no update is to be made for now; what serves is weighed all the same.
        learned: Told of each update, with the store; called in the thread.
        failed: Told of a failure; called in the thread.
        weigh: Brings the evidence up to date after the updates; called in the thread.
        idle: Told, with the store, when ``run_due`` has found nothing more; called in the thread.
        by_itself: Whether updates run as soon as they are due, or only inside ``run_due``.
        learns: Whether they run here at all; if not, ``run_due`` waits for another process.
    """

    def __init__(  # noqa: PLR0913  # whom it tells, and when, all keyword-only
        self,
        *,
        make: Callable[[], tuple[Store, Learner]],
        may: Callable[[], bool],
        rests: Callable[[], bool] = lambda: False,
        learned: Callable[[Store, Learned], None],
        failed: Callable[[Exception], None],
        weigh: Callable[[Store], None],
        idle: Callable[[Store], None],
        by_itself: bool,
        learns: bool = True,
    ) -> None:
        self._make = make
        self._may = may
        self._rests = rests
        self._learned = learned
        self._failed = failed
        self._weigh = weigh
        self._idle = idle
        self._by_itself = by_itself
        self._learns = learns
        self._store: Store | None = None
        self._learner: Learner | None = None
        self._lock = threading.RLock()
        self._wake = (
            Latch()
        )  # no Condition: hosts' threads wake the learner, and may be interrupted
        self._waiting: list[tuple[int, Latch]] = []
        self._over = Latch()
        self._requests = 0
        self._done = 0
        self._good = 0
        self._until = self._looked = float("-inf")
        self._quiet: tuple[int, int] | None = None  # the store in which nothing was left to do
        self._shared: tuple[int, int] | None = None  # the store as of which ``idle`` was called
        self._woken = False
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="tau-live-learner", daemon=True)

    def start(self) -> None:
        """Begin to look for updates."""
        self._thread.start()

    def wake(self) -> None:
        """Look soon: something has become fit to be learned from."""
        with self._lock:
            self._woken = True
            self._wake.set()

    def run_due(self, timeout_s: float) -> bool:
        """Run every update that is due now; ``False`` if that was not done, or not in time.

        What becomes due meanwhile is not waited for: under load something always is.
        """
        if (
            self._thread.ident is None
            or self._over.is_set
            or threading.current_thread() is self._thread
        ):
            return False
        done = Latch()
        with self._lock:
            if self._stopping:
                return False
            self._requests += 1
            mine = self._requests
            self._waiting.append((mine, done))
            self._until = max(self._until, time.monotonic() + timeout_s)
            self._wake.set()
        done.wait(timeout_s)
        return self._good >= mine

    def stop(self) -> None:
        """Stop after the update that is running; does not wait for it."""
        with self._lock:
            self._stopping = True
            self._wake.set()
        self._let_go()

    def close(self, timeout_s: float, *, break_off: bool = False) -> bool:
        """Stop after the update that is running; ``False`` if it takes longer than that.

        Args:
            timeout_s: How long to wait for it.
            break_off: Whether it is then broken off, and undone: the process ends.
        """
        self.stop()
        if threading.current_thread() is self._thread:
            return False
        if self._thread.ident is None:
            return True
        if not self._over.wait(timeout_s) and break_off:
            self._break_off()
        return self._over.is_set

    def _let_go(self) -> None:
        """Let those go on whose updates are done, or that wait for nothing."""
        with self._lock:
            for number, done in self._waiting:
                if self._done >= number or self._stopping:
                    done.set()
            self._waiting = [waiter for waiter in self._waiting if not waiter[1].is_set]

    def _break_off(self) -> None:
        """Break off the update that is running.

        A thread that is inside of numpy when the interpreter ends takes the process down, with
        "terminate called without an active exception".
        """
        with suppress(ImportError, AttributeError):  # another interpreter
            import ctypes

            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(_BrokenOff)
            )
            self._over.wait(BREAK_S)

    def _loop(self) -> None:
        try:
            with suppress(_BrokenOff), giving_way(Throttle()):
                self._work()
            if self._store is not None:
                self._store.close()
        finally:
            self._over.set()

    def _work(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001  # or nothing would be learned any more
                self._over.wait(WAIT_S)  # it may fail each time
                with suppress(Exception):
                    self._failed(error)

    def _turn(self) -> None:
        """Wait until there may be something to do, and do it."""
        if not (self._stopping or self._woken or self._requests > self._done):
            self._wake.wait(POLL_S)
        with self._lock:
            self._wake = Latch()
            if self._stopping:
                return
            requests = self._requests
            self._woken = self._by_itself and requests > self._done  # then look once more
            wanted = self._by_itself or requests > self._done
        good = self._run_all(requested=requests > self._done) if wanted else False
        with self._lock:
            if good:
                self._good = max(self._good, requests)
            self._done = max(self._done, requests)
        self._let_go()

    def _wait_to_stop(self, timeout_s: float) -> None:
        """Wait until it is to stop, whoever wakes it meanwhile."""
        until = time.monotonic() + timeout_s
        while not self._stopping and (left_s := until - time.monotonic()) > 0.0:
            self._wake.wait(left_s)
            with self._lock:
                self._wake = Latch()

    def _run_all(self, *, requested: bool) -> bool:
        """Run what is due, or was so when somebody requested it; ``True`` if none is left."""
        try:
            if self._store is not None and not self._store.is_there():
                self._store.set_leftovers_aside()  # or they would be taken for the new file's
                self._give_up_store()
            if self._learner is None:
                self._store, self._learner = self._make()
                self._learner.sweep()
            store, learner = self._store, self._learner
            if store is None:
                return False
            return self._look(store, learner, requested=requested)
        except Exception as error:  # noqa: BLE001  # the gate counts it; the host never sees it
            with suppress(Exception):  # nothing of it keeps who waits for this
                self._failed(error)
            self._give_up_store()
            return False

    def _look(self, store: Store, learner: Learner, *, requested: bool) -> bool:
        """Update and weigh, unless nothing was written since none of it was left to do."""
        stamp, now = store.stamp(), time.monotonic()
        settled = stamp == self._quiet and now - self._looked < RECHECK_S
        if not settled:
            self._quiet, self._looked = None, now
            settled = self._settle(store, learner, upto=learner.horizon() if requested else None)
            may = self._may()
            if self._learns and may:
                self._weigh(store)
            if settled and (may or not self._learns):
                self._quiet = stamp
        if requested and (stamp := store.stamp()) != self._shared:  # others write meanwhile
            self._idle(store)
            self._shared = stamp
        return settled

    def _settle(self, store: Store, learner: Learner, *, upto: int | None) -> bool:
        """Run updates, or wait for whoever is at it, until none is due; ``False`` if one stays.

        Under steady load something always is: without a request that ``upto`` bounds, it ends
        after a while all the same, or as soon as somebody asks, and is gone on with afterwards.
        """
        until = time.monotonic() + POLL_S
        while learner.due(upto=upto):
            late = not self._learns and time.monotonic() > self._until
            if late or self._stopping or self._rests() or not self._may():
                return False
            if upto is None and (self._requests > self._done or time.monotonic() > until):
                self.wake()
                return False
            learned = learner.run_next(now=time.time(), upto=upto) if self._learns else None
            if learned is not None:
                self._learned(store, learned)
                continue
            self._wait_to_stop(WAIT_S)
        return True

    def _give_up_store(self) -> None:
        store, self._store, self._learner = self._store, None, None
        self._quiet = self._shared = None
        if store is not None:
            store.close()
