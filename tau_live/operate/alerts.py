"""Raises alerts, once for all processes of a store, and delivers them.

Every process that writes to the store checks it; transitions are claimed in one transaction, so
that one of several processes raises each, once, also after restarts. Repeating an alert while its
condition lasts is left to the rules of a monitoring system. Alerts are delivered in a thread of
their own: no plugin and no command keeps a host, the writer or the learner waiting.

A check also notes the value of each counter and the time, beside the notes of alerts; nobody else
has to write, and existing stores need no migration.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tau_live.core.gate import HoldReason
from tau_live.core.gate_keeper import GateSnapshot
from tau_live.core.guard import logger, text_of
from tau_live.core.hookspecs import Alert
from tau_live.core.plugins import Plugins
from tau_live.core.redaction import scrub_text
from tau_live.core.settings import Settings
from tau_live.core.version import this_version
from tau_live.operate.alert_plugins import commands_of
from tau_live.operate.alert_rules import (
    ALERTS,
    AUDIT,
    GREW,
    AlertKind,
    Incident,
    incidents_in,
    marks,
    moves,
)
from tau_live.operate.records import Status
from tau_live.operate.status import alert_facts
from tau_live.operate.stops import kill_file, now_killed
from tau_live.store.records import AlertRow
from tau_live.store.roles import Store

WAITING = 64
"""Most alerts that wait for delivery."""

UNSTORED = 16
"""Most alerts of a failing store that wait for it to work again."""

PAGE = 100
"""Most lines of the audit that a check reads."""


class AlertQueue:
    """Delivers alerts one after the other, in a thread that starts with the first of them.

    Args:
        deliver: Delivers an alert; called in the thread.
        count: Adds 1 to a counter, by name.
    """

    def __init__(self, deliver: Callable[[Alert], None], *, count: Callable[[str], None]) -> None:
        self._deliver = deliver
        self._count = count
        self._waiting: deque[Alert] = deque()
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def enqueue(self, alert: Alert) -> None:
        """Deliver an alert soon; never waits."""
        with self._condition:
            if self._closed or len(self._waiting) >= WAITING:
                self._count("alerts_lost")
                return
            self._waiting.append(alert)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._loop, name="tau-live-alerts", daemon=True
                )
                self._thread.start()
            self._condition.notify_all()

    def close(self, timeout_s: float) -> bool:
        """Deliver the waiting alerts, and stop; ``False`` if it takes longer than ``timeout_s``."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _loop(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                alert = self._waiting.popleft()
            try:
                self._deliver(alert)
            except Exception as error:  # noqa: BLE001  # nothing may end this thread
                self._count("alerts_failed")
                logger().warning("alert_failed", kind=alert.kind, error=text_of(error))


