"""The path of an event from the queue into the store: redacted, recorded, observed, stored.

Plain synchronous code for the owner of the thread: the writer of a live process, a replay, or an
intake.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec.structs import replace

from tau_live.core import records
from tau_live.core.errors import StoreUnavailableError
from tau_live.core.events import (
    Content,
    Decision,
    ErrorInfo,
    Event,
    Reward,
    ToolCall,
)
from tau_live.core.hookspecs import Text
from tau_live.core.plugins import Plugins
from tau_live.core.prices import Pricer
from tau_live.core.redaction import Plan, Redactor, plan_of, scrub_text
from tau_live.core.settings import Settings
from tau_live.core.sound_events import sound
from tau_live.record.collector import Applied, Collector
from tau_live.record.recording import Recorder
from tau_live.record.whole_runs import RecordItem, singly
from tau_live.rl.throttle import yield_gil
from tau_live.store.roles import Store

USUAL = "reward"
"""The default name of a reward."""

LEFT_OUT = "[redacted:plugin]"
"""Replaces a text on which a plugin failed."""

_WORDS = frozenset(
    {
        *("role", "trigger", "stage", "mode", "op", "what", "step_kind", "tool_kind", "type"),
        *("finish_reason", "finish_reasons", "reason_codes", "why_not", "where"),
        *("host_version", "adapter_version", "usage", "aliases"),
    }
)
"""Fields that are not texts: ids, versions, numbers, and words counted by rewards and reports."""

_NAMES: Mapping[type[Event], frozenset[str]] = {
    Decision: frozenset({"options", "allowed", "exploit_only"}),
}
"""Fields of events that are looked up by name."""

_TRUTHS = frozenset({"true", "false"})
"""Labels that add nothing to the value."""

Keep = Callable[[Text], str | None]
"""Returns what may be kept of a text; ``None`` if a plugin failed."""


class Texts:
    """Passes every text of events through plugins that redact.

    Ids, names of points and options, and words of a fixed set do not count as texts, nor do the
    names of rewards known from the settings.

    Args:
        keep: Returns what may be kept of a text.
        rewards: Names of rewards in the settings; see ``known_rewards``.
    """

    def __init__(self, keep: Keep, rewards: Collection[str] = ()) -> None:
        self._keep = keep
        self._rewards = frozenset(rewards)
        self._plans: dict[type[Event], Plan] = {}

    def apply(self, event: Event) -> Event:
        """Return an event of plain data with the texts kept; the same object if all of it is."""
        kind = type(event)
        plan = self._plans.get(kind)
        if plan is None:
            plan = self._plans[kind] = plan_of(kind)
        changes: dict[str, object] = {}
        for name in (*plan.texts, *plan.others):
            value = getattr(event, name)
            if value and name not in _WORDS and name not in _NAMES.get(kind, ()):
                if kind is Reward and self._is_word(name, value):
                    continue
                kept = self._value(event.event, name, value)
                if kept != value:
                    changes[name] = kept
        return replace(event, **changes) if changes else event

    def _value(self, kind: str, field: str, value: object) -> object:
        """Return what may be kept of a field of a kind of event."""

        def keep(text: str, key: str = "") -> str:
            kept = self._keep(Text(text=text, event=kind, field=field, key=key)) if text else text
            return LEFT_OUT if kept is None else kept

        if isinstance(value, ErrorInfo):
            return replace(value, message=keep(value.message, "message"))
        if field == "features" and isinstance(value, Mapping):  # by the names of options
            return {name: _plain(keep, of) for name, of in value.items()}
        if isinstance(value, tuple):
            return tuple(_part(keep, part) for part in value)
        return _part(keep, value)

    def reward(self, reward: records.Reward) -> records.Reward:
        """Return a reward from outside an event with what may be kept of its texts."""
        return replace(
            reward,
            name=self._of_reward("name", reward.name) or LEFT_OUT,
            label=self._of_reward("label", reward.label),
            comment=self._of_reward("comment", reward.comment),
        )

    def _of_reward(self, field: str, text: str | None) -> str | None:
        if not text or self._is_word(field, text):
            return text
        kept = self._keep(Text(text=text, event="reward", field=field))
        return LEFT_OUT if kept is None else scrub_text(kept)

    def _is_word(self, field: str, value: object) -> bool:
        """Return whether a field of a reward holds a known word, not a text."""
        return value in {"name": self._rewards, "label": _TRUTHS}.get(field, ())


KeepText = Callable[..., str]
"""Returns what is kept of a text, given the text and its key."""


def _part(keep: KeepText, value: object) -> object:
    if isinstance(value, Content):
        return _content(keep, value)
    if isinstance(value, ToolCall):
        args = value.args and _content(keep, value.args)
        return replace(value, name=keep(value.name, "name"), args=args)
    return value if isinstance(value, StrEnum) else _plain(keep, value)


def _content(keep: KeepText, content: Content) -> Content:
    """Return a text with the size and hash of what is kept; the original's would reveal it."""
    if content.text is None:
        return content
    kept = keep(content.text)
    return content if kept == content.text else Content(text=kept)


