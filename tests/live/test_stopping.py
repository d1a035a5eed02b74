"""What an operator pauses or kills, in processes that are running, and in those that begin."""

import json
import sqlite3
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tau_live
from tau_live.cli import main
from tau_live.cli.options import operator
from tau_live.core import events as ev
from tau_live.core.reasons import Part
from tau_live.operate.stops import kill_file, pause_parts, resume_parts
from tests.live.running import (
    counters,
    decisions,
    go,
    opened,
    process,
    rewards,
    rollouts,
    rounds,
    said,
    until,
)

AGENT = """
import json, os, sys, tau_live
from tests.live.running import rounds
runtime = tau_live.attach()
assert runtime is not None
done = 0
kept = None
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == "learn":
        rounds(16, start=done)
        done += 16
        tau_live.flush(5)
    if word == "begin":
        kept = tau_live.run("long", key="long")
        kept.__enter__()
    if word == "end":
        kept.__exit__(None, None, None)
    if word == "kill":
        os.environ["TAU_LIVE_RL_KILL"] = "1"
    with tau_live.run("asked") as run:
        choice = run.decide("model", ["small", "large"], default="small")
        rewarded = run.reward(1.0)
    found = runtime.snapshot()
    print(json.dumps({
        "id": run.id, "source": choice.source, "option": choice.option,
        "propensity": choice.probability, "rewarded": rewarded,
        "recorded": run.handle is not None and run.handle.recorded,
        "gate": found["gate"]["state"], "reason": found["gate"]["reason"],
        "paused": sorted(found["paused"]), "killed": found["kill_switch"],
        "version": found["policies_in_service"].get("model", 0),
    }), flush=True)
"""

Seen = Mapping[str, object]

pytestmark = pytest.mark.slow


def cli(path: Path, *arguments: str) -> None:
    """Call the command line, which must succeed."""
    result = CliRunner().invoke(main, [*arguments, "--reason", "why", "--store", str(path)])
    assert result.exit_code == 0, result.output


def status(path: Path) -> str:
    """Return what ``tau-live status --json`` says, read elsewhere."""
    return CliRunner().invoke(main, ["status", "--json", "--store", str(path)]).stdout


def asked(agent: "subprocess.Popen[str]", word: str = "go") -> Seen:
    go(agent, word)
    return said(agent)


def heard(agent: "subprocess.Popen[str]", then: Callable[[Seen], object]) -> None:
    """Wait until a running process acts accordingly, for a second."""
    until(lambda: then(asked(agent)), deadline_s=1.0)


@pytest.mark.timed
def test_each_pause_reaches_a_running_process_within_a_second(path: Path) -> None:
    with process(AGENT, path) as agent:
        assert said(agent)["ready"]
        before = asked(agent, "begin")

        cli(path, "pause", "deciding")
        heard(agent, lambda seen: seen["source"] == "default")
        undecided = asked(agent)
        cli(path, "resume", "deciding")
        heard(agent, lambda seen: seen["source"] == "policy")

        cli(path, "pause", "collection")
        heard(agent, lambda seen: not seen["recorded"])
        unrecorded = asked(agent, "end")
        late = ["reward", "0.5", "--run", str(before["id"]), "--name", "late"]
        assert CliRunner().invoke(main, [*late, "--store", str(path)]).exit_code == 0
        cli(path, "resume")
        heard(agent, lambda seen: seen["recorded"])

        cli(path, "pause", "learning")
        heard(agent, lambda seen: seen["paused"] == ["learning"])
        settled = asked(agent, "learn")["version"]  # an update under way is finished by then
        unlearned = asked(agent, "learn")["version"]
        cli(path, "resume", "learning")
        until(lambda: asked(agent)["version"] != unlearned)

    ids = {one.rollout_id for one in rollouts(path)}
    row = decisions(path, str(undecided["id"]))[0]
    assert (row.why_not, row.source, row.applied, row.propensity) == (
        "paused", "default", "small", None,
    )  # fmt: skip
    assert (undecided["option"], undecided["propensity"]) == ("small", None)
    assert unrecorded["id"] not in ids
    assert (unrecorded["source"], unrecorded["rewarded"]) == ("default", False)
    assert {reward.name for reward in rewards(path, str(before["id"]))} == {"reward", "late"}
    assert [one.status for one in rollouts(path) if one.name == "long"] == ["succeeded"]
    assert unlearned == settled
    assert counters(path)["runs_not_recorded_while_paused"] > 0


