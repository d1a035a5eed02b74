"""The process that leads a run: its lease, its workers, the stops that it obeys, and its end."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypedDict

from tau_live.core.errors import LeaseLostError, StoreUnavailableError, TauLiveError
from tau_live.core.processes import this_process
from tau_live.core.redaction import scrub_text
from tau_live.core.settings import Settings
from tau_live.operate.optimizations import (
    CANCELLED,
    FILE,
    optimization_status,
    publish_optimization,
)
from tau_live.operate.stops import killed_of
from tau_live.prompts.control import (
    HELD,
    INTERRUPTED,
    KILLED,
    OURS,
    STORE_UNAVAILABLE,
    cancel_items,
)
from tau_live.prompts.items import WORKING, Workers, poll_backoff_s
from tau_live.prompts.models import BUDGET, REJECTED, Models, StoppedError
from tau_live.store.opening import open_at
from tau_live.store.records import Optimization, OptimizationState
from tau_live.store.roles import Store

LEASE = "optimize:"
"""Prefix of the name of the lease of whoever leads a run."""

LEASE_S = 30.0
RENEW_S = 10.0
WATCH_S = 0.25
PUBLISH_S = 1.0
EXPIRE_S = 1.0
STOP_S = 5.0
"""How long running items are waited for: `docker stop` kills after ten seconds."""

MOST_FAILING_S = 30.0
"""For how long the store may fail before the run does."""

CANCELS = frozenset({OptimizationState.CANCELLING, OptimizationState.CANCELLED})

State = OptimizationState


class RunEnd(TypedDict, total=False):
    """The columns of a run that change as it ends."""

    state: State
    reason_code: str | None
    error: str


class Shown(NamedTuple):
    """The figures of a progress bar.

    Attributes:
        phase: The phase.
        state: The state of the run.
        done: Items that have ended.
        total: Items that the run has so far.
        usd: US dollars that were spent.
        calls: Model calls that were made.
    """

    phase: str
    state: State
    done: int
    total: int
    usd: float
    calls: int


Show = Callable[[Shown], None]


class CancelledError(TauLiveError):
    """An operator cancelled the run."""


class Pace(NamedTuple):
    """How patiently a run is led.

    Attributes:
        poll_s: Seconds between two looks whether its items have ended.
        items_s: How long items are waited for at most; ``None`` is no limit.
        attempt_s: The longest time of an attempt; ``None`` is no limit.
        seconds: How long the run may be led, of its budget; ``None`` is no limit.
    """

    poll_s: float
    items_s: float | None
    attempt_s: float | None
    seconds: float | None


def take_lead(store: Store, run_id: str) -> None:
    """Take the lease of a run.

    Raises:
        LeaseLostError: Another process leads it.
    """
    name = LEASE + run_id
    if not store.leases.acquire(name, this_process(), ttl_s=LEASE_S):
        raise LeaseLostError(f"{run_id} is led by {store.leases.holder(name)}")


def publish(store: Store, run_id: str) -> None:
    """Write the status of a run beside its store; where that fails, the old file stays."""
    run = store.optimizations.run(run_id)
    with suppress(OSError):
        publish_optimization(store.path.with_name(FILE), optimization_status(store, run))


class _Keeper:
    """Keeps the lease, watches the stops, and publishes the status, in a thread of its own."""

    def __init__(self, run_id: str, settings: Settings, path: Path) -> None:
        self._run_id = run_id
        self._settings = settings
        self._path = path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="tau-live-optimizer", daemon=True)
        self._published: object = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for it."""
        self._stop.set()
        self._thread.join(STOP_S)

    def _keep(self) -> None:
        renewed = published = led = time.monotonic()
        with closing(open_at(self._path, key_file=self._settings.audit_key_file)) as store:
            while not self._stop.wait(WATCH_S):
                now = time.monotonic()
                with suppress(TauLiveError):
                    self._watch(store)
                    if now - renewed >= RENEW_S:
                        store.leases.acquire(LEASE + self._run_id, this_process(), ttl_s=LEASE_S)
                        renewed = now
                    if now - published >= PUBLISH_S:
                        store.optimizations.lead(self._run_id, now - led)
                        published = led = now
                        self._publish(store)
            with suppress(TauLiveError):
                store.optimizations.lead(self._run_id, time.monotonic() - led)

    def _watch(self, store: Store) -> None:
        """Pause the run while the kill switch is on or the gate holds."""
        why = None
        if killed_of(store, self._settings) is not None:
            why = KILLED
        elif store.gate.load().state != "pass":
            why = HELD
        run = store.optimizations.run(self._run_id)
        if why is not None and run.state in WORKING and run.reason_code is None:
            store.optimizations.change(
                self._run_id, states=WORKING, state=State.PAUSED, reason_code=why
            )
        elif why is None and run.state is State.PAUSED and run.reason_code in OURS:
            store.optimizations.change(
                self._run_id, states=[State.PAUSED], state=State.RUNNING, reason_code=None
            )

    def _publish(self, store: Store) -> None:
        status = optimization_status(store, store.optimizations.run(self._run_id))
        content = {key: value for key, value in status.items() if key != "updated_unix_ms"}
        if content != self._published:
            with suppress(OSError):
                publish_optimization(self._path.with_name(FILE), status)
            self._published = content


