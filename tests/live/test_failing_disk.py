"""A disk that really fails: the gate holds, the host goes on, and all is well when the disk is."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import tau_live
from tau_live.core.settings import Settings
from tau_live.record.shutdown import SUFFIX, losses_left
from tau_live.store.files import policies_of
from tau_live.store.sqlite.store import SqliteStore
from tests.live.running import (
    done,
    environ,
    gate,
    go,
    opened,
    process,
    rollout,
    rollouts,
    rounds,
    said,
    until,
)

FULL = """
import json, resource, signal, sys, time, tau_live
from tests.live.running import until
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
assert tau_live.attach() is not None

def work(number, name):
    sources = set()
    for at in range(number):
        with tau_live.run(name) as run:
            choice = run.decide("model", ["small", "large"], default="large")
            run.reward(1.0)
        sources.add((choice.option, choice.source))
    return sources

def tell(**more):
    found = tau_live.snapshot()
    told = ("gate", "drops", "backlog", "refused", "store_trouble")
    print(json.dumps({**more, **{k: found[k] for k in told}}), flush=True)

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

work(20, "before")
assert tau_live.flush(30)
still = tau_live.run("open", key="left-open")
run = still.__enter__()
assert tau_live.flush(30)
limit(4096)
work(20, "queued")
until(lambda: work(1, "failing") and tau_live.snapshot()["gate"]["state"] != "pass")
sources = work(50, "held")
choice = run.decide("model", ["small", "large"], default="large")
sources.add((choice.option, choice.source))
tell(sources=sorted(sources), flushed=tau_live.flush(0.5), open=run.id)
sys.stdin.readline()
limit(resource.RLIM_INFINITY)
began = time.monotonic()
until(lambda: tau_live.snapshot()["gate"]["state"] == "pass")
waited = time.monotonic() - began
still.__exit__(None, None, None)
after = work(20, "after")
tell(waited=waited, sources=sorted(after), flushed=tau_live.flush(30))
"""


NO_ROOM = """
import json, resource, signal, sys, time, tau_live
from tests.live.running import until
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
assert tau_live.attach() is not None

def work(number):
    for at in range(number):
        with tau_live.run("triage") as run:
            choice = run.decide("model", ["small", "large"], default="large")
            run.reward(float(at % 2))

def tell():
    found = tau_live.snapshot()
    print(json.dumps({k: found[k] for k in ("gate", "store_trouble")}), flush=True)

resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
while tau_live.snapshot()["gate"]["state"] == "pass":
    work(8)
    tau_live.flush(10)
