"""The queue: first in, first out, one worker each, as often as the config allows."""

import time
from collections.abc import Callable
from threading import Barrier, Thread, Timer

import pytest
from msgspec.structs import replace

from tau_live.core.errors import (
    DuplicateError,
    EndedError,
    InvalidTransitionError,
    StoreError,
    UnknownError,
)
from tau_live.core.processes import this_process
from tau_live.core.records import (
    AttemptStatus,
    Reason,
    Rollout,
    RolloutConfig,
    RolloutMode,
    RolloutStatus,
)
from tau_live.store.roles import Store
from tests.contracts.making import attempt, begun, claimed, decision, queued, rollout
from tests.writes import writes

OpenStore = Callable[[], Store]


def test_what_is_queued_waits_with_nothing_of_a_life_before(store: Store) -> None:
    given = replace(
        queued(),
        status=RolloutStatus.FAILED,
        reason=Reason.ERROR,
        error_type="KeyError",
        input={"question": 1},
        metadata={"x": 1},
        worker_id="w-0",
        attempt_count=7,
        started_at=1.0,
        ended_at=2.0,
    )

    store.queue.enqueue(given, at=5.0)

    expected = Rollout(
        rollout_id="q-1", run_id="q-1", queue="default", input={"question": 1}, metadata={"x": 1}
    )
    assert replace(store.rollouts.rollout("q-1"), seq=0) == expected
    assert store.queue.length() == 1


def test_what_is_stored_already_cannot_be_queued(store: Store) -> None:
    begun(store, "q-1")

    with pytest.raises(DuplicateError, match="rollout 'q-1' already exists"):
        store.queue.enqueue(queued("q-1"), at=5.0)

    assert store.queue.length() == 0


def test_the_first_that_came_is_the_first_to_be_taken(store: Store) -> None:
    for name in ("q-9", "q-10", "q-1"):
        store.queue.enqueue(queued(name), at=5.0)

    taken = [claimed(store).rollout.rollout_id for _ in range(3)]

    assert taken == ["q-9", "q-10", "q-1"]
    assert store.queue.claim("w-1", at=10.0) is None
    assert store.queue.length() == 0


def test_a_claim_begins_an_attempt_and_registers_its_worker(store: Store) -> None:
    store.queue.enqueue(queued(), at=5.0)

    claim = claimed(store, "w-1", at=10.0)

    assert claim.rollout == store.rollouts.rollout("q-1")
    assert [claim.attempt] == store.rollouts.attempts("q-1")
    assert (claim.rollout.status, claim.rollout.worker_id) == (RolloutStatus.PREPARING, "w-1")
    assert (claim.rollout.started_at, claim.rollout.attempt_count) == (10.0, 1)
    assert claim.attempt.status is AttemptStatus.PREPARING
    assert (claim.attempt.started_at, claim.attempt.last_heartbeat_at) == (10.0, 10.0)
    [worker] = store.workers.workers()
    assert (worker.active_rollout_id, worker.active_attempt) == ("q-1", 1)


def test_fault_16_live_rollouts_are_never_claimed(store: Store) -> None:
    for status in RolloutStatus:
        writes(store).begin_rollout(rollout(f"live-{status}", status))
    writes(store).set_status("live-failed", RolloutStatus.REQUEUING, at=2.0)

    assert store.queue.claim("w-1", at=10.0) is None


