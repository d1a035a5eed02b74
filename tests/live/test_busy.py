"""A host that computes all the time: what it does is stored meanwhile, not only when it rests."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

import tau_live
from tau_live.core.hookspecs import Answer, DecisionRequest, hookimpl
from tau_live.core.settings import Settings
from tests.live.running import integrity, line, opened, process, until

NEVER_WAITS = """
import tau_live
assert tau_live.attach() is not None
with tau_live.run("first") as run:
    run.decide("model", ["small", "large"])
assert tau_live.flush(60)
print("computing", flush=True)
while True:
    with tau_live.run("more") as run:
        run.decide("model", ["small", "large"])
        run.reward(1.0)
    sum(n * n for n in range(1_000))
"""


@pytest.mark.slow
def test_runs_are_stored_while_their_host_never_waits(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"

    def stored() -> int:
        with opened(path) as store:
            return store.rewards.became_ready()

    with process(NEVER_WAITS, path) as host:
        assert line(host) == "computing"
        until(lambda: stored() > 1_000)

    assert integrity(path) == "ok"


DEADLINE_MS = 20.0


class Slow:
    """A plugin that takes long to answer: it computes, or its thread has to wait.

    Args:
        computes: Which of them.
    """

    def __init__(self, *, computes: bool) -> None:
        self._computes = computes

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer:
        """Answer after three times the deadline."""
        clock = time.thread_time if self._computes else time.monotonic
        until = clock() + 3 * DEADLINE_MS / 1e3
        while clock() < until:
            if not self._computes:
                threading.Event().wait(DEADLINE_MS / 1e3)
        return Answer(option="large", probability=0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("computes", "source"), [(True, "default"), (False, "policy")])
def test_a_decision_is_late_by_what_it_computes_not_by_what_its_thread_waits(
    computes: bool, source: str, live: Path, settings: Settings
) -> None:
    tau_live.detach()
    runtime = tau_live.attach(replace(settings, decide_deadline_ms=DEADLINE_MS))
    assert runtime is not None
    tau_live.decide("model", ["small", "large"])  # the first one takes longer
    late = runtime.counts().get("decisions_past_deadline", 0)
    runtime.plugins.register(Slow(computes=computes), name="slow")

    choice = tau_live.decide("model", ["small", "large"])

    assert choice.source == source
    assert runtime.counts().get("decisions_past_deadline", 0) - late == int(computes)
