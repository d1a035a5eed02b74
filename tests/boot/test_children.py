"""What children of a run do is linked to it, each through a store connection of its own."""

import json
import os
import subprocess

import pytest

from tau_live.events import RunEnd, RunStart
from tau_live.machine.lineage import (
    ATTACHED,
    PARENT,
    Link,
    carried,
    is_unwanted_child,
    linked,
    parent_of,
)
from tau_live.machine.processes import this_process
from tests.scratch import Scratch

PARENTS = """
import asyncio, multiprocessing, os, shlex, subprocess, sys
import concurrent.futures
import tau_live

CHILD = "import tau_live\\nwith tau_live.run('child'): tau_live.decide('p', ['a', 'b'])"


def work():
    with tau_live.run("child"):
        pass


def by_subprocess(**given):
    subprocess.run([sys.executable, "-c", CHILD], check=True, **given)


def by_environment():
    by_subprocess(env=dict(os.environ))


def by_spawn(method="spawn"):
    process = multiprocessing.get_context(method).Process(target=work)
    process.start()
    process.join()


def by_fork():
    by_spawn("fork")


def by_forkserver():
    by_spawn("forkserver")


def by_system():
    assert os.system(shlex.join([sys.executable, "-c", CHILD])) == 0


def by_popen():
    assert os.popen(shlex.join([sys.executable, "-c", CHILD])).close() is None


def by_posix_spawn():
    argv = [sys.executable, "-c", CHILD]
    pid = os.posix_spawn(sys.executable, argv, os.environ)
    assert os.waitpid(pid, 0)[1] == 0


def by_posix_spawnp():
    argv = [sys.executable, "-c", CHILD]
    pid = os.posix_spawnp(sys.executable, argv, dict(os.environ))
    assert os.waitpid(pid, 0)[1] == 0


def by_spawnv():
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", CHILD]) == 0


def by_spawnlpe():
    argv = [sys.executable, "-c", CHILD]
    assert os.spawnlpe(os.P_WAIT, sys.executable, *argv, os.environ) == 0


def by_shell():
    async def started():
        process = await asyncio.create_subprocess_shell(shlex.join([sys.executable, "-c", CHILD]))
        await process.wait()

    asyncio.run(started())


def by_pool(method="spawn"):
    with multiprocessing.get_context(method).Pool(1) as pool:
        pool.apply(work)
        pool.close()
        pool.join()


def by_executor(method="forkserver"):
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        pool.submit(work).result()


def by_asyncio():
    async def started():
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD)
        await process.wait()

    asyncio.run(started())


if __name__ == "__main__":
    with tau_live.run("parent", key="1"):
        globals()[sys.argv[1]]()
    by_subprocess()
"""