@pytest.mark.slow
def test_every_rollout_is_claimed_by_exactly_one_of_many(opened: OpenStore) -> None:
    store = opened()
    with store.begin():
        for number in range(120):
            store.queue.enqueue(queued(f"q-{number}"), at=5.0)
    start = Barrier(8)
    taken: dict[str, list[str]] = {f"w-{number}": [] for number in range(8)}

    def work(worker_id: str) -> None:
        queue = opened().queue
        start.wait(timeout=10)
        while len(taken[worker_id]) < 15:
            claim = queue.claim(worker_id, at=10.0)
            if claim is None:
                return
            taken[worker_id].append(claim.rollout.rollout_id)

    threads = [Thread(target=work, args=(worker_id,)) for worker_id in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    everything = sorted(name for names in taken.values() for name in names)
    assert everything == sorted(f"q-{number}" for number in range(120))
    assert {len(names) for names in taken.values()} == {15}


def test_a_heartbeat_keeps_an_attempt_alive_and_begins_it(store: Store) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(unresponsive_s=5.0)), at=5.0)
    claimed(store, at=10.0)

    lives = store.queue.heartbeat("w-1", "q-1", 1, at=14.0)

    [attempt] = store.rollouts.attempts("q-1")
    assert lives
    assert (attempt.status, attempt.last_heartbeat_at) == (AttemptStatus.RUNNING, 14.0)
    assert store.queue.expire(now=18.0) == []
    assert store.workers.workers()[0].last_heartbeat_at == 14.0


def test_a_heartbeat_registers_its_worker_and_keeps_the_process_of_a_known_one(
    store: Store,
) -> None:
    store.workers.register("w-2", at=1.0, owner="machine:1:2")

    for worker_id in ("w-1", "w-2"):
        store.queue.heartbeat(worker_id, "q-1", 1, at=2.0)

    new, known = store.workers.workers()
    assert (new.worker_id, new.registered_at, new.owner) == ("w-1", 2.0, this_process())
    assert (known.last_heartbeat_at, known.owner) == (2.0, "machine:1:2")


def test_a_heartbeat_for_another_workers_attempt_is_refused(store: Store) -> None:
    store.queue.enqueue(queued(), at=5.0)
    claimed(store, "w-1")
    store.workers.register("w-2", at=1.0)

    lives = store.queue.heartbeat("w-2", "q-1", 1, at=99.0)

    assert not lives
    assert store.rollouts.attempts("q-1")[0].last_heartbeat_at == 10.0
    assert store.workers.workers()[1].active_rollout_id is None


def test_a_heartbeat_for_an_attempt_that_is_over_tells_the_worker_to_stop(store: Store) -> None:
    store.queue.enqueue(queued(), at=5.0)
    claimed(store)
    writes(store).set_status("q-1", RolloutStatus.CANCELLED, at=11.0)

    lives = store.queue.heartbeat("w-1", "q-1", 1, at=12.0)

    assert not lives
    assert store.workers.workers()[0].active_rollout_id is None


def test_a_heartbeat_for_nothing_is_refused(store: Store) -> None:
    store.workers.register("w-1", at=1.0)

    assert not store.queue.heartbeat("w-1", "unknown", 1, at=2.0)


ALL_ENDS = (AttemptStatus.FAILED, AttemptStatus.TIMEOUT, AttemptStatus.UNRESPONSIVE)


@pytest.mark.parametrize(
    ("end", "max_attempts", "retry_on", "becomes", "reason"),
    [
        ("succeeded", 1, ALL_ENDS, "succeeded", Reason.COMPLETED),
        ("succeeded", 3, ALL_ENDS, "succeeded", Reason.COMPLETED),
        ("failed", 1, ALL_ENDS, "failed", Reason.ERROR),
        ("timeout", 1, ALL_ENDS, "failed", Reason.TIMEOUT),
        ("unresponsive", 1, ALL_ENDS, "failed", Reason.TIMEOUT),
        ("failed", 2, ALL_ENDS, "requeuing", None),
        ("timeout", 2, ALL_ENDS, "requeuing", None),
        ("unresponsive", 2, ALL_ENDS, "requeuing", None),
        ("failed", 2, (AttemptStatus.TIMEOUT,), "failed", Reason.ERROR),
        ("timeout", 2, (AttemptStatus.TIMEOUT,), "requeuing", None),
        ("failed", 2, (), "failed", Reason.ERROR),
    ],
)
def test_the_end_of_an_attempt_moves_its_rollout(
    store: Store,
    *,
    end: str,
    max_attempts: int,
    retry_on: tuple[AttemptStatus, ...],
    becomes: str,
    reason: Reason | None,
) -> None:
    config = RolloutConfig(max_attempts=max_attempts, retry_on=retry_on)
    store.queue.enqueue(queued(config=config), at=5.0)
    claimed(store)

    answer = store.queue.finish("q-1", 1, AttemptStatus(end), at=12.0, error_message="why")

    found = store.rollouts.rollout("q-1")
    [attempt] = store.rollouts.attempts("q-1")
    waits = becomes == "requeuing"
    assert answer == found.status == becomes
    assert (found.reason, found.ended_at) == (reason, None if waits else 12.0)
    assert (attempt.status, attempt.ended_at, attempt.error_message) == (end, 12.0, "why")
    assert store.queue.length() == waits
    assert store.workers.workers()[0].active_rollout_id is None