def test_a_process_that_begins_while_something_is_paused_knows_it_at_once(path: Path) -> None:
    with opened(path) as store:
        pause_parts(store, [Part.DECIDING, Part.COLLECTION], reason="odd", who="me", at=1.0)

    with process(AGENT, path) as agent:
        assert said(agent)["ready"]
        first = asked(agent)

    assert first["paused"] == ["collection", "deciding"]
    assert (first["recorded"], first["source"]) == (False, "default")


@pytest.mark.timed
def test_the_kill_switch_reaches_a_running_process_within_a_second_and_ends_what_was_open(
    path: Path,
) -> None:
    with process(AGENT, path) as agent:
        assert said(agent)["ready"]
        assert asked(agent, "begin")["source"] == "policy"

        cli(path, "kill")
        heard(agent, lambda seen: seen["reason"] == "killed")
        killed = asked(agent, "end")
        with opened(path) as store:
            until(lambda: store.rollouts.owners() == [] or not any_open(path))
        cli(path, "unkill")
        heard(agent, lambda seen: seen["source"] == "policy")

    assert (killed["gate"], killed["recorded"], killed["source"]) == ("hold", False, "default")
    assert {one.reason for one in rollouts(path) if one.name == "long"} == {"interrupted"}


def any_open(path: Path) -> bool:
    return any(one.status == "running" for one in rollouts(path))


@pytest.mark.timed
@pytest.mark.parametrize("how", ["removed", "damaged"])
def test_it_is_heard_while_the_store_is_locked_and_where_it_is_broken(path: Path, how: str) -> None:
    with process(AGENT, path) as agent:
        assert said(agent)["ready"]
        assert asked(agent)["source"] == "policy"
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("begin immediate")
            cli(path, "kill")
            heard(agent, lambda seen: seen["reason"] == "killed")
            cli(path, "unkill")
            heard(agent, lambda seen: seen["gate"] == "pass")
        if how == "removed":
            path.unlink()
        else:
            path.write_bytes(b"nonsense" * 4096)

        kill_file(path, None).touch()

        heard(agent, lambda seen: seen["gate"] == "hold" and seen["killed"])
        assert asked(agent)["source"] == "default"


@pytest.mark.timed
def test_a_process_that_begins_while_it_is_on_does_nothing_and_waits_for_nothing(
    path: Path,
) -> None:
    kill_file(path, None).touch()
    with process(AGENT, path) as agent:
        assert said(agent)["ready"]
        first = asked(agent)

        kill_file(path, None).unlink()
        heard(agent, lambda seen: seen["source"] == "policy")

    assert (first["gate"], first["recorded"], first["source"]) == ("hold", False, "default")
    assert first["id"] not in {one.rollout_id for one in rollouts(path)}


@pytest.mark.timed
def test_a_variable_set_inside_a_running_process_stops_it_at_once(path: Path) -> None:
    with process(AGENT, path) as agent:
        assert said(agent)["ready"]
        before = asked(agent)

        after = asked(agent, "kill")
        heard(agent, lambda seen: seen["reason"] == "killed")
        until(lambda: "TAU_LIVE_RL_KILL is set inside 1 of 1 " in status(path), deadline_s=3.0)

    assert (before["source"], after["source"], after["recorded"]) == ("policy", "default", False)
    assert "TAU_LIVE_RL_KILL" not in status(path)  # it is over with its process


