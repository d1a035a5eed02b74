"""Runs of two arms at the public door, and what is known of them."""

from collections.abc import Mapping
from pathlib import Path

import tau_live
from tau_live.core.records import Decision, Trial, rollout_id_of
from tau_live.core.settings import Settings
from tau_live.decisions.decider import uniform
from tau_live.decisions.runs import run_id_of
from tau_live.operate.trials import Order
from tests.live.running import decisions, opened

OPTIONS = ["small", "large"]


def decided(key: object, *, default: str | None = "small", times: int = 1) -> list[Decision]:
    """Run an agent that decides, and return its decisions as they are stored."""
    with tau_live.run("arms", key=key) as run:
        for _ in range(times):
            run.decide("model", OPTIONS, default=default)
    assert tau_live.flush(30)
    runtime = tau_live.attach()
    assert runtime is not None
    return decisions(runtime.settings.store, run.id)


def number_of(key: object, *, seed: int = 0) -> float:
    """Return the sticky number of the run that has this key."""
    rollout_id = rollout_id_of("tau_live", run_id_of("arms", key))
    return uniform(f"{seed}:arm:{rollout_id}")


def key_within(low: float, high: float) -> int:
    """Return a key whose run has a sticky number between these."""
    return next(key for key in range(10_000) if low <= number_of(key) < high)


def order(action: str = "test") -> Order:
    """Return an order of an operator."""
    return Order(action, "model", "because", "anna", 5.0)


def again(settings: Settings) -> None:
    """Attach anew with these settings."""
    tau_live.detach()
    assert tau_live.attach(settings) is not None


def trial(path: Path) -> Trial:
    """Return the trial of the model as it is stored."""
    with opened(path) as store:
        return store.trials.trial("model")


def told() -> Mapping[str, object]:
    """Return what the process knows of that trial."""
    found = tau_live.snapshot()["trials"]
    assert isinstance(found, dict)
    here = found.get("model", {})
    assert isinstance(here, dict)
    return here


def quick(key: object) -> float | None:
    """Return the share that a run's decision was made with, from the event itself."""
    runtime = tau_live.attach()
    assert runtime is not None
    with tau_live.run("arms", key=f"quick-{key}") as run:
        run.decide("model", OPTIONS, default="small")
        assert run.handle is not None
        return run.handle.arms["model"].share
