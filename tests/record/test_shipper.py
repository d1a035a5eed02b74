"""Shipping: whenever it happens, and however often it dies, the hub has what was recorded."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tau_live.core import events as ev
from tau_live.core.records import Reason, RolloutQuery, Trial, rollout_id_of
from tau_live.core.settings import InferReward, Settings
from tau_live.learn.promotion.promoter import Promoter
from tau_live.record.collector import Collector
from tau_live.record.shipper import Shipped, Shipper
from tau_live.runtime.build import hub_collector
from tau_live.runtime.builtin_plugins import load_plugins
from tau_live.store import copying
from tau_live.store.opening import open_at, open_spool
from tau_live.store.retention import ExportRow
from tau_live.store.roles import Spool, Store
from tau_live.store.sealing import SEALED
from tests.contracts.making import policy, update
from tests.faults import arming
from tests.postgres import needs_postgres, server
from tests.streams import HOST, ByReward, collector_of, event, opened, stamped, streams

PLACES = {"ready_seq"}
"""What the hub gives by the order of arrival there."""


class PlantedError(Exception):
    """What a shipper dies of."""


def into_spool(spool: Spool) -> Collector:
    return Collector(spool, rewarding=ByReward(), owner="here:1:1", settles=False)


def record(collector: Collector, spool: Store, events: Sequence[ev.Event]) -> None:
    with spool.begin():
        collector.apply(events)


def ship(spool: Spool, hub: Store, *, limit: int = 128, stale_s: float = inf) -> Shipped:
    """Send one batch."""
    collector = Collector(hub, rewarding=ByReward(), owner=None, stale_s=stale_s)
    return Shipper(spool, hub, collector).ship(spool.copies(limit=limit))


def ship_all(spool: Spool, hub: Store, *, stale_s: float = inf) -> None:
    while ship(spool, hub, stale_s=stale_s).copies:
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


def reward_for(run: str, value: float, **fields: Any) -> ev.Event:
    return event(ev.Reward, run=run, value=value, at=time.time(), **fields)


def ended(run: str, *, ago_s: float, rewarded: bool = True) -> list[ev.Event]:
    """Return the events of a run that was assigned and decided, and ended some time ago."""
    at = time.time() - ago_s
    decided: dict[str, Any] = {
        "options": ("a", "b"), "chosen": "a", "applied": "a", "propensity": 0.5, "ordinal": 1,
        "point": "model", "arm": "learner", "share": 0.5,
    }  # fmt: skip
    events = [
        event(ev.RunStart, run=run, name="agent", at=at),
        event(ev.Decision, run=run, at=at, **decided),
        *([event(ev.Reward, run=run, value=1.0, at=at)] if rewarded else []),
        event(ev.RunEnd, run=run, status=ev.Status.OK, at=at),
    ]
    return [replace(one, seq=1 + place, pid=7) for place, one in enumerate(events)]


def ready_runs(hub: Store) -> list[str]:
    return [each.rollout.run_id for each in hub.rewards.ready_rollouts("model", after=0, limit=99)]


def totals(hub: Store) -> dict[str, float | None]:
    found = hub.rollouts.query(RolloutQuery(limit=None)).rollouts
    return {rollout.run_id: rollout.total_reward for rollout in found}


def send_again(spool: Spool) -> None:
    """Let all that was sent be sent again, as after a failover."""
    spool.note_heard(1.0, history="one")
    assert spool.note_heard(2.0, history="another")


@pytest.mark.parametrize("address", HUBS)
def test_what_ended_too_long_ago_is_kept_and_never_learned_from(
    address: Callable[[], str | None],
) -> None:
    with spool_and_hub(address()) as (spool, hub):
        collector = into_spool(spool)
        record(collector, spool, ended("new", ago_s=50.0))
        record(collector, spool, ended("late", ago_s=150.0))
        record(collector, spool, ended("unrewarded", ago_s=150.0, rewarded=False))
        ship_all(spool, hub, stale_s=100.0)
        first = ready_runs(hub), totals(hub), hub.counters.counts()["left_out_arrived_late"]
        record(collector, spool, [reward_for("unrewarded", 0.5), reward_for("late", 2.0, key="k")])
        ship_all(spool, hub, stale_s=100.0)
        with hub.begin():
            collector_of(hub).apply([reward_for("late", 4.0, key="own")])
        send_again(spool)
        again = ship(spool, hub)  # with no limit: what was late stays late
        runs = hub.rollouts.query(RolloutQuery()).rollouts
        left_out = {run.run_id: hub.rollouts.why_left_out(run.rollout_id) for run in runs}

        assert first == (["new"], {"new": 1.0, "late": 1.0, "unrewarded": None}, 2)
        assert (again.copies, again.ready) == (3, 0)
        assert ready_runs(hub) == ["new"]
        assert totals(hub) == {"new": 1.0, "late": 7.0, "unrewarded": 0.5}
        assert left_out == {"new": None, "late": "arrived_late", "unrewarded": "arrived_late"}
        assert hub.counters.counts()["left_out_arrived_late"] == 2
        assert [*hub.seals.changed_rows(SEALED), *hub.seals.contradictions()] == []


@pytest.mark.parametrize("address", HUBS)
def test_what_arrived_in_time_may_become_ready_whenever_its_reward_comes(
    address: Callable[[], str | None],
) -> None:
    with spool_and_hub(address()) as (spool, hub):
        collector = into_spool(spool)
        record(collector, spool, ended("slow", ago_s=150.0, rewarded=False))
        ship_all(spool, hub, stale_s=200.0)
        record(collector, spool, [reward_for("slow", 1.0)])
        ship_all(spool, hub, stale_s=100.0)  # by now it would be too late

        assert ready_runs(hub) == ["slow"]
        assert not hub.counters.counts().get("left_out_arrived_late")


@pytest.mark.parametrize("address", HUBS)
def test_a_reward_for_another_id_of_a_run_that_left_the_spool_counts(
    address: Callable[[], str | None],
) -> None:
    begins = event(ev.RunStart, run="one", aliases=("other",))
    with spool_and_hub(address()) as (spool, hub):
        collector = into_spool(spool)
        record(collector, spool, stamped([begins, *some_runs()[1:3], some_runs()[4]]))
        ship_all(spool, hub)
        spool.forget_sent(before=1e12)
        record(into_spool(spool), spool, [reward_for("other", 1.0)])
        ship_all(spool, hub)

        assert totals(hub) == {"one": 1.0}
        assert ready_runs(hub) == ["one"]


@pytest.mark.parametrize("address", HUBS)
def test_a_host_whose_clock_is_wrong_is_no_late_one(address: Callable[[], str | None]) -> None:
    with spool_and_hub(address()) as (spool, hub):
        record(into_spool(spool), spool, ended("here", ago_s=50.0))
        hub.clock = lambda: time.time() + 3 * 86_400.0
        ship_all(spool, hub, stale_s=100.0)

        assert ready_runs(hub) == ["here"]


@pytest.mark.parametrize("address", HUBS)
@pytest.mark.parametrize(("versions", "ready"), [(33, ["after"]), (32, ["before", "after"])])
def test_what_its_point_has_moved_on_from_is_kept_and_never_learned_from(
    address: Callable[[], str | None], versions: int, ready: list[str]
) -> None:
    with spool_and_hub(address()) as (spool, hub):
        collector = into_spool(spool)
        record(collector, spool, ended("before", ago_s=50.0))
        record(collector, spool, ended("after", ago_s=5.0))
        for version in range(1, versions + 1):
            made = replace(policy(version), created_at=time.time() - 20.0)
            hub.policies.add_update(replace(update(version), version=version), made)
        ship_all(spool, hub)

        assert ready_runs(hub) == ready


@pytest.mark.parametrize("address", HUBS)
def test_what_is_late_is_evidence_once(address: Callable[[], str | None]) -> None:
    own = Settings(
        reward_range=(0.0, 1.0), control_share=0.5, stale_s=100.0, infer_reward=InferReward.OFF
    )
    with spool_and_hub(address()) as (spool, hub):
        shipper = Shipper(spool, hub, hub_collector(hub, own, load_plugins(own)))
        promoter = Promoter(hub, own, holder="test")
        collector = into_spool(spool)
        for number in range(8):
            record(collector, spool, ended(f"late-{number}", ago_s=150.0))
        record(collector, spool, ended("waits", ago_s=150.0, rewarded=False))
        seen = []
        for _ in range(2):
            shipper.ship(spool.copies(limit=128))
            promoter.advance(now=time.time())
            seen.append(hub.trials.trial("model").tally)
            send_again(spool)
        record(collector, spool, [reward_for("waits", 0.5)])
        shipper.ship(spool.copies(limit=128))
        promoter.advance(now=time.time())
        tally = hub.trials.trial("model").tally

        assert [each["seen"] for each in seen] == [8.0, 8.0]
        assert tally["seen"] == 9.0
        assert ready_runs(hub) == []
        assert hub.counters.counts()["left_out_arrived_late"] == 9


def gone_from(hub: Store) -> list[str]:
    """Return the ids that a database keeps because their rollouts were deleted."""
    rows = hub.connection.rows(
        "select rollout_id from ids where forgotten_at is not null order by rollout_id"
    )
    return [row["rollout_id"] for row in rows]


def last_place(hub: Store) -> int:
    return hub.connection.count("select value from sequences where name = 'ready'")


@needs_postgres
def test_a_late_reward_does_not_bring_back_what_was_forgotten() -> None:
    gone = rollout_id_of(HOST, "gone")
    with spool_and_hub(server().new_database()) as (spool, hub):
        collector = into_spool(spool)
        record(collector, spool, [*ended("gone", ago_s=50.0), *ended("kept", ago_s=50.0)])
        ship_all(spool, hub)
        hub.retention.forget([gone])
        late = [reward_for(run, 2.0, key="late") for run in ("gone", "kept")]
        record(collector, spool, [replace(one, at=one.at + 5.0) for one in late])
        again = ship(spool, hub)

        assert (again.copies, again.ready, again.refused) == (2, 0, 0)
        assert ship(spool, hub).copies == 0
        assert totals(hub) == {"kept": 3.0}
        assert (ready_runs(hub), last_place(hub)) == (["kept"], 2)
        assert [reward.value for reward in hub.rewards.rewards(gone)] == [2.0]
        assert hub.counters.counts() == {"arrived_forgotten": 1}
        assert gone_from(hub) == [gone]
        assert [*hub.seals.changed_rows(SEALED), *hub.seals.contradictions()] == []


@needs_postgres
def test_a_run_that_began_after_one_of_its_id_was_deleted_is_stored() -> None:
    with spool_and_hub(server().new_database()) as (spool, hub):
        record(into_spool(spool), spool, ended("daily", ago_s=50.0))
        ship_all(spool, hub)
        hub.retention.forget([rollout_id_of(HOST, "daily")])
        spool.forget_sent(before=1e12)
        record(into_spool(spool), spool, ended("daily", ago_s=-5.0))
        ship_all(spool, hub)

        assert (ready_runs(hub), totals(hub)) == (["daily"], {"daily": 1.0})
        assert (gone_from(hub), hub.counters.counts()) == ([], {})


def learn_all(hub: Store) -> None:
    """Let all that is ready be learned from, and counted by the trial."""
    hub.policies.add_update(update(hub.rewards.became_ready()), None)
    hub.trials.save(Trial(point="model", watermark=1_000, revision=1))


@needs_postgres
def test_a_failover_does_not_bring_back_what_retention_deleted_until_it_is_restored() -> None:
    archived: list[ExportRow] = []
    with spool_and_hub(server().new_database()) as (spool, hub):
        collector = into_spool(spool)
        record(collector, spool, [*ended("one", ago_s=50.0), *ended("two", ago_s=50.0)])
        ship_all(spool, hub)
        before = rows(hub)
        learn_all(hub)
        swept = hub.retention.sweep(before=1e12, limit=9, archive=archived.extend).gone
        record(collector, spool, ended("three", ago_s=50.0))
        send_again(spool)
        again = ship(spool, hub)
        left, kept, counts = totals(hub), gone_from(hub), hub.counters.counts()
        hub.restore(archived)
        restored = gone_from(hub)
        spool.note_heard(3.0, history="third")
        record(collector, spool, [reward_for("one", 2.0, key="late")])
        ship_all(spool, hub)

        assert (swept, again.copies, again.ready, left) == (2, 3, 1, {"three": 1.0})
        assert kept == sorted(rollout_id_of(HOST, run) for run in ("one", "two"))
        assert counts == hub.counters.counts() == {"arrived_forgotten": 2}
        assert restored == []
        assert totals(hub) == {"one": 3.0, "two": 1.0, "three": 1.0}
        assert {*before} - {*rows(hub)} == {row for row in before if "'total_reward': 1.0" in row
                                            and "'run_id': 'one'" in row}  # fmt: skip
        assert ready_runs(hub) == ["one", "two", "three"]


@needs_postgres
def test_what_is_copied_into_a_database_that_forgot_it_is_as_any_other() -> None:
    with spool_and_hub(server().new_database()) as (spool, hub):
        collector = into_spool(spool)
        record(collector, spool, ended("one", ago_s=50.0))
        ship_all(spool, hub)
        hub.retention.forget([rollout_id_of(HOST, "one")])
        forgotten = gone_from(hub)
        copying.copy(spool, hub, tell=lambda _table, _count: None)
        send_again(spool)
        ship_all(spool, hub)

        assert (len(forgotten), gone_from(hub)) == (1, [])
        assert rows(hub) == rows(spool)
        assert not hub.counters.counts().get("arrived_forgotten")


@needs_postgres
def test_the_ids_that_a_database_locks_go_with_what_they_are_of() -> None:
    month = "update ids set forgotten_at = forgotten_at - 31 * 86400"
    with spool_and_hub(server().new_database()) as (_, hub):
        collector = collector_of(hub)

        def store_and_delete(run: str) -> None:
            record(
                collector, hub,
                [
                    event(ev.RunStart, run=run, aliases=(f"{run}-alias",), parent_run_id="never"),
                    event(ev.ModelEnd, run=run, response_id=f"{run}-response"),
                    event(ev.RunEnd, run=run, status=ev.Status.OK),
                    event(ev.Reward, run=f"{run}-never", value=1.0),
                ],
            )  # fmt: skip
            hub.retention.sweep(before=1e12, limit=9)
            hub.retention.sweep_rewards(before=1e12, limit=9)

        for number in range(4):
            store_and_delete(f"old-{number}")
        old = hub.connection.count("select count(*) from ids"), len(gone_from(hub))
        hub.connection.change(month)
        left = []
        for number in range(3):
            store_and_delete(f"new-{number}")
            left.append(len(gone_from(hub)))

        assert old == (4, 4)
        assert left == [3, 2, 3]  # each that is deleted takes two old ones with it
        assert gone_from(hub) == sorted(rollout_id_of(HOST, f"new-{number}") for number in range(3))
        assert hub.connection.count("select count(*) from ids") == 3
