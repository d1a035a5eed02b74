"""Rollouts, spans, decisions and rewards with everything that a test does not care about."""

from collections.abc import Mapping

from tau_live.core.records import (
    Attempt,
    AttemptStatus,
    Claim,
    Decision,
    PolicyVersion,
    Reward,
    Rollout,
    RolloutConfig,
    RolloutStatus,
    Span,
    Update,
)
from tau_live.store.records import Topic
from tau_live.store.roles import Store
from tests.live.running import until
from tests.writes import writes

LIVE = "live-1"


def rollout(
    rollout_id: str = LIVE,
    status: RolloutStatus = RolloutStatus.RUNNING,
    *,
    owner: str | None = None,
    started_at: float | None = 1.0,
    ended_at: float | None = None,
) -> Rollout:
    return Rollout(
        rollout_id=rollout_id,
        host="tests",
        run_id=rollout_id,
        status=status,
        owner=owner,
        started_at=started_at,
        ended_at=ended_at,
    )


def queued(rollout_id: str = "q-1", config: RolloutConfig | None = None) -> Rollout:
    return Rollout(rollout_id=rollout_id, config=config or RolloutConfig())


def attempt(
    rollout_id: str = LIVE, number: int = 1, status: AttemptStatus = AttemptStatus.RUNNING
) -> Attempt:
    return Attempt(
        rollout_id=rollout_id, number=number, status=status, started_at=1.0, last_heartbeat_at=1.0
    )


def span(
    span_id: str = "s-1",
    rollout_id: str = LIVE,
    number: int = 1,
    *,
    started_at: float = 2.0,
    ended_at: float | None = None,
    status: str = "unknown",
    attributes: Mapping[str, object] | None = None,
) -> Span:
    return Span(
        rollout_id=rollout_id,
        attempt=number,
        span_id=span_id,
        kind="tool",
        name="search",
        status=status,
        attributes=attributes or {},
        started_at=started_at,
        ended_at=ended_at,
    )


def steps(store: Store, rollout_id: str = LIVE, number: int | None = None) -> list[Span]:
    """Return the spans that were recorded: neither runs nor decisions."""
    return [found for found in store.rollouts.spans(rollout_id, number) if found.seq]


def decision(
    ordinal: int = 1, rollout_id: str = LIVE, number: int = 1, *, point: str = "model"
) -> Decision:
    return Decision(
        rollout_id=rollout_id,
        attempt=number,
        ordinal=ordinal,
        point=point,
        options=("small", "large"),
        chosen="small",
        applied="small",
        default="large",
        why_not=None,
        propensity=0.25,
        probabilities=(0.25, 0.75),
        value=0.5,
        policy_version=3,
        arm="control",
        latency_us=12.5,
        at=2.0,
        context={"words": 120, "lang": "de"},
        features={"small": {"usd": 0.1}, "large": {"usd": 2.0}},
        encoded=b"\x00\xff\x80",
    )


def reward(
    value: float | None = 1.0,
    rollout_id: str = LIVE,
    *,
    at: float = 3.0,
    decision_id: str | None = None,
    name: str = "solved",
    source: str = "user",
    key: str = "",
) -> Reward:
    return Reward(
        rollout_id=rollout_id,
        decision_id=decision_id,
        name=name,
        value=value,
        source=source,
        key=key,
        at=at,
    )


def update(last_ready: int, point: str = "model", *, executed: bool = True) -> Update:
    return Update(
        update=0,
        point=point,
        executed=executed,
        skipped_reason=None if executed else "one_reward",
        version=1 if executed else None,
        parent=0,
        first_ready=1,
        last_ready=last_ready,
        trajectories=8,
        samples=20,
        at=100.0,
        report={"loss": 0.5},
    )


def policy(version: int, point: str = "model", parent: int = 0) -> PolicyVersion:
    return PolicyVersion(
        version=version,
        point=point,
        parent=parent,
        algorithm="ppo",
        sha256="ab" * 32,
        file=f"model-{version}.json",
        rollouts=8,
        created_at=100.0,
        metadata={"seed": 7},
    )


def begun(store: Store, rollout_id: str = LIVE, *, owner: str | None = None) -> None:
    """Begin a live rollout and its first attempt."""
    writes(store).begin_rollout(rollout(rollout_id, owner=owner))
    writes(store).begin_attempt(attempt(rollout_id))


def ready(
    store: Store, rollout_id: str, *points: str, total_reward: float = 1.0, at: float = 5.0
) -> None:
    """Make a succeeded rollout with a decision at each point, fit to be learned from."""
    begun(store, rollout_id)
    for ordinal, point in enumerate(points, start=1):
        writes(store).add_decision(decision(ordinal, rollout_id, point=point))
    writes(store).set_status(rollout_id, RolloutStatus.SUCCEEDED, at=at)
    writes(store).mark_ready(rollout_id, total_reward=total_reward)


def claimed(store: Store, worker_id: str = "w-1", *, at: float = 10.0) -> Claim:
    """Take the next rollout from the queue, which must have one."""
    claim = store.queue.claim(worker_id, at=at)
    assert claim is not None
    return claim


def change_heard(store: Store) -> frozenset[Topic]:
    """Return what others have changed, as soon as it is heard of."""
    heard: set[Topic] = set()

    def hear() -> bool:
        heard.update(store.changes())
        return bool(heard)

    until(hear)
    return frozenset(heard)
