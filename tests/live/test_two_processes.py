"""Two processes on one store: what an operator does in one is in force in the other at once."""

import time
from pathlib import Path

import pytest

import tau_live
from tests.live.running import gate, go, opened, process, rounds, said, until

OTHER = """
import json, sys, tau_live
from tests.live.running import rounds
assert tau_live.attach() is not None
ids = rounds(16, start=1_000)
assert tau_live.flush(30)
for line in sys.stdin:
    found = tau_live.snapshot()
    with tau_live.run("asked") as run:
        choice = run.decide("model", ["small", "large"])
    print(json.dumps({"gate": found["gate"]["state"], "version": choice.policy_version,
                      "source": choice.source, "ids": ids}), flush=True)
"""

pytestmark = pytest.mark.slow


@pytest.mark.timed
def test_what_one_process_changes_is_in_force_in_the_other_within_a_second(live: Path) -> None:
    with process(OTHER, live, TAU_LIVE_RL_DECIDE_DEADLINE_MS="60000") as other:

        def asked() -> dict[str, object]:
            go(other)
            return said(other)

        mine = rounds(16)
        assert tau_live.flush(30)
        first = asked()
        theirs = first["ids"]
        assert isinstance(theirs, list)
        with opened(live) as store:
            newest = store.policies.in_service()["model"].version
            both = [store.rollouts.rollout(id_).status for id_ in [*mine, *theirs]]
            until(lambda: asked()["version"] == newest, deadline_s=1.0)

            store.policies.put_in_service("model", 1, pinned=True, at=time.time())
            until(lambda: asked()["version"] == 1, deadline_s=1.0)
            until(lambda: tau_live.decide("model", ["a", "b"]).policy_version == 1, deadline_s=1.0)

            store.policies.put_in_service("model", 0, pinned=False, at=time.time())
            until(lambda: asked()["version"] == 0, deadline_s=1.0)

        runtime = tau_live.attach()
        assert runtime is not None
        runtime._gate.hold("operator", at=time.time())
        until(lambda: asked()["gate"] == "hold", deadline_s=1.0)
        held = asked()

        runtime._gate.reset("looked at", who="tests", at=time.time())
        until(lambda: asked()["gate"] == "pass", deadline_s=1.0)
        passing = asked()

    assert both == ["succeeded"] * 32
    assert (held["source"], passing["source"]) == ("default", "policy")
    assert gate()["state"] == "pass"