def rollouts(scratch: Scratch) -> list[dict[str, str | None]]:
    found: list[dict[str, str | None]] = json.loads(scratch.cli("rollouts", "--json"))["rollouts"]
    return sorted(found, key=lambda one: str(one["started_at"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    [
        *("by_subprocess", "by_environment", "by_asyncio", "by_shell", "by_popen"),
        *("by_system", "by_posix_spawn", "by_posix_spawnp", "by_spawnv", "by_spawnlpe"),
        *("by_fork", "by_spawn", "by_forkserver", "by_pool", "by_executor"),
    ],
)
def test_a_child_of_a_run_is_linked_to_it_and_one_outside_to_none(
    scratch: Scratch, way: str
) -> None:
    scratch.write("parent.py", PARENTS)

    scratch.said("parent.py", way)

    parent, inside, outside = rollouts(scratch)
    assert (parent["name"], parent["parent_id"]) == ("parent", None)
    assert (inside["name"], inside["parent_id"]) == ("child", parent["rollout_id"])
    assert (outside["name"], outside["parent_id"]) == ("child", None)
    assert len({one["owner"] for one in (parent, inside, outside)}) == 3
    assert {one["status"] for one in (parent, inside, outside)} == {"succeeded"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    [
        *("by_subprocess", "by_system", "by_posix_spawn", "by_spawnv"),
        *("by_fork", "by_spawn", "by_forkserver", "by_pool", "by_executor"),
    ],
)
def test_children_are_left_alone_where_that_is_wished(scratch: Scratch, way: str) -> None:
    scratch.write("parent.py", PARENTS)
    environ = scratch.environ(TAU_LIVE_RL_CHILDREN="no")

    scratch.said("parent.py", way, environ=environ)

    assert [one["name"] for one in rollouts(scratch)] == ["parent"]


POOLS = """
import concurrent.futures, multiprocessing, multiprocessing.pool, os, sys
import tau_live


def work(name):
    with tau_live.run(name):
        return os.getpid()


def fail(name):
    raise ValueError(name)


def tasks(pool, number):
    if isinstance(pool, concurrent.futures.Executor):
        mapped = pool.map(work, [f"map-{number}"])
        return [pool.submit(work, f"submitted-{number}").result(), *mapped]
    return [
        pool.apply(work, (f"applied-{number}",)),
        *pool.map(work, [f"map-{number}"]),
        *pool.imap(work, [f"imap-{number}"]),
        *pool.imap_unordered(work, [f"unordered-{number}"]),
        *pool.starmap(work, [(f"starmap-{number}",)]),
    ]


if __name__ == "__main__":
    kind, method = sys.argv[1:]
    context = multiprocessing.get_context(method)
    pids = set()
    with tau_live.run("birth", key=0):
        if kind == "pool":
            pool = context.Pool(1)
        else:
            pool = concurrent.futures.ProcessPoolExecutor(1, mp_context=context)
            pids.add(pool.submit(os.getpid).result())
    for number in (1, 2):
        with tau_live.run("parent", key=number):
            pids.update(tasks(pool, number))
    pids.update(tasks(pool, 0))
    assert len(pids) == 1
    if kind == "pool":
        pool.close()
        pool.join()
    else:
        pool.shutdown()
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("kind", ["pool", "executor"])
def test_what_a_pool_does_is_linked_to_the_run_that_asked_for_it(
    scratch: Scratch, kind: str, method: str
) -> None:
    scratch.write("pools.py", POOLS)

    scratch.said("pools.py", kind, method)

    found = rollouts(scratch)
    parents = {one["rollout_id"]: one["run_id"] for one in found}
    linked = {
        str(one["name"]): parents.get(one["parent_id"])
        for one in found
        if one["name"] not in {"birth", "parent"}
    }
    assert len(linked) == (15 if kind == "pool" else 6)
    for name, parent in linked.items():
        number = name.rpartition("-")[2]
        assert parent == (f"parent/{number}" if number != "0" else None), name


FAILING = """
import concurrent.futures, multiprocessing, os, pickle, re, sys
import tau_live


def fail(name):
    raise ValueError(name)


if __name__ == "__main__":
    with tau_live.run("parent"):
        with concurrent.futures.ProcessPoolExecutor(1) as pool:
            for work in (fail, lambda name: name):
                try:
                    pool.submit(work, "x").result()
                except Exception as error:
                    told = getattr(error.__cause__, "tb", error)
                    print(type(error).__name__, re.sub("0x[0-9a-f]+", "there", str(told)))
        with multiprocessing.Pool(1) as pool:
            for work in (pool.map, pool.apply_async, pool.imap):
                try:
                    done = work(fail, ["x"])
                    done.get() if hasattr(done, "get") else list(done)
                except Exception as error:
                    print(error.__cause__.tb)
            print(pool.map(os.system, ["exit 3", "export A=1; exit 4"]))
        print(pickle.loads(pickle.dumps(os.execv)) is os.execv, os.system.__name__)
        os.system("echo $0; nosuchcommand; echo $A")
        sys.stdout.flush()
        try:
            os.execv("/nowhere/at/all", ["x"])
        except OSError as error:
            print(error, "TAU_LIVE_PARENT" in os.environ)
"""


@pytest.mark.slow
def test_what_fails_in_children_fails_as_it_does_without_us(scratch: Scratch) -> None:
    scratch.write("failing.py", FAILING)

    seen = scratch.run("failing.py")

    alone = scratch.run("failing.py", environ=scratch.environ("0"))
    assert alone.stdout.count("ValueError") == 9
    assert (seen.stdout, seen.stderr, seen.returncode) == (
        alone.stdout,
        alone.stderr,
        alone.returncode,
    )


@pytest.mark.slow
def test_what_takes_the_place_of_a_process_is_linked_too(scratch: Scratch) -> None:
    scratch.write(
        "parent.py",
        "import os, sys, tau_live\n"
        "with tau_live.run('parent', key='1'):\n"
        "    if os.fork() == 0:\n"
        "        os.execv(sys.executable, [sys.executable, 'agent.py', 'rye'])\n"
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

    assert parent_of({PARENT: carried(link)}) == link


@pytest.mark.parametrize("value", ["", ":", "host:", ":run", "no sign", "h:" + "x" * 2_000])
def test_what_names_no_run_is_none(value: str) -> None:
    assert parent_of({PARENT: value}) is None


def test_only_the_start_of_a_run_without_a_parent_is_linked() -> None:
    link = Link("outer", "o")
    start = RunStart(host="inner", run_id="i", at=1.0)
    nested = RunStart(host="inner", run_id="n", at=1.0, parent_run_id="i")
    end = RunEnd(host="inner", run_id="i", at=2.0)
    itself = RunStart(host="outer", run_id="o", at=1.0)

    found = [linked(event, link) for event in (start, nested, end, itself)]

    assert (found[0].parent_run_id, found[0].parent_host) == ("o", "outer")
    assert found[1:] == [nested, end, itself]
    assert linked(start, None) is start


def test_a_process_is_unwanted_if_another_one_says_so() -> None:
    assert not is_unwanted_child({})
    assert not is_unwanted_child({ATTACHED: this_process()})
    assert is_unwanted_child({ATTACHED: f"{this_process()}0"})