tell()
sys.stdin.readline()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
until(lambda: tau_live.snapshot()["gate"]["state"] == "pass", deadline_s=10.0)
assert tau_live.flush(30)
tell()
"""


@pytest.mark.slow
def test_no_room_for_a_version_holds_in_memory_until_there_is_although_the_store_works(
    path: Path,
) -> None:
    with process(NO_ROOM, path) as host:
        held = said(host)
        until(lambda: command(path, "gate").returncode == 3)
        shown = command(path, "gate", "--json")
        status = command(path, "status", "--json")
        learned = opened_updates(path)
        go(host)
        passed = said(host)
        done(host)

    before, after = held["gate"], passed["gate"]
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert (before["state"], before["reason"]) == ("hold", "store_unavailable")
    assert "cannot write checkpoint" in str(before["detail"])
    assert "cannot write checkpoint" in str(held["store_trouble"])
    for told in (shown, status):
        found = json.loads(told.stdout)["held_in_memory"]
        assert [hold["reason"] for hold in found] == ["store_unavailable"]
    assert json.loads(shown.stdout)["state"] == "pass"  # nothing for an operator to reset
    assert learned == 0
    assert (after["state"], after["streaks"]["update"], passed["store_trouble"]) == (
        "pass",
        0,
        None,
    )
    assert opened_updates(path) > 0


def opened_updates(path: Path) -> int:
    """Return how many updates were kept."""
    with opened(path) as store:
        return len(store.policies.updates())


LEARNS = """
import os, resource, signal, sys, threading, time
from pathlib import Path
from tau_live.runtime.learner_process import learn_until
from tau_live.core.settings import Settings
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
stop = threading.Event()
settings = Settings(store=Path(os.environ["TAU_LIVE_RL_STORE"]))
learner = threading.Thread(
    target=lambda: learn_until(stop, settings, once=False, report=lambda found: stop.set())
)
learner.start()
print("{}", flush=True)
sys.stdin.readline()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
learner.join(30)
print("{}", flush=True)
"""


@pytest.mark.slow
def test_a_learner_of_its_own_waits_for_room_and_goes_on_by_itself(path: Path) -> None:
    with process("import tau_live\n" + ROUNDS, path, TAU_LIVE_RL_LEARNER="off") as host:
        done(host)
    with process(LEARNS, path) as learner:
        said(learner)
        until(lambda: command(path, "gate").returncode == 3, deadline_s=30.0)
        told = json.loads(command(path, "gate", "--json").stdout)
        go(learner)
        said(learner)
        done(learner)

    assert (told["state"], told["held_in_memory"][0]["reason"]) == ("pass", "store_unavailable")
    assert stored_gate(path) == "pass"
    assert opened_updates(path) == 1


ROUNDS = """
from tests.live.running import rounds
assert tau_live.attach() is not None
rounds(8)
tau_live.detach()
"""


def reset(path: Path) -> subprocess.CompletedProcess[str]:
    """Reset the gate as an operator does."""
    return command(path, "gate", "reset", "--reason", "disk replaced")


def command(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command as an operator does."""
    return subprocess.run(
        [sys.executable, "-m", "tau_live.cli", *words],
        env=environ(path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.timed
@pytest.mark.slow
def test_a_full_disk_holds_the_gate_until_there_is_room_again(path: Path) -> None:
    with process(FULL, path, TAU_LIVE_RL_DECIDE_DEADLINE_MS="60000") as host:
        held = said(host)
        go(host)
        passed = said(host)
        done(host)

    before, after = held["gate"], passed["gate"]
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert (before["state"], before["reason"]) == ("hold", "store_unavailable")
    assert before["stored"] is False
    trouble = held["store_trouble"]
    assert isinstance(trouble, dict)
    assert "reading or writing it failed" in trouble["error"]
    assert trouble["busy"] is False
    assert held["sources"] == [["large", "default"]]
    assert held["flushed"] is False
    assert (after["state"], passed["store_trouble"]) == ("pass", None)
    assert isinstance(passed["waited"], float)
    assert passed["waited"] < 2.0
    assert passed["flushed"] is True
    assert {source for _, source in passed["sources"]} == {"policy"}  # type: ignore[attr-defined]

    found = rollouts(path)
    names = [row.name for row in found]
    left = rollout(path, str(held["open"]))
    assert (left.status, left.reason) == ("failed", "interrupted")
    assert [names.count(name) for name in ("before", "queued", "held", "after")] == [20, 20, 0, 20]
    assert {row.status for row in found if row.name in ("before", "queued", "after")} == {
        "succeeded"
    }
    refused = passed["refused"]
    assert isinstance(refused, dict)
    assert refused["runs_not_recorded_while_held"] >= 50
    with opened(path) as store:
        events = [(entry.event, entry.reason) for entry in store.gate.log()]
        counted = store.counters.counts()
        kinds = [row.kind for row in store.alerts.latest(limit=10)]
    assert events == [("held_in_memory", "store_unavailable")]
    assert counted["runs_not_recorded_while_held"] == refused["runs_not_recorded_while_held"]
    assert counted["dropped_store_failed"] >= 50
    assert "store-fails" in kinds


@pytest.mark.slow
def test_a_hold_that_only_memory_knows_is_seen_by_every_command(path: Path) -> None:
    more = {"TAU_LIVE_RL_DECIDE_DEADLINE_MS": "60000"}
    with process(FULL, path, **more) as one, process(FULL, path, **more) as two:
        pids = sorted([one.pid, two.pid])
        assert {said(one)["flushed"], said(two)["flushed"]} == {False}
        held, status = command(path, "gate", "--json"), command(path, "status", "--json")
        shown, doctor = command(path, "status"), command(path, "doctor")
        go(two)
        said(two)
        done(two)
        less = command(path, "gate")
        one.kill()
        one.wait()
        over = command(path, "gate", "--json")

    assert held.returncode == 3
    for told in (held, status):
        found = json.loads(told.stdout)["held_in_memory"]
        assert sorted(hold["pid"] for hold in found) == pids
        assert {hold["reason"] for hold in found} == {"store_unavailable"}
    assert "2 processes hold in memory because of store_unavailable" in shown.stdout
    assert "no process is attached" not in shown.stdout
    assert doctor.returncode == 1
    assert doctor.stdout.count("(held-in-memory)") == 2
    assert (less.returncode, less.stdout.count("held in memory")) == (3, 1)
    assert (over.returncode, json.loads(over.stdout)["held_in_memory"]) == (0, [])


@pytest.mark.slow
def test_the_doctor_fails_where_nothing_can_be_written(path: Path) -> None:
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY));"
        "from tau_live.cli import main; main(['doctor', '--json'])"
    )

    with closing(SqliteStore.open(path)):  # as an agent has it, with its shared memory
        done = subprocess.run(
            [sys.executable, "-c", limited],
            env=environ(path),
            capture_output=True,
            text=True,
            check=False,
        )

    states = {check["check"]: check["state"] for check in json.loads(done.stdout)["checks"]}
    assert (done.returncode, states["writing"]) == (1, "fail")