class AlertRaiser:
    """Checks a store and raises its alerts; any thread may call it.

    Args:
        settings: Bounds.
        owner: This process.
        tell: Takes an alert for delivery; never waits.
        count: Adds 1 to a counter, by name.
        clock: Returns epoch seconds.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        owner: str,
        tell: Callable[[Alert], None],
        count: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._owner = owner
        self._tell = tell
        self._count = count
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = False
        self._unstored: deque[AlertRow] = deque(maxlen=UNSTORED)

    def check(self, store: Store, status: Status) -> None:
        """Raise the new alerts of a store that no other process has raised; never raises.

        Args:
            store: The store, in the thread that it belongs to.
            status: The result of ``status_of``.
        """
        if not self._lock.acquire(blocking=False):
            return  # another thread of this process is checking
        try:
            rows = self._claim(store, status)
            self._failed = False
        except Exception as error:  # noqa: BLE001  # a failure here must stop nothing else
            rows = []
            if not self._failed:
                logger().warning("alerts_not_looked_for", error=text_of(error))
            self._failed = True
            self._count("alerts_failed")
        finally:
            self._lock.release()
        for row in rows:
            self._tell(alert_of(row, store=str(self._settings.store)))

    def store_fails(self, detail: str) -> None:
        """Raise an alert that the store cannot be used; it is stored once the store works again."""
        sentence = (
            f"Process {self._owner} cannot use its store; its host chooses by itself: {detail}."
        )
        incident = Incident(
            kind=AlertKind.STORE_FAILS, mark="", sentence=sentence,
            facts={"detail": detail, "process": self._owner},
        )  # fmt: skip
        row = self._row(incident)
        self._unstored.append(row)
        self._tell(alert_of(row, store=str(self._settings.store)))

    def _claim(self, store: Store, status: Status) -> list[AlertRow]:
        """Return the alerts that this process is to deliver, and store them."""
        while self._unstored:
            store.alerts.add(self._unstored[0])
            self._unstored.popleft()
        if not self._find(store, status)[1]:  # the usual case
            return []
        with store.begin():  # locks at once, so no other process can claim the same
            incidents, notes = self._find(store, status)
            for (kind, subject), mark in notes.items():
                store.alerts.note(kind, subject, mark)
            return [store.alerts.add(self._row(incident)) for incident in incidents]

    def _find(
        self, store: Store, status: Status
    ) -> tuple[list[Incident], dict[tuple[str, str], str]]:
        """Return the transitions since the last check of the store by any process.

        These are the incidents to raise, and the marks to note by kind and subject; a mark is empty
        where a condition is over.
        """
        notes = store.alerts.notes()
        last = _last_line(store, notes)
        entries = store.audit.since(last, limit=PAGE)
        seen = str(entries[-1].seq if entries else last)
        incidents = incidents_in(status, notes, self._settings)
        current = {(incident.kind.value, incident.subject): incident for incident in incidents}
        new = {
            key: incident for key, incident in current.items() if notes.get(key) != incident.mark
        }
        grown = marks(status.counters, notes, now=self._clock())
        return (
            [incident for incident in (*new.values(), *moves(entries)) if incident.sentence],
            {
                **{(GREW, name): mark for name, mark in grown.items()},
                **({AUDIT: seen} if notes.get(AUDIT, "0") != seen else {}),
                **{key: incident.mark for key, incident in new.items()},
                **{
                    key: ""
                    for key, mark in notes.items()
                    if mark and key[0] in LASTING and key not in current
                },
            },
        )

    def _row(self, incident: Incident) -> AlertRow:
        about = ALERTS[incident.kind]
        return AlertRow(
            kind=incident.kind.value,
            severity=about.severity.value,
            subject=incident.subject,
            sentence=_on_a_line(scrub_text(incident.sentence))[:500],
            todo=about.todo,
            facts={
                name: scrub_text(value) if isinstance(value, str) else value
                for name, value in incident.facts.items()
            },
            at=incident.at or self._clock(),
            owner=self._owner,
        )


def _last_line(store: Store, notes: Mapping[tuple[str, str], str]) -> int:
    """Return the last line of the audit that was looked at."""
    try:
        return int(notes.get(AUDIT, "0"))
    except ValueError:  # an edited mark: nothing is raised twice
        return next((entry.seq for entry in store.audit.entries(limit=1)), 0)


LASTING = frozenset(
    {
        AlertKind.GATE_HOLD,
        AlertKind.EVENTS_DROPPED,
        AlertKind.KILL_SWITCH_ON,
        AlertKind.REWARDS_MISSING,
        AlertKind.CHOICES_COLLAPSED,
        AlertKind.LEARNER_BEHIND,
        AlertKind.PLUGIN_DISABLED,
    }
)
"""The kinds that end with their condition."""


def over(
    rows: Sequence[AlertRow], store: Store, settings: Settings, *, now: float
) -> frozenset[int]:
    """Return the sequence numbers of the alerts whose condition is over.

    Also where no process runs that would note it. Other alerts are about moments.

    Args:
        rows: Alerts, in the order in which they were raised, the newest first.
        store: Their store.
        settings: Bounds.
        now: Epoch seconds, UTC.
    """
    incidents = incidents_in(alert_facts(store, settings, now=now), store.alerts.notes(), settings)
    lasting = {(incident.kind.value, incident.subject) for incident in incidents}
    ended = set()
    for row in rows:
        key = (row.kind, row.subject)
        if row.kind == AlertKind.STORE_FAILS:  # stored once the store worked again
            ended.add(row.seq)
        elif row.kind in LASTING:
            if key not in lasting:
                ended.add(row.seq)
            lasting.discard(key)  # of several about the same, the newest lasts
    return frozenset(ended)


def trial_alert(settings: Settings, *, at: float) -> Alert:
    """Return a test alert, which shows whether alerts arrive."""
    about = ALERTS[AlertKind.TEST]
    return Alert(
        kind=AlertKind.TEST.value,
        severity=about.severity.value,
        sentence=about.means,
        todo=about.todo,
        at=at,
        store=str(settings.store),
        version=this_version(),
        test=True,
    )


def alert_of(row: AlertRow, *, store: str) -> Alert:
    """Return an alert as plugins receive it."""
    return Alert(
        kind=row.kind,
        severity=row.severity,
        subject=row.subject,
        sentence=row.sentence,
        todo=row.todo,
        facts=row.facts,
        at=row.at,
        store=store,
        version=this_version(),
    )


def _on_a_line(text: str) -> str:
    """Return a text on one line without control characters, which could steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


