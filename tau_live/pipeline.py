"""The way of an event from the queue into the store: scrubbed, recorded, shown, stored.

Plain synchronous code for whoever owns the thread: the writer of a live process, a replay, or an
intake.
"""

from collections.abc import Callable, Sequence

from tau_live.collector import Applied, Collector
from tau_live.errors import StoreUnavailableError
from tau_live.events import Event
from tau_live.plugins import Plugins
from tau_live.recording import Recorder
from tau_live.redaction import Redactor
from tau_live.store.roles import Store


class Pipeline:
    """Takes events to the store; one that cannot be stored does not keep others from it.

    Args:
        store: Where they go.
        collector: What turns them into rows.
        redactor: What scrubs them first.
        plugins: Who is shown them.
        recorder: Where they are recorded besides; ``None`` for nowhere.
        on_poison: Told of an event that nothing could be done with, and why.
    """

    def __init__(
        self,
        store: Store,
        *,
        collector: Collector,
        redactor: Redactor,
        plugins: Plugins,
        recorder: Recorder | None,
        on_poison: Callable[[Event, Exception], None],
    ) -> None:
        self._store = store
        self.collector = collector
        self._redactor = redactor
        self._plugins = plugins
        self._recorder = recorder
        self._on_poison = on_poison

    def prepared(self, events: Sequence[Event]) -> list[Event]:
        """Return the events without secrets, after they were recorded and shown to plugins."""
        scrubbed = []
        for event in events:
            try:
                scrubbed.append(self._redactor.redact(event))
            except Exception as error:  # noqa: BLE001  # what a host hands over may do anything
                self._on_poison(event, error)
        if self._recorder is not None:
            self._recorder.append(scrubbed)
        if self._plugins.listens("observe"):
            for event in scrubbed:
                self._plugins.observe(event)
        return scrubbed

    def stored(self, events: Sequence[Event]) -> Applied:
        """Store prepared events in one transaction; where one of them fails, each in its own.

        Raises:
            StoreUnavailableError: The store failed; none of them is kept.
        """
        try:
            with self._store.begin():
                return self.collector.apply(events)
        except StoreUnavailableError:
            self.collector.forget()
            raise
        except Exception:  # noqa: BLE001  # one of them is poison; the others must not suffer
            self.collector.forget()
            return self._one_by_one(events)

    def _one_by_one(self, events: Sequence[Event]) -> Applied:
        finished = ready = 0
        for event in events:
            try:
                with self._store.begin():
                    applied = self.collector.apply([event])
            except StoreUnavailableError:
                self.collector.forget()
                raise
            except Exception as error:  # noqa: BLE001  # left out, counted, and reported
                self.collector.forget()
                self._on_poison(event, error)
            else:
                finished += applied.finished
                ready += applied.ready
        return Applied(finished, ready)