def test_a_rollout_is_tried_no_more_often_than_allowed(store: Store) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(max_attempts=3)), at=5.0)

    became = []
    for number in (1, 2, 3):
        assert claimed(store, at=12.0).attempt.number == number
        became.append(store.queue.finish("q-1", number, AttemptStatus.FAILED, at=12.0))

    assert became == ["requeuing", "requeuing", "failed"]
    assert store.queue.claim("w-1", at=13.0) is None


def test_what_is_tried_again_waits_behind_the_others(store: Store) -> None:
    store.queue.enqueue(queued("q-1", RolloutConfig(max_attempts=2)), at=5.0)
    store.queue.enqueue(queued("q-2"), at=5.0)
    claimed(store)

    store.queue.finish("q-1", 1, AttemptStatus.FAILED, at=12.0)

    assert [claimed(store, at=12.0).rollout.rollout_id for _ in range(2)] == ["q-2", "q-1"]


def test_finishing_needs_an_end_and_an_attempt(store: Store) -> None:
    store.queue.enqueue(queued(), at=5.0)
    claimed(store)

    with pytest.raises(ValueError, match="end of an attempt"):
        store.queue.finish("q-1", 1, AttemptStatus.RUNNING, at=12.0)
    with pytest.raises(UnknownError, match="attempt 'q-1:attempt-2' not found"):
        store.queue.finish("q-1", 2, AttemptStatus.FAILED, at=12.0)


def test_finishing_twice_changes_nothing(store: Store) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(max_attempts=5)), at=5.0)
    claimed(store)
    store.queue.finish("q-1", 1, AttemptStatus.FAILED, at=12.0)
    before = store.rollouts.rollout("q-1")

    again = store.queue.finish("q-1", 1, AttemptStatus.FAILED, at=13.0)

    assert again is RolloutStatus.REQUEUING
    assert store.rollouts.rollout("q-1") == before
    assert store.queue.length() == 1


def test_a_rollout_that_is_cancelled_while_it_waits_leaves_the_queue(store: Store) -> None:
    store.queue.enqueue(queued("q-1"), at=5.0)
    store.queue.enqueue(queued("q-2"), at=5.0)

    writes(store).set_status("q-1", RolloutStatus.CANCELLED, at=6.0)

    assert store.queue.length() == 1
    assert claimed(store).rollout.rollout_id == "q-2"


def test_a_rollout_that_is_cancelled_while_it_runs_takes_its_attempt_along(store: Store) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(max_attempts=5)), at=5.0)
    claimed(store)

    writes(store).set_status("q-1", RolloutStatus.CANCELLED, at=11.0)

    assert store.rollouts.attempts("q-1")[0].status is AttemptStatus.FAILED
    answer = store.queue.finish("q-1", 1, AttemptStatus.SUCCEEDED, at=12.0)
    assert answer is store.rollouts.rollout("q-1").status is RolloutStatus.CANCELLED
    assert store.counters.counts()["late_results"] == 1


