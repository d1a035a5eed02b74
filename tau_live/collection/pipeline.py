"""The way of an event from the queue into the store: scrubbed, recorded, shown, stored.

Plain synchronous code for whoever owns the thread: the writer of a live process, a replay, or an
intake.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from tau_live.breath import Breathe, at_once
from tau_live.collection.collector import Collector
from tau_live.collection.recording import Recorder
from tau_live.collection.texts import Texts
from tau_live.collection.token_prices import Pricer
from tau_live.collection.whole_runs import Told, singly
from tau_live.errors import StoreUnavailableError
from tau_live.events import Event
from tau_live.handed.sound_events import sound
from tau_live.plugins import Plugins
from tau_live.privacy.redaction import Redactor
from tau_live.store.roles import Store


class Stored(NamedTuple):
    """What a batch came to.

    Attributes:
        finished: How many rollouts came to their end.
        ready: How many became fit to be learned from.
        refused: How many events could not be stored.
    """

    finished: int
    ready: int
    refused: int


class Pipeline:
    """Takes events to the store; one that cannot be stored does not keep others from it.

    Args:
        store: Where they go.
        collector: What turns them into rows.
        redactor: What scrubs them first.
        plugins: Who is shown them.
        recorder: Where they are recorded besides; ``None`` for nowhere.
        on_poison: Told of an event that nothing could be done with, and why.
        pricer: What adds costs that hosts do not tell; ``None`` adds none.
        on_unrecorded: Told how many events could not be recorded, and why.
        breathe: Called between two events.
        on_left_out: Told how many fields of an event were left out, because they held no data.
    """

    def __init__(  # noqa: PLR0913  # its parts and whom it tells, all keyword-only
        self,
        store: Store,
        *,
        collector: Collector,
        redactor: Redactor,
        plugins: Plugins,
        recorder: Recorder | None,
        on_poison: Callable[[Event, Exception], None],
        on_unrecorded: Callable[[int, OSError], None] = lambda _number, _error: None,
        pricer: Pricer | None = None,
        breathe: Breathe = at_once,
        on_left_out: Callable[[int], None] = lambda _: None,
        rewards: Collection[str] = (),
    ) -> None:
        self._store = store
        self._breathe = breathe
        self._on_left_out = on_left_out
        self._pricer = pricer
        self.collector = collector
        self._redactor = redactor
        self._keeping = redactor.keeping()
        self._texts = Texts(plugins.redact_text, rewards)
        self._plugins = plugins
        self._recorder = recorder
        self._on_poison = on_poison
        self._on_unrecorded = on_unrecorded

    def prepared(self, told: Iterable[Told]) -> list[Told]:
        """Return events without secrets and with costs, once recorded and shown to plugins.

        Whole runs come without secrets, and stay whole where nobody wants to see their events.
        """
        observed = self._plugins.listens("observe")
        if self._recorder or observed or self._plugins.listens("redact_text"):
            told = singly(told)
        scrubbed: list[Told] = []
        for one in told:
            if isinstance(one, Event):
                self._prepare(one, scrubbed)
            else:
                scrubbed.append(one)
            self._breathe()
        events = [one for one in scrubbed if isinstance(one, Event)]
        self._record(events)
        for event in events if observed else ():
            self._plugins.observe(event)
            self._breathe()
        return scrubbed

    def _prepare(self, event: Event, scrubbed: list[Told]) -> None:
        try:
            checked = sound(event)
            if checked.left_out:
                self._on_left_out(checked.left_out)
            kept = self._redacted(checked.event)
            scrubbed.append(self._pricer.priced(kept) if self._pricer else kept)
        except Exception as error:  # noqa: BLE001  # what a host hands over may do anything
            self._on_poison(event, error)

    def _redacted(self, event: Event) -> Event:
        """Return an event without secrets, and without what plugins say must not be kept.

        They see texts whole that are not to be stored: their sizes and hashes are.
        """
        if not self._plugins.listens("redact_text"):
            return self._redactor.redact(event)
        return self._redactor.redact(self._texts.kept(self._keeping.redact(event)))

    def _record(self, events: Sequence[Event]) -> None:
        """Record events; what is stored must not suffer from a recording that fails."""
        if self._recorder is None:
            return
        try:
            self._recorder.append(events)
        except OSError as error:
            self._on_unrecorded(len(events), error)

    def stored(self, told: Sequence[Told]) -> Stored:
        """Store what was prepared in one transaction; where that fails, each event in its own.

        Raises:
            StoreUnavailableError: The store failed; none of them is kept.
        """
        try:
            with self._store.begin():
                applied = self.collector.apply(told)
            return Stored(applied.finished, applied.ready, 0)
        except StoreUnavailableError:
            self.collector.forget()
            raise
        except Exception:  # noqa: BLE001  # one of them is poison; the others must not suffer
            self.collector.forget()
            return self._one_by_one(told)

    def _one_by_one(self, told: Iterable[Told]) -> Stored:
        finished = ready = refused = 0
        for event in singly(told):
            try:
                with self._store.begin():
                    applied = self.collector.apply([event])
            except StoreUnavailableError:
                self.collector.forget()
                raise
            except Exception as error:  # noqa: BLE001  # left out, counted, and reported
                self.collector.forget()
                self._on_poison(event, error)
                refused += 1
            else:
                finished += applied.finished
                ready += applied.ready
        return Stored(finished, ready, refused)
