"""A process that is forked while another thread of it makes the first call."""

from pathlib import Path

import pytest

from tests.live.running import done, process, rollouts

pytestmark = pytest.mark.slow

FORK = """
import logging, os, signal, sys, threading, time
import tau_live

lines = []
logging.getLogger("tau_live").addHandler(type("Kept", (logging.Handler,), {
    "emit": lambda self, record: lines.append(record.getMessage())})())
inside, over = threading.Event(), threading.Event()


def linger(event, found):
    if event == "exec" and found[0].co_filename.endswith(sys.argv[1]):
        inside.set()
        over.wait(float(sys.argv[2]))


sys.addaudithook(linger)
first = threading.Thread(target=lambda: tau_live.attach())
first.start()
inside.wait()
if float(sys.argv[2]) > 5.0 and "tau_live.runtime.process" in sys.modules:
    sys.modules["tau_live.runtime.process"].WAIT_S = 0.3
pid = os.fork()
if pid == 0:
    signal.alarm(50)  # it must not hang
    began = time.monotonic()
    for number in range(40):
        with tau_live.run("child", key=number) as run:
            source = run.decide("model", ["a", "b"], default="a", allowed=["a", "b"]).source
            accepted = run.reward(1.0)
    flushed = tau_live.flush(10)
    fast = time.monotonic() - began < 8.0
    print("child", source, accepted, flushed, fast, sum("fork_left_alone" in one for one in lines),
          flush=True)
    os._exit(0)
code = os.waitpid(pid, 0)[1]
began = time.monotonic()
for _ in range(40):
    if not over.is_set() and "tau_live.runtime.process" in sys.modules:
        tau_live.decide("model", ["a", "b"])
fast = time.monotonic() - began < 8.0
over.set()
first.join()
with tau_live.run("parent"):
    pass
print(code, fast, tau_live.flush(10), flush=True)
"""


def test_a_fork_waits_for_a_start_and_its_child_has_its_own(path: Path) -> None:
    with process(FORK, path, "tau_live/runtime/build.py", 0.3) as forking:
        child, parent = done(forking).splitlines()

    assert child == "child policy True True True 0"
    assert parent == "0 True True"
    assert {row.name for row in rollouts(path)} >= {"child", "parent"}


@pytest.mark.parametrize("at", ["tau_live/runtime/build.py", "tau_live/core/offers.py"])
def test_a_child_that_was_forked_in_the_midst_of_a_start_is_off_with_one_line(
    path: Path, at: str
) -> None:
    with process(FORK, path, at, 60.0) as forking:
        child, parent = done(forking).splitlines()

    assert child == "child default False False True 1"
    assert parent == "0 True True"


@pytest.mark.parametrize(("switch", "flushed", "lines"), [("1", False, 1), ("0", True, 0)])
def test_so_it_is_in_the_midst_of_the_first_import(
    path: Path, switch: str, flushed: bool, lines: int
) -> None:
    with process(FORK, path, "tau_live/runtime/api.py", 3.0, TAU_LIVE_RL=switch) as forking:
        child, _ = done(forking).splitlines()

    assert child == f"child default False {flushed} True {lines}"


ELSEWHERE = """
import os, sys
import tau_live

with tau_live.run("parent"):
    pass
tau_live.flush(10)
os.makedirs("elsewhere", exist_ok=True)
os.chdir("elsewhere")
if os.fork() == 0:
    with tau_live.run("child"):
        pass
    print(tau_live.flush(10), os.path.exists(".tau"), flush=True)
    os._exit(0)
os.wait()
"""


def test_a_child_uses_its_parents_store_after_a_change_of_the_folder(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    with process(ELSEWHERE, Path(path.name)) as forking:
        assert done(forking).split() == ["True", "False"]

    assert {row.name for row in rollouts(path)} == {"parent", "child"}
