"""Follows a store, and shows a collector what is new: rollouts that ended, rewards, figures.

It reads the store as any other reader, in a process of its own: no host waits for it. What was sent
is remembered in a file beside the store, after the collector has taken it; so nothing is left out,
and what is sent twice has the same ids. No text is sent: no prompt, answer, argument, message of an
error, comment or context.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tau_live.core.errors import OddRowError, TauLiveError
from tau_live.core.files import write_whole
from tau_live.core.guard import logger, text_of
from tau_live.core.records import (
    ROLLOUT_ENDS,
    Decision,
    Reward,
    Rollout,
    RolloutQuery,
    Span,
)
from tau_live.core.sanitize import mapping, real
from tau_live.core.version import this_version
from tau_live.operate.metrics import Family, families, known_families
from tau_live.operate.otlp import Otlp, call_attributes, context_of
from tau_live.operate.records import Status
from tau_live.store.roles import Store

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.trace import ReadableSpan

SCOPE = "tau_live"
PAGE = 100
BATCH = 512
OVERLAP_S = 60.0
"""A rollout is found if its end is stored at most so long after one that ended later."""

SUFFIX = ".otlp"


class Sent(msgspec.Struct, kw_only=True):
    """What was sent.

    Attributes:
        ended_at: When the newest rollout that was sent ended, epoch seconds.
        reward_seq: The number of the newest reward that was sent.
        rollouts: When those that ended lately did, by id.
    """

    ended_at: float = 0.0
    reward_seq: int = 0
    rollouts: dict[str, float] = msgspec.field(default_factory=dict)


def file_of(store: Path) -> Path:
    """Return the file that remembers what was sent of a store."""
    return store.with_name(store.name + SUFFIX)


@contextmanager
def following(store: Path) -> Iterator[None]:
    """Follow a store alone, or two processes would send the same.

    Raises:
        TauLiveError: Another process follows it.
        OSError: The lock cannot be made.
    """
    path = store.with_name(f"{store.name}{SUFFIX}.lock")
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TauLiveError(f"another process sends what is new in {store}") from None
        yield
    finally:
        os.close(lock)


class Follower:
    """Shows a collector what is new in a store.

    Args:
        otlp: The ways to the collector.
        file: The file that remembers what was sent.
        since: Rollouts that ended and rewards that came earlier are left out; epoch seconds.

    Attributes:
        sent: What was sent.
        measured_at: When the figures were taken, epoch seconds.
    """

    def __init__(self, otlp: Otlp, file: Path, *, since: float = 0.0) -> None:
        self._otlp = otlp
        self._file = file
        self._since = since
        self.sent = _read(file)
        self.measured_at = 0.0
        self._figures: Mapping[str, Family] = {}
        self._observe()

    def look(self, store: Store) -> int:
        """Send what is new; return how many spans that were.

        Raises:
            TauLiveError: The collector takes nothing.
            StoreUnavailableError: The store cannot be read.
        """
        return self._send_rollouts(store) + self._send_rewards(store)

    def measure(self, store: Store, status: Status) -> None:
        """Take the figures that are sent next."""
        found = families(status, version=this_version(), last_raised=store.alerts.last_raised())
        self._figures = {family.name: family for family in found}
        self.measured_at = status.at

    def close(self) -> bool:
        """Send the figures once more, and end; say whether the collector took them."""
        self._otlp.meters.shutdown()
        self._otlp.spans.shutdown()
        return not self._otlp.refuses.is_set()

    def _send_rollouts(self, store: Store) -> int:
        count, offset, own = 0, 0, self.sent
        first = max(self._since, own.ended_at - OVERLAP_S)
        while True:
            page, _ = store.rollouts.query(
                RolloutQuery(
                    statuses=sorted(ROLLOUT_ENDS), ended_since=first, order_by="ended_at",
                    limit=PAGE, offset=offset,
                )
            )  # fmt: skip
            new = [rollout for rollout in page if rollout.rollout_id not in own.rollouts]
            spans = [span for rollout in new for span in self._sound_spans(store, rollout)]
            self._send(spans)
            count += len(spans)
            for rollout in new:
                ended = rollout.ended_at or 0.0
                own.rollouts[rollout.rollout_id] = ended
                own.ended_at = max(own.ended_at, ended)
            if new:
                self._remember()
            offset += PAGE
            if len(page) < PAGE:
                return count

    def _send_rewards(self, store: Store) -> int:
        count = 0
        while rewards := store.rewards.after(self.sent.reward_seq, limit=BATCH):
            wanted = [
                reward
                for reward in rewards
                if reward.value is not None and reward.at >= self._since
            ]
            self._send([self._reward(store, reward) for reward in wanted])
            count += len(wanted)
            self.sent.reward_seq = rewards[-1].seq
            self._remember()
        return count

    def _send(self, spans: Sequence["ReadableSpan"]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        for start in range(0, len(spans), BATCH):
            batch = spans[start : start + BATCH]
            if self._otlp.spans.export(batch) is not SpanExportResult.SUCCESS:
                raise TauLiveError("the collector takes no spans: what is new waits in the store")

    def _remember(self) -> None:
        own = self.sent
        recent = own.ended_at - OVERLAP_S
        own.rollouts = {id_: at for id_, at in own.rollouts.items() if at >= recent}
        write_whole(self._file, msgspec.json.encode(own))

    def _sound_spans(self, store: Store, rollout: Rollout) -> "Sequence[ReadableSpan]":
        """Return the spans of a rollout; none where a row of it is damaged, as doctor reports."""
        try:
            return [*self._spans(store, rollout)]
        except OddRowError as error:
            id_ = rollout.rollout_id
            logger().warning("rollout_not_sent", rollout_id=id_, error=text_of(error))
            return []

    def _spans(self, store: Store, rollout: Rollout) -> "Iterator[ReadableSpan]":
        """Yield the spans of a rollout: its attempts, and in them its steps and decisions."""
        id_ = rollout.rollout_id
        decisions = {one.decision_id: one for one in store.decisions.decisions(id_)}
        for span in store.rollouts.spans(id_):
            decision = decisions.get(span.span_id)
            if span.kind == "run":
                name, attributes = f"invoke_agent {rollout.name}".strip(), _run(rollout, span)
            elif decision is not None:
                name, attributes = f"tau.decide {decision.point}", _decision_attributes(decision)
            else:
                name, attributes = _step(span)
            error = mapping(span.attributes.get("error")).get("type")
            failed = span.status == "error"
            yield self._otlp.span(
                name,
                context_of(id_, _key(span.attempt, span.span_id)),
                None
                if span.parent_span_id is None
                else context_of(id_, _key(span.attempt, span.parent_span_id)),
                (span.started_at, max(span.started_at, span.ended_at or span.started_at)),
                {**attributes, "error.type": (error or "_OTHER") if failed else None},
                scope=SCOPE,
                is_client=span.kind == "model",
                failed=failed,
            )

    def _reward(self, store: Store, reward: Reward) -> "ReadableSpan":
        """Return a reward as a span without length: in its decision, or in the last attempt."""
        last = 1
        with suppress(OddRowError):
            rollout = store.rollouts.find_rollout(reward.rollout_id)
            last = 1 if rollout is None else max(1, rollout.attempt_count)
        key = reward.decision_id or f"{reward.rollout_id}:attempt-{last}"
        number = key.partition(":attempt-")[2].partition(":")[0]
        attempt = int(number) if number.isdecimal() else last
        return self._otlp.span(
            f"tau.reward {reward.name}",
            context_of(reward.rollout_id, f"reward {reward.seq}"),
            context_of(reward.rollout_id, _key(attempt, key)),
            (reward.at, reward.at),
            {
                "gen_ai.evaluation.name": reward.name,
                "gen_ai.evaluation.score.value": reward.value,
                "gen_ai.evaluation.score.label": reward.label,
                "tau.reward.source": str(reward.source),
                "tau.rollout_id": reward.rollout_id,
                "tau.decision_id": reward.decision_id,
            },
            scope=SCOPE,
        )

    def _observe(self) -> None:
        """Let the meters ask for each figure; one that is not known is not sent."""
        from opentelemetry.metrics import Observation

        meter = self._otlp.meters.get_meter(SCOPE, this_version())
        for known in known_families():

            def observe(_: "CallbackOptions", name: str = known.name) -> "Iterable[Observation]":
                family = self._figures.get(name)
                for labels, value in family.values if family else ():
                    yield Observation(value, dict(labels))

            name = known.name.removesuffix("_total")
            make = (
                meter.create_observable_counter
                if known.type == "counter"
                else meter.create_observable_gauge
            )
            make(name, [observe], description=known.help)


def _read(file: Path) -> Sent:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(file.read_bytes(), type=Sent)
    return Sent()


def _key(attempt: int, span_id: str) -> str:
    """Return what a span is in its trace; hosts number theirs anew in each attempt."""
    return f"{attempt} {span_id}"


def _run(rollout: Rollout, span: Span) -> dict[str, Any]:
    usage = mapping(rollout.metadata.get("usage"))
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": rollout.name or None,
        "gen_ai.conversation.id": rollout.session_id,
        "gen_ai.usage.input_tokens": real(usage.get("input_tokens")),
        "gen_ai.usage.output_tokens": real(usage.get("output_tokens")),
        "tau.rollout_id": rollout.rollout_id,
        "tau.parent_rollout_id": rollout.parent_id,
        "tau.host": rollout.host,
        "tau.status": rollout.status.value,
        "tau.reason": None if rollout.reason is None else str(rollout.reason),
        "tau.attempt": span.attempt,
        "tau.attempts": rollout.attempt_count,
        "tau.queue": rollout.queue,
        "tau.cost_usd": real(rollout.metadata.get("cost_usd")),
    }


def _decision_attributes(decision: Decision) -> dict[str, Any]:
    known = len(decision.probabilities) == len(decision.options)
    return {
        "tau.decision_id": decision.decision_id,
        "tau.point": decision.point,
        "tau.options": [*decision.options],
        "tau.probabilities": [*decision.probabilities] if known else None,
        "tau.chosen": decision.chosen,
        "tau.applied": decision.applied,
        "tau.default": decision.default,
        "tau.propensity": decision.propensity,
        "tau.policy_version": decision.policy_version,
        "tau.source": decision.source,
        "tau.arm": decision.arm,
        "tau.why_not": decision.why_not,
        "tau.expected_return": decision.value,
    }


def _step(span: Span) -> tuple[str, dict[str, Any]]:
    cost = {"tau.cost_usd": real(span.attributes.get("cost_usd")), "tau.kind": span.kind}
    if span.kind == "model":
        attributes = call_attributes(span.name, span.attributes)
        return f"chat {attributes['gen_ai.request.model']}", {**attributes, **cost}
    if span.kind == "tool":
        own = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": span.name}
        return f"execute_tool {span.name}", {**own, **cost}
    return f"{span.kind} {span.name}".strip(), cost