class Alerts:
    """Checks the store, and delivers its new alerts to the plugins of this process.

    Args:
        settings: Bounds, and how alerts are delivered.
        plugins: The recipients; the commands of the settings become some of them.
        environ: The environment that commands inherit.
        owner: This process.
        count: Adds 1 to a counter, by name.
    """

    def __init__(
        self,
        settings: Settings,
        plugins: Plugins,
        *,
        environ: Mapping[str, str],
        owner: str,
        count: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._seen: tuple[object, object] | None = None
        self._checked = float("-inf")
        self._commands = commands_of(settings, environ, count)
        for name, command in self._commands.items():
            plugins.register(command, name=name)
        self._queue = AlertQueue(partial(plugins.tell, "alert_raised"), count=count)
        self._raiser = AlertRaiser(settings, owner=owner, tell=self._queue.enqueue, count=count)

    def check(self, store: Store, *, for_all: bool = True) -> Status | None:
        """Raise the new alerts of a store, in whose thread this is called.

        Args:
            store: The store.
            for_all: Whether nobody else does; else only where the kill switch of this machine has
                been turned since the last call.

        Returns:
            The result of ``alert_facts``; ``None`` where nothing has changed since a call within
            the last ten seconds. Later it is made all the same, because leases expire.

        Raises:
            StoreUnavailableError: The store cannot be read.
        """
        now = time.monotonic()
        switch = now_killed(kill_file(self._settings.store, self._settings.kill_file))
        if not for_all and self._seen is not None and switch == self._seen[1]:
            return None
        seen = (store.stamp(), switch)
        if seen == self._seen and now - self._checked < 10.0:
            return None
        facts = alert_facts(store, self._settings, now=time.time())
        self._raiser.check(store, facts)
        self._seen, self._checked = seen, now
        return facts

    def gate_changed(self, snapshot: GateSnapshot) -> None:
        """Raise an alert if the gate holds because of the store, which cannot record it."""
        if snapshot["state"] == "hold" and snapshot["reason"] == HoldReason.STORE_UNAVAILABLE:
            self._raiser.store_fails(str(snapshot["detail"]))

    def close(self) -> None:
        """Deliver the waiting alerts in the little time left; a slower command is killed."""
        # the end of a process must not wait long for alerts
        if not self._queue.close(2.0):
            for command in self._commands.values():
                command.kill()
