"""Hosts of a fleet that fail: each holds itself, and all hold when too many do (F15)."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.live.fleet import command, started, why_one_host
from tests.live.running import line, until
from tests.postgres import needs_postgres, server

pytestmark = [
    needs_postgres,
    pytest.mark.skipif(why_one_host() is not None, reason=why_one_host() or ""),
    pytest.mark.slow,
    pytest.mark.timed,
]

HOSTS = 6
"""A third of them are two, which is the fewest that hold all."""

RESET_S = 6.0
"""In this time a reset reaches every host, also one that does not hear it."""

AGENT = """
import json, sys, tau_live
runtime = tau_live.attach()
whole, count = runtime._decider._untrained, 0
with tau_live.run("answer", key="first") as run:
    run.decide("model", ["small", "large"], default="small")
tau_live.flush(10)
print("ready", flush=True)
for order in sys.stdin:
    runtime._decider._untrained = None if order.startswith("fail") else whole
    for _ in range(int(order.split()[1])):  # so many runs, which fail while it is damaged
        count += 1
        with tau_live.run("answer", key=f"{sys.argv[1]}-{count}") as run:
            run.decide("model", ["small", "large"], default="small")
    gate = tau_live.snapshot()["gate"]
    print(json.dumps([gate["state"], gate["reason"], gate["streaks"]["decision"]]), flush=True)
"""

PASS = ["pass", None, 0]
HELD = ["hold", "decision_failures", 3]


class Hosts:
    """Agents on machines of different names, on one database."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        self.address = address
        self._stack = stack
        self._agents: dict[str, subprocess.Popen[str]] = {}

    def start(self, *names: str) -> None:
        """Start agents, each on a host of its own."""
        for name in names:
            agent = started(AGENT, self.address, name, learner="off", host=name)
            self._stack.enter_context(agent)
            self._stack.callback(agent.kill)
            self._agents[name] = agent
        assert [line(self._agents[name]) for name in names] == ["ready"] * len(names)

    def order(self, name: str, order: str) -> list[object]:
        """Let a host ``fail`` or ``work`` so many times; return its gate: state, reason, streak."""
        agent = self._agents[name]
        assert agent.stdin is not None
        agent.stdin.write(f"{order}\n")
        agent.stdin.flush()
        found: list[object] = json.loads(line(agent))
        return found

    def gates(self) -> dict[str, list[object]]:
        """Return the gate of each host, as it sees it."""
        return {name: self.order(name, "work 0") for name in self._agents}

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a host's agent, and wait for it if it dies of that."""
        agent = self._agents[name]
        os.kill(agent.pid, number)
        if number is signal.SIGKILL:
            agent.wait()
            del self._agents[name]

    def gate(self) -> dict[str, Any]:
        """Return what the command says, on yet another host."""
        found: dict[str, Any] = json.loads(
            command(self.address, "gate", "show", "--json", host="desk", codes=(0, 3))
        )
        return found

    def reset(self) -> None:
        """Reset the gate, on yet another host."""
        command(self.address, "gate", "reset", "--reason", "mended", host="desk")


@pytest.fixture
def hosts(home: Path) -> Iterator[Hosts]:
    with ExitStack() as stack:
        yield Hosts(server().new_database(), stack)


def names(count: int) -> list[str]:
    return [f"host-{number}" for number in range(count)]


def test_hosts_that_fail_hold_themselves_and_all_when_they_are_many(hosts: Hosts) -> None:
    hosts.start(*names(HOSTS))

    once = [hosts.order(name, "fail 1") for name in names(3)]
    until(lambda: failures(hosts.gate()) == {}, deadline_s=10.0)  # a heartbeat has been
    after_once = [gate[0] for gate in hosts.gates().values()]

    assert once == [["pass", None, 1]] * 3
    assert after_once == ["pass"] * HOSTS
    assert hosts.gate()["state"] == "pass"

    endless = hosts.order("host-0", "fail 5")
    until(lambda: failures(hosts.gate()) == {"host-0": "decision_failures"}, deadline_s=3.0)
    others = [hosts.order(name, "work 5") for name in names(HOSTS)[1:]]

    assert endless == HELD
    assert others == [PASS] * (HOSTS - 1)
    assert hosts.gate()["state"] == "pass"

    hosts.reset()
    until(lambda: hosts.order("host-0", "work 1") == PASS, deadline_s=RESET_S)
    assert failures(hosts.gate()) == {}

    third = [hosts.order(name, "fail 5") for name in names(HOSTS // 3)]
    until(lambda: {gate[0] for gate in hosts.gates().values()} == {"hold"}, deadline_s=10.0)
    found = hosts.gate()

    assert third == [HELD] * (HOSTS // 3)
    assert (found["state"], found["reason"]) == ("hold", "decision_failures")
    assert found["detail"].startswith(f"2 of {HOSTS} hosts hold, one because of: ")

    hosts.reset()
    until(lambda: {*map(tuple, hosts.gates().values())} == {tuple(PASS)}, deadline_s=RESET_S)
    until(lambda: not hosts.gate()["not_acknowledged"])
    assert hosts.gate()["state"] == "pass"


def test_a_host_that_does_not_hear_an_order_is_named_until_it_does(hosts: Hosts) -> None:
    hosts.start("host-0", "host-1")
    until(lambda: not hosts.gate()["not_acknowledged"])

    hosts.signal("host-1", signal.SIGSTOP)
    command(hosts.address, "gate", "hold", "--reason", "audit", host="desk")
    until(lambda: unaware(hosts.gate()) == ["host-1"], deadline_s=10.0)
    shown = command(hosts.address, "gate", host="desk", codes=(3,))
    hosts.signal("host-1", signal.SIGCONT)

    assert "not acknowledged   by host-1/" in shown
    until(lambda: unaware(hosts.gate()) == [], deadline_s=10.0)


def test_a_host_that_is_started_again_goes_on_where_it_was(hosts: Hosts) -> None:
    hosts.start("host-0", "host-1")
    assert hosts.order("host-0", "fail 5") == HELD
    until(lambda: "host-0" in failures(hosts.gate()), deadline_s=3.0)

    hosts.signal("host-0", signal.SIGKILL)
    hosts.start("host-0")
    again = hosts.order("host-0", "work 3")
    hosts.reset()

    assert again == HELD
    until(lambda: hosts.order("host-0", "work 1") == PASS, deadline_s=RESET_S)
    hosts.signal("host-0", signal.SIGKILL)
    hosts.start("host-0")
    assert hosts.order("host-0", "work 1") == PASS


def failures(gate: dict[str, Any]) -> dict[str, str]:
    return {each["host"].partition("/")[0]: each["reason"] for each in gate["hosts_holding"]}


def unaware(gate: dict[str, Any]) -> list[str]:
    return [each["process"].partition("/")[0] for each in gate["not_acknowledged"]]