def test_a_failed_rollout_can_be_requeued_by_hand(store: Store) -> None:
    store.queue.enqueue(queued(), at=5.0)
    claimed(store)
    store.queue.finish("q-1", 1, AttemptStatus.FAILED, at=12.0)

    writes(store).set_status("q-1", RolloutStatus.REQUEUING, at=13.0)

    claim = claimed(store, "w-2", at=14.0)
    assert (claim.rollout.rollout_id, claim.attempt.number) == ("q-1", 2)
    assert claim.rollout.ended_at is None
    assert claim.rollout.started_at == 10.0


def test_what_waits_again_is_nobodys(store: Store) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(max_attempts=2)), at=5.0)
    claimed(store)

    store.queue.finish("q-1", 1, AttemptStatus.FAILED, at=12.0)

    assert store.rollouts.rollout("q-1").worker_id is None


def test_only_the_newest_attempt_moves_its_rollout(store: Store) -> None:
    begun(store, "live-1")
    writes(store).begin_attempt(attempt("live-1", 2))

    answer = store.queue.finish("live-1", 1, AttemptStatus.FAILED, at=12.0)

    assert answer is store.rollouts.rollout("live-1").status is RolloutStatus.RUNNING
    assert [a.status for a in store.rollouts.attempts("live-1")] == ["failed", "running"]


def test_what_is_taken_by_hand_leaves_the_queue(store: Store) -> None:
    store.queue.enqueue(queued(), at=5.0)

    writes(store).set_status("q-1", RolloutStatus.RUNNING, at=6.0)

    assert store.queue.length() == 0
    assert store.queue.claim("w-2", at=7.0) is None


def test_a_worker_claims_only_from_the_queues_that_it_names(store: Store) -> None:
    for name, queue in [("a-1", "a"), ("b-1", "b"), ("a-2", "a"), ("d-1", None)]:
        store.queue.enqueue(replace(queued(name), queue=queue), at=5.0)

    def claim(*queues: str) -> str | None:
        claim = store.queue.claim("w-1", at=6.0, queues=queues)
        return None if claim is None else claim.rollout.rollout_id

    assert store.queue.length("a") == 2
    assert [claim("c"), claim(), claim("b", "a"), claim("b", "a"), claim("b")] == [
        None, None, "a-1", "b-1", None
    ]  # fmt: skip
    assert [claim("default"), claim("a"), claim("a", "b", "default")] == ["d-1", "a-2", None]


def test_what_waits_can_be_failed(store: Store) -> None:
    store.queue.enqueue(queued(), at=5.0)

    writes(store).set_status("q-1", RolloutStatus.FAILED, at=6.0, reason=Reason.LIMIT)

    assert store.rollouts.rollout("q-1").reason is Reason.LIMIT
    assert store.queue.length() == 0


def test_a_result_is_handed_back(store: Store) -> None:
    store.queue.enqueue(queued(), at=5.0)
    claimed(store)

    store.queue.finish("q-1", 1, AttemptStatus.SUCCEEDED, at=6.0, output={"sum": [4]})

    [ended] = store.queue.wait(["q-1"], timeout_s=5.0)
    assert ended.output == {"sum": [4]}


def test_a_rollout_is_amended_until_it_ends(store: Store) -> None:
    store.queue.enqueue(queued(), at=5.0)
    known = store.rollouts.rollout("q-1")
    wanted = replace(
        known, mode=RolloutMode.VAL, input=[1], metadata={"a": 1}, resources={"prompt": 3},
        config=RolloutConfig(max_attempts=2, timeout_s=3.0, backoff_s=1.0),
    )  # fmt: skip

    amended = store.queue.amend(wanted)
    claimed(store)
    store.queue.finish("q-1", 1, AttemptStatus.SUCCEEDED, at=12.0)

    assert amended == wanted
    with pytest.raises(
        EndedError, match=r"'q-1' has ended \(succeeded\): .*not its mode and input"
    ):
        store.queue.amend(replace(wanted, input=[2], mode=None, metadata={}))
    assert store.rollouts.rollout("q-1").input == [1]
    assert store.rollouts.rollout("q-1").metadata == {"a": 1}


