"""One decision from plain dicts, recorded, against Vowpal Wabbit's ``cb_explore_adf``.

Ours is ``tau_live.decide`` inside a run: names and features become plain data and sparse rows, the
policy (with evidence from some rollouts) draws, and a row goes to the writer, which stores it
meanwhile in its own thread. The peer formats the same dicts as its text, predicts, draws, and keeps
what learning needs. The two decide in turn; the clock is the processor's time of their thread.
"""

import os
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep, thread_time
from typing import NamedTuple

import tau_live
from tau_live.core.settings import Learner, Settings
from tau_live.rl.features import Encoded, encode
from tau_live.rl.policy import Policy
from tests.bench.timing import Goal, Measured, command, installed

OPTIONS, FEATURES, KNOWN = 8, 64, 8
DECISIONS = 500
TAUGHT = 64
PATIENCE_S = 120.0
PAUSE_S = 0.005
POINT = "choose"

Features = dict[str, float]
Decide = Callable[[Mapping[str, Features], Features], object]


class Task(NamedTuple):
    """What is decided about.

    Attributes:
        name: What is special about it.
        fresh: Whether options have other numbers every time.
    """

    name: str
    fresh: bool


TASKS = (Task("options that stay", fresh=False), Task("options new each time", fresh=True))


def measure(rounds: int, *, decisions: int = DECISIONS) -> list[Measured]:
    """Return the median and the 99th percentile of each round."""
    found: list[Measured] = []
    for task in TASKS:
        with recording() as ours:
            theirs = _peer()
            found += _measured(task, ours, theirs, rounds=rounds, decisions=decisions)
    found += scorer(rounds, decisions=decisions)
    return [*found, *beside_the_learner(rounds, decisions=decisions)]


def options(rng: random.Random) -> dict[str, Features]:
    """Return options with features."""
    return {
        f"option{place}": {f"feature{n}": rng.gauss(0.0, 1.0) for n in range(FEATURES)}
        for place in range(OPTIONS)
    }


def context(rng: random.Random) -> Features:
    """Return what is known of a situation."""
    return {f"known{n}": rng.gauss(0.0, 1.0) for n in range(KNOWN)}


@contextmanager
def recording(learner: Learner = Learner.FLUSH) -> Iterator[Decide]:
    """Attach tau-live to a store of its own, with a policy that some rollouts have taught."""
    before = os.environ.get("TAU_LIVE_RL")
    os.environ["TAU_LIVE_RL"] = "1"
    with tempfile.TemporaryDirectory(prefix="tau-live-bench-") as folder:
        tau_live.attach(
            Settings(store=Path(folder) / "store.sqlite", stream="bench", learner=learner)
        )
        try:
            _teach()
            yield lambda offered, known: tau_live.decide(POINT, offered, context=known)
        finally:
            tau_live.detach()
            if before is None:
                del os.environ["TAU_LIVE_RL"]
            else:
                os.environ["TAU_LIVE_RL"] = before


def _teach() -> None:
    rng = random.Random(0)
    for _ in range(TAUGHT):
        with tau_live.run("bench") as run:
            tau_live.decide(POINT, options(rng), context=context(rng))
        tau_live.reward(rng.random(), run=run)
    if not tau_live.flush(PATIENCE_S):
        raise RuntimeError(f"tau-live did not settle: {tau_live.snapshot()['gate']}")


def _peer() -> Decide | None:
    if not installed("vowpalwabbit"):
        return None
    from tests.bench.peer_vw_timing import DecidePeer

    peer, rng = DecidePeer("-q ca"), random.Random(0)
    for _ in range(TAUGHT):
        peer.decide(options(rng), context(rng))
        peer.learn(-rng.random())
    return peer.decide


