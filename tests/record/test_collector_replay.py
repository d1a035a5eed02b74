"""The collector: the same events make the same rows, however often and however cut they come."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tau_live.core import events as ev
from tau_live.store.sqlite.store import SqliteStore
from tests.streams import collector_of, event, opened, runs, stamped, streams


@contextmanager
def a_store() -> Iterator[SqliteStore]:
    with tempfile.TemporaryDirectory() as folder:
        store = opened(Path(folder))
        try:
            yield store
        finally:
            store.close()


def exported(store: SqliteStore) -> list[dict[str, object]]:
    return [dict(row) for row in store.export()]


def once(events: Sequence[ev.Event]) -> list[dict[str, object]]:
    with a_store() as store:
        with store.begin():
            collector_of(store).apply(events)
        return exported(store)


def in_any_place(rows: list[dict[str, object]]) -> list[str]:
    """Return the rows without their order.

    Of two values of one reward with the very same time the later to arrive is kept, in a new place.
    When both come again, either replaces the other, and what stays stands further behind.
    """
    return sorted(map(repr, rows))


CORRECTED_AT_ONCE = stamped(
    [
        event(ev.RunStart, run="run-1"),
        event(ev.RunStart, run="run-2"),
        event(ev.Reward, run="run-1", value=0.0),
        event(ev.Reward, run="run-1", value=1.0),
        event(ev.Reward, run="run-2", value=0.5),
    ]
)
"""The third and the fourth have the same time."""

SLOW = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@pytest.mark.slow
@SLOW
@given(streams(), st.data())
def test_batches_of_any_size_make_the_same_rows(
    events: list[ev.Event], data: st.DataObject
) -> None:
    with a_store() as store:
        collector = collector_of(store)
        rest = list(events)
        while rest:
            size = data.draw(st.integers(1, len(rest)))
            with store.begin():
                collector.apply(rest[:size])
            rest = rest[size:]
        found = exported(store)

    assert found == once(events)


@pytest.mark.slow
@SLOW
@given(streams(), st.booleans())
@example(CORRECTED_AT_ONCE, False)
def test_a_stream_that_comes_again_adds_nothing(events: list[ev.Event], restarted: bool) -> None:
    with a_store() as store:
        collector = collector_of(store)
        with store.begin():
            collector.apply(events)
        again = collector_of(store) if restarted else collector
        with store.begin():
            applied = again.apply(events)
        found = exported(store)

    assert in_any_place(found) == in_any_place(once(events))
    assert applied == (0, 0, 0)


class InterruptedTestError(Exception):
    """What a test ends a transaction with."""


@pytest.mark.slow
@SLOW
@given(streams(), st.data())
def test_a_stream_that_was_interrupted_and_comes_again_makes_the_same_rows(
    events: list[ev.Event], data: st.DataObject
) -> None:
    kept = data.draw(st.integers(0, len(events)))
    lost = data.draw(st.integers(kept, len(events)))
    with a_store() as store:
        collector = collector_of(store)
        with store.begin():
            collector.apply(events[:kept])
        with pytest.raises(InterruptedTestError), store.begin():
            collector.apply(events[kept:lost])
            raise InterruptedTestError
        collector.forget()
        with store.begin():
            collector.apply(events)
        found = exported(store)

    assert in_any_place(found) == in_any_place(once(events))


@pytest.mark.slow
@SLOW
@given(runs(executions=1), st.randoms(use_true_random=False))
def test_the_events_of_a_run_in_any_order_lose_nothing(
    drawn: list[list[ev.Event]], random: Random
) -> None:
    one_attempt = [
        [e for e in mine if not isinstance(e, ev.RunInterrupt | ev.RunResume)] for mine in drawn
    ]
    events = stamped([e for mine in one_attempt for e in mine])
    shuffled = list(events)
    random.shuffle(shuffled)

    found, expected = once(shuffled), once(events)

    assert outcome(found) == outcome(expected)


def outcome(rows: list[dict[str, object]]) -> set[tuple[object, ...]]:
    """Return what must not depend on the order: what there is, and how it ended."""
    told = {
        "rollouts": ("rollout_id", "status", "reason", "ended_at", "parent_id"),
        "attempts": ("rollout_id", "number", "status", "execution", "ended_at"),
        "spans": ("rollout_id", "attempt", "span_id", "kind"),
        "decisions": ("rollout_id", "attempt", "ordinal", "propensity"),
        "rewards": ("rollout_id", "key", "at"),
    }
    return {tuple(row[name] for name in ("table", *told[str(row["table"])])) for row in rows}
