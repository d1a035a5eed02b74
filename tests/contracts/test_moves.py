"""Both lifecycles: every pair of statuses, and what two who move at once can do."""

from collections.abc import Callable, Mapping
from threading import Barrier, Thread

import pytest

from tau_live.core.errors import InvalidTransitionError, UnknownError
from tau_live.core.records import AttemptStatus, Reason, RolloutStatus
from tau_live.store.roles import Store
from tests.contracts.making import LIVE, attempt, begun, rollout
from tests.writes import writes

OpenStore = Callable[[], Store]

# Source: the reference's contract, T1 and T2, written out here once more so that an error in
# the product's own table is seen; beyond it, what waits may be failed, and ended as succeeded.
ROLLOUTS: Mapping[str, str] = {
    "queuing": "preparing running succeeded failed cancelled requeuing",
    "preparing": "running succeeded failed cancelled requeuing",
    "running": "succeeded failed cancelled requeuing",
    "failed": "requeuing cancelled",
    "requeuing": "preparing running succeeded failed cancelled",
    "succeeded": "",
    "cancelled": "",
}
ATTEMPTS: Mapping[str, str] = {
    "preparing": "running failed succeeded timeout unresponsive",
    "running": "failed succeeded timeout unresponsive",
    "failed": "",
    "succeeded": "",
    "unresponsive": "",
    "timeout": "",
}
ROLLOUT_PAIRS = [(old, new) for old in RolloutStatus for new in RolloutStatus if old is not new]
ATTEMPT_PAIRS = [(old, new) for old in AttemptStatus for new in AttemptStatus if old is not new]
LEGAL_ROLLOUTS = [(old, new) for old, new in ROLLOUT_PAIRS if new in ROLLOUTS[old].split()]
LEGAL_ATTEMPTS = [(old, new) for old, new in ATTEMPT_PAIRS if new in ATTEMPTS[old].split()]
ILLEGAL_ROLLOUTS = [pair for pair in ROLLOUT_PAIRS if pair not in LEGAL_ROLLOUTS]
ILLEGAL_ATTEMPTS = [pair for pair in ATTEMPT_PAIRS if pair not in LEGAL_ATTEMPTS]


def test_the_tables_here_are_whole() -> None:
    assert set(ROLLOUTS) == {status.value for status in RolloutStatus}
    assert set(ATTEMPTS) == {status.value for status in AttemptStatus}
    assert len(LEGAL_ROLLOUTS) == 22
    assert len(LEGAL_ATTEMPTS) == 9


@pytest.mark.parametrize(("old", "new"), LEGAL_ROLLOUTS)
def test_a_rollout_may_make_every_legal_move(
    store: Store, old: RolloutStatus, new: RolloutStatus
) -> None:
    writes(store).begin_rollout(rollout(status=old))

    moved = writes(store).set_status(LIVE, new, at=9.0)

    assert moved
    assert store.rollouts.rollout(LIVE).status is new


@pytest.mark.parametrize(("old", "new"), ILLEGAL_ROLLOUTS)
def test_a_rollout_is_refused_every_illegal_move_and_stays_as_it_was(
    store: Store, old: RolloutStatus, new: RolloutStatus
) -> None:
    writes(store).begin_rollout(rollout(status=old))
    before = store.rollouts.rollout(LIVE)

    with pytest.raises(
        InvalidTransitionError, match=f"invalid rollout status transition: {old} -> {new}"
    ) as raised:
        writes(store).set_status(LIVE, new, at=9.0)

    assert (raised.value.old, raised.value.new) == (old, new)
    assert store.rollouts.rollout(LIVE) == before


@pytest.mark.parametrize("status", RolloutStatus)
def test_a_rollout_may_stay_where_it_is(store: Store, status: RolloutStatus) -> None:
    writes(store).begin_rollout(rollout(status=status))
    before = store.rollouts.rollout(LIVE)

    moved = writes(store).set_status(LIVE, status, at=9.0, reason=Reason.LIMIT)

    assert not moved
    assert store.rollouts.rollout(LIVE) == before


