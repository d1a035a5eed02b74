"""The parts of a system that more than one kind of system is made of."""

from collections.abc import Callable

from tau_live.breath import Breathe, at_once
from tau_live.collection.collector import Collector
from tau_live.collection.pipeline import Pipeline
from tau_live.collection.recording import Recorder
from tau_live.collection.texts import known_rewards
from tau_live.collection.token_prices import Pricer
from tau_live.events import Event
from tau_live.gate import hold_stored
from tau_live.learning.learner import Learner
from tau_live.learning.quality import Hold
from tau_live.plugins import Plugins
from tau_live.privacy.redaction import Redactor
from tau_live.rewards.settling import Rewarding
from tau_live.settings import Settings
from tau_live.store.roles import Store
from tau_live.store.sqlite import SqliteStore
from tau_live.trials.promoter import voided


def open_store(
    settings: Settings, *, busy_timeout_s: float = 5.0, breathe: Breathe = at_once
) -> SqliteStore:
    """Open the store that settings name.

    Raises:
        StoreError: It cannot be opened.
    """
    return SqliteStore.open(
        settings.store,
        synchronous=settings.durability.value,
        busy_timeout_s=busy_timeout_s,
        key_file=settings.audit_key_file,
        breathe=breathe,
    )


def pipeline_of(  # noqa: PLR0913  # its parts and whom it tells, all keyword-only
    store: Store,
    settings: Settings,
    *,
    owner: str | None,
    plugins: Plugins,
    recorder: Recorder | None,
    on_poison: Callable[[Event, Exception], None],
    on_unrecorded: Callable[[int, OSError], None] = lambda _number, _error: None,
    pricer: Pricer | None = None,
    breathe: Breathe = at_once,
    on_left_out: Callable[[int], None] = lambda _: None,
) -> Pipeline:
    """Return the way of events into a store."""
    return Pipeline(
        store,
        collector=Collector(
            store,
            rewarding=Rewarding(settings, plugins),
            owner=owner,
            redact=plugins.redact,
            breathe=breathe,
        ),
        redactor=Redactor(settings.content.value, settings.payload_limit),
        plugins=plugins,
        recorder=recorder,
        on_poison=on_poison,
        on_unrecorded=on_unrecorded,
        pricer=pricer,
        breathe=breathe,
        on_left_out=on_left_out,
        rewards=known_rewards(settings),
    )


def learner_of(
    store: Store,
    settings: Settings,
    *,
    owner: str,
    holds: bool = True,
    breathe: Breathe = at_once,
) -> Learner:
    """Return a learner whose drift alarms void the test of the point concerned.

    Args:
        store: A connection of its own.
        settings: How it learns.
        owner: Names this process.
        holds: Whether what it finds wrong holds the gate, in the transaction of the update.
        breathe: Called between the parts of an update.
    """

    def void(point: str, at: float) -> None:
        voided(store, point, reason="drift", who=owner, at=at)

    def hold(why: Hold, at: float) -> None:
        if holds:
            hold_stored(
                store.gate,
                limit=settings.max_failure_streak,
                reason=why.reason,
                detail=why.detail,
                who=owner,
                at=at,
            )

    return Learner(store, settings, holder=owner, void=void, hold=hold, breathe=breathe)