@pytest.mark.slow
def test_the_status_is_not_healthy_where_nothing_can_be_written(path: Path) -> None:
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY));"
        "from tau_live.cli import main; main(['status'])"
    )

    with closing(SqliteStore.open(path)):
        done = subprocess.run(
            [sys.executable, "-c", limited],
            env=environ(path),
            capture_output=True,
            text=True,
            check=False,
        )
        well = command(path, "status", "--json")

    assert "Is it healthy?   no" in done.stdout
    assert "The store cannot be written: " in done.stdout
    assert json.loads(well.stdout)["store_fails"] is None


ENDS_FULL = """
import resource, signal, sys, tau_live
from tests.live.running import until
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
assert tau_live.attach() is not None
def work():
    with tau_live.run("held") as run:
        run.reward(1.0)
assert tau_live.flush(30)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
until(lambda: work() or tau_live.snapshot()["gate"]["state"] != "pass")
for _ in range(50):
    work()
"""


@pytest.mark.slow
def test_what_a_full_disk_cost_is_known_after_the_process_has_ended(path: Path) -> None:
    with process(ENDS_FULL, path) as host:
        done(host)
    lost = path.with_name(path.name + SUFFIX).stat()

    told = json.loads(command(path, "status", "--json").stdout)
    doctor = command(path, "doctor").stdout
    with process("import tau_live; tau_live.attach(); tau_live.flush()", path) as next_one:
        done(next_one)
    with opened(path) as store:
        counted = store.counters.counts()
        kinds = {row.kind for row in store.alerts.latest(limit=10)}

    assert (lost.st_size >= 50, lost.st_blocks) == (True, 0)  # it takes no room
    assert told["counters"]["dropped_unwritten"] == lost.st_size
    assert "dropped_unwritten" in doctor
    assert counted["dropped_unwritten"] == lost.st_size
    assert losses_left(path) == 0
    assert "events-dropped" in kinds


def stored_gate(path: Path) -> str:
    with opened(path) as store:
        return store.gate.load().state


@pytest.mark.slow
def test_failing_updates_hold_the_gate_although_collection_succeeds(
    live: Path, settings: Settings
) -> None:
    """Fault 6: the reference resets one shared streak with every collected run."""
    policies_of(settings.store).write_text("not a folder")

    flushed = []
    for start in range(0, 80, 8):
        rounds(8, start=start)
        flushed.append(tau_live.flush(30))
        if gate()["state"] != "pass":
            break

    found = gate()
    streaks = found["streaks"]
    assert isinstance(streaks, dict)
    assert (found["state"], found["reason"]) == ("hold", "update_failures")
    assert (streaks["update"], streaks["collection"]) == (3, 0)
    assert True not in flushed
    with opened(live) as store:
        assert store.policies.updates() == []
        assert store.policies.versions() == []

    tau_live.detach()
    assert tau_live.attach(settings) is not None
    assert (gate()["state"], gate()["reason"]) == ("hold", "update_failures")

    policies_of(settings.store).unlink()
    assert reset(live).returncode == 0
    until(lambda: gate()["state"] == "pass", deadline_s=2.0)
    rounds(8, start=100)
    assert tau_live.flush(30)
    with opened(live) as store:
        assert store.policies.updates()


def test_failing_decisions_hold_the_gate_and_the_host_decides(
    live: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tau_live.attach()
    assert runtime is not None
    monkeypatch.setattr(runtime._decider, "_untrained", None)  # what serves is damaged in memory

    with tau_live.run("triage", key=1) as run:
        found = [run.decide("model", ["a", "b"], default="b") for _ in range(5)]
    until(lambda: stored_gate(live) == "hold")

    assert {(choice.option, choice.source) for choice in found} == {("b", "default")}
    assert (gate()["state"], gate()["reason"]) == ("hold", "decision_failures")
    until(lambda: [row.reason for row in rollouts(live)] == ["interrupted"])


@pytest.mark.slow
def test_a_run_that_was_over_when_the_gate_tripped_has_its_own_end(live: Path) -> None:
    runtime = tau_live.attach()
    assert runtime is not None
    ids = rounds(700)

    with tau_live.run("open", key=1) as still:
        runtime._gate.hold("operator", at=1.0)
        after = still.decide("model", ["a", "b"], default="b")
    until(lambda: rollout_or_none(live, still.id) == "interrupted")

    assert after.source == "default"
    assert {rollout(live, id_).reason for id_ in ids} == {"completed"}


def rollout_or_none(path: Path, rollout_id: str) -> str | None:
    with opened(path) as store:
        found = store.rollouts.find_rollout(rollout_id)
    return found.reason if found is not None else None


@pytest.mark.slow
def test_a_recording_that_cannot_be_written_costs_nothing_but_itself(path: Path) -> None:
    code = """
import tau_live
from tests.live.running import rounds
assert tau_live.attach() is not None
rounds(4)
assert tau_live.flush(30)
print(tau_live.snapshot()["gate"]["state"])
"""
    folder = path.with_name("a folder")
    folder.mkdir()

    with process(code, path, TAU_LIVE_RL_RECORD=str(folder)) as host:
        state = done(host).strip()

    assert state == "pass"
    assert len(rollouts(path)) == 4