@pytest.mark.parametrize(("old", "new"), LEGAL_ATTEMPTS)
def test_an_attempt_may_make_every_legal_move(
    store: Store, old: AttemptStatus, new: AttemptStatus
) -> None:
    writes(store).begin_rollout(rollout())
    writes(store).begin_attempt(attempt(status=old))

    moved = writes(store).set_attempt_status(LIVE, 1, new, at=9.0, error_message="late")

    [found] = store.rollouts.attempts(LIVE)
    assert moved
    assert (found.status, found.error_message) == (new, "late")
    assert found.ended_at == (None if new is AttemptStatus.RUNNING else 9.0)


@pytest.mark.parametrize(("old", "new"), ILLEGAL_ATTEMPTS)
def test_an_attempt_is_refused_every_illegal_move_and_stays_as_it_was(
    store: Store, old: AttemptStatus, new: AttemptStatus
) -> None:
    writes(store).begin_rollout(rollout())
    writes(store).begin_attempt(attempt(status=old))
    before = store.rollouts.attempts(LIVE)

    with pytest.raises(
        InvalidTransitionError, match=f"invalid attempt status transition: {old} -> {new}"
    ):
        writes(store).set_attempt_status(LIVE, 1, new, at=9.0, error_message="late")

    assert store.rollouts.attempts(LIVE) == before


@pytest.mark.parametrize("status", AttemptStatus)
def test_an_attempt_may_stay_where_it_is(store: Store, status: AttemptStatus) -> None:
    writes(store).begin_rollout(rollout())
    writes(store).begin_attempt(attempt(status=status))
    before = store.rollouts.attempts(LIVE)

    moved = writes(store).set_attempt_status(LIVE, 1, status, at=9.0, error_message="late")

    assert not moved
    assert store.rollouts.attempts(LIVE) == before


def test_what_is_not_stored_cannot_be_moved(store: Store) -> None:
    with pytest.raises(UnknownError, match="rollout 'live-1' not found"):
        writes(store).set_status(LIVE, RolloutStatus.RUNNING, at=1.0)
    with pytest.raises(UnknownError, match="attempt 'live-1:attempt-1' not found"):
        writes(store).set_attempt_status(LIVE, 1, AttemptStatus.RUNNING, at=1.0)


RIVALS = [
    (old, one, other)
    for old in RolloutStatus
    for one in RolloutStatus
    for other in RolloutStatus
    if one < other
    and (old, one) in LEGAL_ROLLOUTS
    and (old, other) in LEGAL_ROLLOUTS
    and (one, other) in ILLEGAL_ROLLOUTS
    and (other, one) in ILLEGAL_ROLLOUTS
]


@pytest.mark.parametrize(("old", "one", "other"), RIVALS)
def test_of_two_moves_at_once_that_exclude_each_other_one_is_made(
    opened: OpenStore, old: RolloutStatus, one: RolloutStatus, other: RolloutStatus
) -> None:
    writes(opened()).begin_rollout(rollout(status=old))
    start = Barrier(2)
    made: list[RolloutStatus] = []
    refused: list[InvalidTransitionError] = []

    def move(new: RolloutStatus) -> None:
        store = writes(opened())
        start.wait(timeout=10)
        try:
            store.set_status(LIVE, new, at=9.0)
            made.append(new)
        except InvalidTransitionError as error:
            refused.append(error)

    threads = [Thread(target=move, args=(new,)) for new in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)

    [winner], [error] = made, refused
    assert opened().rollouts.rollout(LIVE).status is winner
    assert error.old == winner


def test_there_are_moves_that_exclude_each_other() -> None:
    assert (RolloutStatus.RUNNING, RolloutStatus.CANCELLED, RolloutStatus.SUCCEEDED) in RIVALS


def test_an_attempt_ends_once_however_many_end_it(opened: OpenStore) -> None:
    begun(opened())
    ends = [end for end in AttemptStatus if end not in ("preparing", "running")]
    start = Barrier(len(ends))
    made: list[AttemptStatus] = []
    refused: list[AttemptStatus] = []

    def end(new: AttemptStatus) -> None:
        store = writes(opened())
        start.wait(timeout=10)
        try:
            store.set_attempt_status(LIVE, 1, new, at=9.0)
            made.append(new)
        except InvalidTransitionError:
            refused.append(new)

    threads = [Thread(target=end, args=(new,)) for new in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)

    [attempt_] = opened().rollouts.attempts(LIVE)
    assert made == [attempt_.status]
    assert len(refused) == len(ends) - 1
