"""Rollouts and attempts: what is stored, what a move does besides, and what can be asked."""

import pytest
from msgspec.structs import replace

from tau_live.core.errors import (
    StoreError,
    StoreUnavailableError,
    UnknownError,
)
from tau_live.core.records import (
    Amendment,
    Attempt,
    AttemptStatus,
    Reason,
    Rollout,
    RolloutConfig,
    RolloutMode,
    RolloutQuery,
    RolloutStatus,
)
from tau_live.store.roles import Store
from tests.contracts.making import LIVE, attempt, begun, queued, rollout, span, steps
from tests.writes import forget_old, writes

FULL = Rollout(
    rollout_id="live-full",
    host="llm",
    run_id="run 'quoted' \u2603",
    session_id="s-1",
    parent_id="live-parent",
    name="triage",
    status=RolloutStatus.FAILED,
    mode=RolloutMode.VAL,
    reason=Reason.LIMIT,
    error_type="TurnLimit",
    input={"question": ["why", 1, 2.5, None, True]},
    config=RolloutConfig(
        max_attempts=3, retry_on=(AttemptStatus.TIMEOUT,), timeout_s=2.5, unresponsive_s=0.5
    ),
    metadata={"nested": {"list": [1]}},
    owner="host:1",
    worker_id="w-1",
    attempt_count=2,
    started_at=1.25,
    ended_at=2.5,
)


@pytest.mark.parametrize("given", [FULL, Rollout(rollout_id="live-bare")], ids=["full", "bare"])
def test_a_rollout_comes_back_as_it_was_given(store: Store, given: Rollout) -> None:
    stored = writes(store).begin_rollout(given)

    found = store.rollouts.rollout(given.rollout_id)

    assert stored
    assert replace(found, seq=0) == given
    assert found.seq > 0


def test_a_rollout_is_stored_once(store: Store) -> None:
    writes(store).begin_rollout(FULL)

    again = writes(store).begin_rollout(replace(FULL, name="another"))

    assert not again
    assert store.rollouts.rollout(FULL.rollout_id).name == "triage"


def test_what_is_not_there_is_said_to_be_not_there(store: Store) -> None:
    assert store.rollouts.find_rollout("live-none") is None
    with pytest.raises(UnknownError, match="rollout 'live-none' not found"):
        store.rollouts.rollout("live-none")


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(replace(rollout(), input={"x": object()}), id="not JSON"),
        pytest.param(replace(rollout(), metadata={"x": "\ud800"}), id="surrogate in JSON"),
        pytest.param(replace(rollout(), name="\ud800"), id="surrogate"),
        pytest.param(replace(rollout(), attempt_count=2**70), id="too large"),
    ],
)
def test_what_cannot_be_stored_is_an_error_of_ours_and_leaves_nothing(
    store: Store, given: Rollout
) -> None:
    with pytest.raises(StoreError) as raised:
        writes(store).begin_rollout(given)

    assert not isinstance(raised.value, StoreUnavailableError)
    assert store.rollouts.find_rollout(LIVE) is None


def test_a_time_that_is_no_time_is_refused(store: Store) -> None:
    begun(store)

    with pytest.raises(StoreError):
        writes(store).add_span(span(started_at=float("nan")))

    assert steps(store) == []


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (RolloutStatus.SUCCEEDED, Reason.COMPLETED),
        (RolloutStatus.FAILED, Reason.ERROR),
        (RolloutStatus.CANCELLED, Reason.CANCELLED),
    ],
)
def test_every_end_has_a_reason(store: Store, end: RolloutStatus, reason: Reason) -> None:
    writes(store).begin_rollout(rollout())

    writes(store).set_status(LIVE, end, at=9.0)

    found = store.rollouts.rollout(LIVE)
    assert (found.reason, found.ended_at) == (reason, 9.0)


def test_an_end_keeps_the_reason_and_the_error_it_was_given(store: Store) -> None:
    writes(store).begin_rollout(rollout())

    writes(store).set_status(
        LIVE, RolloutStatus.FAILED, at=9.0, reason=Reason.LIMIT, error_type="TurnLimit"
    )

    found = store.rollouts.rollout(LIVE)
    assert (found.reason, found.error_type) == (Reason.LIMIT, "TurnLimit")


