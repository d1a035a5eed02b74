"""Shipping: whenever it happens, and however often it dies, the hub has what was recorded."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tau_live.core import events as ev
from tau_live.core.records import Reason, RolloutQuery
from tau_live.record.collector import Collector
from tau_live.record.shipper import Shipped, Shipper
from tau_live.store.opening import open_at, open_spool
from tau_live.store.roles import Spool, Store
from tests.faults import arming
from tests.postgres import needs_postgres, server
from tests.streams import ByReward, collector_of, event, opened, stamped, streams

PLACES = {"ready_seq"}
"""What the hub gives by the order of arrival there."""


class PlantedError(Exception):
    """What a shipper dies of."""


def into_spool(spool: Spool) -> Collector:
    return Collector(spool, rewarding=ByReward(), owner="here:1:1", settles=False)


def record(collector: Collector, spool: Store, events: Sequence[ev.Event]) -> None:
    with spool.begin():
        collector.apply(events)


def ship(spool: Spool, hub: Store, *, limit: int = 128) -> Shipped:
    """Send one batch."""
    shipper = Shipper(spool, hub, collector_of(hub, owner=None))
    return shipper.ship(spool.copies(limit=limit))


def ship_all(spool: Spool, hub: Store) -> None:
    while ship(spool, hub).copies:
        pass


def end(collector: Collector, spool: Store) -> None:
    with spool.begin():
        collector.end_open(reason=Reason.ABANDONED, at=1_000.0)


def rows(store: Store) -> list[str]:
    """Return all that is exported but places, without its order."""
    return sorted(
        repr({name: value for name, value in row.items() if name not in PLACES})
        for row in store.export()
    )


def recorded_at_once(events: Sequence[ev.Event]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder, closing(opened(Path(folder))) as store:
        collector = collector_of(store)
        record(collector, store, events)
        end(collector, store)
        return rows(store)


@contextmanager
def spool_and_hub(address: str | None = None) -> Iterator[tuple[Spool, Store]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(open_spool(Path(folder) / "spool.sqlite")) as spool,
        closing(open_at(address or f"{folder}/hub.sqlite")) as hub,
    ):
        yield spool, hub


def some_runs() -> list[ev.Event]:
    """Return the events of two runs: one that is retried, one whose reward comes late."""
    decided: dict[str, Any] = {
        "options": ("a", "b"), "chosen": "a", "applied": "a", "propensity": 0.5, "ordinal": 1,
        "point": "model", "arm": "learner", "share": 1.0,
    }  # fmt: skip
    return stamped(
        [
            event(ev.RunStart, run="one", name="agent"),
            event(ev.Decision, run="one", **decided),
            event(ev.ToolStart, run="one", tool="grep", call_id="c"),
            event(ev.Reward, run="one", value=1.0),
            event(ev.RunEnd, run="one", status=ev.Status.OK),
            event(ev.RunStart, run="two", name="agent", execution="x"),
            event(ev.RunEnd, run="two", status=ev.Status.ERROR, execution="x"),
            event(ev.RunStart, run="two", name="agent", execution="y"),
            event(ev.RunEnd, run="two", status=ev.Status.OK, execution="y"),
            event(ev.Reward, run="two", value=0.5),
            event(ev.ToolEnd, run="one", tool="grep", call_id="c", is_error=True),
            event(ev.Reward, run="two", value=0.25, key="second"),
        ]
    )


SLOW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@pytest.mark.slow
@SLOW
@given(streams(), st.data())
def test_the_hub_has_what_would_have_been_recorded_there(
    events: list[ev.Event], data: st.DataObject
) -> None:
    with spool_and_hub() as (spool, hub):
        collector, rest = into_spool(spool), list(events)
        while rest:
            size = data.draw(st.integers(1, len(rest)))
            record(collector, spool, rest[:size])
            rest = rest[size:]
            point = data.draw(st.sampled_from(["", "ship.read", "ship.stored", "ship.marked"]))
            with suppress(PlantedError):
                if point:
                    with arming.arm(point, _die):
                        ship(spool, hub, limit=data.draw(st.integers(1, 4)))
                else:
                    ship(spool, hub, limit=data.draw(st.integers(1, 4)))
        end(collector, spool)
        ship_all(spool, hub)

        assert rows(hub) == recorded_at_once(events)


def _die() -> None:
    raise PlantedError


HUBS = [
    pytest.param(lambda: None, id="sqlite"),
    pytest.param(lambda: server().new_database(), id="postgres", marks=needs_postgres),
]


@pytest.mark.parametrize("address", HUBS)
@pytest.mark.parametrize("cut", range(1, len(some_runs()) + 1))
def test_what_comes_after_a_rollout_was_sent_is_sent_too(
    address: Callable[[], str | None], cut: int
) -> None:
    events = some_runs()
    with spool_and_hub(address()) as (spool, hub):
        collector = into_spool(spool)
        record(collector, spool, events[:cut])
        ship_all(spool, hub)
        record(collector, spool, events[cut:])
        ship_all(spool, hub)
        arms = [
            (one.rollout.run_id, one.arm, one.share)
            for one in hub.trials.assignments("model", after=0, limit=9)
        ]
        ready = [rollout.ready_seq for rollout in hub.rollouts.query(RolloutQuery()).rollouts]

        assert rows(hub) == recorded_at_once(events)
        assert sorted(filter(None, ready)) == [1, 2]
        assert arms == [("one", "learner", 1.0)]


@pytest.mark.parametrize("address", HUBS)
def test_what_arrives_twice_changes_nothing(address: Callable[[], str | None]) -> None:
    with spool_and_hub(address()) as (spool, hub):
        collector = into_spool(spool)
        record(collector, spool, some_runs())
        copies = spool.copies(limit=8)
        ship_all(spool, hub)
        before, counts = rows(hub), hub.counters.counts()
        with hub.begin():
            applied = collector_of(hub, owner=None).take_in(copies, now=2_000.0)

        assert (rows(hub), hub.counters.counts()) == (before, counts)
        assert (applied.finished, applied.ready) == (0, 0)
        assert ship(spool, hub).copies == 0


def test_an_open_rollout_stays_until_it_has_ended() -> None:
    with spool_and_hub() as (spool, hub):
        record(into_spool(spool), spool, some_runs()[:4])
        ship_all(spool, hub)

        assert hub.rollouts.query(RolloutQuery()).total == 0
        assert spool.state().unsent == 1


def test_what_was_changed_while_it_was_sent_is_sent_again() -> None:
    events = some_runs()
    with spool_and_hub() as (spool, hub):
        collector = into_spool(spool)
        record(collector, spool, events[:-1])
        shipper = Shipper(spool, hub, collector_of(hub, owner=None))
        copies = spool.copies(limit=8)
        with arming.arm("ship.stored", lambda: record(collector, spool, events[-1:])):
            shipper.ship(copies)
        again = ship(spool, hub)

        assert again.copies == 1
        assert rows(hub) == recorded_at_once(events)


def test_a_rollout_that_the_hub_refuses_takes_no_other_with_it() -> None:
    with spool_and_hub() as (spool, hub):
        record(into_spool(spool), spool, some_runs())
        [first, second] = spool.copies(limit=8)
        broken = first._replace(arms=[("model", "learner", None, None)])
        shipped = Shipper(spool, hub, collector_of(hub, owner=None)).ship([broken, second])

        assert (shipped.copies, shipped.refused) == (2, 1)
        assert hub.rollouts.query(RolloutQuery()).total == 1
        assert hub.counters.counts()["dropped_refused_by_hub"] == 1


def test_counters_of_the_spool_become_those_of_the_hub() -> None:
    with spool_and_hub() as (spool, hub):
        record(into_spool(spool), spool, some_runs())
        spool.counters.add({"dropped_queue_full": 3})
        ship_all(spool, hub)
        spool.counters.add({"dropped_queue_full": 2})
        assert Shipper(spool, hub, collector_of(hub)).next_copies() == []
        ship(spool, hub)

        assert hub.counters.counts()["dropped_queue_full"] == 5
        assert not any(spool.counters.counts().values())


def test_what_was_sent_is_forgotten_after_a_while_and_nothing_else() -> None:
    events = [each for each in some_runs() if not isinstance(each, ev.ToolEnd)]
    with spool_and_hub() as (spool, hub):
        collector = into_spool(spool)
        record(collector, spool, events[:7])
        ship_all(spool, hub)
        record(collector, spool, events[7:])
        kept = spool.forget_sent(before=0.0)
        gone = spool.forget_sent(before=1e12)
        left = [rollout.run_id for rollout in spool.rollouts.query(RolloutQuery()).rollouts]
        ship_all(spool, hub)

        assert (kept, gone, left) == (0, 1, ["two"])
        assert rows(hub) == recorded_at_once(events)
