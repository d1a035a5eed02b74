"""What children of a run do is linked to it, each through a store connection of its own."""

import json
import os
import subprocess

import pytest

from tau_live.events import RunEnd, RunStart
from tau_live.lineage import ATTACHED, PARENT, Link, carried, is_unwanted_child, linked, parent_of
from tau_live.processes import this_process
from tests.scratch import Scratch

PARENTS = """
import asyncio, multiprocessing, os, subprocess, sys
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
    "way", ["by_subprocess", "by_environment", "by_spawn", "by_fork", "by_asyncio"]
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
@pytest.mark.parametrize("way", ["by_subprocess", "by_spawn", "by_fork"])
def test_children_are_left_alone_where_that_is_wished(scratch: Scratch, way: str) -> None:
    scratch.write("parent.py", PARENTS)
    environ = scratch.environ(TAU_LIVE_RL_CHILDREN="no")

    scratch.said("parent.py", way, environ=environ)

    assert [one["name"] for one in rollouts(scratch)] == ["parent"]


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