class Lead:
    """Leads a run in this process, which has taken its lease (``take_lead``).

    Args:
        store: The store, in this thread.
        run_id: The run.
        settings: Those of the store: the kill switch.
        workers: Those of this process; stopped with the run.
        models: The models of the run; closed with it.
        pace: How patiently.
        show: Takes the progress, several times a second.

    Attributes:
        was_paused: Whether the run was paused when it was last looked at.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # made in one place
        self, store: Store, run_id: str, settings: Settings, workers: Workers, models: Models,
        pace: Pace, show: Show,
    ) -> None:  # fmt: skip
        self.was_paused = False
        self._store = store
        self._run_id = run_id
        self._settings = settings
        self._workers = workers
        self._models = models
        self._pace = pace
        self._show = show
        self._expired_at = self._shown_at = 0.0

    def to_end(
        self, work: Callable[[], None], *, at_stop: Callable[[str], None],
        failures: Mapping[type[TauLiveError], str],
    ) -> Optimization:  # fmt: skip
        """Let a run work to its end, whatever that is, and return it as it ended.

        Args:
            work: Does it, in this thread.
            at_stop: Takes why a run stops early that was cancelled or has spent its budget.
            failures: The reason codes of errors of its own.

        Raises:
            LeaseLostError: Another process leads it.
            KeyboardInterrupt: The operator interrupted it; it can be resumed.
        """
        keeper = _Keeper(self._run_id, self._settings, self._store.path)
        end: RunEnd = {}
        keeper.start()
        try:
            with self._working():
                work()
            end = {"state": State.COMPLETED}
        except (CancelledError, StoppedError) as error:
            end = self._end_of_stop(str(error), at_stop)
        except KeyboardInterrupt:
            end = self._end_of_interrupt(at_stop)
            raise
        except TimeoutError:
            cancel_items(self._store, self._run_id, all_of_them=True)
            end = {"state": State.FAILED, "reason_code": "completion_timeout"}
        except LeaseLostError:
            raise
        except Exception as error:
            own = next((code for kind, code in failures.items() if isinstance(error, kind)), None)
            is_store = isinstance(error, StoreUnavailableError)
            end = {
                "state": State.FAILED,
                "reason_code": own or (STORE_UNAVAILABLE if is_store else "failed"),
                "error": scrub_text(str(error) if own else f"{type(error).__name__}: {error}"),
            }
            if own is None:
                raise
        finally:
            keeper.stop()
            if end:
                with suppress(StoreUnavailableError):  # whoever looks finds that its process died
                    columns: RunEnd = {"reason_code": None, **end}
                    self._store.optimizations.change(self._run_id, **columns, ended_at=time.time())
                    self._store.leases.release(LEASE + self._run_id, this_process())
                    publish(self._store, self._run_id)
        return self._store.optimizations.run(self._run_id)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Let the workers of this process work meanwhile."""
        self._store.optimizations.change(
            self._run_id, states=[State.PREPARING], state=State.RUNNING
        )
        self._workers.start()
        try:
            yield
        finally:
            self._workers.stop(STOP_S)
            self._models.close()

    def _end_of_stop(self, why: str, at_stop: Callable[[str], None]) -> RunEnd:
        """Return how a run ends that makes no more calls."""
        run = self._store.optimizations.run(self._run_id)
        cancel_items(self._store, run.run_id, all_of_them=True)
        if run.state in CANCELS:
            at_stop(CANCELLED)
            return {"state": State.CANCELLED, "reason_code": CANCELLED}
        if run.reason_code == BUDGET:
            at_stop(BUDGET)
            return {"state": State.COMPLETED, "reason_code": BUDGET}
        return {"state": State.FAILED, "reason_code": REJECTED, "error": run.error or why}

    def _end_of_interrupt(self, at_stop: Callable[[str], None]) -> RunEnd:
        """Return how a run ends that its operator interrupts."""
        state = self._store.optimizations.state(self._run_id)
        if state in CANCELS:
            return self._end_of_stop(CANCELLED, at_stop)
        if state is State.COMPLETED:
            return {"state": state}
        return {"state": State.FAILED, "reason_code": INTERRUPTED}

    def begin_phase(self, name: str) -> None:
        """Note the phase that a run is in from now on."""
        self.go_on()
        self._store.optimizations.change(self._run_id, phase=name)
        publish(self._store, self._run_id)

    def complete(self) -> None:
        """Wait until nobody has paused a run, and complete it."""
        while not self._store.optimizations.change(
            self._run_id, states=WORKING, state=State.COMPLETED
        ):
            self.go_on()

    def await_items(self) -> None:
        """Wait until every item has ended.

        Raises:
            CancelledError: An operator cancelled the run.
            StoppedError: The run makes no more calls.
            TimeoutError: The phase took too long.
        """
        pause_s = self._pace.poll_s
        longest_s, waited_s, failures = self._pace.items_s, 0.0, 0
        state, worked_at = State.RUNNING, time.monotonic()
        while True:
            began = time.monotonic()
            try:
                is_open = self._open()
                state = self.look(shows=not is_open)  # also at the end: a stop may have made it
                failures, worked_at = 0, began
                if not is_open:
                    return
            except StoreUnavailableError:
                failures += 1
                if began - worked_at > MOST_FAILING_S or not self._store.is_there():
                    raise
            time.sleep(poll_backoff_s(failures, pause_s) if failures else pause_s)
            if state is not State.PAUSED:
                waited_s += time.monotonic() - began
            if longest_s is not None and waited_s > longest_s:
                raise TimeoutError
            if not self._workers.are_alive:
                raise TauLiveError("every worker of this process has ended: see its log")

    def _open(self) -> bool:
        return self._store.optimizations.has_open_items(self._run_id)

    def wait(self, seconds: float) -> None:
        """Wait, unless the run is to end meanwhile; raises as ``look`` does."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.go_on()
            time.sleep(min(WATCH_S, left))

    def go_on(self) -> None:
        """Wait while the run is paused; raises as ``look`` does."""
        while self.look() is State.PAUSED:
            time.sleep(WATCH_S)

    def look(self, *, shows: bool = False) -> State:
        """Look at the state of the run, show the progress, and return the state.

        Args:
            shows: Whether the progress is shown also if that was done a moment ago.

        Raises:
            CancelledError: An operator cancelled the run.
            StoppedError: The run makes no more calls.
            LeaseLostError: Another process leads it.
        """
        now = time.monotonic()
        if now - self._expired_at >= EXPIRE_S:
            if not self._store.is_there():
                raise StoreUnavailableError(f"the store {self._store.path} was removed")
            self._store.queue.expire()
            take_lead(self._store, self._run_id)  # a machine that slept has lost it
            self._expired_at = now
        run = self._store.optimizations.run(self._run_id)
        if (
            shows or now - self._shown_at >= WATCH_S
        ):  # counting takes milliseconds where there are many
            self._shown_at = now
            items = self._store.optimizations.items(run.run_id)
            done = items.total - items.open
            self._show(Shown(run.phase, run.state, done, items.total, run.usd, run.calls))
        if run.state not in CANCELS:
            self.was_paused = run.state is State.PAUSED
        if run.state in CANCELS:
            self._await_workers(STOP_S)
            raise CancelledError("cancelled")
        seconds = self._pace.seconds
        if seconds is not None and run.seconds > seconds and run.reason_code is None:
            self._models.stop(BUDGET, "the time of the budget is over")
            raise StoppedError(BUDGET)
        if run.reason_code in {BUDGET, REJECTED}:
            self._await_workers(self._pace.attempt_s or STOP_S)
            raise StoppedError(run.reason_code)
        return run.state

    def _await_workers(self, longest_s: float) -> None:
        """Wait until no attempt of the run is worked on, but not longer than that."""
        cancel_items(self._store, self._run_id, all_of_them=False)
        deadline = time.monotonic() + longest_s
        while time.monotonic() < deadline and self._open():
            self._store.queue.expire()
            time.sleep(WATCH_S)