def test_a_failed_rollout_that_is_cancelled_keeps_the_time_of_its_end(store: Store) -> None:
    writes(store).begin_rollout(rollout())
    writes(store).set_status(LIVE, RolloutStatus.FAILED, at=5.0, error_type="KeyError")

    writes(store).set_status(LIVE, RolloutStatus.CANCELLED, at=9.0)

    found = store.rollouts.rollout(LIVE)
    assert (found.ended_at, found.reason, found.error_type) == (5.0, Reason.CANCELLED, "KeyError")


def test_a_failed_rollout_that_runs_again_has_no_end(store: Store) -> None:
    writes(store).begin_rollout(rollout())
    writes(store).set_status(LIVE, RolloutStatus.FAILED, at=5.0, error_type="KeyError")

    writes(store).set_status(LIVE, RolloutStatus.REQUEUING, at=6.0)
    writes(store).set_status(LIVE, RolloutStatus.RUNNING, at=7.0)

    found = store.rollouts.rollout(LIVE)
    assert (found.ended_at, found.reason, found.error_type) == (None, None, None)
    assert found.started_at == 1.0


def test_a_rollout_starts_when_it_first_moves_on(store: Store) -> None:
    writes(store).begin_rollout(rollout(status=RolloutStatus.QUEUING, started_at=None))

    writes(store).set_status(LIVE, RolloutStatus.PREPARING, at=4.0)
    writes(store).set_status(LIVE, RolloutStatus.RUNNING, at=5.0)

    assert store.rollouts.rollout(LIVE).started_at == 4.0


@pytest.mark.parametrize(
    ("end", "becomes", "message"),
    [
        (RolloutStatus.SUCCEEDED, AttemptStatus.SUCCEEDED, None),
        (RolloutStatus.FAILED, AttemptStatus.FAILED, "KeyError"),
        (RolloutStatus.CANCELLED, AttemptStatus.FAILED, "KeyError"),
        (RolloutStatus.REQUEUING, AttemptStatus.FAILED, "KeyError"),
    ],
)
def test_no_attempt_outlives_its_rollout(
    store: Store, end: RolloutStatus, becomes: AttemptStatus, message: str | None
) -> None:
    begun(store)

    writes(store).set_status(LIVE, end, at=9.0, error_type="KeyError")

    [found] = store.rollouts.attempts(LIVE)
    assert (found.status, found.ended_at, found.error_message) == (becomes, 9.0, message)


def test_an_attempt_that_is_over_stays_as_it_ended(store: Store) -> None:
    begun(store)
    writes(store).set_attempt_status(LIVE, 1, AttemptStatus.TIMEOUT, at=8.0, error_message="slow")

    writes(store).set_status(LIVE, RolloutStatus.FAILED, at=9.0, reason=Reason.TIMEOUT)

    [found] = store.rollouts.attempts(LIVE)
    assert (found.status, found.ended_at, found.error_message) == ("timeout", 8.0, "slow")


def test_a_late_start_fills_in_what_is_not_known(store: Store) -> None:
    writes(store).begin_rollout(replace(rollout(), metadata={"kept": 1}))

    writes(store).amend_rollout(
        LIVE,
        Amendment(
            name="triage",
            session_id="s-1",
            parent_id="live-0",
            input={"question": "why"},
            metadata={"kept": 2, "new": 3},
        ),
    )

    found = store.rollouts.rollout(LIVE)
    assert (found.name, found.session_id, found.parent_id) == ("triage", "s-1", "live-0")
    assert found.input == {"question": "why"}
    assert found.metadata == {"kept": 1, "new": 3}


def test_a_late_start_changes_nothing_that_is_known(store: Store) -> None:
    writes(store).begin_rollout(FULL)
    before = store.rollouts.rollout(FULL.rollout_id)

    writes(store).amend_rollout(
        FULL.rollout_id, Amendment(name="x", session_id="x", parent_id="x", input="x", metadata={})
    )

    assert store.rollouts.rollout(FULL.rollout_id) == before


def test_only_what_is_stored_can_be_amended(store: Store) -> None:
    with pytest.raises(UnknownError, match="rollout 'live-1' not found"):
        writes(store).amend_rollout(LIVE, Amendment(name="triage"))


