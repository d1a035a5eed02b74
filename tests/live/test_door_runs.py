"""Runs of the public door: sync, threaded, asyncio, nested, decorated; how they end."""

import asyncio
import copy
import pickle
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import tau_live
from tau_live.core.records import rollout_id_of
from tests.live.running import decisions, ended_by, line, process, rewards, rollout, rollouts, throw

TASKS, THREADS = 1_000, 64


class TicketError(RuntimeError):
    """What a host's own code raises."""


def test_the_example_of_the_readme(live: Path) -> None:
    ticket_id, user_id = "ticket-17", "anna"

    with tau_live.run("triage", key=ticket_id, session=user_id) as run:
        choice = run.decide(
            "model",
            {"small": {"usd": 0.1}, "large": {"usd": 2.0}},
            context={"words": 120, "lang": "de"},
            default="small",
        )
        run.reward(1.0, name="solved")
    tau_live.reward(0.0, run=run.id, name="solved", source="user")
    flushed = tau_live.flush(timeout_s=30)

    row, found = decisions(live, run.id)[0], rollout(live, run.id)
    assert flushed
    assert (found.name, found.session_id, found.status, found.reason) == (
        *("triage", "anna", "succeeded", "completed"),
    )
    assert (row.decision_id, row.applied, row.propensity) == (
        *(choice.id, choice.option, choice.probability),
    )
    assert row.probabilities[row.options.index(choice.option)] == choice.probability
    assert (choice.source, choice.policy_version, choice.run) == ("policy", 0, run.id)
    assert [(r.value, r.source) for r in rewards(live, run.id)] == [(1.0, "api"), (0.0, "user")]
    assert tau_live.snapshot()["enabled"] is True


@pytest.mark.slow
def test_threads_do_not_hear_of_each_other(live: Path) -> None:
    start = threading.Barrier(THREADS)
    seen: dict[int, tuple[str, str]] = {}

    def work(number: int) -> None:
        start.wait(timeout=30)
        with tau_live.run("threaded", key=number) as run:
            choice = tau_live.decide("model", ["a", "b"])
            inside = tau_live.current()
            assert inside is run
            tau_live.reward(float(number))
        seen[number] = (run.id, choice.run)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    assert tau_live.flush(30)

    assert len(seen) == THREADS
    assert all(run == chosen_in for run, chosen_in in seen.values())
    assert len({run for run, _ in seen.values()}) == THREADS
    for number, (run, _) in seen.items():
        assert [reward.value for reward in rewards(live, run)] == [float(number)]
        assert len(decisions(live, run)) == 1


@pytest.mark.slow
def test_a_thousand_tasks_do_not_hear_of_each_other(live: Path) -> None:
    async def child(number: int) -> str:
        async with tau_live.run("child", key=f"c{number}") as run:
            await asyncio.sleep(0)
            assert tau_live.current() is run
            return run.id

    async def task(number: int) -> tuple[str, str, str]:
        async with tau_live.run("task", key=number) as run:
            await asyncio.sleep(0)
            inner = await child(number)
            await asyncio.sleep(0)
            choice = tau_live.decide("model", ["a", "b"])
            assert tau_live.current() is run
            return run.id, inner, choice.run

    async def everything() -> list[tuple[str, str, str]]:
        return list(await asyncio.gather(*map(task, range(TASKS))))

    found = asyncio.run(everything())
    assert tau_live.flush(60)

    stored = {row.rollout_id: row for row in rollouts(live)}
    assert len(stored) == 2 * TASKS
    assert all(run == chosen_in for run, _, chosen_in in found)
    assert all(stored[inner].parent_id == run for run, inner, _ in found)
    assert {row.status for row in stored.values()} == {"succeeded"}


