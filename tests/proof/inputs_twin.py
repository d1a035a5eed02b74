"""Two processes' worth of the same good runs, one of them with poisoned events between."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import force_setattr

import tau_live
from tau_live.core import events as ev
from tau_live.core.settings import Learner, Settings
from tests.proof.inputs_events import event_with
from tests.proof.inputs_live import STEPS
from tests.proof.inputs_tally import Tally
from tests.proof.inputs_values import Values

ROUNDS = 48
FLUSH_EVERY = 8
NO_REWARDS: tuple[Any, ...] = (
    float("nan"), float("inf"), 10**5000, None, complex(1), {}, object(), b"1", [1.0], "words",
)  # fmt: skip
_NAN = float("nan")
_OPTIONS: Mapping[str, Mapping[str, object]] = {
    "small": {"price": 0.1, "kind": "fast"},
    "large": {"price": 0.9, "kind": "slow"},
}


def twin_cases(tally: Tally, seed: int, cases: range, folder: Path) -> Mapping[str, object]:
    """Return how many probabilities differ between the twins, and how many there were."""
    clean = _served(tally, folder / "clean", seed, poison=0)
    spoiled = _served(tally, folder / "spoiled", seed, poison=max(1, len(cases) // ROUNDS))
    changed = sum(first != second for first, second in zip(clean, spoiled, strict=True))
    versions = {version for *_, version in clean}
    tally.check(len(versions) > 2, "odd", f"the policies that decided: {versions}")
    return {"changed": changed, "compared": len(clean)}


def _served(
    tally: Tally, folder: Path, seed: int, *, poison: int
) -> list[tuple[object, float | None, int]]:
    folder.mkdir()
    tau_live.attach(
        Settings(
            store=folder / "store.sqlite",
            learner=Learner.FLUSH,
            stream="twin",
            decide_deadline_ms=60_000.0,
        )
    )
    choices = []
    for number in range(ROUNDS):
        values = Values(random.Random(f"{seed}:{number}"))
        with tau_live.run("good", key=number) as run:
            for at in range(poison):
                tally.case = f"round {number}, poison {at}"
                _poison(tally, run, values)
            choice = run.decide("model", _OPTIONS, context={"words": float(number % 5)})
            run.reward(float((choice.option == "large") == (number % 5 > 2)))
        choices.append((choice.option, choice.probability, choice.policy_version))
        if number % FLUSH_EVERY == FLUSH_EVERY - 1:
            tally.check(tau_live.flush(60.0), "odd", "not flushed")
    tau_live.detach(60.0)
    return choices


def _poison(tally: Tally, run: tau_live.Run, values: Values) -> None:
    rng, runtime = values.rng, tau_live.attach()
    kind = rng.randrange(4)
    if kind == 0:
        bad = rng.choice(NO_REWARDS)
        tally.timed(run.reward, bad, name=values.any().value)
    elif kind == 1:
        bad = {"a": values.any().value, "x": _NAN}
        with tau_live.run("poisoned") as other:
            tally.timed(other.decide, "model", {"small": bad, "large": bad}, context=bad)
    elif runtime is not None:
        step = rng.choice(STEPS)
        event: Any = _decision(rng) if kind == 2 else event_with(values, wanted=step)[1]
        identity = {"host": "tau_live", "run_id": run.run_id, "execution": "", "attempt": None}
        for name, value in identity.items():
            force_setattr(event, name, value)
        tally.timed(runtime.emit, event)


def _decision(rng: random.Random) -> ev.Decision:
    """Return a decision with numbers that are none, which must teach nothing."""
    return ev.Decision(
        host="",
        run_id="",
        at=1.0,
        ordinal=rng.randrange(100, 10**6),
        point="model",
        options=("small", "large"),
        chosen="small",
        applied="small",
        propensity=rng.choice((_NAN, 0.0, -1.0, 7.0, float("inf"))),
        probabilities=(_NAN, float("inf")),
        value=rng.choice((_NAN, 1e308)),
        encoded=rng.randbytes(rng.randrange(60)),
    )
