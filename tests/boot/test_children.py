"""What children of a run do is linked to it, each through a store connection of its own."""

import json
import os
import subprocess

import pytest

import tau_live
from tau_live.core.events import RunEnd, RunStart
from tau_live.core.processes import (
    ATTACHED,
    PARENT,
    Link,
    is_unwanted_child,
    link_run,
    link_text,
    parent_of,
    this_process,
)
from tests.scratch import Scratch

PARENTS = """
import asyncio, multiprocessing, os, shlex, subprocess, sys
import concurrent.futures
import tau_live

CHILD = "import tau_live\\nwith tau_live.run('child'): tau_live.decide('p', ['a', 'b'])"
COMMAND = [sys.executable, "-c", CHILD]


def work(environ):
    os.environ.update(environ)
    with tau_live.run("child"):
        pass


def by_subprocess(**given):
    subprocess.run(COMMAND, check=True, **given)


def by_environment():
    by_subprocess(env=dict(os.environ))


def by_spawn(method="spawn"):
    environ = tau_live.child_environ()
    process = multiprocessing.get_context(method).Process(target=work, args=(environ,))
    process.start()
    process.join()


def by_fork():
    process = multiprocessing.get_context("fork").Process(target=work, args=({},))
    process.start()
    process.join()


def by_forkserver():
    by_spawn("forkserver")


def by_popen():
    assert os.popen(shlex.join(COMMAND)).close() is None


def by_posix_spawn():
    pid = os.posix_spawn(sys.executable, COMMAND, tau_live.child_environ())
    assert os.waitpid(pid, 0)[1] == 0


def by_spawnve():
    assert os.spawnve(os.P_WAIT, sys.executable, COMMAND, tau_live.child_environ()) == 0


def by_system():
    environ = tau_live.child_environ({"TAU_LIVE_RL": "1"})
    link = " ".join(f"{name}={shlex.quote(value)}" for name, value in environ.items())
    assert os.system(f"{link} {shlex.join(COMMAND)}") == 0


def by_shell():
    async def started():
        process = await asyncio.create_subprocess_shell(shlex.join(COMMAND))
        await process.wait()

    asyncio.run(started())


def by_pool():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(work, (tau_live.child_environ(),))
        pool.close()
        pool.join()


def by_executor(method="forkserver"):
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        pool.submit(work, tau_live.child_environ()).result()


def by_asyncio():
    async def started():
        process = await asyncio.create_subprocess_exec(*COMMAND)
        await process.wait()

    asyncio.run(started())


if __name__ == "__main__":
    for way in sys.argv[1:]:
        with tau_live.run(way, key="1"):
            globals()[way]()
        by_subprocess()
"""

BY_COMMAND = ("by_subprocess", "by_system", "by_posix_spawn", "by_spawnve")
BY_MORE_COMMANDS = ("by_environment", "by_asyncio", "by_shell", "by_popen")
BY_PYTHON = ("by_fork", "by_spawn", "by_forkserver", "by_pool", "by_executor")
WAYS = (*BY_COMMAND, *BY_MORE_COMMANDS, *BY_PYTHON)


def rollouts(scratch: Scratch) -> list[dict[str, str | None]]:
    listed = scratch.cli("rollouts", "--json", "--limit", 100)
    found: list[dict[str, str | None]] = json.loads(listed)["rollouts"]
    return sorted(found, key=lambda one: str(one["started_at"]))


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str | None]]:
    """The rollouts of processes that start a child in a run, and one after it, in every way."""
    scratch = Scratch(tmp_path_factory.mktemp("children"))
    scratch.write("parent.py", PARENTS)
    for ways in (BY_COMMAND, BY_MORE_COMMANDS, BY_PYTHON):
        scratch.said("parent.py", *ways)
    found = rollouts(scratch)
    assert len(found) == 3 * len(WAYS)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_child_of_a_run_is_linked_to_it_and_one_outside_to_none(
    started: list[dict[str, str | None]], way: str
) -> None:
    first = [one["name"] for one in started].index(way)

    parent, inside, outside = started[first : first + 3]
    assert parent["parent_id"] is None
    assert (inside["name"], inside["parent_id"]) == ("child", parent["rollout_id"])
    assert (outside["name"], outside["parent_id"]) == ("child", None)
    assert len({one["owner"] for one in (parent, inside, outside)}) == 3
    assert {one["status"] for one in (parent, inside, outside)} == {"succeeded"}


@pytest.mark.slow
def test_children_are_left_alone_where_that_is_wished(scratch: Scratch) -> None:
    scratch.write("parent.py", PARENTS)
    environ = scratch.environ(TAU_LIVE_RL_CHILDREN="no")

    for ways in (BY_COMMAND, BY_PYTHON):
        scratch.said("parent.py", *ways, environ=environ)

    assert [one["name"] for one in rollouts(scratch)] == [*BY_COMMAND, *BY_PYTHON]


POOL = """
import concurrent.futures, multiprocessing, os
import tau_live


def work(name, environ):
    os.environ.update(environ)
    with tau_live.run(name):
        return os.getpid()


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        pids = set()
        for number in (1, 2):
            with tau_live.run("parent", key=number):
                task = pool.submit(work, f"task-{number}", tau_live.child_environ())
                pids.add(task.result())
    assert len(pids) == 1
"""