def test_runs_inside_a_run_are_its_children_in_parallel_too(live: Path) -> None:
    async def part() -> str:
        with tau_live.run("part") as run:
            await asyncio.sleep(0)
            with tau_live.run("detail") as inner:
                await asyncio.sleep(0)
                assert inner.id != run.id
            return run.id

    async def whole() -> tuple[str, list[str]]:
        with tau_live.run("whole", key=1) as run:
            return run.id, list(await asyncio.gather(part(), part(), part()))

    parent, parts = asyncio.run(whole())
    assert tau_live.flush(30)

    by_parent = [row.rollout_id for row in rollouts(live) if row.parent_id == parent]
    details = [row for row in rollouts(live) if row.name == "detail"]
    assert sorted(by_parent) == sorted(parts)
    assert sorted(row.parent_id or "" for row in details) == sorted(parts)


def test_a_function_of_every_kind_can_be_decorated(live: Path) -> None:
    ids: list[str] = []

    def note() -> None:
        inside = tau_live.current()
        assert inside is not None
        ids.append(inside.id)

    @tau_live.run("plain", key=lambda number: number)
    def plain(number: int) -> int:
        note()
        return number

    @tau_live.run("coroutine")
    async def coroutine(number: int) -> int:
        await asyncio.sleep(0)
        note()
        return number

    @tau_live.run("generator")
    def generator(number: int) -> Iterator[int]:
        note()
        yield number

    @tau_live.run("agen")
    async def agen(number: int) -> AsyncIterator[int]:
        await asyncio.sleep(0)
        note()
        yield number

    async def collect() -> list[int]:
        return [number async for number in agen(4)]

    results = [plain(1), asyncio.run(coroutine(2)), *generator(3), *asyncio.run(collect())]
    assert tau_live.flush(30)

    assert results == [1, 2, 3, 4]
    assert [rollout(live, id_).name for id_ in ids] == ["plain", "coroutine", "generator", "agen"]
    assert {rollout(live, id_).status for id_ in ids} == {"succeeded"}
    assert ids[0] == rollout_id_of("tau_live", "plain/1")


def test_a_key_function_that_fails_costs_the_call_nothing(live: Path) -> None:
    @tau_live.run("keyed", key=lambda ticket: ticket.number)
    def answered(ticket: object) -> object:
        return tau_live.current()

    run = answered("no ticket")

    assert isinstance(run, tau_live.Run)
    assert run.id.startswith("live-")


