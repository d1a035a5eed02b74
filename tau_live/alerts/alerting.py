"""Raises alerts, once for all processes of a store, and delivers them.

Whoever looks after the store looks; what is found is claimed in one transaction, so that of
several processes one tells it, also after restarts. It is told in a thread of its own: no plugin
and no command keeps a host, the writer or the learner waiting.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tau_live.alerts.growing import GREW, marks
from tau_live.alerts.kinds import ALERTS, Kind
from tau_live.alerts.rules import AUDIT, Found, found_in, moves
from tau_live.guard import logger, text_of
from tau_live.handed.reading import counts
from tau_live.hookspecs import Alert
from tau_live.privacy.redaction import scrubbed
from tau_live.settings import Settings
from tau_live.store.alert_log import AlertRow, Noted
from tau_live.store.roles import Store
from tau_live.version import this_version

WAITING = 64
"""So many alerts wait at most to be told."""

UNSTORED = 16
"""So many alerts of a store that fails wait at most for it to work again."""

PAGE = 100
"""So many lines of the audit are read at one look."""

_SENTENCE = 500


class Teller:
    """Tells alerts one after the other, in a thread that begins with the first of them.

    Args:
        tell: Told of each; called in the thread.
        count: Counts what was lost.
    """

    def __init__(self, tell: Callable[[Alert], None], *, count: Callable[[str], None]) -> None:
        self._tell = tell
        self._count = count
        self._waiting: deque[Alert] = deque()
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, alert: Alert) -> None:
        """Tell an alert soon; never waits."""
        with self._condition:
            if self._closed or len(self._waiting) >= WAITING:
                self._count("alerts_lost")
                return
            self._waiting.append(alert)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="tau-live-alerts", daemon=True
                )
                self._thread.start()
            self._condition.notify_all()

    def close(self, timeout_s: float) -> bool:
        """Tell what waits, and stop; ``False`` if it takes longer than that."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                alert = self._waiting.popleft()
            try:
                self._tell(alert)
            except Exception as error:  # noqa: BLE001  # nothing may end this thread
                self._count("alerts_failed")
                logger().warning("alert_failed", kind=alert.kind, error=text_of(error))


