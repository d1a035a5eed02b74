"""Events as the rollouts, decisions and rewards that are stored of them."""

from math import isfinite

from tau_live import events as ev
from tau_live.machine.quick import made
from tau_live.rollouts import Decision, Reward, Rollout, RolloutStatus, rollout_id_of
from tau_live.store.records import Amendment

_OF_A_START = ("model", "tools", "trigger", "instructions_hash", "host_version", "adapter_version")
DROPPED = "dropped_events"
"""Under what the metadata of a rollout says how many of its events were lost."""

_OF_AN_END = ("cost_usd", "turns", "duration_ms")


def rollout_of(event: ev.Event, *, owner: str | None) -> Rollout:
    """Return the rollout that an event is the first of."""
    start = event if isinstance(event, ev.RunStart) else None
    parent = event.parent_run_id
    return made(
        Rollout,
        rollout_id=rollout_id_of(event.host, event.run_id),
        host=event.host,
        run_id=event.run_id,
        session_id=event.session_id,
        parent_id=rollout_id_of(event.parent_host or event.host, parent) if parent else None,
        name=(start.name or start.agent or "") if start else "",
        status=RolloutStatus.RUNNING,
        input=content_of(start.input) if start else None,
        metadata=_metadata_of(start) if start else {},
        owner=owner,
        started_at=event.at,
    )


def _metadata_of(start: ev.RunStart) -> dict[str, object]:
    found = {name: getattr(start, name) for name in _OF_A_START if getattr(start, name)}
    return {**start.metadata, **found}


def told_late(rollout: Rollout) -> Amendment:
    """Return what a start tells of a rollout that has begun already."""
    return Amendment(
        name=rollout.name,
        session_id=rollout.session_id,
        parent_id=rollout.parent_id,
        input=rollout.input,
        metadata=rollout.metadata,
        started_at=rollout.started_at,
    )


def told_by_end(end: ev.RunEnd, *, later: bool) -> Amendment:
    """Return what the end of a run tells besides how it ended."""
    found = {name: getattr(end, name) for name in _OF_AN_END if getattr(end, name) is not None}
    if end.usage:
        found["usage"] = dict(end.usage)
    if end.output is not None:
        found["output"] = content_of(end.output)
    if end.dropped > 0:
        found[DROPPED] = end.dropped
    return made(Amendment, name=end.agent or "", metadata=found, later=later)


def decision_of(event: ev.Decision, *, rollout_id: str, attempt: int) -> Decision:
    """Return the decision that an event tells; numbers that are none are left out of it."""
    finite = all(map(isfinite, event.probabilities))
    return made(
        Decision,
        rollout_id=rollout_id,
        attempt=attempt,
        ordinal=event.ordinal,
        point=event.point,
        options=event.options,
        chosen=event.chosen,
        applied=event.applied,
        default=event.default,
        allowed=event.allowed,
        exploit_only=event.exploit_only,
        source=event.source,
        why_not=event.why_not,
        propensity=_finite(event.propensity),
        probabilities=event.probabilities if finite else (),
        value=_finite(event.value),
        policy_version=event.policy_version,
        arm=event.arm,
        share=_finite(event.share),
        latency_us=event.latency_us if isfinite(event.latency_us) else 0.0,
        at=event.at,
        context=event.context,
        features=event.features,
        encoded=event.encoded,
    )


def reward_of(event: ev.Reward) -> Reward | None:
    """Return the reward that an event tells; ``None`` for one whose value is no number."""
    if event.value is not None and not isfinite(event.value):
        return None
    return made(
        Reward,
        rollout_id=event.rollout_id or rollout_id_of(event.host, event.run_id),
        decision_id=event.decision_id,
        name=event.name,
        value=event.value,
        label=event.label,
        comment=event.comment.text if event.comment else None,
        source=event.source,
        key=event.key,
        at=event.at,
        decisions_before=event.decisions_before,
    )


def content_of(content: ev.Content | None) -> dict[str, object] | None:
    """Return what is kept of a text, without what is not known of it."""
    if content is None:
        return None
    found = {"chars": content.chars, "sha256": content.sha256, "text": content.text}
    return {name: value for name, value in found.items() if value is not None}


def _finite(number: float | None) -> float | None:
    return number if number is not None and isfinite(number) else None
