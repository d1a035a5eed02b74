"""What the live system does by itself: forgets, remembers, and tells of promotions."""

import time
from pathlib import Path

import pytest

import tau_live
from tau_live.core.records import RolloutQuery
from tau_live.core.settings import Learner, Settings
from tau_live.store.sqlite.store import SqliteStore
from tests.live.running import until
from tests.plugged import Promoted

PATIENCE_S = 20.0


def rollouts(path: Path) -> int:
    store = SqliteStore.open(path, read_only=True)
    try:
        return store.rollouts.query(RolloutQuery(limit=0)).total
    finally:
        store.close()


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    tau_live.detach()
    monkeypatch.setenv("TAU_LIVE_RL", "1")


@pytest.mark.slow
def test_what_is_older_than_the_retention_is_forgotten_by_itself(on: None, path: Path) -> None:
    tau_live.attach(Settings(store=path, retention_days=1e-9))
    with tau_live.run("old") as run:
        run.reward(1.0)
    assert tau_live.flush(PATIENCE_S)

    until(lambda: rollouts(path) == 0)

    tau_live.detach()


@pytest.mark.slow
def test_without_a_retention_nothing_is_forgotten(live: Path) -> None:
    with tau_live.run("old") as run:
        run.reward(1.0)
    assert tau_live.flush(PATIENCE_S)
    kept_house = time.monotonic() + 1.5
    until(lambda: time.monotonic() > kept_house)

    assert rollouts(live) == 1


@pytest.mark.slow
def test_a_retry_in_another_life_names_its_decisions_by_its_own_attempt(
    on: None, path: Path
) -> None:
    tau_live.attach(Settings(store=path))
    with pytest.raises(OSError, match="gone"), tau_live.run("job", key=1) as first:
        lost = first.decide("p", ["a", "b"])
        raise OSError("gone")
    tau_live.detach()

    tau_live.attach(Settings(store=path))
    with tau_live.run("job", key=1) as again:
        kept = again.decide("p", ["a", "b"])
    tau_live.detach()

    store = SqliteStore.open(path, read_only=True)
    options = [store.decisions.decision(choice.id).chosen for choice in (lost, kept)]
    store.close()
    assert lost.id.endswith(":attempt-1:decision-1")
    assert kept.id.endswith(":attempt-2:decision-1")
    assert options == [lost.option, kept.option]


@pytest.mark.slow
def test_a_plugin_hears_of_each_version_that_comes_to_decide(on: None, path: Path) -> None:
    runtime = tau_live.attach(
        Settings(store=path, learner=Learner.FLUSH, decide_deadline_ms=60_000.0)
    )
    assert runtime is not None
    promoted = Promoted()
    runtime.plugins.register(promoted, name="promoted")
    for version in (1, 2):
        for _ in range(8):
            with tau_live.run("job") as run:
                run.reward(float(run.decide("p", ["a", "b"]).option == "a"))
        assert tau_live.flush(PATIENCE_S)
        # one that is replaced before anybody has looked never decides
        until(lambda seen=version: len(promoted.heard) == seen)  # type: ignore[misc]
    store = SqliteStore.open(path)
    store.policies.put_in_service("p", 0, pinned=True, at=time.time())
    store.close()
    until(lambda: len(promoted.heard) == 3)
    tau_live.detach()

    heard = [(one.point, one.was, one.version, one.pinned) for one in promoted.heard]
    assert heard == [("p", 0, 1, False), ("p", 1, 2, False), ("p", 2, 0, True)]


@pytest.mark.slow
def test_a_store_that_was_removed_holds_the_gate_and_another_is_begun(live: Path) -> None:
    with tau_live.run("before") as run:
        run.reward(1.0)
    assert tau_live.flush(PATIENCE_S)
    for part in live.parent.glob(f"{live.name}*"):
        part.unlink()

    until(lambda: gate()["state"] == "hold")
    until(lambda: gate()["stored"])

    store = SqliteStore.open(live, read_only=True)
    found = store.gate.load()
    store.close()
    assert found.reason == "store_replaced"
    assert "removed, replaced or emptied" in str(found.detail)


def gate() -> dict[str, object]:
    found = tau_live.snapshot()["gate"]
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
def test_what_a_skipped_update_left_and_all_that_follows_is_learned_from(
    on: None, path: Path
) -> None:
    tau_live.attach(Settings(store=path, learner=Learner.FLUSH, decide_deadline_ms=60_000.0))
    for number in range(8 + 200 + 40):
        with tau_live.run("job") as run:
            chosen = run.decide("p", ["a", "b"])
            run.reward(1.0 if number < 8 else float(chosen.option == "a"))
        if number in {7, 47, 247}:
            assert tau_live.flush(PATIENCE_S)
    tau_live.detach()

    store = SqliteStore.open(path, read_only=True)
    updates = store.policies.updates()[::-1]
    store.close()
    assert updates[0].skipped_reason == "fewer than two distinct rewards"
    assert all(update.executed for update in updates[1:])
    assert sum(update.trajectories for update in updates[1:]) == 248