def test_the_metadata_of_a_rollout_is_amended_after_its_end_too(store: Store) -> None:
    store.queue.enqueue(queued(), at=5.0)
    claimed(store).finish()
    ended = store.rollouts.rollout("q-1")

    amended = store.queue.amend(replace(ended, metadata={"score": 0.5}))

    assert amended == replace(ended, metadata={"score": 0.5}) == store.rollouts.rollout("q-1")


def test_a_worker_may_begin_a_rollout_of_its_own(store: Store) -> None:
    claim = store.queue.begin(queued(config=RolloutConfig(max_attempts=2)), "w-1", at=5.0)

    assert (claim.rollout.status, claim.attempt.number) == (RolloutStatus.PREPARING, 1)
    assert store.queue.length() == 0
    assert store.workers.workers()[0].active_rollout_id == "q-1"
    with pytest.raises(DuplicateError):
        store.queue.begin(queued(), "w-2", at=6.0)
    store.queue.finish("q-1", 1, AttemptStatus.FAILED, at=7.0)
    assert claimed(store, at=8.0).attempt.number == 2


def test_an_attempt_may_be_begun_by_hand(store: Store) -> None:
    store.queue.enqueue(queued(), at=5.0)
    claimed(store)
    store.queue.finish("q-1", 1, AttemptStatus.FAILED, at=6.0)

    claim = store.queue.retry("q-1", "w-2", at=7.0)
    store.queue.finish("q-1", 2, AttemptStatus.SUCCEEDED, at=8.0)

    assert (claim.rollout.status, claim.attempt.number) == (RolloutStatus.PREPARING, 2)
    assert store.rollouts.rollout("q-1").status is RolloutStatus.SUCCEEDED
    with pytest.raises(InvalidTransitionError):
        store.queue.retry("q-1", "w-2", at=9.0)


@pytest.mark.parametrize("mode", [*RolloutMode])
def test_a_rollout_with_a_mode_never_becomes_ready_for_the_live_learner(
    store: Store, mode: RolloutMode
) -> None:
    store.queue.enqueue(replace(queued(), mode=mode), at=5.0)
    claimed(store)
    writes(store).add_decision(decision(rollout_id="q-1"))
    store.queue.finish("q-1", 1, AttemptStatus.SUCCEEDED, at=12.0)

    became_ready = writes(store).mark_ready("q-1", total_reward=1.0)

    assert not became_ready
    assert store.rollouts.rollout("q-1").total_reward == 1.0
    assert store.rewards.ready_points() == []


def test_an_idle_worker_that_polls_writes_once_a_second(store: Store, opened: OpenStore) -> None:
    observer = opened()
    store.queue.claim("w-1", at=10.0)
    before = observer.stamp()

    wrote = []
    for at in (10.1, 10.5, 11.2, 11.3):
        store.queue.claim("w-1", at=at)
        before, now = observer.stamp(), before
        wrote.append(before != now)

    assert wrote == [False, False, True, False]
    assert store.workers.workers()[0].claimed_at == 11.2


@pytest.mark.parametrize(
    "odd",
    [
        {"mode": "training"},
        {"metadata": [1]},
        {"metadata": None},
        {"resources": {"prompt": "v1"}},
        {"config": RolloutConfig(retry_on=("nope",))},  # type: ignore[arg-type]
        {"queue": 5},
        {"rollout_id": ""},
        {"rollout_id": None},
        {"rollout_id": "a\0b"},
        {"rollout_id": "x" * 100_000},
    ],
    ids=str,
)
def test_a_malformed_task_is_refused_and_blocks_no_other(
    store: Store, odd: dict[str, object]
) -> None:
    with pytest.raises((ValueError, StoreError)):
        store.queue.enqueue(replace(queued("odd"), **odd))
    store.queue.enqueue(queued("sound"))

    assert store.queue.length() == 1
    assert claimed(store, at=time.time()).rollout.rollout_id == "sound"


