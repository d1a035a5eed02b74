"""Processes that are really killed, under load, and started again."""

import os
import signal
from pathlib import Path

import pytest

import tau_live
from tau_live.core.settings import Settings
from tests.live.running import (
    DEADLINE_S,
    done,
    integrity,
    opened,
    process,
    rollout,
    rollouts,
    rounds,
    said,
)

pytestmark = pytest.mark.slow

LOAD = """
import json, threading, time, tau_live
assert tau_live.attach() is not None
opened = tau_live.run("open", key="left-open")
run = opened.__enter__()
run.decide("model", ["small", "large"])

def work(number):
    while True:
        with tau_live.run("load") as one:
            choice = one.decide("model", ["small", "large"])
            one.reward(float(choice.option == "large"))
        ids.append(one.id)
        time.sleep(0.04)

ids = []
for number in range(4):
    threading.Thread(target=work, args=(number,), daemon=True).start()
while True:
    known = list(ids)
    if tau_live.flush(10):
        print(json.dumps({"acknowledged": known, "open": run.id}), flush=True)
"""

EXIT = """
import os, signal, sys, tau_live
assert tau_live.attach() is not None
ids = []
if sys.argv[1] == "flushed":
    with tau_live.run("first") as run:
        ids.append(run.id)
    assert tau_live.flush(10)
for number in range(int(sys.argv[2])):
    with tau_live.run("exit") as run:
        run.decide("model", ["a", "b"])
        run.reward(1.0)
how = sys.argv[3]
if how == "left open":
    left = tau_live.run("left", key=1)
    left.__enter__()
elif how == "os._exit":
    os._exit(0)
elif how == "raise":
    raise SystemExit(0)
elif how == "sigterm":
    os.kill(os.getpid(), signal.SIGTERM)
"""


def test_what_was_acknowledged_before_a_kill_is_there(path: Path) -> None:
    acknowledged: list[str] = []
    left_open: list[str] = []
    for _ in range(3):
        known: list[str] = []
        with process(LOAD, path) as load:
            while len(known) < 20:
                found = said(load)
                assert isinstance(found["acknowledged"], list)
                known = found["acknowledged"]
            os.kill(load.pid, signal.SIGKILL)
            load.wait(DEADLINE_S)
        still_open = found["open"]
        assert isinstance(still_open, str)
        acknowledged += known
        left_open.append(still_open)

    with process("import tau_live; assert tau_live.attach(); assert tau_live.flush(30)", path) as p:
        done(p)

    stored = {row.rollout_id: row for row in rollouts(path)}
    assert len(set(acknowledged)) == len(acknowledged) > 30
    assert set(acknowledged) <= set(stored)
    assert {stored[id_].status for id_ in acknowledged} == {"succeeded"}
    assert all(stored[id_].total_reward is not None for id_ in acknowledged)
    assert {row.status for row in stored.values()} <= {"succeeded", "failed"}
    abandoned = [row for row in stored.values() if row.status == "failed"]
    assert set(left_open) <= {row.rollout_id for row in abandoned}
    assert {row.reason for row in abandoned} == {"abandoned"}
    assert integrity(path) == "ok"
    with opened(path) as store:
        assert store.policies.watermark("model") > 0
        assert store.rewards.ready_count("model", after=store.policies.watermark("model")) < 8