class Alerting:
    """Looks at a store and has alerts told; any thread may call it.

    Args:
        settings: Bounds, and how often alerts may come.
        owner: This process.
        tell: Takes an alert that is to be told; never waits.
        count: Counts what went wrong.
        clock: Epoch seconds.
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
        self._lock, self._limit_lock = threading.Lock(), threading.Lock()
        self._failed = False
        self._without_store: tuple[float, int] = (float("-inf"), 0)
        self._unstored: deque[AlertRow] = deque(maxlen=UNSTORED)

    def look(self, store: Store, status: Mapping[str, object]) -> None:
        """Tell what is new in a store, if no other process has told it; never raises.

        Args:
            store: The store, in the thread that it belongs to.
            status: What ``status_of`` says of it.
        """
        if not self._lock.acquire(blocking=False):
            return  # another thread of this process is looking
        try:
            rows = self._claimed(store, status)
            self._failed = False
        except Exception as error:  # noqa: BLE001  # what alerts fail of must stop nothing else
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
        """Tell that the store cannot be used; limited in memory, since nothing can be stored."""
        now = time.monotonic()
        with self._limit_lock:  # not that of a look, which may wait for the very store
            last, suppressed = self._without_store
            if now - last < self._settings.alert_interval_s:
                self._without_store = (last, suppressed + 1)
                return
            self._without_store = (now, 0)
        sentence = (
            f"Process {self._owner} cannot use its store; its host chooses by itself: {detail}."
        )
        found = Found(
            kind=Kind.STORE_FAILS, mark="", sentence=sentence,
            facts={"detail": detail, "process": self._owner},
        )  # fmt: skip
        row = replace(self._row(found, now=self._clock()), suppressed=suppressed)
        self._unstored.append(row)
        self._tell(alert_of(row, store=str(self._settings.store), suppressed=suppressed))

    def _claimed(self, store: Store, status: Mapping[str, object]) -> list[AlertRow]:
        """Return the alerts that this process is to tell, stored as told."""
        self._store_told(store)
        noted = store.alerts.noted()
        found, upto = self._found(store, status, noted)
        if not self._grown(status, noted) and not self._has_news(store, found, noted, upto):
            return []
        with store.begin():  # locks at once: what is read now is what others have left
            noted = store.alerts.noted()
            found, upto = self._found(store, status, noted)
            for name, mark in self._grown(status, noted).items():
                store.alerts.note(GREW, name, mark, told=True)
            if upto is not None:
                store.alerts.note(*AUDIT, upto, told=True)
            self._end(store, found, noted)
            last = dict(store.alerts.last_told())
            return [
                row
                for one in found
                if (row := self._told(store, one, noted.get((one.kind, one.subject)), last))
            ]

    def _store_told(self, store: Store) -> None:
        """Store what was told while the store could not take it."""
        while self._unstored:
            row = self._unstored[0]
            store.alerts.tell(row, at=row.at)
            self._unstored.popleft()

    def _grown(
        self, status: Mapping[str, object], noted: Mapping[tuple[str, str], Noted]
    ) -> dict[str, str]:
        return marks(counts(status.get("counters")), noted, now=self._clock())

    def _found(
        self, store: Store, status: Mapping[str, object], noted: Mapping[tuple[str, str], Noted]
    ) -> tuple[list[Found], str | None]:
        """Return what is found, and up to which line the audit was read, if there are new ones."""
        read = noted.get(AUDIT)
        entries = store.audit.since(int(read.mark) if read else 0, limit=PAGE)
        upto = str(entries[-1].seq) if entries else None
        return [*found_in(status, noted, self._settings), *moves(entries)], upto

    def _has_news(
        self,
        store: Store,
        found: Iterable[Found],
        noted: Mapping[tuple[str, str], Noted],
        upto: str | None,
    ) -> bool:
        """Say whether anything has to be noted or told; most often nothing has, at little cost."""
        if upto is not None or any(_over(found, noted)):
            return True
        last: Mapping[tuple[str, str], float] | None = None
        for one in found:
            was = noted.get((one.kind, one.subject))
            is_new = was is None or was.mark != one.mark
            if is_new and not one.grows:
                return True
            if is_new or (was is not None and not was.told):
                last = store.alerts.last_told() if last is None else last
                if self._may(one, last):
                    return True
        return False

    def _may(self, one: Found, last: Mapping[tuple[str, str], float]) -> bool:
        """Say whether an alert may be told now, also after the clock was set back.

        It is limited by kind and subject: what one point or option tells hides no other's.
        """
        since = self._clock() - last.get((one.kind, one.subject), float("-inf"))
        return not 0.0 <= since < self._settings.alert_interval_s

    def _told(
        self, store: Store, one: Found, was: Noted | None, last: dict[tuple[str, str], float]
    ) -> AlertRow | None:
        is_new = was is None or was.mark != one.mark
        if not is_new and was is not None and was.told:
            return None
        if not one.sentence:
            store.alerts.note(one.kind, one.subject, one.mark, told=True)
            return None
        if was is not None and is_new and not was.told:
            # What was there before came and went untold.
            store.alerts.suppress(one.kind, one.subject)
        # Only an operator ends a hold: another one is news, also where nobody looked in between.
        is_next = one.kind == Kind.GATE_HOLD and is_new and was is not None and was.told
        if not is_next and not self._may(one, last):
            if is_new and not one.grows:
                store.alerts.note(one.kind, one.subject, one.mark, told=not one.lasts)
                if not one.lasts:
                    store.alerts.suppress(one.kind, one.subject)
            return None
        now = last[one.kind, one.subject] = self._clock()
        store.alerts.note(one.kind, one.subject, one.mark, told=True)
        return store.alerts.tell(self._row(one, now=now), at=now)

    def _end(
        self, store: Store, found: Iterable[Found], noted: Mapping[tuple[str, str], Noted]
    ) -> None:
        """Note what is over, so that it is told when it comes again."""
        for kind, subject in _over(found, noted):
            if not noted[kind, subject].told:
                store.alerts.suppress(kind, subject)
            store.alerts.note(kind, subject, "", told=True)
            if kind == Kind.GATE_HOLD:  # an operator ended it, who wants to hear of the next
                store.alerts.release(kind, subject)

    def _row(self, found: Found, *, now: float) -> AlertRow:
        about = ALERTS[found.kind]
        return AlertRow(
            kind=found.kind.value,
            severity=about.severity.value,
            subject=found.subject,
            sentence=_on_a_line(scrubbed(found.sentence))[:_SENTENCE],
            todo=about.todo,
            facts={
                name: scrubbed(value) if isinstance(value, str) else value
                for name, value in found.facts.items()
            },
            at=found.at or now,
            owner=self._owner,
        )


LASTING = frozenset(
    {
        Kind.GATE_HOLD,
        Kind.KILL_SWITCH_ON,
        Kind.REWARDS_MISSING,
        Kind.CHOICES_COLLAPSED,
        Kind.LEARNER_BEHIND,
        Kind.PLUGIN_DISABLED,
    }
)
"""What is over once it is not found any more."""


def trial_alert(settings: Settings, *, at: float) -> Alert:
    """Return an alert by which somebody tries out how alerts arrive."""
    about = ALERTS[Kind.TEST]
    return Alert(
        kind=Kind.TEST.value,
        severity=about.severity.value,
        sentence=about.means,
        todo=about.todo,
        at=at,
        store=str(settings.store),
        version=this_version(),
        test=True,
    )


def alert_of(row: AlertRow, *, store: str, suppressed: int = 0) -> Alert:
    """Return an alert as plugins hear of it."""
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
        suppressed=row.suppressed or suppressed,
    )


def _on_a_line(text: str) -> str:
    """Return a text on one line that cannot steer the terminal that a command prints it to."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def _over(found: Iterable[Found], noted: Mapping[tuple[str, str], Noted]) -> list[tuple[str, str]]:
    """Return what lasted and is not found any more."""
    here = {(one.kind.value, one.subject) for one in found}
    return [key for key, was in noted.items() if was.mark and key[0] in LASTING and key not in here]