def test_an_odd_row_at_the_head_of_a_queue_is_passed_over(
    store: Store, edit: Callable[[str], None]
) -> None:
    for name in ("odd", "sound"):
        store.queue.enqueue(queued(name), at=5.0)
    edit("update rollouts set metadata = '{' where rollout_id = 'odd'")

    assert claimed(store).rollout.rollout_id == "sound"
    assert store.queue.claim("w-1", at=11.0) is None
    assert store.queue.length() == 1


@pytest.mark.parametrize("status", ["succeeded", "failed"])
def test_an_end_may_be_given_as_a_text(store: Store, status: str) -> None:
    store.queue.enqueue(queued(), at=5.0)
    claim = claimed(store)

    answers = [claim.finish(status, output=1), claim.finish(status, output=1)]

    assert answers == [status] * 2
    assert store.counters.counts() == {}
    with pytest.raises(ValueError, match="done"):
        claim.finish("done")


@pytest.mark.parametrize("after_s", [-1.0, float("nan"), float("inf"), 1e300])
def test_a_time_to_retry_that_never_comes_is_refused(store: Store, after_s: float) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(max_attempts=2)), at=5.0)

    with pytest.raises(ValueError, match="retry_after_s"):
        claimed(store).finish("failed", retry_after_s=after_s)


def test_an_output_that_is_no_json_is_kept_as_far_as_it_can_be(store: Store) -> None:
    store.queue.enqueue(queued(), at=5.0)

    claimed(store).finish(output={"text": "half \ud83d", "object": object()})

    output = store.rollouts.rollout("q-1").output
    assert isinstance(output, dict)
    assert output["text"].startswith("half ")


def test_the_clock_may_be_set_back(store: Store) -> None:
    store.queue.enqueue(queued("q-1", RolloutConfig(max_attempts=2)), at=100.0)

    claimed(store, at=70.0)
    store.queue.finish("q-1", 1, AttemptStatus.FAILED, at=70.0)

    assert claimed(store, at=60.0).attempt.number == 2


def test_results_come_in_the_order_in_which_they_were_asked_for(store: Store) -> None:
    for name in ("q-3", "q-1", "q-2"):
        store.queue.enqueue(queued(name), at=5.0)
        claimed(store, at=6.0).finish()

    ended = store.queue.wait(["q-1", "q-2", "q-3", "q-1"], timeout_s=0.0)

    assert [rollout.rollout_id for rollout in ended] == ["q-1", "q-2", "q-3"]
    with pytest.raises(ValueError, match="timeout_s"):
        store.queue.wait(["q-1"], timeout_s=float("nan"))


def test_who_waits_sees_what_this_process_finishes_at_once(store: Store) -> None:
    store.queue.enqueue(queued())
    claim = claimed(store, at=time.time())
    thread = Timer(0.05, claim.finish)
    thread.start()

    [ended] = store.queue.wait(["q-1"], timeout_s=0.9)  # it looks anew after a second anyway
    thread.join()

    assert ended.status is RolloutStatus.SUCCEEDED


def test_one_queue_may_be_named_by_a_text(store: Store) -> None:
    store.queue.enqueue(replace(queued("q-1"), queue="urgent"), at=5.0)
    store.queue.enqueue(replace(queued("q-2"), queue="u"), at=5.0)

    claim = store.queue.claim("w-1", at=6.0, queues="urgent")

    assert claim is not None
    assert claim.rollout.rollout_id == "q-1"
