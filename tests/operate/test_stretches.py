from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.records import AuditEntry, Rollout, RolloutStatus
from tau_live.operate.report.stretches import (
    EACH,
    STRETCHES,
    cuts_of,
    marks_of,
    sample_places,
    survey,
)
from tau_live.store.sqlite.store import SqliteStore
from tests.writes import writes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(tmp_path / "store.sqlite")
    yield opened
    opened.close()


def begin(store: SqliteStore, count: int) -> None:
    with store.begin():
        for number in range(count):
            writes(store).begin_rollout(
                Rollout(
                    rollout_id=f"live-{number}",
                    status=RolloutStatus.RUNNING,
                    started_at=100.0 + number,
                )
            )


@given(st.integers(1, 10**9), st.integers(0, 10**7))
def test_places_are_within_their_stretch_rising_and_no_more_than_asked(
    first: int, more: int
) -> None:
    found = sample_places(first, first + more, most=64)

    assert min(40, more + 1) <= len(found) <= 64
    assert first <= found[0] <= found[-1] <= first + more
    assert all(one < other for one, other in pairwise(found))


@pytest.mark.parametrize("period", [2, 3, 4, 7, 8, 10, 16, 60, 100])
def test_places_keep_step_with_nothing(period: int) -> None:
    found = sample_places(1, 512 * 960, most=512)

    counts = [sum(place % period == phase for place in found) for phase in range(period)]
    assert max(counts) - min(counts) < 12 + 512 / period * 0.2


@pytest.mark.parametrize("count", [1, 2, 3, 17, 200])
def test_a_small_store_is_cut_into_stretches_that_leave_nothing_out(
    store: SqliteStore, count: int
) -> None:
    begin(store, count)

    cuts = cuts_of(store, count)

    assert [seq for cut in cuts for seq in cut.seqs] == list(range(1, count + 1))
    assert max(len(cut.seqs) for cut in cuts) - min(len(cut.seqs) for cut in cuts) <= 1


def test_an_empty_store_has_no_stretches(store: SqliteStore) -> None:
    assert cuts_of(store, 0) == []


def test_of_a_large_store_no_more_than_a_bounded_number_is_looked_at(store: SqliteStore) -> None:
    begin(store, 3)

    cuts = cuts_of(store, 10**7)  # as if retention had left only three

    assert len(cuts) == STRETCHES
    assert all(len(cut.seqs) <= EACH for cut in cuts)
    stretches, _, _ = survey(store, cuts, within=None, tell=lambda _: None)
    assert sum(one.looked_at for one in stretches) == 3


def test_what_happened_is_placed_by_when_rollouts_began(store: SqliteStore) -> None:
    begin(store, 100)
    for at in (100.0, 150.0, 1e6):
        store.audit.add(
            AuditEntry(
                at=at, who="anna", action="policy_freeze", reason="r", details={"point": "model"}
            )
        )
    store.audit.add(AuditEntry(at=120.0, who="anna", action="gc", reason="old"))

    stretches, _, _ = survey(store, cuts_of(store, 100), within=None, tell=lambda _: None)
    marks = marks_of(store, stretches)

    assert [mark.kind for mark in marks] == ["promotion"] * 3
    assert [mark.place for mark in marks] == [1.0, pytest.approx(51.0, abs=2.0), 100.0]
    assert {mark.point for mark in marks} == {"model"}
