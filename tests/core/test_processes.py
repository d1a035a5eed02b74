"""Processes: one that died is dead, and its number does not make another one it."""

import os
import subprocess
import sys

import pytest

from tau_live.core.processes import is_alive, this_process

CHILD = """
import sys
from tau_live.core.processes import this_process
print(this_process(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def child() -> "tuple[str, subprocess.Popen[str]]":
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    return process.stdout.readline().strip(), process


def reaped(process: "subprocess.Popen[str]") -> None:
    process.communicate()


def renamed(owner: str, *, pid: object = None, born: str | None = None) -> str:
    machine, old_pid, old_born = owner.rsplit(":", 2)
    return f"{machine}:{old_pid if pid is None else pid}:{old_born if born is None else born}"


def test_this_process_lives() -> None:
    assert is_alive(this_process()) is True


def test_a_process_keeps_its_name() -> None:
    assert this_process() == this_process()


def test_a_child_lives_until_it_has_ended(child: "tuple[str, subprocess.Popen[str]]") -> None:
    owner, process = child
    before = is_alive(owner)

    reaped(process)

    assert (before, is_alive(owner)) == (True, False)


def test_a_killed_child_that_nobody_reaped_is_dead(
    child: "tuple[str, subprocess.Popen[str]]",
) -> None:
    owner, process = child

    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has died, but is kept
    found = is_alive(owner)

    reaped(process)
    assert found is False


def test_another_process_under_the_same_number_is_not_it() -> None:
    earlier = renamed(this_process(), born="1-00000000")

    assert is_alive(earlier) is False


def test_the_same_tick_of_another_boot_is_another_process() -> None:
    born = this_process().rsplit(":", 1)[1]
    ticks = born.partition("-")[0]

    assert is_alive(renamed(this_process(), born=f"{ticks}-00000000")) is False


def test_a_process_whose_birth_nobody_told_lives_while_its_number_does() -> None:
    assert is_alive(renamed(this_process(), born="unknown")) is True


def test_nobody_knows_about_another_machine() -> None:
    pid, born = this_process().rsplit(":", 2)[1:]

    assert is_alive(f"elsewhere.example:{pid}:{born}") is None


def test_a_machine_may_have_a_colon_in_its_name() -> None:
    assert is_alive("fe80::1:1:unknown") is None


@pytest.mark.parametrize("pid", [0, -1, -(2**31), 2**31, 2**70])
def test_a_number_that_no_process_has_is_dead(pid: int) -> None:
    assert is_alive(renamed(this_process(), pid=pid)) is False


@pytest.mark.parametrize("owner", ["", "x", "a:b", "a:b:c", ":::", "a:1.5:c", "queue"])
def test_what_names_no_process_is_dead(owner: str) -> None:
    assert is_alive(owner) is False


def test_somebody_elses_process_lives() -> None:
    assert is_alive(renamed(this_process(), pid=1, born="unknown")) is True