def test_learning_goes_on_after_a_kill(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with process(LOAD, path) as load:
        said(load)
        os.kill(load.pid, signal.SIGKILL)
        load.wait(DEADLINE_S)
    with opened(path) as store:
        before = len(store.policies.updates())
    monkeypatch.setenv("TAU_LIVE_RL", "1")

    assert tau_live.attach(Settings(store=path)) is not None
    rounds(80)
    assert tau_live.flush(30)
    tau_live.detach()

    with opened(path) as store:
        assert len(store.policies.updates()) > before
        assert store.gate.load().state == "pass"


def test_a_run_that_lives_is_not_ended_by_another_start(path: Path) -> None:
    with process(LOAD, path) as load:
        still_open = said(load)["open"]

        with process("import tau_live; assert tau_live.attach(); tau_live.flush(30)", path) as p:
            done(p)

        assert rollout(path, str(still_open)).status == "running"


@pytest.mark.parametrize("how", ["end", "raise"])
def test_an_interpreter_that_ends_stores_what_waits(path: Path, how: str) -> None:
    with process(EXIT, path, "at once", 1_000, how) as leaving:
        done(leaving)

    found = rollouts(path)
    assert len(found) == 1_000
    assert {row.status for row in found} == {"succeeded"}


def test_a_run_left_open_at_the_end_of_the_interpreter_is_abandoned(path: Path) -> None:
    with process(EXIT, path, "at once", 1, "left open") as leaving:
        done(leaving)

    found = {row.name: (row.status, row.reason) for row in rollouts(path)}
    assert found == {"exit": ("succeeded", "completed"), "left": ("failed", "abandoned")}


@pytest.mark.parametrize("how", ["os._exit", "sigterm"])
def test_a_sudden_end_loses_at_most_what_was_not_flushed(path: Path, how: str) -> None:
    with process(EXIT, path, "flushed", 200, how) as leaving:
        out, _ = leaving.communicate(timeout=60)

    with process("import tau_live; assert tau_live.attach(); tau_live.flush(30)", path) as p:
        done(p)
    found = rollouts(path)
    assert out == ""
    assert leaving.returncode == (-signal.SIGTERM if how == "sigterm" else 0)
    assert found[0].name == "first"
    assert {row.status for row in found} <= {"succeeded", "failed"}
    assert integrity(path) == "ok"


FORKS = """
import os, sys, threading, tau_live
assert tau_live.attach() is not None
stop = threading.Event()

def load():
    while not stop.is_set():
        with tau_live.run("parent load") as run:
            run.decide("model", ["a", "b"])
        stop.wait(0.04)

threads = [threading.Thread(target=load) for _ in range(3)]
for thread in threads:
    thread.start()
with tau_live.run("forks", key=1) as outer:
    first = outer.decide("model", ["a", "b"])
    children = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            with tau_live.run("inside") as inner:
                inside = tau_live.decide("model", ["a", "b"])
                inner.reward(1.0)
            own = outer.decide("model", ["a", "b"])
            assert inside.source == own.source == "policy", (inside, own)
            assert own.run not in (outer.id, inner.id)
            if number % 2:
                assert tau_live.flush(30)
                os._exit(0)
            threads.clear()
            sys.exit(0)
        children.append(pid)
    codes = [os.waitpid(pid, 0)[1] for pid in children]
    second = outer.decide("model", ["a", "b"])
stop.set()
for thread in threads:
    thread.join()
assert codes == [0] * 4, codes
assert tau_live.flush(30)
print(outer.id, flush=True)
"""


def test_a_forked_child_has_a_runtime_of_its_own_and_its_parents_goes_on(path: Path) -> None:
    with process(FORKS, path, TAU_LIVE_RL_DECIDE_DEADLINE_MS="60000") as forks:
        outer = done(forks).split()[0]

    found = rollouts(path)
    inside = [row for row in found if row.name == "inside"]
    apart = [row for row in found if row.name == "model"]
    assert {row.status for row in found} == {"succeeded"}
    assert len({row.rollout_id for row in inside}) == len(inside) == 4
    assert {row.parent_id for row in [*inside, *apart]} == {outer}
    assert len(apart) == 4
    with opened(path) as store:
        rows = store.decisions.decisions(outer)
        loads = [row for row in found if row.name == "parent load"]
        assert [row.ordinal for row in rows] == [1, 2]
        assert all(len(store.decisions.decisions(row.rollout_id)) == 1 for row in loads)
    assert integrity(path) == "ok"


def test_a_store_that_many_processes_open_at_once_starts_all_of_them(path: Path) -> None:
    first, second = (process(EXIT, path, "flushed", 5, "end") for _ in range(2))
    with first as one, second as two:
        done(one)
        done(two)

    assert len({row.rollout_id for row in rollouts(path)}) == 12
