"""Builds the parts of a running system from settings: the store, the pipeline, the learner."""

from collections.abc import Callable
from pathlib import Path

from tau_live.core.addresses import address_in, where_in
from tau_live.core.events import Event
from tau_live.core.gate_keeper import hold_stored
from tau_live.core.plugins import Plugins
from tau_live.core.prices import Pricer
from tau_live.core.redaction import Redactor
from tau_live.core.settings import Settings
from tau_live.learn.learner import Learner
from tau_live.learn.monitoring import Hold
from tau_live.learn.promotion.promoter import void_test
from tau_live.record.collector import Collector
from tau_live.record.pipeline import Pipeline, known_rewards
from tau_live.record.recording import Recorder
from tau_live.record.rewards import Rewarding
from tau_live.store.opening import open_at, open_spool
from tau_live.store.roles import Spool, Store


def open_store(settings: Settings, *, busy_timeout_s: float = 5.0) -> Store:
    """Open the store of the settings.

    Raises:
        StoreError: It cannot be opened.
    """
    return open_at(
        settings.store,
        synchronous=settings.durability.value,
        busy_timeout_s=busy_timeout_s,
        key_file=settings.audit_key_file,
    )


def open_spool_of(settings: Settings, path: Path, *, hub_id: str, read_only: bool = False) -> Spool:
    """Open the spool of the settings, which becomes that of their store if it is nobody's yet.

    Args:
        settings: The store, and how it is written.
        path: The file of the spool.
        hub_id: ``Store.id`` of the store; empty while it cannot be reached.
        read_only: Whether to write nothing: what is nobody's stays so.

    Raises:
        SpoolOfOthersError: It is another store's.
        StoreError: It cannot be opened.
    """
    spool = open_spool(
        path,
        synchronous=settings.durability.value,
        read_only=read_only,
        key_file=settings.audit_key_file,
    )
    try:
        spool.belong_to(where_in(address_in(settings.store) or str(settings.store)), id_=hub_id)
    except BaseException:
        spool.close()
        raise
    return spool


def hub_collector(store: Store, settings: Settings, plugins: Plugins) -> Collector:
    """Return what stores and settles in a hub what comes from a spool."""
    rewarding = Rewarding(settings, plugins)
    return Collector(store, rewarding=rewarding, owner=None, stale_s=settings.stale_s)


def open_prompts(settings: Settings) -> Store:
    """Open the store that prompts are published in, for reading.

    Raises:
        StoreError: It cannot be opened.
    """
    path = settings.prompts_store or settings.store
    return open_at(path, busy_timeout_s=0.1, read_only=True)


def pipeline_of(  # noqa: PLR0913  # its parts and callbacks, all keyword-only
    store: Store,
    settings: Settings,
    *,
    owner: str | None,
    plugins: Plugins,
    recorder: Recorder | None,
    on_poison: Callable[[Event, Exception], None],
    on_unrecorded: Callable[[int, OSError], None] = lambda _number, _error: None,
    pricer: Pricer | None = None,
    on_left_out: Callable[[int], None] = lambda _: None,
    spools: bool = False,
) -> Pipeline:
    """Return the pipeline of events into a store, or into a spool."""
    return Pipeline(
        store,
        collector=Collector(
            store,
            rewarding=Rewarding(settings, plugins),
            owner=owner,
            redact=plugins.redact,
            settles=not spools,
        ),
        redactor=Redactor(settings.content.value, settings.payload_limit),
        plugins=plugins,
        recorder=recorder,
        on_poison=on_poison,
        on_unrecorded=on_unrecorded,
        pricer=pricer,
        on_left_out=on_left_out,
        rewards=known_rewards(settings),
    )


def learner_of(
    store: Store,
    settings: Settings,
    *,
    owner: str,
    holds: bool = True,
) -> Learner:
    """Return a learner whose drift alarms void the test of the point concerned.

    Args:
        store: The learner's own store object.
        settings: How it learns.
        owner: The name of this process.
        holds: Whether its monitors hold the gate, in the transaction of the update.
    """

    def void(point: str, at: float) -> None:
        void_test(store, point, reason="drift", who=owner, at=at)

    def hold_gate(hold: Hold, at: float) -> None:
        if holds:
            hold_stored(
                store.gate,
                limit=settings.max_failure_streak,
                reason=hold.reason,
                detail=hold.detail,
                who=owner,
                at=at,
            )

    return Learner(store, settings, holder=owner, void=void, hold=hold_gate)
