"""A host that computes all the time: what it does is stored meanwhile, not only when it rests."""

from pathlib import Path

import pytest

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