@pytest.mark.parametrize(
    ("name", "key", "other"),
    [
        ("a/b", "c", ("a", "b/c")),
        ("a%2F", "b", ("a/", "b")),
        ("a", "x" * 2_000, ("a", "x" * 1_999)),
    ],
)
def test_runs_with_different_names_or_keys_never_share_an_id(
    live: Path, name: str, key: str, other: tuple[str, str]
) -> None:
    with tau_live.run(name, key=key) as one, tau_live.run(other[0], key=other[1]) as two:
        pass

    assert one.id != two.id


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (TicketError("no"), "failed", "error"),
        (TimeoutError("late"), "failed", "timeout"),
        (asyncio.CancelledError(), "cancelled", "cancelled"),
        (KeyboardInterrupt(), "cancelled", "cancelled"),
        (SystemExit(1), "cancelled", "cancelled"),
        (GeneratorExit(), "cancelled", "cancelled"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_a_run_that_raises_ends_truthfully_and_passes_on_the_very_same(
    live: Path, error: BaseException, status: str, reason: str
) -> None:
    with ended_by(error), tau_live.run("raises") as run:
        throw(error)
    assert tau_live.flush(30)

    row = rollout(live, run.id)
    assert (row.status, row.reason, row.error_type) == (status, reason, type(error).__name__)


def test_a_cancelled_task_ends_its_run_as_cancelled(live: Path) -> None:
    ids: list[str] = []

    async def waits() -> None:
        async with tau_live.run("waits") as run:
            ids.append(run.id)
            await asyncio.Event().wait()

    async def cancelled() -> bool:
        task = asyncio.ensure_future(waits())
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return task.cancelled()

    assert asyncio.run(cancelled())
    assert tau_live.flush(30)
    assert rollout(live, ids[0]).status == "cancelled"


def test_a_context_shared_by_threads_keeps_their_runs_apart(live: Path) -> None:
    context, start = tau_live.run("shared"), threading.Barrier(8)

    def work(_: int) -> bool:
        with context as run:
            start.wait(timeout=30)
            mine = tau_live.current() is run
        return mine and tau_live.current() is None

    with ThreadPoolExecutor(8) as pool:
        apart = list(pool.map(work, range(8)))
    assert tau_live.flush(30)

    assert apart == [True] * 8
    assert {row.status for row in rollouts(live)} == {"succeeded"}


def test_a_run_in_state_that_its_host_copies_is_the_same_run(live: Path) -> None:
    with tau_live.run("graph") as run:
        state = {"run": run}
        copies = [copy.copy(state)["run"], copy.deepcopy(state)["run"], copy.copy(run)]
        choice = copies[1].decide("model", ["a", "b"])
    assert tau_live.flush(30)

    assert copies == [run, run, run]
    assert [row.decision_id for row in decisions(live, run.id)] == [choice.id]


READS = """
import pickle, sys, tau_live
run = pickle.loads(bytes.fromhex(sys.stdin.readline()))
choice = run.decide("model", ["a", "b"], default="b")
print(run.name, run.run_id, run.id or "-", choice.run or "-", run.reward(1.0), flush=True)
tau_live.detach()
"""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_run_is_rewarded_elsewhere_and_decides_inside_it(
    live: Path, protocol: int
) -> None:
    with tau_live.run("graph", key=7, session="anna") as run:
        told = pickle.dumps(run, protocol)
    assert tau_live.flush(30)
    with process(READS, live) as other, process(READS, live, TAU_LIVE_RL="0") as off:
        read = [_answer(one, told).split() for one in (other, off)]
        assert other.wait(30) == off.wait(30) == 0

    (name, run_id, id_, inside, rewarded), without = read
    assert (name, run_id, id_, rewarded) == (run.name, run.run_id, run.id, "True")
    assert (rollout(live, inside).parent_id, rollout(live, inside).session_id) == (run.id, "anna")
    assert [reward.value for reward in rewards(live, run.id)] == [1.0]
    assert rollout(live, run.id).status == "succeeded"
    assert without == [run.name, run.run_id, "-", "-", "False"]


def _answer(of: subprocess.Popen[str], told: bytes) -> str:
    assert of.stdin is not None
    of.stdin.write(told.hex() + "\n")
    of.stdin.flush()
    return line(of)


def test_after_its_end_a_run_decides_as_the_host_would(live: Path) -> None:
    with tau_live.run("over") as run:
        pass

    choice = run.decide("model", ["a", "b"], default="b")

    assert (choice.option, choice.source, choice.probability, choice.id) == (
        "b",
        "default",
        None,
        "",
    )


def test_a_decision_outside_of_any_run_gets_a_run_of_its_own(live: Path) -> None:
    choice = tau_live.decide("model", ["a", "b"], default="b")
    tau_live.reward(1.0, decision=choice)
    assert tau_live.flush(30)

    row = rollout(live, choice.run)
    assert (row.name, row.status) == ("model", "succeeded")
    assert [reward.decision_id for reward in rewards(live, choice.run)] == [choice.id]


def test_the_same_run_again_is_another_attempt_and_its_decisions_are_told_apart(live: Path) -> None:
    with suppress(TicketError), tau_live.run("again", key=1) as first:
        one = first.decide("model", ["a", "b"])
        raise TicketError
    with tau_live.run("again", key=1) as second:
        two = second.decide("model", ["a", "b"])
    assert tau_live.flush(30)

    assert first.id == second.id
    assert [row.decision_id for row in decisions(live, first.id)] == [one.id, two.id]
    assert rollout(live, first.id).status == "succeeded"


def test_a_run_goes_on_as_one_when_it_was_attached_anew(live: Path, settings: object) -> None:
    with tau_live.run("outer", key=1) as run:
        tau_live.detach()
        assert tau_live.attach(settings) is not None
        choice = run.decide("model", ["a", "b"])
    assert tau_live.flush(30)

    assert choice.source == "policy"
    assert rollout(live, choice.run).parent_id == run.id
    assert rollout(live, run.id).reason == "abandoned"
