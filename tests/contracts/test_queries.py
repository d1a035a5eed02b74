"""Rollouts by what is asked for, in pages, and those that are waited for."""

from collections.abc import Callable
from threading import Thread

import pytest

from tau_live.core.errors import StoreBusyError
from tau_live.core.records import Rollout, RolloutMode, RolloutQuery, RolloutStatus
from tau_live.store.roles import Store
from tests.contracts.making import begun
from tests.writes import writes

OpenStore = Callable[[], Store]


def _filled(store: Store) -> None:
    for number in range(6):
        writes(store).begin_rollout(
            Rollout(
                rollout_id=f"r-{number}",
                host="llm" if number % 2 else "smol",
                name="triage" if number < 3 else "answer",
                session_id="s" if number > 3 else None,
                parent_id="r-0" if number in (1, 5) else None,
                status=RolloutStatus.RUNNING if number else RolloutStatus.FAILED,
                mode=RolloutMode.TRAIN if number == 2 else None,
                started_at=10.0 - number,
                ended_at=20.0 + number % 3,
            )
        )
        if number:
            writes(store).mark_ready(f"r-{number}", total_reward=float(-number))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (RolloutQuery(), "012345"),
        (RolloutQuery(statuses=[RolloutStatus.FAILED]), "0"),
        (RolloutQuery(statuses=list(RolloutStatus)), "012345"),
        (RolloutQuery(mode=RolloutMode.TRAIN), "2"),
        (RolloutQuery(mode=RolloutMode.TEST), ""),
        (RolloutQuery(ids=["r-4", "r-1", "unknown"]), "14"),
        (RolloutQuery(host="llm"), "135"),
        (RolloutQuery(host="llm", name="triage"), "1"),
        (RolloutQuery(session_id="s"), "45"),
        (RolloutQuery(parent_id="r-0"), "15"),
        (RolloutQuery(since=8.0), "012"),
        (RolloutQuery(until=8.0), "345"),
        (RolloutQuery(since=7.0, until=9.0), "23"),
        (RolloutQuery(descending=True), "543210"),
        (RolloutQuery(order_by="started_at"), "543210"),
        (RolloutQuery(order_by="ended_at"), "031425"),
        (RolloutQuery(order_by="ended_at", descending=True), "524130"),
        (RolloutQuery(order_by="total_reward", ids=["r-1", "r-2", "r-3"]), "321"),
        (RolloutQuery(name="'; drop table rollouts; --"), ""),
    ],
)
def test_rollouts_are_found_by_what_is_asked(
    store: Store, query: RolloutQuery, expected: str
) -> None:
    _filled(store)

    page = store.rollouts.query(query)

    assert "".join(r.rollout_id[-1] for r in page.rollouts) == expected
    assert page.total == len(expected)


def test_pages_do_not_overlap_and_know_the_total(store: Store) -> None:
    _filled(store)

    pages = [
        store.rollouts.query(RolloutQuery(host="llm", limit=2, offset=offset))
        for offset in (0, 2, 4)
    ]

    assert [[r.rollout_id for r in page.rollouts] for page in pages] == [
        ["r-1", "r-3"],
        ["r-5"],
        [],
    ]
    assert {page.total for page in pages} == {3}


def test_the_next_page_goes_on_behind_the_last(store: Store) -> None:
    _filled(store)
    first = store.rollouts.query(RolloutQuery(limit=4))

    second = store.rollouts.query(RolloutQuery(limit=4, after=first.rollouts[-1].seq))

    assert [r.rollout_id for r in second.rollouts] == ["r-4", "r-5"]
    assert second.total == 6


def test_an_unknown_order_is_a_bug_of_the_caller(store: Store) -> None:
    with pytest.raises(ValueError, match="order_by"):
        store.rollouts.query(RolloutQuery(order_by="seq; drop table rollouts"))


def test_waiting_ends_when_all_are_there(opened: OpenStore) -> None:
    waiter, mover = opened(), opened()
    for number in (1, 2):
        begun(mover, f"live-{number}")
    looked_at = list(waiter.rollouts.query(RolloutQuery()).rollouts)
    found: list[Rollout] = []

    def wait() -> None:
        found.extend(
            waiter.queue.wait(
                ["live-1", "live-2"],
                statuses=[RolloutStatus.SUCCEEDED, RolloutStatus.FAILED],
                timeout_s=30.0,
            )
        )

    thread = Thread(target=wait)
    thread.start()
    writes(mover).set_status("live-2", RolloutStatus.SUCCEEDED, at=9.0)
    writes(mover).set_status("live-1", RolloutStatus.FAILED, at=9.0)
    thread.join(timeout=10)

    assert {r.status for r in looked_at} == {RolloutStatus.RUNNING}
    assert {r.rollout_id: r.status.value for r in found} == {
        "live-1": "failed",
        "live-2": "succeeded",
    }


def test_waiting_gives_up_with_those_that_are_there(store: Store) -> None:
    begun(store, "live-1")
    begun(store, "live-2")
    writes(store).set_status("live-2", RolloutStatus.SUCCEEDED, at=9.0)

    found = store.queue.wait(
        ["live-1", "live-2", "unknown"], statuses=[RolloutStatus.SUCCEEDED], timeout_s=0.0
    )

    assert [r.rollout_id for r in found] == ["live-2"]


@pytest.mark.parametrize(
    ("ids", "statuses"), [([], [RolloutStatus.RUNNING]), (["live-1"], [])], ids=["ids", "statuses"]
)
def test_waiting_for_nothing_does_not_wait(
    store: Store, ids: list[str], statuses: list[RolloutStatus]
) -> None:
    begun(store)

    assert store.queue.wait(ids, statuses=statuses, timeout_s=60.0) == []


@pytest.mark.timed
def test_a_text_that_repeats_itself_is_searched_in_no_time(store: Store) -> None:
    for number in range(60):
        writes(store).begin_rollout(
            Rollout(rollout_id=f"r-{number}", metadata={"note": "0" * 200_000})
        )
    query = RolloutQuery(text="0" * 999 + "1")

    with store.within(3.0):  # ``like`` takes the product of both lengths
        found = store.rollouts.query(query)

    assert found.total == 0


@pytest.mark.slow
def test_reading_is_interrupted_after_a_while(store: Store) -> None:
    for number in range(200):
        writes(store).begin_rollout(
            Rollout(rollout_id=f"r-{number}", metadata={"note": "0" * 200_000})
        )

    with pytest.raises(StoreBusyError, match="took longer than"), store.within(0.001):
        store.rollouts.query(RolloutQuery(text="1"))
    assert store.rollouts.query(RolloutQuery(text="r-77")).total == 1