def test_a_variable_in_the_environment_keeps_tau_live_off_and_says_so(path: Path) -> None:
    code = "import json, tau_live; print(json.dumps({'on': tau_live.attach() is not None}))"

    with process(code, path, TAU_LIVE_RL_KILL="stop") as agent:
        found = said(agent)

    assert found == {"on": False}
    assert not path.exists()


def test_a_learner_of_its_own_heeds_pauses_and_the_kill_switch(live: Path) -> None:
    rounds(16)
    tau_live.detach()
    cli(live, "pause", "learning")

    notes: list[str] = []

    def learned() -> int:
        arguments = ["learn", "--once", "--json", "--store", str(live)]
        result = CliRunner().invoke(main, arguments, env={"TAU_LIVE_RL": "1"})
        assert result.exit_code == 0
        lines = result.stderr.splitlines(keepends=True)
        notes.append("".join(one for one in lines if "alert_raised" not in one))
        return len([json.loads(line) for line in result.stdout.splitlines()])

    resting = learned()
    cli(live, "resume")
    cli(live, "kill")
    killed = learned()
    cli(live, "unkill")
    free = learned()

    at = f"--store {live}"
    assert (resting, killed) == (0, 0)
    assert free >= 1
    assert notes == [
        f"note: learning is paused: why: `tau-live resume learning --reason ... {at}`\n",
        f"note: the kill switch is on: why ({operator()}): `tau-live unkill --reason ... {at}`\n",
        "",
    ]


@pytest.mark.timed
def test_what_the_host_decided_while_deciding_was_paused_is_in_neither_arm(live: Path) -> None:
    with opened(live) as store:
        pause_parts(store, [Part.DECIDING], reason="odd", who="me", at=1.0)
        until(lambda: tau_live.snapshot()["paused"], deadline_s=1.0)
        first = rounds(16)
        assert tau_live.flush(30)
        points = store.trials.points()
        resume_parts(store, [Part.DECIDING], reason="mended", who="me", at=2.0)
        until(lambda: not tau_live.snapshot()["paused"], deadline_s=1.0)
        then = rounds(16, start=16)
        assert tau_live.flush(30)
        trial = store.trials.trial("model")

    assert list(points) == []
    assert (trial.exposure, trial.ladder) == (None, False)
    assert {decisions(live, one)[0].source for one in first} == {"default"}
    assert {decisions(live, one)[0].source for one in then} == {"policy"}


@pytest.mark.timed
def test_a_run_that_an_adapter_tells_event_by_event_is_left_out_whole(live: Path) -> None:
    runtime = tau_live.attach()
    assert runtime is not None
    known: dict[str, Any] = {"host": "bakery", "at": 1.0}
    with opened(live) as store:
        runtime.emit(ev.RunStart(**known, run_id="before"))
        pause_parts(store, [Part.COLLECTION], reason="odd", who="me", at=1.0)
        until(lambda: tau_live.snapshot()["paused"], deadline_s=1.0)
        runtime.emit(ev.RunStart(**known, run_id="during"))
        resume_parts(store, [Part.COLLECTION], reason="mended", who="me", at=2.0)
        until(lambda: not tau_live.snapshot()["paused"], deadline_s=1.0)

    taken = {
        run: runtime.emit(ev.RunEnd(**known, run_id=run, status=ev.Status.OK))
        for run in ("before", "during")
    }

    assert taken == {"before": True, "during": False}
    assert tau_live.flush(30)
    assert [one.run_id for one in rollouts(live)] == ["before"]
    assert tau_live.snapshot()["drops"] == {"paused": 2}


def test_a_flush_while_the_gate_holds_is_not_true(live: Path) -> None:
    runtime = tau_live.attach()
    assert runtime is not None
    assert tau_live.flush(30)
    held = CliRunner().invoke(main, ["gate", "hold", "--reason", "audit", "--store", str(live)])
    assert held.exit_code == 0, held.output
    until(lambda: not runtime._gate.passes)

    with tau_live.run("triage") as run:
        assert run.id == ""

    assert not tau_live.flush(5)