def _plain(keep: KeepText, value: object, key: str = "") -> object:
    """Return plain data with what may be kept of its texts and keys."""
    if isinstance(value, str):
        return keep(value, key)
    if isinstance(value, list | tuple):
        return [_plain(keep, part, key) for part in value]
    if not isinstance(value, Mapping):
        return value
    mapping: dict[str, object] = {}
    for name, of in value.items():
        kept = keep(name)
        unique, number = kept, 1
        while unique in mapping:
            number += 1
            unique = f"{kept} ({number})"
        mapping[unique] = _plain(keep, of, name)
    return mapping


def known_rewards(settings: Settings) -> frozenset[str]:
    """Return the names of rewards that are not texts: the usual one, and those declared."""
    return frozenset({USUAL, *(reward.name for reward in settings.rewards)})


class Pipeline:
    """Takes events to the store; one that cannot be stored does not stop the others.

    Args:
        store: The store.
        collector: Turns them into rows.
        redactor: Removes secrets and content first.
        plugins: The plugins that redact and observe.
        recorder: Records them as well; ``None`` for no recording.
        on_poison: Called with an event that failed, and its error.
        pricer: Adds costs that hosts do not report; ``None`` adds none.
        on_unrecorded: Called with the number of events that could not be recorded, and the error.
        on_left_out: Called with the number of fields of an event that were left out because they
            held no plain data.
        rewards: Names of rewards that are not texts; see ``known_rewards``.
    """

    def __init__(  # noqa: PLR0913  # its parts and callbacks, all keyword-only
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
        on_left_out: Callable[[int], None] = lambda _: None,
        rewards: Collection[str] = (),
    ) -> None:
        self._store = store
        self._on_left_out = on_left_out
        self._pricer = pricer
        self.collector = collector
        self._redactor = redactor
        self._content_redactor = redactor.with_content()
        self._texts = Texts(plugins.redact_text, rewards)
        self._plugins = plugins
        self._recorder = recorder
        self._on_poison = on_poison
        self._on_unrecorded = on_unrecorded

    def prepare(self, items: Iterable[RecordItem]) -> list[RecordItem]:
        """Redact, price, record and observe events, and return them.

        Whole runs come without secrets, and stay whole unless something needs their events.
        """
        observed = self._plugins.listening["observe"]
        if self._recorder or observed or self._plugins.listening["redact_text"]:
            items = singly(items)
        prepared: list[RecordItem] = []
        events: list[Event] = []
        for item in items:
            if isinstance(item, Event):
                try:
                    checked = sound(item)
                    if checked.left_out:
                        self._on_left_out(checked.left_out)
                    kept = self._redact(checked.event)
                    events.append(self._pricer.with_cost(kept) if self._pricer else kept)
                    prepared.append(events[-1])
                except Exception as error:  # noqa: BLE001  # a host's objects may raise anything
                    self._on_poison(item, error)
            else:
                prepared.append(item)
            yield_gil()
        if self._recorder is not None:
            self._record(self._recorder, events)
        for event in events if observed else ():
            self._plugins.tell("observe", event)
            yield_gil()
        return prepared

    def _redact(self, event: Event) -> Event:
        """Return an event without secrets, and without what plugins redact.

        Plugins also see texts of which only size and hash are stored.
        """
        if not self._plugins.listening["redact_text"]:
            return self._redactor.redact(event)
        return self._redactor.redact(self._texts.apply(self._content_redactor.redact(event)))

    def _record(self, recorder: Recorder, events: Sequence[Event]) -> None:
        """Record events; a failure must not keep them from being stored."""
        try:
            recorder.append(events)
        except OSError as error:
            self._on_unrecorded(len(events), error)

    def store(self, items: Sequence[RecordItem]) -> Applied:
        """Store prepared items in one transaction; if that fails, each event in its own.

        Raises:
            StoreUnavailableError: The store failed; none of them is kept.
        """
        try:
            with self._store.begin():
                return self.collector.apply(items)
        except StoreUnavailableError:
            self.collector.forget()
            raise
        except Exception:  # noqa: BLE001  # a bad event must not take the others with it
            self.collector.forget()
            return self._one_by_one(items)

    def _one_by_one(self, items: Iterable[RecordItem]) -> Applied:
        finished = ready = refused = 0
        for event in singly(items):
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
        return Applied(finished, ready, refused)
