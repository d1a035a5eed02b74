"""The queue and its attempts against a model of a page: any sequence of steps agrees."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tau_live.core.errors import InvalidTransitionError
from tau_live.core.records import (
    ROLLOUT_ENDS,
    AttemptStatus,
    RolloutConfig,
    RolloutQuery,
    RolloutStatus,
)
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import queued, span
from tests.writes import writes

OPEN = {"preparing", "running"}
ENDS = [end for end in AttemptStatus if end not in OPEN]
RETRIED = {"failed", "timeout", "unresponsive"}


@dataclass
class Try:
    """An attempt as the model knows it."""

    status: str
    began: float
    sign: float
    worker: str


@dataclass
class Known:
    """A rollout as the model knows it."""

    config: RolloutConfig
    status: str = "queuing"
    by_hand: bool = False
    tries: list[Try] = field(default_factory=list)


class QueueMachine(RuleBasedStateMachine):
    """Does everything to a store and to the model of it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = SqliteStore.open(Path(self.folder.name) / "store.sqlite")
        self.known: dict[str, Known] = {}
        self.line: list[str] = []
        self.now = 0.0
        self.late = 0

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @rule(by=st.floats(0.1, 5.0))
    def time_passes(self, by: float) -> None:
        self.now += by

    @rule(
        max_attempts=st.integers(1, 3),
        timeout_s=st.none() | st.floats(1.0, 8.0),
        unresponsive_s=st.none() | st.floats(1.0, 8.0),
    )
    def enqueue(
        self, max_attempts: int, timeout_s: float | None, unresponsive_s: float | None
    ) -> None:
        name = f"q-{len(self.known)}"
        config = RolloutConfig(
            max_attempts=max_attempts, timeout_s=timeout_s, unresponsive_s=unresponsive_s
        )
        self.store.queue.enqueue(queued(name, config), at=self.now)
        self.known[name] = Known(config)
        self.line.append(name)

    @rule(worker=st.sampled_from(["w-1", "w-2"]))
    def claim(self, worker: str) -> None:
        claim = self.store.queue.claim(worker, at=self.now)
        self._expire()
        if not self.line:
            assert claim is None
            return
        name = self.line.pop(0)
        self.known[name].status = "preparing"
        self.known[name].tries.append(Try("preparing", self.now, self.now, worker))
        assert claim is not None
        assert claim.rollout.rollout_id == name
        assert claim.attempt.number == len(self.known[name].tries)

    @precondition(lambda self: any(known.tries for known in self.known.values()))
    @rule(data=st.data(), worker=st.sampled_from(["w-1", "w-2"]))
    def heartbeat(self, data: st.DataObject, worker: str) -> None:
        name, number, attempt = self._some_attempt(data)
        self.store.workers.register(worker, at=self.now)
        lives = self.store.queue.heartbeat(worker, name, number, at=self.now)
        if attempt.worker == worker:
            self._recover(name, attempt)
        assert lives == (attempt.status in OPEN and attempt.worker == worker)
        if lives:
            self._show_life(name, attempt)

    @precondition(lambda self: any(known.tries for known in self.known.values()))
    @rule(data=st.data())
    def add_span(self, data: st.DataObject) -> None:
        name, number, attempt = self._some_attempt(data)
        some = span(f"s-{self.now}", name, number, started_at=0.0)
        writes(self.store).add_spans([some], at=self.now)
        self._recover(name, attempt)
        if attempt.status == "unresponsive" and self.known[name].status not in {
            "succeeded", "failed", "cancelled"
        }:  # fmt: skip
            attempt.status = "running"  # beside the newer one
        if attempt.status in OPEN:
            self._show_life(name, attempt)

    @precondition(lambda self: any(known.tries for known in self.known.values()))
    @rule(data=st.data(), end=st.sampled_from(ENDS))
    def finish(self, data: st.DataObject, end: AttemptStatus) -> None:
        name, number, attempt = self._some_attempt(data)
        known = self.known[name]
        answer = self.store.queue.finish(name, number, end, at=self.now)
        if attempt.status != end:
            self._recover(name, attempt)
            is_newest = attempt is known.tries[-1]
            self.late += attempt.status not in OPEN or not is_newest
            goes_on = attempt.status in OPEN and not is_newest
            if goes_on or (
                attempt.status == "unresponsive" and known.status in {*OPEN, "requeuing"}
            ):  # the result is a sign of life, until it ends below
                attempt.status, attempt.sign = "running", max(attempt.sign, self.now)
            if attempt.status in OPEN and is_newest:
                self._end(name, attempt, end.value)
            elif attempt.status in OPEN:
                attempt.status = end.value
        assert answer == known.status

    @rule()
    def expire(self) -> None:
        concerned = self.store.queue.expire(now=self.now)
        assert concerned == self._expire()

    def _expire(self) -> list[str]:
        due = []
        for at, (name, known) in enumerate(self.known.items()):
            config = known.config
            for number, attempt in enumerate(known.tries):
                if attempt.status not in OPEN:
                    continue
                ends = [
                    (attempt.began + config.timeout_s, 0, "timeout") if config.timeout_s else None,
                    (attempt.sign + config.unresponsive_s, 1, "unresponsive")
                    if config.unresponsive_s
                    else None,
                ]
                first = min((end for end in ends if end), default=None)
                if first is not None and first[0] < self.now:
                    due.append((first[0], at, number, name, first[2]))
        for _, _, number, name, end in sorted(due):
            attempt = self.known[name].tries[number]
            if attempt.status not in OPEN:  # it ended with the one before
                continue
            if attempt is self.known[name].tries[-1]:
                self._end(name, attempt, end)
            else:
                attempt.status = end
        return list(dict.fromkeys(name for _, _, _, name, _ in sorted(due)))

    def _recover(self, name: str, attempt: Try) -> None:
        known = self.known[name]
        is_final = known.by_hand or known.status in {"succeeded", "cancelled"}
        counts = attempt is known.tries[-1] and not is_final
        if attempt.status == "unresponsive" and counts:
            attempt.status = known.status = "running"
            self.line = [other for other in self.line if other != name]

    def _show_life(self, name: str, attempt: Try) -> None:
        attempt.status, attempt.sign = "running", max(attempt.sign, self.now)
        if self.known[name].status == "preparing" and attempt is self.known[name].tries[-1]:
            self.known[name].status = "running"

    @precondition(lambda self: self.known)
    @rule(data=st.data(), end=st.sampled_from(sorted(ROLLOUT_ENDS)))
    def end(self, data: st.DataObject, end: RolloutStatus) -> None:
        name = data.draw(st.sampled_from(sorted(self.known)))
        known = self.known[name]
        is_open = known.status not in ROLLOUT_ENDS
        if not is_open and end != known.status and (known.status, end) != ("failed", "cancelled"):
            with pytest.raises(InvalidTransitionError):
                self.store.queue.end(name, end, at=self.now)
            return
        changed = self.store.queue.end(name, end, at=self.now)
        assert changed == (known.status != end)
        known.by_hand = known.by_hand or changed
        for attempt in known.tries:
            if attempt.status in OPEN:
                attempt.status = "succeeded" if end == "succeeded" else "failed"
        known.status = end.value
        self.line = [other for other in self.line if other != name]

    @invariant()
    def they_agree(self) -> None:
        found = {r.rollout_id: r for r in self.store.rollouts.query(RolloutQuery()).rollouts}
        assert {name: r.status for name, r in found.items()} == {
            name: known.status for name, known in self.known.items()
        }
        assert self.store.queue.length() == len(self.line)
        assert self.store.counters.counts().get("late_results", 0) == self.late
        for name, known in self.known.items():
            assert [
                (a.status, a.last_heartbeat_at) for a in self.store.rollouts.attempts(name)
            ] == [(attempt.status, attempt.sign) for attempt in known.tries]
            assert (found[name].ended_at is None) == (found[name].reason is None)
            assert (found[name].reason is not None) == (
                known.status in {"succeeded", "failed", "cancelled"}
            )
            assert len(known.tries) <= known.config.max_attempts

    def _some_attempt(self, data: st.DataObject) -> tuple[str, int, Try]:
        name = data.draw(st.sampled_from(sorted(n for n, k in self.known.items() if k.tries)))
        number = data.draw(st.integers(1, len(self.known[name].tries)))
        return name, number, self.known[name].tries[number - 1]

    def _end(self, name: str, attempt: Try, end: str) -> None:
        known = self.known[name]
        attempt.status = end
        if end == "succeeded":
            known.status = "succeeded"
        elif len(known.tries) < known.config.max_attempts:
            known.status = "requeuing"
            self.line.append(name)
        else:
            known.status = "failed"
        for other in known.tries:  # none outlives its rollout, nor runs on while that waits
            if other.status in OPEN:
                other.status = "succeeded" if end == "succeeded" else "failed"


TestQueueMachine = pytest.mark.slow(QueueMachine.TestCase)
TestQueueMachine.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
