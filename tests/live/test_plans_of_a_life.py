"""No statement of a whole life reads a whole table: whatever is run, over and over, is captured."""

from pathlib import Path

import pytest

import tau_live
from tau_live.cli.gc import forget_rollouts
from tau_live.core.records import AttemptStatus, RolloutQuery
from tau_live.core.settings import Learner, Settings
from tau_live.operate.status import status_of
from tau_live.store.retention import Limits
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import queued
from tests.store.scans import Ran, scans

PATIENCE_S = 30.0


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Every statement that any store runs."""
    found = Ran()
    opened = SqliteStore.open

    def traced(*arguments: object, **options: object) -> SqliteStore:
        store = opened(*arguments, **options)  # type: ignore[arg-type]  # whatever was given
        store._connection.raw.set_trace_callback(found.note)
        return store

    monkeypatch.setattr(SqliteStore, "open", staticmethod(traced))
    return found


def life(path: Path) -> SqliteStore:
    settings = Settings(
        store=path, learner=Learner.FLUSH, update_interval=2, retention_rollouts=3,
        retention_days=1e-9, retention_mb=0.01,
    )  # fmt: skip
    tau_live.attach(settings)
    for number in range(12):
        with tau_live.run("job", key=number, session="anna") as run:
            run.decide("model", ["small", "large"], context={"words": number})
        tau_live.reward(float(number % 2), host="tau-live", run=str(number), session=None)
        if number % 4 == 3:
            assert tau_live.flush(PATIENCE_S)
    tau_live.reward(1.0, session="anna", name="late")
    tau_live.flush(PATIENCE_S)
    tau_live.detach()
    store = SqliteStore.open(path)
    for number in range(3):
        store.queue.enqueue(queued(f"q-{number}"), at=1.0)
        claim = store.queue.claim("w-1", at=2.0)
        assert claim is not None
        store.queue.heartbeat("w-1", claim.rollout.rollout_id, 1, at=3.0)
        store.queue.finish(claim.rollout.rollout_id, 1, AttemptStatus.SUCCEEDED, at=4.0)
        store.queue.expire(now=5.0)
    status_of(store, settings, now=6.0)
    store.rollouts.query(RolloutQuery(limit=5, descending=True))
    for rollout in store.rollouts.query(RolloutQuery(limit=9)).rollouts:
        store.rollouts.spans(rollout.rollout_id)
    forget_rollouts(store, Limits(rollouts=1), now=1e10, report_progress=lambda _: None)
    return store


@pytest.mark.slow
def test_nothing_that_a_life_runs_reads_a_whole_table(
    tmp_path: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()

    store = life(tmp_path / "store.sqlite")

    raw = store._connection.raw
    raw.set_trace_callback(None)
    found = scans(raw, ran.asked)
    store.close()
    assert len(ran.asked) > 60
    assert not found, "\n".join(found)