def _measured(
    task: Task, ours: Decide, theirs: Decide | None, *, rounds: int, decisions: int
) -> list[Measured]:
    goal = Goal(0.5, faster=False)
    rng = random.Random(1)
    found = [
        Measured(f"{name}, {OPTIONS} x {FEATURES}, {task.name}", "VW -q ca", [], [], goal)
        for name in ("p50", "p99")
    ]
    staying = options(rng)
    for round_ in range(-1, rounds):
        mine: list[float] = []
        others: list[float] = []
        for _ in range(decisions):
            offered, known = options(rng) if task.fresh else staying, context(rng)
            with tau_live.run("bench"):
                mine.append(_timed(ours, offered, known))
            if theirs is not None:
                others.append(_timed(theirs, offered, known))
        if not tau_live.flush(PATIENCE_S):
            raise RuntimeError(f"tau-live did not settle: {tau_live.snapshot()['gate']}")
        if round_ >= 0:
            _keep(found, mine, others)
    return found


def scorer(rounds: int, *, decisions: int = DECISIONS) -> list[Measured]:
    """Return what the probabilities alone take, from rows and examples that are ready."""
    rng = random.Random(2)
    ready = [_encoded(rng) for _ in range(32)]
    policy = _policy()
    theirs = None
    if installed("vowpalwabbit"):
        from tests.bench.peer_vw_timing import DecidePeer

        theirs = DecidePeer("-q ca").predicting([(options(rng), context(rng)) for _ in range(32)])
    found = [
        Measured(f"{name}, the probabilities alone", "VW predict, parsed", [], [], None)
        for name in ("p50", "p99")
    ]
    for _ in range(rounds):
        mine: list[float] = []
        others: list[float] = []
        for place in range(decisions):
            began = thread_time()
            policy.probabilities(ready[place % len(ready)])
            mine.append(thread_time() - began)
            if theirs is not None:
                began = thread_time()
                theirs(place % len(ready))
                others.append(thread_time() - began)
        _keep(found, mine, others)
    return found


def beside_the_learner(rounds: int, *, decisions: int = DECISIONS) -> list[Measured]:
    """Return what a host waits for a decision while updates are made, and while none is.

    Runs of one decision about three options, each rewarded, with a pause before each; the clock on
    the wall, which a thread feels.
    """
    found = [
        Measured(f"{name}, 3 options, updates beside it", "no updates", [], [], None)
        for name in ("p50", "p99")
    ]
    for round_ in range(-1, rounds):
        mine, others = _waits(Learner.THREAD, decisions), _waits(Learner.FLUSH, decisions)
        if round_ >= 0:
            _keep(found, mine, others)
    return found


def _waits(learner: Learner, decisions: int) -> list[float]:
    rng = random.Random(3)
    waits: list[float] = []
    with recording(learner):
        for number in range(TAUGHT + decisions):
            if number == TAUGHT and not tau_live.flush(PATIENCE_S):
                raise RuntimeError(f"tau-live did not settle: {tau_live.snapshot()['gate']}")
            sleep(PAUSE_S)
            with tau_live.run("bench") as run:
                known = {"kind": rng.choice("abcd"), "size": rng.random()}
                began = perf_counter()
                choice = run.decide("model", ("small", "middle", "large"), context=known)
                if number >= TAUGHT:
                    waits.append(perf_counter() - began)
            tau_live.reward(float(choice.option == "middle"), run=run)
    return waits


def _encoded(rng: random.Random) -> Encoded:
    return encode(context(rng), list(options(rng).items()))


def _policy() -> Policy:
    """Return the policy that decides in ``recording``."""
    with recording():
        runtime = tau_live.attach()
        if runtime is None:
            raise RuntimeError("tau-live is off")
        return runtime._decider._served[POINT].policy


def _timed(decide: Decide, offered: Mapping[str, Features], known: Features) -> float:
    began = thread_time()
    decide(offered, known)
    return thread_time() - began


def _keep(found: list[Measured], mine: list[float], others: list[float]) -> None:
    for one, share in zip(found, (50, 99), strict=True):
        for kept, seconds in ((one.ours, mine), (one.theirs, others)):
            if seconds:
                kept.append(statistics.quantiles(seconds, n=100)[share - 1])


main = command("decide", "One decision from plain dicts, recorded", measure)

if __name__ == "__main__":
    main()
