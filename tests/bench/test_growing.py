"""The benches of growth and memory still run, on sizes that show no more than that."""

import pytest

from tests.bench import growth, memory
from tests.bench.growth import WORK, Grown
from tests.bench.memory import Held
from tests.writes import writes


@pytest.mark.slow
def test_every_question_is_asked_of_both_stores() -> None:
    found = growth.measure(1, few=300, sizes=(600,))

    assert [one.work for one in found] == [f"{name}, 600 rollouts" for name in WORK]
    assert all(min(one.ours + one.theirs) > 0.0 for one in found)


@pytest.mark.slow
def test_what_is_asked_for_is_there() -> None:
    with growth.stores((400,), lambda _: None) as (grown,):
        shown = grown.store.rollouts.rollout(grown.any_id())
        spans = grown.store.rollouts.spans(shown.rollout_id)
        decisions = grown.store.decisions.decisions(shown.rollout_id)
        last = writes(grown.store).last_of(f"session-{grown.any_number() // 10}")
        learned = grown.store.retention.obstacles(before=1e9, look=400)

    assert isinstance(grown, Grown)
    assert (len(spans), len(decisions), shown.ready_seq) == (3 + 2, 1, shown.seq)
    assert list(last) == ["tau_live"]
    assert learned.forgettable == 400


@pytest.mark.slow
def test_memory_is_measured_in_processes_of_their_own() -> None:
    found = memory.measure(1, runs=40, waiting=400, events=1_200)

    assert [one.what.split()[0] for one in found] == ["bytes", "bytes", "MB", "handles", "threads"]


def test_a_median_beyond_its_bound_misses() -> None:
    held = Held("bytes", [1.0, 9.0, 5.0], most=4.0)

    assert (held.found, held.as_data()["met"]) == (5.0, False)