@pytest.mark.slow
def test_a_worker_is_inside_the_run_whose_environment_its_task_brought(scratch: Scratch) -> None:
    scratch.write("pool.py", POOL)

    scratch.said("pool.py")

    found = rollouts(scratch)
    parents = {one["rollout_id"]: one["run_id"] for one in found}
    linked = {one["name"]: parents.get(one["parent_id"]) for one in found}
    del linked["parent"]
    assert linked == {"task-1": "parent/1", "task-2": "parent/2"}


def test_outside_a_run_and_while_off_the_environment_is_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"TAU_LIVE_RL": "1", "PATH": "/bin"}

    for switch in ("0", "1"):
        monkeypatch.setenv("TAU_LIVE_RL", switch)
        assert tau_live.child_environ() == dict(os.environ)
        assert tau_live.child_environ(given) == given


@pytest.mark.slow
def test_what_cannot_be_started_fails_as_it_does_without_us(scratch: Scratch) -> None:
    scratch.write(
        "failing.py",
        "import os, subprocess, tau_live\n"
        "with tau_live.run('parent'):\n"
        "    try:\n"
        "        subprocess.run(['/nowhere/at/all'])\n"
        "    except OSError as error:\n"
        "        print(error, 'TAU_LIVE_PARENT' in os.environ)\n",
    )

    seen = scratch.run("failing.py")

    alone = scratch.run("failing.py", environ=scratch.environ("0"))
    assert "nowhere" in alone.stdout
    assert (seen.stdout, seen.stderr) == (alone.stdout, alone.stderr)


@pytest.mark.slow
def test_what_takes_the_place_of_a_process_is_linked_too(scratch: Scratch) -> None:
    scratch.write(
        "parent.py",
        "import os, sys, tau_live\n"
        "with tau_live.run('parent', key='1'):\n"
        "    if os.fork() == 0:\n"
        "        os.execve(sys.executable, [sys.executable, 'agent.py', 'rye'],"
        " tau_live.child_environ())\n"
        "    os.wait()\n",
    )

    said = scratch.said("-m", "tau_live.cli", "run", "--", scratch.python, "parent.py")

    child, parent = rollouts(scratch)
    assert said == "ran rye\n"
    assert (child["host"], child["parent_id"]) == ("bakery", parent["rollout_id"])


@pytest.mark.slow
def test_a_hosts_child_is_attached_and_linked_too(scratch: Scratch) -> None:
    scratch.write(
        "parent.py",
        "import subprocess, sys, tau_live\n"
        "with tau_live.run('parent', key='1'):\n"
        "    subprocess.run([sys.executable, 'agent.py', 'rye'], check=True)\n",
    )

    said = scratch.said("-m", "tau_live.cli", "run", "--", scratch.python, "parent.py")

    child, parent = rollouts(scratch)  # the host's clock tells the first second of 1970
    assert said == "ran rye\n"
    assert (child["host"], child["parent_id"]) == ("bakery", parent["rollout_id"])


@pytest.mark.slow
def test_a_child_with_the_switch_off_is_started_as_it_was_asked_for(scratch: Scratch) -> None:
    scratch.write(
        "parent.py",
        "import os, subprocess, sys, tau_live\n"
        "own = {'PATH': os.environ['PATH']}\n"
        "with tau_live.run('parent'):\n"
        "    subprocess.run([sys.executable, '-c', 'import os; print(sorted(os.environ))'],"
        " env=own)\n",
    )
    plain = [str(scratch.python), "-c", "import os; print(sorted(os.environ))"]
    environ = {"PATH": os.environ["PATH"]}
    alone = subprocess.run(plain, env=environ, capture_output=True, text=True, check=True)

    said = scratch.said("parent.py")

    assert said == alone.stdout


@pytest.mark.parametrize("run_id", ["a", "a:b", "agent/key: with, signs", "x" * 1_900])
def test_the_environment_carries_a_run_as_it_is(run_id: str) -> None:
    link = Link("tau_live", run_id)

    assert parent_of({PARENT: link_text(link)}) == link


@pytest.mark.parametrize("value", ["", ":", "host:", ":run", "no sign", "h:" + "x" * 2_000])
def test_what_names_no_run_is_none(value: str) -> None:
    assert parent_of({PARENT: value}) is None


def test_only_the_start_of_a_run_without_a_parent_is_linked() -> None:
    link = Link("outer", "o")
    start = RunStart(host="inner", run_id="i", at=1.0)
    nested = RunStart(host="inner", run_id="n", at=1.0, parent_run_id="i")
    end = RunEnd(host="inner", run_id="i", at=2.0)
    itself = RunStart(host="outer", run_id="o", at=1.0)

    found = [link_run(event, link) for event in (start, nested, end, itself)]

    assert (found[0].parent_run_id, found[0].parent_host) == ("o", "outer")
    assert found[1:] == [nested, end, itself]
    assert link_run(start, None) is start


def test_a_process_is_unwanted_if_another_one_says_so() -> None:
    assert not is_unwanted_child({})
    assert not is_unwanted_child({ATTACHED: this_process()})
    assert is_unwanted_child({ATTACHED: f"{this_process()}0"})