def test_an_attempt_comes_back_as_it_was_given(store: Store) -> None:
    given = Attempt(
        rollout_id=LIVE,
        number=2,
        status=AttemptStatus.FAILED,
        execution="e-1",
        worker_id="w-1",
        started_at=2.0,
        last_heartbeat_at=3.0,
        ended_at=4.0,
        error_message="KeyError",
    )
    writes(store).begin_rollout(rollout())

    stored = writes(store).begin_attempt(given)

    assert stored
    assert store.rollouts.attempts(LIVE) == [given]
    assert store.rollouts.rollout(LIVE).attempt_count == 2


def test_an_attempt_is_stored_once(store: Store) -> None:
    begun(store)

    again = writes(store).begin_attempt(replace(attempt(), execution="another"))

    assert not again
    assert [a.execution for a in store.rollouts.attempts(LIVE)] == [""]


def test_an_attempt_needs_its_rollout(store: Store) -> None:
    with pytest.raises(UnknownError, match="rollout 'live-1' not found"):
        writes(store).begin_attempt(attempt())


def test_attempts_are_in_the_order_of_their_numbers(store: Store) -> None:
    writes(store).begin_rollout(rollout())
    for number in (10, 2, 1):
        writes(store).begin_attempt(attempt(number=number))

    found = [a.number for a in store.rollouts.attempts(LIVE)]

    assert found == [1, 2, 10]


def test_fault_15_rollouts_are_in_the_order_of_arrival_not_of_their_ids(store: Store) -> None:
    for number in (2, 10, 1):
        writes(store).begin_rollout(rollout(f"train-{number}", started_at=float(number)))

    page = store.rollouts.query(RolloutQuery())

    assert [r.rollout_id for r in page.rollouts] == ["train-2", "train-10", "train-1"]


def test_fault_16_what_a_process_left_open_can_be_found(store: Store) -> None:
    begun(store, "live-1", owner="dead")
    begun(store, "live-2", owner="alive")
    begun(store, "live-3", owner="dead")
    begun(store, "live-4")
    writes(store).set_status("live-3", RolloutStatus.FAILED, at=9.0)

    assert store.rollouts.owners() == ["alive", "dead"]
    assert store.rollouts.open_rollouts("dead") == ["live-1"]
    assert store.rollouts.open_rollouts("nobody") == []


def test_a_rollout_that_was_never_queued_is_not_put_into_the_queue(store: Store) -> None:
    store.queue.enqueue(queued(), at=1.0)
    begun(store)

    writes(store).set_status(LIVE, RolloutStatus.REQUEUING, at=2.0)

    assert store.queue.length() == 1


def test_rollouts_are_counted_by_status_through_every_move(store: Store) -> None:
    for number in range(3):
        writes(store).begin_rollout(rollout(f"live-{number}", RolloutStatus.RUNNING))
    writes(store).set_status("live-0", RolloutStatus.SUCCEEDED, at=5.0)
    writes(store).set_status("live-1", RolloutStatus.FAILED, at=5.0)
    forget_old(store, before=9.0, limit=1)

    counts = store.rollouts.counts_by_status()

    assert sum(counts.values()) == 2
    assert counts[RolloutStatus.RUNNING] == 1


def test_ids_are_found_by_how_they_begin(store: Store) -> None:
    for rollout_id in ("live-ab1", "live-ab2", "live-b1", "other"):
        writes(store).begin_rollout(rollout(rollout_id))

    assert store.rollouts.ids_beginning_with("live-ab", limit=9) == ["live-ab1", "live-ab2"]
    assert store.rollouts.ids_beginning_with("live-", limit=2) == ["live-ab1", "live-ab2"]
    assert store.rollouts.ids_beginning_with("%", limit=2) == []


def test_another_process_can_take_a_rollout_over(store: Store) -> None:
    writes(store).begin_rollout(rollout("live-1", RolloutStatus.RUNNING, owner="one"))

    writes(store).take_over("live-1", "two")

    assert store.rollouts.open_rollouts("one") == []
    assert store.rollouts.open_rollouts("two") == ["live-1"]
    with pytest.raises(UnknownError):
        writes(store).take_over("nobody", "two")
