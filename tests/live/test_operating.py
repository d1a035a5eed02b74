"""What an operator says at the command line, heard by a process that is running."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from tau_live.cli import main
from tests.live.running import go, opened, process, said, until

AGENT = """
import json, sys, tau_live
from tests.live.running import rounds
runtime = tau_live.attach()
assert runtime is not None
for start in range(0, 48, 8):
    rounds(8, start=start)
    assert tau_live.flush(30)
print(json.dumps({"ready": True}), flush=True)
done = 48
for line in sys.stdin:
    if line.strip() == "learn":
        rounds(16, start=done)
        done += 16
        assert tau_live.flush(30)
    with tau_live.run("asked") as run:
        choice = run.decide("model", ["small", "large"], default="small")
        arm = run.handle.arms.get("model")
    trial = runtime._decider._trials.get("model")
    print(json.dumps({
        "source": choice.source,
        "version": runtime.snapshot()["policies_in_service"].get("model", 0),
        "share": arm and arm.share,
        "champion": trial and trial.champion,
    }), flush=True)
"""

Seen = Mapping[str, object]


def cli(path: Path, *arguments: str) -> None:
    """Call the command line, which must succeed."""
    result = CliRunner().invoke(
        main, ["policy", *arguments, "--reason", "why", "--store", str(path)]
    )
    assert result.exit_code == 0, result.output


def asked(agent: "subprocess.Popen[str]", word: str = "go") -> Seen:
    go(agent, word)
    return said(agent)


@pytest.mark.timed
@pytest.mark.slow
def test_each_verb_reaches_a_running_process_within_a_second(path: Path) -> None:
    with process(AGENT, path, TAU_LIVE_RL_CONTROL_SHARE="0.5") as agent:
        assert said(agent)["ready"]
        newest = asked(agent)["version"]
        with opened(path) as store:
            parent = store.policies.version(number(newest)).parent

        def heard(*command: str, then: Callable[[Seen], bool]) -> None:
            cli(path, *command)
            until(lambda: then(asked(agent)), deadline_s=1.0)

        heard("exposure", "model", "0.25", then=lambda seen: seen["share"] == 0.25)
        heard("freeze", "model", then=lambda seen: seen["champion"] == newest)
        heard("rollback", "model", then=lambda seen: seen["champion"] is None)
        heard("rollback", "model", then=lambda seen: seen["version"] == parent)
        cli(path, "pin", "model")
        learned = asked(agent, "learn")["version"]
        heard("unpin", "model", then=lambda seen: number(seen["version"]) > number(newest))
        heard("stop", "model", then=lambda seen: seen["share"] is None)
        stopped = [asked(agent)["source"] for _ in range(8)]
        heard("exposure", "model", "1", then=lambda seen: seen["share"] == 1.0)
        started = [asked(agent)["source"] for _ in range(8)]
        latest = asked(agent)["version"]
        heard("promote", "model", then=lambda seen: seen["champion"] == latest)
        heard("reset", "model", then=lambda seen: (seen["version"], seen["champion"]) == (0, None))

    assert learned == parent
    assert set(stopped) == {"default"}
    assert set(started) == {"policy"}


def number(value: object) -> int:
    assert isinstance(value, int)
    return value
