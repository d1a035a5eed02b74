"""Faults of the reference that concern what happens to events; by the numbers of its list."""

import pytest

from tau_live.core import events as ev
from tau_live.core.records import AttemptStatus, Reason, RolloutQuery, RolloutStatus, rollout_id_of
from tau_live.learn.trajectories import trajectories_of
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import steps
from tests.learnables import outcome
from tests.streams import HOST, collected, collector_of, event


def test_fault_01_a_second_process_does_not_collide_with_what_is_stored(store: SqliteStore) -> None:
    for process in ("here:1:1", "here:2:2", "here:3:3"):
        for run in ("first", "second"):
            stream = [
                event(ev.RunStart, f"{process}/{run}", 1.0),
                event(ev.RunEnd, f"{process}/{run}", 2.0, status=ev.Status.OK),
            ]
            collected(store, stream, owner=process)

    page = store.rollouts.query(RolloutQuery(statuses=[RolloutStatus.SUCCEEDED]))

    assert page.total == 6
    assert store.counters.counts() == {}


def test_fault_02_the_message_before_the_start_is_kept(store: SqliteStore) -> None:
    asked = event(ev.Message, at=1.0, seq=1, role="user", content=ev.Content(text="plan", chars=4))

    collected(store, [asked, event(ev.RunStart, at=2.0, seq=2, name="triage")])

    rollout = store.rollouts.rollout(rollout_id_of(HOST, "r"))
    (span,) = steps(store, rollout.rollout_id)
    assert rollout.name == "triage"
    assert (span.name, span.attributes) == (
        "message.added",
        {"role": "user", "content": {"text": "plan", "chars": 4, "sha256": None}},
    )


@pytest.mark.parametrize(
    ("status", "reason", "becomes"),
    [
        (ev.Status.ERROR, Reason.ERROR, RolloutStatus.FAILED),
        (ev.Status.ERROR, Reason.TIMEOUT, RolloutStatus.FAILED),
        (ev.Status.CANCELLED, Reason.CANCELLED, RolloutStatus.CANCELLED),
        (ev.Status.LIMIT, Reason.LIMIT, RolloutStatus.FAILED),
        (ev.Status.VETOED, Reason.SAFETY_BLOCKED, RolloutStatus.FAILED),
    ],
)
def test_fault_03_every_end_leaves_an_outcome_and_takes_a_reward(
    store: SqliteStore, status: ev.Status, reason: Reason, becomes: RolloutStatus
) -> None:
    stream = [
        event(ev.RunStart, at=1.0),
        event(ev.RunEnd, at=2.0, status=status, reason=reason),
        event(ev.Reward, at=3.0, value=-1.0),
    ]

    collected(store, stream)

    rollout = store.rollouts.rollout(rollout_id_of(HOST, "r"))
    assert (rollout.status, rollout.reason) == (becomes, reason)
    assert (rollout.total_reward, rollout.ready_seq) == (-1.0, 1)


def test_fault_04_runs_that_interleave_and_nest_do_not_mix(store: SqliteStore) -> None:
    stream = [
        event(ev.RunStart, "a", 1.0),
        event(ev.RunStart, "b", 2.0),
        event(ev.RunStart, "a/child", 3.0, parent_run_id="a"),
        event(ev.ToolStart, "a", 4.0, tool="t", call_id="of a"),
        event(ev.ToolStart, "a/child", 5.0, tool="t", call_id="of the child"),
        event(ev.RunEnd, "b", 6.0, status=ev.Status.ERROR),
        event(ev.ToolEnd, "a", 7.0, tool="t", call_id="of a"),
        event(ev.RunEnd, "a", 8.0, status=ev.Status.OK),
        event(ev.RunEnd, "a/child", 9.0, status=ev.Status.CANCELLED),
    ]

    collected(store, stream)

    ids = {run: rollout_id_of(HOST, run) for run in ("a", "b", "a/child")}
    assert {run: store.rollouts.rollout(id_).status.value for run, id_ in ids.items()} == {
        "a": "succeeded",
        "b": "failed",
        "a/child": "cancelled",
    }
    assert {run: [s.span_id for s in steps(store, id_)] for run, id_ in ids.items()} == {
        "a": ["tool:of a"],
        "b": [],
        "a/child": ["tool:of the child"],
    }
    assert store.rollouts.rollout(ids["a/child"]).parent_id == ids["a"]


def test_fault_13_telemetry_is_never_a_step(store: SqliteStore) -> None:
    telemetry = [
        event(ev.TurnStart, at=2.0, turn=1),
        event(ev.ModelStart, at=2.1, span_id="m"),
        event(ev.ModelEnd, at=2.2, span_id="m", cost_usd=0.5),
        event(ev.Message, at=2.3, seq=4, role="assistant"),
        event(ev.ToolStart, at=2.4, call_id="c"),
        event(ev.Policy, at=2.5, seq=6, blocked=True),
        event(ev.TurnEnd, at=2.6, turn=1),
    ]
    ends = [
        event(ev.RunEnd, at=3.0, status=ev.Status.OK),
        event(ev.Reward, at=4.0, value=1.0),
    ]

    collected(store, [event(ev.RunStart, at=1.0), *telemetry, *ends])

    learnable = store.rewards.ready_rollouts("", after=0, limit=9)
    found = trajectories_of(learnable, "model", versions=[], discount=1.0, outcome=outcome)
    assert len(learnable) == 1
    assert found.trajectories is None


def test_fault_16_a_live_rollout_has_attempts_and_an_owner_and_no_worker_takes_it(
    store: SqliteStore,
) -> None:
    collected(store, [event(ev.RunStart, at=1.0)], owner="dead:1:1")

    claim = store.queue.claim("worker", at=2.0)
    with store.begin():
        collector_of(store).end_owned("dead:1:1", reason=Reason.ABANDONED, at=3.0)

    rollout = store.rollouts.rollout(rollout_id_of(HOST, "r"))
    (attempt,) = store.rollouts.attempts(rollout.rollout_id)
    assert claim is None
    assert (rollout.reason, rollout.ended_at) == (Reason.ABANDONED, 3.0)
    assert attempt.number == 1
    assert attempt.status is AttemptStatus.UNRESPONSIVE
