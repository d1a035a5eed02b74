"""Agents of several processes on one PostgreSQL database, whose server may die."""

import json
import os
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tau_live.core.records import RolloutQuery, RolloutStatus
from tau_live.store.opening import open_at
from tests.live.fleet import command, started
from tests.live.running import DEADLINE_S
from tests.postgres import Server, needs_postgres, server

pytestmark = [needs_postgres, pytest.mark.slow]

AGENT = """
import sys
import tau_live

name, runs, flush_s, *waits = sys.argv[1:]
for number in range(int(runs)):
    language = ("de", "en")[number % 2]
    with tau_live.run("answer", key=f"{name}-{number}") as run:
        model = str(run.decide("model", ["small", "large"], context={"language": language}))
        run.reward(1.0 if (model == "large") == (language == "de") else 0.0)
print(tau_live.flush(float(flush_s)), flush=True)
if waits:
    sys.stdin.read()
"""


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_agents_of_several_processes_are_learned_from_together(home: Path) -> None:
    address = server().new_database(empty=True)  # whoever comes first makes the tables
    with (
        started(AGENT, address, "a", 30, 1, learner="off"),
        started(AGENT, address, "b", 30, 1, learner="off"),
    ):
        pass
    learned = json.loads(command(address, "learn", "--once", "--json").splitlines()[-1])
    status = json.loads(command(address, "status", "--json"))
    with closing(open_at(address)) as store:
        page = store.rollouts.query(RolloutQuery())
        served = store.policies.in_service()["model"].version
    with started(AGENT, address, "c", 1, 30) as third:
        assert line(third) == "True"
    with closing(open_at(address)) as store:
        newest = store.rollouts.query(RolloutQuery(descending=True, limit=1)).rollouts[0]
        [decision] = store.decisions.decisions(newest.rollout_id)

    assert (page.total, learned["executed"], served) == (60, True, 1)
    assert status["gate"]["state"] == "pass"
    assert (decision.policy_version, decision.source) == (1, "policy")


def test_what_was_flushed_survives_the_death_of_agent_and_server(home: Path) -> None:
    own = Server()
    try:
        address = own.new_database()
        with started(AGENT, address, "a", 20, 30, "waits") as agent:
            assert line(agent) == "True"
            own.stop("immediate")
            os.kill(agent.pid, signal.SIGKILL)
        own.start()
        with closing(open_at(address)) as store:
            rollouts = store.rollouts.query(RolloutQuery()).rollouts
    finally:
        own.remove()

    assert [rollout.status for rollout in rollouts] == [RolloutStatus.SUCCEEDED] * 20


def test_an_agent_is_not_hurt_while_its_server_is_away(home: Path) -> None:
    own = Server()
    try:
        address = own.new_database()
        own.stop("immediate")
        with started(AGENT, address, "a", 10, 1) as agent:
            assert line(agent) == "False"
            assert agent.wait(DEADLINE_S) == 0
        own.start()
        with started(AGENT, address, "b", 10, 30) as other:
            assert line(other) == "True"
        with closing(open_at(address)) as store:
            stored = store.rollouts.query(RolloutQuery()).total
    finally:
        own.remove()

    assert stored == 10
