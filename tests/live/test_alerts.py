"""Alerts of processes that really run: told once for all of them, and in nobody's way."""

import json
import os
import shlex
import threading
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import tau_live
from tau_live.cli.gate import hold_gate
from tau_live.core.settings import Settings
from tau_live.operate.report.summary import summary_of
from tau_live.operate.status import status_of
from tau_live.runtime.learner_process import learn_until
from tau_live.store.records import AlertRow
from tests.live.running import done, go, line, opened, process, rollout, until

ATTACHED = """
import sys
import tau_live

runtime = tau_live.attach()
print("on", flush=True)
sys.stdin.readline()
tau_live.detach()
"""


def writing(folder: Path) -> str:
    """Return a command that writes each alert into a file of its own."""
    return f"sh -c {shlex.quote(f'cat > {shlex.quote(str(folder))}/$TAU_LIVE_ALERT_KIND.$$')}"


def told(folder: Path) -> list[dict[str, object]]:
    return [json.loads(text) for one in folder.iterdir() if (text := one.read_text())]


@pytest.mark.slow
def test_of_processes_that_share_a_store_one_tells_a_hold(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    heard.mkdir()
    store = tmp_path / "store.sqlite"
    more = {"TAU_LIVE_RL_ALERT_COMMAND": writing(heard)}
    with process(ATTACHED, store, **more) as one, process(ATTACHED, store, **more) as two:
        both = (one, two)
        assert [line(each) for each in both] == ["on", "on"]
        with opened(store) as known:
            row = replace(
                known.gate.load(), state="hold", reason="operator", detail="look", since=5.0,
                revision=known.gate.load().revision + 1,
            )  # fmt: skip
            known.gate.save(row, entry=None)

        until(lambda: told(heard))
        for each in both:  # whose last look comes before its end
            go(each)
            done(each)

    assert [one["kind"] for one in told(heard)] == ["gate-hold"]


@pytest.mark.slow
def test_a_command_that_hangs_delays_neither_the_host_nor_what_is_stored(
    live: Path, settings: Settings, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    command = ("sh", "-c", f"echo x > {shlex.quote(str(began))}; sleep 60")
    tau_live.detach()
    assert tau_live.attach(replace(settings, alert_command=command)) is not None
    with opened(settings.store) as store:
        store.counters.add({"dropped_queue_full": 3})
    until(began.exists)

    with tau_live.run("work", key="after") as run:
        run.reward(1.0)
    flushed = tau_live.flush(10.0)
    tau_live.detach()

    assert flushed
    assert rollout(live, run.id).total_reward == 1.0


@pytest.mark.slow
def test_a_learner_that_has_nothing_to_learn_tells_a_hold(
    settings: Settings, tmp_path: Path
) -> None:
    heard, stop = tmp_path / "heard", threading.Event()
    heard.mkdir()
    command = tuple(shlex.split(writing(heard)))
    learner = threading.Thread(
        target=learn_until, args=(stop, replace(settings, alert_command=command)),
        kwargs={"once": False, "report": lambda _: None, "environ": dict(os.environ)},
    )  # fmt: skip
    with opened(settings.store) as store:
        hold_gate(store, settings, reason="look", who="me", at=5.0)

    learner.start()
    until(lambda: told(heard))
    stop.set()
    learner.join()

    assert [one["kind"] for one in told(heard)] == ["gate-hold"]


@pytest.mark.slow
def test_a_reward_that_collapses_is_reported_and_no_store_is_healthy_then(
    live: Path, settings: Settings
) -> None:
    rng = Random(7)

    def work(runs: int, good: float) -> None:
        for number in range(runs):
            with tau_live.run("work") as run:
                run.decide("model", ["a", "b"], default="a")
                run.reward(float(rng.random() < good))
            if number % 64 == 63:
                assert tau_live.flush(30.0)

    def fell() -> list[AlertRow]:
        with opened(live) as store:
            return [row for row in store.alerts.latest(limit=100) if row.kind == "reward-fell"]

    def usual() -> str | None:
        with opened(live) as store:
            return store.alerts.notes().get(("reward-fell", "model"))

    work(320, 0.83)
    until(usual)  # the level that the mean falls from
    before = fell()
    work(320, 0.05)
    until(fell)
    with opened(live) as store:
        said = status_of(store, settings, now=time.time())

    assert before == []
    assert [row.subject for row in fell()] == ["model"]
    healthy = summary_of(said, [], ["model"], settings=settings).healthy
    assert (healthy.state, healthy.answer) == ("doubtful", "look closer")
    assert "The mean reward at model fell from 0." in healthy.sentence
